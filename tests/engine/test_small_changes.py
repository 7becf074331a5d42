"""K5: the tree of a few changes is the very tree that git's own index gives, whatever the changes are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from git_repositories import git, repository

from windlass.workspaces import git_store
from windlass.workspaces.store import find_store

if TYPE_CHECKING:
    from conftest import Project

NAMES = ("a", "a.b", "a0", "ä", "with space", 'quo"te', '"begins', "b\tc", "-dash", ":colon", "[x]*", "a-b")


def nothing(folder: Path) -> None:
    """The tree is the one before."""


def deep(folder: Path) -> None:
    (folder / "new" / "er" / "est").mkdir(parents=True)
    (folder / "new" / "er" / "est" / "file").write_text("new\n")


def folder_is_file(folder: Path) -> None:
    shutil.rmtree(folder / "sub")
    (folder / "sub").write_text("a file now\n")


def file_is_folder(folder: Path) -> None:
    (folder / "kept.txt").unlink()
    (folder / "kept.txt").mkdir()
    (folder / "kept.txt" / "inside").write_text("x\n")


def folder_is_link(folder: Path) -> None:
    (folder / "sub").rename(folder / "moved")
    (folder / "sub").symlink_to("moved")


def ignored_link(folder: Path) -> None:
    """A tracked folder is a link that git ignores: the files behind it are gone for git."""
    (folder / "sub").rename(folder.parent / "elsewhere")
    (folder / "sub").symlink_to(folder.parent / "elsewhere")
    (folder / ".gitignore").write_text("sub\n.windlass/\n")


def touched(folder: Path) -> None:
    os.utime(folder / "kept.txt", (1, 1))


def executable(folder: Path) -> None:
    (folder / "kept.txt").chmod(0o755)


def all_gone(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name not in (".git", ".windlass"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def many(folder: Path) -> None:
    for number in range(250):
        (folder / f"many{number}").write_text("x")


def repository_inside(folder: Path) -> None:
    (folder / "inside").mkdir()
    git(folder / "inside", "init", "-q")
    (folder / "inside" / "file").write_text("x")
    git(folder / "inside", "add", "-A")
    git(folder / "inside", "commit", "-qm", "inside")


def strange_names(folder: Path) -> None:
    for name in (*NAMES, "new\nline", b"\xff\xfe".decode(errors="surrogateescape")):
        (folder / "sub" / name).write_text(name.encode(errors="replace").decode())


def by_chance(seed: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        chance = Random(seed)
        for _ in range(chance.randrange(1, 12)):
            place = folder / chance.choice(("", "sub", "sub/deep", "x/y", "a")) / chance.choice(NAMES)
            if chance.random() < 0.4 and place.is_file():
                place.unlink()
            elif not any(parent.is_file() for parent in place.parents) and not place.is_dir():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(str(chance.randrange(3)))
                place.chmod(chance.choice((0o644, 0o755)))
        if chance.random() < 0.3:
            shutil.rmtree(folder / "sub", ignore_errors=True)

    return change


CHANGES = [nothing, deep, folder_is_file, file_is_folder, folder_is_link, ignored_link, touched, executable, all_gone]
CHANGES += [many, repository_inside, strange_names]


@pytest.mark.parametrize("change", [*CHANGES, *map(by_chance, range(8))])
def test_k5_the_tree_of_a_change_is_that_of_the_whole_index(
    project: Project, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(project)
    (folder / "sub" / "deep").mkdir(parents=True)
    for name in ("sub/one", "sub/deep/two", "sub/deep/three"):
        (folder / name).write_text(f"{name}\n")
    store = find_store(folder, project.home)
    before = store.record().tree
    change(folder)
    quick = store.record()
    again = store.record()
    with monkeypatch.context() as whole:
        whole.setattr(git_store, "changed_tree", lambda *_: "")
        slow = find_store(folder, project.home).record()
    assert quick == again == slow
    assert bool(store.changes(before, quick.tree)) == (change not in (nothing, touched))
    assert store.record() == slow, "the index is up to date, and gives the same"


def test_k5_a_few_changes_do_not_write_the_index(project: Project) -> None:
    folder = repository(project)
    store = find_store(folder, project.home)
    store.record()
    (index,) = project.home.glob("snapshots/*.git/index")
    before = index.stat().st_mtime_ns
    (folder / "kept.txt").write_text("changed\n")
    (folder / "old.txt").unlink()
    store.record()
    assert index.stat().st_mtime_ns == before
