"""Taking back what finished steps changed, because a person wants it.

All logs of the steps are gathered, those of their agents' and programs' calls included, and looked at newest first:
if anything no longer is as the step left it, nothing is touched and the files are named. Then each log is renamed to
`undo.back-…`, taken back, and renamed to `undo.undone-…`. So an undo that is killed goes on when it is asked for
again, and one that is done stays known as such, with what it did, until the execution is cleaned.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from windlass.errors import Category, ToolError
from windlass.faults import fault_point
from windlass.tools.files.failures import explain, shown
from windlass.tools.files.log import DONE, OPEN, PAST, Change, Log, Note, locked, mark_at, owner_of, read_log
from windlass.tools.files.place import DIRECTORY, OpenedPath, mark, readable
from windlass.tools.files.safe_path import Root
from windlass.tools.files.undo import clear, dropped, roll_back_in

__all__ = ["undo_steps"]

_BACK, _UNDONE = "undo.back-", "undo.undone-"


@dataclass(frozen=True, slots=True)
class _FoundChange:
    scratch: Path
    name: str
    """Of the log's folder in it."""
    log: Log
    """Whole, with what is taken back already."""
    age: tuple[int, int]
    """Grows with every change of the execution."""

    @property
    def step(self) -> str:
        return owner_of(self.scratch.name)

    @property
    def begun(self) -> bool:
        """Its undoing has begun, or it was never finished: the entries at its paths are not final."""
        return (self.name == OPEN and self.log.end is None) or self.name.startswith(_BACK)

    @property
    def undone(self) -> bool:
        return self.name.startswith(_UNDONE)

    @property
    def left(self) -> dict[str, str | None]:
        return dict(self.log.end["left"]) if self.log.end is not None else {}


def undo_steps(folder: Path, steps: Collection[str], workdir: Path) -> list[dict[str, str]]:
    """Take back what the file tools changed for these steps of the execution in `folder`: what was done, newest first.

    Done again it changes nothing and says the same; nothing at all when these steps changed no file. Raises ToolError
    and leaves everything as it is when a file was changed since, or when too much was replaced to be kept.
    """
    if not (folder / "steps").is_dir():
        return []
    try:
        with Root(workdir) as root, _alone(folder / "steps"):
            found = sorted(_logs(folder / "steps", steps), key=lambda one: one.age, reverse=True)
            ours = [one for one in found if one.step in steps]
            todo = [one for one in ours if not one.undone]
            _refuse_conflicts(root, todo, [one for one in found if one.step not in steps])
            for one in todo:
                _take_back(root, one)
            _clear_folders(root, todo)
    except OSError as error:
        raise explain(error, "taking back") from error
    told: dict[str, dict[str, str]] = {}
    for one in reversed(ours):
        for change in _told(one):
            told.setdefault(change["path"], change)
    return list(told.values())[::-1]


