"""What each file tool gives back, as models: for whoever must know it before the tool runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from windlass.tools.arguments import Arguments

__all__ = ["Applied", "Copied", "Deleted", "Edited", "Found", "Listed", "Moved", "Patched", "Seen", "Written"]

PathText = Annotated[str, Field(description="Relative to the working directory")]
Digest = Annotated[str, Field(description="Of the content, in hexadecimal digits")]
Kind = Literal["file", "directory", "link", "other"]


class Seen(Arguments):
    path: PathText
    content: str
    bytes: int = Field(description="How many were read; the next read starts behind them")
    truncated: bool = Field(description="Whether there is more")
    sha256: Digest
    size: int = Field(description="Bytes of the whole file")


class Entry(Arguments):
    path: PathText
    type: Kind
    bytes: int
    modified: str = Field(description="Like 2026-01-31T12:00:00Z")


class Listed(Arguments):
    path: PathText
    entries: list[Entry]
    truncated: bool = Field(description="Whether there are more")


class Written(Arguments):
    path: PathText
    bytes: int = Field(description="Of the whole file")
    sha256: Digest
    created: bool


class Edited(Arguments):
    path: PathText
    replacements: list[int] = Field(description="How many each edit made")
    bytes: int
    sha256: Digest


class Moved(Arguments):
    source: PathText = Field(alias="from")
    to: PathText
    type: Kind
    replaced: bool


class Deleted(Arguments):
    path: PathText
    deleted: bool
    type: Kind | None


class Copied(Arguments):
    source: PathText = Field(alias="from")
    to: PathText
    type: Kind
    entries: int = Field(description="Files, links and folders, itself included")
    bytes: int = Field(description="Of all files")
    replaced: bool


class PatchedFile(Arguments):
    path: PathText
    change: Literal["created", "modified", "deleted", "renamed", "copied"]
    source: PathText | None = Field(alias="from", description="Where it was before, or is copied from")
    hunks: int
    offset: int = Field(description="How many lines a hunk stood away from where it said, at most")
    fuzz: int = Field(description="Lines of context that a hunk went without, at most")
    bytes: int = Field(description="Of the whole file")
    sha256: Digest | None


class Patched(Arguments):
    files: list[PatchedFile]


class Match(Arguments):
    path: PathText
    line: int = Field(description="From 1")
    text: str
    cut: bool = Field(description="Whether the line is longer than what is shown")
    before: list[str]
    after: list[str]


class Skipped(Arguments):
    binary: int
    large: int = Field(description="Files of more than 16 MiB")
    unreadable: int


class Found(Arguments):
    path: PathText
    matches: list[Match]
    files: int = Field(description="How many were read")
    skipped: Skipped
    truncated: bool = Field(description="Whether there may be more")
    limit: Literal["max_matches", "max_files", "max_bytes", "text"] | None = Field(
        description="Which limit ended the search; `text` is 4 MiB of lines given back"
    )


class WrittenChange(Written):
    do: Literal["write"]


class EditedChange(Edited):
    do: Literal["edit"]


class MovedChange(Moved):
    do: Literal["move"]


class DeletedChange(Deleted):
    do: Literal["delete"]


class Applied(Arguments):
    changes: list[WrittenChange | EditedChange | MovedChange | DeletedChange]
