"""D4: what is removed is gone, whatever its modes are."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.journal.checkpoint import CheckpointFolder
from windlass.removal import remove_tree


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that a user who is not root can reach (pytest's own is private)."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+rwx", str(folder)], check=True)
    shutil.rmtree(folder)


def closed(folder: Path, mode: int) -> Path:
    """A folder with a file in a folder of that mode, of a user who is not root."""
    inner = folder / "one" / "two"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    (folder / "link").symlink_to("/")
    if os.geteuid() == 0:
        for path in (folder.parent, folder, *folder.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
    inner.chmod(mode)
    return folder


def _unprivileged(work: str, folder: Path) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    if work == "tree":
        remove_tree(folder)
    else:
        CheckpointFolder(folder.parent).remove(folder.name)


@pytest.mark.parametrize("work", ["tree", "execution"])
@pytest.mark.parametrize("mode", [0o555, 0o311, 0])
def test_d4_protected_folders_are_removed_with_the_rest(base: Path, mode: int, work: str) -> None:
    folder = closed(base / "e", mode)
    child = multiprocessing.get_context("fork").Process(target=_unprivileged, args=(work, folder))
    child.start()
    child.join()
    assert (child.exitcode, folder.exists()) == (0, False)


def test_d4_a_link_in_place_of_the_folder_is_refused_and_what_it_leads_to_is_left(tmp_path: Path) -> None:
    """A step may put a link to somebody's folder where its own was."""
    theirs = tmp_path / "theirs"
    (theirs / "closed").mkdir(parents=True)
    (theirs / "closed").chmod(0o550)
    link = tmp_path / "link"
    for target in (theirs, tmp_path / "nowhere"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        with pytest.raises(OSError, match=r"symbolic link|No such file"):
            remove_tree(link)
        assert link.is_symlink()
    assert (theirs / "closed").stat().st_mode & 0o777 == 0o550
