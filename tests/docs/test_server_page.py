"""The page about the server holds: its commands are run, its tables are the server's own (I3)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import doc_pages
import pytest
from doc_pages import REPOSITORY, blocks, play

import windlass
from windlass.server.app import create_routes
from windlass.server.bodies import DEEPEST
from windlass.server.guard import MAX_BODY
from windlass.server.service import Service

PAGE = REPOSITORY / "docs" / "server.md"
AT_THE_DOOR = ("POST", "/api/login-links")
"""Answered by the guard, before the routes that the document of the API describes."""


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed here")
def test_i3_the_commands_of_the_page_do_what_it_says(
    project: Any, zygote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks are marked `curl`, not `test`: a machine without curl must not fail."""
    assert any(block.mark == "curl" for block in blocks(PAGE))
    page = Path(project.user) / "server.md"
    page.write_text(PAGE.read_text().replace("<!-- curl -->", "<!-- test -->"))
    monkeypatch.setattr(doc_pages, "REPOSITORY", page.parent)  # what failures are named after
    play(page, project.path, {**project.env, "PATH": f"{zygote.folder}:{project.env['PATH']}"})


@pytest.fixture
async def document(project: Any) -> dict[str, Any]:
    engine = windlass.open()
    try:
        return create_routes(Service(engine)).openapi()
    finally:
        await engine.close()


def test_i3_the_table_of_routes_is_the_servers_own(document: dict[str, Any]) -> None:
    there = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    named = set(re.findall(r"`(GET|POST) (/[^`]*)`", PAGE.read_text()))
    assert there | {AT_THE_DOOR, ("POST", "/hooks/{hook}")} == named


def test_i3_c5_the_document_has_every_form_that_it_names_and_errors_have_their_type(document: dict[str, Any]) -> None:
    forms = document["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert "Snapshot" in named
    assert named == set(forms)
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    routes = [route for methods in document["paths"].values() for route in methods.values()]
    errors = [answer for route in routes for code, answer in route["responses"].items() if code >= "400"]
    assert len(errors) > 400
    assert [answer for answer in errors if answer.get("content") != problem] == [
        {"description": "The journal cannot be used"}  # of /health, which programs ask that read no body
    ]


def test_i3_the_limits_on_the_page_are_the_servers_own() -> None:
    assert f"{MAX_BODY // 1024**2} MiB, nested at most {DEEPEST} levels" in PAGE.read_text()
