"""Git repositories of tests, and git as a user runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Project

__all__ = ["git", "repository"]


def git(folder: Path, *arguments: str) -> str:
    """Git as a user runs it, with a name and nothing else of the machine's settings."""
    names = {f"GIT_{who}_{what}": "t@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **names}
    done = subprocess.run(["git", *arguments], cwd=folder, env=env, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {arguments}: {done.stdout!r} {done.stderr!r}")
    return done.stdout.decode("utf-8", "replace")


def repository(project: Project, **files: str) -> Path:
    """The project as a repository with one commit."""
    git(project.path, "init", "-q", "-b", "main")
    for name, content in {"kept.txt": "kept\n", "old.txt": "old\n", **files}.items():
        project.file(name, content)
    project.file(".gitignore", "ignored/\n.windlass/\n.env\n")
    git(project.path, "add", "-A")
    git(project.path, "commit", "-qm", "first")
    return project.path
