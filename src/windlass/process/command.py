"""A command to start, its limits, and the errors of starting it.

`Command` is the checked form of the caller's argv, directory and environment, in the bytes the kernel takes.
`SpawnError` is the one error of starting; `Command.refused` words it for a person, from the errno and the part of the
start that failed. Nothing here starts anything.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Self

import msgspec

from windlass.errors import Category, WindlassError

__all__ = ["Command", "LimitName", "MemoryPool", "ProcessLimits", "ResourcesUsed", "SpawnError"]


_CATEGORIES = {
    errno.EACCES: Category.PERMISSION,
    errno.EPERM: Category.PERMISSION,
    errno.EAGAIN: Category.RESOURCE,
    errno.EMFILE: Category.RESOURCE,
    errno.ENFILE: Category.RESOURCE,
    errno.ENOMEM: Category.RESOURCE,
    errno.ETXTBSY: Category.TRANSIENT,
    errno.EINVAL: Category.LOGIC,
    errno.E2BIG: Category.LOGIC,
}


class SpawnError(WindlassError):
    """The command could not be started, and nothing of it ran. `errno` distinguishes the reasons."""

    def __init__(self, number: int, message: str, *, advice: Sequence[str] = ()) -> None:
        super().__init__(message, advice=advice)
        self.errno = number
        self.category = _CATEGORIES.get(number, Category.CONFIGURATION)


class Command(msgspec.Struct, frozen=True):
    argv: list[bytes]
    cwd: bytes
    """Absolute: the process that starts it stands in another directory."""
    env: dict[bytes, bytes]
    limits: ProcessLimits | None = None

    @classmethod
    def checked(
        cls, argv: Sequence[str], cwd: str, env: Mapping[str, str], limits: ProcessLimits | None = None
    ) -> Self:
        """Refuse what no kernel could start."""
        if not argv:
            raise SpawnError(errno.EINVAL, "cannot start an empty command: argv names no program")
        for text in (*argv, cwd, *env, *env.values()):
            if "\0" in text:
                raise SpawnError(errno.EINVAL, f"cannot start {argv[0]!r}: {text!r} contains a NUL byte")
        for name in env:
            if not name or "=" in name:
                raise SpawnError(errno.EINVAL, f"cannot start {argv[0]!r}: {name!r} cannot name a variable")
        return cls(
            argv=[os.fsencode(argument) for argument in argv],
            cwd=os.fsencode(os.path.abspath(cwd)),
            env={os.fsencode(name): os.fsencode(value) for name, value in env.items()},
            limits=limits or None,  # limits that limit nothing are none
        )

    def refused(self, number: int, part: str) -> SpawnError:
        """The error for a start that failed with `number` at `part`.

        A part is "cwd", "program", or the name of what we need to start it.
        """
        program, cause = os.fsdecode(self.argv[0]), os.strerror(number).lower()
        match part:
            case "program":
                fault = self._fault_of(program, number)
            case "cwd":
                fault = (f"its working directory {os.fsdecode(self.cwd)} cannot be entered ({cause})",)
            case _:
                fault = (f"the {part} for it could not be made ({cause})",)
        reason, *advice = fault
        return SpawnError(number, f"cannot start {program!r}: {reason}", advice=advice)

    def _fault_of(self, program: str, number: int) -> tuple[str, ...]:
        """Give the reason why the program cannot start, then advice."""
        match number:
            case errno.ENOENT:
                path = os.fsdecode(self.env.get(b"PATH", os.fsencode(os.defpath)))
                if "/" not in program and shutil.which(program, path=path) is None:
                    return "PATH has no such program", f"install {program}", "give its full path"
                if "/" in program and not os.path.exists(os.path.join(os.fsdecode(self.cwd), program)):
                    return ("there is no such file",)
                return ("the interpreter that its first line (#!) names does not exist",)
            case errno.EACCES:
                return "it is not executable for us", f"if it should be: chmod +x {program}"
            case errno.ENOEXEC:
                return "it is not a program for this system", "give a script a first line such as #!/bin/sh"
            case errno.E2BIG:
                return (
                    "its arguments and environment are too long",
                    "pass the long part through stdin or a file",
                )
            case _:
                return (os.strerror(number).lower(),)


LimitName = Literal["memory", "cpu", "processes", "pool"]


class MemoryPool(NamedTuple):
    """Memory that several commands may use together, such as all those of an execution."""

    name: str
    """Letters, digits and dashes: the kernel's cgroup of them is named after it."""
    memory: int
    """Bytes."""
    folder: str
    """Folder through which their keepers share their figures; made when it is needed."""


class ProcessLimits(msgspec.Struct, frozen=True):
    """Bounds of a whole process tree; None is no limit. A tree that passes one is killed at once, except a share."""

    memory: int | None = None
    """Bytes in memory, of all its processes together."""
    cpu: float | None = None
    """Seconds of computing, of the living and of those that have ended."""
    processes: int | None = None
    """Processes that live at the same time."""
    cpu_share: float | None = None
    """Processors that it has at any time, 0.5 is half of one. It is slowed down and never killed."""
    pool: MemoryPool | None = None
    """It is one of those that share this memory. The one that grows beyond it is killed."""

    def __post_init__(self) -> None:
        for name in ("memory", "cpu", "processes", "cpu_share"):
            bound = getattr(self, name)
            if bound is not None and not bound > 0:
                raise ValueError(f"a limit of {name} must be more than 0, not {bound!r}")

    def __bool__(self) -> bool:
        return any(one is not None for one in (self.memory, self.cpu, self.processes, self.cpu_share, self.pool))


class ResourcesUsed(msgspec.Struct, frozen=True):
    """Resources that a process tree has used by its end."""

    cpu: float
    """Seconds of computing, of all processes that were waited for."""
    memory: int
    """The most bytes that were in memory at one time."""
    scope: Literal["tree", "largest"]
    """Extent of `memory`: the whole tree, which is known where a limit was set, or its largest process."""
