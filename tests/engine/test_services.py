"""Services: a command stays until the steps that need it have ended, and never longer than its execution (B5, A8)."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from waiting import wait_until_async

import windlass
from windlass import Engine, Execution
from windlass.core import events as ev
from windlass.errors import UsageError
from windlass.plan.load import load_text

if TYPE_CHECKING:
    from conftest import Project

SERVER = "echo $$ >> pids.txt; echo up; exec sleep 1000"


@pytest.fixture
async def engine(project: Project) -> AsyncIterator[Engine]:
    async with windlass.open(grace=5.0) as engine:
        yield engine


def plan_of(server: str, *steps: str, service: str = "{line: up}") -> windlass.Plan:
    listed = "\n".join(f"  - {step}" for step in steps)
    text = f"name: served\nsteps:\n  - {{id: server, run: '{server}', service: {service}}}\n{listed}\n"
    return load_text(text).plan


def living(project: Project) -> list[bool]:
    """Whether each process that was the service is still there."""
    return [os.path.exists(f"/proc/{pid}") for pid in project.lines("pids.txt")]


async def result(execution: Execution) -> dict[str, Any]:
    found = await execution.result()
    return {step["id"]: step for step in found["steps"]} | {"status": found["status"]}


async def notes(execution: Execution) -> str:
    events = [event async for event in execution.events()]
    return "".join(one.text for one in events if isinstance(one, ev.OutputWritten) and one.step == "server")


async def test_b5_a_service_runs_until_all_steps_that_need_it_have_ended(engine: Engine, project: Project) -> None:
    alive = "kill -0 $(cat pids.txt)"
    plan = plan_of(
        SERVER,
        f"{{id: a, needs: [server], run: '{alive}'}}",
        f"{{id: each, needs: [server, a], foreach: [1, 2], run: '{alive}; echo {{{{ item }}}}'}}",
        "{id: after, needs: [each], run: 'while kill -0 $(cat pids.txt) 2>/dev/null; do sleep 0.01; done'}",
    )
    execution = await engine.start(plan, anyway=True)
    found = await result(execution)
    assert (found["status"], found["server"]["output"]) == ("completed", {"ready": "its output has 'up'"})
    assert living(project) == [False]
    assert await notes(execution) == "up\nthe service is ended: the steps that need it have ended\n"


async def test_b5_the_end_of_a_service_is_the_failure_of_the_steps_that_need_it(
    engine: Engine, project: Project
) -> None:
    server = "echo up; until [ -e die ]; do sleep 0.01; done; rm die; echo broken >&2; exit 3"
    steps = ("{id: a, needs: [server], run: touch die; exec sleep 1000}", "{id: b, needs: [a, server], run: 'true'}")
    execution = await engine.start(plan_of(server, *steps), anyway=True)
    found = await result(execution)
    assert (found["status"], found["b"]["status"]) == ("partial", "skipped")
    error = found["a"]["error"]
    assert error["message"] == "the service server ended while this step needed it: exit code 3: broken"
    look, again, *_more = error["advice"]
    assert look.endswith(f"windlass logs {execution.id} --step server")
    assert again.endswith(f"windlass retry {execution.id} a")
    assert "the service ended while it was needed: exit code 3: broken" in await notes(execution)


async def test_b5_d2_a_step_that_runs_once_is_not_repeated_unasked_when_its_service_ends(
    engine: Engine, project: Project
) -> None:
    server = "echo up; until [ -e die ]; do sleep 0.01; done; rm die; exit 3"
    step = "{id: a, needs: [server], effect: once, retry: 3, run: echo x >> done.txt; touch die; exec sleep 1000}"
    execution = await engine.start(plan_of(server, step), anyway=True, hold=False)
    state = await execution.wait()
    assert (state.status, state.paused_for) == ("paused", "decision")
    assert project.lines("done.txt") == ["x"]


async def test_b5_a_service_that_does_not_become_ready_fails_with_its_output(engine: Engine, project: Project) -> None:
    need = "{id: a, needs: [server], run: 'true'}"
    ended = await result(await engine.start(plan_of("echo no config >&2; exit 4", need), anyway=True))
    assert ended["server"]["error"]["message"] == "the service ended before it was ready (exit code 4): no config"
    assert ended["a"]["status"] == "skipped"
    silent = plan_of(SERVER, need, service="{line: never said, within: 0.2s}")
    late = await result(await engine.start(silent, anyway=True))
    message = late["server"]["error"]["message"]
    assert message.startswith("the service was not ready within 0.2 s: waited until its output has 'never said'")
    assert not any(living(project))
    daemon = await result(await engine.start(plan_of("true", need), anyway=True))
    assert "stays in the foreground" in daemon["server"]["error"]["advice"][0]


async def test_b5_a_port_or_a_command_tells_that_a_service_is_ready(engine: Engine, project: Project) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number = listener.getsockname()[1]
        need = "{id: a, needs: [server], run: touch done.txt}"
        execution = await engine.start(plan_of(SERVER, need, service=f"{{port: {number}}}"), anyway=True)
        await wait_until_async(lambda: project.lines("pids.txt"), "it is started")
        assert not (project.path / "done.txt").exists()
        listener.listen()
        assert (await result(execution))["status"] == "completed"
        taken = await result(await engine.start(plan_of(SERVER, need, service=f"{{port: {number}}}"), anyway=True))
        assert taken["server"]["error"]["message"] == f"port {number} is in use by another program"
    asked = await engine.start(plan_of(SERVER, need, service='{command: "test -e open"}'), anyway=True)
    await wait_until_async(lambda: len(project.lines("pids.txt")) == 2, "it is started")
    (project.path / "open").touch()
    assert (await result(asked))["server"]["output"] == {"ready": "its command succeeds"}
    assert not any(living(project))


async def test_b5_an_interrupt_ends_a_service_and_a_resume_starts_it_again(engine: Engine, project: Project) -> None:
    waits = "touch began; until [ -e go ]; do sleep 0.01; done; kill -0 $(tail -n 1 pids.txt)"
    steps = (f"{{id: a, needs: [server], run: '{waits}'}}", f"{{id: b, needs: [server], run: '{waits}'}}")
    execution = await engine.start(plan_of(SERVER, *steps), anyway=True)
    await wait_until_async(lambda: (project.path / "began").exists(), "a step that needs it runs")
    await engine.interrupt(execution.id)
    await execution.result()
    assert living(project) == [False]
    (project.path / "go").touch()
    again = await engine.resume(execution.id)
    assert (await result(again))["status"] == "completed"
    assert living(project) == [False, False], "both steps share one start"
    assert "starting the service again\n" in await notes(again)


async def test_b5_a_cancelled_execution_leaves_no_service(engine: Engine, project: Project) -> None:
    execution = await engine.start(
        plan_of(SERVER, "{id: a, needs: [server], run: touch began; sleep 1000}"), anyway=True
    )
    await wait_until_async(lambda: (project.path / "began").exists(), "a step that needs it runs")
    await engine.cancel(execution.id)
    assert (await execution.result())["status"] == "cancelled"
    assert living(project) == [False]
    events = [event async for event in execution.events()]
    assert isinstance(events[-1], ev.ExecutionFinished), "a follower would wait for more"


async def test_b5_a_service_that_cannot_be_started_again_fails_the_step(engine: Engine, project: Project) -> None:
    server = "[ ! -e used ]; touch used; echo up; exec sleep 1000"
    execution = await engine.start(
        plan_of(server, "{id: a, needs: [server], run: touch began; sleep 1000}"), anyway=True
    )
    await wait_until_async(lambda: (project.path / "began").exists(), "a step that needs it runs")
    await engine.interrupt(execution.id)
    await execution.result()
    found = await result(await engine.resume(execution.id))
    message = found["a"]["error"]["message"]
    assert message.startswith("the service server could not be started again: the service ended before it was ready")


async def test_b5_h2_a_service_that_is_started_again_keeps_the_log_of_its_earlier_process(
    engine: Engine, project: Project
) -> None:
    server = "seq 2000 >&2; echo up; until [ -e die ]; do sleep 0.01; done; rm die; exit 3"
    text = f"""
        name: served
        steps:
          - {{id: server, run: "{server}", with: {{max_output: 100}}, service: {{line: up}}}}
          - {{id: a, needs: [server], run: "touch die; exec sleep 1000", retry: {{max: 1, on: [logic], delay: 0.01s}}}}
    """
    execution = await engine.start(load_text(text).plan, anyway=True)
    await execution.result()
    logs = project.home / "executions" / execution.id / "logs"
    names = ["server.1.stderr.log", "server.1.stderr.2.log"]
    assert sorted(path.name for path in logs.iterdir()) == sorted(names)
    said = await notes(execution)
    for name in names:
        assert f"the whole is in {logs / name}" in said
        assert (logs / name).read_text().splitlines() == [str(number) for number in range(1, 2001)]


async def test_b5_j2_a_plan_with_a_service_leaves_nothing_behind_where_workers_would_run_it(
    project: Project, postgres: str
) -> None:
    plan = plan_of(SERVER, "{id: a, needs: [server], run: 'true'}")
    project.plan("name: plain\nsteps: [{id: a, run: 'true', approve: always}]\n")
    async with windlass.open(journal=postgres) as here:
        origin = (await (await here.start(plan, anyway=True)).result())["id"]
        paused = (await (await here.start("plan.yaml", hold=False)).wait()).id
    project.plan("name: served\nsteps: [{id: b, run: 'true', service: true}, {id: a, run: 'true', needs: [b]}]\n")
    async with windlass.open(journal=postgres, temporal="127.0.0.1:1") as engine:
        for refused in (
            engine.create(plan, anyway=True),
            engine.start(plan, anyway=True),
            engine.fork(origin),
            engine.resume(paused, accept_changes=True),
        ):
            with pytest.raises(UsageError, match="cannot run on workers"):
                await refused
        assert {head.id for head in await engine.executions()} == {origin, paused}


async def stopped(engine: Engine, execution: Execution, project: Project) -> None:
    """Interrupt it while a step that needs its service runs; then let that step come to its end."""
    await wait_until_async(lambda: (project.path / "began").exists(), "a step that needs it runs")
    await engine.interrupt(execution.id)
    await execution.result()
    (project.path / "go").touch()


WAITS = "touch began; until [ -e go ]; do sleep 0.01; done"


async def test_b5_a_service_outlives_the_services_that_need_it(engine: Engine, project: Project) -> None:
    app = (
        "kill -0 $(cat db.pid); echo app >> starts.txt; echo up; "
        "trap 'kill -0 $(cat db.pid) && echo outlived >> ends.txt; exit' TERM; while true; do sleep 0.01 || true; done"
    )
    text = f"""
        name: chained
        steps:
          - {{id: db, run: "echo db >> starts.txt; echo $$ > db.pid; echo up; exec sleep 1000", service: {{line: up}}}}
          - {{id: app, needs: [db], run: "{app}", service: {{line: up}}}}
          - {{id: test, needs: [app], run: "{WAITS}; kill -0 $(cat db.pid)"}}
    """
    execution = await engine.start(load_text(text).plan, anyway=True)
    await stopped(engine, execution, project)
    again = await engine.resume(execution.id)
    assert (await result(again))["status"] == "completed"
    assert project.lines("starts.txt") == ["db", "app", "db", "app"]
    assert project.lines("ends.txt") == ["outlived", "outlived"]
    events = [event async for event in again.events()]
    ends = [one.step for one in events if isinstance(one, ev.OutputWritten) and "is ended" in one.text]
    assert ends == ["app", "db"]


async def test_b5_a_service_is_not_started_again_before_its_earlier_process_has_ended(project: Project) -> None:
    slow = "trap 'touch ending; until [ -e end ]; do sleep 0.01 || true; done; exit' TERM"
    text = f"""
        name: served
        steps:
          - id: server
            run: |
              if [ -e pids.txt ]; then kill -0 $(cat pids.txt) && exit 3; fi
              {slow}
              echo $$ >> pids.txt; echo up
              while true; do sleep 0.01 || true; done
            service: {{line: up}}
          - {{id: a, needs: [server], run: test -e mended}}
          - {{id: aside, run: "until [ -e go ]; do sleep 0.01; done"}}
    """
    async with windlass.open(grace=60.0) as patient:
        execution = await patient.start(load_text(text).plan, anyway=True)
        await wait_until_async(lambda: (project.path / "ending").exists(), "the service is ending")
        await wait_until_async(lambda: project.state(execution.id).steps["a"].settled, "its step has failed")
        (project.path / "mended").touch()
        await patient.retry(execution.id, "a")
        await wait_until_async(lambda: project.state(execution.id).steps["a"].attempts == 2, "it is tried again")
        await (await patient.start(load_text("steps: [{id: a, run: 'true'}]").plan)).result()  # the attempt has begun
        last = (await execution.state()).steps["server"].last_output
        assert last == "the service is ended: the steps that need it have ended"
        (project.path / "end").touch()
        (project.path / "go").touch()
        found = await result(execution)
    assert found["status"] == "completed", found["a"]["error"]
    assert living(project) == [False, False]


async def test_b5_a_step_does_not_run_without_a_service_that_ended_while_another_one_started(
    engine: Engine, project: Project
) -> None:
    first = "echo $$ > first.pid; echo up; until [ -e die ]; do sleep 0.01; done; exit 3"
    second = (
        "if [ -e go ]; then touch die; while kill -0 $(cat first.pid) 2>/dev/null; do sleep 0.01; done; fi; "
        "echo up; exec sleep 1000"
    )
    text = f"""
        name: served
        steps:
          - {{id: first, run: "{first}", service: {{line: up}}}}
          - {{id: second, run: "{second}", service: {{line: up}}}}
          - {{id: a, needs: [first, second], run: "{WAITS}; echo x >> done.txt"}}
    """
    execution = await engine.start(load_text(text).plan, anyway=True)
    await stopped(engine, execution, project)
    found = await result(await engine.resume(execution.id))
    assert found["a"]["error"]["message"] == "the service first ended before the step that needs it began"
    assert project.lines("done.txt") == []


async def test_b5_d8_a_fork_starts_the_services_that_its_steps_need(engine: Engine, project: Project) -> None:
    plan = plan_of(
        SERVER,
        "{id: a, needs: [server], run: 'kill -0 $(cat pids.txt); echo a >> done.txt'}",
        "{id: b, needs: [server, a], run: 'kill -0 $(tail -n 1 pids.txt); test -e mended'}",
        "{id: aside, run: 'echo aside >> done.txt'}",
    )
    execution = await engine.start(plan, anyway=True)
    assert (await result(execution))["status"] == "partial"
    (project.path / "mended").touch()
    fork = await engine.resume(await engine.fork(execution.id))
    assert (await result(fork))["status"] == "completed"
    assert sorted(project.lines("done.txt")) == ["a", "aside"], "what was built upon the service is kept"
    assert living(project) == [False, False]
    unneeded = await engine.resume(await engine.fork(fork.id, from_step="aside"))
    assert (await result(unneeded))["status"] == "completed"
    assert len(living(project)) == 2, "no step of that fork needs the service"


async def test_b5_c6_a_service_that_changed_since_it_was_approved_is_not_started_again(
    engine: Engine, project: Project
) -> None:
    script = project.file("serve.sh", f"#!/bin/sh\n{SERVER}\n")
    script.chmod(0o700)
    text = f"""
        name: served
        steps:
          - {{id: server, run: [./serve.sh], service: {{line: up}}, approve: always}}
          - {{id: a, needs: [server], run: "{WAITS}; echo x >> done.txt"}}
    """
    asked = await (await engine.start(load_text(text).plan, anyway=True, hold=False)).wait()
    await engine.approve(asked.id, "server")
    await stopped(engine, await engine.resume(asked.id), project)
    script.write_text(f"#!/bin/sh\n# changed\n{SERVER}\n")
    found = await result(await engine.resume(asked.id))
    error = found["a"]["error"]
    reason = "since it was approved, the file ./serve.sh changed"
    assert error["message"] == f"the service server could not be started again: {reason}"
    assert error["advice"][0].endswith(f"windlass fork {asked.id}")
    assert project.lines("done.txt") == [], "the step ran without its service"
    fork = await engine.fork(asked.id)
    state = await (await engine.resume(fork, hold=False)).wait()
    assert (state.status, state.paused_for) == ("paused", "approval")
    await engine.approve(fork, "server")
    assert (await result(await engine.resume(fork)))["status"] == "completed"
    assert living(project) == [False, False]


@pytest.mark.parametrize("approve", ["never", "always"])
async def test_b5_d5_a_service_that_was_mended_is_started_again_as_it_is_now(
    engine: Engine, project: Project, approve: str
) -> None:
    def text(word: str) -> str:
        return f"""
            name: served
            steps:
              - {{id: server, run: "echo {word} >> words.txt; {SERVER}", service: {{line: up}}, approve: {approve}}}
              - {{id: a, needs: [server], run: "{WAITS}"}}
        """

    execution = await engine.start(project.plan(text("old")), anyway=True)
    if approve == "always":
        await wait_until_async(lambda: project.state(execution.id).questions, "it is asked about")
        await engine.approve(execution.id, "server")
    await stopped(engine, execution, project)
    project.plan(text("mended"))
    found = await result(await engine.resume(execution.id, accept_changes=True))
    if approve == "never":
        assert (found["status"], project.lines("words.txt")) == ("completed", ["old", "mended"])
    else:
        assert "its present command was not approved in this execution" in found["a"]["error"]["message"]
        assert project.lines("words.txt") == ["old"]
