"""Cgroups: bounds of memory and of processors that the kernel itself keeps, for one command and all that it starts.

The gauge sees what has happened; a cgroup keeps it from happening, however fast memory is filled and however long the
keeper has to wait for its turn. Its bound lies a little above the limit (`SPARE`): the gauge ends a command that passes
its limit, and the kernel what was faster than the gauge. The kernel also counts files in memory (/dev/shm) and its own
memory for each process (page tables, stacks). It does not count, as the gauge does, pages of programs and libraries
that were in the cache before; and cache that the command itself has filled it gives back before it kills.

`find` looks for a place by trying it out: under version 1 our own memory cgroup; under version 2, where a cgroup with
processes cannot have limited children, the nearest one above that hands `memory` down. It never climbs out of one that
has a bound, for the command would escape from it. `Cgroup` is the cgroup of one command, named after its keeper.
`sweep` removes those whose keeper could not.

Loaded by the warden from this file, with `bounds`; run as a script, it says where the place is or why there is none
(for `layers`). Standard library alone, as for `warden`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

__all__ = ["Cgroup", "CgroupRoot", "NoCgroup", "find", "find_for_cpu", "sweep"]

PREFIX, POOL = "windlass-", "windlass."
"""Names of cgroups: prefix of a command's, before its keeper's pid; and of one that several commands share."""
SPARE = 0.01
"""The share of the limit that lies between it and the kernel's bound."""
BATCH = 1024 * 1024
"""Bytes: more than the kernel takes from a cgroup at a time, so that less is missing when it finds none left."""
PAGE = os.sysconf("SC_PAGE_SIZE")
PERIOD, SHORTEST = 100_000, 1_000
"""Microseconds over which a share is measured out, and the least of them that the kernel grants."""
TRIAL = 64 * 1024 * 1024
"""Bytes, for a cgroup in which nothing is done."""


class NoCgroup(Exception):
    """No cgroup can be made here; the text says why."""


class CgroupRoot:
    """A folder in which cgroups of commands can be made, and the names of its files."""

    limit, door, events = "memory.max", "cgroup.procs", "memory.events"
    also = {"memory.swap.max": "0", "memory.oom.group": "1"}
    version = 2

    def __init__(self, folder: str, pool: int = 0) -> None:
        """`pool` is the bound of the cgroup itself, which those in it share; 0 is none."""
        self.folder, self.pool = folder, pool

    def quota(self, share: float) -> dict[str, str]:
        """Files that give a cgroup this share of the processors, with their content."""
        return {"cpu.max": f"{max(int(share * PERIOD), SHORTEST)} {PERIOD}"}


