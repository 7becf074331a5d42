"""The site's reference pages are the program's own, and the recorded session of the README is one that we made."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest
from doc_pages import REPOSITORY
from jsonschema import Draft202012Validator

from windlass.plan.model import Plan, Step
from windlass.plan.schema import plan_schema

sys.path.insert(0, str(REPOSITORY / "scripts"))

import build_site
import reference

SESSION = REPOSITORY / "docs" / "images" / "session.svg"


def named(page: str, heading: str) -> set[str]:
    """The keys of the table beneath a heading."""
    part = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE))


def test_the_plan_reference_of_the_site_has_every_key() -> None:
    page = reference.plan_page()
    for heading, model in (("Plan", Plan), ("Step", Step)):
        assert named(page, heading) == {f.serialization_alias or key for key, f in model.model_fields.items()}


def test_the_command_reference_of_the_site_has_commands_and_their_options() -> None:
    page = reference.commands_page()
    assert {"--budget USD", "-i, --input KEY=VALUE"} <= named(page, "windlass run")
    assert "## windlass schedule why" in page


def test_the_http_reference_of_the_site_has_routes_with_their_values() -> None:
    page = reference.http_page()
    assert "\n## POST /api/executions\n" in page
    assert "[NewExecution](#newexecution)" in page
    linked, known = set(re.findall(r"\]\(#(\w+)\)", page)), set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    assert linked <= {name.lower() for name in known}


def test_every_page_of_the_documentation_is_in_the_sites_navigation() -> None:
    listed = set(re.findall(r"(docs/[\w./-]+\.md)", (REPOSITORY / "mkdocs.yml").read_text()))
    pages = {str(page.relative_to(REPOSITORY)) for page in (REPOSITORY / "docs").rglob("*.md")}
    decisions = {page for page in pages if page.startswith("docs/decisions/")}
    assert pages - decisions == listed - {page for page in listed if "/reference/" in page} - {
        "docs/decisions/README.md"
    }


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/a.js">',
        "@import '//example.org/a.css'",
        "<img alt='' src='http://example.org/a.png'>",
    ],
)
def test_a_page_that_loads_from_another_host_is_found(text: str) -> None:
    assert build_site.FOREIGN.search(text)
    assert not build_site.FOREIGN.search('<a href="https://example.org/">')


@pytest.mark.parametrize("kind", ["run: 'true'", "merge: a", "code: return 1", "prompt: Do it.", "tool: files.list"])
def test_b5_the_schema_for_editors_knows_every_kind_of_step(kind: str) -> None:
    key, _, value = kind.partition(": ")
    problems = [str(e) for e in Draft202012Validator(plan_schema()).iter_errors({"steps": [{"id": "b", key: value}]})]
    assert problems == []


def test_the_recorded_session_is_text_that_loads_nothing_and_ends_completed() -> None:
    drawing = ElementTree.fromstring(SESSION.read_text(encoding="utf-8"))
    assert not re.search(r"(?:href|src|url\()", SESSION.read_text(encoding="utf-8"))
    last = " ".join(drawing.findall("{http://www.w3.org/2000/svg}g")[-1].itertext())
    assert "release  completed: 3 completed" in last
    assert "kill -9" in " ".join(drawing.itertext())


@pytest.mark.soak
@pytest.mark.skipif(not build_site.MKDOCS.exists(), reason="mkdocs is not here: make site")
def test_the_site_is_built_and_a_link_to_no_heading_is_refused() -> None:
    build_site.gather()
    assert build_site.build() == []
    page = build_site.SOURCE / "docs" / "history.md"
    page.write_text(page.read_text() + "\n[there](plans.md#no-such-heading)\n")
    assert "#no-such-heading" in build_site.build()[0]
