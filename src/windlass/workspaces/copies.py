"""Folders of their own for agents, without git: plain copies of the working directory (K4)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from windlass.errors import Category, ToolError
from windlass.faults import fault_point
from windlass.workspaces.worktrees import Worktree, place_of, prove_apart

__all__ = ["open_copy"]

MOST_COPIED, MOST_BYTES = 100_000, 2 * 1024**3


def open_copy(workdir: Path, execution: str, step: str, home: Path) -> Worktree:
    """Copy the working directory without `.git`, the home and the folder of copies; or find the copy again."""
    path = place_of(execution, step)
    if not path.exists():
        outside = {str(home), str(path.parent.parent)}
        _refuse_large(workdir, outside)

        def ignored(folder: str, names: list[str]) -> list[str]:
            return [name for name in names if name == ".git" or os.path.join(folder, name) in outside]

        making = path.with_name(f"{path.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        making.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fault_point("workspace.making")
        shutil.copytree(workdir, making, symlinks=True, ignore=ignored)
        fault_point("workspace.made")
        making.rename(path)
    prove_apart(path, workdir)
    return Worktree(path, path)


def _refuse_large(workdir: Path, left_out: set[str]) -> None:
    count = size = 0
    for folder, folders, files in os.walk(workdir):
        folders[:] = [name for name in folders if name != ".git" and os.path.join(folder, name) not in left_out]
        count += len(files)
        size += sum(os.lstat(os.path.join(folder, name)).st_size for name in files)
        if count > MOST_COPIED or size > MOST_BYTES:
            raise ToolError(
                f"{workdir} is too large to copy: over {MOST_COPIED:,} files or {MOST_BYTES >> 30} GiB",
                category=Category.RESOURCE,
                advice=("use `workspace: worktree` in a git repository",),
            )
