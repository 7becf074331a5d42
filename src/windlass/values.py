"""Checked values: frozen models as pydantic has them, on `pydantic_core` alone.

A plan, the settings and a command's arguments are checked by every `windlass run`. Pydantic's own classes take longer
to import and build than a small plan takes to run; what does the checking is its validator, written in Rust. A
`CheckedValue` describes its class to that validator when it is first used, and has the methods of `BaseModel` that are
used here. To pydantic it is a type like any other: the models of tools may hold one, and JSON Schemas are made there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import cache
from inspect import get_annotations
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from pydantic_core import SchemaSerializer, SchemaValidator, ValidationError

__all__ = [
    "After",
    "Before",
    "CheckedValue",
    "FieldBounds",
    "ValidationError",
    "ValueField",
    "complaints",
    "data_path",
    "field",
]

Schema = dict[str, Any]
"""A schema of `pydantic_core`."""
_REQUIRED: Any = object()


class Before:
    """Turns what was given into what the type takes: `Annotated[float, Before(parse_duration)]`."""

    def __init__(
        self, function: Callable[[Any], Any], json: Schema | None = None, serialize: Callable[[Any], Any] | None = None
    ) -> None:
        """`json` is the JSON Schema of what may be given, if it is not the type's own; `serialize` is the way back."""
        self._function, self._json, self._serialize = function, json, serialize

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        schema = {"type": "function-before", "function": _call(self._function), "schema": handler(source)}
        if self._serialize is not None:
            schema["serialization"] = {"type": "function-plain", "function": self._serialize}
        return schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(schema) if self._json is None else dict(self._json)


class After:
    """Checks a value that has the right type."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return {"type": "function-after", "function": _call(self._function), "schema": handler(source)}


class FieldBounds:
    """Bounds of a number, a text or a list, by pydantic's names: `ge`, `le`, `min_length`, `pattern` …"""

    def __init__(self, **bounds: Any) -> None:
        self._bounds = bounds

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return self._within(handler(source))

    def _within(self, schema: Schema) -> Schema:
        if schema["type"] == "nullable":
            return {**schema, "schema": self._within(schema["schema"])}
        return {**schema, **self._bounds}


class ValueField(NamedTuple):
    """A field of a `CheckedValue`."""

    default: Any = _REQUIRED
    default_factory: Callable[[], Any] | None = None
    alias: str | None = None
    """Its name in data, where that is no name for Python; the field's own name is understood, too."""
    bounds: FieldBounds | None = None

    @property
    def serialization_alias(self) -> str | None:
        return self.alias

    def fresh(self) -> Any:
        """The default, for one value alone."""
        if self.default_factory is not None:
            return self.default_factory()
        return self.default.copy() if isinstance(self.default, dict | list) else self.default

    def entry(self, name: str, inner: Schema) -> Schema:
        schema = inner
        if self.default_factory is not None:
            schema = {"type": "default", "default_factory": self.default_factory, "schema": inner}
        elif self.default is not _REQUIRED:
            schema = {"type": "default", "default": self.default, "schema": inner}
        names = {"validation_alias": [[self.alias], [name]], "serialization_alias": self.alias} if self.alias else {}
        return {"type": "model-field", "schema": schema, **names}


def field(
    *,
    default: Any = _REQUIRED,
    default_factory: Callable[[], Any] | None = None,
    key: str | None = None,
    **bounds: Any,
) -> Any:
    """A field with bounds, with a `key` of another name in data, or with a default that is made."""
    return ValueField(default, default_factory, key, FieldBounds(**bounds) if bounds else None)


