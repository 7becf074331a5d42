"""The arguments and results of the `browser.*` tools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from windlass.plan.quantities import MB, Duration, Size, at_most, within
from windlass.tools.functional import Arguments
from windlass.tools.net.names import read_address

__all__ = [
    "Click",
    "Close",
    "Closed",
    "Fill",
    "Kept",
    "Link",
    "Links",
    "Listed",
    "Open",
    "Opened",
    "Pdf",
    "Press",
    "ReadPage",
    "Screenshot",
    "Select",
    "Shown",
    "Tabled",
    "Texted",
    "Wait",
]

Selector = Annotated[str, Field(min_length=1, max_length=2000)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
WHICH = "CSS, or text=…, role=button[name=…], label=… as playwright has them"


class _OnPage(Arguments):
    page: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]{1,40}$",
        description="The page's name, where an execution has several; otherwise the one that was opened last",
    )
    timeout: Annotated[Duration, at_most("1h")] | None = Field(
        default=None, description="At most browser.timeout of the settings"
    )


class Open(_OnPage):
    url: str = Field(description="The address, beginning with http:// or https://")
    until: Literal["load", "dom", "idle"] = Field(
        default="load",
        description="load: all is loaded; dom: the document is there; idle: no request for half a second",
    )
    text: Text | None = Field(default=None, description="Then wait until this text is shown")
    selector: Selector | None = Field(default=None, description="Then wait until this is shown: " + WHICH)
    ok: list[Annotated[int, Field(ge=100, le=599)]] | None = Field(
        default=None, min_length=1, description="Statuses that mean success; otherwise 200 to 399"
    )

    @field_validator("url")
    @classmethod
    def _readable(cls, url: str) -> str:
        read_address(url)
        return url

    def good(self, status: int) -> bool:
        return status in self.ok if self.ok is not None else 200 <= status < 400


class Click(_OnPage):
    selector: Selector | None = Field(default=None, description=WHICH)
    text: Text | None = Field(default=None, description="Instead of a selector: its text")
    double: bool = False

    @model_validator(mode="after")
    def _one(self) -> Click:
        if (self.selector is None) == (self.text is None):
            raise ValueError("give exactly one of `selector` and `text`")
        return self


class Fill(_OnPage):
    selector: Selector = Field(description=WHICH)
    value: str | None = Field(default=None, max_length=100_000)
    value_env: str | None = Field(
        default=None, min_length=1, description="Instead of a value: an environment variable that holds it"
    )

    @model_validator(mode="after")
    def _one(self) -> Fill:
        if (self.value is None) == (self.value_env is None):
            raise ValueError("give exactly one of `value` and `value_env`")
        return self


class Select(_OnPage):
    selector: Selector = Field(description=WHICH)
    options: list[Annotated[str, Field(max_length=2000)]] = Field(
        min_length=1, max_length=100, description="Their values or labels"
    )


class Press(_OnPage):
    key: str = Field(pattern=r"^[\x21-\x7e]{1,60}$", description="Enter, Tab, Escape, ArrowDown, a, Control+A …")
    selector: Selector | None = Field(default=None, description="An element; otherwise the one with the focus")


class Wait(_OnPage):
    text: Text | None = None
    selector: Selector | None = Field(default=None, description=WHICH)
    url: Text | None = Field(default=None, description="The page's address, with * and ** as wildcards")
    idle: bool = Field(default=False, description="No request for half a second")
    gone: bool = Field(default=False, description="Wait until the text or selector is not shown any more")

    @model_validator(mode="after")
    def _something(self) -> Wait:
        given = [self.text, self.selector, self.url, self.idle or None]
        if sum(value is not None for value in given) != 1:
            raise ValueError("give exactly one of `text`, `selector`, `url` and `idle`")
        if self.gone and self.text is None and self.selector is None:
            raise ValueError("`gone` goes with a text or a selector")
        return self


class ReadPage(_OnPage):
    selector: Selector | None = Field(default=None, description="Only what is in it: " + WHICH)
    max_bytes: Annotated[Size, within(1, MB)] = Field(
        default=MB, description="Bytes that are kept; `truncated` says if there was more"
    )


class Links(_OnPage):
    selector: Selector | None = Field(default=None, description="Only those in it: " + WHICH)
    most: int = Field(default=500, ge=1, le=5000)


class Screenshot(_OnPage):
    selector: Selector | None = Field(default=None, description="Only this: " + WHICH)
    full: bool = Field(default=False, description="All of the page, not only what a window shows")
    name: str = Field(default="screenshot.png", max_length=100, description="The file's name")

    @model_validator(mode="after")
    def _one(self) -> Screenshot:
        if self.full and self.selector is not None:
            raise ValueError("`full` is about the page, `selector` about a part of it: give one")
        return self


class Pdf(_OnPage):
    name: str = Field(default="page.pdf", max_length=100, description="The file's name")
    landscape: bool = False
    size: Literal["A3", "A4", "A5", "Letter", "Legal"] = "A4"


class Close(Arguments):
    page: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_-]{1,40}$", description="One page; otherwise all of this execution"
    )


class Shown(Arguments):
    """The address of the page afterwards."""

    page: str
    """Its name."""
    url: str
    notes: list[str]
    """Events on the side: dialogs, popups, requests that were refused."""


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
