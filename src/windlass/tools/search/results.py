"""What `search` is told, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator

from windlass.tools.arguments import Arguments
from windlass.tools.net.names import host_of

__all__ = ["Found", "Hit", "Recency", "Result", "Search"]

Recency = Literal["day", "week", "month", "year"]


class Search(Arguments):
    query: str = Field(min_length=1, max_length=400)
    limit: int = Field(default=10, ge=1, le=50, description="Results at most")
    site: str | None = Field(default=None, description="Only pages of this host")
    recency: Recency | None = Field(default=None, description="Only what is no older")

    @field_validator("query")
    @classmethod
    def _says_something(cls, query: str) -> str:
        plain = " ".join("".join(char if char.isprintable() else " " for char in query).split())
        if not plain:
            raise ValueError("there is nothing to look for")
        return plain

    @field_validator("site")
    @classmethod
    def _is_a_host(cls, site: str | None) -> str | None:
        return host_of(site) if site is not None else None

    @property
    def words(self) -> str:
        """The query as services take it that know `site:`."""
        return f"{self.query} site:{self.site}" if self.site is not None else self.query


@dataclass(frozen=True, slots=True)
class Hit:
    """One result as a service gives it: nothing of it is trusted."""

    title: object
    url: object
    snippet: object
    published: object = None


class Found(Arguments):
    title: str
    url: str
    snippet: str
    provider: str
    published: str | None = None
    """When, in the words of the service."""


class Result(Arguments):
    query: str
    provider: str
    """Who answered."""
    results: list[Found]
    notes: list[str]
    """Who did not, and why."""
