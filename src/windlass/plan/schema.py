"""The shape of a plan, told to editors and to people.

- `plan_schema` is the JSON Schema that `windlass plan schema` prints, made from the models themselves.
- `explain` rewords pydantic's errors as `Complaint`s: no jargon, one for each root cause, with the
  nearest known key for the level where an unknown one stands.
- `kind_of` and `nearest` are the words that other complaints use, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from windlass.plan.model import (
    MAX_STEPS,
    Budget,
    Limits,
    Permits,
    Pick,
    Plan,
    Retry,
    Step,
    ToolCheck,
    WorkspaceChoice,
)
from windlass.plan.quantities import StepLimits
from windlass.plan.service import ServiceCheck
from windlass.plan.yamlread import Path
from windlass.values import CheckedValue, ValidationError, data_path

__all__ = ["Complaint", "explain", "keys_of", "kind_of", "nearest", "plan_schema", "wrong_value"]


def keys_of(model: type[CheckedValue]) -> list[str]:
    """Its fields by their names in data."""
    return [field.serialization_alias or name for name, field in model.model_fields.items()]


_LEVELS = {
    "plan": keys_of(Plan),
    "limits": keys_of(Limits),
    "step": keys_of(Step),
    "retry": keys_of(Retry),
    "budget": keys_of(Budget),
    "permissions": keys_of(Permits),
    "pick": keys_of(Pick),
    "limits of a step": keys_of(StepLimits),
}
_HOMES = {
    "plan": "it belongs at the top of the plan",
    "limits": "it belongs in the plan's `limits`",
    "step": "it belongs in a step",
    "retry": "it belongs in a step's `retry`",
    "budget": "it belongs in a `budget`",
    "permissions": "it belongs in a step's `permissions`",
    "pick": "it belongs in a step's `pick`",
    "limits of a step": "it belongs in a step's `limits`",
}
_SYNONYMS = {
    **dict.fromkeys(("depends_on", "dependsOn", "depends", "after"), "needs"),
    **dict.fromkeys(("cmd", "command", "shell", "script"), "run"),
    **dict.fromkeys(("js", "javascript", "program", "source"), "code"),
    **dict.fromkeys(("timeout", "time"), "wall"),
    **dict.fromkeys(("args", "arguments", "params", "parameters"), "with"),
    **dict.fromkeys(("if", "condition"), "when"),
    **dict.fromkeys(("loop", "for", "items"), "foreach"),
    **dict.fromkeys(("role", "subagent"), "agent"),
    **dict.fromkeys(("task", "instructions", "message"), "prompt"),
}
_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_FORMS = {
    "budget": "dollars like 2.50 or a mapping like {usd: 2.50, tokens: 500000}",
    "retry": "a whole number like 3 or a mapping like {max: 3, delay: 2s}",
    "workspace": "a word like worktree or a mapping like {kind: worktree}",
    "service": "true or a mapping like {port: 8080}",
    "watch": "a folder or a mapping like {path: inbox}",
    **dict.fromkeys(("needs", "grants", "models", "skills", "files", "protect", "tools"), "text or a list"),
}
"""Types of the fields that have a short form."""
_LIST_OF_ITEMS = "give a list, or an expression of one like inputs.names"
_LONGEST_WORD = 200
"""Nobody misspells longer ones, and to compare them takes memory."""
_UNIONS = ("run", "when", "foreach", "handoff", "only", "pick")
"""Fields of a step that take several types: pydantic's errors name the type that was tried, too."""


class Complaint(NamedTuple):
    """One thing wrong with the shape of a plan."""

    path: Path
    message: str
    hint: str = ""


_MOST_BITS = 10_000
"""Bits of a number that is shown: Python refuses to write one of more than 4,300 digits."""


def nearest(word: str, known: Iterable[str], like: float = 0.6) -> str | None:
    """The known word that was probably meant, of a likeness from 0 to 1 of at least `like`."""
    import difflib  # for those who made a mistake

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=like) if len(word) <= _LONGEST_WORD else []
    return found[0] if found else None


def kind_of(value: Any) -> str:
    """Describe a value in a person's words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() if value.bit_length() > _MOST_BITS:
            return "a number of thousands of digits"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value!r}" if len(value) <= 40 else f"the text {value[:37]!r}…"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a mapping"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def explain(data: Mapping[str, Any], error: ValidationError) -> Iterator[Complaint]:
    """Every error of a validation of `data` as a plan, in the plan's own words."""
    by_path: dict[Path, list[Any]] = {}
    for entry in error.errors(include_url=False):
        by_path.setdefault(_path(entry["loc"]), []).append(entry)
    # A field of several types complains of each type it tried: the deepest complaint is the one that helps.
    outer = {path[:depth] for path in by_path for depth in range(3, len(path))}
    unknown = [path for path, entries in by_path.items() if entries[0]["type"] == "extra_forbidden"]
    meant = {(*path[:-1], _meant(path)) for path in unknown}
    for path, entries in by_path.items():
        about = _Entry(data, path, entries)
        if path in outer:
            continue
        match entries[0]["type"]:
            case "extra_forbidden":
                yield about.unknown_key()
            case "missing":
                if path not in meant:  # else the misspelt key is told of
                    yield about.say(f"`{path[-1]}` is missing", path[:-1])
            case "too_short" if data["steps"]:
                continue  # pydantic counts only the steps that were good
            case "string_pattern_mismatch" if path[2:3] == ("needs",) and about.names_a_step():
                continue  # the step's own id is told of
            case _:
                yield about.wrong_value()


