"""Owner and mode: could another user have written this, or put something else in its place?

A file or folder is safe if it belongs to this user or to root and nobody else may write to it. A folder above it may
also be one that everybody writes to if it is sticky (`/tmp`): there nobody can rename or remove what is another's.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["entry_flaw", "folder_flaw", "parents_flaw", "state_flaw"]


def folder_flaw(path: Path, found: os.stat_result) -> str:
    """The reason why a folder cannot be believed; empty if it can."""
    return _owner_flaw(path, found) or _mode_flaw(path, found)


def state_flaw(path: Path) -> str:
    """The reason why an entry of a home cannot be believed; empty if it can, or is not there."""
    if flaw := entry_flaw(path):
        return flaw
    try:
        return _mode_flaw(path, os.lstat(path))
    except FileNotFoundError:
        return ""


def entry_flaw(path: Path) -> str:
    """The same without its mode, which its owner can set right."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(found.st_mode):
        return f"{path} is a link"
    if not stat.S_ISDIR(found.st_mode):
        if not stat.S_ISREG(found.st_mode):
            return f"{path} is not a regular file"
        if found.st_nlink > 1:
            return f"{path} is a hard link: the same file has another name elsewhere"
    return _owner_flaw(path, found)


def parents_flaw(path: Path) -> str:
    """The reason why the folders above a path, which is free of links, cannot be relied on; empty if they can."""
    for folder in path.parents:
        try:
            found = os.lstat(folder)
        except FileNotFoundError:
            continue  # it will be made, by us
        except OSError as error:
            return f"{folder} cannot be read: {error.strerror}"
        flaw = _owner_flaw(folder, found, parent=True)
        if not flaw and not (found.st_mode & stat.S_ISVTX):
            flaw = _mode_flaw(folder, found)
        if flaw:
            return flaw
    return ""


def _owner_flaw(path: Path, found: os.stat_result, *, parent: bool = False) -> str:
    if found.st_uid in (os.geteuid(), 0) or (parent and _is_unmapped(found.st_uid)):
        return ""
    return f"{path} belongs to another user (uid {found.st_uid})"


def _mode_flaw(path: Path, found: os.stat_result) -> str:
    if found.st_mode & stat.S_IWOTH:
        return f"{path} can be written by every user (mode {stat.S_IMODE(found.st_mode):04o})"
    if found.st_mode & stat.S_IWGRP and not _is_private_group(path, found):
        return f"{path} can be written by its group (mode {stat.S_IMODE(found.st_mode):04o}, gid {found.st_gid})"
    return ""


def _is_private_group(path: Path, found: os.stat_result) -> bool:
    """Tell whether the group has the owner as its only member: many systems give each user one, and a umask of 002."""
    import grp  # on few paths, and slow where users come from a network
    import pwd

    try:
        owner, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    only_owner = set(group.gr_mem) <= {owner.pw_name}
    return owner.pw_gid == found.st_gid and group.gr_name == owner.pw_name and only_owner and not _has_acl(path)


def _has_acl(path: Path) -> bool:
    """Tell whether more users than the mode names may have rights: with an ACL, the group's bits are their mask."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (AttributeError, OSError):  # neither on macOS, nor on every file system
        return False


def _is_unmapped(uid: int) -> bool:
    """Tell whether the uid means all that this user namespace does not know, root outside of it included."""
    try:
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
        first = Path("/proc/self/uid_map").read_text().split()
    except (OSError, ValueError):
        return False
    return uid == overflow and first[0] != "0"
