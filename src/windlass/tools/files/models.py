"""Arguments and results of each file tool: pydantic models, and complaints about arguments in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, model_validator

from windlass.tools.files.failures import nearest, shown
from windlass.tools.functional import Arguments

__all__ = [
    "Applied",
    "Apply",
    "Change",
    "Copied",
    "Copy",
    "Delete",
    "Deleted",
    "Edit",
    "Edited",
    "FileSeen",
    "FileWritten",
    "FolderListing",
    "Found",
    "List",
    "Move",
    "Moved",
    "Patch",
    "Patched",
    "Read",
    "Replacement",
    "Search",
    "Write",
    "problems",
]

MIB = 1 << 20

PathText = Annotated[str, Field(description="A path inside the working directory, e.g. src/main.py")]
Encoding = Annotated[str, Field(description="A text encoding, or base64 for bytes that are not text")]
Glob = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        description="Like *.py, matched with names; with a / in it, with paths: src/**/*.py",
    ),
]
Permissions = Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")]


class Read(Arguments):
    path: PathText
    encoding: Encoding = "utf-8"
    max_bytes: int = Field(default=MIB, ge=1, le=64 * MIB, description="Read at most this much")
    offset: int = Field(default=0, ge=0, description="Start at this byte")


class Write(Arguments):
    path: PathText
    content: str
    encoding: Encoding = "utf-8"
    mode: Literal["overwrite", "create", "append"] = Field(
        default="overwrite", description="`create` refuses to replace a file that is there"
    )
    make_parents: bool = Field(default=True, description="Make missing folders on the way")
    permissions: Permissions | None = Field(
        default=None, description="Like 0644; otherwise as the file had, or as new files get"
    )


class Replacement(Arguments):
    old: str = Field(min_length=1, description="The text to find, exactly as it stands")
    new: str
    all: bool = Field(default=False, description="Replace every occurrence instead of the only one")


class Edit(Arguments):
    path: PathText
    edits: list[Replacement] = Field(min_length=1, max_length=1000)


class List(Arguments):
    path: ResultPath = "."
    glob: Glob | None = None
    recursive: bool = False
    max_entries: int = Field(default=10_000, ge=1, le=100_000)

    @model_validator(mode="after")
    def _reach(self) -> List:
        if self.glob and "/" in self.glob and not self.recursive:
            raise ValueError("a glob with / in it needs recursive: true")
        return self


class Move(Arguments):
    source: ResultPath = Field(alias="from")
    to: ResultPath
    overwrite: bool = Field(default=False, description="Replace a file that is there")


class Delete(Arguments):
    path: ResultPath
    recursive: bool = Field(default=False, description="Needed for folders that are not empty")
    missing_ok: bool = False


class Copy(Arguments):
    source: ResultPath = Field(alias="from")
    to: ResultPath
    overwrite: bool = Field(default=False, description="Replace a file that is there")


class Patch(Arguments):
    patch: str = Field(min_length=1, max_length=16 * MIB, description="A unified diff, as diff -u or git diff makes it")
    fuzz: int = Field(default=0, ge=0, le=2, description="Lines of context at a hunk's ends that may differ")
    strip: int | None = Field(
        default=None, ge=0, le=20, description="Folders to take off each name; if not given, git's a/ and b/"
    )


class Search(Arguments):
    pattern: str = Field(min_length=1, max_length=1000, description="A regular expression, found within a line")
    path: ResultPath = "."
    plain: bool = Field(default=False, description="The pattern is text to be found as it stands")
    ignore_case: bool = False
    glob: Glob | None = None
    context: int = Field(default=0, ge=0, le=10, description="Lines to show before and after each match")
    max_matches: int = Field(default=1000, ge=1, le=10_000, description="Lines found, in all")
    max_files: int = Field(default=10_000, ge=1, le=100_000, description="Files read")
    max_bytes: int = Field(default=64 * MIB, ge=1, le=1024 * MIB, description="Bytes read, in all")
    max_line: int = Field(default=500, ge=1, le=10_000, description="Characters shown of a line")


class WriteChange(Write):
    do: Literal["write"]


class EditChange(Edit):
    do: Literal["edit"]


class MoveChange(Move):
    do: Literal["move"]


class DeleteChange(Delete):
    do: Literal["delete"]


Change = WriteChange | EditChange | MoveChange | DeleteChange


class Apply(Arguments):
    changes: list[Annotated[Change, Field(discriminator="do")]] = Field(
        min_length=1, max_length=1000, description="Made in this order: all of them, or none"
    )


def problems(model: type[Arguments], arguments: Mapping[str, Any]) -> list[str]:
    """Everything wrong with the arguments, a sentence each."""
    try:
        model.model_validate(dict(arguments))
    except ValidationError as error:
        known = sorted(set(_names(model.model_json_schema())))
        return [_sentence(dict(e), known) for e in error.errors(include_url=False)]
    return []


_SENTENCES = {
    "missing": "{where} is missing",
    "string_type": "{where} must be text",
    "string_unicode": "{where} is not valid Unicode text",
    "list_type": "{where} must be a list",
    "too_short": "{where} must not be empty",
    "string_too_short": "{where} must not be empty",
    "too_long": "{where} has more than {max_length} entries",
    "string_too_long": "{where} is longer than {max_length} characters",
    "string_pattern_mismatch": "{where} must look like 0644",
    "literal_error": "{where} must be {expected}",
    "greater_than_equal": "{where} must be at least {ge}",
    "less_than_equal": "{where} must be at most {le}",
    "model_type": "{where} must be a mapping of arguments",
    "model_attributes_type": "{where} must be a mapping of arguments",
    "union_tag_not_found": "{where}.do is missing: one of write, edit, move, delete",
    "union_tag_invalid": "{where}.do must be one of write, edit, move, delete",
}


def _sentence(error: dict[str, Any], known: list[str]) -> str:
    where = _where(error["loc"])
    kind = str(error["type"])
    if kind == "extra_forbidden":
        near = nearest(str(error["loc"][-1]), known)
        return f"{where} is not known here" + (f": did you mean {near}?" if near else "")
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(where=where, **error.get("ctx", {}))
    if kind.startswith("int"):
        return f"{where} must be a whole number, not {shown(str(error['input']))}"
    if kind.startswith("bool"):
        return f"{where} must be true or false, not {shown(str(error['input']))}"
    text = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def _where(location: tuple[int | str, ...]) -> str:
    """`changes[2].path`; pydantic also names the kind of change, which the reader did not write there."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return re.sub(r"^(\.changes\[\d+\])\.(write|edit|move|delete)\b", r"\1", text).lstrip(".")


