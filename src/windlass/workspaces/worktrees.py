"""Folders of their own for agents: git worktrees with a branch each (K4).

The place and the branch follow from the execution and the step, so a folder is found again after a crash. A file in
git's own folder of the worktree marks it as whole: an unmarked one was never given to an agent, and is made anew. All
commands name git's folder themselves, because the agent can write to the `.git` in its worktree.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any

from windlass.errors import Category, ToolError
from windlass.faults import fault_point
from windlass.globs import is_pattern, match_files
from windlass.workspaces.git import GitFailed, Repository, escaped, find_repository, locked, run_git, user_ignores

__all__ = [
    "MARK",
    "Worktree",
    "admin_of",
    "branch_of",
    "bring_files",
    "bring_in",
    "commit_work",
    "find_worktree",
    "git_at",
    "git_in",
    "holders_of",
    "is_on_branch",
    "is_whole",
    "lock_of",
    "lock_words",
    "open_worktree",
    "place_of",
    "prove_apart",
    "read_mark",
    "removal_of",
    "remove_unmarked",
    "remove_worktree",
    "repository_of",
    "stage_work",
    "tip_of",
    "work_in",
    "worktree_of",
    "write_mark",
]

MARK = "windlass.json"
NOTE_BUSY = ("MERGE_HEAD", "rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "REVERT_HEAD")


@dataclass(frozen=True, slots=True)
class Worktree:
    """A folder of an agent's own."""

    path: Path
    workdir: Path
    """The folder in it that the agent works in."""
    branch: str = ""
    """Empty for a copy, as the next ones."""
    base: str = ""
    """The commit that it began at."""
    repository: str = ""
    """The checkout that it was made from."""
    files: tuple[str, ...] = ()
    """Files that were brought along, and are no part of the work."""
    notes: tuple[str, ...] = ()


def place_of(execution: str, step: str) -> Path:
    """The folder for an agent's files: outside every repository, so that nothing finds its way up into one."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "windlass" / "workspaces" / execution / _name(step)


def branch_of(execution: str, step: str) -> str:
    return f"windlass/{execution}/{_name(step)}"


def _name(step: str) -> str:
    """`fix[2]` is `fix.2`: brackets are patterns to many programs, and no step's id has a dot."""
    return re.sub(r"\[(\d+)\]", r".\1", step)


def lock_of(repository: Repository) -> Path:
    """The lock for changes of a repository's worktrees and branches by us."""
    key = re.sub(r"[^A-Za-z0-9]+", "-", str(repository.common))[-80:]
    return place_of("", "").parent / f".lock{key}"


def open_worktree(workdir: Path, execution: str, step: str, files: Sequence[str] = ()) -> Worktree:
    """Make the worktree, or find it again; proves that it is apart from the checkout."""
    repository = repository_of(workdir)
    found = worktree_of(repository, execution, step, workdir)
    with locked(lock_of(repository)) as lock:
        before = _marks(repository)
        if not is_whole(repository, found.path):
            found = _make(repository, found, files, lock)
        else:
            kept = read_mark(repository, found.path)
            found = replace(found, base=kept["base"], files=tuple(kept["files"]))
        if _marks(repository) != before:
            raise ToolError(f"making a worktree changed the checkout {repository.top}: its index, HEAD or config")
    found.workdir.mkdir(parents=True, exist_ok=True)
    prove_apart(found.workdir, workdir)
    return found


def worktree_of(repository: Repository, execution: str, step: str, workdir: Path) -> Worktree:
    path = place_of(execution, step)
    inside = workdir.relative_to(repository.top)
    return Worktree(path, path / inside, branch_of(execution, step), "", str(repository.top))


def find_worktree(workdir: Path, execution: str, step: str) -> Worktree | None:
    """The worktree of a step, if it is there."""
    repository = find_repository(workdir)
    if repository is None:
        return None
    found = worktree_of(repository, execution, step, workdir)
    if not is_whole(repository, found.path):
        return None
    return replace(found, base=read_mark(repository, found.path)["base"])


