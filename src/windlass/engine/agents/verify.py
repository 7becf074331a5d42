"""The checks of agents' work, run again without the agents (K2)."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.redo import is_over
from windlass.core.state import State, StepState
from windlass.engine.agents.checks import run_check
from windlass.engine.agents.file_changes import files_seen, record_of, take_back_writes
from windlass.engine.agents.workdir import workdir_of
from windlass.engine.perform import AttemptRunner
from windlass.errors import ToolError, UsageError
from windlass.ports import Call

__all__ = ["check_again"]


async def check_again(
    state: State, named: StepState | None, driven: bool, runner: AttemptRunner, clock: Clock
) -> tuple[list[ev.Event], UsageError | None]:
    """Results of the checks of a step and its items, or of all steps, as they ran last; and the refusal of those that
    cannot be checked so."""
    if driven:
        advice = (f"wait for its end, or pause it first: windlass pause {state.id}",)
        raise UsageError(f"execution {state.id} is running: its work cannot be checked now", advice=advice)
    steps = [step for step in _candidates(state, named) if step.settled and _checks_of(step)]
    if not steps:
        whose = f"step {named.id}" if named is not None else f"execution {state.id}"
        raise UsageError(
            f"{whose} has nothing to check again: no agent with a `check` has come to its end",
            advice=("add a check to the step, as in: windlass docs checks",),
        )
    refusals = {step.id: refusal for step in steps if (refusal := _refusal(state, step, runner)) is not None}
    checked = [await _check(state, step, runner, clock) for step in steps if step.id not in refusals]
    refused = next(iter(refusals.values()), None)
    if refused is not None and checked:
        refused.advice += (f"the other steps were checked, see the results: windlass status {state.id}",)
    return [*checked], refused


def _refusal(state: State, step: StepState, runner: AttemptRunner) -> UsageError | None:
    for position, use in enumerate(_checks_of(step), 1):
        tool = runner.tools.get(use["tool"])
        if tool is not None and tool.is_program:
            return UsageError(
                f"check {position} of step {step.id} is a program, which runs only inside an execution",
                advice=(_checked_inside(state, step),),
            )
    return None


def _checked_inside(state: State, step: StepState) -> str:
    """The advice for a check that runs only inside an execution: a step that never runs again is checked in a fork."""
    if is_over(state, step):
        return f"run it again in a new execution: windlass fork {state.id} --from {shlex.quote(step.spec.id)}"
    return f"have the step checked by itself: windlass retry {state.id} {shlex.quote(step.id)}"


def _candidates(state: State, named: StepState | None) -> Iterable[StepState]:
    return state.steps.values() if named is None else (named, *(named.children or ()))


def _checks_of(step: StepState) -> list[dict[str, Any]]:
    begun = step.agent is not None and step.agent.attempt > 0
    given = step.input if isinstance(step.input, dict) and begun else {}
    return [*given.get("check", ()), *given.get("pick", ())]


def _folder_of(state: State, step: StepState) -> Path:
    """The folder that the agent works in."""
    if step.agent is not None and step.agent.workspace is not None:
        return Path(step.agent.workspace.workdir)
    return workdir_of(step.spec, step.input or {}, Path(state.workdir))


async def _check(state: State, step: StepState, runner: AttemptRunner, clock: Clock) -> ev.AgentChecked:
    assert step.agent is not None
    call = Call(
        execution=state.id,
        step=step.id,
        attempt=step.attempts,
        workdir=_folder_of(state, step),
        folder=runner.folder / state.id,
        processes=runner.processes,
        env=runner.env,
        grace=runner.grace,
    )
    before = await record_of(call) if step.agent.workspace is not None else None
    try:
        results = await _results(step, call, runner)
    finally:
        if before is not None:
            with suppress(ToolError, OSError):  # then `windlass workspaces` shows files that are not committed
                await asyncio.shield(asyncio.to_thread(take_back_writes, before, call))
    checked = ev.AgentChecked(
        clock.now(), step.id, step.attempts, max(step.agent.checks, 0), tuple(results), unmatched=step.agent.unmatched
    )
    root, tree = await files_seen(call, results) if checked.passed else ("", "")
    return msgspec.structs.replace(checked, root=root, tree=tree)


async def _results(step: StepState, call: Call, runner: AttemptRunner) -> list[ev.CheckResult]:
    results: list[ev.CheckResult] = []

    async def used(tool: Any, arguments: Any, call: Call) -> Any:
        return await runner.gates.use(tool, arguments, call, runner.tools)

    for position, use in enumerate(_checks_of(step), 1):
        one = msgspec.structs.replace(call, step=f"{step.id}.verify-{position}")
        results.append(await run_check(use, one, runner.tools, used, asyncio.timeout(use.get("timeout"))))
        if not results[-1].passed:
            break
    return results
