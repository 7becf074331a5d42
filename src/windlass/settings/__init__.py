"""Settings: flags over environment over project over user (`config.toml` in the home and in the user's folder).

Every key can also be given as `WINDLASS_KEY` (a table as JSON). Problems are reported together. A key in `USER_ONLY` is
refused in a project's file: a repository that one clones must not widen what its steps get to see, name the programs
that run or the servers that are spoken to. Every other setting of a project can only be stricter than the user's own
or its default: see `settings.project`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

from windlass.errors import UsageError
from windlass.homes import user_folder
from windlass.homes.journal_url import PostgresUrl
from windlass.plan.quantities import Duration, Wait
from windlass.regular import read_regular
from windlass.runtimes import RUNTIMES, RuntimeName
from windlass.settings.project import FREE, RULES, stricter
from windlass.settings.tables import (
    LOCAL_CHANNELS,
    ApprovalSettings,
    BudgetSettings,
    ContextSettings,
    LimitSettings,
    NotifyRule,
    PermissionSettings,
    PriceSettings,
    RuntimeSettings,
    TelemetrySettings,
    nearest,
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
from windlass.values import After, CheckedValue, ValidationError, data_path

__all__ = [
    "ApprovalSettings",
    "BrowserSettings",
    "BudgetSettings",
    "ContextSettings",
    "LimitSettings",
    "LoadSettings",
    "McpServerSettings",
    "MessageSettings",
    "NetworkSettings",
    "NotifyRule",
    "PermissionSettings",
    "PriceSettings",
    "RuntimeSettings",
    "SearchSettings",
    "Settings",
    "TelemetrySettings",
    "ToolSettings",
    "load_settings",
    "settings_sources",
]


def _origin(text: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(text)
    bare = parts.username is None and not parts.query and not parts.fragment and text.isascii() and " " not in text
    if parts.scheme not in ("http", "https") or not parts.hostname or not bare:
        raise ValueError("it is an address like https://windlass.example.com")
    return text.rstrip("/")


def _journal(text: str) -> str:
    try:
        PostgresUrl(text)
    except UsageError as error:
        raise ValueError(error.message) from None
    return text


def _store(text: str) -> str:
    if re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,62}(/[^\s?#]*)?", text) or (os.path.isabs(text) and "\0" not in text):
        return text
    raise ValueError("it is the absolute path of a folder, or s3://BUCKET/PREFIX")


def _host_and_port(text: str) -> str:
    if not re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9._-]+):\d{1,5}(/[A-Za-z0-9._-]+)?", text):
        raise ValueError("it is an address like temporal.example.com:7233, or with a namespace …:7233/NAMESPACE")
    return text


def _variable(text: str) -> str:
    if not text or "=" in text:
        raise ValueError(f"{text[:80]!r} is not the name of a variable: it is a name like AWS_PROFILE, without a value")
    return text


class Settings(CheckedValue):
    """All settings. A table that nobody sets is its defaults as they stand here, and is not validated."""

    grace: Duration = 5.0
    """Seconds between the polite signal to a step's processes and their kill."""
    approval_expiry: Duration = 86400.0
    """Seconds that a request for approval stays open; unanswered, it fails closed."""
    pause_expiry: Duration | None = None
    """Seconds that an execution may stay paused. Unset: for ever."""
    on_pause_expiry: Literal["resume", "cancel"] = "cancel"
    """Action of `windlass clean` and every starting engine on executions paused for longer."""
    checkpoints: Literal["step", "stop", "off"] = "step"
    """Update of an execution's automatic checkpoint file: after each step, at each stop, or never."""
    env_allow: tuple[Annotated[str, After(_variable)], ...] = ()
    """Names of environment variables that steps may see, besides PATH, HOME, LANG and the like."""

    runtime: str | None = None
    """The runtime for agents that name none; see `windlass/runtimes.py`. A flag may also name a caller's own."""
    fallback: bool = True
    """Let another runtime of the same family take over when one cannot work."""
    wait_for_quota: bool = True
    """Wait until a used-up quota comes back, instead of pausing with exit code 6."""
    patience: Wait = 1800.0
    """Seconds that an agent waits for a model API that fails, unless its step says `retry: {patience: …}`."""
    budget: BudgetSettings = BudgetSettings.model_construct()
    context: ContextSettings = ContextSettings.model_construct()
    runtimes: dict[RuntimeName, RuntimeSettings] = {}
    prices: dict[str, PriceSettings] = {}
    """Prices of models by their id, in dollars per million tokens; they win over the ones we know."""
    permissions: PermissionSettings = PermissionSettings.model_construct()
    approvals: ApprovalSettings = ApprovalSettings.model_construct()
    tools: dict[str, ToolSettings] = {}
    """Terms of use of tools, by name or pattern; of several that fit, the longest comes first."""
    network: NetworkSettings = NetworkSettings.model_construct()
    search: SearchSettings = SearchSettings.model_construct()
    messages: MessageSettings = MessageSettings.model_construct()
    mcp: dict[str, McpServerSettings] = {}
    """MCP servers whose tools can be used, besides those of `.mcp.json` and `opencode.json` in trusted folders."""
    browser: BrowserSettings = BrowserSettings.model_construct()
    load: LoadSettings = LoadSettings.model_construct()
    telemetry: TelemetrySettings = TelemetrySettings.model_construct()
    notify: tuple[NotifyRule, ...] = ()
    """Rules of notifications; see `windlass.notify`."""
    journal: Annotated[str, After(_journal)] | None = None
    """The PostgreSQL database that holds the journal, like postgresql://USER@HOST/DATABASE. Unset: the home's file."""
    temporal: Annotated[str, After(_host_and_port)] | None = None
    """The Temporal server whose workers run executions, HOST:PORT or HOST:PORT/NAMESPACE. Unset: this process does."""
    store: Annotated[str, After(_store)] | None = None
    """The folder or bucket (s3://BUCKET/PREFIX) through which machines share files of agents. Unset: they stay."""
    public_url: Annotated[str, After(_origin)] | None = None
    """The address under which people reach `windlass serve`: links in notifications begin with it."""

    @property
    def price_table(self) -> dict[str, dict[str, float]]:
        """`prices` as plain numbers."""
        return {name: price.model_dump(exclude_none=True) for name, price in self.prices.items()}


