"""Change one value in a settings file, keeping every comment.

The new text is read back before it is written: if it does not say the old settings with this change, nothing is
written. It replaces the file in one step, and a lock keeps two processes from losing each other's change.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from windlass.errors import UsageError
from windlass.homes import not_saved, user_folder
from windlass.regular import read_regular

__all__ = ["add_allowed", "change_file", "with_added", "with_value", "without_value"]


def add_allowed(file: Path, rule: str, *, dry: bool = False) -> None:
    """Add a rule to `permissions.allow` of the file; `dry` only says whether that can be done."""
    change_file(
        file,
        lambda old: with_added(old, ("permissions", "allow"), rule),
        f"add it yourself, to `allow` of [permissions]: {tomlkit.string(rule).as_string()}",
        dry=dry,
    )


def change_file(
    file: Path,
    change: Callable[[str], str | None],
    advice: str,
    *,
    check: Callable[[str], None] | None = None,
    dry: bool = False,
) -> None:
    """Write what `change` makes of the file's text, unless `check` refuses it; the file is made if there is none.

    Where `change` gives None, nothing is written, and the user gets the advice. With `dry` nothing is written either.
    """
    try:
        _change(file, change, advice, check, dry=dry)
    except OSError as error:
        if file.parent == user_folder():
            raise not_saved("your settings cannot be saved in", file.parent, error) from error
        raise UsageError(f"nothing was saved: {file}: {error.strerror}") from error


def _change(
    file: Path, change: Callable[[str], str | None], advice: str, check: Callable[[str], None] | None, *, dry: bool
) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = file.resolve()  # a link to the real file stays one
    with _locked(file.with_name(f".{file.name}.lock")):
        try:
            old, mode = read_regular(target).decode(), target.stat().st_mode & 0o777
        except FileNotFoundError:
            old, mode = "", 0o600
        except OSError as error:
            raise UsageError(f"nothing was saved: {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"nothing was saved: {file}: {error}") from error
        new = change(old)
        if new is None:
            raise UsageError(
                f"nothing was saved: {file} is written in a way that cannot be changed safely", advice=(advice,)
            )
        if check is not None:
            check(new)
        if new != old and not dry:
            _replace(target, new, mode)


def with_added(old: str, path: Sequence[str], value: Any, default: Sequence[Any] = ()) -> str | None:
    """The text with one more value in the list under the names of `path`; None where that cannot be written safely.

    Where the text has no such list, it is the `default` with the value.
    """

    def add(settings: Any) -> None:
        *tables, last = path
        for name in tables:
            settings = settings.setdefault(name, {})
        listed = settings.setdefault(last, list(default))
        if value not in listed:
            listed.append(value)

    return _changed(old, add)


def with_value(old: str, path: Sequence[str], value: Any) -> str | None:
    """The text with another value under the names of `path`; None where that cannot be written safely."""

    def put(settings: Any) -> None:
        *tables, last = path
        for name in tables:
            settings = settings.setdefault(name, {})
        settings[last] = value

    return _changed(old, put)


def without_value(old: str, path: Sequence[str]) -> str | None:
    """The text without the value; the same text if it has none."""

    def remove(settings: Any) -> None:
        *tables, last = path
        for name in tables:
            if not isinstance(settings := settings.get(name, {}), dict):
                return
        settings.pop(last, None)

    return _changed(old, remove)


def _changed(old: str, change: Callable[[Any], None]) -> str | None:
    try:
        before = tomllib.loads(old)
        wanted = deepcopy(before)
        change(wanted)
        if wanted == before:
            return old
        document = tomlkit.parse(old)
        change(document)
        new = tomlkit.dumps(document)
        return new if _without_empty(tomllib.loads(new)) == _without_empty(wanted) else None
    except (tomllib.TOMLDecodeError, TOMLKitError, AttributeError, TypeError):  # no table where one is needed
        return None


def _without_empty(table: dict[str, Any]) -> dict[str, Any]:
    """The table without empty ones in it: a table that loses its last value may go with it."""
    inner = {key: _without_empty(value) if isinstance(value, dict) else value for key, value in table.items()}
    return {key: value for key, value in inner.items() if value != {}}


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
