"""Worktrees as files, for other machines: a git bundle of the branch and of the work that is not committed (J2, K4).

A bundle has one commit, which belongs to no branch: its files are those of the worktree, its parents the commit that is
checked out and the tip of the branch, and its message says which is which. So one file has all of it, and is there or
not. It builds on the commit that the worktree began at, which every machine's repository has. Ignored files are not in
it, nor are files that were brought along: these come from the checkout of the next machine.

The mark of a worktree names the bundle that was last written from it, or that it was made from. A bundle of another
name is newer: another machine has worked since, or the making of the worktree was cut off.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from windlass.errors import Category, ToolError
from windlass.faults import fault_point
from windlass.workspaces.git import GitFailed, Repository, locked
from windlass.workspaces.worktrees import (
    Worktree,
    admin_of,
    bring_files,
    git_at,
    git_in,
    is_whole,
    lock_of,
    lock_words,
    read_mark,
    remove_unmarked,
    repository_of,
    stage_work,
    tip_of,
    worktree_of,
    write_mark,
)

__all__ = ["bring_branch", "bring_worktree", "bundle_of", "has_worked_in", "note_attempt", "write_bundle"]

_HEADS = re.compile(rb"^([0-9a-f]{40,64}) ", re.MULTILINE)
MOST_HEADER = 64 * 1024


def bundle_of(scratch: Path) -> Path:
    """The bundle of a step's worktree, in the step's own folder."""
    return scratch / "worktree.bundle"


def write_bundle(worktree: Worktree, file: Path) -> None:
    """Write the worktree as it is into the file, in place of what is there. Raises `ToolError`."""
    repository = repository_of(Path(worktree.repository))
    admin = admin_of(repository, worktree.path)
    if (admin / "MERGE_HEAD").exists():
        raise ToolError("a merge in it is not ended")
    name = f"refs/windlass/{worktree.branch.removeprefix('windlass/')}"
    with locked(lock_of(repository)) as lock:
        index = admin / "windlass-index"
        shutil.copyfile(admin / "index", index)
        stage_work(repository, worktree, lock, index)
        tree = git_in(worktree, "write-tree", lock=lock, index=index).decode().strip()
        head = git_in(worktree, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
        at = git_in(worktree, "symbolic-ref", "--quiet", "HEAD", good=(0, 1)).decode("utf-8", "surrogateescape").strip()
        tip = tip_of(repository, worktree.branch)
        on_branch = at == f"refs/heads/{worktree.branch}"
        said = json.dumps({"base": worktree.base, "head": head, "tip": tip, "on_branch": on_branch})
        parents = [word for commit in dict.fromkeys((head, tip)) if commit for word in ("-p", commit)]
        commit = git_in(worktree, "commit-tree", tree, *parents, "-m", said, lock=lock).decode().strip()
        git_in(worktree, "update-ref", name, commit, lock=lock)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_suffix(".new")
        git_in(worktree, "bundle", "create", "--quiet", str(draft), name, f"^{worktree.base}", lock=lock)
        git_in(worktree, "update-ref", "-d", name, lock=lock)
        fault_point("workspace.bundled")
        draft.replace(file)
        write_mark(repository, worktree.path, {**read_mark(repository, worktree.path), "bundle": commit})


def bring_worktree(workdir: Path, execution: str, step: str, file: Path, files: Sequence[str]) -> bool:
    """Have the worktree as the bundle has it, unless it is that one, or has gone on from it here; True if it was made.

    May be done again: until the worktree is marked, it is made anew. `files` are patterns of files to bring along.
    """
    repository = repository_of(workdir)
    wanted, commit = worktree_of(repository, execution, step, workdir), _commit_of(file)
    with locked(lock_of(repository)) as lock:
        if is_whole(repository, wanted.path) and read_mark(repository, wanted.path).get("bundle") == commit:
            return False
        _unbundle(repository, file, lock)
        said = json.loads(git_at(repository, "show", "--no-patch", "--format=%B", commit))
        _forget_elsewhere(repository, wanted)
        remove_unmarked(repository, wanted.path)
        wanted.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if said["tip"]:
            git_at(repository, "update-ref", f"refs/heads/{wanted.branch}", said["tip"], lock=lock)
        there = str(wanted.path)
        place = (there, wanted.branch) if said["on_branch"] else ("--detach", there, said["head"])
        git_at(repository, "worktree", "add", "--force", *lock_words(wanted), *place, lock=lock)
        fault_point("workspace.brought")
        git_in(wanted, "read-tree", "--reset", "-u", commit, lock=lock)
        git_in(wanted, "reset", "--quiet", "--mixed", "HEAD", lock=lock)  # what was not committed is not
        brought = bring_files(repository.top, wanted.path, files)
        mark = {"branch": wanted.branch, "base": said["base"], "files": brought, "bundle": commit}
        write_mark(repository, wanted.path, mark)
    return True


def bring_branch(workdir: Path, branch: str, commit: str, file: Path) -> None:
    """Have a commit of a branch in this repository, from the bundle of its worktree where it is not."""
    repository = repository_of(workdir)
    with locked(lock_of(repository)) as lock:
        if _has(repository, commit):
            return
        if file.is_file():
            _unbundle(repository, file, lock)
        if not _has(repository, commit):
            raise ToolError(
                f"the work of {branch}, commit {commit[:12]}, is neither in {repository.top} nor in the store",
                category=Category.CONFIGURATION,
                advice=("run the step on the machine that has it, or bring the branch here: git fetch",),
            )
        git_at(repository, "update-ref", f"refs/heads/{branch}", commit, lock=lock)


def note_attempt(worktree: Worktree, attempt: int) -> None:
    """Note the attempt that is about to work in it."""
    repository = repository_of(Path(worktree.repository))
    with locked(lock_of(repository)):
        write_mark(repository, worktree.path, {**read_mark(repository, worktree.path), "attempt": attempt})


def has_worked_in(workdir: Path, execution: str, step: str, attempt: int) -> bool:
    """True if this attempt, or a later one, has worked in the worktree that is here."""
    repository = repository_of(workdir)
    path = worktree_of(repository, execution, step, workdir).path
    # Earlier versions noted no attempt.
    return is_whole(repository, path) and int(read_mark(repository, path).get("attempt", attempt)) >= attempt


def _commit_of(file: Path) -> str:
    """The commit of a bundle, from its header."""
    with file.open("rb") as bundle:
        header = bundle.read(MOST_HEADER).partition(b"\n\n")[0]
    found = _HEADS.search(header)
    if not header.startswith(b"# v") or found is None:
        raise ToolError(f"{file} is not a git bundle", category=Category.CONFIGURATION)
    return found[1].decode()


def _unbundle(repository: Repository, file: Path, lock: int) -> None:
    try:
        git_at(repository, "bundle", "unbundle", str(file), lock=lock)
    except GitFailed as error:
        lacks = re.search(r"prerequisite commits?:?\s*(?:error: )?([0-9a-f]{40,64})", error.stderr)
        if lacks is None:
            raise
        raise ToolError(
            f"{repository.top} does not have commit {lacks[1][:12]}, which the agent's worktree began at",
            category=Category.CONFIGURATION,
            advice=(f"bring the repository up to date on this machine: git -C {repository.top} fetch",),
        ) from error


def _has(repository: Repository, commit: str) -> bool:
    try:
        git_at(repository, "cat-file", "-e", f"{commit}^{{commit}}")
    except GitFailed:
        return False
    return True


def _forget_elsewhere(repository: Repository, wanted: Worktree) -> None:
    """Remove git's notes of a worktree of the same branch in a folder of another machine, which has this repository."""
    listed = repository.common / "worktrees"
    for folder in list(listed.iterdir()) if listed.is_dir() else ():
        reason, place = folder / "locked", folder / "gitdir"
        if not reason.is_file() or not place.is_file():
            continue
        ours = reason.read_text(errors="surrogateescape").strip() == lock_words(wanted)[-1]
        if ours and place.read_text(errors="surrogateescape").strip() != str(wanted.path / ".git"):
            shutil.rmtree(folder)
