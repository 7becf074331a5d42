"""A script in a file: YAML or JSON, a list of replies in the words of `Reply`.

    - use: {tool: Write, input: {file_path: a.txt, content: hi}}
      text: I write it down.
    - error: 529
      message: overloaded
      headers: {retry-after: "1"}
      times: 2
    - say: done
      tokens_out: 12

Each reply has one word for its kind, and any of the others beside it. Every error is reported with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from windlass.errors import UsageError
from windlass.testing.scripted.reply import Reply

__all__ = ["read_script"]

HOW: dict[str, tuple[type, ...]] = {
    "when": (str,),
    "times": (int,),
    "repeat": (bool,),
    "headers": (dict,),
    "delay": (int, float),
    "pace": (int, float),
    "tokens_in": (int,),
    "tokens_out": (int,),
    "cache_read": (int,),
    "cache_write": (int,),
}
"""Beside every kind. `hold` needs a thread's event, so there is none in a file."""


def read_script(path: Path) -> list[Reply]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML, too
    except OSError as error:
        raise UsageError(f"the script {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"the script {path} is neither YAML nor JSON: {error}") from error
    if not isinstance(found, list):
        raise UsageError(f"the script {path} is not a list: begin every reply with `- say:`, `- use:` or the like")
    return [_reply(f"{path}: reply {place}", item) for place, item in enumerate(found, start=1)]


def _reply(where: str, item: Any) -> Reply:
    if not isinstance(item, Mapping):
        raise UsageError(f"{where} is not a mapping: write `- say: {item}` for a text")
    kinds = [word for word in item if word in KINDS]
    if len(kinds) != 1:
        raise UsageError(f"{where} needs exactly one of {', '.join(KINDS)}; it has {', '.join(kinds) or 'none'}")
    (kind,) = kinds
    make, beside = KINDS[kind]
    rest = {word: value for word, value in item.items() if word != kind}
    for word, value in rest.items():
        wanted = beside.get(word) or HOW.get(word)
        if wanted is None:
            raise UsageError(f"{where} has {word!r}, and {kind} knows only {', '.join([*beside, *HOW])}")
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise UsageError(f"{where} has {word}: {value!r}, which is not of type {wanted[-1].__name__}")
    if "headers" in rest:
        rest["headers"] = {str(name): str(text) for name, text in rest["headers"].items()}
    try:
        return make(item[kind], rest)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where} ({kind}): {error}") from error


def _say(value: Any, rest: dict[str, Any]) -> Reply:
    return Reply.say(_text(value), **rest)


def _use(value: Any, rest: dict[str, Any]) -> Reply:
    uses = value if isinstance(value, list) else [value]
    for use in uses:
        if not isinstance(use, Mapping) or not isinstance(use.get("tool"), str) or set(use) - {"tool", "input"}:
            raise ValueError("a use is {tool: NAME, input: {…}}, or a list of such")
    first, *more = uses
    reply = Reply.use(first["tool"], first.get("input"), **rest)
    for use in more:
        reply = reply.and_use(use["tool"], use.get("input"))
    return reply


def _error(value: Any, rest: dict[str, Any]) -> Reply:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("write the HTTP status: `error: 529`")
    return Reply.error(value, rest.pop("message", ""), **rest)


def _drop(value: Any, rest: dict[str, Any]) -> Reply:
    return Reply.drop(_text(value, bare=True), **rest)


def _garbage(value: Any, rest: dict[str, Any]) -> Reply:
    if value is not True:
        raise ValueError("write `garbage: true`")
    return Reply.garbage(**rest)


def _hang(value: Any, rest: dict[str, Any]) -> Reply:
    return Reply.hang(_text(value, bare=True), **rest)


def _refuse(value: Any, rest: dict[str, Any]) -> Reply:
    return Reply.refuse(_text(value, bare=True), **rest)


def _cut_short(value: Any, rest: dict[str, Any]) -> Reply:
    return Reply.cut_short(_text(value), **rest)


def _text(value: Any, *, bare: bool = False) -> str:
    """A text; where one may be left out, `true` stands for none."""
    if bare and value is True:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text: put it in quotes" + (", or write true" if bare else ""))
    return value


KINDS: dict[str, tuple[Callable[[Any, dict[str, Any]], Reply], dict[str, tuple[type, ...]]]] = {
    "say": (_say, {}),
    "use": (_use, {"text": (str,), "invented": (bool,)}),
    "error": (_error, {"message": (str,), "after": (str,)}),
    "drop": (_drop, {}),
    "garbage": (_garbage, {}),
    "hang": (_hang, {}),
    "refuse": (_refuse, {}),
    "cut_short": (_cut_short, {}),
}
"""For each kind, the function that makes it, and its words besides those of `HOW`."""
