"""The reference pages of the site, made from the program itself: plan keys, commands and HTTP routes, as Markdown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import man_page
import openapi

from windlass.plan.schema import plan_schema

METHODS = ("get", "post", "put", "patch", "delete")


def plan_page() -> str:
    """Every key of a plan with its type and meaning, from the JSON Schema that editors use."""
    schema = plan_schema()
    kinds = schema.get("$defs", {})
    lines = [
        "# Plan reference",
        "",
        "Made from the JSON Schema that `windlass plan schema` prints. How to use the keys: [plans](../plans.md).",
        "",
    ]
    lines += ["## Plan", "", *_keys(schema)]
    for name, kind in kinds.items():
        if kind.get("properties"):
            lines += [f"## {name}", "", *([kind["description"], ""] if "description" in kind else []), *_keys(kind)]
        elif "enum" in kind:
            lines += [f"## {name}", "", ", ".join(f"`{word}`" for word in kind["enum"]), ""]
    return "\n".join(lines)


def _keys(schema: dict[str, Any]) -> Iterator[str]:
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    required = schema.get("required", ())
    for key, value in schema.get("properties", {}).items():
        default = (
            "needed" if key in required else _code(value["default"]) if value.get("default") not in (None, "") else ""
        )
        yield f"| `{key}` | {_type(value)} | {default} | {_cell(value.get('description', ''))} |"
    yield ""


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words; a named part links to its own section."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for joined in ("anyOf", "oneOf", "allOf"):
        if joined in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[joined] if one != {"type": "null"}))
    if "enum" in schema or "const" in schema:
        return ", ".join(_code(word) for word in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def commands_page() -> str:
    """Every command with its usage, arguments and options."""
    lines = [
        "# Command reference",
        "",
        "Made from the commands themselves, as their `--help` and the man page. Explained: [command line](../cli.md).",
        "",
    ]
    for called, command in man_page.commands(man_page.app, "windlass"):
        usage, shown = man_page.records(command, called)
        lines += [f"## {called}", "", "```text", f"{called} {usage}", "```", ""]
        for as_is, text in man_page.texts(command):
            lines += ["```text", text, "```", ""] if as_is else [_cell(text), ""]
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| {_code(names)} | {_cell(meaning)} |" for names, meaning in shown]
        lines.append("")
    return "\n".join(lines)


def http_page() -> str:
    """Every route with its parameters and answers, from the OpenAPI document of the server."""
    document: Any = asyncio.run(openapi.document())
    lines = [
        "# HTTP reference",
        "",
        "Made from the OpenAPI document at `/api/openapi.json`. How to use the routes: [server](../server.md).",
        "",
    ]
    for path, route in document["paths"].items():
        for method in (method for method in METHODS if method in route):
            lines += _route(f"{method.upper()} {path}", route[method])
    lines += ["# Values", ""]
    for name, kind in document["components"]["schemas"].items():
        if kind.get("properties"):
            lines += [
                f"## {name}",
                "",
                *([_cell(kind["description"]), ""] if "description" in kind else []),
                *_keys(kind),
            ]
        elif "enum" in kind:
            lines += [f"## {name}", "", ", ".join(_code(word) for word in kind["enum"]), ""]
        else:
            lines += [f"## {name}", "", _type(kind), ""]
    return "\n".join(lines)


def _route(head: str, route: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {head}", "", _cell(route.get("description") or route.get("summary", "")), "")
    if route.get("parameters"):
        yield from ("| parameter | in | type | meaning |", "|---|---|---|---|")
        for one in route["parameters"]:
            yield f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {_cell(one.get('description', ''))} |"
        yield ""
    for kind, content in route.get("requestBody", {}).get("content", {}).items():
        yield from (f"Body: {kind}, {_type(content.get('schema', {}))}", "")
    answers = ", ".join(f"{code} {_answer(answer)}" for code, answer in route["responses"].items())
    yield from (f"Answers: {answers}", "")


def _answer(answer: dict[str, Any]) -> str:
    types = [_type(content["schema"]) for content in answer.get("content", {}).values() if content.get("schema")]
    return f"({', '.join(types)})" if types else ""


def _code(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    """Text for one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
