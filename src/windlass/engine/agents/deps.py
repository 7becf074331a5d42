"""Shared by every agent's attempt: the runtimes, where roles are found, the ledger, the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from windlass.clock import Clock
from windlass.core.decide import Policy
from windlass.ports import Brief, Handoff, Ledger, Media, Permissions, Runner
from windlass.settings import Settings

__all__ = ["AgentDeps", "BriefingSource", "RoleFacts"]


class RoleFacts(Protocol):
    """The engine's view of a role."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def runtime(self) -> str: ...
    @property
    def max_turns(self) -> int | None: ...
    @property
    def temperature(self) -> float | None: ...
    def narrow(self, permissions: Permissions, runtime: str) -> Permissions: ...


class BriefingSource(Protocol):
    """Finds roles and skills, and assembles prompts."""

    def role(self, name: str, workdir: Path) -> RoleFacts: ...

    def roles(self, workdir: Path) -> Mapping[str, str]:
        """The roles that can be used, each with its description."""
        ...

    def basis(self, workdir: Path, role: str, skills: Sequence[str]) -> dict[str, str]:
        """The role and the skills with their hashes, as far as they can be read."""
        ...

    def problems(self, workdir: Path, role: str, skills: Sequence[str]) -> list[str]: ...

    def brief(
        self,
        *,
        task: str,
        workdir: Path,
        role: str,
        skills: Sequence[str],
        files: Sequence[str],
        handoff: Sequence[Handoff],
        before: str,
        reads_rules_itself: bool,
        allow_absolute: bool,
        media: Media,
        room: int | None,
    ) -> Brief: ...

    def go_on(self, *, role: str, workdir: Path, reason: str, answer: str, before: str) -> Brief: ...


class AgentDeps(Protocol):
    """Services that an attempt of an agent needs."""

    @property
    def runners(self) -> Mapping[str, Runner]: ...
    @property
    def briefing(self) -> BriefingSource: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def trusted(self) -> Callable[[Path], bool]: ...
    def misfits(self, arguments: Mapping[str, Any], workdir: Path) -> list[str]: ...
    @property
    def release_dead(self) -> Callable[[], Awaitable[None]]: ...
