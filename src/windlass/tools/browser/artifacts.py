"""Files made of a page for people: a picture, a PDF, a download. They are always among the step's artifacts."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.errors import Category, ToolError
from windlass.plan.quantities import MB, shown_size
from windlass.ports import Call
from windlass.tools.browser.acts import target_of
from windlass.tools.browser.arguments import Click, Pdf, Screenshot
from windlass.tools.browser.failures import in_words, outcome_unknown, place_of, waited
from windlass.tools.browser.session import VIEW, Tab, quietly
from windlass.tools.threads import in_thread

if TYPE_CHECKING:
    from playwright.async_api import Download, FloatRect

__all__ = ["download", "pdf", "screenshot"]

LARGEST_PICTURE = 16 * MB
LARGEST_PDF = 64 * MB
LARGEST_DOWNLOAD = 64 * MB
TALLEST = 16_384
"""Pixels of a page in one picture: as many as the browser can draw at once."""


async def screenshot(tab: Tab, given: Screenshot, call: Call, seconds: float) -> dict[str, Any]:
    limit = seconds * 1000
    async with in_words(tab, "could not be captured", seconds):
        if given.selector is not None:
            data = await tab.page.locator(given.selector).first.screenshot(timeout=limit, type="png")
        else:
            clip = await _clip(tab) if given.full else None
            data = await tab.page.screenshot(timeout=limit, type="png", full_page=given.full, clip=clip)
    _check_size(tab, "the picture of it", len(data), LARGEST_PICTURE)
    return await _keep(call, given.name, ".png", lambda: data)


async def pdf(tab: Tab, given: Pdf, call: Call, seconds: float) -> dict[str, Any]:
    async with in_words(tab, "could not be printed", seconds):
        data = await tab.page.pdf(format=given.size, landscape=given.landscape, print_background=True)
    _check_size(tab, "the PDF of it", len(data), LARGEST_PDF)
    return await _keep(call, given.name, ".pdf", lambda: data)


async def download(tab: Tab, given: Click, call: Call, seconds: float) -> dict[str, Any]:
    """Click, and keep the file that comes. Its size is watched while it arrives."""
    too_large, target = asyncio.Event(), target_of(tab, given)
    controls = await tab.session.controls(tab)
    controls.on("Page.downloadProgress", lambda told: _watch(told, too_large))
    tab.expects_download = True
    try:
        await controls.send("Page.enable")
        async with in_words(tab, "had nothing to click for a file", seconds):
            await target.click(timeout=seconds * 1000, trial=True)
        with outcome_unknown():
            async with in_words(tab, "did not bring a file", seconds):
                async with tab.page.expect_download(timeout=seconds * 1000) as coming:
                    await target.click(timeout=seconds * 1000)
                arriving = await coming.value
            try:
                async with in_words(tab, "did not bring its file", seconds):
                    path = await _arrived(tab, arriving, too_large, seconds)
                kept = await _keep(call, arriving.suggested_filename, "", path.read_bytes)
            finally:
                await asyncio.shield(asyncio.ensure_future(_discard(arriving)))
    finally:
        tab.expects_download = False
        await _discard_controls(controls)
    return kept


async def _arrived(tab: Tab, arriving: Download, too_large: asyncio.Event, seconds: float) -> Path:
    done = asyncio.ensure_future(arriving.path())
    large = asyncio.ensure_future(too_large.wait())
    try:
        await asyncio.wait({done, large}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if too_large.is_set():
            _check_size(tab, "the download", LARGEST_DOWNLOAD + 1, LARGEST_DOWNLOAD)
        if not done.done():
            raise waited(tab, "began a download that did not end", seconds, arriving.suggested_filename[:100])
        if (failure := await arriving.failure()) is not None:
            raise ToolError(f"{place_of(tab.page.url)}: the download failed: {failure}", category=Category.TRANSIENT)
        path = done.result()
        _check_size(tab, "the download", path.stat().st_size, LARGEST_DOWNLOAD)
        return path
    finally:
        large.cancel()
        done.add_done_callback(lambda task: task.cancelled() or task.exception())  # seen, if nobody waits any more


async def _clip(tab: Tab) -> FloatRect | None:
    """The upper part of a page that is too tall."""
    tall = await tab.page.evaluate("() => document.documentElement.scrollHeight")
    if not isinstance(tall, int | float) or tall <= TALLEST:
        return None
    tab.session.note(f"the page is {tall:g} pixels tall: only the first {TALLEST} are in the picture")
    return {"x": 0, "y": 0, "width": VIEW[0], "height": TALLEST}


def _watch(told: dict[str, Any], too_large: asyncio.Event) -> None:
    if max(told.get("receivedBytes", 0), told.get("totalBytes", 0)) > LARGEST_DOWNLOAD:
        too_large.set()


async def _discard(arriving: Download) -> None:
    await quietly(arriving.cancel)
    await quietly(arriving.delete)


async def _discard_controls(controls: Any) -> None:
    await quietly(controls.detach)


def _check_size(tab: Tab, what: str, size: int, largest: int) -> None:
    if size > largest:
        raise ToolError(
            f"{place_of(tab.page.url)}: {what} is larger than {shown_size(largest)}, and was not kept",
            category=Category.RESOURCE,
            advice=("for a large file use http.download",)
            if "download" in what
            else ("keep a part of it: `selector`",),
        )


async def _keep(call: Call, name: str, ending: str, read: Callable[[], bytes]) -> dict[str, Any]:
    folder = call.artifacts
    home = call.folder.parent.parent
    try:
        path, size, digest = await in_thread(lambda: _write(folder, _file_name(name, ending), read))
    except OSError as error:
        raise ToolError(
            f"the file cannot be written to {folder}: {(error.strerror or 'it failed').lower()}",
            category=Category.RESOURCE,
        ) from error
    return {"path": str(path.relative_to(home)), "bytes": size, "sha256": digest}


def _write(folder: Path, name: str, read: Callable[[], bytes]) -> tuple[Path, int, str]:
    """Under a name that nothing else has."""
    data = read()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem, dot, ending = name.rpartition(".")
    for number in itertools.count(1):
        other = (f"{stem}-{number}.{ending}" if dot else f"{name}-{number}") if number > 1 else name
        try:
            fd = os.open(folder / other, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        break
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        (folder / other).unlink(missing_ok=True)
        raise
    return folder / other, len(data), hashlib.sha256(data).hexdigest()


def _file_name(name: str, ending: str) -> str:
    """Make a plain file name of the one that the page gives."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-")[-100:].lstrip(".-") or "download"
    return plain if plain.lower().endswith(ending) else plain + ending