def repository_of(workdir: Path) -> Repository:
    repository = find_repository(workdir)
    if repository is not None:
        return repository
    why = f"{workdir} is in no git repository" if shutil.which("git") else "git is not installed"
    raise _cannot(f"a worktree needs one: {why}")


def _cannot(why: str, *advice: str) -> ToolError:
    return ToolError(
        f"`workspace: worktree` cannot be had here: {why}",
        category=Category.CONFIGURATION,
        advice=("use `workspace: copy`, which needs no git, or `shared`", *advice),
    )


def _make(repository: Repository, wanted: Worktree, files: Sequence[str], lock: int) -> Worktree:
    base = _base(repository)
    _refuse_unfit(repository)
    remove_unmarked(repository, wanted.path)
    wanted.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fault_point("workspace.making")
    with ThreadPoolExecutor(1) as beside:  # looking for changes takes a while, and changes nothing
        looking = beside.submit(_notes, repository)
        base = _add(repository, wanted, base, lock)
        notes = looking.result()
    fault_point("workspace.made")
    brought = bring_files(repository.top, wanted.path, files)
    write_mark(repository, wanted.path, {"branch": wanted.branch, "base": base, "files": brought})
    fault_point("workspace.marked")
    return replace(wanted, base=base, files=tuple(brought), notes=notes)


def _add(repository: Repository, wanted: Worktree, base: str, lock: int) -> str:
    """Have git make the worktree, with a new branch or the one that is there; gives the commit that it began at."""
    reason = lock_words(wanted)
    try:
        git_at(
            repository, "worktree", "add", "--force", *reason, "-b", wanted.branch, str(wanted.path), base, lock=lock
        )
    except GitFailed as error:
        if "exists; cannot create" in error.stderr:
            why = f"git makes no branch {wanted.branch} beside one with the first part of its name"
            raise _cannot(f"{why}: {error}", "or rename that one: git branch -m windlass NAME") from error
        if "already exists" not in error.stderr:
            raise
        git_at(repository, "worktree", "add", "--force", *reason, str(wanted.path), wanted.branch, lock=lock)
        base = git_at(repository, "merge-base", base, wanted.branch).decode().strip()
    return base


def lock_words(worktree: Worktree) -> tuple[str, ...]:
    """Options of `git worktree add`: other programs leave it alone."""
    return ("--lock", "--reason", f"an agent of windlass works here: {worktree.branch}")


def read_mark(repository: Repository, path: Path) -> dict[str, Any]:
    """The note that a worktree is whole: its branch, the commit that it began at, the files that were brought along."""
    mark = admin_of(repository, path) / MARK
    try:
        found: dict[str, Any] = json.loads(mark.read_text())
    except ValueError as error:
        raise ToolError(
            f"the worktree {path} is left as it is, because windlass's note of it, {mark}, is damaged: {error}",
            category=Category.CONFIGURATION,
            advice=(
                f"save what you need of its files, then remove it: {removal_of(repository, path)}",
                "then retry the step: the worktree comes back from its branch",
            ),
        ) from error
    return found


def removal_of(repository: Repository, path: Path) -> str:
    """The command that removes a worktree."""
    return f"git -C {shlex.quote(str(repository.top))} worktree remove --force --force {shlex.quote(str(path))}"


def write_mark(repository: Repository, path: Path, marked: dict[str, Any]) -> None:
    """Write the note whole and durably: a damaged one makes the worktree unusable."""
    mark = admin_of(repository, path) / MARK
    new = mark.with_suffix(".new")
    with new.open("w") as file:
        file.write(json.dumps(marked))
        file.flush()
        os.fsync(file.fileno())
    new.replace(mark)


