"""What of the engine's environment a `claude` gets: an allow-list on top of what the request carries.

Credentials and addresses of the model API are passed on because the user set them for Claude Code; everything else of
the engine stays with the engine. What another Claude Code has set for its own children (Windlass may be one of them)
is left out, or ours would take itself for a part of that session.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from windlass.ports import account_name

__all__ = ["account", "credentials", "for_child", "probing"]

_PREFIXES = ("ANTHROPIC_", "CLAUDE_", "XDG_")
_NAMES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"})
_CLOUDS = {"CLAUDE_CODE_USE_BEDROCK": ("AWS_",), "CLAUDE_CODE_USE_VERTEX": ("GOOGLE_", "CLOUD_ML_", "VERTEX_")}
_OUTER = (
    "CLAUDE_AGENT_SDK_",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_MESSAGING_",
    "CLAUDE_CODE_SESSION_",
    "CLAUDE_CODE_SIMPLE",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_ENV_FILE",
    "CLAUDE_PID",
    "CLAUDE_PLUGIN_",
    "CLAUDE_PROJECT_DIR",
)
"""How the names begin that a Claude Code sets for its own children, hooks and servers."""
_BASE = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "USER", "LOGNAME", "SHELL")

_DEFAULTS = {
    "CLAUDE_CODE_MAX_RETRIES": "2",  # by itself it retries for minutes; the engine's own retries are durable and seen
    "DISABLE_AUTOUPDATER": "1",  # a step must not change the program it runs
}
_SET = {
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",  # it then says "idle" when no more turns are to come
}

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", *_CLOUDS)


def for_child(engine: Mapping[str, str], request: Mapping[str, str]) -> dict[str, str]:
    """The environment of one `claude`. What the request says wins over what the engine has."""
    return {**_DEFAULTS, **_picked(engine), **request, **_SET}


def probing(engine: Mapping[str, str]) -> dict[str, str]:
    """The environment of `claude --version`."""
    return {**_DEFAULTS, **{name: engine[name] for name in _BASE if name in engine}, **_picked(engine)}


def credentials(engine: Mapping[str, str]) -> bool:
    """Whether a key or a login is to be seen without asking the program, which alone can look into a keychain."""
    if any(engine.get(name) for name in _KEYS):
        return True
    home = engine.get("CLAUDE_CONFIG_DIR") or os.path.join(engine.get("HOME", ""), ".claude")
    if os.path.exists(os.path.join(home, ".credentials.json")):
        return True
    try:
        with open(os.path.join(home, "settings.json"), encoding="utf-8") as settings:
            return "apiKeyHelper" in settings.read()
    except (OSError, UnicodeDecodeError):
        return False


def account(env: Mapping[str, str]) -> str:
    """Provider and account that a `claude` with this environment uses: a cloud, another server, or Anthropic."""
    for switch in _CLOUDS:
        if env.get(switch):
            return switch.removeprefix("CLAUDE_CODE_USE_").lower()
    host = urlsplit(env.get("ANTHROPIC_BASE_URL") or "").netloc
    keys = (env.get(name) for name in _KEYS)
    return account_name("anthropic" if host in ("", "api.anthropic.com") else host, *keys, _login(env))


def _login(env: Mapping[str, str]) -> str | None:
    """The id of the account that is logged in, as Claude Code itself keeps it; None if there is none."""
    folder = env.get("CLAUDE_CONFIG_DIR") or env.get("HOME") or ""
    try:
        with open(os.path.join(folder, ".claude.json"), encoding="utf-8") as file:
            found = json.load(file)["oauthAccount"]["accountUuid"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _picked(engine: Mapping[str, str]) -> dict[str, str]:
    clouds = tuple(prefix for switch, prefixes in _CLOUDS.items() if engine.get(switch) for prefix in prefixes)
    wanted = _PREFIXES + clouds
    return {
        name: value
        for name, value in engine.items()
        if (name.upper() in _NAMES or name.startswith(wanted)) and not name.startswith(_OUTER)
    }