USER_ONLY = Settings.model_fields.keys() - RULES.keys() - FREE
_LISTS = frozenset({"env_allow"})


def load_settings(
    home: Path,
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str] = os.environ,
    *,
    texts: Mapping[Path, str] | None = None,
) -> Settings:
    """`texts` stand for the contents of files, before they are written."""
    problems: list[str] = []
    user_file, project_file = user_folder(env) / "config.toml", home / "config.toml"
    user, project = (_read(file, problems, (texts or {}).get(file)) for file in (user_file, project_file))
    for key in sorted(USER_ONLY & project.keys()):
        reason = ": a project must not send anything anywhere" if key == "notify" else ""
        problems.append(f"{project_file}: `{key}` is allowed only in your own settings, not in a project's{reason}")
    own, theirs = _checked(user, f"{user_file}: ", problems), _checked(project, f"{project_file}: ", problems)
    if own is not None and theirs is not None:
        project = stricter(own, theirs, project)
    environment = _from_environment(env)
    for source, given in ((user_file, user), (project_file, project), ("WINDLASS_RUNTIME", environment)):
        if isinstance(name := given.get("runtime"), str) and name not in RUNTIMES:
            problems.append(f"{source}: `runtime`: there is no runtime {name[:80]!r}; {nearest(name, RUNTIMES)}")
    told = {**environment, **(flags or {})}
    origin = {key: "" if key in (flags or {}) else f"WINDLASS_{key.upper()}: " for key in told}
    settings = _checked({**user, **project, **told}, origin, problems)
    if settings is not None and settings.notify:
        problems += [origin.get("notify", f"{user_file}: ") + problem for problem in _misfits(settings)]
    if problems:
        text = "\n".join(f"  {problem}" for problem in problems)
        raise UsageError(
            f"invalid settings:\n{text}", advice=("correct them, or remove one from a file: windlass config unset KEY",)
        )
    assert settings is not None
    return settings