def _base(repository: Repository) -> str:
    try:
        return git_at(repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
    except GitFailed as error:
        raise _cannot(f"{repository.top} has no commit yet" if error.code == 1 else str(error)) from error


def _refuse_unfit(repository: Repository) -> None:
    """Submodules and filters (Git LFS, encryption) are not in a worktree that git alone makes."""
    patterns = (":(glob)**/.gitmodules", ":(glob)**/.gitattributes")
    listed = git_at(repository, "ls-files", "-z", "--", *patterns).split(b"\0")
    for name in filter(None, listed):
        file = repository.top / os.fsdecode(name)
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        if file.name == ".gitmodules" and "path" in text:
            raise _cannot(f"{repository.top} has submodules, which git does not bring into a worktree")
        if found := re.search(r"^[^#\n]*\sfilter=(\S+)", text, re.MULTILINE):
            what = "Git LFS" if found[1] == "lfs" else f"the filter {found[1]}"
            raise _cannot(f"{repository.top} uses {what}, and only plain git works here")


def _notes(repository: Repository) -> tuple[str, ...]:
    changed = git_at(repository, "status", "--porcelain", "-z", "--untracked-files=no", "--no-renames").count(b"\0")
    notes = (
        [f"{changed} changed files of {repository.top} are not committed, and not in the worktree"] if changed else []
    )
    if any((repository.folder / name).exists() for name in NOTE_BUSY):
        notes.append(f"a merge or rebase goes on in {repository.top}: the worktree begins at the commit before it")
    return tuple(notes)


def bring_files(top: Path, path: Path, patterns: Sequence[str]) -> list[str]:
    """Copy files that git does not track, such as settings and built parts."""
    brought: list[str] = []
    for pattern in patterns:
        found = _named(top, pattern)
        if not found:
            raise ToolError(f"`workspace.files`: nothing matches {pattern} in {top}", category=Category.CONFIGURATION)
        for name in found:
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.resolve().is_relative_to(path.resolve()):
                raise ToolError(f"`workspace.files`: {name} is outside the worktree", category=Category.CONFIGURATION)
            shutil.copy2(top / name, target, follow_symlinks=False)
            brought.append(name)
    return brought


def _named(top: Path, pattern: str) -> list[str]:
    """Paths of the files that a path or pattern means; of a folder, all in it."""
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ToolError(f"`workspace.files`: {pattern} is outside the repository", category=Category.CONFIGURATION)
    if not is_pattern(pattern):
        if not (top / pattern).is_dir() or (top / pattern).is_symlink():
            return [pattern] if os.path.lexists(top / pattern) else []
        found = [os.path.join(folder, name) for folder, _, names in os.walk(top / pattern) for name in names]
    else:
        try:
            found = match_files(pattern, top).paths
        except ValueError as error:
            raise ToolError(f"`workspace.files`: {pattern}: {error}", category=Category.CONFIGURATION) from None
    relative = (os.path.relpath(path, top) for path in found)
    return sorted(name for name in relative if ".git" not in name.split("/"))


def remove_unmarked(repository: Repository, path: Path) -> None:
    """Remove what is left of a worktree whose making was cut off: no agent has seen it. Git's own folder goes last, so
    files without one have another history."""
    admin = _find_admin(repository, path)
    if admin is None and path.is_dir() and any(path.iterdir()):
        raise ToolError(
            f"the folder {path} is left as it is: it may have work of an agent, and {repository.top} does not know it",
            category=Category.CONFIGURATION,
            advice=(f"save what you need of it, then remove it: rm -r {shlex.quote(str(path))}", "then retry the step"),
        )
    if path.exists():
        shutil.rmtree(path)
    if admin is not None:
        shutil.rmtree(admin)


def is_whole(repository: Repository, path: Path) -> bool:
    admin = _find_admin(repository, path)
    return admin is not None and (admin / MARK).exists() and path.is_dir()


def admin_of(repository: Repository, path: Path) -> Path:
    found = _find_admin(repository, path)
    if found is None:
        raise ToolError(f"{path} is not a worktree of {repository.top} any more")
    return found


def _find_admin(repository: Repository, path: Path) -> Path | None:
    """Git's own folder of a worktree, by what the repository says, not by what is in the worktree."""
    listed = repository.common / "worktrees"
    for folder in listed.iterdir() if listed.is_dir() else ():
        file = folder / "gitdir"
        if file.is_file() and file.read_text(errors="surrogateescape").strip() == str(path / ".git"):
            return folder
    return None


def _marks(repository: Repository) -> list[object]:
    """Parts of the checkout that must not change while a worktree is made."""
    index = repository.folder / "index"
    stat = index.stat() if index.exists() else None
    texts = [
        file.read_bytes() if file.exists() else b""
        for file in (repository.folder / "HEAD", repository.common / "config")
    ]
    return [*texts, stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino)]


