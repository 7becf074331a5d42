"""Your own functions as tools: `@tool` on a function, sync or async, is all it takes.

    @tool
    def word_count(text: str) -> int:
        return len(text.split())

The parameters' annotations become the schema; a parameter annotated `Call` receives the attempt it runs in.
A sync function runs in a thread: it may block, but it cannot be stopped from outside, so long ones should be
async or look at `call.stopping`. `tools_in` finds the functions in a file that a plan names.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import importlib.util
import inspect
import sys
import time
import typing
import warnings
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar, overload

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from windlass.errors import Category, ToolError, UsageError
from windlass.plan.model import Effect
from windlass.plan.schema import kind_of
from windlass.ports import Call, Meter, Tool, Toolbox
from windlass.tools.threads import in_thread
from windlass.values import complaints

__all__ = ["FunctionTool", "tool", "tools_in"]

Refresh = Callable[[], Awaitable[None] | None]
F = TypeVar("F", bound=Callable[..., Any])


class FunctionTool(Tool):
    """A Python function behind the `Tool` port. Calling it calls the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        effect: Effect | str = Effect.REPEATABLE,
        refresh: Refresh | None = None,
    ) -> None:
        self.function = function
        self._effect = Effect(effect)
        self.name = _name_of(function, name)
        self.description = description or (inspect.getdoc(_unbound(function)) or "").split("\n", 1)[0]
        self.file_hash = ""
        """SHA-256 of the file it was loaded from, when a plan names that."""
        self._refresh = refresh
        self.can_refresh = refresh is not None
        self._is_async = inspect.iscoroutinefunction(_written(function))
        self._model, self._call_name = _model_of(function, self.name)
        self._check = self._model.__pydantic_validator__.validate_python
        self._validated: tuple[Mapping[str, Any], dict[str, Any]] | None = None
        """The arguments found valid last, and as the function takes them: nearly always these are used next."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @cached_property
    def schema(self) -> dict[str, Any]:
        from windlass.tools.function_schema import ArgumentSchema  # takes a while to import

        return self._model.model_json_schema(schema_generator=ArgumentSchema)

    @cached_property
    def returns(self) -> dict[str, Any] | None:
        """JSON Schema of the result, where the function's annotation gives one."""
        from windlass.tools.function_schema import PlainSchema  # as above

        hint = typing.get_type_hints(_written(self.function), include_extras=True).get("return", Any)
        try:
            found = TypeAdapter(hint).json_schema(mode="serialization", schema_generator=PlainSchema)
        except (PydanticUserError, PydanticUndefinedAnnotation, TypeError):
            return None
        return found or None

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return self._effect

    def basis(self, arguments: Mapping[str, Any], workdir: Path, tools: Toolbox) -> dict[str, str]:
        """The function itself: by its file where a plan names one, else by its compiled code."""
        return {f"code {self.name}": self.file_hash or _code_hash(self.function)}

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        try:
            self._validated = arguments, self._check(arguments).__dict__
        except ValidationError:
            return complaints(self._model, arguments)
        return []

    async def refresh(self) -> None:
        waiting = self._refresh() if self._refresh is not None else None
        if waiting is not None:
            await waiting

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        known, self._validated = self._validated, None
        try:
            keywords = known[1] if known is not None and known[0] is arguments else self._check(arguments).__dict__
        except ValidationError:
            wrong = "; ".join(self.validate(arguments))
            raise ToolError(f"{self.name}: {wrong}", category=Category.CONFIGURATION) from None
        if self._call_name is not None:
            keywords[self._call_name] = call
        if self._is_async:
            return await self.function(**keywords)
        work = in_thread(lambda: _metered(self.function, keywords, call.meter))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # A thread cannot be stopped from outside. Say so to the function, and give it the grace period:
            # if it returns within that, its result is kept.
            call.stopping.set()
            done, _ = await asyncio.wait({work}, timeout=call.grace)
            if done:
                return work.result()
            call.output(
                "note", f"{self.name} is still running in its thread and cannot be stopped: check call.stopping\n"
            )
            raise


