"""Run git without surprises: no hooks, no configuration of the user or the system, no prompt, no shell, a time limit.

A lock that the caller holds goes with the command (`holding`): should this process be killed, the lock stays until the
command has ended, so that nobody works beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from windlass.errors import Category, ToolError

__all__ = ["GitFailed", "Repository", "escaped", "find_repository", "locked", "run_git", "user_ignores"]

TIMEOUT = 120.0
"""Seconds that one command may take."""

_PLAIN = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "core.fsyncMethod=batch",
    "core.quotePath=false",
    "advice.addEmbeddedRepo=false",
    "advice.detachedHead=false",
    "protocol.allow=never",
)


class GitFailed(ToolError):
    """A git command failed, could not be started, or took too long."""

    def __init__(self, message: str, stderr: str = "", code: int | None = None) -> None:
        super().__init__(message, category=Category.LOGIC)
        self.stderr, self.code = stderr, code


@lru_cache(maxsize=1)
def _program() -> str | None:
    return shutil.which("git")


def run_git(
    *arguments: str,
    cwd: Path,
    variables: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    good: Sequence[int] = (0,),
    timeout: float = TIMEOUT,
    holding: int | None = None,
) -> bytes:
    """The output of a git command. Raises `GitFailed` unless its exit code is one of `good`."""
    program = _program()
    if program is None:
        raise GitFailed("git is not installed")
    options = [word for setting in _PLAIN for word in ("-c", setting)]
    try:
        done = subprocess.run(
            [program, *options, *arguments],
            cwd=cwd,
            env=_environment(variables or {}),
            input=stdin if stdin is not None else b"",
            capture_output=True,
            check=False,
            timeout=timeout,
            pass_fds=() if holding is None else (holding,),
        )
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {arguments[0]} took longer than {timeout:g} s and was stopped") from error
    except (OSError, ValueError) as error:
        raise GitFailed(f"git {arguments[0]} cannot be started: {error}") from error
    if done.returncode not in good:
        said = done.stderr.decode("utf-8", "replace").strip()
        last = said.splitlines()[-1] if said else f"exit code {done.returncode}"
        raise GitFailed(f"git {arguments[0]} failed: {last}", said, done.returncode)
    return done.stdout


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        **variables,
    }


def user_ignores(cwd: Path) -> str:
    """The path of the file with patterns that the user ignores in all repositories; empty if there is none."""
    variables = {name: os.environ[name] for name in ("XDG_CONFIG_HOME",) if name in os.environ}
    theirs = Path(os.environ.get("GIT_CONFIG_GLOBAL") or Path.home() / ".gitconfig")
    found = b""
    if theirs.exists():
        asked = ("config", "--file", str(theirs), "--path", "core.excludesFile")
        found = run_git(*asked, cwd=cwd, variables=variables, good=(0, 1, 128)).strip()
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    usual = Path(base) / "git" / "ignore"
    return os.fsdecode(found) if found else str(usual) if usual.exists() else ""


def escaped(path: str) -> str:
    """A path as a pattern of `.gitignore` that means this path alone."""
    return re.sub(r"([\\*?\[\s])", r"\\\1", path)


@contextmanager
def locked(file: Path) -> Iterator[int]:
    """Hold a lock between processes; gives its descriptor."""
    import fcntl

    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Repository:
    """A checkout of a git repository."""

    top: Path
    """The folder of its files."""
    folder: Path
    """Its git folder; that of a linked worktree is its own."""
    common: Path
    """The git folder that all its worktrees share."""


def find_repository(start: Path) -> Repository | None:
    """The checkout that a folder is in; None if it is in none, or if git is not installed."""
    if _program() is None:
        return None
    for folder in (start, *start.parents):
        dot = folder / ".git"
        try:
            if dot.is_dir():
                return Repository(folder, dot, dot) if (dot / "HEAD").exists() else None
            if dot.is_file():
                return _linked(folder, dot)
        except (OSError, ValueError):
            return None
    return None


def _linked(top: Path, file: Path) -> Repository | None:
    """The checkout of a linked worktree or a submodule, whose `.git` is a file that names the folder."""
    named = file.read_text(encoding="utf-8", errors="surrogateescape").strip()
    if not named.startswith("gitdir:"):
        return None
    folder = (top / named.removeprefix("gitdir:").strip()).resolve()
    shared = folder / "commondir"
    text = shared.read_text(encoding="utf-8", errors="surrogateescape").strip() if shared.exists() else "."
    return Repository(top, folder, (folder / text).resolve()) if (folder / "HEAD").exists() else None