def prove_apart(workdir: Path, outside: Path) -> None:
    """Write a file into the folder, and look for it in the checkout."""
    name = f".windlass-canary-{token_hex(8)}"
    canary = workdir / name
    canary.write_text("seen from outside, it is not isolated\n")
    try:
        if (outside / name).exists() or os.path.samefile(workdir, outside):
            raise ToolError(f"{workdir} is not apart from {outside}: what is written in one is seen in the other")
    finally:
        canary.unlink()


def git_at(repository: Repository, *arguments: str, good: Sequence[int] = (0,), lock: int | None = None) -> bytes:
    """Run git in the checkout itself."""
    where = {"GIT_DIR": str(repository.folder), "GIT_WORK_TREE": str(repository.top)}
    if repository.folder != repository.common:
        where["GIT_COMMON_DIR"] = str(repository.common)
    return run_git(*arguments, cwd=repository.top, variables=where, good=good, holding=lock, timeout=600)


def git_in(
    worktree: Worktree,
    *arguments: str,
    good: Sequence[int] = (0,),
    lock: int | None = None,
    index: Path | None = None,
) -> bytes:
    """Run git in a worktree, with git's own folder as the repository names it; `index` is for another one than its."""
    repository = repository_of(Path(worktree.repository))
    where = {
        "GIT_DIR": str(admin_of(repository, worktree.path)),
        "GIT_COMMON_DIR": str(repository.common),
        "GIT_WORK_TREE": str(worktree.path),
        **_identity(repository),
        **({"GIT_INDEX_FILE": str(index)} if index is not None else {}),
    }
    return run_git(*arguments, cwd=worktree.path, variables=where, good=good, holding=lock, timeout=600)


@lru_cache(maxsize=64)
def _identity(repository: Repository) -> dict[str, str]:
    """The user's name for commits, from the settings of git that are otherwise left out."""
    found: dict[str, str] = {}
    for key, usual in (("name", "windlass"), ("email", "windlass@localhost")):
        value = ""
        for file in (
            repository.common / "config",
            Path(os.environ.get("GIT_CONFIG_GLOBAL") or Path.home() / ".gitconfig"),
        ):
            if not value and file.exists():
                asked = ("config", "--file", str(file), f"user.{key}")
                value = run_git(*asked, cwd=repository.top, good=(0, 1, 128)).decode("utf-8", "replace").strip()
        found |= {f"GIT_{who}_{key.upper()}": value or usual for who in ("AUTHOR", "COMMITTER")}
    return found


