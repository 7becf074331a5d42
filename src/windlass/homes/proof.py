"""The proof that its user made a home: a random id in `home.json` and in the database, signed with the user's key.

The id in the database ties the two together: a database that was put beside a proof from elsewhere has another id, or
none. Nobody can make a proof without the key. Who can read a whole home of a user, its database included, can copy it;
the copy is then believed as the home is.

The key is 32 random bytes in the user's own folder, readable by nobody else. It is made once, when the first home is
made. Two processes that make it at once end up with the same one.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import sqlite3
import stat
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from windlass.errors import NotPermitted
from windlass.homes.names import DATABASE, HARMLESS, HOME_FILE, not_saved, user_folder
from windlass.homes.safety import folder_flaw
from windlass.regular import read_beginning

__all__ = [
    "check_database",
    "home_id",
    "is_in_home",
    "mark_home_as_ours",
    "mark_new_home",
    "read_key",
    "read_proof",
    "write_home_id",
]

_ID = re.compile(r"[0-9a-f]{32}")
_LARGEST = 4096


class HomeProof(NamedTuple):
    """The content of a home's `home.json`."""

    id: str
    signature: str

    @classmethod
    def new(cls, key: bytes) -> HomeProof:
        home = os.urandom(16).hex()
        return cls(home, _signature(home, key))

    def holds(self, key: bytes) -> bool:
        return hmac.compare_digest(self.signature.encode(), _signature(self.id, key).encode())

    @property
    def text(self) -> str:
        return json.dumps({"id": self.id, "proof": self.signature}) + "\n"


def read_proof(home: Path) -> HomeProof | None:
    """The proof in a home, which may be anybody's; None if there is none. Raises ValueError if it is damaged."""
    try:
        descriptor = os.open(home / HOME_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"{HOME_FILE} cannot be read: {error.strerror}") from error
    found, text = read_beginning(descriptor, _LARGEST)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{HOME_FILE} is not a regular file")
    try:
        told = json.loads(text)
        proof = HomeProof(told["id"], told["proof"])
        if not _ID.fullmatch(proof.id) or not isinstance(proof.signature, str) or not proof.signature.isascii():
            raise ValueError("not an id and its proof")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{HOME_FILE} is damaged") from error
    return proof


def home_id(home: Path) -> str | None:
    """The id of a home; None if the folder is none, as in a test of the journal alone."""
    try:
        proof = read_proof(home)
    except ValueError as error:
        raise NotPermitted(f"the home {home} is not used: {error}") from error
    return None if proof is None else proof.id


def is_in_home(folder: Path) -> bool:
    """Tell whether a folder is a home of any name, or in one; folders in it that a repository shares do not count."""
    for above in (folder, *folder.parents):
        try:
            proof = read_proof(above)
        except ValueError:
            continue  # some other program's file of that name
        if proof is not None:
            return folder == above or folder.relative_to(above).parts[0] not in HARMLESS
    return False


def mark_home_as_ours(home: Path, env: Mapping[str, str] = os.environ) -> None:
    """Make a home the user's own from now on, whatever is in it: everything in it will be believed.

    For a command that puts a home together from files that its user has chosen, such as a backup: call it when all
    files are in their place and no connection to the database is open, before the home is opened. The home gets a
    new id, which is written into its database and, last, with its proof into `home.json`; killed in between, the home
    is refused until this, or `windlass adopt`, is done again. A home that is moved or copied whole needs no call.
    """
    proof = HomeProof.new(make_key(user_folder(env)))
    if (home / DATABASE).exists():
        with closing(sqlite3.connect(home / DATABASE, timeout=10.0, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            write_home_id(db, proof.id)
            db.execute("COMMIT")
    write_whole(home / HOME_FILE, proof.text, replace=True)


def mark_new_home(home: Path, env: Mapping[str, str] = os.environ) -> None:
    """Give a home that has nothing in it yet its id and proof. Another process may do the same at this moment."""
    write_whole(home / HOME_FILE, HomeProof.new(make_key(user_folder(env))).text)


def write_home_id(db: sqlite3.Connection, home: str) -> None:
    """Write a home's id into its database, in the caller's transaction."""
    db.execute("CREATE TABLE IF NOT EXISTS home (id TEXT NOT NULL)")
    db.execute("DELETE FROM home")
    db.execute("INSERT INTO home (id) VALUES (?)", (home,))


def check_database(db: sqlite3.Connection, path: Path, home: str) -> None:
    """Raise unless the database was made in the home of that id."""
    try:
        ids = [row[0] for row in db.execute("SELECT id FROM home LIMIT 2")]
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        ids = []
    if ids != [home]:
        raise NotPermitted(
            f"{path} was not created in this home: it has {'the id of another one' if ids else 'no id of a home'}",
            advice=(f"review and adopt it: windlass adopt {path.parent}",),
        )


def _signature(home: str, key: bytes) -> str:
    return hmac.digest(key, f"windlass home {home}".encode(), "sha256").hex()


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
            f"the key of your homes, {file}, cannot be read: {error.strerror}", advice=(f"inspect it: ls -l {file}",)
        ) from error
    found, text = read_beginning(descriptor, _LARGEST)
    if found.st_uid != os.geteuid():
        flaw = f"belongs to another user (uid {found.st_uid})"
    elif found.st_mode & 0o077:
        flaw = f"can be used by other users (mode {stat.S_IMODE(found.st_mode):04o}), so it can no longer be trusted"
    elif _KEY.fullmatch(text) is None:
        flaw = "contains no key"
    elif reason := folder_flaw(folder, os.stat(folder)):
        raise NotPermitted(
            f"the key of your homes cannot be trusted: {reason}", advice=(f"fix it: chmod 700 {folder}",)
        )
    else:
        return bytes.fromhex(text.decode())
    raise NotPermitted(
        f"the key of your homes, {file}, {flaw}",
        advice=(
            f"restore the key from a backup, or remove it (rm {file}) and adopt each home again: windlass adopt DIR",
        ),
    )


def make_key(folder: Path) -> bytes:
    """The key, made if there is none."""
    if (key := read_key(folder)) is not None:
        return key
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / "home.key", os.urandom(32).hex() + "\n")
    except OSError as error:
        raise not_saved("the key of your homes cannot be created in", folder, error) from error
    key = read_key(folder)
    assert key is not None, "it was removed a moment ago"
    return key


def write_whole(file: Path, text: str, *, replace: bool = False) -> None:
    """Write a file whole, durably and readable by its user alone. Without `replace`, one that is there stays."""
    draft = file.with_name(f".{file.name}.{os.urandom(8).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
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
