"""Hold a project's settings to the user's own: of the two values, the stricter one counts.

A project's file comes with a repository, and nobody was asked about it. `stricter` has a rule for each setting that a
project may give; a setting without a rule here, other than `FREE`, is the user's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from windlass.settings.tables import ApprovalSettings, BudgetSettings, LimitSettings

__all__ = ["FREE", "RULES", "stricter"]


class _Settings(Protocol):
    """Both files' settings, each complete with the defaults."""

    @property
    def on_pause_expiry(self) -> str: ...


FREE = frozenset({"runtime"})
"""A plan may name a runtime as well, and brings no other rights with it."""


def _budget(user: BudgetSettings, project: BudgetSettings) -> dict[str, Any]:
    scopes = ("step", "execution", "day", "month")
    asks = "on_overrun" in project.model_fields_set and project.on_overrun == "ask"
    # Without a figure the most that a call can cost is reserved, which is the strictest.
    reserve = None if user.reserve_usd is None else max(user.reserve_usd, project.reserve_usd or 0.0)
    return {
        **{scope: _limit(getattr(user, scope), getattr(project, scope)) for scope in scopes},
        "on_overrun": "ask" if asks else user.on_overrun,
        "reserve_usd": reserve,
    }


def _limit(user: LimitSettings, project: LimitSettings) -> dict[str, Any]:
    return {"usd": _least(user.usd, project.usd), "tokens": _least(user.tokens, project.tokens)}


def _least(user: float | None, project: float | None) -> float | None:
    return min((value for value in (user, project) if value is not None), default=None)


def _approvals(user: ApprovalSettings, project: ApprovalSettings) -> dict[str, Any]:
    added = {name: getattr(project, name) for name in project.model_fields_set}
    return {name: [*getattr(user, name), *added.get(name, ())] for name in ("always", "sensitive")}


_CHECKPOINTS = ("off", "stop", "step")

RULES: dict[str, Callable[[Any, Any], Any]] = {
    "grace": min,
    "approval_expiry": min,
    "pause_expiry": _least,
    "on_pause_expiry": lambda user, project: "resume" if user == project == "resume" else "cancel",
    "checkpoints": lambda user, project: max(user, project, key=_CHECKPOINTS.index),
    "fallback": lambda user, project: user and project,
    "wait_for_quota": lambda user, project: user and project,
    "patience": min,
    "budget": _budget,
    "approvals": _approvals,
}


def stricter(user: _Settings, project: _Settings, given: dict[str, Any]) -> dict[str, Any]:
    """Give a project's settings, each value no looser than the user's own or its default."""
    held = {key: RULES[key](getattr(user, key), getattr(project, key)) if key in RULES else given[key] for key in given}
    # An earlier end of a pause is stricter if it cancels; where it resumes, work goes on sooner.
    if "pause_expiry" in held and held.get("on_pause_expiry", user.on_pause_expiry) == "resume":
        del held["pause_expiry"]
    return held
