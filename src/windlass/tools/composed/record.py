"""A composed tool's name, and the two texts that are kept of it.

`reports.weekly` is `tools.reports.weekly` in a program and `reports.weekly.js` on disk, so a name must be good for
both, on every file system: lower case, no word that JavaScript or Windows keeps for itself.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from windlass.errors import UsageError
from windlass.ports.composed import ComposedTool

__all__ = [
    "MOST_RECORD",
    "MOST_SOURCE",
    "DamagedRecord",
    "check_free",
    "check_name",
    "clash",
    "faults",
    "from_texts",
    "name_fault",
    "record_text",
    "taken",
]

FORMAT = 1
MOST_SOURCE = 256 * 1024
"""Bytes of a program."""
MOST_RECORD = 1024 * 1024
"""Bytes of what is said about it."""
MOST_DESCRIPTION = 2_000
MOST_GRANTS = 100
_KEYS = ("format", "description", "schema", "grants", "returns")
_GRANT = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9_.*:-]{0,127}", re.ASCII)
_UNSEEN = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that show a text in another order than it is read in."""


class DamagedRecord(Exception):
    """A file that is not what it should be; the text says why."""


def faults(tool: ComposedTool) -> list[str]:
    """Everything that keeps a tool from being kept or used, its name aside."""
    from windlass.schemas import unusable  # takes a while to import, and most homes have no composed tools

    found = [*_source_faults(tool.source), *_description_faults(tool.description), *_grant_faults(tool.grants)]
    found += [f"its schema: {reason}" for reason in unusable(tool.schema)]
    if tool.returns is not None:
        found += [f"the schema of what it returns: {reason}" for reason in unusable(tool.returns, of_arguments=False)]
    return found


def _source_faults(source: Any) -> list[str]:
    if not isinstance(source, str) or not source.strip():
        return ["its source is empty"]
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        return ["its source is not valid Unicode text"]
    return [f"its source is larger than {MOST_SOURCE // 1024} KiB"] if size > MOST_SOURCE else []


def _description_faults(text: Any) -> list[str]:
    if not isinstance(text, str):
        return ["its description is not text"]
    if len(text) > MOST_DESCRIPTION:
        return [f"its description is longer than {MOST_DESCRIPTION} characters"]
    for c in text:
        if c not in "\n\t" and (unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in _UNSEEN):
            return [f"its description has the control character {c!r} in it"]
        if "\U000e0000" <= c <= "\U000e007f":
            return [f"its description has the invisible character {c!r} in it"]
    return []


def _grant_faults(grants: Any) -> list[str]:
    if not isinstance(grants, tuple | list):
        return ["its grants are not a list of names of tools"]
    if len(grants) > MOST_GRANTS:
        return [f"it has more than {MOST_GRANTS} grants"]
    wrong = [grant for grant in grants if not isinstance(grant, str) or not _GRANT.fullmatch(grant)]
    return [f"the grant {grant!r:.60} is not the name of a tool, nor a pattern like files.*" for grant in wrong]


def record_text(tool: ComposedTool) -> str:
    record = {
        "format": FORMAT,
        "description": tool.description,
        "schema": tool.schema,
        "grants": list(tool.grants),
        "returns": tool.returns,
    }
    return json.dumps(record, indent=2, ensure_ascii=False, default=dict) + "\n"


def from_texts(name: str, source: bytes, record: bytes, *, everywhere: bool) -> ComposedTool:
    """The tool that two files are; `DamagedRecord` says what is wrong with them."""
    try:
        found = json.loads(record.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedRecord(f"{name}.json is not JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise DamagedRecord(f"{name}.json is not a mapping")
    for key in found:
        if key not in _KEYS:
            import difflib  # for those who made a mistake

            near = difflib.get_close_matches(key[:100], _KEYS, 1)
            known = f"did you mean `{near[0]}`?" if near else "there are: " + ", ".join(_KEYS)
            raise DamagedRecord(f"{name}.json: `{key:.60}` is not known; {known}")
    if found.get("format") != FORMAT or found["format"] is True:
        raise DamagedRecord(f"{name}.json: `format` is not {FORMAT}; a newer Windlass may have written it")
    try:
        text = source.decode()
    except UnicodeDecodeError as error:
        raise DamagedRecord(f"{name}.js is not UTF-8 text: {error}") from None
    grants = found.get("grants", [])
    tool = ComposedTool(
        name,
        text,
        found.get("schema", {"type": "object"}),
        description=found.get("description", ""),
        grants=tuple(grants) if isinstance(grants, list) else grants,
        returns=found.get("returns"),
        everywhere=everywhere,
    )
    if wrong := faults(tool):
        raise DamagedRecord(f"{name}: " + "; ".join(wrong)[:1000])
    return tool


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


MOST_PARTS = 5
MOST_CHARACTERS = 64
_PART = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_WORDS = """
arguments await break case catch class const constructor continue debugger default delete do else enum eval export
extends false finally for function if implements import in instanceof interface let new null package private protected
prototype public return static super switch then this throw true try typeof undefined var void while with yield
"""
_JAVASCRIPT = frozenset(_WORDS.split())
"""Words of the language, and names that every object or promise has: `then` would make a group of tools a promise."""
_DEVICES = frozenset(["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))])
_LOOKS = "a name is made of lower-case words with digits and _, joined by dots, like `count_words` or `reports.weekly`"


def name_fault(name: object) -> str | None:
    """Give the reason why it cannot be a name; None when it can."""
    if not isinstance(name, str):
        return "it is not text"
    if len(name) > MOST_CHARACTERS:
        return f"it is longer than {MOST_CHARACTERS} characters"
    parts = name.split(".")
    if len(parts) > MOST_PARTS:
        return f"it has more than {MOST_PARTS} parts"
    for part in parts:
        if not _PART.fullmatch(part):
            return f"{part!r} is not a word of lower-case letters, digits and _"
        if part in _JAVASCRIPT:
            return f"`{part}` is a reserved word of JavaScript"
        if part in _DEVICES:
            return f"`{part}` is a reserved word of Windows"
    return None


def check_name(name: object) -> None:
    if fault := name_fault(name):
        raise UsageError(f"{name!r:.100} cannot be the name of a composed tool: {fault}", advice=(_LOOKS,))


def taken(name: str, reserved: Collection[str]) -> str | None:
    """The tool of the engine's own whose name or namespace this would be in."""
    first = name.split(".")[0]
    return next((other for other in sorted(reserved) if other.split(".")[0] == first), None)


def check_free(name: str, reserved: Collection[str]) -> None:
    if other := taken(name, reserved):
        first = name.split(".")[0]
        what = f"a tool of that name already exists: {other}" if other == name else f"`{first}` belongs to `{other}`"
        raise UsageError(f"a composed tool cannot be named {name!r}: {what}", advice=("choose another first word",))


def clash(name: str, others: Iterable[str]) -> str | None:
    """Another composed tool that could not be called beside it: `reports` is a tool or a group of tools, not both."""
    for other in sorted(others):
        if name.startswith(f"{other}.") or other.startswith(f"{name}."):
            return other
    return None