def commit_work(worktree: Worktree, message: str) -> str:
    """Commit what the agent has not committed, and have its branch at the result; gives the commit.

    May be done again: with nothing to commit, it is the same commit.
    """
    repository = repository_of(Path(worktree.repository))
    with locked(lock_of(repository)) as lock:
        (admin_of(repository, worktree.path) / "index.lock").unlink(missing_ok=True)  # of a command that was killed
        _refuse_inner(worktree)
        stage_work(repository, worktree, lock)
        merges = (admin_of(repository, worktree.path) / "MERGE_HEAD").exists()
        changed = git_in(worktree, "diff", "--cached", "--name-only", "HEAD", lock=lock)
        if changed or merges:
            git_in(worktree, "commit", "--quiet", "--no-verify", "--message", message, lock=lock)
        fault_point("workspace.committed")
        commit = git_in(worktree, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
        named = git_in(worktree, "rev-parse", "--verify", "--quiet", f"refs/heads/{worktree.branch}", good=(0, 1))
        at = named.decode().strip()
        if at != commit:  # it works on a branch of its own making
            git_in(worktree, "update-ref", f"refs/heads/{worktree.branch}", commit, at or "0" * len(commit), lock=lock)
    return commit


def stage_work(repository: Repository, worktree: Worktree, lock: int, index: Path | None = None) -> None:
    """Put all of the work into the index, without the files that were brought along or that the user ignores."""
    ignored = admin_of(repository, worktree.path) / "windlass-files"
    theirs = Path(user_ignores(worktree.path) or os.devnull)
    patterns = theirs.read_bytes() + b"\n" if theirs.exists() else b""
    ignored.write_bytes(patterns + b"".join(os.fsencode(f"/{escaped(name)}\n") for name in worktree.files))
    git_in(worktree, "-c", f"core.excludesFile={ignored}", "add", "--all", "--", ".", lock=lock, index=index)


def _refuse_inner(worktree: Worktree) -> None:
    """Raise `ToolError` for a repository in the worktree that is no submodule: git would commit its name alone."""
    if not (found := _inner_repositories(worktree)):
        return
    known = {*_gitlinks(git_in(worktree, "ls-tree", "-r", "-z", worktree.base)), *_submodules(worktree)}
    if not (inner := [name for name in found if name not in known]):
        return
    name, place = shlex.quote(inner[0]), shlex.quote(str(worktree.path))
    raise ToolError(
        f"the work is not committed, because the folder {inner[0]} in it is a repository of its own, and git would "
        f"leave its files out. All of it stays in {worktree.path}",
        category=Category.CONFIGURATION,
        advice=(
            f"to have its files in the work: cd {place} && rm -rf {name}/.git && "
            f"git rm -rq --cached --ignore-unmatch {name}",
            "or leave it out by a line in .gitignore there, or make it a submodule: git submodule add",
            "then retry the step",
        ),
    )


def _inner_repositories(worktree: Worktree) -> list[str]:
    """Folders in a worktree that are repositories of their own, without those that are ignored."""
    asked = ("-c", f"core.excludesFile={user_ignores(worktree.path)}", "ls-files", "-z")
    new = git_in(worktree, *asked, "--others", "--exclude-standard").split(b"\0")
    added = _gitlinks(git_in(worktree, *asked, "--stage"))
    untracked = [os.fsdecode(name[:-1]) for name in new if name.endswith(b"/")]
    return sorted({*untracked, *(name for name in added if (worktree.path / name / ".git").exists())})


def _gitlinks(listed: bytes) -> list[str]:
    """Paths of the repositories in a list of files with their modes."""
    return [os.fsdecode(line.partition(b"\t")[2]) for line in listed.split(b"\0") if line.startswith(b"160000 ")]


def _submodules(worktree: Worktree) -> list[str]:
    """Paths that `.gitmodules` names."""
    asked = ("config", "--file", ".gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$")
    listed = git_in(worktree, *asked, good=(0, 1)).split(b"\0")
    return [os.fsdecode(one.partition(b"\n")[2]) for one in listed if one]


def bring_in(worktree: Worktree, commit: str) -> tuple[str, ...]:
    """Begin to merge a commit in an agent's worktree, with the conflicts in its files; gives these. Its branch stays as
    it is until `commit_work`. May be done again."""
    repository = repository_of(Path(worktree.repository))
    admin = admin_of(repository, worktree.path)
    with locked(lock_of(repository)) as lock:
        (admin / "index.lock").unlink(missing_ok=True)  # of a command that was killed
        if not (admin / "MERGE_HEAD").exists():
            try:
                git_in(worktree, "merge", "--quiet", "--no-ff", "--no-commit", "--no-verify", commit, lock=lock)
            except GitFailed:
                if not (admin / "MERGE_HEAD").exists():
                    raise
        fault_point("merge.brought_in")
        listed = git_in(worktree, "diff", "--name-only", "--diff-filter=U", "-z", lock=lock).split(b"\0")
    return tuple(name.decode("utf-8", "surrogateescape") for name in listed if name)


def work_in(worktree: Worktree) -> str:
    """The state of the work: `no work`, `merged`, or what would be lost; empty if nothing of it is left."""
    repository = repository_of(Path(worktree.repository))
    tip = tip_of(repository, worktree.branch)
    if is_whole(repository, worktree.path):
        if inner := _inner_repositories(worktree):
            return f"has a repository of its own in {inner[0]}"
        brought = set(worktree.files)
        theirs = f"core.excludesFile={user_ignores(worktree.path)}"
        status = ("-c", theirs, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
        listed = git_in(worktree, *status).split(b"\0")
        if changed := [one for one in listed if one and os.fsdecode(one[3:]) not in brought]:
            files = f"{len(changed)} file{'s' if len(changed) > 1 else ''}"
            merges = (admin_of(repository, worktree.path) / "MERGE_HEAD").exists()
            return f"a merge that was not ended: {files}" if merges else f"{files} not committed"
        at = git_in(worktree, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
        if at not in (tip, worktree.base):
            return "commits that are not on its branch"
    elif not tip:
        return ""
    if tip == worktree.base:
        return "no work"
    if any(not name.startswith("refs/heads/windlass/") for name in holders_of(repository, tip)):
        return "merged"
    count = int(git_at(repository, "rev-list", "--count", f"{worktree.base}..{tip}"))
    return f"{count} commit{'s' if count > 1 else ''} not merged"


def holders_of(repository: Repository, commit: str) -> list[str]:
    """The branches, tags and remote branches that have the commit, by their full names."""
    asked = ("for-each-ref", f"--contains={commit}", "--format=%(refname)", "refs/heads", "refs/tags", "refs/remotes")
    return git_at(repository, *asked).decode("utf-8", "replace").splitlines()


def is_on_branch(workdir: Path, commit: str, branch: str) -> bool:
    """True if a branch of the repository is there and has the commit."""
    repository = find_repository(workdir)
    if repository is None or not tip_of(repository, branch):
        return False
    asked = ("for-each-ref", f"--contains={commit}", "--format=%(refname)", f"refs/heads/{branch}")
    return bool(git_at(repository, *asked).strip())


def tip_of(repository: Repository, branch: str) -> str:
    where = {"GIT_DIR": str(repository.common)}
    asked = ("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
    return run_git(*asked, cwd=repository.top, variables=where, good=(0, 1)).decode().strip()


def remove_worktree(worktree: Worktree, *, keep_branch: bool = False) -> None:
    """Remove a worktree and its branch, if no work would be lost; or the worktree alone. May be done again."""
    repository = repository_of(Path(worktree.repository))
    with locked(lock_of(repository)) as lock:
        if not keep_branch and (work := work_in(worktree)) not in ("no work", "merged", ""):
            raise ToolError(f"{worktree.path} is kept: {work}", category=Category.PERMISSION)
        tip = tip_of(repository, worktree.branch)
        if worktree.path.exists() or _find_admin(repository, worktree.path) is not None:
            git_at(repository, "worktree", "remove", "--force", "--force", str(worktree.path), lock=lock)
        fault_point("workspace.removed")
        if tip and (not keep_branch or tip == worktree.base):
            git_at(repository, "update-ref", "-d", f"refs/heads/{worktree.branch}", tip, lock=lock)
