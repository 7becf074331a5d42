"""The user's key: 32 random bytes in the user's own folder, readable by nobody else. It proves who made a home.

It is made once, when the first home is made. Two processes that make it at once end up with the same one.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from windlass.errors import NotPermitted
from windlass.homes.safety import folder_flaw

__all__ = ["make_key", "read_key", "write_whole"]

_KEY = re.compile(rb"[0-9a-f]{64}\n?")


def read_key(folder: Path) -> bytes | None:
    """The key; None if there is none. Raises if it is no secret, or damaged."""
    file = folder / "home.key"
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NotPermitted(
            f"the key of your homes, {file}, cannot be read: {error.strerror}", advice=(f"look at it: ls -l {file}",)
        ) from error
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        text = opened.read(100) if stat.S_ISREG(found.st_mode) else b""
    if found.st_uid != os.geteuid():
        flaw = f"belongs to another user (uid {found.st_uid})"
    elif found.st_mode & 0o077:
        flaw = f"can be used by other users (mode {stat.S_IMODE(found.st_mode):04o}), so it proves nothing any more"
    elif _KEY.fullmatch(text) is None:
        flaw = "holds no key"
    elif reason := folder_flaw(folder, os.stat(folder)):
        raise NotPermitted(
            f"the key of your homes proves nothing: {reason}", advice=(f"correct it: chmod 700 {folder}",)
        )
    else:
        return bytes.fromhex(text.decode())
    raise NotPermitted(
        f"the key of your homes, {file}, {flaw}",
        advice=(f"put the right one back, or remove it (rm {file}) and adopt each home anew: windlass adopt DIR",),
    )


def make_key(folder: Path) -> bytes:
    """The key, made if there is none."""
    if (key := read_key(folder)) is not None:
        return key
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / "home.key", secrets.token_hex(32) + "\n")
    except OSError as error:
        raise NotPermitted(
            f"the key of your homes cannot be made in {folder}: {error.strerror}",
            advice=("name a folder that you can write to: export XDG_CONFIG_HOME=DIR",),
        ) from error
    key = read_key(folder)
    assert key is not None, "it was there a moment ago"
    return key


def write_whole(file: Path, text: str, *, replace: bool = False) -> None:
    """Write a file whole, durably and readable by its user alone. Without `replace`, one that is there stays."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(descriptor)
        if replace:
            draft.replace(file)
        else:
            with suppress(FileExistsError):  # another process was faster, and its file is as good
                os.link(draft, file)  # unlike a rename, it never takes the place of one that is there
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
