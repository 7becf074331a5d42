"""Builds the dashboard into the package: `python scripts/build_dashboard.py`.

`make install` and the build of wheels and sdists (`hatch_build.py`) call it. An sdist carries what was built, not the
source: a wheel is made from it without npm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fetch_quickjs import CannotFetch, npm_command

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "dashboard"
TARGET = ROOT / "src" / "windlass" / "dashboard"


class CannotBuild(Exception):
    """The dashboard is not in its place; the text says why and what to do."""


def build() -> None:
    """Install what the lock names, build, and put the result in its place at once."""
    with tempfile.TemporaryDirectory(prefix="windlass-dashboard-") as folder:
        env = {**os.environ, "npm_config_update_notifier": "false"}
        env.pop("PYTHONPATH", None)  # a build in isolation hides with it the pip and the npm that this Python has
        npm = npm_command(Path(folder), env)
        if not _is_installed():
            # `npm ci` wants packages of every platform in the lock; some registries have not all of them.
            _run([*npm, "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], env)
        _run([*npm, "run", "--silent", "build"], env)
    shutil.rmtree(TARGET, ignore_errors=True)
    os.rename(SOURCE / "dist", TARGET)


def _is_current() -> bool:
    """Tell whether nothing of the source is newer than what was built from it."""
    made = TARGET / "index.html"
    sources = [SOURCE / "package-lock.json", SOURCE / "index.html", SOURCE / "vite.config.ts"]
    sources += [path for part in ("src", "public") for path in (SOURCE / part).rglob("*") if path.is_file()]
    return made.is_file() and made.stat().st_mtime >= max(path.stat().st_mtime for path in sources)


def _is_installed() -> bool:
    """Tell whether the packages of the lock are there, as npm notes it."""
    noted, lock = SOURCE / "node_modules" / ".package-lock.json", SOURCE / "package-lock.json"
    return noted.is_file() and noted.stat().st_mtime >= lock.stat().st_mtime


def _run(command: list[str], env: dict[str, str]) -> None:
    ended = subprocess.run(command, cwd=SOURCE, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise CannotBuild(
            f"{' '.join(command[:3])} failed:\n{(ended.stderr or ended.stdout).strip()}\n"
            "It needs Node.js 20.19 or newer and a registry: see `npm config get registry`, then try again."
        )


def main() -> None:
    if not SOURCE.is_dir() or _is_current():
        return
    try:
        build()
    except (CannotBuild, CannotFetch) as error:
        sys.exit(f"the dashboard was not built: {error}")


if __name__ == "__main__":
    main()
