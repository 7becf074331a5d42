"""From a path that anybody wrote to an `OpenedPath` inside the working directory, or a refusal.

`Root` is the working directory, held open. `Root.locate` is the only way from text to a file:

- `..` is folded before anything is opened, and absolute paths must start with the working directory;
- a path without links is opened by one openat2 call that cannot leave the root;
- any other path (or any path, where openat2 is missing) is walked name by name with O_NOFOLLOW. A link on
  the way is read and its text walked in the same manner, so a link may lead anywhere inside and nowhere else.
  /proc's magic links get no special treatment: their text is an absolute path, and outside;
- the engine's own state is refused: any folder named `.windlass`, and the engine's home under every name (a link, a
  bind mount, `--home ./state`, a hard link to one of its files), known by device and inode.

The check and the use are the same act: the result holds the directory open. Two things no path check
can see: a hard link shares its content with a name that may be elsewhere (reading shows that content;
writing replaces our name and leaves the other alone; only the files of the home are known by their inode), and
a directory that another process moves out of the root while it is held open stays open.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from windlass.errors import Category, ToolError
from windlass.homes import STATE_NAMES
from windlass.tools.files import kernel
from windlass.tools.files.failures import Missing, outside, shown, unusable
from windlass.tools.files.place import DIRECTORY, OpenedPath

__all__ = ["Root", "is_state", "names_in"]

Identity = tuple[int, int]


def is_state(name: str) -> bool:
    """Tell if a name is that of a home, also on file systems that ignore case."""
    return name.casefold() == ".windlass"


class EngineState:
    """The home of the engine as a file tool meets it. `fd` is the working directory, above which nobody looks."""

    def __init__(self, home: Path | None, fd: int, workdir: str) -> None:
        """`workdir` is the path of the working directory; both paths are free of links."""
        self._top = _identity(os.fstat(fd))
        self._own = _own(home, workdir) if home is not None else frozenset[Identity]()

    def __contains__(self, found: os.stat_result) -> bool:
        """Tell if it is the home itself, or an entry of it under whatever name."""
        return _identity(found) in self._own

    def holds(self, fd: int) -> bool:
        """Tell if an open directory below the working directory is the home, or in it."""
        if not self._own:
            return False
        up, last = ".", None
        while (now := _identity(os.stat(up, dir_fd=fd))) not in (self._top, last):
            if now in self._own:
                return True
            up, last = f"{up}/..", now  # the same twice is the root of the file system
        return False


def _own(home: Path, workdir: str) -> frozenset[Identity]:
    """The home and all that is in it; only the engine's files in it where the working directory is inside the home."""
    try:
        found = os.stat(home)
        with os.scandir(home) as entries:
            inside = {entry.name: (found.st_dev, entry.inode()) for entry in entries}
    except OSError:
        return frozenset()  # there is none yet
    if f"{workdir}/".startswith(f"{home}/"):
        return frozenset(inside[name] for name in STATE_NAMES if name in inside)
    return frozenset({_identity(found), *inside.values()})


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


MAX_PATH, MAX_NAME, MAX_LINKS = 4096, 255, 40


