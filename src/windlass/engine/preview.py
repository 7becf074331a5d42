"""Show a question as a difference to the current file: for tools that write or edit one file.

It knows the arguments' shapes, ours and the runtimes' (`files.write`, Claude Code's `Edit`, OpenCode's `write`), not
the tools. It only looks, only inside the working directory, and says None where it has nothing true to show.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import stat
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from windlass.core.approval import ABSENT
from windlass.core.events import ApprovalAsked
from windlass.core.step import Approval

__all__ = ["MAX_DIFF", "asked_change", "difference", "rests_on"]

_NO_BASIS: Mapping[str, str] = {}
MAX_FILE = 1 << 20
"""Bytes of a file that are compared."""
MAX_DIFF = 64 * 1024
"""Characters of a difference that are shown."""
_PATHS = ("path", "file_path", "filePath", "filename")
_OLD, _NEW = ("old", "old_string", "oldString", "find"), ("new", "new_string", "newString", "replace")


def rests_on(basis: Mapping[str, str]) -> str:
    """The files and programs that a question is about beside its input, in one line; empty when there are none."""
    shown = [
        f"{label} ({mark[:12]})"
        for label, mark in sorted(basis.items())
        if not label.startswith(("step ", "tool ", "question "))
    ]
    return ", ".join(shown)


def asked_change(asked: ApprovalAsked | Approval, workdir: str | Path) -> str | None:
    """The difference that this question is about, in the folder that it names, else in the execution's `workdir`."""
    return difference(asked.input, asked.workdir or workdir, asked.basis)


def difference(input: Any, workdir: str | Path, basis: Mapping[str, str] = _NO_BASIS) -> str | None:
    """A unified diff of the change, or None if it is no change of one text file.

    With the `basis` of a question, it is the difference that was asked about, or a sentence that it is no longer true.
    """
    if not isinstance(input, Mapping):
        return None
    path = _first(input, _PATHS)
    if path is None:
        return None
    before = _read(path, Path(workdir))
    if before is None:
        return None
    asked = next((mark for label, mark in basis.items() if label.startswith("file ")), None)
    if asked is not None and asked != (_mark(before) if before or _is_there(path, workdir) else ABSENT):
        return f"{path} changed since this question: after your answer you are asked again, with the new diff\n"
    after = _after(input, before)
    if after is None or after == before:
        return None
    name = path.replace("\n", "\\n")  # it cannot begin a line of the difference
    lines = difflib.unified_diff(_lines(before), _lines(after), f"{name} (now)", f"{name} (then)", n=3)
    text = "".join(line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines)
    return (
        text
        if len(text) <= MAX_DIFF
        else f"{text[:MAX_DIFF]}\n… the diff is cut off; it has {len(text):,} characters\n"
    )


def _lines(text: str) -> list[str]:
    """The lines with their ends, as editors and git count them: a form feed, say, is within a line."""
    return list(StringIO(text, newline="\n"))


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_there(path: str, workdir: str | Path) -> bool:
    return (Path(workdir) / path).exists()


def _after(input: Mapping[str, Any], before: str) -> str | None:
    content = input.get("content")
    if isinstance(content, str):
        return before + content if input.get("mode") == "append" else content
    edits = input.get("edits")
    replacements = edits if isinstance(edits, list) else [input]
    text = before
    for edit in replacements:
        if not isinstance(edit, Mapping):
            return None
        old, new = _first(edit, _OLD), _first(edit, _NEW)
        if not old or new is None or old not in text:
            return None  # it will fail as it stands: there is no difference to show
        every = bool(edit.get("all") or edit.get("replace_all") or edit.get("replaceAll"))
        text = text.replace(old, new) if every else text.replace(old, new, 1)
    return text


def _first(data: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((data[name] for name in names if isinstance(data.get(name), str)), None)


def _read(path: str, workdir: Path) -> str | None:
    """The file's text; empty for one that is not there yet; None if it is no text file of the working directory."""
    root = workdir.resolve()
    try:
        place = (root / path).resolve()
        if not place.is_relative_to(root):
            return None
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, RuntimeError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE:
            return None
        return os.read(descriptor, MAX_FILE).decode()
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(descriptor)
