"""The launcher of an isolated command: gives up rights that the command shall not have, and becomes the command.

    python -I -S confine.py '{"writable": ["/folder"], "network": false, …}' program argument …

Writing is refused by Landlock outside the folders that are named (null to allow it everywhere); the network, by a
network namespace that holds nothing but its own loopback. Both are kept by all that the command starts, and neither can
be taken back. Where the kernel does not give us one of them, bubblewrap does all of it, if it is installed
("bubblewrap": its path; "forced": even where we could do without). What cannot be had ends the launcher with code 125
and a line that begins with `CANNOT`, before anything of the command has run. Standard library alone; `isolation` writes
the command line.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys

__all__ = ["CANNOT", "EX_CANNOT", "landlock_version"]

EX_CANNOT = 125
CANNOT = "windlass: cannot isolate the command: "

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24
CAP_SYS_PTRACE, CAP_SYS_ADMIN = 19, 21
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
"""The same on all machines but Alpha."""
NEEDED = 3
"""The first version of Landlock that can refuse to truncate: one without would let files be emptied."""
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
CHANGES = WRITE_FILE | sum(1 << bit for bit in range(4, 15))
"""Write, remove, make of every kind, link and rename across folders, truncate."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")
"""Writing to these changes nothing that stays."""


class Beneath(ctypes.Structure):
    """`struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def landlock_version() -> int:
    """0 where there is none."""
    if sys.platform != "linux" or platform.machine() == "alpha":
        return 0
    return max(0, int(LIBC.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def main(given: str, *argv: str) -> None:
    import json

    options = json.loads(given)
    writable, network, bubblewrap = options["writable"], options["network"], options["bubblewrap"]
    command = list(argv)
    try:
        if not sys.platform.startswith("linux"):
            raise OSError(errno.ENOSYS, "that takes Linux")
        if bubblewrap and (options["forced"] or not is_offered(writable, network)):
            command = wrapped(bubblewrap, writable, network, command)
        else:
            if not network:
                leave_network()
            must(LIBC.prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))), "no_new_privs")
            if writable is not None:
                write_only_in(writable)
    except OSError as error:
        print(f"{CANNOT}{error.strerror}", file=sys.stderr)  # noqa: T201 - its only voice
        sys.exit(EX_CANNOT)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{argv[0]}: {os.strerror(error.errno or errno.EIO).lower()}", file=sys.stderr)  # noqa: T201 - the same
        sys.exit(127 if error.errno == errno.ENOENT else 126)  # as a shell has it


def is_offered(writable: list[str] | None, network: bool) -> bool:
    """Tell if the kernel gives us what is asked for. Another process tries to leave the network: half left is lost."""
    if writable is not None and landlock_version() < NEEDED:
        return False
    if network:
        return True
    pid = os.fork()
    if pid == 0:
        try:
            leave_network()
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def wrapped(bubblewrap: str, writable: list[str] | None, network: bool, argv: list[str]) -> list[str]:
    """The command under bubblewrap, which has been tried with these very options: its own errors look like a command's.

    The same folders are to be written to, and no others; a root in it may not mount them anew.
    """
    import shutil
    import subprocess

    wrapper = [bubblewrap, "--die-with-parent", "--chdir", os.getcwd()]
    if writable is None:
        wrapper += ["--dev-bind", "/", "/"]
    else:
        wrapper += ["--ro-bind", "/", "/", "--dev", "/dev", "--remount-ro", "/dev"]
        for folder in map(os.path.realpath, writable):
            wrapper += ["--bind", folder, folder]
    if not network:
        wrapper += ["--unshare-net"]
    wrapper += ["--cap-drop", "CAP_SYS_ADMIN", "--cap-drop", "CAP_SYS_PTRACE", "--"]
    tried = subprocess.run([*wrapper, "/bin/sh", "-c", ":"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if tried.returncode != 0:
        raise OSError(errno.EPERM, tried.stderr.decode(errors="replace").strip() or "bubblewrap failed")
    if shutil.which(argv[0]) is None:
        return argv  # to fail with the error that it has without a wrapper
    return [*wrapper, *argv]


def leave_network() -> None:
    """Enter a new network namespace; without root this needs a user namespace, with the same user in it."""
    import fcntl
    import socket
    import struct

    user, group = os.geteuid(), os.getegid()
    if LIBC.unshare(CLONE_NEWNET) != 0:
        must(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET), "a network namespace")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    for capability in (CAP_SYS_ADMIN, CAP_SYS_PTRACE):  # with which root could go back; others have none
        LIBC.prctl(PR_CAPBSET_DROP, *map(ctypes.c_ulong, (capability, 0, 0, 0)))


def write_only_in(folders: list[str]) -> None:
    if (version := landlock_version()) < NEEDED:
        raise OSError(errno.ENOSYS, f"it needs Landlock version {NEEDED} (Linux 6.2), and this is version {version}")
    handled = ctypes.c_uint64(CHANGES)
    ruleset = must(
        LIBC.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8), ctypes.c_uint32(0)),
        "Landlock",
    )
    for path, rights in [*((folder, CHANGES) for folder in folders), *((device, WRITE_FILE) for device in DEVICES)]:
        if rights == CHANGES or os.path.exists(path):
            allow(ruleset, path, rights if os.path.isdir(path) else rights & (WRITE_FILE | TRUNCATE))
    must(LIBC.syscall(LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "Landlock")
    os.close(ruleset)


def allow(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = ctypes.byref(Beneath(rights, fd))
        number = ctypes.c_long(LANDLOCK_ADD_RULE)
        must(LIBC.syscall(number, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0)), f"{path}")
    finally:
        os.close(fd)


def must(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number).lower()}")
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
