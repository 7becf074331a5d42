"""The OpenAPI document of the server, made when somebody asks for it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from pydantic.json_schema import models_json_schema

from windlass.server import answer_models

__all__ = ["DescribedApp"]


class DescribedApp(FastAPI):
    """Routes that name the forms of their answers (`routes.shared.returns`), and the document that has these forms."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is not None:
            return self.openapi_schema
        document = super().openapi()
        told = [getattr(answer_models, name) for name in answer_models.__all__]
        _, found = models_json_schema(
            [(model, "serialization") for model in told], ref_template="#/components/schemas/{model}"
        )
        document["components"]["schemas"] |= jsonable_encoder(found["$defs"], exclude_none=True)
        return document
