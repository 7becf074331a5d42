"""Choose a model, its address and its key.

The rule, in this order:

- `anthropic:ID` and `openai:ID` say it all, and so do `anthropic/ID` and `openai/ID` while no other server is set;
- `sonnet`, `opus` and `haiku` are the current model of that name;
- `claude…` is Anthropic's, `gpt…`, `o3…`, `chatgpt…` and `codex…` are OpenAI's: with a key for it;
- every other name, and those without a key, goes to the OpenAI-compatible server of the user (`base_url` in the
  user's settings, or `OPENAI_BASE_URL`), where any name may exist and a key is optional (Ollama, vLLM, llama.cpp);
- without any name: the default of the settings, else the current Sonnet or the current GPT, whichever has a key.

An address that is set but empty is refused: somebody meant another server than the provider's, which costs money.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from windlass.errors import Category, Failure
from windlass.ports import account_name

__all__ = ["CURRENT", "ModelTarget", "Provider", "choose"]

Provider = Literal["anthropic", "openai"]
"""The protocol that is spoken; an OpenAI-compatible server counts as `openai`."""

CURRENT: Mapping[str, str] = {"sonnet": "claude-sonnet-5-5", "opus": "claude-opus-5-5", "haiku": "claude-haiku-5-5"}
"""Models of the aliases: the newest of each family in the installed client's own list (anthropic 2.8)."""

DEFAULT_OPENAI = "gpt-5.5"
ADDRESSES: Mapping[Provider, str] = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}