class Root:
    """The working directory: everything a file tool touches is beneath it."""

    def __init__(self, workdir: Path, home: Path | None = None) -> None:
        """`home` is the engine's, which is refused under every name."""
        try:
            self.fd = os.open(workdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ToolError(
                f"the working directory {shown(str(workdir))} cannot be opened: "
                f"{os.strerror(error.errno or 0).lower()}",
                category=Category.CONFIGURATION,
                advice=("create it, or run with another working directory",),
            ) from error
        real = os.path.realpath(workdir)
        self._state = EngineState(home, self.fd, real)
        self._names = {tuple(_split(p)) for p in (os.path.abspath(workdir), real)}

    def __enter__(self) -> Root:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.fd)

    @contextmanager
    def locate(self, path: str, *, follow: bool = True) -> Iterator[OpenedPath]:
        """The place a path names. `follow` decides about a link at its very end: its target, or itself."""
        place = self._resolve(path, follow)
        try:
            found = place.stat()
            if self._state.holds(place.fd) or (found is not None and found in self._state):
                raise _own_state(path)
            yield place
        finally:
            os.close(place.fd)

    @contextmanager
    def known(self, path: str) -> Iterator[OpenedPath | None]:
        """The place of a path without links, as `OpenedPath.path` is one; None when its folder is gone."""
        *folders, name = _split(path)
        if path.startswith("/") or ".." in folders:
            raise outside(path, "the undo log never names such a path")
        fd = os.dup(self.fd)
        try:
            for folder in folders:
                inner = os.open(folder, DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = inner
            place: OpenedPath | None = OpenedPath(fd, name, path)
        except (FileNotFoundError, NotADirectoryError):
            place = None
        try:
            yield place
        finally:
            os.close(fd)

    def is_state(self, place: OpenedPath, found: os.stat_result | None = None) -> bool:
        """Tell if an entry that was met on a walk, and is `found` there, is the engine's own state."""
        found = found or place.stat()
        return is_state(place.name) or (found is not None and found in self._state)

    def parts(self, path: str) -> list[str]:
        """The names a path consists of, from the root, without `.` and `..`; none for the root itself."""
        _check_text(path)
        names = self._from_root(path, path)
        folded: list[str] = []
        for name in names:
            if name != "..":
                folded.append(name)
            elif folded:
                folded.pop()
            else:
                raise outside(path, "it leaves the working directory with ..")
        _check_names(path, folded)
        return folded

    def _from_root(self, text: str, path: str) -> list[str]:
        names = _split(text)
        if not text.startswith("/"):
            return names
        for root in self._names:
            if tuple(names[: len(root)]) == root:
                return names[len(root) :]
        if text == path:
            raise outside(path, "it is absolute and not inside the working directory")
        raise outside(path, f"a link on the way leads to {shown(text)}, outside the working directory")

    def _resolve(self, path: str, follow: bool) -> OpenedPath:
        parts = self.parts(path)
        if parts:
            fd = kernel.open_beneath(self.fd, "/".join(parts[:-1]) or ".", DIRECTORY)
            if fd is not None:
                if not follow or _link(fd, parts[-1]) is None:
                    return OpenedPath(fd, parts[-1], "/".join(parts))
                os.close(fd)
        return self._walk(path, parts, follow)

    def _walk(self, path: str, parts: list[str], follow: bool) -> OpenedPath:
        todo, names, links = parts[::-1], list[str](), 0
        held = [os.dup(self.fd)]  # the root and, one for one, the directories in `names`
        try:
            while todo:
                name = todo.pop()
                if name == "..":
                    # Only a link's text still has these. Up is where we came from, never the disk's `..`,
                    # which a rename could have changed.
                    if not names:
                        raise outside(path, "a link on the way leaves the working directory")
                    names.pop()
                    os.close(held.pop())
                    continue
                target = _link(held[-1], name) if todo or follow else None
                if target is not None:
                    links += 1
                    if links > MAX_LINKS:
                        raise unusable(path, "is a link that forms a loop", "remove the link")
                    if target.startswith("/"):
                        while names:
                            names.pop()
                            os.close(held.pop())
                    onward = self._from_root(target, path)
                    _check_names(path, onward)
                    todo.extend(reversed(onward))
                elif todo:
                    held.append(_enter(held[-1], name, path))
                    names.append(name)
                else:
                    return OpenedPath(held.pop(), name, "/".join([*names, name]))
            return OpenedPath(held.pop(), ".", "/".join(names) or ".")
        finally:
            for fd in held:
                os.close(fd)


def names_in(folder: int) -> list[str]:
    """The names in an open directory that a message may suggest."""
    try:
        return [name for name in sorted(os.listdir(folder)) if not is_state(name)]
    except PermissionError:
        return []


def _split(text: str) -> list[str]:
    return [name for name in text.split("/") if name not in ("", ".")]


def _check_text(path: str) -> None:
    if not path:
        raise unusable(path, "is empty: a path must name something", "use . for the working directory")
    if "\0" in path:
        raise unusable(path, "has a NUL character in it", "correct the path")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise unusable(path, "is not valid Unicode text", "correct the path") from None
    if size >= MAX_PATH:
        raise unusable(path, f"is {size} bytes long; the limit is {MAX_PATH - 1}", "shorten the path")


def _check_names(path: str, names: list[str]) -> None:
    for name in names:
        if is_state(name):
            raise _own_state(path)
        if len(os.fsencode(name)) > MAX_NAME:
            raise unusable(path, f"has a name longer than {MAX_NAME} bytes in it", "shorten the name")


def _own_state(path: str) -> ToolError:
    return outside(path, "that is the engine's own state (.windlass, or its home), which file tools leave alone")


def _link(fd: int, name: str) -> str | None:
    """The text of a link, None when it is not one (or not there)."""
    try:
        return os.readlink(name, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _enter(fd: int, name: str, path: str) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        raise Missing(path, name, names_in(fd)) from None
    except NotADirectoryError:
        raise unusable(path, f"cannot be reached: {shown(name)} is not a directory", "correct the path") from None
