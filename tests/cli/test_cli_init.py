"""`init`: every template is a plan that checks and runs; nothing of the user's is overwritten (I1)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from windlass.cli.init import TEMPLATES
from windlass.errors import Category
from windlass.plan.load import load_plan
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Served, Windlass

QUIET = ("--progress", "quiet")


@pytest.mark.parametrize(
    ("template", "file", "text"),
    [
        ("first", "greeting.txt", "hello world\n"),
        ("ci", "published.txt", "0.1.0\n"),
        ("fan-out", "report.txt", "alpha: 5\nbeta: 4\ngamma: 5\n"),
        ("nightly", "", ""),
    ],
)
def test_i1_a_template_runs_as_it_is(project: Project, windlass: Windlass, template: str, file: str, text: str) -> None:
    windlass("init", template)
    checked = windlass("plan", "check", "plan.yaml").err
    assert re.fullmatch(r"plan.yaml is valid \(\d steps\)\n", checked), "no problem, and no warning"
    windlass("run", "plan.yaml", "--yes", *QUIET)
    if file:
        assert (project.path / file).read_text() == text
    else:
        assert len(list((project.path / "backups").glob("*.tar.gz"))) == 1


def test_i1_the_ci_template_publishes_what_was_tested_or_takes_it_back(project: Project, windlass: Windlass) -> None:
    windlass("init", "ci")
    windlass("run", "plan.yaml", *QUIET, code=3)
    windlass("approve", "@last", "publish")
    project.file("dist/version.txt", "changed after the yes")
    project.file("published.txt", "left by a release that failed")
    windlass("resume", "@last", *QUIET, code=1)
    assert not (project.path / "published.txt").exists()


def test_i1_a_template_is_not_written_into_a_json_file(project: Project, windlass: Windlass) -> None:
    assert "the templates are YAML" in windlass("init", "first", "--file", "plan.json", code=2).err
    assert not (project.path / "plan.json").exists()


def test_i1_the_templates_with_agents_run(project: Project, windlass: Windlass, served: Served) -> None:
    write = Reply.use("files__write", {"path": "hello.sh", "content": "echo hello\n"})
    model, env = served(write, Reply.say("Written."))
    windlass("init", "agent", "--file", "agent.yaml")
    assert "verified" in windlass("run", "agent.yaml", *QUIET, **env).err + windlass("status", "@last").out
    model.check()
    project.file("sources/ropes.txt", "Hemp is three times as thick as steel.")

    def answered(quote: str) -> Reply:
        text = json.dumps({"claims": [{"claim": "Steel is thinner.", "quote": quote, "source": "ropes.txt"}]})
        return Reply.use("files__write", {"path": "answer-0.json", "content": text})

    done = Reply.say("Answered.")
    model, env = served(answered("invented"), done, answered("three times as thick"), done)
    windlass("init", "research", "--file", "research.yaml")
    windlass("run", "research.yaml", "-i", 'questions=["How thick?"]', *QUIET, **env)
    model.check()
    assert any("not in sources/ropes.txt: invented" in str(request.body) for request in model.requests)
    report = (project.path / "REPORT.md").read_text()
    assert report.startswith("## How thick?\nSteel is thinner.\n> three times as thick (ropes.txt)\n")


def test_i1_the_nightly_template_retries_a_command_that_fails_and_raises_an_alarm(
    project: Project, windlass: Windlass
) -> None:
    windlass("init", "nightly")
    steps = {step.id: step for step in load_plan(project.path / "plan.yaml").plan.steps}
    assert steps["pack"].retry is not None
    assert Category.LOGIC in steps["pack"].retry.on
    project.file("data", "no folder, so nothing can be packed")
    windlass("run", "plan.yaml", *QUIET, code=1)
    assert (project.path / "alarm.txt").read_text() == "no backup tonight\n"


def test_i1_nothing_that_is_there_is_overwritten(project: Project, windlass: Windlass) -> None:
    project.file(".gitignore", "dist")
    windlass("init")
    assert (project.path / ".gitignore").read_text() == "dist\n.windlass/\n"
    project.file("plan.yaml", "mine")
    assert "plan.yaml exists, and is left as it is" in windlass("init", "ci", code=2).err
    assert (project.path / "plan.yaml").read_text() == "mine"
    (project.home / "config.toml").write_text("grace = 2\n")
    windlass("init", "ci", "--file", "ci.yaml")
    assert (project.home / "config.toml").read_text() == "grace = 2\n"
    assert (project.path / ".gitignore").read_text() == "dist\n.windlass/\n"
    assert "there is no template 'fanout'; did you mean `fan-out`?" in windlass("init", "fanout", code=2).err
    refused = windlass("init", "cj", code=2).err
    assert all(about in refused for about in TEMPLATES.values())
    assert "cannot be written" in windlass("init", "--file", "no/such/plan.yaml", code=2).err


@pytest.mark.parametrize("template", ["agent", "research"])
def test_i1_a_template_that_cannot_run_here_says_what_it_needs(
    project: Project, windlass: Windlass, template: str
) -> None:
    told = windlass("init", template, WINDLASS_RUNTIME="cli").err
    assert "it cannot run here yet: step " in told
    assert "  → export ANTHROPIC_API_KEY=… or OPENAI_API_KEY=…" in told
    assert told.splitlines()[-2:] == [
        "  → or without a key, with a script in place of the model: windlass scripted-model --help",
        "then run it: windlass run plan.yaml",
    ]
    ready = windlass("init", "first", "--file", "first.yaml").err
    assert "cannot run" not in ready
    assert ready.endswith("\nrun it: windlass run first.yaml\n")
