"""What an agent may do, in OpenCode's own words: an ordered list of rules, of which the last that matches decides.

`rules` puts the engine's policy into that form, for a session or (`as_config`) for a process. `decide` reads the list
as OpenCode does, for the questions of subagents, which do not inherit it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from windlass.ports import Permissions

__all__ = ["Action", "Rule", "as_config", "decide", "rules"]

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
"""Other names of what OpenCode keeps one permission for, Claude Code's among them: roles are shared."""


class Rule(NamedTuple):
    permission: str
    pattern: str
    action: Action

    def plain(self) -> dict[str, str]:
        return self._asdict()


def rules(wanted: Permissions, own: Mapping[str, Any] | str | None = None) -> list[Rule]:
    """The policy as rules. `own` is the permission section of the user's settings: what it denies stays denied."""
    found = [Rule("*", "*", wanted.mode if wanted.tools is None else "deny")]
    only = None if wanted.tools is None else list(_parsed(wanted.tools))
    for name, pattern in only or ():
        found.append(Rule(name, pattern, wanted.mode))
    named = None if only is None else {name for name, _ in only}
    for name in HARMLESS:
        if named is None or name in named:
            found.append(Rule(name, "*", "allow"))
    if wanted.mode != "allow" and (named is None or "read" in named):
        found += [Rule("read", secret, wanted.mode) for secret in SECRETS]
        found.append(Rule("read", "*.env.example", "allow"))
    if named is not None:
        found.append(Rule("external_directory", "*", wanted.mode))
    for name, pattern in _parsed(wanted.allow):
        if named is None or name in named:
            found.append(Rule(name, pattern, "allow"))
    found += _denied_by_user(own, wanted.mode)
    found += [Rule(name, pattern, "deny") for name, pattern in _parsed(wanted.deny)]
    found += [Rule(name, "*", "deny") for name in NOBODY_ANSWERS]
    return found


def decide(listed: Sequence[Rule], permission: str, patterns: Iterable[str]) -> Action:
    """What the rules say of a request: the strictest answer for any of its patterns."""
    answers: set[Action] = {_last(listed, permission, pattern) for pattern in [*patterns] or ["*"]}
    return "deny" if "deny" in answers else "ask" if "ask" in answers else "allow"


def as_config(listed: Sequence[Rule]) -> dict[str, Any]:
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


def _with(patterns: Mapping[str, Action], rule: Rule) -> dict[str, Action]:
    return {
        **{pattern: action for pattern, action in patterns.items() if pattern != rule.pattern},
        rule.pattern: rule.action,
    }


def _section(name: str, patterns: Mapping[str, Action]) -> Mapping[str, Action] | Action:
    if name not in WITHOUT_PATTERNS:
        return patterns
    # What cannot be said as it is meant is said more strictly.
    return "deny" if "deny" in patterns.values() else patterns.get("*", "ask")


def _last(listed: Sequence[Rule], permission: str, pattern: str) -> Action:
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


def _denied_by_user(own: Mapping[str, Any] | str | None, mode: Action) -> list[Rule]:
    """Sections of the user's settings that deny something, kept in their order; what they allow is our policy's."""
    if isinstance(own, str):
        return [Rule("*", "*", "deny")] if own == "deny" else []
    kept: list[Rule] = []
    for name, section in (own or {}).items():
        patterns = {"*": section} if isinstance(section, str) else section
        if isinstance(patterns, Mapping) and "deny" in patterns.values():
            kept += [Rule(name, pattern, "deny" if action == "deny" else mode) for pattern, action in patterns.items()]
    return kept
