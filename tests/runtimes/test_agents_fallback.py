"""One real runtime takes over from the other (A7), in both directions, and the user is told every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from agent_project import CLAUDE, OPEN, agent, program, serving, told, with_program
from opencode_fixtures import needs_opencode

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

pytestmark = needs_opencode


@pytest.mark.parametrize(("named", "instead"), [pytest.param(CLAUDE, OPEN, marks=pytest.mark.soak), (OPEN, CLAUDE)])
def test_a7_a_runtime_that_does_not_work_is_stood_in_for_and_that_is_said(
    project: Project, windlass: Windlass, named: str, instead: str
) -> None:
    """One is not there at all; the other is there and says nonsense."""
    missing = str(project.user / "nowhere")
    path = missing if named == OPEN else program(project.user / "claude", "echo I am a teapot")
    with serving(project, [Reply.say("Done by the other.")]) as model:
        with_program(project, named, path)
        ran = windlass("run", "--task", "do it", "--runtime", named, "--json")
    model.check()
    step, who = agent(ran)
    assert (step["output"], who["runtime"], step["attempts"]) == ("Done by the other.", instead, 1)
    (fell,) = told(project, ev.RuntimeFellBack)
    assert (fell.runtime, fell.instead, fell.final) == (named, instead, False)
    assert path in fell.because
    assert f"switched from {named} to {instead}: " in ran.err
    assert model.requests[0].protocol == ("openai" if instead == OPEN else "anthropic")


@pytest.mark.parametrize(("named", "instead"), [(CLAUDE, OPEN), pytest.param(OPEN, CLAUDE, marks=pytest.mark.soak)])
def test_a7_a_key_that_one_runtime_is_refused_does_not_stop_the_other(
    project: Project, windlass: Windlass, named: str, instead: str
) -> None:
    refused, fine = [Reply.error(401, "this key is not valid", repeat=True)], [Reply.say("Mine was good.")]
    scripts = (refused, fine) if named == CLAUDE else (fine, refused)
    with serving(project, scripts[0], for_open_code=scripts[1]) as models:
        ran = windlass("run", "--task", "do it for me", "--runtime", named, "--json")
    first, second = models if named == CLAUDE else reversed(models)
    step, who = agent(ran)
    assert (step["output"], who["runtime"]) == ("Mine was good.", instead)
    (fell,) = told(project, ev.RuntimeFellBack)
    assert (fell.runtime, fell.instead, fell.final) == (named, instead, True)
    assert "401" in fell.because
    assert f"switched from {named} to {instead}: " in ran.err
    assert [event.failure.category for event in told(project, ev.AttemptFailed)] == ["permission"]
    assert len(first.requests) == 1, "no retry mends credentials that nothing can refresh"
    assert "do it for me" in second.requests[0].last_user_text


@pytest.mark.parametrize(
    ("named", "how"),
    [
        (CLAUDE, "by a flag"),
        (OPEN, "because the other is missing too"),
        pytest.param(OPEN, "by a flag", marks=pytest.mark.soak),
        pytest.param(CLAUDE, "because the other is missing too", marks=pytest.mark.soak),
    ],
)
def test_a7_where_nobody_takes_over_that_is_said_at_once_with_what_to_do(
    project: Project, windlass: Windlass, named: str, how: str
) -> None:
    with serving(project) as model:
        with_program(project, named, str(project.user / "nowhere"))
        flags = ["--no-fallback"] if how == "by a flag" else []
        if not flags:
            with_program(project, OPEN if named == CLAUDE else CLAUDE, str(project.user / "not-there-either"))
        refused = windlass("run", "--task", "do it", "--runtime", named, *flags, code=2)
        ran = windlass("run", "--task", "do it", "--runtime", named, *flags, "--json", "--anyway", code=1)
    assert f"{named} cannot be used: " in refused.err
    assert model.requests == []
    error = ran.json["steps"][0]["error"]
    assert error["category"] == "configuration"
    assert error["message"].startswith(f"{named} cannot be used: ")
    assert str(project.user / "nowhere") in error["message"]
    assert ("not-there-either" in error["message"]) == (not flags)
    assert "windlass doctor" in error["advice"]
    assert told(project, ev.RuntimeFellBack) == []
    (execution,) = project.ids()
    assert "failed" in windlass("status", execution).out


def test_a7_a_failure_stays_a_failure_with_no_fallback(project: Project, windlass: Windlass) -> None:
    refused = Reply.error(401, "this key is not valid", repeat=True)
    with serving(project, [refused], for_open_code=[Reply.say("never asked")]) as (_, other):
        ran = windlass("run", "--task", "do it", "--runtime", CLAUDE, "--no-fallback", "--json", code=1)
    assert other.requests == []
    assert ran.json["steps"][0]["error"]["category"] == "permission"
    assert told(project, ev.RuntimeFellBack) == []


def test_a7_a_model_that_was_named_for_one_runtime_is_not_asked_of_the_other(
    project: Project, windlass: Windlass
) -> None:
    with serving(project, [Reply.say("Done.")]) as model:
        with_program(project, OPEN, str(project.user / "nowhere"))
        ran = windlass("run", "--task", "do it", "--runtime", OPEN, "--model", "scripted/other", "--json")
    model.check()
    assert model.requests[0].model == "claude-sonnet-4-5"
    (began,) = told(project, ev.AgentBegan)
    assert began.notes == ("model scripted/other was named for open-code; claude-code uses claude-sonnet-4-5",)
    assert "model scripted/other was named for open-code" in ran.err