def wrong_value(path: Path, entries: list[Any]) -> Complaint:
    """Pydantic's errors about one value, in the words of a plan."""
    return _Entry({}, path, entries).wrong_value()


class _Entry:
    """Pydantic's errors at one path."""

    def __init__(self, data: Mapping[str, Any], path: Path, entries: list[Any]) -> None:
        self._data = data
        self._path = path
        entries = sorted(entries, key=lambda entry: entry["type"] != "value_error")  # it says the most
        self._types = [entry["type"] for entry in entries]
        self._texts = [_form(path, entry["type"]) or _choices(entry) or entry["msg"] for entry in entries]
        self._found = entries[0]["input"]
        self._context: dict[str, Any] = entries[0].get("ctx", {})

    def say(self, message: str, path: Path, hint: str = "") -> Complaint:
        subject = ""
        if path[:1] == ("steps",) and len(path) > 1:
            step = self._data["steps"][path[1]]
            name = step.get("id") if isinstance(step, dict) else None
            subject = f"step {name if isinstance(name, str) and name else int(path[1]) + 1}: "
        shown = message if len(message) <= 500 else f"{message[:497]}…"
        return Complaint(path, subject + shown, hint)

    def names_a_step(self) -> bool:
        steps = self._data["steps"]
        return any(isinstance(s, dict) and s.get("id") == self._found for s in steps)

    def unknown_key(self) -> Complaint:
        key, level = str(self._path[-1]), _level(self._path)
        at = "" if level in ("plan", "step") else f" in `{self._path[-2]}`"
        if _SYNONYMS.get(key) in _LEVELS[level]:
            hint = f"did you mean `{_SYNONYMS[key]}`?"
        elif home := next((_HOMES[home] for home, keys in _LEVELS.items() if key in keys), None):
            hint = home
        elif meant := _meant(self._path):
            hint = f"did you mean `{meant}`?"
        else:
            hint = f"known here: {', '.join(_LEVELS[level])}"
        return self.say(f"unknown key `{key}`{at}", self._path, hint)

    def wrong_value(self) -> Complaint:
        field, found = _field(self._path), self._found
        prefix = f"{field}: " if field else ""
        match self._types[0]:
            case "too_short":
                return self.say("`steps` is empty: a plan has at least one step", self._path)
            case "too_long":
                return self.say(f"a plan may have at most {MAX_STEPS:,} steps", self._path)
            case "string_pattern_mismatch":
                hint = "use letters, digits, _ and -, beginning with a letter or _"
                return self.say(f"{prefix}{found!r} is not a valid name", self._path, hint)
            case "string_too_short":
                return self.say(f"{field} is empty", self._path)
            case "string_too_long":
                most = self._context["max_length"]
                return self.say(f"{field} is longer than {most} characters", self._path)
            case "greater_than_equal":
                return self.say(f"{field} must be at least {self._context['ge']}, not {found}", self._path)
            case "less_than_equal":
                return self.say(f"{field} must be at most {self._context['le']}, not {found}", self._path)
            case "value_error":
                text = str(self._context["error"])
                named = re.match(r"`([\w.]+)`:? ", text)  # a step's complaint about one of its fields stands at it
                return self.say(f"{prefix}{text}", (*self._path, *named[1].split(".")) if named else self._path)
            case "enum":
                words = re.findall(r"'(.*?)'", self._context["expected"])
                meant = nearest(str(found), words)
                hint = f"did you mean `{meant}`?" if meant else ""
                expected = _either(words)
            case _:
                expected = _either(self._texts)
                unquoted = "text" in self._texts and isinstance(found, bool | int | float)
                hint = _LIST_OF_ITEMS if field == "`foreach`" else "put it in quotes" if unquoted else ""
        return self.say(f"{prefix}expected {expected}, found {kind_of(found)}", self._path, hint)


def _form(path: Path, wrong: str) -> str:
    """The types that a value at this path may have, if it has a wrong one."""
    short = _FORMS.get(str(path[-1])) if path and wrong in ("model_type", "tuple_type") else None
    return short or _EXPECTED.get(wrong, "")


def _choices(entry: Mapping[str, Any]) -> str:
    """The words that a field takes, where it takes few."""
    return str(entry["ctx"]["expected"]) if entry["type"] == "literal_error" else ""


def _path(loc: tuple[str | int, ...]) -> Path:
    """Pydantic's location as a path in the data, without the names of tried types."""
    if len(loc) > 3 and loc[0] == "steps" and loc[2] in _UNIONS:
        loc = (*loc[:3], *loc[4:])
    loc = data_path(loc)
    return loc[:-1] if loc[-1] == "[key]" else loc


