"""Opens the homes that earlier releases left (tests/homes/stored) with a `windlass` command, and goes on with them.

Each is taken over, listed and read; a question that has expired is asked again and answered, what was killed goes on;
a new execution runs in it; and afterwards all of it can still be read. `make release` does so with the wheel that it
tries.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["STORED", "Command", "HomeLost", "try_home"]

STORED = sorted((Path(__file__).resolve().parent.parent / "tests/homes/stored").glob("v*.tar.gz"))
Command = Callable[..., str]
"""Runs `windlass` with these arguments in the folder of the project, and gives its output; raises if it ends with
another exit code than `code`, which is 0 unless told."""
LEFT = {"done": "completed", "failed": "failed", "asks": "paused", "killed": "running"}
"""The executions of a stored home, by the names of their plans."""
EFFECTS = ["pushed", "told", "slow", "after"]
"""The lines that their steps write when they go on; none is written twice."""


class HomeLost(Exception):
    """A stored home cannot be used any more; the text says why."""


def try_home(stored: Path, project: Path, windlass: Command) -> None:
    """Unpack a stored home into a project and use it."""
    with tarfile.open(stored) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        archive.extractall(project)
    (project / "go").touch()  # what the killed step waits for
    windlass("adopt", ".", "--yes")
    left = _listed(windlass)
    _expect(stored, {name: head["status"] for name, head in left.items()}, LEFT)
    before = {name: _read(windlass, head["id"]) for name, head in left.items()}
    asks, killed = left["asks"]["id"], left["killed"]["id"]
    _resume(windlass, asks, project, code=1)  # its question has expired, and counts as denied
    windlass("retry", asks, "push", "--yes", "--workdir", str(project), "--progress", "quiet")
    _resume(windlass, killed, project)
    (project / "new.yaml").write_text("name: new\nsteps: [{id: a, run: echo new}]\n", encoding="utf-8")
    windlass("run", "new.yaml", "--progress", "quiet")
    _expect(stored, (project / "effects").read_text(encoding="utf-8").split(), EFFECTS)
    ended = {name: head["status"] for name, head in _listed(windlass).items()}
    _expect(stored, ended, {**LEFT, "asks": "completed", "killed": "completed", "new": "completed"})
    for name in ("done", "failed"):
        _expect(stored, _read(windlass, left[name]["id"]), before[name])


def _resume(windlass: Command, execution: str, project: Path, code: int = 0) -> None:
    """Go on with it; yes: where a tool has changed since, its question is asked again."""
    words = ("resume", execution, "--yes", "--workdir", str(project), "--keep-plan", "--progress", "quiet")
    windlass(*words, code=code)


def _listed(windlass: Command) -> dict[str, dict[str, Any]]:
    return {head["plan"]: head for head in json.loads(windlass("list", "--json"))}


def _read(windlass: Command, execution: str) -> tuple[Any, int]:
    """The steps of an execution, and the number of lines in its log."""
    status = json.loads(windlass("status", execution, "--json"))
    return status["steps"], len(windlass("logs", execution, "--json").splitlines())


def _expect(stored: Path, found: object, wanted: object) -> None:
    if found != wanted:
        raise HomeLost(f"{stored.name}: {found}, not {wanted}")
