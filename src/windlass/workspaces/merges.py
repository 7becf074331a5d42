"""The worktree in which branches are merged, and the branch that keeps what was checked."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from windlass.faults import fault_point
from windlass.workspaces.git import GitFailed, find_repository, locked
from windlass.workspaces.store import shown
from windlass.workspaces.worktrees import Worktree, git_at, git_in, lock_of, open_worktree, remove_worktree

__all__ = ["MergeFolder", "MergeResult"]

MOST_NAMED = 20


class MergeResult(NamedTuple):
    """The end of a merge."""

    is_new: bool
    """False if it was merged before."""
    conflicts: tuple[str, ...] = ()
    """Files that both sides changed; then nothing is merged."""


class MergeFolder:
    """A worktree at the branch of a merge step. Its HEAD is ahead of the branch while a merge is not checked."""

    def __init__(self, worktree: Worktree) -> None:
        self._worktree = worktree
        repository = find_repository(Path(worktree.repository))
        assert repository is not None
        self._repository = repository
        self._unchecked = ""
        """The commit of the last merge."""

    @classmethod
    def open(cls, workdir: Path, execution: str, step: str) -> MergeFolder:
        """Make the worktree, or find it again and drop what was not checked."""
        found = cls(open_worktree(workdir, execution, step))
        found.reset()
        return found

    @property
    def workdir(self) -> Path:
        return self._worktree.workdir

    @property
    def branch(self) -> str:
        return self._worktree.branch

    def reset(self) -> None:
        """Go back to what was checked, without files that a check wrote."""
        self._git("checkout", "--quiet", "--force", "--detach", self.branch)
        self._git("clean", "--quiet", "--force", "-d")

    def merge(self, commit: str, message: str) -> MergeResult:
        """Merge a commit; a conflict leaves nothing behind."""
        if self._is_in(commit, self.branch):
            return MergeResult(is_new=False)
        try:
            self._git("merge", "--quiet", "--no-ff", "--no-verify", "-m", message, commit)
        except GitFailed:
            unmerged = self._git("diff", "--name-only", "--diff-filter=U", "-z").split(b"\0")
            self.reset()
            if not any(unmerged):
                raise
            names = [shown(name.decode("utf-8", "surrogateescape")) for name in unmerged if name]
            return MergeResult(is_new=True, conflicts=tuple(names[:MOST_NAMED]))
        self._unchecked = self._tip("HEAD")
        fault_point("merge.merged")
        return MergeResult(is_new=True)

    def newest(self, branch: str, commit: str) -> str:
        """The tip of an agent's branch, where it has gone on from its commit; else that."""
        try:
            tip = self._tip(f"refs/heads/{branch}")
        except GitFailed:
            return commit
        return tip if self._is_in(commit, tip) else commit

    def kept(self) -> str:
        """The commit of all that was merged and has passed."""
        return self._tip(self.branch)

    def difference(self) -> str:
        """The change that the target is to make, as text."""
        asked = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", f"{self.target_tip()}...{self.branch}")
        return self._git(*asked).decode("utf-8", "replace")

    def keep(self) -> None:
        """The merge has passed: the branch moves up to it, and nothing that the check wrote stays."""
        self._git("update-ref", f"refs/heads/{self.branch}", self._unchecked, self._tip(self.branch))
        fault_point("merge.kept")
        self.reset()

    def target(self) -> str:
        """The branch that is checked out in the repository; empty for a detached HEAD."""
        found = git_at(self._repository, "symbolic-ref", "--quiet", "--short", "HEAD", good=(0, 1))
        return found.decode("utf-8", "surrogateescape").strip()

    def target_tip(self) -> str:
        return git_at(self._repository, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()

    def target_moved(self) -> bool:
        """True if the target has commits that the merged branch does not have."""
        return not self._is_in(self.target_tip(), self.branch)

    def move_target(self) -> str:
        """Move the target and the checked-out files forward; gives the reason if git refuses."""
        with locked(lock_of(self._repository)) as lock:
            try:
                git_at(self._repository, "merge", "--quiet", "--ff-only", self.branch, lock=lock)
            except GitFailed as error:
                lines = [line.strip() for line in error.stderr.splitlines() if line.strip()]
                return " ".join(lines[:4])[:500] or str(error)
        fault_point("merge.moved")
        return ""

    def close(self, *, moved: bool) -> str:
        """Remove the worktree; its branch, too, once the target has its work. Gives the commit of the merged work."""
        commit = self._tip(self.branch)
        self.reset()
        remove_worktree(self._worktree, keep_branch=not moved)
        return commit

    def _is_in(self, commit: str, other: str) -> bool:
        try:
            self._git("merge-base", "--is-ancestor", commit, other)
        except GitFailed as error:
            if error.code != 1:
                raise
            return False
        return True

    def _tip(self, name: str) -> str:
        return self._git("rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()

    def _git(self, *arguments: str) -> bytes:
        with locked(lock_of(self._repository)) as lock:
            return git_in(self._worktree, *arguments, lock=lock)