def _level(path: Path) -> str:
    """The part of a plan that a key stands in."""
    within = path[2:-1] if path[0] == "steps" else path[:-1]
    inner = str(within[0]) if within else ""
    if inner == "limits" and path[0] == "steps":
        return "limits of a step"
    return inner if inner in _LEVELS else "step" if path[0] == "steps" else "plan"


def _meant(path: Path) -> str | None:
    """The known key that an unknown one probably stands for."""
    key, known = str(path[-1]), _LEVELS[_level(path)]
    synonym = _SYNONYMS.get(key)
    return synonym if synonym in known else nearest(key, known)


def _field(path: Path) -> str:
    """`retry.max` for `steps[2].retry.max`, where the subject says which step; nothing for a step itself."""
    inner = path[2:] if path[:1] == ("steps",) and len(path) > 1 else path
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in inner)
    return f"`{shown.removeprefix('.')}`" if shown else ""


def _either(words: Iterable[str]) -> str:
    *most, last = dict.fromkeys(" or ".join(words).split(" or "))
    return f"{', '.join(most)} or {last}" if most else last


def plan_schema() -> dict[str, Any]:
    """JSON Schema of plan files, for editors that complete and check while one types."""
    from windlass.plan.triggers import FolderWatch, Trigger, WebhookTrigger  # a plan holds them as data

    raw, trigger = Plan.model_json_schema(by_alias=True), Trigger.model_json_schema(by_alias=True)
    own = (Step, Limits, StepLimits, Retry, Budget, Permits, Pick, ToolCheck, WorkspaceChoice)
    models = {model.__name__: model for model in (*own, Trigger, FolderWatch, WebhookTrigger, ServiceCheck)}
    found = {**trigger.pop("$defs"), **raw.pop("$defs"), "Trigger": trigger}
    definitions = {name: _tidy(inner, models.get(name)) for name, inner in found.items()}
    raw["properties"]["triggers"]["items"] = {"$ref": "#/$defs/Trigger"}
    starts = trigger["properties"]
    starts["watch"] = _or_short(starts["watch"], {"type": "string"})
    step = definitions["Step"]
    step["oneOf"] = [{"required": [key]} for key in ("run", "tool", "prompt", "code", "merge")]
    for owner in (step["properties"], raw["properties"], starts):
        owner["budget"] = _or_short(owner["budget"], {"type": "number", "minimum": 0})
    for name in ("skills", "files", "models", "workspace"):
        step["properties"][name] = _or_short(step["properties"][name], {"type": "string"})
    for owner in (step["properties"], definitions["Pick"]["properties"]):
        owner["check"] = _or_short(owner["check"], {"type": "string"})
        owner["check"]["anyOf"].append({"$ref": "#/$defs/ToolCheck"})
    files = definitions["WorkspaceChoice"]["properties"]
    files["files"] = _or_short(files["files"], {"type": "string"})
    for name in ("grants", "protect"):
        forms = step["properties"][name]["anyOf"]
        step["properties"][name]["anyOf"] = [form for form in forms if form != {"type": "null"}] + [{"type": "string"}]
    listed = step["properties"]["needs"]
    step["properties"]["needs"] = _or_short(listed, listed["items"])
    step["properties"]["service"] = _or_short(step["properties"]["service"], {"const": True})
    retry = step["properties"]["retry"]
    step["properties"]["retry"] = _or_short(retry, {"type": "integer", "minimum": 0, "maximum": 100})
    plan = _tidy(raw, Plan)
    plan["properties"]["inputs"]["additionalProperties"] = False
    plan["properties"]["tools"] = _or_short(plan["properties"]["tools"], {"type": "string"})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **plan,
        "title": "Windlass plan",
        "description": "A graph of steps that Windlass runs, with inputs and limits.",
        "$defs": definitions,
    }


def _or_short(full: dict[str, Any], short: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field that may also be written in a shorter way."""
    notes = {key: value for key, value in full.items() if key in ("description", "default")}
    return {"anyOf": [{k: v for k, v in full.items() if k not in notes}, short], **notes}


def _tidy(schema: dict[str, Any], model: type[CheckedValue] | None) -> dict[str, Any]:
    """A model's schema without pydantic's made-up titles, with the words beneath its fields."""
    words = _words_beneath(model) if model is not None else {}
    for key, field in schema.get("properties", {}).items():
        field.pop("title", None)
        if field.get("default", ...) is None:
            del field["default"]
        if key in words:
            field["description"] = words[key]
    return schema


def _words_beneath(model: type[CheckedValue]) -> dict[str, str]:
    """Each field's own docstring, which Python itself throws away; those of what it inherits, too."""
    import ast
    import inspect
    import textwrap

    words: dict[str, str] = {}
    for base in model.__bases__:
        if issubclass(base, CheckedValue) and base is not CheckedValue:
            words |= _words_beneath(base)
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                words[model.model_fields[name].serialization_alias or name] = " ".join(text.split())
    return words
