"""What the `http.*` tools are told."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from windlass.plan.quantities import GB, MB, Duration, Size, at_most, within
from windlass.tools.arguments import Arguments
from windlass.tools.net.names import read_address

__all__ = ["Download", "Fetch", "Send"]

Plain = str | int | float | bool
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e]{0,8192}")
_OURS = re.compile(
    r"(?i)accept-encoding|connection|content-length|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade"
)
"""Headers about the connection: who could set them could smuggle a second request into the first."""


class _Asking(Arguments):
    url: str = Field(description="The address, beginning with http:// or https://")
    params: dict[str, Plain | list[Plain]] = Field(default={}, description="Added to the query of the address")
    headers: dict[str, str] = Field(default={}, max_length=64)
    auth_env: str | None = Field(
        default=None, min_length=1, description="An environment variable that holds a bearer token"
    )
    follow: bool = Field(default=True, description="Follow redirects, at most 10")
    ok: list[Annotated[int, Field(ge=100, le=599)]] | None = Field(
        default=None, min_length=1, description="Statuses that mean success; otherwise 200 to 299"
    )

    @field_validator("url")
    @classmethod
    def _readable(cls, url: str) -> str:
        read_address(url)
        return url

    @field_validator("headers")
    @classmethod
    def _harmless(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not _TOKEN.fullmatch(name):
                raise ValueError(f"{name[:100]!r} is not the name of a header")
            if not _VALUE.fullmatch(value):
                raise ValueError(f"the value of {name} is longer than 8192 characters, or has some that no header has")
            if _OURS.fullmatch(name):
                raise ValueError(f"{name} is about the connection, and is not yours to set")
        if len({name.lower() for name in headers}) < len(headers):
            raise ValueError("a header is there twice")
        return {name.lower(): value.strip() for name, value in headers.items()}

    def good(self, status: int) -> bool:
        return status in self.ok if self.ok is not None else 200 <= status < 300


class Fetch(_Asking):
    timeout: Annotated[Duration, at_most("10m")] = Field(default=30.0, description="For all of it, redirects included")
    max_bytes: Annotated[Size, within(0, 64 * MB)] = Field(
        default=MB, description="Bytes of the body that are kept, decompressed; `truncated` says if there was more"
    )
    encoding: str | None = Field(
        default=None, max_length=40, description="The encoding of the text, or base64; otherwise as the answer says"
    )


class Send(Fetch):
    json_: Any = Field(default=None, alias="json", description="Sent as JSON")
    text: str | None = Field(default=None, description="Sent as plain text, or as the header Content-Type says")
    form: dict[str, Plain | list[Plain]] | None = Field(default=None, description="Sent as a form")
    base64: str | None = Field(default=None, description="Bytes to send, in base64")

    @model_validator(mode="after")
    def _one_body(self) -> Send:
        given = [name for name in ("json_", "text", "form", "base64") if name in self.model_fields_set]
        if len(given) > 1:
            raise ValueError(f"give one body: {' or '.join(name.strip('_') for name in given)}")
        return self


class Download(_Asking):
    path: str | None = Field(
        default=None, description="A file in the working directory; otherwise it is kept as an artifact"
    )
    name: str | None = Field(default=None, max_length=200, description="The name of the artifact")
    overwrite: bool = Field(default=True, description="Replace a file that is there")
    sha256: str | None = Field(default=None, pattern=r"^[0-9A-Fa-f]{64}$", description="What it must be")
    timeout: Annotated[Duration, at_most("6h")] = Field(default=600.0)
    max_bytes: Annotated[Size, within(1, 64 * GB)] = Field(
        default=GB, description="A larger file is a failure, and is not kept"
    )

    @model_validator(mode="after")
    def _one_place(self) -> Download:
        if self.path is not None and self.name is not None:
            raise ValueError("give `path` or `name`, not both")
        return self
