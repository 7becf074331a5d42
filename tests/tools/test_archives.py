"""Hostile archives stay what they are: one file each, which nobody unpacks (TRUST: archives).

Whatever fetches, copies, searches, sends or keeps an archive takes it for bytes. What its entries are named, what they
link to and what they would become are a matter for whoever unpacks it, and nothing in Windlass does.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import gzip
import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

HERE = Path(__file__).parent
sys.path += [str(HERE / part) for part in ("net", "message", "browser")] + [str(HERE.parent / "process")]

from browser_world import find_chromium  # noqa: E402  # found by the line above
from loopback import Server, reply, serve  # noqa: E402
from message_world import MailServer  # noqa: E402

import windlass  # noqa: E402
from windlass import Plan, Step  # noqa: E402
from windlass.engine.engine import Engine  # noqa: E402

if TYPE_CHECKING:
    from conftest import Project

MB = 1 << 20
SOURCES = Path(windlass.__file__).parent
UNPACKERS = {"tarfile", "zipfile", "zipimport", "bz2", "lzma", "unpack_archive", "extractall"}
PLANTED = "planted by an archive"


def tar(*entries: tuple[str, bytes, str]) -> bytes:
    """Entries by name, kind and what they link to; plain ones have a text in them."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind, link in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.devmajor, entry.devminor = kind, link, 1, 5
            entry.size = len(PLANTED) if kind == tarfile.REGTYPE else 0
            archive.addfile(entry, io.BytesIO(PLANTED.encode()))
    return made.getvalue()


