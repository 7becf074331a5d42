"""`config`: settings with the origin of each value, and changes of them that keep a file's comments."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Annotated, Any

from windlass.cli.command import Argument, Group, Option
from windlass.cli.session import AsJson, CommandEnd, Home, out, print_json, remember_home, say
from windlass.errors import UsageError
from windlass.homes import find_home, prepare_home, user_folder
from windlass.settings import Settings, load_settings
from windlass.settings.origins import settings_table, without_secrets
from windlass.settings.tables import nearest

__all__ = ["register"]

config_app = Group("config", help="Show and change settings.")
Key = Annotated[str, Argument(metavar="KEY", help="A setting like grace or budget.day")]
Value = Annotated[str, Argument(metavar="VALUE", help="As in TOML; other text is taken as it is")]
Project = Annotated[bool, Option("--project", help="In the project's file instead of your own")]


def register(app: Group) -> None:
    app.add_command(config_app)


def list_settings(
    every: Annotated[bool, Option("--all", help="Also those with their default value")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """List the settings that are set, with the origin of each value."""
    rows = [row for row in _rows(home) if every or row["origin"] != "default"]
    if as_json:
        print_json(rows)
    elif not rows:
        say("Nothing is set: every setting has its default value, see windlass config list --all")
    for row in rows if not as_json else ():
        out(f"{row['key']} = {_text(row['value'])}  ({row['origin']})")
    raise CommandEnd(0)


def get(key: Key, as_json: AsJson = False, home: Home = None) -> None:
    """Print the value of a setting, or of all settings of a table."""
    path = _path(key)
    rows = [row for row in _rows(home) if _under(row["key"], path)]
    if not rows:
        raise UsageError(f"{key!r} is not set")
    if as_json:
        print_json(rows)
    elif len(rows) == 1 and rows[0]["key"] == ".".join(path):
        value = rows[0]["value"]
        out(value if isinstance(value, str) else _text(value))
    else:
        for row in rows:
            out(f"{row['key']} = {_text(row['value'])}")
    raise CommandEnd(0)


def set_value(
    key: Key,
    value: Value,
    project: Project = False,
    home: Home = None,
) -> None:
    """Change a setting in your file, or in the project's."""
    from windlass.settings.edit import with_value

    path, meant = _path(key), _value(value)
    if isinstance(meant, float) and not math.isfinite(meant):
        raise UsageError(f"{key}: {value} is not a valid amount")
    shown = without_secrets(path, meant)
    line = f"{key} = {value if shown == meant else _text(shown)}"
    _write(path, lambda old: with_value(old, path, meant), line, project, home)


def add(
    key: Key,
    value: Value,
    project: Project = False,
    home: Home = None,
) -> None:
    """Add a value to a list, such as env_allow, in your file or in the project's."""
    from windlass.settings.edit import with_added

    path, meant = _path(key), _value(value)
    shown = without_secrets(path, [meant])
    told = value if shown == [meant] else _text(shown)
    row = next((row for row in _rows(home) if row["key"] == ".".join(path)), None)
    if row is not None and not isinstance(row["value"], list):
        raise UsageError(f"{key} is not a list", advice=(f"change it: windlass config set {key} VALUE",))
    file = (_folder(home) if project else user_folder()) / "config.toml"
    if row is not None and meant in row["value"] and row["origin"] in ("default", str(file)):
        say(f"{told} is already in {key} ({row['origin']})")
        raise CommandEnd(0)
    default = row["value"] if row is not None and row["origin"] == "default" else ()
    _write(path, lambda old: with_added(old, path, meant, default), f"{told} in {key}", project, home)


def unset(key: Key, project: Project = False, home: Home = None) -> None:
    """Remove a setting from your file, or from the project's: its default holds."""
    from windlass.settings.edit import without_value

    path = _path(key)
    _write(path, lambda old: without_value(old, path), f"{key} is gone", project, home)


def _write(path: list[str], change: Any, line: str, project: bool, home: str | None) -> None:
    from windlass.engine.requests import refusal_of
    from windlass.process import attempt_above
    from windlass.settings.edit import change_file

    if (source := attempt_above()) is not None:
        raise refusal_of(source)
    folder = _folder(home)
    file = (folder if project else user_folder()) / "config.toml"
    if project and not folder.is_dir():
        raise UsageError(f"there is no home of a project yet: {folder}", advice=("make one: windlass init",))
    if project:
        prepare_home(folder)  # an empty one is marked as the user's own before there is something in it
    change_file(
        file,
        change,
        f"change it yourself, in {file}: {line}",
        check=lambda text: _check(folder, file, text),
    )
    say(f"saved in {file}: {line}")
    rows = [row for row in _rows(home) if _under(row["key"], path)]
    for origin in sorted({row["origin"] for row in rows} - {"default", str(file)}):
        say(f"warning: another value holds here, from {origin}")
    raise CommandEnd(0)


def _check(home: Path, file: Path, text: str) -> None:
    load_settings(home, texts={file: text})


def _rows(home: str | None) -> list[dict[str, Any]]:
    folder = _folder(home)
    return settings_table(load_settings(folder), folder)


def _folder(home: str | None) -> Path:
    if home:
        remember_home(home)
    return find_home(home)


def _path(key: str) -> list[str]:
    """The names of a dotted key; quotes hold a name with dots together, as in `prices."gpt-4.1".input`."""
    try:
        found: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise UsageError(f"{key!r} is not a key: write it like grace or budget.day") from None
    path = []
    while isinstance(found, dict):
        ((name, found),) = found.items()
        path.append(name)
    if path[0] not in Settings.model_fields:
        raise UsageError(f"{key!r} is not a setting; {nearest(path[0], Settings.model_fields)}")
    return path


def _value(text: str) -> Any:
    """A value as TOML has it: a number, true, a list, a table; else the text itself."""
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return read["value"] if len(read) == 1 else text


def _under(key: str, path: list[str]) -> bool:
    wanted = ".".join(path)
    return key == wanted or key.startswith(f"{wanted}.")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


config_app.add(list_settings, "list")
config_app.add(get)
config_app.add(set_value, "set")
config_app.add(add)
config_app.add(unset)
