"""A project with a git root and a user of its own, to put roles, skills, rules and files into."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from windlass.agents import Briefing
from windlass.agents.catalogue import Catalogue


class Tree:
    def __init__(self, base: Path) -> None:
        self.root = base / "project"
        self.user = base / "user"
        self.outside = base / "outside"
        for folder in (self.root / ".git", self.user, self.outside):
            folder.mkdir(parents=True)
        self.env = {"HOME": str(self.user)}

    def file(self, name: str, text: str | bytes) -> Path:
        """A file of the project."""
        return self._write(self.root / name, text)

    def home(self, name: str, text: str | bytes) -> Path:
        """A file of the user's home."""
        return self._write(self.user / name, text)

    def secret(self, name: str = "secret.md", text: str = "the user's own key") -> Path:
        """A file that lies outside the project."""
        return self._write(self.outside / name, text)

    def role(self, name: str, text: str = "Be good.", folder: str = ".claude/agents", **keys: str) -> Path:
        lines = "".join(f"{key}: {value}\n" for key, value in {"name": name, **keys}.items())
        return self.file(f"{folder}/{name}.md", f"---\n{lines}---\n{text}\n")

    def skill(self, name: str, text: str = "Do it so.", folder: str = ".claude/skills") -> Path:
        head = f"---\nname: {name}\ndescription: How {name} is done\n---\n"
        return self.file(f"{folder}/{name}/SKILL.md", f"{head}{text}\n")

    def catalogue(self, workdir: str = "") -> Catalogue:
        return Catalogue(self.root / workdir, self.env)

    @property
    def briefing(self) -> Briefing:
        return Briefing(self.env)

    @staticmethod
    def _write(path: Path, text: str | bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).lstrip("\n").encode())
        return path


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)