def _names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for part in schema.values():
            yield from _names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _names(part)


ResultPath = Annotated[str, Field(description="Relative to the working directory")]
Digest = Annotated[str, Field(description="Of the content, in hexadecimal digits")]
Kind = Literal["file", "directory", "link", "other"]


class FileSeen(Arguments):
    path: ResultPath
    content: str
    bytes: int = Field(description="How many were read; the next read starts behind them")
    truncated: bool = Field(description="Whether there is more")
    sha256: Digest
    size: int = Field(description="Bytes of the whole file")


class FolderEntry(Arguments):
    path: ResultPath
    type: Kind
    bytes: int
    modified: str = Field(description="Like 2026-01-31T12:00:00Z")


class FolderListing(Arguments):
    path: ResultPath
    entries: list[FolderEntry]
    truncated: bool = Field(description="Whether there are more")


class FileWritten(Arguments):
    path: ResultPath
    bytes: int = Field(description="Of the whole file")
    sha256: Digest
    created: bool


class Edited(Arguments):
    path: ResultPath
    replacements: list[int] = Field(description="How many each edit made")
    bytes: int
    sha256: Digest


class Moved(Arguments):
    source: ResultPath = Field(alias="from")
    to: ResultPath
    type: Kind
    replaced: bool


class Deleted(Arguments):
    path: ResultPath
    deleted: bool
    type: Kind | None


class Copied(Arguments):
    source: ResultPath = Field(alias="from")
    to: ResultPath
    type: Kind
    entries: int = Field(description="Files, links and folders, itself included")
    bytes: int = Field(description="Of all files")
    replaced: bool


class PatchedFile(Arguments):
    path: ResultPath
    change: Literal["created", "modified", "deleted", "renamed", "copied"]
    source: ResultPath | None = Field(alias="from", description="Where it was before, or is copied from")
    hunks: int
    offset: int = Field(description="How many lines a hunk stood away from where it said, at most")
    fuzz: int = Field(description="Lines of context that a hunk went without, at most")
    bytes: int = Field(description="Of the whole file")
    sha256: Digest | None


class Patched(Arguments):
    files: list[PatchedFile]


class Match(Arguments):
    path: ResultPath
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
    path: ResultPath
    matches: list[Match]
    files: int = Field(description="How many were read")
    skipped: Skipped
    truncated: bool = Field(description="Whether there may be more")
    limit: Literal["max_matches", "max_files", "max_bytes", "text"] | None = Field(
        description="Which limit ended the search; `text` is 4 MiB of lines given back"
    )


class WrittenChange(FileWritten):
    do: Literal["write"]


class EditedChange(Edited):
    do: Literal["edit"]


class MovedChange(Moved):
    do: Literal["move"]


class DeletedChange(Deleted):
    do: Literal["delete"]


class Applied(Arguments):
    changes: list[WrittenChange | EditedChange | MovedChange | DeletedChange]
