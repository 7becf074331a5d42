"""Fixtures of the file tools' tests; the world itself is in `file_world.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from file_world import World

from windlass.tools.files import kernel


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).make()


@pytest.fixture(params=["same device", "another device"])
def anywhere(request: pytest.FixtureRequest, world: World) -> Iterator[World]:
    """A scratch folder where backups are links, and one where they have to be copies."""
    if request.param == "same device":
        yield world
        return
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == world.root.stat().st_dev:
        pytest.skip("there is no second file system here")
    world.folder = Path(tempfile.mkdtemp(dir=shm))
    yield world
    shutil.rmtree(world.folder)


@pytest.fixture(params=["openat2", "walk"])
def resolver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways from a path to a place, held to the same promises."""
    if request.param == "walk":
        monkeypatch.setattr(kernel, "OPENAT2", False)
    else:
        fd = os.open("/", os.O_RDONLY)
        opened = kernel.open_beneath(fd, ".", os.O_RDONLY | os.O_DIRECTORY)
        os.close(fd)
        if opened is None:
            pytest.skip("this kernel has no openat2")
        os.close(opened)
    return str(request.param)


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path], Path]]:
    """Mounts a file system of its own, with 1 MiB on it, at a place."""
    mounted: list[Path] = []

    def mount(place: Path) -> Path:
        place.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting a file system needs root")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)
