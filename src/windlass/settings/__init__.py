"""Settings: flags over environment over project over user (`config.toml` in the home and in the user's folder).

Every key can also be given as `WINDLASS_KEY` (a table as JSON). All problems are told at once. A key in `USER_ONLY` is
refused in a project's file: a repository that one clones must not widen what its steps get to see, name the programs
that run or the servers that are spoken to. A `budget` in a project's file can only lower the user's own limits.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from windlass.errors import UsageError
from windlass.homes import user_folder
from windlass.plan.model import Duration
from windlass.settings.tables import (
    ApprovalSettings,
    BudgetSettings,
    LimitSettings,
    PermissionSettings,
    PriceSettings,
    RuntimeSettings,
)
from windlass.settings.tools import (
    BrowserSettings,
    LoadSettings,
    McpServerSettings,
    MessageSettings,
    NetworkSettings,
    SearchSettings,
    ToolSettings,
)

__all__ = [
    "ApprovalSettings",
    "BrowserSettings",
    "BudgetSettings",
    "LimitSettings",
    "LoadSettings",
    "McpServerSettings",
    "MessageSettings",
    "NetworkSettings",
    "PermissionSettings",
    "PriceSettings",
    "RuntimeSettings",
    "SearchSettings",
    "Settings",
    "ToolSettings",
    "load_settings",
]


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    grace: Duration = 5.0
    """Between the polite signal to a step's processes and their kill."""
    approval_expiry: Duration = 86400.0
    """How long a request for approval stays open; unanswered, it fails closed."""
    pause_expiry: Duration | None = None
    """How long an execution may stay paused. Unset: for ever."""
    on_pause_expiry: Literal["resume", "cancel"] = "cancel"
    """What `windlass clean` and every starting engine do with those paused for longer."""
    checkpoints: Literal["step", "stop", "off"] = "step"
    """When the automatic checkpoint file of an execution is brought up to date: after each step, or at each stop."""
    env_allow: tuple[str, ...] = ()
    """Names of environment variables that steps may see, besides PATH, HOME, LANG and the like."""

    runtime: str | None = None
    """The runtime for agents that name none: claude-code, open-code or cli."""
    fallback: bool = True
    """Whether another runtime of the same family takes over when one cannot."""
    wait_for_quota: bool = True
    """Wait until a used-up quota comes back, instead of pausing with exit code 6."""
    budget: BudgetSettings = BudgetSettings()
    runtimes: dict[Literal["claude-code", "open-code", "cli"], RuntimeSettings] = {}
    prices: dict[str, PriceSettings] = {}
    """Prices of models by their id, in dollars per million tokens; they win over the ones we know."""
    permissions: PermissionSettings = PermissionSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    tools: dict[str, ToolSettings] = {}
    """On which terms tools are used, by name or pattern; of several that fit, the longest comes first."""
    network: NetworkSettings = NetworkSettings()
    search: SearchSettings = SearchSettings()
    messages: MessageSettings = MessageSettings()
    mcp: dict[str, McpServerSettings] = {}
    """MCP servers whose tools can be used, besides those of `.mcp.json` and `opencode.json` in trusted folders."""
    browser: BrowserSettings = BrowserSettings()
    load: LoadSettings = LoadSettings()


USER_ONLY = frozenset(
    {"env_allow", "runtimes", "prices", "permissions"}
    | {"tools", "network", "search", "messages", "mcp", "browser", "load"}  # whom one speaks to, and on which terms
)
_LISTS = frozenset({"env_allow"})


def load_settings(home: Path, flags: Mapping[str, Any] | None = None, env: Mapping[str, str] = os.environ) -> Settings:
    problems: list[str] = []
    user_file, project_file = user_folder(env) / "config.toml", home / "config.toml"
    user, project = _read(user_file, problems), _read(project_file, problems)
    for key in sorted(USER_ONLY & project.keys()):
        problems.append(f"{project_file}: `{key}` may only stand in the user's own settings")
    if isinstance(user.get("budget"), dict) and isinstance(project.get("budget"), dict):
        project["budget"] = _lower(user["budget"], project["budget"])
    if isinstance(user.get("approvals"), dict) and isinstance(project.get("approvals"), dict):
        project["approvals"] = _joined(user["approvals"], project["approvals"])
    environment = _from_environment(env)
    merged = {**user, **project, **environment, **(flags or {})}
    origins = {
        **dict.fromkeys(user, f"{user_file}: "),
        **dict.fromkeys(project, f"{project_file}: "),
        **{key: f"WINDLASS_{key.upper()}: " for key in environment},
        **dict.fromkeys(flags or {}, ""),
    }
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems += [origins.get(str(problem["loc"][0]), "") + _plain(problem) for problem in found]
    if problems:
        text = "\n".join(f"  {problem}" for problem in problems)
        raise UsageError(f"the settings have problems:\n{text}")
    return settings


def _read(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"{path}: {error}")
        return {}
    return found


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in Settings.model_fields:
        value = env.get(f"WINDLASS_{key.upper()}")
        if value is not None:
            found[key] = [v for v in value.split(",") if v] if key in _LISTS else _table(value)
    return found


def _lower(user: dict[str, Any], project: dict[str, Any]) -> dict[str, Any]:
    """The user's budget with what the project makes tighter. What is malformed stays, to be told of."""
    merged = {**user, **project}
    for scope in ("step", "execution", "day", "month"):
        ours, theirs = _limit(user.get(scope)), _limit(project.get(scope))
        if ours is not None and theirs is not None:
            merged[scope] = {
                unit: min(limits)
                for unit in ("usd", "tokens")
                if (limits := [limit[unit] for limit in (ours, theirs) if limit.get(unit) is not None])
            }
    merged["on_overrun"] = user.get("on_overrun", "ask")
    return merged


def _joined(user: dict[str, Any], project: dict[str, Any]) -> dict[str, Any]:
    """The lists of both. What is malformed stays, to be told of."""
    both = {**user, **project}
    for name in user.keys() & project.keys():
        if isinstance(user[name], list) and isinstance(project[name], list):
            both[name] = [*user[name], *project[name]]
    return both


def _limit(value: Any) -> dict[str, Any] | None:
    try:
        return LimitSettings.model_validate(value).model_dump()
    except ValidationError:
        return None


def _table(value: str) -> Any:
    """A table is written as JSON; what is none stays text."""
    if not value.startswith("{"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _plain(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, Settings.model_fields, 1)
        hint = f"did you mean `{near[0]}`?" if near else "known: " + ", ".join(Settings.model_fields)
        return f"`{key}` is not a setting; {hint}"
    return f"`{key}`: {str(problem['msg']).removeprefix('Value error, ')}"
