"""Text as it comes, and waits that are in sight (K8, A5)."""

from __future__ import annotations

import pytest

from windlass.cli.text import summary
from windlass.cli.view import PlainView, _line
from windlass.core import events as ev
from windlass.core.state import StepState
from windlass.core.view import step_view, waits_because, waits_for
from windlass.plan.model import Plan
from windlass.ports import Entry
from windlass.testing import Simulation

API = "Claude Code asks the model again in 1.0 s after 529 (1 of 10)"


@pytest.fixture
def run() -> Simulation:
    run = Simulation(Plan.model_validate({"steps": [{"id": "a", "agent": "developer", "prompt": "do it"}]}))
    run.start()
    return run


def step_of(run: Simulation) -> StepState:
    return run.state.steps["a"]


def output(run: Simulation, text: str, stream: str = "agent", at: float = 1.0) -> ev.OutputWritten:
    event = ev.OutputWritten(at, "a", 1, stream, text)
    run.state.apply(event)
    return event


@pytest.mark.parametrize(("stream", "reason"), [("wait.model", "model"), ("wait.place", "place")])
def test_k8_a_running_agent_that_waits_is_seen_to_wait_until_something_comes(
    run: Simulation, stream: str, reason: str
) -> None:
    output(run, f"{API}\n", stream)
    assert (waits_for(step_of(run)), waits_because(step_of(run))) == (reason, API)
    view = step_view(run.state, step_of(run))
    assert (view["status"], view["waiting_for"], view["waiting_because"]) == ("running", reason, API)
    assert f"  … a: {API}" in summary(run.state)
    output(run, "Hello")
    assert waits_for(step_of(run)) is None


@pytest.mark.parametrize(
    "event", [ev.AgentActed(1.0, "a", 1, "Bash", "ls"), ev.AgentSpoke(1.0, "a", 1, "x"), None], ids=str
)
def test_k8_the_wait_ends_with_the_models_answer_and_with_the_attempt(run: Simulation, event: ev.Event | None) -> None:
    output(run, API, "wait.model")
    if event is None:
        run.crash()
        run.resume()
    else:
        run.state.apply(event)
    assert waits_for(step_of(run)) != "model"


def test_k8_text_without_line_breaks_grows_and_its_end_is_shown(run: Simulation) -> None:
    for word in ("one ", "two ", "three "):
        output(run, word)
    assert step_of(run).last_output == "one two three "
    output(run, "x" * 2000 + " last words")
    assert len(step_of(run).last_output) == 500
    assert _line(step_of(run), 60).plain.endswith("last words")
    output(run, ".\nnext line\n")
    assert step_of(run).last_output == "next line"
    output(run, "another")
    assert step_of(run).last_output == "another"


def test_k8_plain_progress_shows_words_before_the_line_is_whole(
    run: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    with PlainView() as view:
        view.state = run.state

        def show(text: str, at: float, stream: str = "agent") -> str:
            event = ev.OutputWritten(at, "a", 1, stream, text)
            view.show(Entry(1, "e", 9, event), run.state)
            return "".join(line.partition("| ")[2] for line in capsys.readouterr().err.splitlines())

        assert show("some words", 1.0) == ""
        assert show(" more wo", 3.5) == "some words more"
        assert show("rds", 3.6) == ""
        assert show(" and a line\nbegun", 3.7) == "words and a line"
        assert show(" y" * 100, 3.8).startswith("begun y y")
        assert show("a line of a command " * 20, 9.0, "stdout") == ""
    assert capsys.readouterr().err.count("\n") == 2


def test_k8_the_words_of_an_agent_come_before_a_remark_about_them(
    run: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    with PlainView() as view:
        view.state = run.state
        for stream, text in (("agent", "It is done."), ("note", "check 1 of 5: failed\n")):
            view.show(Entry(1, "e", 9, ev.OutputWritten(1.0, "a", 1, stream, text)), run.state)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("| ")[2] for line in lines] == ["It is done.", "check 1 of 5: failed"]
