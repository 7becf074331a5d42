"""Money, quotas and questions of agents on the command line (E1, E3, C6): the real program, a script for the model."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Served, Windlass

TWO = """
steps:
  - {id: first, agent: developer, prompt: Do the first.}
  - {id: second, agent: developer, prompt: Do the second., needs: [first]}
"""
DEAR = {"tokens_in": 1_000_000, "tokens_out": 1000}
PRICES = "[prices.'the-model']\ninput = 1.0\noutput = 0.0\n"
"""A call of `DEAR` costs a dollar."""
MODEL = ("--model", "anthropic:the-model")


def words() -> tuple[Reply, Reply]:
    return Reply.say("1st", when="Do the first.", **DEAR), Reply.say("2nd", when="Do the second.", **DEAR)


def answers(project: Project) -> list[tuple[bool, float | None]]:
    events = project.events(project.ids()[0])
    return [(event.allow, event.usd) for event in events if isinstance(event, ev.BudgetAnswered)]


def test_e3_without_a_terminal_it_stops_with_5_and_goes_on_with_resume_budget(
    project: Project, windlass: Windlass, served: Served
) -> None:
    project.user_file("config.toml", PRICES)
    model, env = served(*words())
    ran = windlass("run", project.plan(TWO), *MODEL, "--budget", "1", "--json", code=5, **env)
    (execution,) = project.ids()
    view = ran.json
    assert (view["status"], view["reason"]) == ("paused", "budget")
    assert view["cost"] == {"usd": 1.0, "known": True, "tokens_in": 1_000_000, "tokens_out": 1000, "text": "$1.00"}
    assert view["budget"] == {"limit_usd": 1.0, "limit_tokens": None, "overruns": []}
    assert view["steps"][1]["question"]["kind"] == "budget"
    reached = "the limit of $1.00 for this execution is reached ($1.00 spent)"
    assert view["steps"][1]["question"]["text"] == reached
    assert f"? second: {reached}" in ran.err
    assert "allowed by" not in ran.err, "nobody said no"
    assert ran.err.splitlines()[-2:] == [
        "next:",
        f"  windlass resume {execution} --budget 2.00   # new total limit",
    ]
    assert len(model.requests) == 1, "nothing more was asked of the model"
    again = windlass("resume", execution, code=5, **env)
    assert "$1.00" in again.err
    assert len(model.requests) == 1
    done = windlass("resume", execution, "--budget", "3", "--json", **env).json
    assert (done["status"], done["cost"]["usd"]) == ("completed", 2.0)
    assert answers(project)[-1] == (True, 3.0)
    model.check()


def test_e3_yes_does_not_mean_money(project: Project, windlass: Windlass, served: Served) -> None:
    project.user_file("config.toml", PRICES)
    _model, env = served(*words())
    ran = windlass("run", project.plan(TWO), *MODEL, "--budget", "1", "--yes", code=5, **env)
    assert "pausing: budget limit reached, and no terminal to ask for more" in ran.err
    assert answers(project) == [], "nobody was asked"


@pytest.mark.parametrize(
    ("typed", "code", "expected"),
    [("y", 0, (True, 2.0)), ("$5", 0, (True, 5.0)), ("n", 5, (False, None)), ("", 5, (False, None))],
)
def test_e3_on_a_terminal_a_person_is_asked(
    project: Project, windlass: Windlass, served: Served, typed: str, code: int, expected: tuple[bool, float | None]
) -> None:
    project.user_file("config.toml", PRICES)
    _model, env = served(*words())
    terminal = windlass.terminal("run", project.plan(TWO), *MODEL, "--budget", "1", "--progress", "plain", **env)
    terminal.expect("Continue with a total limit of $2.00?")
    terminal.type("sure\n")
    terminal.expect_again("Continue with a total limit of $2.00?", after="please answer y, n or an amount")
    terminal.type(f"{typed}\n")
    ran = terminal.ended()
    assert ran.code == code, str(ran)
    assert answers(project) == [expected]
    if code == 0:
        assert "second: 2nd" in ran.out


def test_e3_resumed_on_a_terminal_it_is_asked_again(project: Project, windlass: Windlass, served: Served) -> None:
    project.user_file("config.toml", PRICES)
    _model, env = served(*words())
    windlass("run", project.plan(TWO), *MODEL, "--budget", "1", "--progress", "plain", code=5, **env)
    terminal = windlass.terminal("resume", project.ids()[0], "--progress", "plain", **env)
    terminal.expect("Continue with a total limit of $2.00?")
    terminal.type("y\n")
    ran = terminal.ended()
    assert ran.code == 0, str(ran)
    assert answers(project)[-1] == (True, 2.0)


def test_e1_unknown_cost_is_shown_as_unknown(project: Project, windlass: Windlass, served: Served) -> None:
    _model, env = served(*words())
    ran = windlass("run", project.plan(TWO), "--model", "anthropic:nobody-knows-it", "--json", **env)
    assert ran.json["cost"] == {
        "usd": None,
        "known": False,
        "tokens_in": 2_000_000,
        "tokens_out": 2000,
        "text": "unknown",
    }
    assert [step["cost_usd"] for step in ran.json["steps"]] == [None, None]
    assert "cost: unknown (2 attempts of unknown cost)" in ran.err
    assert "2 attempts of unknown cost" in windlass("budget").out


@pytest.mark.parametrize("amount", ["nan", "inf"])
def test_e1_a_budget_that_is_no_amount_is_refused(project: Project, windlass: Windlass, amount: str) -> None:
    ran = windlass("run", "--task", "x", "--budget", amount, code=2)
    assert project.ids() == [], str(ran)


FOUR = "limits: {parallel: 4}\nsteps:\n" + "".join(
    f"  - {{id: s{number}, agent: developer, prompt: Do it {number}.}}\n" for number in range(4)
)
LONG = {"tokens_in": 1000, "tokens_out": 32_000}
BY_OUTPUT = "[prices.'the-model']\ninput = 0.0\noutput = 31.25\n"
"""A call of `LONG`, the longest that there is, costs a dollar."""


def test_e1_the_limit_of_the_day_holds_for_several_programs_with_several_agents_each(
    project: Project, windlass: Windlass, served: Served
) -> None:
    """Three programs of four agents: twelve calls of a dollar, and $2.50 for today."""
    project.user_file("config.toml", BY_OUTPUT + "[budget]\nday = 2.5\n")
    model, env = served(Reply.say("done", repeat=True, **LONG))
    plan = project.plan(FOUR)
    programs = [windlass.background("run", plan, *MODEL, "--progress", "plain", **env) for _ in range(3)]
    ended = [program.ended() for program in programs]
    assert [ran.code for ran in ended] == [5, 5, 5], "\n".join(map(str, ended))
    day = windlass("budget", "--json").json["day"]
    assert (day["spent_usd"], day["reserved_usd"], len(model.requests)) == (3.0, 0.0, 3), "one call over, in all"
    told = "\n".join(ran.err for ran in ended)
    assert "the limit of $2.50 for today is exceeded: $3.00 spent, $0.50 over" in told
    assert "waiting for room in the budget for today: " in told


def test_e1_agents_in_parallel_that_pass_the_budget_say_so_in_every_place(
    project: Project, windlass: Windlass, served: Served
) -> None:
    """The plan has one agent more than the budget pays for, and it is begun with what is left."""
    project.user_file("config.toml", BY_OUTPUT)
    model, env = served(Reply.say("done", repeat=True, **LONG))
    ran = windlass("run", project.plan(FOUR), *MODEL, "--budget", "3.5", "--json", **env)
    (execution,) = project.ids()
    assert (ran.json["status"], len(model.requests)) == ("completed", 4)
    passed = "the limit of $3.50 for this execution is exceeded: $4.00 spent, $0.50 over"
    (overrun,) = ran.json["budget"]["overruns"]
    assert (overrun["limit"], overrun["spent"], overrun["text"]) == (3.5, 4.0, passed)
    assert f"  ! over budget: {passed}" in ran.err.splitlines()[-2:]
    assert "one call can cost up to $1.0" in ran.err
    assert f"  ! over budget: {passed}" in windlass("status", execution).out
    (listed,) = windlass("list").out.splitlines()
    assert listed.endswith("(over budget)"), listed


def test_e1_a_model_without_a_price_is_refused_under_a_limit_in_dollars(
    project: Project, windlass: Windlass, served: Served
) -> None:
    model, env = served(*words())
    unknown = ("--model", "anthropic:nobody-knows-it")
    ran = windlass("run", project.plan(TWO), *unknown, "--budget", "0.30", "--json", code=1, **env)
    assert model.requests == []
    error = ran.json["steps"][0]["error"]
    assert error["category"] == "configuration"
    assert error["message"] == (
        "no price is known for anthropic:nobody-knows-it, so the limit of $0.30 for this execution cannot be enforced"
    )
    project.user_file("config.toml", "[prices.'nobody-knows-it']\ninput = 0\noutput = 0\n")
    assert windlass("run", project.plan(TWO), *unknown, "--budget", "0.30", "--json", **env).json["cost"]["usd"] == 0.0


# -- quota ---------------------------------------------------------------------------------------


def test_with_no_wait_a_used_up_quota_ends_with_6_and_says_when_it_is_back(
    project: Project, windlass: Windlass, served: Served
) -> None:
    back = int(time.time()) + 3 * 3600
    limit = Reply.error(429, "limit reached", headers={"anthropic-ratelimit-unified-reset": str(back)}, repeat=True)
    model, env = served(limit)
    ran = windlass("run", "--task", "Do it", "--no-wait", "--json", code=6, **env)
    assert (ran.json["status"], ran.json["reason"]) == ("paused", "quota")
    (step,) = ran.json["steps"]
    assert (step["status"], step["waiting_for"], step["attempts"]) == ("waiting", "quota", 1)
    assert step["until"] in ran.err
    asked = len(model.requests)
    (execution,) = project.ids()
    windlass("resume", execution, "--no-wait", code=6, **env)
    assert len(model.requests) == asked, "nothing is asked of it before then"
    assert step["until"] in windlass("status", execution).out


# -- questions of an agent -----------------------------------------------------------------------


def writing() -> tuple[Reply, Reply]:
    use = Reply.use("files__write", {"path": "winch.txt", "content": "a drum\n"})
    return use, Reply.say("Written.")


def test_c6_an_agents_question_stops_with_3_and_its_answer_is_not_asked_for_again(
    project: Project, windlass: Windlass, served: Served
) -> None:
    model, env = served(*writing())
    ran = windlass("run", "--task", "Write it down", code=3, **env)
    (execution,) = project.ids()
    assert "files.write" in ran.err
    assert '"content": "a drum\\n"' in ran.err, "exactly what it wants to do"
    (asked,) = windlass("approvals", "--json").json
    assert (asked["step"], asked["tool"]) == ("task", "files.write")
    assert not (project.path / "winch.txt").exists()
    windlass.shell(ran.command("approve"))
    done = windlass("resume", execution, "--json", **env).json
    assert done["status"] == "completed"
    assert project.lines("winch.txt") == ["a drum"]
    assert sum(isinstance(event, ev.ApprovalAsked) for event in project.events(execution)) == 1
    model.check()


@pytest.mark.parametrize(("typed", "written"), [("y", True), ("n", False)])
def test_c6_on_a_terminal_the_agent_goes_on_with_the_answer(
    project: Project, windlass: Windlass, served: Served, typed: str, written: bool
) -> None:
    _model, env = served(*writing())
    terminal = windlass.terminal("run", "--task", "Write it down", "--progress", "plain", **env)
    terminal.expect("Step task asks to run files.write with exactly:")
    terminal.expect("Allow it?")
    terminal.type(f"{typed}\n")
    ran = terminal.ended()
    assert (ran.code, ran.out) == (0, "task: Written.\n"), str(ran)
    assert (project.path / "winch.txt").exists() is written


def test_c6_always_in_the_terminal_shows_the_rule_saves_it_and_is_not_asked_again(
    project: Project, windlass: Windlass, served: Served
) -> None:
    _model, env = served(*writing())
    terminal = windlass.terminal("run", "--task", "Write it down", "--progress", "tty", **env)
    terminal.expect("always: save the rule files.write(winch.txt) in ")
    terminal.expect("Allow it? [y]es, [a]lways, [n]o, [l]ater: ")
    terminal.type("a\n")
    ran = terminal.ended()
    assert (ran.code, ran.out) == (0, "task: Written.\n"), str(ran)
    assert "saved the rule files.write(winch.txt) in " in terminal.shown
    assert "files.write(winch.txt)" in windlass("config", "get", "permissions.allow").out
    (project.path / "winch.txt").unlink()
    _model, env = served(*writing())
    assert windlass("run", "--task", "Write it down", **env).out == "task: Written.\n"
    assert project.lines("winch.txt") == ["a drum"]


def test_c6_a_rule_that_cannot_be_saved_answers_nothing_and_says_so(
    project: Project, windlass: Windlass, served: Served
) -> None:
    _model, env = served(*writing())
    terminal = windlass.terminal("run", "--task", "Write it down", "--progress", "plain", **env)
    terminal.expect("Allow it? [y]es, [a]lways, [n]o, [l]ater: ")
    project.user_file("config.toml", "not = [toml\n")
    terminal.type("a\n")
    ran = terminal.ended()
    assert ran.code == 3, str(ran)
    assert not (project.path / "winch.txt").exists()
    project.user_file("config.toml", "")
    windlass("approve", project.ids()[0], "task", "--always")
    assert windlass("resume", project.ids()[0], "--json", **env).json["status"] == "completed"


def test_c6_an_answer_with_always_saves_the_rule_or_says_why_there_is_none(
    project: Project, windlass: Windlass, served: Served
) -> None:
    _model, env = served(*writing())
    windlass("run", "--task", "Write it down", code=3, **env)
    (execution,) = project.ids()
    assert "--always is for what is allowed" in windlass("approve", execution, "task", "--always", "--deny", code=2).err
    told = windlass("approve", execution, "task", "--always").err
    assert "saved the rule files.write(winch.txt) in " in told
    assert windlass("resume", execution, "--json", **env).json["status"] == "completed"
    plan = project.plan("steps: [{id: a, run: echo hi, approve: always}]")
    windlass("run", plan, code=3)
    refused = windlass("approve", project.ids()[-1], "a", "--always", code=2)
    assert "rules are for what agents ask" in refused.err


def test_c6_another_process_answers_while_the_agent_waits(
    project: Project, windlass: Windlass, served: Served, until: Any
) -> None:
    _model, env = served(*writing())
    execution = windlass.detached("--task", "Write it down", **env)
    until(lambda: project.state(execution).questions, "the agent asks")
    assert project.state(execution).status == "running", "the agent waits where it is"
    windlass("approve", execution, "task", "--deny", "--note", "not there")
    until(lambda: project.state(execution).status == "completed", "it goes on")
    assert not (project.path / "winch.txt").exists()
    assert project.state(execution).steps["task"].attempts == 1


def test_c6_allow_on_the_command_line_needs_no_question(project: Project, windlass: Windlass, served: Served) -> None:
    _model, env = served(*writing())
    windlass("run", "--task", "Write it down", "--allow", "files.write", **env)
    assert project.lines("winch.txt") == ["a drum"]


def test_e1_the_agents_of_a_foreach_are_named_with_their_number_and_their_cost(
    project: Project, windlass: Windlass, served: Served
) -> None:
    project.user_file("config.toml", PRICES)
    _model, env = served(Reply.say("1st", **DEAR), Reply.say("2nd", **DEAR))
    plan = "steps: [{id: each, foreach: [a, b], agent: developer, prompt: 'Do {{ item }}.'}]"
    shown = windlass("run", project.plan(plan), *MODEL, "--budget", "5", **env).err
    assert "  agents: developer (cli) × 2\n  cost: $2.00, 2,002,000 tokens\n" in shown


def test_e1_an_arrow_leads_only_to_an_agent_that_waited_for_the_one_before(
    project: Project, windlass: Windlass, served: Served
) -> None:
    project.user_file("config.toml", PRICES)
    _model, env = served(Reply.say("done", repeat=True, **DEAR))
    plan = """
        steps:
          - {id: draft, agent: developer, prompt: Draft.}
          - {id: one, agent: developer, prompt: Check., needs: [draft]}
          - {id: two, agent: reviewer, prompt: Check., needs: [draft]}
          - {id: last, agent: developer, prompt: End., needs: [one, two]}
    """
    shown = windlass("run", project.plan(plan), *MODEL, "--budget", "9", **env).err
    assert "  agents: developer (cli) → developer (cli), reviewer (cli) → developer (cli)\n" in shown
