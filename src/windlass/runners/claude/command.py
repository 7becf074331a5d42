"""The command line of one turn: what the request asks for, in the words of `claude`.

Values are bound to their flags with `=`, so that none can be taken for a flag of its own. The prompt goes through
stdin and the system part through a file: neither has a limit of length there, and neither is seen in a process list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from windlass.ports import AgentRequest, Permissions

__all__ = ["Command", "command_for", "only_within"]

_RULE = re.compile(r"[A-Za-z][\w-]*(\(.*\))?", re.DOTALL)
"""`Read`, `Bash(git log:*)`, `mcp__github__get_issue`: how the runtime names tools and uses of them."""

_ELSEWHERE = ("AskUserQuestion", "CronCreate", "ScheduleWakeup")
"""Nobody sits in front of it to choose an answer, and nothing of it is left to be woken: the model must not count on
either. What needs a person goes through the permissions."""


class Command(NamedTuple):
    arguments: list[str]
    adjustments: tuple[str, ...]
    unheeded: bool = False
    """There are denials that the runtime cannot be told of: each use is then put to the host, who knows them."""


def command_for(request: AgentRequest, *, session: str) -> Command:
    """The arguments, and what of the request they cannot say. Writes the system part to the scratch folder."""
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
        f"--resume={request.session}" if request.session else f"--session-id={session}",
        f"--disallowedTools={','.join((*_ELSEWHERE, *deny))}",
    ]
    if allow:
        arguments.append(f"--allowedTools={','.join(allow)}")
    if request.permissions.tools is not None:
        arguments += _only(request.permissions.tools)
    if request.brief.system:
        arguments.append(f"--append-system-prompt-file={_keep(request.scratch, request.brief.system)}")
    if request.model:
        arguments.append(f"--model={request.model}")
    if request.max_turns is not None:
        arguments.append(f"--max-turns={request.max_turns}")
    if request.budget.usd is not None:
        arguments.append(f"--max-budget-usd={request.budget.usd}")
    return Command(arguments, tuple(adjustments), bool(unknown))


def only_within(permissions: Permissions) -> dict[str, str]:
    """Tools that a role has for some uses alone (`Bash(git log:*)`), and for which."""
    patterns = [
        tool for tool in permissions.tools or () if "(" in tool and _name(tool) not in (permissions.tools or ())
    ]
    names = dict.fromkeys(map(_name, patterns))
    return {name: ", ".join(pattern for pattern in patterns if _name(pattern) == name) for name in names}


def _within(permissions: Permissions) -> list[str]:
    """Where everything is allowed, the runtime decides by these rules, and what they do not cover comes to us."""
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
    """These tools and no others. MCP servers' tools are no built-in ones: without one in the list, no server at all."""
    names = list(dict.fromkeys(map(_name, tools)))
    builtin = [name for name in names if not name.startswith("mcp__")]
    strict = [] if len(builtin) < len(names) else ["--strict-mcp-config"]
    return [f"--tools={','.join(builtin)}", *strict]


def _keep(scratch: Path, system: str) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "claude-system.md"
    path.write_text(system, encoding="utf-8", errors="replace")
    return path
