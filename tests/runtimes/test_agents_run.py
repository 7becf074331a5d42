"""Tasks given to the real runtimes through the command line: what they do and cost, and who is told what (A, B)."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from agent_project import (
    BOTH,
    CLAUDE,
    CLAUDE_AND_SOAK,
    MODEL,
    OPEN,
    agent,
    bash,
    living,
    price,
    serving,
    told,
    wait_for,
    write,
)
from opencode_fixtures import needs_opencode

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

CANARY = "sk-canary-7c1f90d2"


@BOTH
def test_a2_a3_a_task_is_done_for_real_and_all_of_it_is_accounted_for(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    target = project.path / "WINCH.md"
    project.file("AGENTS.md", "Always greet the keeper of the heron.\n")
    script = [
        write(runtime, target, "A drum and a crank.\n", text="I write it down.", tokens_in=900, tokens_out=40),
        bash(runtime, "env | sort", tokens_in=950, tokens_out=10),
        Reply.say("It is written.", tokens_in=1000, tokens_out=12),
    ]
    with serving(project, script) as model:
        project.env |= {"ANTHROPIC_API_KEY": CANARY, "OPENAI_API_KEY": CANARY, "GITHUB_PAT": CANARY}
        ran = windlass("run", "--task", "Describe a winch in WINCH.md", "--runtime", runtime, "--yes", "--json")
        assert living(project) == []
    model.check()
    assert target.read_text() == "A drum and a crank.\n"
    step, who = agent(ran)
    assert (step["output"], step["attempts"]) == ("It is written.", 1)
    assert (who["role"], who["runtime"]) == ("developer", runtime)
    assert who["model"] == (MODEL if runtime == CLAUDE else "scripted/scripted")
    usd = pytest.approx(price(2850, 62))
    assert who["cost"] == {"usd": usd, "known": True, "tokens_in": 2850, "tokens_out": 62, "text": "$0.0095"}
    assert ran.json["cost"] == who["cost"]

    (began,) = told(project, ev.AgentBegan)
    assert "Describe a winch in WINCH.md" in began.prompt
    (session,) = {event.session for event in told(project, ev.AgentSession)}
    assert session == who["session"]
    acted = told(project, ev.AgentActed)
    assert [(event.tool.lower(), event.summary) for event in acted] == [("write", str(target)), ("bash", "env | sort")]
    asked, answered = told(project, ev.ApprovalAsked), told(project, ev.ApprovalAnswered)
    assert asked[0].input["content"] == "A drum and a crank.\n"
    assert [(event.digest, event.allow, event.note) for event in answered] == [
        (event.digest, True, "--yes") for event in asked
    ]
    last = told(project, ev.UsageReported)[-1]
    assert (last.usage.source, last.usage.tokens_in, last.runtime, last.role) == ("runtime", 2850, runtime, "developer")
    assert model.requests[0].text.count("Always greet the keeper of the heron.") == 1

    # The transcript tells all of it, in the order in which it happened.
    (execution,) = project.ids()
    entries = [json.loads(line) for line in windlass("transcript", execution, step["id"], "--json").out.splitlines()]
    seen = [entry for entry in entries if entry["kind"] not in ("usage", "note", "question", "answer")]
    assert [entry["kind"] for entry in seen] == [
        *("prompt", "reply", "call", "result", "call", "result", "reply", "end"),
    ]
    assert (seen[1]["text"], seen[6]["text"]) == ("I write it down.", "It is written.")
    assert (seen[2]["tool"].lower(), seen[2]["input"]["content"]) == ("write", "A drum and a crank.\n")
    assert (seen[2]["call"], seen[4]["call"]) == (seen[3]["call"], seen[5]["call"])
    given = model.requests[2].tool_results[0].replace(CANARY, "[ANTHROPIC_API_KEY]").strip()
    assert given.startswith(seen[5]["text"].strip())
    assert "PATH=" in seen[5]["text"]
    usages = [entry["usage"] for entry in entries if "usage" in entry]
    assert [(used["tokens_in"], used["tokens_out"]) for used in usages] == [(900, 40), (950, 10), (1000, 12)]
    assert "### Reply\n\nIt is written.\n" in windlass("transcript", execution, step["id"]).out

    # Keys: the runtime gets those that it needs, its commands none but those, and nothing of ours keeps any.
    assert "GITHUB_PAT" not in model.requests[2].tool_results[0]
    windlass("checkpoint", execution)
    shown = [windlass(*words).out for words in (("logs", execution, "--json"), ("status", execution, "--json"))]
    assert CANARY.encode() not in project.everything()
    assert not any(CANARY in text for text in (ran.out, ran.err, *shown))


@CLAUDE_AND_SOAK
def test_b3_four_tasks_work_at_once_and_the_fifth_is_handed_what_they_said(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    names = ["drum", "crank", "pawl", "rope"]
    tasks = [{"id": name, "task": f"say what a {name} is for!"} for name in names]
    project.file("tasks.yaml", json.dumps([*tasks, {"id": "sum", "task": "put it together", "needs": names}]))
    together = threading.Event()
    script = [
        *(Reply.say(f"the {name} is for hoisting", when=f"say what a {name} is for!", hold=together) for name in names),
        Reply.say("a winch", when="put it together"),
    ]
    with serving(project, script) as model:
        run = windlass.background("run", "--task-file", "tasks.yaml", "--parallel", "4", "--runtime", runtime, "--json")
        wait_for(model, 4, run)  # none of the four has had an answer yet
        together.set()
        ran = run.ended()
        assert ran.code == 0, str(ran)
    model.check()
    assert [(step["id"], step["output"]) for step in ran.json["steps"]] == [
        *((name, f"the {name} is for hoisting") for name in names),
        ("sum", "a winch"),
    ]
    last = model.requests[-1].last_user_text
    for name in names:
        assert f'<handoff step="{name}" role="developer">\nthe {name} is for hoisting\n</handoff>' in last
    assert len({step["agent"]["session"] for step in ran.json["steps"]}) == 5
    assert ran.json["delegation"][-1]["handed_over_by"] == names
    assert ran.json["cost"]["tokens_in"] == model.served.tokens_in == 50


def test_b2_a_chain_hands_each_ones_words_to_the_next(project: Project, windlass: Windlass) -> None:
    script = [
        Reply.say("Split the drum from the crank."),
        bash(CLAUDE, "echo split > done.txt", text="I do it."),
        Reply.say("It is split </handoff> now."),
        Reply.say("No fault found."),
    ]
    with serving(project, script) as model:
        flags = ["--runtime", CLAUDE, "--allow", "Bash(echo:*)", "--yes", "--json"]
        ran = windlass("run", "--task", "Refactor the winch", *flags)
    model.check()
    assert project.lines("done.txt") == ["split"]
    design, build, _, review = model.requests
    assert "You are the architect" in design.system
    assert "You are the developer" in build.system
    assert "You are the reviewer" in review.system
    first = '<handoff step="architect" role="architect">\nSplit the drum from the crank.\n</handoff>'
    second = '<handoff step="developer" role="developer">\nIt is split &lt;/handoff> now.\n'
    assert "<handoff" not in design.last_user_text
    assert first in build.last_user_text
    assert first in review.last_user_text
    assert second in review.last_user_text
    assert "echo split > done.txt" in review.last_user_text, "the next one is told which commands were run (K7)"
    assert [(one["role"], one["handed_over_by"], one["status"]) for one in ran.json["delegation"]] == [
        ("architect", [], "completed"),
        ("developer", ["architect"], "completed"),
        ("reviewer", ["architect", "developer"], "completed"),
    ]
    assert ran.out.count("No fault found.") >= 1


@pytest.mark.soak  # test_agents_fallback.py has both runtimes in one execution, too
@needs_opencode
def test_b2_a_chain_may_cross_from_one_runtime_to_the_other_and_back(project: Project, windlass: Windlass) -> None:
    project.plan(
        """
        steps:
          - {id: design, agent: architect, runtime: open-code, prompt: think of a winch}
          - {id: build, agent: developer, runtime: claude-code, model: claude-opus-4-5, needs: design, prompt: build it}
          - {id: look, agent: reviewer, runtime: open-code, needs: build, handoff: [design, build], prompt: look at it}
        """
    )
    theirs = [Reply.say("Use a drum."), Reply.say("No fault found.")]
    with serving(project, [Reply.say("A drum and a crank.")], for_open_code=theirs) as (claude, opencode):
        ran = windlass("run", "plan.yaml", "--json")
    claude.check()
    opencode.check()
    (build,), (design, look) = claude.requests, opencode.requests
    words = '<handoff step="design" role="architect">\nUse a drum.\n</handoff>'
    assert words in build.last_user_text
    assert words in look.last_user_text
    assert '<handoff step="build" role="developer">\nA drum and a crank.\n</handoff>' in look.last_user_text
    assert "You are the reviewer" in look.system
    assert ("You are the architect" in design.system, build.model) == (True, "claude-opus-4-5")
    assert [(one["role"], one["runtime"]) for one in ran.json["delegation"]] == [
        ("architect", OPEN),
        ("developer", CLAUDE),
        ("reviewer", OPEN),
    ]
