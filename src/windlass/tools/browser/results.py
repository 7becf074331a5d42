"""What the `browser.*` tools give back."""

from __future__ import annotations

from windlass.tools.arguments import Arguments

__all__ = ["Closed", "Kept", "Link", "Listed", "Opened", "Shown", "Tabled", "Texted"]


class Shown(Arguments):
    """Where the page is after it."""

    page: str
    """Its name."""
    url: str
    notes: list[str]
    """What happened on the side: dialogs, popups, requests that were refused."""


class Opened(Shown):
    title: str
    status: int | None
    """Of the answer that the page came with; null where there was none, as for a place on the same page."""


class Texted(Shown):
    title: str
    text: str
    truncated: bool


class Tabled(Shown):
    tables: list[list[list[str]]]
    """A table is a list of rows, a row a list of cells."""
    truncated: bool


class Link(Arguments):
    text: str
    url: str


class Listed(Shown):
    links: list[Link]
    truncated: bool


class Kept(Shown):
    path: str
    """Relative to the home."""
    bytes: int
    sha256: str


class Closed(Arguments):
    closed: int
    """Pages that were open."""
