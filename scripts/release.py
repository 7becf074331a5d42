"""Builds a release into dist/ and tries it: `make release`.

dist/ has the wheel, the sdist, the man page, the SBOM and SHA256SUMS. Both packages are built a second time from the
contents of the sdist, in another folder, and have to be the same to the byte. The wheel is installed into an empty
environment of every Python that is found, runs the demo there and goes on with the homes of earlier releases. Nothing
is uploaded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import man_page
import sbom
from try_homes import STORED, HomeLost, try_home

from windlass.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
MAN_PAGE = ROOT / "docs" / "windlass.1"
"""Where the build finds it; git ignores it."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


class CannotRelease(Exception):
    """There is no release; the text says why."""


def commit_time() -> int:
    """The time that everything in a release bears."""
    if _output("git", "status", "--porcelain"):
        raise CannotRelease("there are uncommitted changes: commit or stash them first")
    if f"## [{__version__}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise CannotRelease(f"CHANGELOG.md has no section [{__version__}]: name it, or set src/windlass/version.py")
    return int(_output("git", "log", "-1", "--format=%ct"))


def build(source: Path, target: Path, epoch: int) -> dict[str, str]:
    """Build wheel and sdist of `source`; returns their hashes by name."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=source, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}, check=True)
    return {file.name: _sha256(file) for file in sorted(target.iterdir())}


def build_again(sdist: Path, epoch: int) -> dict[str, str]:
    """Build both from the contents of an sdist, in a folder of another name."""
    with tempfile.TemporaryDirectory(prefix="windlass-again-") as folder:
        with tarfile.open(sdist) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
            archive.extractall(folder)
        (source,) = Path(folder).iterdir()
        return build(source, Path(folder) / "dist", epoch)


def pythons(named: list[str]) -> Iterator[str]:
    """Those named, and those of the supported versions on the PATH that start."""
    for python in [*named, *(f"python{version}" for version in PYTHONS)]:
        found = shutil.which(python)
        started = found and subprocess.run([found, "-c", "import venv"], capture_output=True, check=False)
        if found and started and started.returncode == 0:
            yield found
        else:
            _say(f"not tried: {python} is not here")


def try_wheel(python: str, wheel: Path) -> str:
    """Install the wheel into an empty environment and run the demo in it; returns a line about it."""
    with tempfile.TemporaryDirectory(prefix="windlass-try-") as folder:
        place, home, began = Path(folder, "env"), Path(folder, "home"), time.monotonic()
        subprocess.run([python, "-m", "venv", str(place)], check=True)
        before = _size(place)
        pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
        subprocess.run([*pip, str(wheel)], check=True)
        env = {"PATH": f"{place / 'bin'}:/usr/bin:/bin", "HOME": folder}
        demo = [str(place / "bin" / "windlass"), "demo", "--json", "--progress", "quiet", "--home", str(home)]
        ran = subprocess.run(demo, env=env, cwd=folder, capture_output=True, text=True, check=False)
        if ran.returncode or json.loads(ran.stdout)["status"] != "completed":
            raise CannotRelease(f"the demo fails on {python}:\n{ran.stdout}\n{ran.stderr}")
        for stored in STORED:
            _open_home(stored, place / "bin" / "windlass", env)
        if not (place / "share" / "man" / "man1" / "windlass.1").is_file():
            raise CannotRelease("the wheel brings no man page")
        added, seconds = (_size(place) - before) / 1e6, time.monotonic() - began
        version = _output(python, "--version")
        done = f"the demo completed, {len(STORED)} homes of earlier releases went on"
        return f"{version}: {done}; {added:.0f} MB installed, {seconds:.0f} s in all"


def _open_home(stored: Path, program: Path, env: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="windlass-home-") as folder:

        def windlass(*arguments: str, code: int = 0) -> str:
            command = [str(program), *arguments]
            ran = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
            if ran.returncode != code:
                raise CannotRelease(
                    f"{stored.name}: {' '.join(command)} ends with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}"
                )
            return ran.stdout

        try_home(stored, Path(folder), windlass)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def release(named: list[str], tried: bool) -> None:
    epoch = commit_time()
    made = datetime.fromtimestamp(epoch, UTC)
    shutil.rmtree(DIST, ignore_errors=True)
    MAN_PAGE.write_text(man_page.page(made), encoding="utf-8")
    try:
        hashes = build(ROOT, DIST, epoch)
        (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
        again = build_again(sdist, epoch)
        if again != hashes:
            raise CannotRelease(f"a second build differs: {hashes} and {again}")
        _say("built twice, the same to the byte")
        shutil.copy(MAN_PAGE, DIST)
    finally:
        MAN_PAGE.unlink()
    document = json.dumps(sbom.document(__version__, made), indent=1)
    (DIST / f"windlass-{__version__}.cdx.json").write_text(document + "\n", encoding="utf-8")
    for python in pythons(named) if tried else ():
        _say(try_wheel(python, wheel))
    sums = "".join(f"{_sha256(file)}  {file.name}\n" for file in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")
    _say(sums + f"the release is in {DIST}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-try", action="store_true", help="do not install the wheel anywhere")
    parser.add_argument("--python", action="append", default=[], metavar="FILE", help="try it on this one, too")
    given = parser.parse_args()
    try:
        release(given.python, tried=not given.no_try)
    except (CannotRelease, HomeLost) as error:
        sys.exit(f"no release: {error}")


if __name__ == "__main__":
    main()
