"""A role: an agent's prompt, and the limits of its rights.

`make_role` reads the keys that Claude Code and OpenCode users write, in all their spellings; other keys are ignored. A
role can only take rights away: words like `bypassPermissions` or `allow` give it nothing, because a role may come from
a repository that somebody merely cloned. And a role whose limits cannot be read is not used at all.

Roles are shared between runtimes, and a limit must hold in each of them: `Bash` in a role for Claude Code is OpenCode's
`bash` and our own `shell`. `to_offer` gives the names of tools that can do what was named and no more; `to_deny` those
of all that could do it. A name that is known to none (a server's tool, a pattern) is kept as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from windlass.agents.places import Origin
from windlass.plan.schema import kind_of
from windlass.ports import Permissions
from windlass.runtimes import RUNTIMES

__all__ = ["ALIASES", "BadRole", "Role", "UnusableRole", "key_of", "make_role", "to_deny", "to_offer"]

ALIASES = {"dev": "developer", "coder": "developer"}
"""Other names of roles, where no role of that very name is found."""

_NAME_LENGTH = 100
_DESCRIPTION_LENGTH = 4_000
_Mode = Literal["allow", "ask", "deny"]
_STRICTNESS: tuple[_Mode, ...] = ("allow", "ask", "deny")
_NARROWS: dict[str, _Mode] = {
    "default": "ask",
    "ask": "ask",
    "manual": "ask",
    "plan": "deny",
    "dontask": "deny",
    "deny": "deny",
}
_WIDENS = frozenset({"acceptedits", "bypasspermissions", "auto", "allow"})
_LIST_COMMA = re.compile(r",(?![^()]*\))")  # not the one in Bash(git log:*, git diff:*)


@dataclass(frozen=True, slots=True)
class Role:
    """An agent's prompt, preferences and limits."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    """The only tools it may use, by the names of the runtime it was written for; None is all."""
    disallowed: tuple[str, ...] = ()
    """Tools it may not use, by the same names."""
    model: str | None = None
    """An alias, an id or `provider/model`; None leaves it to the step and the settings."""
    permission_mode: str = ""
    """As it was written (`plan`, `acceptEdits`, …); `narrow` says what comes of it."""
    max_turns: int | None = None
    temperature: float | None = None
    skills: tuple[str, ...] = ()
    """Skills that are always in its prompt, whole; `*` lists all others there by name."""
    source: str = "built-in"
    """The file it was read from."""
    runtime: str = ""
    """The runtime it was written for: `claude-code`, `open-code`, or empty."""
    origin: Origin = "built-in"
    ignored: tuple[str, ...] = ()
    """Requests of its file that are not granted, in words."""

    def narrow(self, permissions: Permissions, runtime: str = "") -> Permissions:
        """The same permissions, less what this role gives up, in the names of the runtime that is to hold to them."""
        given, wanted = permissions.mode, _NARROWS.get(self.permission_mode.lower(), "allow")
        mode = max(given, wanted, key=_STRICTNESS.index)
        tools = permissions.tools
        if self.tools is not None:
            offered = to_offer(self.tools, runtime)
            tools = offered if tools is None else tuple(name for name in offered if name in tools)
        denied = (*permissions.deny, *to_deny(_foreign(permissions.deny, runtime), runtime))
        deny = tuple(dict.fromkeys((*denied, *to_deny(self.disallowed, runtime))))
        return replace(permissions, mode=mode, deny=deny, tools=tools)


@dataclass(frozen=True, slots=True)
class UnusableRole:
    """A role that is there and cannot be used: it still stands before others of its name."""

    name: str
    source: str
    why: str
    disabled: bool = False
    """The user switched it off; it has no fault."""