def settings_sources(
    home: Path, env: Mapping[str, str] = os.environ
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The settings as the user's file, the project's file and the environment give them, each by itself."""
    problems: list[str] = []  # told when they were loaded
    files = (user_folder(env) / "config.toml", home / "config.toml")
    user, project = (_read(path, problems) for path in files)
    return user, project, _from_environment(env)


def _misfits(settings: Settings) -> Iterator[str]:
    """Rules for notifications that do not fit the message services."""
    services = settings.messages.services
    for number, rule in enumerate(settings.notify):
        service = services.get(rule.to)
        mail = service is not None and service.smtp is not None
        if service is None and rule.to not in LOCAL_CHANNELS:
            hint = nearest(rule.to, [*LOCAL_CHANNELS, *services])
            yield f"`notify.{number}.to`: {rule.to[:80]!r} is not a message service; {hint}"
        elif mail and not rule.recipients:
            yield f"`notify.{number}.recipients` is missing: {rule.to!r} sends mail"
        elif rule.recipients and not mail:
            yield f"`notify.{number}.recipients` is for mail, and {rule.to!r} sends none"


def _checked(given: Mapping[str, Any], origin: str | Mapping[str, str], problems: list[str]) -> Settings | None:
    """Validate the settings of one source. Each problem is reported once: a wrong file, by that file."""
    if not given:
        return Settings.model_construct()
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        found: dict[Any, Any] = {}
        # Of the types that were tried for a value, the error of our own code says the most.
        for problem in sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "value_error"):
            found.setdefault(data_path(problem["loc"]), problem)
        for path, problem in found.items():
            where = origin if isinstance(origin, str) else origin.get(str(path[0]))
            if where is not None:
                problems.append(where + _plain(problem, path))
    return None


def _read(path: Path, problems: list[str], text: str | None = None) -> dict[str, Any]:
    try:
        text = read_regular(path).decode() if text is None else text
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
        return {}
    except UnicodeDecodeError as error:
        problems.append(f"{path}: {error}")
        return {}
    import tomllib  # most homes have no file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{path}: {error}")
        return {}


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in Settings.model_fields:
        value = env.get(f"WINDLASS_{key.upper()}")
        if value is not None:
            found[key] = [v for v in value.split(",") if v] if key in _LISTS else _table(value)
    return found


def _table(value: str) -> Any:
    """Read a table, or a list of them, from JSON; other text stays text."""
    if not value.startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _plain(problem: Any, path: tuple[str | int, ...]) -> str:
    key = ".".join(str(part) for part in path)
    if problem["type"] == "extra_forbidden":
        return f"`{key}` is not a setting; {nearest(str(path[-1]), _keys(path[:-1]))}"
    match problem["type"]:
        case "tuple_type" if tables := [*_tables(_hint(path))]:
            return f"`{key}` is a list of tables with {_keys_of(tables[0])}, like [{{…}}, {{…}}]"
        case "tuple_type":
            return f'`{key}` is a list, like ["A", "B"]; add one value: windlass config add {key} VALUE'
        case "model_type" if tables := [*_tables(_hint(path))]:
            return f"`{key}` is a table with {_keys_of(tables[0])}"
        case "missing":
            return f"`{key}` is missing"
    return f"`{key}`: {str(problem['msg']).removeprefix('Value error, ')}"


def _keys_of(table: type[CheckedValue]) -> str:
    return ", ".join(f"`{field.alias or name}`" for name, field in table.model_fields.items())


def _hint(path: tuple[str | int, ...]) -> Any:
    """The type of the value at this path; for a place in a list or a user's own name, that of the whole."""
    table: type[CheckedValue] = Settings
    hint: Any = None
    for part in path:
        hint = get_type_hints(table).get(str(part), hint)
        table = next(_tables(hint), table)
    return hint


def _keys(path: tuple[str | int, ...]) -> list[str]:
    """The keys of the table at this path; names that users choose, and places in a list, lead to no other table."""
    table: type[CheckedValue] = Settings
    for part in path:
        table = next(_tables(get_type_hints(table).get(str(part))), table)
    return [field.alias or name for name, field in table.model_fields.items()]


def _tables(hint: Any) -> Iterator[type[CheckedValue]]:
    if isinstance(hint, type) and issubclass(hint, CheckedValue):
        yield hint
    for inner in get_args(hint):
        yield from _tables(inner)
