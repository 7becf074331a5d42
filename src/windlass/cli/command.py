"""Commands as functions: the annotation of each parameter says which option or argument it is.

    def pause(execution: Annotated[str, Argument(metavar="ID")], now: Annotated[bool, Option("--now")] = False) -> None:
        \"""Pause: let running steps finish, start no new ones.\"""

Click parses the line and writes the help. A parameter annotated with `click.Context` is given the context.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import click
import msgspec

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["Argument", "Group", "Option"]

HELP = {"help_option_names": ["-h", "--help"]}
F = TypeVar("F", bound=Callable[..., None])


class Argument(msgspec.Struct, frozen=True):
    """A word of the command line by its place."""

    metavar: str = ""
    help: str = ""
    complete: Callable[[click.Context, str], list[CompletionItem]] | None = None
    """Words that begin as given, for completion in a shell; the context has the words before it."""

    def parameter(self, name: str, kind: Any, default: Any, many: bool) -> click.Parameter:
        shown = self.metavar or name.upper()
        required = default is inspect.Parameter.empty
        complete = self.complete
        return click.Argument(
            [name],
            type=_type_of(kind, None, None),
            required=required,
            **({} if required else {"default": default}),  # Click takes a default of None for a value that was given
            nargs=-1 if many else 1,
            metavar=f"{shown if required else f'[{shown}]'}{'...' if many else ''}",
            shell_complete=None if complete is None else lambda context, _param, begun: complete(context, begun),
            help=self.help or None,
        )


class Option:
    """A flag, or a value with a name. Of a name like `--user/--project` the second half switches it off."""

    def __init__(
        self,
        *names: str,
        help: str = "",
        metavar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        callback: Callable[[Any], Any] | None = None,
    ) -> None:
        self._names = names
        self._help = help
        self._metavar = metavar
        self._range = (min, max)
        self._callback = callback

    def parameter(self, name: str, kind: Any, default: Any, many: bool) -> click.Parameter:
        callback, flag = self._callback, kind is bool
        return click.Option(
            [name, *self._names],
            type=None if flag else _type_of(kind, *self._range),
            is_flag=flag,
            default=str(default) if isinstance(default, Enum) else default,
            multiple=many,
            help=self._help,
            metavar=self._metavar,
            show_default=not flag and default not in (None, ""),
            callback=None if callback is None else lambda _context, _param, value: callback(value),
        )


class _OneOf(click.Choice[str]):
    """The values of an enumeration."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__([str(member.value) for member in kind], case_sensitive=False)
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if isinstance(value, self._kind) else self._kind(super().convert(value, param, ctx))


class Group(click.Group):
    """Commands beneath one name. `main_function` gives it options, and something to do without a command."""

    def __init__(self, name: str | None = None, help: str = "", **given: Any) -> None:
        super().__init__(name, help=help, context_settings=HELP, **given)

    def add(self, function: F, name: str = "", *, help: str = "", hidden: bool = False) -> F:
        """Make a command of a function; its name and its docstring stand in for a name and a help."""
        params, call = _read(function)
        text = help or inspect.cleandoc(function.__doc__ or "")
        self.add_command(click.Command(name or function.__name__, HELP, call, params, text, hidden=hidden))
        return function

    def main_function(self, function: F) -> F:
        """Give the group the options of this function; it is called before a command, and alone without one."""
        self.params, self.callback = _read(function)
        self.invoke_without_command, self.no_args_is_help = True, False
        return function

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _read(function: Callable[..., None]) -> tuple[list[click.Parameter], Callable[..., None]]:
    """The parameters of a function, and how to call it with what Click has parsed."""
    hints = get_type_hints(function, include_extras=True)
    params, lists, context = [], [], ""
    for name, parameter in inspect.signature(function).parameters.items():
        kind, *declared = get_args(hints[name]) if hasattr(hints[name], "__metadata__") else (hints[name],)
        if kind is click.Context:
            context = name
            continue
        kind = _without_none(kind)
        many = get_origin(kind) is list
        kind = get_args(kind)[0] if many else kind
        declaration = declared[0] if declared else Argument()
        params.append(declaration.parameter(name, kind, parameter.default, many))
        lists += [name] if many else []

    if any(param.name == "home" for param in params):
        hidden = function.__name__ != "options"
        text = "PostgreSQL address of the journal (default: the home's own file)"
        params.append(_handed_on("--journal", "URL", text, hidden=hidden))
        params.append(_handed_on("--temporal", "HOST:PORT", "Temporal server whose workers run it", hidden=hidden))

    def call(**given: Any) -> None:
        function(**_called_with(given, lists), **({context: click.get_current_context()} if context else {}))

    return params, call


def _handed_on(name: str, metavar: str, text: str, *, hidden: bool) -> click.Option:
    """An option of every command that takes a home. It is handed on in the environment, as `--home` is."""
    variable = f"WINDLASS_{name.removeprefix('--').upper()}"

    def use(_context: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value:
            os.environ[variable] = value

    return click.Option([name], metavar=metavar, help=text, expose_value=False, callback=use, hidden=hidden)


def _called_with(given: dict[str, Any], lists: Sequence[str]) -> dict[str, Any]:
    return {name: (list(value) or None) if name in lists else value for name, value in given.items()}


def _without_none(kind: Any) -> Any:
    if get_origin(kind) is UnionType:
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    return kind


def _type_of(kind: Any, least: float | None, most: float | None) -> click.ParamType[Any]:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _OneOf(kind)
    if kind is Path:
        return click.Path(path_type=Path)
    if kind is int:
        whole = click.IntRange(least if least is None else int(least), most if most is None else int(most))
        whole.name = "whole number"  # click's word is "integer range"
        return whole
    if kind is float:
        number = click.FloatRange(least, most)
        number.name = "number"
        return number
    return click.STRING
