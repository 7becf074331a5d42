"""An agent's permissions in OpenCode's form: an ordered list of rules, of which the last that matches decides.

`rules` puts the engine's policy into that form, for a session or (`as_config`) for a process. `decide` reads the list
as OpenCode does, for the questions of subagents, which do not inherit it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from windlass.guarded import GUARDED, names_guarded_file
from windlass.ports import Host, Permissions
from windlass.runners.opencode.server import OpenCodeServer
from windlass.runners.tool_server import SERVER

__all__ = ["Action", "PermissionRule", "Questions", "as_config", "decide", "rules"]

Action = Literal["allow", "deny", "ask"]

HARMLESS = ("read", "glob", "grep", "list", "todowrite", "todoread", "lsp", "skill")
"""Look, but change nothing: these need no question inside the folder, as in OpenCode itself."""
SECRETS = ("*.env", "*.env.*")
NOBODY_ANSWERS = ("question", "plan_enter", "plan_exit")
"""Tools that wait for a person at OpenCode's own screen."""
WITHOUT_PATTERNS = ("todowrite", "question", "webfetch", "websearch", "doom_loop")
"""Permissions that a settings file can only give or deny as a whole."""
NAMES = {
    **dict.fromkeys(("write", "multiedit", "notebookedit", "apply_patch", "patch"), "edit"),
    "ls": "list",
    "agent": "task",
}
"""Other names for OpenCode's permissions, Claude Code's among them: roles are shared."""


class PermissionRule(NamedTuple):
    permission: str
    pattern: str
    action: Action

    def plain(self) -> dict[str, str]:
        return self._asdict()


def rules(
    wanted: Permissions, own: Mapping[str, Any] | str | None = None, served: str | None = None
) -> list[PermissionRule]:
    """Return the policy as rules. `own` is the permission section of the user's settings, whose denials stay.

    `served` is the server with the engine's tools for this attempt, empty if it has none, and None where no attempt has
    them. OpenCode is to ask nobody about them, as the engine does; those of other attempts in the same folder do not
    exist for this one.
    """
    found = [PermissionRule("*", "*", wanted.mode if wanted.tools is None else "deny")]
    only = None if wanted.tools is None else list(_parsed(wanted.tools))
    for name, pattern in only or ():
        found.append(PermissionRule(name, pattern, wanted.mode))
    named = None if only is None else {name for name, _ in only}
    for name in HARMLESS:
        if named is None or name in named:
            found.append(PermissionRule(name, "*", "allow"))
    if wanted.mode != "allow" and (named is None or "read" in named):
        found += [PermissionRule("read", secret, wanted.mode) for secret in SECRETS]
        found.append(PermissionRule("read", "*.env.example", "allow"))
    if named is not None:
        found.append(PermissionRule("external_directory", "*", wanted.mode))
    allowed = [PermissionRule(*one, "allow") for one in _parsed(wanted.allow) if named is None or one[0] in named]
    found += allowed
    if wanted.mode != "allow" and allowed:
        found += [
            PermissionRule("edit", place, wanted.mode)
            for name in GUARDED
            for place in (name, f"*/{name}", f"{name}/*", f"*/{name}/*")
        ]
        found += [rule for rule in allowed if names_guarded_file(rule.pattern)]
    found += _denied_by_user(own, wanted.mode)
    found += [PermissionRule(name, pattern, "deny") for name, pattern in _parsed(wanted.deny)]
    found += [PermissionRule(name, "*", "deny") for name in NOBODY_ANSWERS]
    if served is not None:
        found.append(PermissionRule(f"{SERVER}*", "*", "deny"))
    if served:
        found.append(PermissionRule(f"{served}_*", "*", "allow"))
    return found


def decide(listed: Sequence[PermissionRule], permission: str, patterns: Iterable[str]) -> Action:
    """Apply the rules to a request: the strictest answer for any of its patterns."""
    answers: set[Action] = {_last(listed, permission, pattern) for pattern in [*patterns] or ["*"]}
    return "deny" if "deny" in answers else "ask" if "ask" in answers else "allow"


def as_config(listed: Sequence[PermissionRule]) -> dict[str, Any]:
    """The rules as a permission section: keys in order, of which the last that matches decides, as in the list.

    A key has one place only, and a rule moves its key to the end. So a rule for many keys (`*`) is put into all of them
    that there are, and stays where it is.
    """
    section: dict[str, dict[str, Action]] = {}
    for rule in listed:
        for name in [name for name in section if _matches(name, rule.permission)]:
            if rule.pattern == "*":
                del section[name]  # it overrules all that was said of them
            else:
                section[name] = _with(section[name], rule)
        if "*" not in rule.permission or rule.permission not in section:
            section[rule.permission] = _with(section.pop(rule.permission, {}), rule)
    return {name: _section(name, patterns) for name, patterns in section.items()}