def _name_of(function: Callable[..., Any], name: str) -> str:
    """The name that it is given, or was written with. Refuses what cannot be a tool."""
    if not callable(function) or isinstance(function, FunctionTool):
        hint = "@tool(name=…) takes a name" if isinstance(function, str) else "write @tool above a function"
        raise UsageError(f"a tool is made of a function, and not of {kind_of(function)}", advice=(hint,))
    name = name or str(getattr(_unbound(function), "__name__", "<lambda>"))
    if name == "<lambda>":
        raise UsageError(f"{kind_of(function)} without a name cannot be a tool", advice=("write tool(name=…)(…)",))
    if inspect.isgeneratorfunction(_written(function)) or inspect.isasyncgenfunction(_written(function)):
        raise UsageError(f"tool {name}: it yields, and the result of a tool is one value", advice=("return a list",))
    return name


def _unbound(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without the arguments that `functools.partial` has given it."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that has the annotations and the code: of an object that can be called, its method for that."""
    inner = _unbound(function)
    return inner if hasattr(inner, "__name__") else type(inner).__call__


def _code_hash(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(_written(function)), "__code__", None)
    return hashlib.sha256(repr(_plain(code)).encode()).hexdigest() if code is not None else ""


def _plain(constant: Any) -> Any:
    """A function's code as plain data, which is the same in every process. (`marshal` gives no such promise.)"""
    if isinstance(constant, CodeType):
        return constant.co_code.hex(), constant.co_names, [_plain(inner) for inner in constant.co_consts]
    return sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)


def _metered(function: Callable[..., Any], keywords: dict[str, Any], meter: Meter) -> Any:
    """Run the function in this thread, and count the thread's computing."""
    before = time.thread_time()
    try:
        return function(**keywords)
    finally:
        meter.add(cpu=time.thread_time() - before)


def _model_of(function: Callable[..., Any], name: str) -> tuple[type[BaseModel], str | None]:
    try:
        hints = typing.get_type_hints(_written(function), include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise UsageError(f"tool {name}: its parameters cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    call_name = None
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(f"tool {name}: parameter {parameter} cannot be given by name")
        annotation = hints.get(parameter.name, Any)
        if annotation is Call or Call in typing.get_args(annotation):  # also `Call | None`
            call_name = parameter.name
            continue
        if parameter.name.startswith("_") or parameter.name == "model_config":
            raise UsageError(f"tool {name}: a parameter cannot be called {parameter.name}")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (annotation, default)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a parameter may be called `json` or `schema`
            return create_model(f"{name}_arguments", __config__=config, **fields), call_name
    except (ValidationError, TypeError, NameError) as error:
        raise UsageError(f"tool {name}: its parameters cannot be described: {error}") from error


@overload
def tool(function: F, /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str = ...,
    description: str = ...,
    effect: Effect | str = ...,
    refresh: Refresh | None = ...,
) -> Callable[[F], FunctionTool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool. `effect` says what recovery may repeat: none, repeatable or once."""
    if function is not None:
        return FunctionTool(function)
    return lambda decorated: FunctionTool(decorated, **options)


def tools_in(path: Path) -> list[FunctionTool]:
    """Run the file and collect what it decorated with `@tool`. Its folder must be trusted by now."""
    name = "windlass_tools_" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()  # before it runs: an edit meanwhile counts as a change
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # somebody's module may raise anything while it is imported
        line = _line_in(error, path)
        place = f"{path}:{line}" if line else str(path)
        raise UsageError(f"{place}: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, FunctionTool)]
    if not found:
        raise UsageError(
            f"{path} has no tools in it",
            advice=("decorate a function: from windlass import tool, then @tool",),
        )
    for each in found:
        each.file_hash = digest
    return found


def _line_in(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
