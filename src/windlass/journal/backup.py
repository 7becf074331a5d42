"""A whole home in one file (D9): a zip with a manifest, the databases, and the files that belong to them.

    manifest.json    {"format": "windlass.backup", "version": 1, …, "files": [{"name", "bytes", "sha256"}, …]}
    windlass.db      the journal, the ledger and the requests, as of one moment
    messages.db      the book of sent messages
    config.toml, agents/, skills/, composed-tools/, executions/, and if wanted artifacts/

The databases are copied by SQLite's own backup, in one step: executions go on meanwhile, and what was acknowledged
before is in the copy. The journal is copied last, so that no other file is of a later time. What can be made anew is
left out: automatic checkpoints, breakers, locks, the server's token, the proof of whose home it is.

The zip is written under another name, fsynced and renamed.

A backup that is restored may be damaged, or made by anybody: nothing in it is believed unread. Members are read one by
one, by the names that the manifest lists; nothing is unpacked by what the zip says. Names are checked against those
that a backup can have, sizes against the manifest and the free space, contents against their SHA-256. All of it goes
into a new folder beside the home, which is checked deeply, marked as the user's own, and only then takes the home's
place: a home is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windlass.clock import iso
from windlass.core.events import FORMAT
from windlass.errors import JournalError, UsageError, WindlassError
from windlass.homes import mark_home_as_ours
from windlass.journal.database import translate
from windlass.journal.deepcheck import DeepCheck, Fault, check_home
from windlass.journal.outbox import drop_unsent
from windlass.journal.schema import open_database
from windlass.regular import open_regular
from windlass.version import __version__

__all__ = [
    "MANIFEST",
    "NAME",
    "VERSION",
    "BadBackup",
    "RestoredHome",
    "WrittenBackup",
    "is_backup",
    "is_file_of_a_home",
    "restore_backup",
    "write_backup",
]

NAME = "windlass.backup"
VERSION = 1
MANIFEST = "manifest.json"
PIECE = 1024 * 1024
_FILES = ("config.toml", "messages.db", "windlass.db")
_FOLDERS = ("agents", "artifacts", "composed-tools", "executions", "skills")
_LEFT_OUT = re.compile(r"executions/[^/]+\.json|.*\.tmp|executions/[^/]+/driver\.log")


class WrittenBackup(NamedTuple):
    """A backup that is on disk."""

    path: Path
    size: int
    checked: DeepCheck
    """The findings of the deep check of the copy."""


def is_file_of_a_home(name: str) -> bool:
    """Tell whether a file of this name can be in a backup: a plain relative path into a part that belongs to it."""
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") for part in parts) and not re.search(r"[\x00-\x1f\\]", name)
    return plain and len(name) < 4096 and (name in _FILES or (len(parts) > 1 and parts[0] in _FOLDERS))


def write_backup(home: Path, path: Path, *, now: float, artifacts: bool = False, force: bool = False) -> WrittenBackup:
    """Write everything in a home into one file. Refuses to overwrite a file unless told to."""
    if not (home / "windlass.db").exists():
        raise UsageError(f"there is nothing to back up: {home} has no journal")
    if path.exists() and not force:
        raise UsageError(f"{path} already exists", advice=("choose another name, or overwrite it: --force",))
    if path.resolve().is_relative_to(home.resolve()):
        raise UsageError(f"{path} is inside the home to back up", advice=("choose another folder",))
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with tempfile.TemporaryDirectory(prefix=".windlass-backup-", dir=path.parent) as aside:
            checked = _write(home, draft, Path(aside), now, artifacts)
        os.replace(draft, path)
        _sync(path.parent)
    except OSError as error:
        raise JournalError(
            f"the backup {path} could not be written: {error.strerror}", advice=("choose another disk or folder",)
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return WrittenBackup(path, path.stat().st_size, checked)


def _write(home: Path, draft: Path, aside: Path, now: float, artifacts: bool) -> DeepCheck:
    files: list[dict[str, Any]] = []
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w+b") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name in _names(home, artifacts):
                files += _add(archive, name, home / name)
            if (home / "messages.db").exists():
                _copy_messages(home / "messages.db", aside / "messages.db")
                files += _add(archive, "messages.db", aside / "messages.db")
            _copy_journal(home / "windlass.db", aside / "windlass.db")
            checked = check_home(aside, artifacts=False)
            files += _add(archive, "windlass.db", aside / "windlass.db")
            manifest = {
                "format": NAME,
                "version": VERSION,
                "journal": FORMAT,
                "windlass": __version__,
                "created_at": iso(now),
                "executions": checked.executions,
                "events": checked.events,
                "artifacts": artifacts,
                "files": files,
            }
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        file.flush()
        os.fsync(file.fileno())
    return checked


def _names(home: Path, artifacts: bool) -> Iterator[str]:
    """Files of the home that are copied as they are; links are not followed."""
    if (home / "config.toml").is_file():
        yield "config.toml"
    for top in _FOLDERS:
        if top == "artifacts" and not artifacts:
            continue
        for folder, _folders, names in os.walk(home / top):
            for name in sorted(names):
                found = Path(folder, name)
                relative = found.relative_to(home).as_posix()
                if found.is_symlink() or not found.is_file() or _LEFT_OUT.fullmatch(relative):
                    continue
                if is_file_of_a_home(relative):
                    yield relative


def _add(archive: zipfile.ZipFile, name: str, path: Path) -> Iterator[dict[str, Any]]:
    """Put a file in, and give its line of the manifest. One that was removed meanwhile has none."""
    try:
        source = path.open("rb")
    except FileNotFoundError:
        return
    digest, size = hashlib.sha256(), 0
    with source, archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
        while piece := source.read(PIECE):
            digest.update(piece)
            size += len(piece)
            member.write(piece)
    yield {"name": name, "bytes": size, "sha256": digest.hexdigest()}


def _copy_journal(source: Path, target: Path) -> None:
    with translate(source), closing(open_database(source)) as db:
        _copy(db, target)
        with closing(sqlite3.connect(target)) as copy:
            drop_unsent(copy)


def _copy_messages(source: Path, target: Path) -> None:
    with translate(source), closing(sqlite3.connect(source, timeout=10.0)) as db:
        _copy(db, target)


def _copy(db: sqlite3.Connection, target: Path) -> None:
    """All pages in one step: it reads one moment of the database, and holds nobody up."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(sqlite3.connect(target)) as copy:
        db.backup(copy)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LARGEST_MANIFEST = 64 * 1024 * 1024
MOST_FILES = 1_000_000


class BadBackup(UsageError):
    """A backup that must not be believed."""


class RestoredHome(NamedTuple):
    """A home that was made from a backup."""

    home: Path
    checked: DeepCheck
    set_aside: Path | None
    """The new path of the folder that was in its place."""


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
    """Tell whether the file is a zip, by its first bytes: checkpoint files are not."""
    try:
        with open_regular(path) as file:
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
        raise BadBackup(f"{path} lacks files that its manifest lists")
    for name in listed:
        if not is_file_of_a_home(name):
            raise BadBackup(f"{path} contains a file that no backup has: {name!r}")
    if sum(member.bytes for member in manifest.files) > shutil.disk_usage(target).free:
        raise JournalError(f"the disk of {target.parent} has too little space for {path}", advice=("free some space",))
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
