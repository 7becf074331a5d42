"""Recording the files that an agent works on, beside `git status` and `git worktree add` of the same repository.

`python -m benchmarks.workspaces [FOLDER]` makes repositories of 5,000 and 50,000 files there and prints both. A disk
that others write to tells nothing about either: FOLDER may be in memory, such as /dev/shm.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

__all__ = ["FILES", "SnapshotCost", "snapshot_cost"]

FILES = 50_000
SMALL = 5_000
ROUNDS, WORKTREES = 9, 5


class SnapshotCost(NamedTuple):
    """Seconds: medians of rounds in turn; of worktrees the least, because each writes all files."""

    first: float
    warm: float
    """Two records, as around a step: before it, and after it with three changed files."""
    status: float
    """`git status` at the same two moments."""
    worktree: float
    """A worktree for an agent, proven apart and marked."""
    worktree_add: float
    """`git worktree add`."""


def git(folder: Path, *arguments: str) -> bytes:
    names = {f"GIT_{who}_{what}": "b@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **names}
    return subprocess.run(["git", *arguments], cwd=folder, env=env, capture_output=True, check=True).stdout


def make_repository(folder: Path, files: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(files):
        file = folder / f"d{number // 2500}" / f"e{number // 50 % 50}" / f"file{number}.txt"
        if number % 50 == 0:
            file.parent.mkdir(parents=True)
        file.write_text(f"the content of file {number}\n" * 20)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "-c", "core.fsync=none", "add", "-A")
    git(folder, "-c", "gc.auto=0", "commit", "-qm", "all")
    git(folder, "repack", "-adq")  # as a clone is


def timed(deed: Callable[[], object]) -> float:
    began = time.perf_counter()
    deed()
    return time.perf_counter() - began


def snapshot_cost(folder: Path, files: int = FILES) -> SnapshotCost:
    from windlass.workspaces.store import find_store

    folder = folder.resolve()
    repository, home = folder / "repository", folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    make_repository(repository, files)
    git(repository, "status")
    first = timed(lambda: find_store(repository, home).record())
    find_store(repository, home).record()
    ours, theirs = [], []

    def both(number: int, look: Callable[[], object]) -> float:
        before = timed(look)
        for name in ("d0/e0/file0.txt", "d0/e7/new.txt", "README"):
            (repository / name).write_text(f"changed in round {number}\n")
        return before + timed(look)

    for number in range(ROUNDS):
        theirs.append(both(2 * number, lambda: git(repository, "status", "--porcelain")))
        find_store(repository, home).record()
        ours.append(both(2 * number + 1, lambda: find_store(repository, home).record()))
    made = _worktrees(repository, folder / "data")
    return SnapshotCost(first, statistics.median(ours), statistics.median(theirs), *made)


def _worktrees(repository: Path, data: Path) -> tuple[float, float]:
    """The least times of the making of worktrees, ours and git's own in turn; each is removed before the next."""
    from windlass.workspaces.worktrees import open_worktree, remove_worktree

    shutil.rmtree(data, ignore_errors=True)
    os.environ["XDG_DATA_HOME"] = str(data)
    plain = data / "plain"
    times: dict[str, list[float]] = {"ours": [], "theirs": []}

    def make_plain(_: int) -> None:
        adding = ("worktree", "add", "-q", "-b", "plain", str(plain), "HEAD")
        times["theirs"].append(timed(lambda: git(repository, *adding)))
        git(repository, "worktree", "remove", "--force", str(plain))
        git(repository, "branch", "-D", "plain")

    def make_ours(number: int) -> None:
        times["ours"].append(timed(lambda: open_worktree(repository, f"bench-{number}", "work")))
        remove_worktree(open_worktree(repository, f"bench-{number}", "work"))

    for number in range(WORKTREES):
        for make in (make_plain, make_ours) if number % 2 else (make_ours, make_plain):
            make(number)
    return min(times["ours"]), min(times["theirs"])


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        for files in (SMALL, FILES):
            found = snapshot_cost(Path(folder) / str(files), files)
            print(
                f"{files:,} files: two records {found.warm:.2f} s, {found.warm / found.status:.2f}× git status; "
                f"a worktree {found.worktree:.2f} s, {found.worktree / found.worktree_add:.2f}× git worktree add"
            )


if __name__ == "__main__":
    main()
