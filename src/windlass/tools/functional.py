"""A tool from a model of its arguments and a function: most built-in tools are made with it.

The model gives the schema and the checks:

FunctionalTool("http.get", "Fetch a page or an API", Get, get, effect=Effect.NONE, result=Response)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Estimate, Health, Terms, Tool
from windlass.values import complaints

__all__ = ["Act", "Arguments", "FunctionalTool"]


class Arguments(BaseModel):
    """Base of every tool's arguments: a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


Act = Callable[[Any, Call], Awaitable[Any]]
"""Given the checked arguments and the call; returns plain data, or raises ToolError."""


class FunctionalTool(Tool):
    def __init__(
        self,
        name: str,
        description: str,
        model: type[Arguments],
        act: Act,
        *,
        effect: Effect | Callable[[Any], Effect] = Effect.NONE,
        result: type[Arguments] | None = None,
        terms: Terms | None = None,
        health: Callable[[], Awaitable[Health]] | None = None,
        estimate: Callable[[Any], Estimate] | None = None,
        check: Callable[[Any], list[str]] | None = None,
        circuit: Callable[[Any], str | None] | None = None,
        stateful: bool = False,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`effect` may depend on the arguments; `check` finds further faults; `circuit`: see `Tool.circuit`.
        A `stateful` tool answers by its earlier uses, and never from a cache. `close` may be called
        once for each tool that shares it."""
        self.name, self.description = name, description
        self.terms = terms or Terms()
        self._model, self._act = model, act
        self._effect, self._result = effect, result
        self._health, self._estimate, self._check = health, estimate, check
        self._circuit, self._close = circuit, close
        self.stateful = stateful

    @cached_property
    def schema(self) -> dict[str, Any]:
        return self._model.model_json_schema()

    @cached_property
    def returns(self) -> dict[str, Any] | None:
        return self._result.model_json_schema() if self._result is not None else None

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        if not callable(self._effect):
            return self._effect
        return Effect.ONCE if self.validate(arguments) else self._effect(self._given(arguments))

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        wrong = complaints(self._model, arguments)
        return wrong or (self._check(self._given(arguments)) if self._check is not None else [])

    def circuit(self, arguments: Mapping[str, Any]) -> str | None:
        if self._circuit is None:
            return self.name
        return None if self.validate(arguments) else self._circuit(self._given(arguments))

    def estimate(self, arguments: Mapping[str, Any]) -> Estimate:
        return self._estimate(self._given(arguments)) if self._estimate is not None else Estimate()

    async def health(self) -> Health | None:
        return await self._health() if self._health is not None else None

    async def close(self) -> None:
        if self._close is not None:
            await self._close()

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        if wrong := self.validate(arguments):
            advice = ("correct the arguments of the step",)
            raise ToolError(f"{self.name}: {'; '.join(wrong)}", category=Category.CONFIGURATION, advice=advice)
        return await self._act(self._given(arguments), call)

    def _given(self, arguments: Mapping[str, Any]) -> Arguments:
        return self._model.model_validate(dict(arguments))
