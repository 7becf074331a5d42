"""Two system calls that Python does not offer yet.

`open_beneath` (openat2) resolves a whole path in one call that cannot leave a directory; `rename_new` (renameat2)
renames without ever replacing, `rename_exchange` lets two entries change places. All have an answer for kernels and
file systems without them, so nothing here is required: older Linux, macOS and strict seccomp filters work too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys

__all__ = ["open_beneath", "rename_exchange", "rename_new"]

_OPENAT2 = 437  # the same on every architecture: calls added since Linux 5.1 share their numbers
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}.get(platform.machine())

_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_NOREPLACE, _EXCHANGE = 1, 2

OPENAT2 = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
"""Try openat2 at all. Tests turn it off to hold the other way to the same promises."""


class _OpenHow(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(fd: int, path: str, flags: int) -> int | None:
    """Open `path` below the directory `fd`, through no link of any kind; None when that did not work.

    None also means "the kernel has no openat2": the caller then walks the path name by name, and finds
    the name that is wrong there.
    """
    if not OPENAT2:
        return None
    resolve = _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=resolve)
    opened = _libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(fd),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    return int(opened) if opened >= 0 else None


def rename_exchange(old: str, new: str, *, old_fd: int, new_fd: int) -> bool:
    """Let two entries change places in one step; False where the kernel or the file system cannot."""
    if sys.platform != "linux" or _RENAMEAT2 is None:
        return False
    number = _renameat2(old_fd, old, new_fd, new, _EXCHANGE)
    if number in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
        return False
    if number:
        raise OSError(number, os.strerror(number), old, None, new)
    return True


def _renameat2(old_fd: int, old: str, new_fd: int, new: str, flags: int) -> int:
    """The error number, 0 when it is done."""
    done = _libc.syscall(
        ctypes.c_long(_RENAMEAT2 or 0),
        ctypes.c_int(old_fd),
        ctypes.c_char_p(os.fsencode(old)),
        ctypes.c_int(new_fd),
        ctypes.c_char_p(os.fsencode(new)),
        ctypes.c_uint(flags),
    )
    return 0 if done == 0 else ctypes.get_errno()


def rename_new(old: str, new: str, *, old_fd: int, new_fd: int) -> None:
    """Rename, or raise FileExistsError when the new name is taken."""
    if sys.platform == "linux" and _RENAMEAT2 is not None:
        number = _renameat2(old_fd, old, new_fd, new, _NOREPLACE)
        if number == 0:
            return
        # Some network file systems do not know the flag (EINVAL), some kernels not the call.
        if number not in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
            raise OSError(number, os.strerror(number), old, None, new)
    try:
        os.stat(new, dir_fd=new_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
