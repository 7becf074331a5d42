"""A small engine to be killed: opens a page in the browser, says `ready`, and waits.

Usage: browser_engine.py URL HOST:PORT FOLDER
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from windlass.ports import Call
from windlass.process import Supervisor
from windlass.settings import BrowserSettings, NetworkSettings
from windlass.tools.browser import BrowserTools


async def main(url: str, private: str, folder: str) -> None:
    tempfile.tempdir = folder
    supervisor = Supervisor()
    browser = BrowserTools(
        BrowserSettings(), NetworkSettings(private=(private,)), supervisor, {"PATH": os.environ["PATH"]}
    )
    (opening, *_) = browser.tools()
    place = Path(folder)
    call = Call(execution="e-1", step="a", attempt=1, workdir=place, folder=place, processes=supervisor)
    await opening.execute({"url": url}, call)
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