def _with(patterns: Mapping[str, Action], rule: PermissionRule) -> dict[str, Action]:
    return {
        **{pattern: action for pattern, action in patterns.items() if pattern != rule.pattern},
        rule.pattern: rule.action,
    }


def _section(name: str, patterns: Mapping[str, Action]) -> Mapping[str, Action] | Action:
    if name not in WITHOUT_PATTERNS:
        return patterns
    # These take no patterns: choose the stricter reading.
    return "deny" if "deny" in patterns.values() else patterns.get("*", "ask")


def _last(listed: Sequence[PermissionRule], permission: str, pattern: str) -> Action:
    for rule in reversed(listed):
        if _matches(permission, rule.permission) and _matches(pattern, rule.pattern):
            return rule.action
    return "ask"


def _matches(text: str, pattern: str) -> bool:
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern)
    expression = "".join(parts)
    if pattern.endswith(" *"):  # `git log *` is also `git log`
        expression = expression.removesuffix(r"\ .*") + "( .*)?"
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _parsed(words: Iterable[str]) -> Iterable[tuple[str, str]]:
    """`Bash(git log:*)` is ("bash", "git log *"); `files.*` is ("files_*", "*")."""
    for word in words:
        name, _, rest = word.partition("(")
        name = name.strip().lower().replace(".", "_")
        pattern = rest.removesuffix(")").strip() or "*"
        if pattern.endswith(":*"):
            pattern = f"{pattern[:-2]} *"
        yield NAMES.get(name, name), pattern


def _denied_by_user(own: Mapping[str, Any] | str | None, mode: Action) -> list[PermissionRule]:
    """Return the user's sections with a denial, in their order; for anything but denials our policy's mode holds."""
    if isinstance(own, str):
        return [PermissionRule("*", "*", "deny")] if own == "deny" else []
    kept: list[PermissionRule] = []
    for name, section in (own or {}).items():
        patterns = {"*": section} if isinstance(section, str) else section
        if isinstance(patterns, Mapping) and "deny" in patterns.values():
            kept += [
                PermissionRule(name, pattern, "deny" if action == "deny" else mode)
                for pattern, action in patterns.items()
            ]
    return kept


OF_ITS_OWN = ("external_directory", "doom_loop")
"""Questions that are not about the use of a tool itself, but about how it is used."""


class Questions:
    """Answers an agent's questions while its events go on.

    The rules decide first, as subagents do not inherit them; the host decides the rest. Each question has a task of its
    own: a person may take long, and other things happen meanwhile.
    """

    def __init__(self, server: OpenCodeServer, directory: str, host: Host, rules: Sequence[PermissionRule]) -> None:
        self._server, self._directory, self._host, self._rules = server, directory, host, rules
        self._uses: dict[str, tuple[str, Any]] = {}
        self._seen: set[Any] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.adjustments: list[str] = []

    def saw(self, part: Mapping[str, Any]) -> None:
        """A part that may be the use of a tool: a question about it will name it only by its call."""
        if part.get("type") == "tool":
            state = part.get("state") or {}
            self._uses[str(part.get("callID"))] = (str(part.get("tool")), state.get("input"))

    def asked(self, told: Mapping[str, Any]) -> None:
        """A question; it may be told again after a broken stream, and is answered once."""
        if told.get("id") not in self._seen:
            self._seen.add(told.get("id"))
            self._begin(self._answer(told))

    def question(self, told: Mapping[str, Any]) -> None:
        """Reject a question to the person at OpenCode's screen: there is none."""
        self._begin(self._send(f"/question/{told.get('id')}/reject", None))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, told: Mapping[str, Any]) -> None:
        permission = str(told.get("permission"))
        patterns = [str(pattern) for pattern in told.get("patterns") or ()]
        tool, input = self._about(permission, patterns, told)
        decision, note = decide(self._rules, permission, patterns), "the policy of this step denies it"
        if decision == "ask":
            answer = await self._host.ask(tool, input)
            decision, note = "allow" if answer.allow else "deny", answer.note or "a person denied it"
        if decision == "allow":
            body = {"reply": "once"}
        else:
            self.adjustments.append(f"{tool} was denied")
            # With a message the agent is told and goes on; without one OpenCode would end the turn.
            body = {"reply": "reject", "message": note}
        await self._send(f"/permission/{told.get('id')}/reply", body)

    def _about(self, permission: str, patterns: list[str], told: Mapping[str, Any]) -> tuple[str, Any]:
        call = str((told.get("tool") or {}).get("callID"))
        tool, input = self._uses.get(call, (permission, None))
        if permission in OF_ITS_OWN or input is None:
            return permission, {"patterns": patterns, **(told.get("metadata") or {}), "tool": tool}
        return tool, input

    async def _send(self, path: str, body: Any) -> None:
        # An answer that comes too late (404) is ignored; a server that is gone ends the turn elsewhere.
        await self._server.call("POST", path, directory=self._directory, body=body)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
