"""Settings with the origin of each value, for people to look at: a default, a file, the environment or the start.

Values under names that hold secrets are not told, whoever asks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from windlass.homes import user_folder
from windlass.homes.journal_url import PostgresUrl
from windlass.redact.redactor import holds_secret, is_secret_name
from windlass.settings import Settings, settings_sources

__all__ = ["HIDDEN", "settings_table", "without_secrets"]

HIDDEN = "(hidden)"
_SECRET = re.compile(r"token|secret|passw|credential|api_?key|auth|cookie|private", re.IGNORECASE)
_NAMES_ONE = re.compile(r"_env$|^env_allow$", re.IGNORECASE)
"""Keys that hold the name of a variable, not the secret in it."""
_WITH_PASSWORD = re.compile(r"//[^/@\s]*:[^/@\s]*@")


def settings_table(settings: Settings, home: Path, env: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    """One row for each value: `key`, `value`, `origin`."""
    user, project, environment = settings_sources(home, env)
    files = {"user": str(user_folder(env) / "config.toml"), "project": str(home / "config.toml")}
    defaults = dict(_leaves((), Settings().model_dump(mode="json")))
    rows = []
    for path, value in _leaves((), settings.model_dump(mode="json")):
        if path[0] in environment:
            origin = f"environment: WINDLASS_{path[0].upper()}"
        else:
            changed = path in defaults and defaults[path] != value
            sources = (("user", user), ("project", project))
            named = [files[name] for name, given in sources if _has(given, path, changed)]
            said_at_start = not named and changed
            origin = "given at the start" if said_at_start else " and ".join(named) or "default"
        rows.append({"key": ".".join(path), "value": _told(path, value), "origin": origin})
    return rows


def without_secrets(path: Sequence[str], value: Any) -> Any:
    """The value at a path of settings, as it may be shown."""
    if isinstance(value, dict) and value:
        return {name: without_secrets((*path, str(name)), part) for name, part in value.items()}
    return _told(tuple(path), value)


def _leaves(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _leaves((*path, str(name)), part)
    else:
        yield path, value


def _has(given: Any, path: tuple[str, ...], changed: bool) -> bool:
    for name in path:
        if not isinstance(given, Mapping):  # a value in the place of a table: `day = 5` for `day.usd`
            return changed
        if name not in given:
            return False
        given = given[name]
    return True


def _told(path: tuple[str, ...], value: Any) -> Any:
    names_one = any(_NAMES_ONE.search(part) for part in path)
    secret = any(_SECRET.search(part) for part in path) or (path[-2:-1] == ("env",) and is_secret_name(path[-1]))
    if secret and not names_one and isinstance(value, str | list) and value:
        return HIDDEN
    if path == ("journal",) and isinstance(value, str):
        return PostgresUrl(value).shown
    if isinstance(value, str):
        return HIDDEN if _has_secret(value) else value
    if isinstance(value, list):
        return [_argument(*pair) if isinstance(pair[1], str) else _table(pair[1]) for pair in pairwise(("", *value))]
    return value


def _argument(before: Any, value: str) -> str:
    """A text in a list: it may be the value of the option before it (`--token X`), or have one in it (`--token=X`)."""
    option, equals, given = value.partition("=")
    if option.startswith("-") and equals and given and is_secret_name(option):
        return f"{option}={HIDDEN}"
    follows = isinstance(before, str) and before.startswith("-") and "=" not in before and is_secret_name(before)
    return HIDDEN if follows or _has_secret(value) else value


def _has_secret(text: str) -> bool:
    return _WITH_PASSWORD.search(text) is not None or holds_secret(text)


def _table(value: Any) -> Any:
    """A table in a list, such as a rule of notifications."""
    return {name: _told((name,), part) for name, part in value.items()} if isinstance(value, dict) else value
