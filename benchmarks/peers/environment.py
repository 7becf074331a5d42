"""Installs the peers: `python environment.py FOLDER`. Run by hand or by the benchmark.

The peers have an environment of their own so that their dependencies neither hinder ours nor reach our users.
Their versions stand in requirements.txt (Python) and package.json (the Restate server's binary), names and
versions only: where they come from is the caller's pip, uv and npm configuration.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["InstallError", "prepare", "python_of"]

_HERE = Path(__file__).resolve().parent


class InstallError(Exception):
    """A part of the environment could not be installed; the text holds the installer's last words."""


def python_of(folder: Path) -> Path:
    """The peers' interpreter. Not resolved: following the link would lead out of the environment."""
    return folder.absolute() / "bin" / "python"


def prepare(folder: Path) -> list[str]:
    """Install what is missing or outdated and return why what could not be had could not.

    A stamp with the hash of the pins makes a second call free. It is written last, so that an interrupted
    installation is done again. The two halves are separate because most peers need no npm.
    """
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for pins, install in (("requirements.txt", _install_python), ("package.json", _install_npm)):
        try:
            _once(folder / f"{pins}.sha256", _HERE / pins, folder, install)
        except InstallError as error:
            reasons.append(f"{pins}: {error}")
    return reasons


def _once(stamp: Path, pins: Path, folder: Path, install: Callable[[Path, Path], None]) -> None:
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    install(pins, folder)
    stamp.write_text(digest)


def _install_python(pins: Path, folder: Path) -> None:
    uv, python = shutil.which("uv"), str(python_of(folder))
    _run([sys.executable, "-m", "venv", *(["--without-pip"] if uv else []), str(folder)])
    if uv:
        _run([uv, "pip", "install", "--quiet", "--python", python, "--requirement", str(pins)])
    else:
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        _run([*pip, "install", "--quiet", "--requirement", str(pins)])


def _install_npm(pins: Path, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("npm is not on the path; Restate's server comes as an npm package")
    shutil.copy(pins, folder / pins.name)
    cache = folder / ".npm"  # npm's default is the home directory, which is the user's
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier"]
    _run([npm, "install", *quiet, "--prefix", str(folder), "--cache", str(cache)])
    shutil.rmtree(cache, ignore_errors=True)
    # The platforms are optional dependencies, and npm is content when none fits.
    if not list(folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server")):
        raise InstallError("npm found no Restate server for this platform")


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        last_words = (ended.stderr or ended.stdout).strip()[-800:]
        raise InstallError(f"{command[0]} ended with {ended.returncode}: {last_words}")


def _main() -> int:
    parser = argparse.ArgumentParser(description="Install the peers of the benchmarks.")
    parser.add_argument("folder", type=Path, help="where the environment goes; made if it is not there")
    folder = parser.parse_args().folder
    reasons = prepare(folder)
    for reason in reasons:
        print(reason, file=sys.stderr)
    print(python_of(folder))
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(_main())
