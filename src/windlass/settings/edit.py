"""Add a rule to `permissions.allow` of the user's settings file, keeping every comment.

The new text is read back before it is written: if it does not say the old settings plus this rule, nothing is written.
It replaces the file in one step, and a lock keeps two processes from losing each other's rule.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from windlass.errors import UsageError

__all__ = ["add_allowed", "with_allowed"]

_HEADER = re.compile(r"^[ \t]*\[[ \t]*permissions[ \t]*\][ \t]*(#[^\r\n]*)?\r?$", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_ALLOW = re.compile(r"^[ \t]*allow[ \t]*=[ \t]*\[", re.MULTILINE)


def add_allowed(file: Path, rule: str, *, dry: bool = False) -> None:
    """Write the rule into the file, which is made if there is none; `dry` only says whether that can be done."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = file.resolve()  # a link to the real file stays one
    with _locked(file.with_name(f".{file.name}.lock")):
        try:
            old, mode = target.read_bytes().decode(), target.stat().st_mode & 0o777
        except FileNotFoundError:
            old, mode = "", 0o600
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the rule was not saved: {file}: {error}") from error
        new = with_allowed(old, rule)
        if new is None:
            raise UsageError(
                f"the rule was not saved: {file} is written in a way that cannot be changed safely",
                advice=(f"add it yourself, to `allow` of [permissions]: {_text(rule)}",),
            )
        if new != old and not dry:
            _replace(target, new, mode)


def with_allowed(old: str, rule: str) -> str | None:
    """The text with the rule in it; None where no way of writing it reads back as the old settings plus the rule."""
    try:
        wanted: dict[str, Any] = tomllib.loads(old)
    except tomllib.TOMLDecodeError:
        return None
    permissions = wanted.setdefault("permissions", {})
    allow = permissions.setdefault("allow", []) if isinstance(permissions, dict) else None
    if not isinstance(allow, list):
        return None
    if rule in allow:
        return old
    allow.append(rule)
    for new in _ways(old, rule):
        with suppress(tomllib.TOMLDecodeError):
            if tomllib.loads(new) == wanted:
                return new
    return None


def _ways(old: str, rule: str) -> Iterator[str]:
    """Texts that may be right: the caller reads them back."""
    for header in _HEADER.finditer(old):
        following = _TABLE.search(old, header.end())
        end = following.start() if following is not None else len(old)
        for allow in _ALLOW.finditer(old, header.end(), end):
            if (place := _after_last(old, allow.end())) is not None:
                joint = {"[": "", ",": " "}.get(old[place - 1], ", ")
                yield f"{old[:place]}{joint}{_text(rule)}{old[place:]}"
        yield f"{old[: header.end()]}\nallow = [{_text(rule)}]{old[header.end() :]}"
    before = f"{old.rstrip()}\n\n" if old.strip() else ""
    yield f"{before}[permissions]\nallow = [{_text(rule)}]\n"


def _after_last(text: str, start: int) -> int | None:
    """The place after the last value, comma or bracket of an array of texts that begins at `start`."""
    place = last = start
    while place < len(text):
        one = text[place]
        if one == "]":
            return last
        if one in "\"'":
            closed = _closed(text, place)
            if closed is None:
                return None
            place = last = closed
        elif one == "#":
            place = text.find("\n", place)
            if place < 0:
                return None
        else:
            last = place + 1 if one == "," else last
            place += 1
    return None


def _closed(text: str, start: int) -> int | None:
    """The place after a text that begins at `start`; None for one of several lines."""
    quote = text[start]
    if text.startswith(quote * 3, start):
        return None
    found = re.compile(r'"(?:[^"\\\n]|\\.)*"' if quote == '"' else r"'[^'\n]*'").match(text, start)
    return found.end() if found is not None else None


def _text(rule: str) -> str:
    """JSON's texts are TOML's."""
    return json.dumps(rule, ensure_ascii=False)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(file: Path, text: str, mode: int) -> None:
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(descriptor, "wb") as new:
            new.write(text.encode())
            new.flush()
            os.fchmod(new.fileno(), mode)
            os.fsync(new.fileno())
        os.replace(draft, file)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise
