"""Worktrees as files, for other machines: a git bundle of the branch and of the work that is not committed (J2, K4).

A bundle has one commit, which belongs to no branch: its files are those of the worktree, its parents the commit that is
checked out and the tip of the branch, and its message says which is which. So one file has all of it, and is there or
not. It builds on the commit that the worktree began at, which every machine's repository has. Ignored files are not in
it, nor are files that were brought along: these come from the checkout of the next machine.

The mark of a worktree names the bundle that was last written from it, or that it was made from, and the last attempt
that worked in it. A bundle of a later attempt takes its place: another machine has worked since. That is refused where
the worktree or its branch have work that is in neither bundle.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from windlass.errors import Category, ToolError
from windlass.faults import fault_point
from windlass.workspaces.git import GitFailed, Repository, locked
from windlass.workspaces.worktrees import (
    MARK,
    Worktree,
    admin_of,
    bring_files,
    git_at,
    git_in,
    is_whole,
    lock_of,
    lock_words,
    read_mark,
    removal_of,
    remove_unmarked,
    repository_of,
    stage_work,
    tip_of,
    work_in,
    worktree_of,
    write_mark,
)

__all__ = ["bring_branch", "bring_worktree", "bundle_of", "drafts_of", "has_worked_in", "note_attempt", "write_bundle"]

_HEADS = re.compile(rb"^([0-9a-f]{40,64}) ", re.MULTILINE)
MOST_HEADER = 64 * 1024


def bundle_of(scratch: Path) -> Path:
    """The bundle of a step's worktree, in the step's own folder."""
    return scratch / "worktree.bundle"


def drafts_of(file: Path) -> tuple[Path, Path]:
    """The file that becomes the bundle, and git's lock of it."""
    return file.with_suffix(".new"), file.with_suffix(".new.lock")


