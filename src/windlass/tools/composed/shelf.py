"""The folders of composed tools: the project's, and the one that the user keeps for all projects.

A folder is read with distrust, and each change to it is made at one stroke. A save writes both files beside the old
ones, then renames the program, then its description. A process that is killed between the two renames leaves
`.NAME.json.tmp` without `.NAME.js.tmp`: from that a later look knows that the two files do not belong together. Saves
lock the folder and looks share that lock, so nobody sees the moment between by chance.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from windlass.errors import NotFound, UsageError
from windlass.faults import fault_point
from windlass.ports.composed import ComposedTool, Uses
from windlass.tools.composed.record import (
    MOST_RECORD,
    MOST_SOURCE,
    DamagedRecord,
    check_free,
    check_name,
    clash,
    faults,
    from_texts,
    name_fault,
    record_text,
    taken,
)
from windlass.tools.composed.uses import UsesFile

__all__ = ["FolderComposedStore"]


class FolderComposedStore:
    """Implements `ComposedStore`. May be used from several threads, and beside other processes."""

    def __init__(self, project: Path, user: Path, reserved: Callable[[], Collection[str]]) -> None:
        self._project = ComposedFolder(project, everywhere=False)
        self._user = ComposedFolder(user, everywhere=True)
        self._reserved = reserved
        """Names of the tools that are not composed ones: theirs are the first words of their names."""
        self._lock = threading.Lock()

    def all(self) -> list[ComposedTool]:
        return self._look()[0]

    def stamp(self) -> object:
        return tuple(folder.stamp() for folder in self._folders)

    def problems(self) -> list[str]:
        troubles = [folder.uses.trouble for folder in self._folders]
        return [*self._look()[1], *(trouble for trouble in troubles if trouble)]

    def save(self, tool: ComposedTool) -> Path:
        check_name(tool.name)
        check_free(tool.name, self._reserved())
        if wrong := faults(tool):
            raise UsageError(
                f"the composed tool {tool.name} cannot be saved:\n" + "\n".join(f"  {reason}" for reason in wrong)
            )
        with self._lock:
            others = {name for folder in self._folders for name in folder.look().tools}
            if other := clash(tool.name, others):
                raise UsageError(
                    f"a composed tool cannot be named {tool.name!r} beside {other!r}: a name is a tool or a group",
                    advice=("choose another name, or delete the other first",),
                )
            return self._place(tool.everywhere).save(tool)

    def delete(self, name: str, *, everywhere: bool | None = None) -> None:
        check_name(name)
        with self._lock:
            places = [self._place(everywhere)] if everywhere is not None else self._folders
            holding = [folder for folder in places if folder.holds(name)]
            if not holding:
                known = [known for folder in places for known in folder.look().tools]
                import difflib  # for those who made a mistake

                near = difflib.get_close_matches(name, known, 1)
                raise NotFound(
                    f"there is no composed tool {name!r} in " + " or ".join(str(folder.path) for folder in places),
                    advice=(f"did you mean {near[0]!r}?",) if near else (),
                )
            if len(holding) > 1:
                raise UsageError(
                    f"the composed tool {name!r} is in this project and in your own folder: which is to be deleted?",
                    advice=tuple(f"this one: {folder.path / name}.js" for folder in holding),
                )
            holding[0].delete(name)

    def used(self, tool: ComposedTool, at: float, *, failed: bool) -> None:
        self._place(tool.everywhere).uses.add(tool.name, at, failed=failed)

    def uses(self, tool: ComposedTool) -> Uses:
        return self._place(tool.everywhere).uses.of(tool.name)

    @property
    def _folders(self) -> list[ComposedFolder]:
        return [self._project, self._user]

    def _place(self, everywhere: bool) -> ComposedFolder:
        return self._user if everywhere else self._project

    def _look(self) -> tuple[list[ComposedTool], list[str]]:
        reserved = self._reserved()
        chosen: dict[str, ComposedTool] = {}
        problems: list[str] = []
        with self._lock:
            found = [(folder, folder.look()) for folder in self._folders]
        for folder, (tools, wrong) in found:
            problems += wrong
            for name, tool in sorted(tools.items()):
                file = folder.path / f"{name}.js"
                if other := taken(name, reserved):
                    problems.append(f"{file}: it is not used, since its first word belongs to the tool `{other}`")
                elif name in chosen:
                    problems.append(f"{file}: it is hidden by the project's own tool of the same name")
                elif other := clash(name, chosen):
                    problems.append(f"{file}: it is not used, since `{other}` is a composed tool too")
                else:
                    chosen[name] = tool
        return [chosen[name] for name in sorted(chosen)], problems


MOST_ENTRIES = 10_000
MOST_TOOLS = 500
MOST_BYTES = 8 * 1024 * 1024
"""Bytes of all programs and descriptions of a folder."""
TICK = 20_000_000
"""Nanoseconds, more than a tick of the clock by which file systems note the time of a change."""
_LIMITS = {".js": MOST_SOURCE, ".json": MOST_RECORD}
_Stamp = tuple[int, int, int, int]


class FoundTools(NamedTuple):
    """The result of a look into a folder."""

    tools: dict[str, ComposedTool]
    problems: list[str]


class ComposedFolder:
    def __init__(self, path: Path, *, everywhere: bool) -> None:
        self.path = path
        self.everywhere = everywhere
        self.uses = UsesFile(path, may_be_link=everywhere)
        self._read: dict[str, tuple[tuple[_Stamp, _Stamp], ComposedTool | str]] = {}
        """By name: the stamps of its two files when they were last read, and the tool or its problem."""
        self._room = MOST_BYTES
        """Bytes that may still be read in this look."""

    def look(self) -> FoundTools:
        """Read everything in it; unchanged files are not read again."""
        try:
            with self._opened(fcntl.LOCK_SH) as folder:
                return self._look(folder)
        except FileNotFoundError:
            self._read = {}
            return FoundTools({}, [])
        except OSError as error:
            self._read = {}
            return FoundTools({}, [f"{self.path}: {_reason(error)}"])

    def stamp(self) -> object:
        """Another one when files came or went."""
        try:
            changed = self.path.stat().st_mtime_ns
        except OSError:
            return None
        # Another change within the same tick of the file system's clock would not show.
        return changed if abs(time.time_ns() - changed) > TICK else object()

    def holds(self, name: str) -> bool:
        """True if there is anything of that name, be it damaged."""
        return any(os.path.lexists(self.path / f"{name}{ending}") for ending in _LIMITS)

    def save(self, tool: ComposedTool) -> Path:
        texts = {".js": tool.source, ".json": record_text(tool)}
        try:
            self.path.mkdir(mode=0o700 if self.everywhere else 0o755, parents=True, exist_ok=True)
            with self._opened(fcntl.LOCK_EX) as folder:
                self._sweep(folder, tool.name)
                for ending, text in texts.items():
                    self._write(folder, f".{tool.name}{ending}.tmp", text.encode())
                os.replace(f".{tool.name}.js.tmp", f"{tool.name}.js", src_dir_fd=folder, dst_dir_fd=folder)
                fault_point("composed.between")
                os.replace(f".{tool.name}.json.tmp", f"{tool.name}.json", src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
        except OSError as error:
            raise self._cannot("save", tool.name, error) from error
        return self.path / f"{tool.name}.js"

    def delete(self, name: str) -> None:
        try:
            with self._opened(fcntl.LOCK_EX) as folder:
                for ending in (".json", ".js"):
                    with suppress(FileNotFoundError):
                        os.unlink(f"{name}{ending}", dir_fd=folder)
                self._sweep(folder, name)
                os.fsync(folder)
        except OSError as error:
            raise self._cannot("delete", name, error) from error
        self.uses.forget(name)

    @contextmanager
    def _opened(self, lock: int) -> Iterator[int]:
        """The folder, locked. The user may keep his behind a link; one that a repository brings may be none."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(self.path, flags if self.everywhere else flags | os.O_NOFOLLOW)
        try:
            with suppress(OSError):  # some network file systems have no locks: there, a look may come between
                fcntl.flock(folder, lock)
            yield folder
        finally:
            os.close(folder)

    def _write(self, folder: int, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600 if self.everywhere else 0o644, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _sweep(self, folder: int, name: str) -> None:
        """Take away what a save that was killed left behind. The program's goes last: its absence means a cut."""
        for ending in (".json.tmp", ".js.tmp"):
            with suppress(FileNotFoundError):
                os.unlink(f".{name}{ending}", dir_fd=folder)

    def _cannot(self, what: str, name: str, error: OSError) -> UsageError:
        return UsageError(
            f"cannot {what} the composed tool {name} in {self.path}: {_reason(error)}",
            advice=(f"look at the folder: ls -la {self.path}",),
        )

    def _look(self, folder: int) -> FoundTools:
        with os.scandir(folder) as entries:
            files = [entry.name for entry in islice(entries, MOST_ENTRIES + 1)]
        problems = []
        if len(files) > MOST_ENTRIES:
            problems.append(f"{self.path}: there are more than {MOST_ENTRIES} files; the rest is ignored")
        present = set(files)
        names: set[str] = set()
        for file in sorted(files[:MOST_ENTRIES]):
            name, ending = os.path.splitext(file)
            if file.startswith(".") or ending not in _LIMITS:
                continue
            if fault := name_fault(name):
                problems.append(f"{_shown(self.path / file)}: this cannot be the name of a composed tool: {fault}")
            else:
                names.add(name)
        if len(names) > MOST_TOOLS:
            problems.append(f"{self.path}: there are more than {MOST_TOOLS} tools; the rest, by name, is not used")
            names = set(sorted(names)[:MOST_TOOLS])
        self._room = MOST_BYTES
        read = {name: self._one(folder, name, present) for name in sorted(names)}
        self._read = {name: kept for name, kept in self._read.items() if name in names}
        tools = {name: found for name, found in read.items() if isinstance(found, ComposedTool)}
        return FoundTools(tools, problems + [found for found in read.values() if isinstance(found, str)])

    def _one(self, folder: int, name: str, present: set[str]) -> ComposedTool | str:
        if f".{name}.json.tmp" in present and f".{name}.js.tmp" not in present:
            return (
                f"{self.path / name}.js: its last save was interrupted, so it does not match {name}.json; "
                "save it again, or delete it"
            )
        try:
            stamps = _stamp(folder, name, ".js", present), _stamp(folder, name, ".json", present)
            self._room -= sum(stamp[2] for stamp in stamps)
            if self._room < 0:
                raise DamagedRecord(
                    f"{name} is not used: with it, the tools here are larger than {MOST_BYTES >> 20} MiB"
                )
            kept = self._read.get(name)
            if kept is not None and kept[0] == stamps:
                return kept[1]
            found = self._fresh(folder, name)
        except DamagedRecord as error:
            return f"{self.path}: {error}"
        self._read[name] = stamps, found
        return found

    def _fresh(self, folder: int, name: str) -> ComposedTool | str:
        try:
            source, record = (_content(folder, f"{name}{ending}", most) for ending, most in _LIMITS.items())
            return from_texts(name, source, record, everywhere=self.everywhere)
        except DamagedRecord as error:
            return f"{self.path}: {error}"


def _stamp(folder: int, name: str, ending: str, present: set[str]) -> _Stamp:
    file = f"{name}{ending}"
    if file not in present:
        other = ".json" if ending == ".js" else ".js"
        raise DamagedRecord(f"{name}{other} has no {file} beside it")
    try:
        found = os.stat(file, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        raise DamagedRecord(f"{file}: {_reason(error)}") from None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _content(folder: int, file: str, most: int) -> bytes:
    """The content of a regular file that is not too large. A link is not followed, a pipe is not waited for."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise DamagedRecord(f"{file}: {_reason(error)}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise DamagedRecord(f"{file} is not a regular file")
        with os.fdopen(fd, "rb", closefd=False) as opened:
            data = opened.read(most + 1)
    except OSError as error:
        raise DamagedRecord(f"{file}: {_reason(error)}") from None
    finally:
        os.close(fd)
    if len(data) > most:
        raise DamagedRecord(f"{file} is larger than {most // 1024} KiB")
    return data


def _reason(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "it is a link, and links are not followed here"
    if error.errno == errno.ENOTDIR:
        return "it is a link or no folder, and links are not followed here"
    return error.strerror or str(error)


def _shown(path: Path) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode()