class _Built:
    """An attribute of a class that is built when it is first used."""

    def __init__(self, build: Callable[[Any], Any]) -> None:
        self._build = build

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        built = self._build(owner)
        setattr(owner, self._name, built)
        return built


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class CheckedValue:
    """Base of frozen, checked values: the annotations of a class are its fields, and other keys are refused.

    The hooks `_before` and `_after` stand around the check of the fields.
    """

    __slots__ = ("__dict__", "__pydantic_extra__", "__pydantic_fields_set__", "__pydantic_private__")
    __pydantic_validator__: ClassVar[Any]
    __pydantic_serializer__: ClassVar[Any]
    model_config: ClassVar[dict[str, Any]] = {"extra": "forbid", "frozen": True}
    model_fields: ClassVar[dict[str, ValueField]] = {}

    def __init_subclass__(cls) -> None:
        own = [name for name, hint in get_annotations(cls).items() if "ClassVar" not in str(hint)]
        fields = dict(cls.model_fields)
        for name in own:
            given = cls.__dict__.get(name, _REQUIRED)
            fields[name] = given if isinstance(given, ValueField) else ValueField(given)
            if name in cls.__dict__:
                delattr(cls, name)
        cls.model_fields = fields
        for attribute, build in (("__pydantic_validator__", _validator), ("__pydantic_serializer__", _serializer)):
            built = _Built(build)
            built.__set_name__(cls, attribute)
            setattr(cls, attribute, built)

    def __init__(self, /, **data: Any) -> None:
        self.__pydantic_validator__.validate_python(data, self_instance=self)

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        checked: Self = cls.__pydantic_validator__.validate_python(data)
        return checked

    @classmethod
    def model_validate_json(cls, data: str | bytes) -> Self:
        checked: Self = cls.__pydantic_validator__.validate_json(data)
        return checked

    @classmethod
    def model_construct(cls, **values: Any) -> Self:
        """A value that is not checked: the defaults, and what is given over them."""
        missing = {name: field.fresh() for name, field in cls.model_fields.items() if name not in values}
        return _made(cls, {**missing, **values}, set(values))

    @classmethod
    def model_json_schema(cls, by_alias: bool = True) -> dict[str, Any]:
        from pydantic import TypeAdapter  # takes longer to import than most commands take

        return TypeAdapter(cls).json_schema(by_alias=by_alias)

    @property
    def model_fields_set(self) -> set[str]:
        """The fields that were given."""
        given: set[str] = self.__pydantic_fields_set__  # type: ignore[attr-defined]  # set by the validator
        return given

    @classmethod
    def _before(cls, data: Any) -> Any:
        """Change the data before it is checked."""
        return data

    def _after(self) -> Self:
        """Check the whole; raises ValueError."""
        return self

    def model_dump(self, **how: Any) -> dict[str, Any]:
        dumped: dict[str, Any] = self.__pydantic_serializer__.to_python(self, **how)
        return dumped

    def model_dump_json(self, **how: Any) -> str:
        dumped: bytes = self.__pydantic_serializer__.to_json(self, **how)
        return dumped.decode()

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """A copy with some fields changed; the changes are not checked."""
        changes = update or {}
        return _made(type(self), {**self._values(), **changes}, self.model_fields_set | changes.keys())

    def _values(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in type(self).model_fields}

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValidationError.from_exception_data(
            type(self).__name__, [{"type": "frozen_instance", "loc": (name,), "input": value}]
        )

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, CheckedValue):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values().items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self._values(), self.model_fields_set)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Describe the class to pydantic, which names and shares the schemas of the types within it."""
        return {**_schema(cls, handler.generate_schema), "ref": f"{cls.__module__}.{cls.__qualname__}:{id(cls)}"}


V = TypeVar("V", bound=CheckedValue)


def _made(kind: type[V], values: Mapping[str, Any], given: Collection[str]) -> V:
    made = object.__new__(kind)
    made.__dict__.update(values)
    for name, value in (("fields_set", set(given)), ("extra", None), ("private", None)):
        object.__setattr__(made, f"__pydantic_{name}__", value)
    return made


def _validator(kind: Any) -> SchemaValidator:
    return SchemaValidator(_own_schema(kind))


def _serializer(kind: Any) -> SchemaSerializer:
    return SchemaSerializer(_own_schema(kind))


def _call(function: Callable[[Any], Any]) -> Schema:
    return {"type": "no-info", "function": function}


def _schema(kind: Any, schema_of: Callable[[Any], Any]) -> Schema:
    """The schema of a class, with the types of its fields described by `schema_of`."""
    hints = _hints(kind)
    fields = {}
    for name, facts in kind.model_fields.items():
        hint = hints[name] if facts.bounds is None else Annotated[hints[name], facts.bounds]
        fields[name] = facts.entry(name, schema_of(hint))
    schema: Schema = {"type": "model-fields", "model_name": kind.__name__, "fields": fields}
    if kind._before.__func__ is not CheckedValue._before.__func__:  # type: ignore[attr-defined]  # a class method has one
        schema = {"type": "function-before", "function": _call(kind._before), "schema": schema}
    config = {"title": kind.__name__, "extra_fields_behavior": "forbid"}
    schema = {"type": "model", "cls": kind, "schema": schema, "config": config}
    if kind._after is not CheckedValue._after:
        schema = {"type": "function-after", "function": _call(kind._after), "schema": schema}
    return schema


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of its fields; `typing.get_type_hints` takes several times as long."""
    inherited = {} if kind.__base__ is CheckedValue else _hints(kind.__base__)
    return {**inherited, **get_annotations(kind, eval_str=True)}


