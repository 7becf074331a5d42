"""The command line and the environment of `claude` for one request.

Values are bound to their flags with `=`, so that none can be taken for a flag of its own. The prompt goes through
stdin and the system part through a file: neither has a limit of length there, and neither is seen in a process list.

The environment is an allow-list on top of the request's own variables. Credentials and addresses of the model API are
passed on because the user set them for Claude Code; everything else of the engine stays with the engine. Variables that
another Claude Code sets for its children (Windlass may be one) are left out, or ours would join that session.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from windlass.guarded import GUARDED
from windlass.ports import AgentRequest, Permissions, account_name
from windlass.regular import read_regular
from windlass.runners.result_form import tool_form
from windlass.runners.tool_server import SERVER

__all__ = ["ClaudeCommand", "account", "command_for", "credentials", "for_child", "only_within", "probing"]

_RULE = re.compile(r"[A-Za-z][\w-]*(\(.*\))?", re.DOTALL)
"""The runtime's names for tools and uses of them: `Read`, `Bash(git log:*)`, `mcp__github__get_issue`."""

_ELSEWHERE = ("AskUserQuestion", "CronCreate", "ScheduleWakeup")
"""Tools that cannot work here: no person is at its screen, and no process is left to wake up. Permissions are the way
to ask a person."""


LONGEST_USE = 2**31 - 1
"""Milliseconds that a use of the engine's tools may take: the longest that its timers can count, 24 days."""
_SERVED = json.dumps(
    {"mcpServers": {SERVER: {"type": "sdk", "name": SERVER, "alwaysLoad": True, "timeout": LONGEST_USE}}}
)
_ASKED = json.dumps(
    {"permissions": {"ask": [f"Edit({place})" for name in GUARDED for place in (f"**/{name}", f"**/{name}/**")]}}
)
"""Settings with which it asks us about changes of these files. Its `Edit` means all tools that change files."""


class ClaudeCommand(NamedTuple):
    arguments: list[str]
    adjustments: tuple[str, ...]
    unheeded: bool = False
    """Some denials cannot be given to the runtime: the host, which knows them, is then asked about each use."""


def command_for(
    request: AgentRequest, *, session: str, served: bool = False, gives_data: bool = False
) -> ClaudeCommand:
    """Return the arguments and the parts of the request left out. Writes the system part to the scratch folder.

    `served`: the engine's tools are there, as a server. The runtime is to ask nobody about them: the engine does.
    `gives_data`: this version has a way of its own for data of a form.
    """
    limited = only_within(request.permissions)  # is stronger than a rule that allows all of such a tool
    allowed = (rule for rule in request.permissions.allow if rule not in limited)
    allow, strange = _rules((*allowed, *_within(request.permissions)))
    deny, unknown = _rules(request.permissions.deny)
    adjustments = [f"permission rule {rule!r} is none of Claude Code's: left out" for rule in (*strange, *unknown)]
    if request.temperature is not None:
        adjustments.append("Claude Code takes no temperature: left out")
    arguments = [
        *("--output-format=stream-json", "--input-format=stream-json", "--verbose", "--include-partial-messages"),
        *("--permission-prompt-tool=stdio", "--permission-mode=default"),
        # A folder's own settings run hooks, set variables and start servers: only where the user trusts it.
        f"--setting-sources={'user,project,local' if request.trusted else 'user'}",
        *([f"--resume={request.session}"] if request.session else []),
        *(["--fork-session"] if request.inherited else []),
        *([f"--session-id={session}"] if session != request.session else []),
        f"--disallowedTools={','.join((*_ELSEWHERE, *deny))}",
    ]
    if served:
        allow.append(f"mcp__{SERVER}")
        arguments.append(f"--mcp-config={_SERVED}")
    if allow:
        arguments.append(f"--allowedTools={','.join(allow)}")
        if request.permissions.mode != "allow":
            arguments.append(f"--settings={_ASKED}")
    if request.permissions.tools is not None:
        arguments += _only(request.permissions.tools)
    if request.brief.system:
        arguments.append(f"--append-system-prompt-file={_keep(request.scratch, request.brief.system)}")
    if gives_data and (form := tool_form(request.form)) is not None:
        arguments.append(f"--json-schema={json.dumps(form, ensure_ascii=False)}")
    if request.model:
        arguments.append(f"--model={request.model}")
    if request.max_turns is not None:
        arguments.append(f"--max-turns={request.max_turns}")
    if request.budget.usd is not None:
        arguments.append(f"--max-budget-usd={request.budget.usd}")
    return ClaudeCommand(arguments, tuple(adjustments), bool(unknown))


def only_within(permissions: Permissions) -> dict[str, str]:
    """Return the tools that a role has for some uses only (`Bash(git log:*)`), with those uses."""
    patterns = [
        tool for tool in permissions.tools or () if "(" in tool and _name(tool) not in (permissions.tools or ())
    ]
    names = dict.fromkeys(map(_name, patterns))
    return {name: ", ".join(pattern for pattern in patterns if _name(pattern) == name) for name in names}


def _within(permissions: Permissions) -> list[str]:
    """Return rules for the limited tools in mode `allow`; the runtime asks us about uses beyond them."""
    if permissions.mode != "allow":
        return []
    limited = only_within(permissions)
    return [tool for tool in permissions.tools or () if _name(tool) in limited]


def _name(rule: str) -> str:
    return rule.partition("(")[0]


def _rules(rules: Iterable[str]) -> tuple[list[str], list[str]]:
    known = {rule: bool(_RULE.fullmatch(rule)) for rule in rules}
    return [rule for rule in known if known[rule]], [rule for rule in known if not known[rule]]


def _only(tools: tuple[str, ...]) -> list[str]:
    """Allow these tools and no others. MCP servers are started only if the list names a tool of one."""
    names = list(dict.fromkeys(map(_name, tools)))
    builtin = [name for name in names if not name.startswith("mcp__")]
    strict = [] if len(builtin) < len(names) else ["--strict-mcp-config"]
    return [f"--tools={','.join(builtin)}", *strict]


def _keep(scratch: Path, system: str) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "claude-system.md"
    path.write_text(system, encoding="utf-8", errors="replace")
    return path


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
"""Prefixes of the variables that a Claude Code sets for its own children, hooks and servers."""
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
    """Return the environment of one `claude`. The request's variables win over the engine's."""
    return {**_DEFAULTS, **_picked(engine), **request, **_SET}


def probing(engine: Mapping[str, str]) -> dict[str, str]:
    """The environment of `claude --version`."""
    return {**_DEFAULTS, **{name: engine[name] for name in _BASE if name in engine}, **_picked(engine)}


def credentials(engine: Mapping[str, str]) -> bool:
    """Return True if a key or a login is visible without asking the program. Only the program can read a keychain."""
    if any(engine.get(name) for name in _KEYS):
        return True
    home = engine.get("CLAUDE_CONFIG_DIR") or os.path.join(engine.get("HOME", ""), ".claude")
    if os.path.exists(os.path.join(home, ".credentials.json")):
        return True
    try:
        return b"apiKeyHelper" in read_regular(os.path.join(home, "settings.json"))
    except OSError:
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
        found = json.loads(read_regular(os.path.join(folder, ".claude.json"), 256 << 20))["oauthAccount"]["accountUuid"]
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
