"""JSON Schemas of a Python function's parameters and result, made by pydantic."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_json

__all__ = ["ArgumentSchema", "PlainSchema"]


class PlainSchema(GenerateJsonSchema):
    """A default that JSON cannot hold (NaN, an object, half a character) is left out."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def encode_default(self, dft: Any) -> Any:
        json.loads(to_json(dft, inf_nan_mode="constants"), parse_constant=_not_finite)
        return super().encode_default(dft)


def _not_finite(constant: str) -> None:
    raise PydanticSerializationError(f"{constant} is no JSON")


class ArgumentSchema(PlainSchema):
    """A parameter that takes no data (an object as its default) is any value, and spoils no list of tools."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {}