@cache
def _own_schema(kind: type[Any]) -> Schema:
    return _schema(kind, _schema_of)


_PLAIN = {str: "str", int: "int", float: "float", bool: "bool", Any: "any", NoneType: "none"}


def _schema_of(hint: Any) -> Schema:
    """The schema of a type: of the few kinds that plans and settings are made of."""
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = _schema_of(inner[0])
        for note in inner[1:]:
            schema = note.__get_pydantic_core_schema__(inner[0], lambda _source, schema=schema: schema)
        return schema
    if origin in (Union, UnionType):
        choices = [_schema_of(choice) for choice in inner if choice is not NoneType]
        schema = choices[0] if len(choices) == 1 else {"type": "union", "choices": choices}
        return {"type": "nullable", "schema": schema} if NoneType in inner else schema
    if origin is Literal:
        return {"type": "literal", "expected": list(inner)}
    if origin is tuple:
        return {"type": "tuple", "items_schema": [_schema_of(inner[0])], "variadic_item_index": 0}
    if origin is list:
        return {"type": "list", "items_schema": _schema_of(inner[0])}
    if origin is dict:
        return {"type": "dict", "keys_schema": _schema_of(inner[0]), "values_schema": _schema_of(inner[1])}
    if issubclass(hint, CheckedValue):
        return _own_schema(hint)
    if issubclass(hint, Enum):
        return {"type": "enum", "cls": hint, "members": list(hint), "sub_type": "str"}
    return {"type": "is-instance", "cls": hint}


_TRIED = re.compile(r"(?:literal|function-\w+)\[.*\]")


def data_path(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Pydantic's location without the types that it tried for a duration, which may be 0, too."""
    return tuple(part for part in loc if not _TRIED.fullmatch(str(part)))


def complaints(model: Any, arguments: Mapping[str, Any]) -> list[str]:
    """Everything wrong with a tool's arguments, in plain words. `model` is a `CheckedValue`, or a model of pydantic."""
    try:
        model.__pydantic_validator__.validate_python(arguments)
    except ValidationError as error:
        return [_plain(problem, model) for problem in error.errors(include_url=False)]
    return []


def _plain(problem: Any, model: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    match problem["type"]:
        case "extra_forbidden":
            known = ", ".join(facts.alias or name for name, facts in model.model_fields.items())
            return f"{place!r} is not an argument; there are: {known}"
        case "missing":
            return f"argument {place!r} is missing"
        case _:
            message = str(problem["msg"]).removeprefix("Value error, ")
            return f"{place}: {message}" if place else message