@contextmanager
def _alone(steps: Path) -> Iterator[None]:
    fd = os.open(steps, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ToolError("another process is undoing a step of this execution", category=Category.TRANSIENT) from None
    finally:
        os.close(fd)


def _logs(steps: Path, wanted: Collection[str]) -> Iterator[_FoundChange]:
    for scratch in sorted(path for path in steps.iterdir() if path.is_dir() and not path.is_symlink()):
        try:
            yield from [_found(path) for path in sorted(scratch.iterdir()) if _is_log(path.name)]
        except ToolError:
            if owner_of(scratch.name) in wanted:  # the others only help to say who changed a file
                raise


def _is_log(name: str) -> bool:
    return name in (OPEN, DONE) or name.startswith((PAST, _BACK, _UNDONE))


def _found(folder: Path) -> _FoundChange:
    with _opened(folder) as fd:
        log, age = read_log(fd, whole=True), _age(fd)
    number = int(log.end.get("order", 0)) if log.end is not None else 0
    if folder.name == OPEN and log.end is None:
        number = 1 << 62  # nothing came after what was never finished
    return _FoundChange(folder.parent, folder.name, log, (number, age))


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _age(fd: int) -> int:
    try:
        return os.stat("log", dir_fd=fd, follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0


def _refuse_conflicts(root: Root, todo: list[_FoundChange], others: list[_FoundChange]) -> None:
    """Raise if a path is not as its step left it, as far as can be known before newer changes are taken back."""
    forecast = _Forecast(root)
    problems: list[str] = []
    for one in todo:
        if not one.begun and one.log.end is not None and "dropped" in one.log.end:
            raise dropped(one.log.end["dropped"])
        if not one.begun:
            wrong = [path for path, left in one.left.items() if not forecast.fits(path, left)]
            problems += [_changed(path, one, others) for path in wrong]
        forecast.take_back(one)
    if problems:
        raise ToolError(
            "nothing was undone: " + "; ".join(dict.fromkeys(problems)),
            category=Category.CONFIGURATION,
            advice=("undo the later change first, or fix these files by hand",),
        )


class _Forecast:
    """Forecast of what stands at each path once newer changes are taken back, as far as it is known."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._known: dict[str, str | None] = {}
        self._touched: set[str] = set()
        self._above: set[str] = set()
        """The folders around them: their marks changed, too."""

    def fits(self, path: str, mark: str | None) -> bool:
        if path in self._known:
            return self._known[path] == mark
        if path in self._touched or path in self._above or not self._touched.isdisjoint(_ancestors(path)):
            return True  # not known: the rollback looks again
        return mark_at(self._root, path) == mark

    def take_back(self, one: _FoundChange) -> None:
        for path in [path for _, line in one.log.lines if isinstance(line, Change) for path in _paths_of(line)]:
            for stale in (path, *_ancestors(path)):
                self._known.pop(stale, None)
            if path in self._above:
                self._known = {p: mark for p, mark in self._known.items() if not p.startswith(f"{path}/")}
            self._touched.add(path)
            self._above.update(_ancestors(path))
        if not one.begun:
            self._known.update(_before(one))


def _paths_of(line: Change | Note) -> list[str]:
    """Paths of a line; not the names of temporary entries."""
    if isinstance(line, Change):
        return [path for path in (line.path, line.source) if path]
    return [line["made"]] if "made" in line else []


def _ancestors(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:length]) for length in range(1, len(names))]


def _before(one: _FoundChange) -> dict[str, str | None]:
    """Marks of the paths of a log before it; not of those in folders that it had changed before."""
    before: dict[str, str | None] = {}
    touched: set[str] = set()
    above: set[str] = set()
    with _opened(one.scratch / one.name) as fd:
        for _, line in one.log.lines:
            if not isinstance(line, Change):
                continue
            stood = {line.path: mark(OpenedPath(fd, line.was, line.was)) if line.was is not None else None}
            if line.source:
                stood[line.source] = line.now
            for path, was in stood.items():
                if path not in touched and path not in above and touched.isdisjoint(_ancestors(path)):
                    before[path] = was
            for path in stood:
                touched.add(path)
                above.update(_ancestors(path))
    return before


def _changed(path: str, one: _FoundChange, others: list[_FoundChange]) -> str:
    later = next((other for other in others if other.age > one.age and not other.undone and path in other.left), None)
    who = f"by step {later.step}" if later is not None else "by another program"
    return f"{shown(path)} was changed {who} since step {one.step}"


def _take_back(root: Root, one: _FoundChange) -> None:
    with locked(one.scratch) as home:
        undone = f"{_UNDONE}{one.log.token or 0}"
        name = one.name
        if not one.begun:
            name = f"{_BACK}{one.log.token or 0}"
            os.rename(one.name, name, src_dir_fd=home.fd, dst_dir_fd=home.fd)
            home.sync()
        fault_point("files.retraced")
        roll_back_in(root, home, name, keep_as=undone)


def _clear_folders(root: Root, todo: list[_FoundChange]) -> None:
    """Remove folders that one call made and another, at the same time, had put something in until it was taken back.

    Only where nothing stood before: an earlier entry is put back, and may be an empty folder, too.
    """
    first: dict[str, Change | Note] = {}
    for one in reversed(todo):
        for _, line in one.log.lines:
            for path in _paths_of(line):
                first.setdefault(path, line)
    made = {path for path, line in first.items() if not isinstance(line, Change)}
    changed = first.keys() - made
    for path in sorted(made, key=lambda path: path.count("/"), reverse=True):
        if changed.isdisjoint(_ancestors(path)):
            clear(root, {"made": path})


def _told(one: _FoundChange) -> list[dict[str, str]]:
    """Describe for a person what undoing a log does, in the order in which it was done."""
    told: dict[str, dict[str, str]] = {}
    moved: set[str] = set()
    for _, line in one.log.lines:
        if not isinstance(line, Change) or line.path in told or line.path in moved:
            continue
        if line.source:
            moved.add(line.source)
            told[line.path] = {"path": readable(line.path), "undone": "moved back", "to": readable(line.source)}
        else:
            told[line.path] = {"path": readable(line.path), "undone": "removed" if line.was is None else "restored"}
    return list(told.values())