class BadRole(Exception):
    """A role that must not be used as it stands."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key
        self.why = why


def key_of(name: str) -> str:
    """Key under which a role is looked up: upper and lower case are the same."""
    return name.strip().casefold()


def make_role(
    keys: Mapping[str, Any],
    prompt: str,
    *,
    name: str,
    source: str,
    runtime: str,
    origin: Origin,
    complain: Callable[[str, str], None],
) -> Role:
    """Make a role of its keys. `complain(key, message)` gets ignored keys; unreadable limits raise `BadRole`."""
    found = _Keys(keys, complain)
    named = _valid_name(keys.get("name", name))
    if not prompt.strip():
        raise BadRole("prompt", "the role has no text: describe the agent after the frontmatter")
    tools, switched_off = _tools(found)
    permission = _permission(found)
    mode = permission.mode
    if permission.only is not None:
        tools = permission.only if tools is None else tuple(tool for tool in tools if tool in permission.only)
    ignored = list(permission.ignored)
    if mode.lower() in _WIDENS:
        ignored.append(f"`{mode}`: a role cannot give itself rights; the plan and the user's settings do")
    return Role(
        name=named,
        description=" ".join(found.text("description").split())[:_DESCRIPTION_LENGTH],
        prompt=prompt.strip(),
        tools=tools,
        disallowed=tuple(dict.fromkeys((*switched_off, *permission.denied))),
        model=_model(found.text("model")),
        permission_mode=mode,
        max_turns=found.number("maxTurns", "max_turns", "steps", whole=True, least=1, most=100_000),
        temperature=found.number("temperature", least=0, most=2),
        skills=found.names("skills") or (),
        source=source,
        runtime=runtime,
        origin=origin,
        ignored=tuple(ignored),
    )


def _valid_name(name: object) -> str:
    if isinstance(name, int | float) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str) or not name.strip():
        raise BadRole("name", f"`name` must be text, not {kind_of(name)}")
    if len(name) > _NAME_LENGTH or not name.isprintable():
        raise BadRole("name", f"`name` must be one line of at most {_NAME_LENGTH} visible characters")
    return name.strip()


def _model(text: str) -> str | None:
    word = text.strip()
    return None if word.lower() in ("", "inherit", "default") else word


def _tools(found: _Keys) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The only tools, and those switched off. OpenCode writes a map: `{bash: false}`, or `{"*": false, read: true}`."""
    disallowed = found.limits("disallowedTools", "disallowed_tools", "disallowed-tools") or ()
    tools = found.first("tools")
    if not isinstance(tools, dict):
        listed = found.limits("tools")
        return (None if listed is not None and "*" in listed else listed), disallowed
    wrong = [name for name, on in tools.items() if not isinstance(on, bool)]
    if wrong:
        raise BadRole("tools", f"`tools.{wrong[0]}` must be true or false, not {kind_of(tools[wrong[0]])}")
    if tools.get("*") is False:
        return tuple(name for name, on in tools.items() if on), disallowed
    return None, (*disallowed, *(name for name, on in tools.items() if not on))


class _Permission(NamedTuple):
    mode: str
    """As written."""
    denied: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()


def _permission(found: _Keys) -> _Permission:
    """Claude Code's `permissionMode` and OpenCode's `permission`, of which only what it denies counts."""
    mode = found.first("permissionMode", "permission_mode") or ""
    permission = found.first("permission")
    if isinstance(permission, str):
        mode, permission = mode or permission, None
    if not isinstance(mode, str) or (mode and mode.lower() not in _NARROWS and mode.lower() not in _WIDENS):
        known = "default, plan, dontAsk, acceptEdits, bypassPermissions, ask, deny"
        raise BadRole("permissionMode", f"{kind_of(mode)} is not a permission mode; they are: {known}")
    if permission is None:
        return _Permission(mode)
    if not isinstance(permission, dict):
        raise BadRole("permission", f"`permission` must be a mapping of tools, not {kind_of(permission)}")
    return _of_map(mode, permission)


def _of_map(mode: str, permission: dict[str, Any]) -> _Permission:
    """In such a map the later rule wins: after `"*": deny`, only the tools that follow are allowed."""
    denied: list[str] = []
    only: list[str] | None = None
    ignored: list[str] = []
    for tool, rule in permission.items():
        rules = rule if isinstance(rule, dict) else {"*": rule}
        for word in rules.values():
            if word not in _STRICTNESS:
                raise BadRole("permission", f"`permission.{tool}` must say allow, ask or deny, not {kind_of(word)}")
        if tool == "*":
            only = [] if rules.get("*") == "deny" else only
            continue
        refused = [pattern for pattern, word in rules.items() if word == "deny"]
        denied += [tool if pattern == "*" else f"{tool}({pattern})" for pattern in refused]
        if "*" in refused and len(refused) < len(rules):
            ignored.append(f"`permission.{tool}`: it is denied as a whole; exceptions from that cannot be made")
        if only is not None and "*" not in refused:
            only.append(tool)
    return _Permission(mode, tuple(denied), None if only is None else tuple(only), tuple(ignored))