def zipped(**entries: bytes | str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return made.getvalue()


def hostile(outside: Path) -> dict[str, Callable[[], bytes]]:
    """Makers of archives, by the names of their files; each would plant something, were it unpacked as it says."""
    plain, linked, hard = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
    target = str(outside / "planted")
    return {
        "parent.tar": lambda: tar(("../planted", plain, ""), ("a/../../../planted", plain, "")),
        "absolute.tar": lambda: tar((target, plain, "")),
        "symlink.tar": lambda: tar(("out", linked, str(outside)), ("out/planted", plain, "")),
        "hardlink.tar": lambda: tar(("mine", hard, str(outside / "kept.txt")), ("mine", plain, "")),
        "device.tar": lambda: tar(("null", tarfile.CHRTYPE, ""), ("disk", tarfile.BLKTYPE, "")),
        "fifo.tar": lambda: tar(("pipe", tarfile.FIFOTYPE, "")),
        "thousands.tar": lambda: tar(*((f"entry-{number}", plain, "") for number in range(5_000))),
        "parent.zip": lambda: zipped(**{"../planted": PLANTED, "..\\planted": PLANTED}),
        "absolute.zip": lambda: zipped(**{target: PLANTED, "C:\\planted": PLANTED}),
        "bomb.zip": lambda: zipped(zeros=bytes(100 * MB), more=bytes(100 * MB)),
        "bomb.gz": lambda: gzip.compress(bytes(200 * MB), 1),
    }


NAMES = list(hostile(Path("/nowhere")))


def tree(folder: Path, *but: Path) -> dict[str, bytes | None]:
    """All there is beneath a folder, files with their content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
        if not any(path.is_relative_to(one) for one in but)
    }


@asynccontextmanager
async def world(project: Project, archives: dict[str, bytes]) -> AsyncIterator[tuple[Engine, Server, MailServer]]:
    links = "".join(f"<p><a href=/{name}>{name}</a></p>" for name in archives)
    routes = {f"/{name}": reply(data, content_type="application/octet-stream") for name, data in archives.items()}
    routes["/"] = reply(f"<!doctype html><body>{links}</body>", content_type="text/html")
    async with serve(routes) as web, MailServer().serving() as mail:
        service = {"smtp": f"localhost:{mail.port}", "sender": "w@example.com", "security": "none"}
        async with windlass.open(
            project.home,
            network={"private": ["127.0.0.1", "localhost"]},
            messages={"services": {"mail": service}, "recipients": ["*@example.com"], "largest": "16mb"},
        ) as engine:
            yield engine, web, mail


async def run(engine: Engine, work: Path, *steps: dict[str, Any]) -> dict[str, Any]:
    """Steps one after the other; gives them by their ids."""
    made = [Step(needs=[steps[at - 1]["id"]] if at else [], **step) for at, step in enumerate(steps)]
    result = await (await engine.start(Plan(steps=made), workdir=work, hold=False)).result()
    return {step["id"]: step for step in result["steps"]}


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mail with a large file in it is read at once by the mail server, which else takes no more than 64 KiB."""
    monkeypatch.setattr("asyncio.start_server", functools.partial(asyncio.start_server, limit=16 * MB))


@pytest.fixture
def outside(project: Project) -> Path:
    folder = project.path / "outside"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept")
    return folder


@pytest.mark.parametrize("name", NAMES)
async def test_trust_an_archive_is_fetched_copied_searched_and_sent_as_one_file(
    name: str, project: Project, outside: Path
) -> None:
    data, work = hostile(outside)[name](), project.path / "work"
    work.mkdir()
    before = tree(project.path, project.home)
    async with world(project, {name: data}) as (engine, web, mail):
        steps = await run(
            engine,
            work,
            {"id": "fetch", "tool": "http.download", "with_": {"url": web.url(f"/{name}"), "path": f"in/{name}"}},
            {"id": "copy", "tool": "files.copy", "with_": {"from": f"in/{name}", "to": name}},
            {"id": "read", "tool": "files.read", "with_": {"path": name, "encoding": "base64"}},
            {"id": "search", "tool": "files.search", "with_": {"pattern": PLANTED}},
            {"id": "list", "tool": "files.list", "with_": {"recursive": True}},
            {
                "id": "mail",
                "tool": "message.email",
                "with_": {"to": "a@example.com", "subject": "It", "text": "It.", "attachments": name},
                "approve": "never",
            },
        )
        assert [step["error"] for step in steps.values()] == [None] * 6
        (attached,) = mail.mails[0].parsed.iter_attachments()
    assert steps["fetch"]["output"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert steps["read"]["output"]["size"] == len(data)
    assert steps["search"]["output"]["matches"] == []
    assert [entry["path"] for entry in steps["list"]["output"]["entries"]] == sorted(["in", f"in/{name}", name])
    assert attached.get_content() == data
    planted = {f"work/in/{name}": data, f"work/{name}": data, "work/in": None}
    assert tree(project.path, project.home) == before | planted


async def test_trust_a_browser_keeps_archives_as_single_files_among_the_artifacts(
    project: Project, outside: Path
) -> None:
    pytest.importorskip("playwright")
    if find_chromium() is None:
        pytest.skip("no Chromium is installed")
    archives, work = {name: make() for name, make in hostile(outside).items()}, project.path / "work"
    work.mkdir()
    before = tree(project.path, project.home)
    async with world(project, archives) as (engine, web, _):
        steps = await run(
            engine,
            work,
            {"id": "open", "tool": "browser.open", "with_": {"url": web.url("/")}},
            *(
                {"id": f"get-{at}", "tool": "browser.download", "with_": {"text": name}}
                for at, name in enumerate(archives)
            ),
        )
    assert {step["status"] for step in steps.values()} == {"completed"}, steps
    kept = sorted(path for path in (project.home / "artifacts").rglob("*") if not path.is_dir())
    assert sorted(path.name for path in kept) == sorted(archives)
    assert all(path.read_bytes() == archives[path.name] for path in kept)
    assert tree(project.path, project.home) == before


async def test_trust_a_bomb_in_the_body_of_an_answer_is_cut_at_the_cap_and_not_kept(
    project: Project, outside: Path
) -> None:
    """The one thing that is unpacked: what HTTP itself has packed, as far as `max_bytes` goes."""
    bomb = reply(gzip.compress(bytes(64 * MB)), content_type="application/gzip", content_encoding="gzip")
    before = tree(project.path, project.home)
    async with serve({"/": bomb}) as web, windlass.open(project.home, network={"private": ["127.0.0.1"]}) as engine:
        told = {"url": web.url("/"), "path": "bomb.gz", "max_bytes": MB}
        step = {"id": "fetch", "tool": "http.download", "with_": told, "retry": {"max": 0}}
        ended = (await run(engine, project.path, step))["fetch"]
    assert (ended["status"], ended["error"]["category"]) == ("failed", "resource"), ended
    assert tree(project.path, project.home) == before


def test_trust_no_module_of_windlass_unpacks_archives() -> None:
    texts = {file: file.read_text() for file in sorted(SOURCES.rglob("*.py"))}
    found = [
        f"{file.relative_to(SOURCES)}: {name}"
        for file, text in texts.items()
        if any(name in text for name in UNPACKERS)  # reading the syntax of all of them takes seconds
        for name in unpacking(ast.parse(text))
    ]
    assert texts
    # A backup is one: its members are read by name, each within its stated size (tests/crash/test_backup.py).
    assert found == ["journal/backup.py: zipfile"]


@pytest.mark.parametrize(
    "line",
    ["import tarfile", "import os, zipfile as z", "from lzma import open", "from shutil import unpack_archive",
     "import shutil; shutil.unpack_archive('a')", "archive.extractall('.')", "__import__('tarfile')"],
)  # fmt: skip
def test_trust_a_module_that_unpacks_would_be_found(line: str) -> None:
    assert unpacking(ast.parse(line))
    assert not unpacking(ast.parse("import shutil\nfrom os import path\nshutil.copy('tarfile', 'zip')"))


def unpacking(module: ast.Module) -> list[str]:
    """What in it unpacks archives, or brings in what does."""
    found: list[str] = []
    for node in ast.walk(module):
        match node:
            case ast.Import():
                found += [name.name.split(".")[0] for name in node.names]
            case ast.ImportFrom():
                found += [str(node.module).split(".")[0], *(name.name for name in node.names)]
            case ast.Attribute():
                found.append(node.attr)
            case ast.Call(func=ast.Name("__import__") | ast.Attribute(attr="import_module"), args=[ast.Constant(name)]):
                found.append(str(name))
    return [name for name in found if name in UNPACKERS]
