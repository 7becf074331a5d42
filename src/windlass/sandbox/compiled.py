"""QuickJS compiled for this processor: a second of work, done once and kept in a folder of the user's own.

The cached file is machine code that a worker runs, so it is used only if nobody else could have written it: the file
and its folder must belong to this user and to nobody else's group. Its name says what it was made from.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
from importlib.metadata import version
from pathlib import Path

import wasmtime

from windlass.sandbox import quickjs
from windlass.sandbox.machine import configured

__all__ = ["load"]


def load(cache: Path) -> tuple[wasmtime.Engine, wasmtime.Module]:
    """Load the module from `cache`; if it is not there, compile it and save it there."""
    engine = configured()
    file = cache / f"quickjs-{_made_from()}.cwasm"
    if _ours(cache) and _ours(file):
        try:
            return engine, wasmtime.Module.deserialize(engine, file.read_bytes())
        except wasmtime.WasmtimeError:
            file.unlink(missing_ok=True)  # of another processor, or damaged: it is made anew
    module = wasmtime.Module(engine, quickjs.path().read_bytes())
    _keep(file, bytes(module.serialize()))
    return engine, module


def _made_from() -> str:
    told = f"{quickjs.SHA256} {version('wasmtime')} {platform.machine()}"
    settings = Path(__file__).with_name("machine.py").read_bytes()  # what it is compiled with stands there
    return hashlib.sha256(told.encode() + settings).hexdigest()[:16]


def _ours(path: Path) -> bool:
    try:
        seen = path.lstat()
    except OSError:
        return False
    return seen.st_uid == os.geteuid() and not seen.st_mode & 0o022 and not stat.S_ISLNK(seen.st_mode)


def _keep(file: Path, content: bytes) -> None:
    """Write the cached file. A folder that cannot be written is no error: it costs a second each time."""
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
            out.write(content)
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
