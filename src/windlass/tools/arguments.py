"""A tool's arguments as a pydantic model: one definition gives the schema and the checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = ["Arguments", "complaints"]


class Arguments(BaseModel):
    """Base of every tool's arguments: a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def complaints(model: type[BaseModel], arguments: Mapping[str, Any]) -> list[str]:
    """Everything wrong with the arguments, in plain words."""
    try:
        model.__pydantic_validator__.validate_python(arguments)
    except ValidationError as error:
        return [_plain(problem, model) for problem in error.errors(include_url=False)]
    return []


def _plain(problem: Any, model: type[BaseModel]) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    match problem["type"]:
        case "extra_forbidden":
            known = ", ".join(f.alias or name for name, f in model.model_fields.items())
            return f"{place!r} is not an argument; there are: {known}"
        case "missing":
            return f"argument {place!r} is missing"
        case _:
            message = str(problem["msg"]).removeprefix("Value error, ")
            return f"{place}: {message}" if place else message
