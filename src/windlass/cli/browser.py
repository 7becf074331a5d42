"""Opens a page of a server in the user's browser, logged in.

The login link does not go on a command line, which every user of the machine can read: the browser is given a page in
the home, readable by its user alone, that leads there. The code in it works once.
"""

from __future__ import annotations

import html
import os
import sys
import webbrowser
from pathlib import Path
from urllib.parse import quote

__all__ = ["can_open", "forget_links", "keep_link", "open_page"]

_LINK, _PAGE = "server.login", "server.open.html"


def can_open() -> bool:
    """Tell whether a browser with a window can be had. One in this terminal would take it over."""
    if os.environ.get("BROWSER") or sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_page(home: Path, login: str, path: str = "/") -> bool:
    """Open the page; False if there is no browser that it could be opened with."""
    if not can_open():
        return False
    link = html.escape(f"{login}&next={quote(path, safe='/')}")
    text = f'<!doctype html><meta http-equiv="refresh" content="0;url={link}"><a href="{link}">Windlass</a>'
    page = _write(home / _PAGE, text)
    try:
        return webbrowser.open(page.as_uri())
    except (OSError, webbrowser.Error):
        return False


def keep_link(home: Path, login: str) -> Path:
    """Write the login link to a file that only its user can read."""
    return _write(home / _LINK, login)


def forget_links(home: Path) -> None:
    """Remove the files: codes end with the server that gave them."""
    for name in (_LINK, _PAGE):
        (home / name).unlink(missing_ok=True)


def _write(file: Path, text: str) -> Path:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
        opened.write(text + "\n")
    return file