def write_bundle(worktree: Worktree, file: Path) -> tuple[str, ...]:
    """Write the worktree as it is into the file, in place of what is there. Raises `ToolError`.

    Gives the folders in it that are repositories of their own: a bundle has nothing of these.
    """
    repository = repository_of(Path(worktree.repository))
    admin = admin_of(repository, worktree.path)
    if (admin / "MERGE_HEAD").exists():
        raise ToolError("a merge in it is not ended")
    name = f"refs/windlass/{worktree.branch.removeprefix('windlass/')}"
    draft, lock_of_draft = drafts_of(file)
    with locked(lock_of(repository)) as lock:
        for left in (repository.common / f"{name}.lock", lock_of_draft):  # of commands that were killed
            left.unlink(missing_ok=True)
        mark = read_mark(repository, worktree.path)
        tree, inner = _tree_of(repository, worktree, lock)
        head = git_in(worktree, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
        at = git_in(worktree, "symbolic-ref", "--quiet", "HEAD", good=(0, 1)).decode("utf-8", "surrogateescape").strip()
        tip = tip_of(repository, worktree.branch)
        on_branch = at == f"refs/heads/{worktree.branch}"
        said = {"base": worktree.base, "head": head, "tip": tip, "on_branch": on_branch}
        said["attempt"] = mark.get("attempt", 0)
        parents = [word for commit in dict.fromkeys((head, tip)) if commit for word in ("-p", commit)]
        commit = git_in(worktree, "commit-tree", tree, *parents, "-m", json.dumps(said), lock=lock).decode().strip()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            git_in(worktree, "update-ref", name, commit, lock=lock)
            git_in(worktree, "bundle", "create", "--quiet", str(draft), name, f"^{worktree.base}", lock=lock)
        finally:
            git_in(worktree, "update-ref", "-d", name, lock=lock)
        fault_point("workspace.bundled")
        draft.replace(file)
        write_mark(repository, worktree.path, {**mark, "bundle": commit})
    return inner


def _tree_of(repository: Repository, worktree: Worktree, lock: int) -> tuple[str, tuple[str, ...]]:
    """The files of a worktree as a tree of git, and the folders in it that are repositories of their own."""
    admin = admin_of(repository, worktree.path)
    index = admin / "windlass-index"
    index.with_suffix(".lock").unlink(missing_ok=True)  # of a command that was killed
    shutil.copyfile(admin / "index", index)
    stage_work(repository, worktree, lock, index)
    tree = git_in(worktree, "write-tree", lock=lock, index=index).decode().strip()
    listed = git_in(worktree, "ls-files", "--stage", "-z", lock=lock, index=index).split(b"\0")
    links = [os.fsdecode(line.partition(b"\t")[2]) for line in listed if line.startswith(b"160000 ")]
    return tree, tuple(name for name in links if (worktree.path / name / ".git").exists())


def bring_worktree(workdir: Path, execution: str, step: str, file: Path, files: Sequence[str]) -> bool:
    """Have the worktree as the bundle has it, unless it is that one, or has gone on from it here; True if it was made.

    Raises `ToolError` rather than remove work that no bundle has. May be done again: until the worktree is marked, it
    is made anew. `files` are patterns of files to bring along.
    """
    repository = repository_of(workdir)
    wanted, commit = worktree_of(repository, execution, step, workdir), _commit_of(file)
    with locked(lock_of(repository)) as lock:
        mark = read_mark(repository, wanted.path) if is_whole(repository, wanted.path) else {}
        if mark.get("bundle") == commit:
            return False
        _unbundle(repository, file, lock)
        said = json.loads(git_at(repository, "show", "--no-patch", "--format=%B", commit))
        if mark and mark.get("attempt", 0) >= said.get("attempt", 0):
            return False
        _require_no_loss(repository, wanted, mark, commit, lock)
        if said["tip"]:
            git_at(repository, "update-ref", f"refs/heads/{wanted.branch}", said["tip"], lock=lock)
        if mark:
            (admin_of(repository, wanted.path) / MARK).unlink()  # from here on, it is to be made anew
        remove_unmarked(repository, wanted.path)
        wanted.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = str(wanted.path)
        place = (there, wanted.branch) if said["on_branch"] else ("--detach", there, said["head"])
        git_at(repository, "worktree", "add", "--force", *lock_words(wanted), *place, lock=lock)
        fault_point("workspace.brought")
        git_in(wanted, "read-tree", "--reset", "-u", commit, lock=lock)
        git_in(wanted, "reset", "--quiet", "--mixed", "HEAD", lock=lock)  # what was not committed is not
        brought = bring_files(repository.top, wanted.path, files)
        mark = {"branch": wanted.branch, "base": said["base"], "files": brought, "bundle": commit}
        write_mark(repository, wanted.path, {**mark, "attempt": said.get("attempt", 0)})
    return True


def _require_no_loss(repository: Repository, wanted: Worktree, mark: dict[str, Any], commit: str, lock: int) -> None:
    """Raise `ToolError` if the worktree or its branch have work that is neither in the new bundle nor in their own."""
    bundles = [one for one in (commit, mark.get("bundle", "")) if one and _has(repository, one)]
    heads = [tip] if (tip := tip_of(repository, wanted.branch)) else []
    why = ""
    if mark:
        here = replace(wanted, base=mark["base"], files=tuple(mark["files"]))
        heads.append(git_in(here, "rev-parse", "--verify", "HEAD^{commit}").decode().strip())
        tree, inner = _tree_of(repository, here, lock)
        trees = [git_at(repository, "rev-parse", f"{one}^{{tree}}").decode().strip() for one in bundles]
        if inner:
            why = f"the folder {inner[0]} in it is a repository of its own"
        elif tree not in trees and (work := work_in(here)) not in ("no work", "merged"):
            why = work
    others = (f"--exclude={wanted.branch}", "--branches", "--tags", "--remotes")
    if not why and heads and git_at(repository, "rev-list", "--max-count=1", *heads, "--not", *bundles, *others):
        why = f"its branch {wanted.branch} has commits that are nowhere else"
    if why:
        away = f"save what you need of its files, then remove it: {removal_of(repository, wanted.path)}"
        raise ToolError(
            f"{wanted.path} is left as it is, though another worker went on with its step: {why}",
            category=Category.CONFIGURATION,
            advice=(
                f"keep its commits: git -C {repository.top} branch -m {wanted.branch} NAME",
                *([away] if mark else []),
                "then retry the step",
            ),
        )


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
        asked = ("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{branch}")
        tip, used = tip_of(repository, branch), git_at(repository, *asked).strip()
        # A branch that is checked out, or has gone another way here, stays: the commit can be merged without it.
        if not used and (not tip or not git_at(repository, "rev-list", "--max-count=1", tip, f"^{commit}")):
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
