"""A whole home in one file (D9): a zip with a manifest, the databases, and the files that belong to them.

    manifest.json    {"format": "windlass.backup", "version": 1, …, "files": [{"name", "bytes", "sha256"}, …]}
    windlass.db      the journal, the ledger and the requests, as of one moment
    messages.db      the book of sent messages
    config.toml, agents/, skills/, composed-tools/, executions/, and if wanted artifacts/

The databases are copied by SQLite's own backup, in one step: executions go on meanwhile, and what was acknowledged
before is in the copy. The journal is copied last, so that no other file is of a later time. What can be made anew is
left out: automatic checkpoints, breakers, locks, the server's token, the proof of whose home it is.

The zip is written under another name, fsynced and renamed. `restore.py` reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from windlass.clock import iso
from windlass.core.events import FORMAT
from windlass.errors import JournalError, UsageError
from windlass.journal.database import translate
from windlass.journal.deepcheck import Checked, check_home
from windlass.journal.schema import open_database
from windlass.version import __version__

__all__ = ["MANIFEST", "NAME", "VERSION", "WrittenBackup", "is_file_of_a_home", "write_backup"]

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
    checked: Checked
    """What the deep check says about the copy."""


def is_file_of_a_home(name: str) -> bool:
    """Whether a file of this name can be part of a backup: a plain relative path into a part that belongs to it."""
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") for part in parts) and not re.search(r"[\x00-\x1f\\]", name)
    return plain and len(name) < 4096 and (name in _FILES or (len(parts) > 1 and parts[0] in _FOLDERS))


def write_backup(home: Path, path: Path, *, now: float, artifacts: bool = False, force: bool = False) -> WrittenBackup:
    """Write everything in a home into one file. Refuses to overwrite a file unless told to."""
    if not (home / "windlass.db").exists():
        raise UsageError(f"there is nothing to back up: {home} has no journal")
    if path.exists() and not force:
        raise UsageError(f"{path} is there already", advice=("choose another name, or overwrite it: --force",))
    if path.resolve().is_relative_to(home.resolve()):
        raise UsageError(f"{path} is inside the home that it is to be a backup of", advice=("choose another folder",))
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


def _write(home: Path, draft: Path, aside: Path, now: float, artifacts: bool) -> Checked:
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