_EXPLICIT = re.compile(r"(anthropic|openai)([:/])(.+)", re.IGNORECASE | re.DOTALL)
_OPENAI = re.compile(r"(gpt|chatgpt|codex|o\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """One model that can be called."""

    provider: Provider
    model: str
    """Its name there. Empty: no model was named, and this server has no usual one."""
    base_url: str
    key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """A bearer token in place of a key (`ANTHROPIC_AUTH_TOKEN`)."""
    named_by: str = ""
    """Variable or setting that the address is in; empty for the provider's own."""

    @property
    def host(self) -> str:
        """Host and port, without a user and a password in front of them."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def address(self) -> str:
        """The base URL as it may be shown."""
        return urlsplit(self.base_url)._replace(netloc=self.host).geturl()

    @property
    def account(self) -> str:
        """Provider and account, the key of quotas and circuit breakers."""
        return account_name(self.host if self.own else self.provider, self.key, self.token)

    @property
    def own(self) -> bool:
        """The user's own server, or one between: not the provider's."""
        return self.base_url.rstrip("/") != ADDRESSES[self.provider]

    @property
    def local(self) -> bool:
        name = urlsplit(self.base_url).hostname or ""
        return name in ("localhost", "::1") or name.startswith("127.")

    @property
    def kind(self) -> str:
        return "openai-compatible" if self.provider == "openai" and self.own else self.provider

    @property
    def priced_as(self) -> str:
        """The name to look a price up by. Prices of a user's own server are in no list."""
        if self.kind != "openai-compatible":
            return f"{self.provider}:{self.model}"
        guess = _guess(self.model)
        return f"{guess}:{self.model}" if guess else f"compatible:{self.model}"

    def __str__(self) -> str:
        model = self.model or "no model named yet"
        return f"{self.kind} at {self.host}, {model}"


def choose(
    named: str | None, *, default: str | None, env: Mapping[str, str], base_url: str | None
) -> ModelTarget | Failure:
    """The target that a name means here, or why there is none."""
    try:
        return _chosen((named or default or "").strip(), _ModelProviders(env, base_url))
    except _EmptyAddress as empty:
        return _failed(
            f"{empty} is set but empty, so the cli runtime does not know which server is meant",
            f"set it to the address of the server, or, for the provider's own: unset {empty}",
        )


class _EmptyAddress(Exception):
    """A variable for the address of a server is set but empty. Its text is the variable's name."""


def _chosen(name: str, places: _ModelProviders) -> ModelTarget | Failure:
    if not name:
        return places.unnamed()
    if explicit := _EXPLICIT.fullmatch(name):
        provider, sign, model = explicit[1].lower(), explicit[2], explicit[3]
        if sign == ":" or places.compatible is None:
            return places.anthropic(_current(model)) if provider == "anthropic" else places.openai(model)
    guess = _guess(name)
    if guess == "anthropic":
        found = places.anthropic(_current(name))
    elif guess == "openai" or places.compatible:
        found = places.openai(name)
    else:
        return _failed(
            f"the cli runtime does not know the provider of the model {name!r}",
            "write anthropic:ID or openai:ID",
            "or set OPENAI_BASE_URL to the server that has it, e.g. http://localhost:11434/v1",
        )
    # A proxy in front of many models has Claude too: it is asked when Anthropic itself cannot be.
    if isinstance(found, Failure) and places.compatible:
        return places.openai(name)
    return found


class _ModelProviders:
    """The providers that the user's settings and environment make available."""

    def __init__(self, env: Mapping[str, str], base_url: str | None) -> None:
        self._env = env
        self._base_url = base_url

    @property
    def compatible(self) -> str | None:
        """The address of the user's OpenAI-compatible server."""
        return self._base_url or self._address("OPENAI_BASE_URL")

    def _address(self, variable: str) -> str | None:
        address = self._env.get(variable)
        if address is not None and not address.strip():
            raise _EmptyAddress(variable)
        return address

    def anthropic(self, model: str) -> ModelTarget | Failure:
        base_url = self._address("ANTHROPIC_BASE_URL")
        key, token = self._env.get("ANTHROPIC_API_KEY") or None, self._env.get("ANTHROPIC_AUTH_TOKEN") or None
        if not (key or token or base_url):
            return _failed(
                f"the cli runtime has no key for Anthropic, so {model!r} cannot be called",
                "export ANTHROPIC_API_KEY=…",
            )
        # The client takes one of them: a key wins over a token, as in Anthropic's own rule.
        token = None if key else token
        named_by = "ANTHROPIC_BASE_URL" if base_url else ""
        return ModelTarget("anthropic", model, base_url or ADDRESSES["anthropic"], key, token, named_by)

    def openai(self, model: str) -> ModelTarget | Failure:
        key = self._env.get("OPENAI_API_KEY") or None
        if not (key or self.compatible):
            return _failed(
                f"the cli runtime has no key for OpenAI, so {model!r} cannot be called",
                "export OPENAI_API_KEY=…",
                "or set OPENAI_BASE_URL to a server of your own, e.g. http://localhost:11434/v1",
            )
        named_by = (
            "the setting runtimes.cli.base_url" if self._base_url else "OPENAI_BASE_URL" if self.compatible else ""
        )
        return ModelTarget("openai", model, self.compatible or ADDRESSES["openai"], key, named_by=named_by)

    def unnamed(self) -> ModelTarget | Failure:
        if isinstance(found := self.anthropic(CURRENT["sonnet"]), ModelTarget):
            return found
        if isinstance(found := self.openai("" if self.compatible else DEFAULT_OPENAI), ModelTarget):
            return found
        return _failed(
            "the cli runtime has no model to call: no key and no server is set",
            "export ANTHROPIC_API_KEY=… or OPENAI_API_KEY=…",
            "or set OPENAI_BASE_URL to a server of your own, e.g. http://localhost:11434/v1, and name its model",
        )


def _guess(model: str) -> Provider | None:
    lowered = model.lower()
    if lowered in CURRENT or lowered.startswith("claude"):
        return "anthropic"
    return "openai" if _OPENAI.match(lowered) else None


def _current(model: str) -> str:
    return CURRENT.get(model.lower(), model)


def _failed(message: str, *advice: str) -> Failure:
    return Failure(Category.CONFIGURATION, message, advice=advice)