class _Keys:
    """The keys of a frontmatter, by any of their spellings."""

    def __init__(self, keys: Mapping[str, Any], complain: Callable[[str, str], None]) -> None:
        self._keys = keys
        self._complain = complain

    def first(self, *spellings: str) -> Any:
        return next((self._keys[key] for key in spellings if self._keys.get(key) is not None), None)

    def text(self, key: str) -> str:
        value = self.first(key)
        if value is None or isinstance(value, str):
            return value or ""
        self._complain(key, f"`{key}` must be text, not {kind_of(value)}")
        return ""

    def number(self, *spellings: str, least: float, most: float, whole: bool = False) -> Any:
        value = self.first(*spellings)
        if value is None:
            return None
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if fits and least <= value <= most:
            return value
        key = next(key for key in spellings if self._keys.get(key) is not None)
        self._complain(key, f"`{key}` must be a number from {least} to {most}, not {kind_of(value)}")
        return None

    def names(self, *spellings: str) -> tuple[str, ...] | None:
        """A list, or a text with commas."""
        try:
            return self.limits(*spellings)
        except BadRole as bad:
            self._complain(bad.key, bad.why)
            return None

    def limits(self, *spellings: str) -> tuple[str, ...] | None:
        """The same, where a misread list would let an agent do more than it should."""
        value = self.first(*spellings)
        if value is None:
            return None
        items = _LIST_COMMA.split(value) if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise BadRole(spellings[0], f"`{spellings[0]}` must be a list of names, not {kind_of(value)}")
        return tuple(dict.fromkeys(item.strip() for item in items if item.strip()))


_WORDS = {
    "read": "read notebookread files.read",
    "list": "glob ls list files.list",
    "grep": "grep files.search",
    "write": "write files.write files.apply",
    "edit": "edit multiedit patch apply_patch files.edit files.apply",
    "notebook": "notebookedit",
    "shell": "bash shell",
    "fetch": "webfetch http.get",
    "search": "websearch search",
    "delegate": "task agent",
    "todo": "todowrite todoread",
    "skill": "skill",
}
"""Names that roles give to tools of each kind, in lower case, obsolete names included."""
_EVERY_CHANGE = ("write", "edit", "notebook")
"""Kinds that OpenCode's `edit` permission covers."""


def to_offer(names: Iterable[str], runtime: str) -> tuple[str, ...]:
    """Tools of a runtime for the named ones; without a runtime, the names as they are."""
    row = RUNTIMES.get(runtime)
    if row is None:
        return tuple(dict.fromkeys(names))
    found: dict[str, None] = {}
    for name in names:
        word, pattern = _parts(name)
        tools = [tool for kind in _kinds(word) for tool in row.tools.get(kind, "").split()]
        if not _kinds(word) or word in tools:
            found[name] = None
        else:
            found |= dict.fromkeys(tool + pattern for tool in tools)
    return tuple(found)


def to_deny(names: Iterable[str], runtime: str) -> tuple[str, ...]:
    """Tools of a runtime that could do what the named ones do; without a runtime, of all of them."""
    rows = (RUNTIMES[runtime],) if runtime in RUNTIMES else tuple(RUNTIMES.values())
    found: dict[str, None] = {}
    for name in names:
        word, pattern = _parts(name)
        # In OpenCode one permission stands for every change to a file.
        kinds = _EVERY_CHANGE if word == "edit" else _kinds(word)
        if not kinds or runtime not in RUNTIMES:
            found[name] = None
        for kind in kinds:
            for row in rows:
                tools = f"{row.tools.get(kind, '')} {row.also_does.get(kind, '')}".split()
                found |= dict.fromkeys(tool + pattern for tool in tools)
    return tuple(found)


def _foreign(names: Iterable[str], runtime: str) -> tuple[str, ...]:
    """The names of these that are not the runtime's own, but another's for tools that it has, too."""
    row = RUNTIMES.get(runtime)
    if row is None:
        return ()
    own = {tool for tools in (*row.tools.values(), *row.also_does.values()) for tool in tools.split()}
    return tuple(name for name in names if (word := _parts(name)[0]) not in own and _kinds(word))


def _parts(name: str) -> tuple[str, str]:
    """`Bash(git log:*)` is `Bash` and `(git log:*)`."""
    word, bracket, rest = name.partition("(")
    return word.strip(), bracket + rest


def _kinds(word: str) -> tuple[str, ...]:
    """Give the kinds of a tool by its name, else by the names that runtimes have for their own tools."""
    known = tuple(kind for kind, words in _WORDS.items() if word.lower() in words.split())
    own = (kind for row in RUNTIMES.values() for kind, tools in row.tools.items() if word in tools.split())
    return known or tuple(dict.fromkeys(own))
