"""Makes a home from a backup (D9). The file may be damaged, or made by anybody: nothing in it is believed unread.

Members are read one by one, by the names that the manifest lists; nothing is unpacked by what the zip says. Names are
checked against those that a backup can have, sizes against the manifest and the free space, contents against their
SHA-256. All of it goes into a new folder beside the home, which is checked deeply, marked as the user's own, and only
then takes the home's place: a home is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windlass.core.events import FORMAT
from windlass.errors import JournalError, UsageError, WindlassError
from windlass.homes import mark_home_as_ours
from windlass.journal.backup import MANIFEST, NAME, PIECE, VERSION, is_file_of_a_home
from windlass.journal.deepcheck import Checked, Fault, check_home

__all__ = ["BadBackup", "RestoredHome", "is_backup", "restore_backup"]

LARGEST_MANIFEST = 64 * 1024 * 1024
MOST_FILES = 1_000_000


class BadBackup(UsageError):
    """A backup that must not be believed."""


class RestoredHome(NamedTuple):
    """A home that was made from a backup."""

    home: Path
    checked: Checked
    set_aside: Path | None
    """Where the folder is now that was in its place."""


class _Member(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    sha256: str


class _Manifest(msgspec.Struct, frozen=True):
    format: str
    version: int
    journal: int
    files: list[_Member]


def is_backup(path: Path) -> bool:
    """Whether the file is a zip, by its first bytes: checkpoint files are not."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def restore_backup(path: Path, home: Path) -> RestoredHome:
    """Make the home, or raise and leave everything as it was. A home with executions is never replaced."""
    _refuse_used(home)
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".windlass-restore-", dir=home.parent))
    try:
        try:
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, path, made)
        except WindlassError:
            raise
        except OSError as error:
            raise JournalError(f"{path} could not be restored: {error.strerror}") from error
        except Exception as error:  # what a damaged zip is, zipfile says in a dozen ways
            raise BadBackup(f"{path} is damaged: {type(error).__name__}: {error}") from error
        checked = check_home(made, artifacts=False)
        grave = [fault for fault in checked.faults if fault.where in ("database", "log")]
        if grave:
            raise BadBackup(f"the database in {path} is damaged: {_told(grave[0])}")
        mark_home_as_ours(made)
        _sync_all(made)
        set_aside = _take_place(made, home)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return RestoredHome(home, checked, set_aside)


def _refuse_used(home: Path) -> None:
    database = home / "windlass.db"
    if not database.exists():
        return
    try:
        db = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
        try:
            (count,) = db.execute("SELECT count(*) FROM executions").fetchone()
        finally:
            db.close()
    except sqlite3.Error:
        count = None  # damaged, or not ours: not to be replaced either
    if count != 0:
        held = "a journal that cannot be read" if count is None else f"{count} executions"
        raise UsageError(
            f"the home {home} has {held}; a backup is restored into a new home only",
            advice=("restore it elsewhere: windlass --home DIR restore FILE", f"or move {home} away first"),
        )


def _unpack(archive: zipfile.ZipFile, path: Path, target: Path) -> None:
    infos = archive.infolist()
    if len(infos) > MOST_FILES:
        raise BadBackup(f"{path} has more files than a backup may have ({MOST_FILES})")
    manifest = _manifest(archive, path)
    listed = {member.name: member for member in manifest.files}
    held = [info.filename for info in infos if info.filename != MANIFEST]
    if len(listed) != len(manifest.files) or sorted(held) != sorted(listed) or "windlass.db" not in listed:
        raise BadBackup(f"{path} does not hold the files that its manifest lists")
    for name in listed:
        if not is_file_of_a_home(name):
            raise BadBackup(f"{path} holds a file that no backup has: {name!r}")
    if sum(member.bytes for member in manifest.files) > shutil.disk_usage(target).free:
        raise JournalError(
            f"the disk of {target.parent} has no room for what is in {path}", advice=("free some space",)
        )
    for member in manifest.files:
        _write_member(archive, path, member, target)


def _manifest(archive: zipfile.ZipFile, path: Path) -> _Manifest:
    try:
        with archive.open(MANIFEST) as file:
            raw = file.read(LARGEST_MANIFEST + 1)
        found: Any = json.loads(raw) if len(raw) <= LARGEST_MANIFEST else None
    except (KeyError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("format") != NAME:
        raise BadBackup(f"{path} is not a backup of Windlass")
    for key, newest in (("version", VERSION), ("journal", FORMAT)):
        if not isinstance(found.get(key), int) or found[key] > newest:
            raise BadBackup(
                f"{path} was written by a newer Windlass ({key} {found.get(key)}, this one reads {newest})",
                advice=("upgrade: pip install --upgrade windlass",),
            )
    return msgspec.convert(found, _Manifest)


def _write_member(archive: zipfile.ZipFile, path: Path, member: _Member, target: Path) -> None:
    file = target / member.name
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), member.bytes
    descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as out, archive.open(member.name) as source:
        while piece := source.read(min(PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                break
            digest.update(piece)
            out.write(piece)
    if left != 0 or digest.hexdigest() != member.sha256:
        raise BadBackup(f"{path} is damaged: {member.name} in it does not match its checksum")


def _take_place(made: Path, home: Path) -> Path | None:
    """Put the new home where the old one was; one without executions is set aside, and never removed."""
    set_aside = None
    if home.exists():
        set_aside = Path(tempfile.mkdtemp(prefix=f"{home.name}.before-restore-", dir=home.parent))
        home.rename(set_aside)
    made.rename(home)
    descriptor = os.open(home.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return set_aside


def _sync_all(folder: Path) -> None:
    for root, _folders, names in os.walk(folder):
        for path in (root, *(os.path.join(root, name) for name in names)):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _told(fault: Fault) -> str:
    return fault.reason if fault.seq is None else f"event {fault.seq}: {fault.reason}"
