"""Chromium as a process that we own: found, started without a window, kept for the next use, ended with its children.

`BrowserPool` keeps one browser for the process, and starts a new one when it has died. Its folder holds the profile and
temporary files, and is removed with it. The owner holds a lock on the folder for as long as it lives; a folder that
nobody locks was left behind by a killed engine, and is removed when the next browser starts.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from windlass.errors import Category, ToolError
from windlass.ports import Health
from windlass.process import Process, SpawnError, Supervisor
from windlass.settings import BrowserSettings
from windlass.tools.threads import in_thread

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

__all__ = ["BrowserPool", "Chromium", "ProfileFolder", "Running", "find", "health"]

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
"""The first that is there. The headless shell is the same browser without windows: a page takes a sixth of the
computing."""
START = 60.0
"""Seconds in which it has to say where it listens."""
LAST_WORDS = 8
"""Lines of its output that a failure shows."""
FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-startup-window",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--metrics-recording-only",
    "--password-store=basic",
    "--use-mock-keychain",
    "--mute-audio",
    "--hide-scrollbars",
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # as older ones call it
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,AutofillServerCommunication,"
    "PreconnectToSearch,DSEPreconnect2,NavigationPredictor",
    # Each execution has a proxy of its own. Nobody listens at this one: what it does outside of pages leads nowhere.
    "--proxy-server=socks5://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--js-flags=--max-old-space-size=512",
    "--remote-debugging-address=127.0.0.1",
    "--remote-debugging-port=0",
)
_SPOKEN = "DevTools listening on "


def find(settings: BrowserSettings, env: Mapping[str, str]) -> str:
    """Its path, or what to do to have one."""
    path = env.get("PATH", os.defpath)
    names = (settings.path,) if settings.path is not None else NAMES
    found = next((found for name in names if (found := shutil.which(name, path=path))), None)
    if found is None:
        missing = f"there is no program {settings.path}" if settings.path else "no Chromium is installed"
        raise ToolError(
            f"the browser cannot be started: {missing}",
            category=Category.CONFIGURATION,
            advice=("apt install chromium", "or name one in your settings: browser.path"),
        )
    return found


class Chromium:
    """One that runs."""

    def __init__(self, process: Process, folder: ProfileFolder) -> None:
        self.process, self.folder = process, folder
        self.endpoint = ""
        """The address of its controls."""
        self._said: deque[str] = deque(maxlen=LAST_WORDS)
        self._listening = asyncio.Event()
        self._readers = [asyncio.ensure_future(self._read(stream)) for stream in (process.stderr, process.stdout)]

    @classmethod
    async def start(cls, program: str, supervisor: Supervisor, env: Mapping[str, str]) -> Self:
        folder = ProfileFolder()
        try:
            process = await supervisor.spawn(_command(program, folder), cwd=str(folder.home), env=_env(env, folder))
        except SpawnError as error:
            folder.remove()
            raise ToolError(error.message, category=error.category, advice=error.advice) from error
        except BaseException:
            folder.remove()
            raise
        started = cls(process, folder)
        try:
            await started._until_it_listens()
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(started.stop()))
            raise
        return started

    @property
    def port(self) -> int:
        return int(self.endpoint.split("/")[2].rpartition(":")[2])

    async def stop(self) -> None:
        """End all of it, and remove what it had on disk."""
        await self.process.stop(0)
        await asyncio.gather(*self._readers)
        await in_thread(self.folder.remove)

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """To its end, or it would stop at a full pipe."""
        while not stream.at_eof():
            try:
                line = await stream.readline()
            except ValueError:
                continue  # a line that is too long for anybody to look at
            text = line.decode(errors="replace").strip()
            self._said.append(text[:300])
            if text.startswith(_SPOKEN) and not self.endpoint:
                self.endpoint = text.removeprefix(_SPOKEN)
                self._listening.set()

    async def _until_it_listens(self) -> None:
        listening = asyncio.ensure_future(self._listening.wait())
        ended = asyncio.ensure_future(self.process.wait())
        try:
            done, _ = await asyncio.wait({listening, ended}, timeout=START, return_when=asyncio.FIRST_COMPLETED)
        finally:
            listening.cancel()
            ended.cancel()
        if self.endpoint:
            return
        await asyncio.wait(self._readers, timeout=1.0)
        said = "; ".join(self._said)
        if ended not in done:
            raise ToolError(
                f"the browser does not say where it listens after {START:g} s: {said}", category=Category.TRANSIENT
            )
        sandbox = "sandbox" in said.lower()
        raise ToolError(
            f"the browser ended as it started: {said}",
            category=Category.CONFIGURATION if sandbox else Category.TRANSIENT,
            advice=("allow user namespaces: sysctl kernel.unprivileged_userns_clone=1",) if sandbox else (),
        )


async def health(settings: BrowserSettings, env: Mapping[str, str], supervisor: Supervisor) -> Health:
    """The health of the browser and of the library that drives it, with their versions."""
    from importlib.util import find_spec

    if find_spec("playwright") is None:
        return Health(False, "playwright is not installed", "pip install 'windlass[browser]'")
    try:
        program = find(settings, env)
        version = await _version(program, supervisor, env)
    except ToolError as error:
        return Health(False, str(error), error.failure.advice[0] if error.failure.advice else "")
    sandbox = "; as root, it has no sandbox of its own" if os.geteuid() == 0 else ""
    return Health(True, f"{version} at {program}{sandbox}")


async def _version(program: str, supervisor: Supervisor, env: Mapping[str, str]) -> str:
    try:
        process = await supervisor.spawn([program, "--version"], cwd="/", env=dict(env))
        async with asyncio.timeout(START):
            ended = await process.wait()
    except SpawnError as error:
        raise ToolError(error.message, category=error.category, advice=error.advice) from error
    except TimeoutError:
        await process.stop(0)
        raise ToolError(f"{program} --version gives no answer", category=Category.TRANSIENT) from None
    said = (await process.stdout.read(1000)).decode(errors="replace").strip()
    if ended.code != 0 or not said:
        raise ToolError(f"{program} --version does not work", category=Category.CONFIGURATION)
    return said.splitlines()[0]


def _command(program: str, folder: ProfileFolder) -> list[str]:
    # As root it cannot build its sandbox, and says so by ending.
    rootly = ("--no-sandbox",) if os.geteuid() == 0 else ()
    return [program, *FLAGS, *rootly, f"--user-data-dir={folder.path / 'profile'}"]


def _env(env: Mapping[str, str], folder: ProfileFolder) -> dict[str, str]:
    """Nothing of the user's: a home of its own, no proxies, no display, no bus."""
    kept = {name: env[name] for name in ("PATH", "LANG", "LC_ALL", "TZ", "FONTCONFIG_PATH") if name in env}
    return {"PATH": os.defpath, **kept, "HOME": str(folder.home), "TMPDIR": str(folder.path)}