class CgroupRootV1(CgroupRoot):
    """The same under version 1."""

    limit, events = "memory.limit_in_bytes", "memory.oom_control"
    door = "tasks"  # for one thread: the kernel need not wait for all processors, as it does for a whole process
    also = {"memory.memsw.limit_in_bytes": ""}  # with swap: the same as without
    version = 1

    def quota(self, share: float) -> dict[str, str]:
        return {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": str(max(int(share * PERIOD), SHORTEST))}


class Cgroup:
    """Of one command, which enters it before it is the command. Its keeper stays outside."""

    def __init__(self, place: CgroupRoot, memory: int | None, share: float | None = None) -> None:
        """`share` is how many processors it has: 0.5 is half of one."""
        self._place = place
        self._folder = f"{place.folder}/{PREFIX}{os.getpid()}"
        self.bound = 0 if memory is None else _bound(memory)
        self.by_pool = False
        """Set by `struck`: the bound was the one that it shares with others."""
        os.mkdir(self._folder)
        try:
            if self.bound:
                _bound_memory(place, self._folder, self.bound)
            if share is not None:
                for name, value in place.quota(share).items():
                    _write(f"{self._folder}/{name}", value)
            self._door = os.open(f"{self._folder}/{place.door}", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            os.rmdir(self._folder)
            raise

    def enter(self) -> None:
        """Move the process that calls this."""
        os.write(self._door, b"0")

    def struck(self) -> bool:
        """Tell if the kernel has killed because the bound was reached, and not for the want of the whole machine."""
        place = self._place
        if not (self.bound or place.pool):
            return False
        if not _counts(f"{self._folder}/{place.events}").get("oom_kill"):
            return False
        if self.bound and _reached(place, self._folder, self.bound):
            return True
        self.by_pool = bool(place.pool) and _reached(place, place.folder, place.pool)
        return self.by_pool

    def close(self) -> None:
        """Remove it. One in which a process is left (another user's) is for a later `sweep`."""
        os.close(self._door)
        _remove(self._folder)
        if self._place.pool:
            with suppress(OSError):  # others are still in it
                os.rmdir(self._place.folder)


def shared_place(place: CgroupRoot, name: str, memory: int) -> CgroupRoot:
    """A cgroup with a bound of its own, in which those of several commands are made."""
    folder, bound = f"{place.folder}/{POOL}{name}", _bound(memory)
    with suppress(FileExistsError):
        os.mkdir(folder)
    if place.version == 2:
        handed = _read(f"{place.folder}/cgroup.subtree_control").split()
        _write(f"{folder}/cgroup.subtree_control", " ".join(f"+{one}" for one in handed if one in ("memory", "cpu")))
    _bound_memory(place, folder, bound)
    return type(place)(folder, bound)


def _bound(memory: int) -> int:
    return int(memory * (1 + SPARE)) // PAGE * PAGE


def _bound_memory(place: CgroupRoot, folder: str, bound: int) -> None:
    _write(f"{folder}/{place.limit}", str(bound))
    for name, value in place.also.items():
        if name == "memory.oom.group" and folder.rpartition("/")[2].startswith(POOL):
            continue  # one command is to end, and not all of them
        with suppress(FileNotFoundError):  # a kernel without swap, or from before they were there
            _write(f"{folder}/{name}", value or str(bound))


def _reached(place: CgroupRoot, folder: str, bound: int) -> bool:
    """Tell if the bound was reached, rather than the machine's own."""
    if not isinstance(place, CgroupRootV1):
        local = _counts(f"{folder}/memory.events.local") if os.path.exists(f"{folder}/memory.events.local") else {}
        return (local or _counts(f"{folder}/{place.events}"))["oom"] > 0
    marks = ("memory.max_usage_in_bytes", "memory.memsw.max_usage_in_bytes")  # memory.failcnt stays 0 on Linux 6.18
    return max(_number(f"{folder}/{name}") for name in marks) > bound - BATCH


def find() -> CgroupRoot:
    """Find a folder in which cgroups with a bound of memory can be made and entered, else raise NoCgroup."""
    return _first("memory")


def find_for_cpu(memory: CgroupRoot | None) -> CgroupRoot:
    """Find a folder for cgroups with a share of the processors, as `find` does; raise NoCgroup if there is none.

    Under version 2 a process is in one cgroup: it must be that of its memory, if there is one.
    """
    if memory is not None and memory.version == 2:
        if "cpu" not in _read(f"{memory.folder}/cgroup.subtree_control").split():
            raise NoCgroup(f"{memory.folder} does not hand `cpu` down to new cgroups")
        return memory
    return _first("cpu")


def _first(controller: str) -> CgroupRoot:
    reasons = []
    for place in _candidates(controller):
        if reason := _tried(place, controller):
            reasons.append(f"{place.folder}: {reason}")
        else:
            return place
    raise NoCgroup(reasons[0] if reasons else f"no cgroup above ours hands `{controller}` down to new ones")


def sweep(place: CgroupRoot) -> None:
    """Remove the cgroups of keepers that were killed, here or in an engine before us."""
    with suppress(OSError):  # our own is gone: nothing is left to remove
        for name in os.listdir(place.folder):
            if name.startswith(POOL):
                sweep(type(place)(f"{place.folder}/{name}"))
                with suppress(OSError):  # it is in use
                    os.rmdir(f"{place.folder}/{name}")
            elif name.startswith(PREFIX) and not os.path.exists(f"/proc/{name.removeprefix(PREFIX)}"):
                _remove(f"{place.folder}/{name}")


def _remove(folder: str) -> None:
    """With those that the command has made in it, as an engine or a container does that is started by a step."""
    with suppress(OSError):  # someone is still in it, or another was faster
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
        os.rmdir(folder)


def _candidates(controller: str) -> Iterator[CgroupRoot]:
    """In the order in which they are to be tried."""
    with open("/proc/self/cgroup") as file:
        ours = [line.rstrip("\n").split(":", 2) for line in file]
    for kind, root, mount, options in _mounts():
        for _, controllers, path in ours:
            if kind == "cgroup" and controller in options and controller in controllers.split(","):
                if folder := _seen_from(mount, root, path):
                    yield CgroupRootV1(folder)
            elif kind == "cgroup2" and not controllers and (folder := _seen_from(mount, root, path)):
                yield from _handing_down(mount, folder, controller)


def _mounts() -> Iterator[tuple[str, str, str, list[str]]]:
    """Of cgroups: their kind, the cgroup that is mounted, where, and the options."""
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.rstrip("\n").partition(" - ")
            kind, _, options = after.split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                _, _, _, root, mount, *_ = before.split(" ")
                yield kind, root, mount.replace("\\040", " "), options.split(",")


def _seen_from(mount: str, root: str, path: str) -> str | None:
    """The folder of a cgroup; None if it lies outside what is mounted."""
    top = root.rstrip("/")
    if "/.." in path or not (path == top or path.startswith(f"{top}/")):
        return None
    return (mount + path.removeprefix(top)).rstrip("/")


def _handing_down(mount: str, folder: str, controller: str) -> Iterator[CgroupRoot]:
    """This cgroup and those above it that give their children such bounds, as far as none of them has one."""
    while True:
        with suppress(OSError):
            if controller in _read(f"{folder}/cgroup.subtree_control").split() and os.access(folder, os.W_OK):
                yield CgroupRoot(folder)
        if folder == mount or _bounded(folder):
            return
        folder = os.path.dirname(folder)


def _bounded(folder: str) -> bool:
    for name in ("memory.max", "memory.high", "cpu.max"):
        with suppress(OSError):  # the controller is not on here
            if _read(f"{folder}/{name}").split()[:1] != ["max"]:
                return True
    return False


def _tried(place: CgroupRoot, controller: str) -> str | None:
    """Try to make and enter a cgroup there; give the reason if that fails."""
    memory = controller == "memory"
    sweep(place)
    try:
        cgroup = Cgroup(place, TRIAL) if memory else Cgroup(place, None, 1.0)
        try:
            if memory and "oom_kill" not in _counts(f"{place.folder}/{PREFIX}{os.getpid()}/{place.events}"):
                return "this kernel does not report which process it killed for memory (Linux 4.13 does)"
            refused = _entered(cgroup)
        finally:
            cgroup.close()
    except OSError as error:
        refused = error.errno or errno.EIO
    return os.strerror(refused).lower() if refused else None


def _entered(cgroup: Cgroup) -> int:
    """0 if a process can go in; otherwise the number of the error."""
    pid = os.fork()
    if pid == 0:
        try:
            cgroup.enter()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or errno.EIO)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _counts(path: str) -> dict[str, int]:
    return {name: int(count) for name, count in map(str.split, _read(path).splitlines())}


def _number(path: str) -> int:
    try:
        return int(_read(path))
    except FileNotFoundError:
        return 0


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536).decode()
    finally:
        os.close(fd)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def main() -> None:
    """Without an argument of memory, with `cpu` of processors."""
    place: CgroupRoot | None = None
    try:
        try:
            place = find()
        except (NoCgroup, OSError):
            if sys.argv[1:] != ["cpu"]:
                raise
        if sys.argv[1:] == ["cpu"]:
            place = find_for_cpu(place)
    except (NoCgroup, OSError) as error:
        sys.exit(str(error))
    assert place is not None
    print(f"version {place.version}, {place.folder}")  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
