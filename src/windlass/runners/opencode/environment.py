"""The environment of OpenCode's processes, and the folder settings that they may read (A3, A8).

Allow-listed: the request's own variables, and by name those that OpenCode and its providers need. A folder that is not
trusted brings nothing of its own along: no opencode.json (providers, MCP commands), no .opencode (agents, tools), no
language servers or formatters out of its node_modules. What OpenCode loads of a folder whatever it is told
(`unstoppable_setting`), keeps it from working in that folder at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass import jsonc
from windlass.ports import account_name
from windlass.regular import read_regular

__all__ = [
    "NEEDED",
    "PROBE_MARK",
    "account",
    "folder_settings",
    "marked_folder",
    "modern_environment",
    "picked_environment",
    "same_folder",
    "unstoppable_setting",
]

PREFIXES = ("OPENCODE_", "XDG_", "ANTHROPIC_", "OPENAI_", "AZURE_", "AWS_", "GOOGLE_", "CLOUDFLARE_", "VERTEX_")
NEEDED = frozenset(
    {
        *("HOME", "PATH", "LANG", "LC_ALL", "TMPDIR", "USER", "SHELL", "TZ", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("GEMINI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY"),
        *("XAI_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "CEREBRAS_API_KEY", "PERPLEXITY_API_KEY"),
        *("MOONSHOT_API_KEY", "ZHIPU_API_KEY", "DASHSCOPE_API_KEY", "NVIDIA_API_KEY", "HF_TOKEN", "COHERE_API_KEY"),
        *("GITHUB_TOKEN", "GITLAB_TOKEN", "AI_GATEWAY_API_KEY", "BASETEN_API_KEY", "DEEPINFRA_API_KEY"),
        *("LOCAL_ENDPOINT", "VENICE_API_KEY", "OLLAMA_API_KEY", "SYNTHETIC_API_KEY"),
    }
)
"""Names that are handed on; besides them everything that begins with one of PREFIXES."""

OURS = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    "OPENCODE_DISABLE_TERMINAL_TITLE": "1",
    "OPENCODE_CLIENT": "windlass",
}
UNTRUSTED = {"OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
NEVER = frozenset({"OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME", "OPENCODE_PID", "OPENCODE"})
"""Of a server that the user or an OpenCode around us runs: not ours."""

BASELINE = "**"
"""Matches every permission like `*`, but comes after all of the user's settings: an agent without rules of its own
asks. A subagent inherits only the denials of its parent's session, so without this it would act unasked."""


def modern_environment(
    engine: Mapping[str, str],
    request: Mapping[str, str],
    *,
    trusted: bool,
    config: Mapping[str, Any] | None = None,
    permission: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """The environment of `opencode serve` and `opencode run`. `config` is merged into OPENCODE_CONFIG_CONTENT."""
    env = {**picked_environment(engine, request), **OURS, **({} if trusted else UNTRUSTED)}
    settings: dict[str, Any] = {"autoupdate": False, "share": "disabled"}
    if not trusted:
        settings |= {"lsp": False, "formatter": False}
    # A question that was answered with no is not the end of the turn: the agent is told, and goes on.
    settings["experimental"] = {"continue_loop_on_deny": True}
    told = _merged(_parsed(env.get("OPENCODE_CONFIG_CONTENT", "")), settings)
    env["OPENCODE_CONFIG_CONTENT"] = json.dumps(_merged(told, config or {}))
    rules = _parsed(env.get("OPENCODE_PERMISSION", ""))
    env["OPENCODE_PERMISSION"] = json.dumps({**rules, **(permission or {BASELINE: "ask"})})
    return env


PROBE_MARK = "windlass-probe"


def marked_folder(home: Path) -> Path:
    """A folder of ours with settings of its own: a program that leaves a folder's settings out never shows the mark."""
    folder = home / "probe"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "opencode.json").write_text(f'{{"username": "{PROBE_MARK}"}}\n')
    return folder


def folder_settings(workdir: Path, *, legacy: bool = False) -> list[Path]:
    """Settings of OpenCode that the folder or one around it brings along."""
    names = (".opencode.json",) if legacy else ("opencode.json", "opencode.jsonc", ".opencode")
    places = [workdir] if legacy else [workdir, *workdir.parents]
    return [place / name for place in places for name in names if (place / name).exists()]


UNSTOPPABLE = ("plugin", "plugins", "reference", "references")
"""Keys of a settings file that OpenCode obeys whatever it is told: it imports plugins, and fetches repositories."""


def same_folder(one: str, other: str) -> bool:
    """Tell whether two paths are those of one folder, which need not be there any more."""
    return os.path.realpath(one) == os.path.realpath(other)


def unstoppable_setting(workdir: Path, user: str) -> Path | None:
    """Find a file of the folder, or of one around it, that takes effect in spite of OPENCODE_DISABLE_PROJECT_CONFIG.

    OpenCode has two loaders of settings. The second one, which comes with the first use of a tool, does not know that
    variable. `user` is the home of the user, where they keep plugins of their own.
    """
    workdir, own = workdir.resolve(), Path(user).resolve() if user else None
    for place in (workdir, *workdir.parents):
        if place == own:
            continue
        for folder in (place / ".opencode" / "plugin", place / ".opencode" / "plugins"):
            if found := next((path for ending in ("js", "ts") for path in sorted(folder.glob(f"*.{ending}"))), None):
                return found
        for settings in (place, place / ".opencode"):
            for name in ("opencode.json", "opencode.jsonc"):
                if _is_unstoppable(settings / name):
                    return settings / name
    return None


def _is_unstoppable(settings: Path) -> bool:
    """Tell whether a settings file has one of the keys, or cannot be read, so that nobody knows."""
    try:
        found = jsonc.parse(read_regular(settings).decode())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, RecursionError):
        return True
    return not isinstance(found, dict) or any(found.get(key) for key in UNSTOPPABLE)


def picked_environment(engine: Mapping[str, str], request: Mapping[str, str]) -> dict[str, str]:
    """The allow-listed variables: all that the older program gets."""
    picked = {name: value for name, value in engine.items() if name in NEEDED or name.startswith(PREFIXES)}
    # The WINDLASS_ variables differ from run to run, and a server's environment is fixed when it starts.
    asked = {name: value for name, value in request.items() if not name.startswith("WINDLASS_")}
    return {name: value for name, value in {**picked, **asked}.items() if name not in NEVER}


def _parsed(text: str) -> dict[str, Any]:
    """Parse the user's own JSON, which may have comments; like OpenCode, ignore text that cannot be read."""
    try:
        found = jsonc.parse(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    both = {**base, **top}
    for name in base.keys() & top.keys():
        if isinstance(base[name], dict) and isinstance(top[name], dict):
            both[name] = _merged(base[name], top[name])
    return both


def account(model: str | None, env: Mapping[str, str]) -> str:
    """Provider and account of a `provider/model`; empty for a model without a provider, which OpenCode looks for."""
    provider, slash, _ = (model or "").partition("/")
    if not slash:
        return ""
    return account_name(provider, _kept(provider, env), env.get(f"{provider.upper().replace('-', '_')}_API_KEY"))


def _kept(provider: str, env: Mapping[str, str]) -> str | None:
    """The key or the account that `opencode auth login` has kept. The tokens of a login change, and name no account."""
    folder = env.get("XDG_DATA_HOME") or os.path.join(env.get("HOME", ""), ".local/share")
    try:
        found = json.loads(read_regular(os.path.join(folder, "opencode", "auth.json")))[provider]
        kept = found.get("key") or found.get("accountId")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return kept if isinstance(kept, str) else None