PREFIX = "windlass-browser-"
LONGEST = 36
"""Characters of the folder that it is in: the path of the browser's socket may have 107."""
FRESH = 60.0
"""Seconds: a folder that is younger may not be locked yet."""


class ProfileFolder:
    def __init__(self) -> None:
        base = tempfile.gettempdir()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base if len(base) <= LONGEST else "/tmp"))
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        for name in ("home", "files"):
            (self.path / name).mkdir(mode=0o700)
        _sweep(self.path)

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def files(self) -> Path:
        """The folder for downloads."""
        return self.path / "files"

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep(mine: Path) -> None:
    """Remove what no living engine holds."""
    now = mine.stat().st_mtime
    for folder in mine.parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, gone by now, or held: not ours to remove
            if folder == mine or folder.is_symlink() or now - folder.stat().st_mtime < FRESH:
                continue
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


FAREWELL = 10.0
"""Seconds for the driver to end in peace."""


class Running:
    """A browser, and playwright's driver that talks to it."""

    def __init__(self, chromium: Chromium, playwright: Playwright, browser: Browser) -> None:
        self.chromium, self.playwright, self.browser = chromium, playwright, browser
        self._dead = asyncio.Event()
        browser.on("disconnected", lambda _: self._dead.set())

    @property
    def alive(self) -> bool:
        return not self._dead.is_set() and self.browser.is_connected()

    def lost(self) -> None:
        """It did not answer as a living one does."""
        self._dead.set()

    async def end(self) -> None:
        self._dead.set()
        try:
            async with asyncio.timeout(FAREWELL):
                await self.playwright.stop()
        except Exception:  # a driver that was killed cannot say goodbye; the browser is ended all the same
            self._dead.set()
        finally:
            await self.chromium.stop()


class BrowserPool:
    def __init__(self, settings: BrowserSettings, supervisor: Supervisor, env: Mapping[str, str]) -> None:
        self._settings, self._supervisor, self._env = settings, supervisor, env
        self._running: Running | None = None
        self._turn = asyncio.Lock()
        self.ours: set[int] = set()
        """Ports that pages may not reach."""

    async def get(self) -> Running:
        async with self._turn:
            if self._running is None or not self._running.alive:
                await self._end()
                self._running = await self._start()
                self.ours.add(self._running.chromium.port)
            return self._running

    async def end(self) -> None:
        """Until the next use."""
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        ended, self._running = self._running, None
        if ended is not None:
            self.ours.discard(ended.chromium.port)
            await asyncio.shield(asyncio.ensure_future(ended.end()))

    async def _start(self) -> Running:
        try:
            from playwright.async_api import Error, async_playwright
        except ImportError as error:
            raise ToolError(
                "the browser cannot be controlled: playwright is not installed",
                category=Category.CONFIGURATION,
                advice=("pip install 'windlass[browser]'",),
            ) from error
        chromium = await Chromium.start(find(self._settings, self._env), self._supervisor, self._env)
        playwright = None
        try:
            playwright = await async_playwright().start()
            browser = await playwright.chromium.connect_over_cdp(
                chromium.endpoint, is_local=True, artifacts_dir=chromium.folder.files
            )
        except BaseException as error:
            if playwright is not None:
                await playwright.stop()
            await asyncio.shield(asyncio.ensure_future(chromium.stop()))
            if isinstance(error, Error):
                raise ToolError(
                    f"the browser cannot be controlled: {error.message[:300]}", category=Category.TRANSIENT
                ) from error
            raise
        return Running(chromium, playwright, browser)
