"""The tools about executions, programs and single tools (G1, G2, G3).

Each translates a call into a word to the engine, and answers with where things stand. A program, or the use of one
tool, is an execution of a plan of one step, so it is durable, gated and on record like any other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from mcp.server.mcpserver import Context
from mcp_types import InputRequiredResult
from pydantic import Field

from windlass.assembly.tool_catalog import callable_tools, fitting
from windlass.core.advice import retry_notes
from windlass.core.events import DecisionChoice
from windlass.core.questions import limits_asked_about
from windlass.core.rollup import FIELDS
from windlass.engine.code.tool import WHAT_CODE_IS
from windlass.engine.code.typings import declarations
from windlass.engine.engine import Engine
from windlass.engine.lookup import find_step
from windlass.engine.plans import LoadedPlan
from windlass.engine.run_request import RunRequest
from windlass.engine.single import plan_of_program, plan_of_tool
from windlass.engine.spending import By
from windlass.errors import Damaged, UsageError
from windlass.plan.model import MOST_PARALLEL, Plan
from windlass.plan.strategies import Strategy
from windlass.runtimes import RUNTIMES, runtime_names
from windlass.server.mcp.answers import client_name, told
from windlass.server.mcp.call import (
    LONGEST_WAIT,
    CallResult,
    ExecutionCalls,
    QuestionRelay,
    Until,
    Wait,
    Workdir,
    said_by,
)
from windlass.server.mcp.look import (
    budget_view,
    damaged,
    estimate_view,
    history_view,
    overview,
    slow_view,
    transcript_view,
)
from windlass.server.mcp.models import (
    BudgetView,
    ContextView,
    DiffView,
    EstimateView,
    ExecutionView,
    FoldersView,
    FolderView,
    HistoryView,
    RetryChange,
    SaidView,
    StatusView,
    TranscriptView,
    UndoView,
    WorkView,
)

__all__ = ["TOLD_OF_CODE", "ProgramTools", "Tools"]

Id = Annotated[str, Field(description="The execution's id, or a unique beginning of it.")]
Usd = Annotated[float | None, Field(ge=0, description="Total limit in dollars.")]
Tokens = Annotated[int | None, Field(ge=0, description="The same in tokens read and written.")]


class Tools:
    """Tools for an MCP client about the executions of one home."""

    def __init__(self, calls: ExecutionCalls) -> None:
        self._calls = calls
        self._engines = calls.engines
        self.redactor = calls.redactor

    @told
    async def engine_execute(
        self,
        ctx: Context[Any, Any],
        task: Annotated[
            str | list[str | dict[str, Any]] | None,
            Field(description="Task for agents: a text, or a list of tasks (texts, or {id, task, depends_on})."),
        ] = None,
        plan: Annotated[
            dict[str, Any] | str | None, Field(description="Instead: a whole plan, as an object or as YAML or JSON.")
        ] = None,
        file: Annotated[str | None, Field(description="Instead: a plan file, relative to workdir.")] = None,
        strategy: Annotated[
            Strategy | None, Field(description="Strategy that turns tasks into a plan; chosen from the tasks if unset.")
        ] = None,
        role: Annotated[str | None, Field(description="The agent's role: developer, reviewer, ...")] = None,
        chain: Annotated[list[str] | None, Field(description="The roles of strategy multi, in order.")] = None,
        files: Annotated[list[str] | None, Field(description="Files that the agents are given.")] = None,
        skills: Annotated[list[str] | None, Field(description="Skills that the agents are given.")] = None,
        runtime: Annotated[
            str | None, Field(description=f"{runtime_names()}; if unset, the caller's own if healthy.")
        ] = None,
        model: Annotated[str | None, Field(description="The agents' model, in the runtime's own words.")] = None,
        fallback: Annotated[bool | None, Field(description="Let another runtime take over.")] = None,
        parallel: Annotated[int | None, Field(ge=1, le=MOST_PARALLEL, description="Steps at a time.")] = None,
        allow: Annotated[list[str] | None, Field(description="Tools that agents may use without asking.")] = None,
        budget: Usd = None,
        budget_tokens: Tokens = None,
        on_overrun: Annotated[Literal["ask", "proceed"], Field(description="At a limit of the budget.")] = "proceed",
        inputs: Annotated[dict[str, Any] | None, Field(description="Values for the plan's inputs.")] = None,
        workdir: Workdir = None,
        wait_s: Wait = 0.0,
        on_cancel: Annotated[
            Literal["go_on", "interrupt", "cancel"],
            Field(description="Action on the execution if this call is cancelled while it waits."),
        ] = "go_on",
        anyway: Annotated[bool, Field(description="Start even if a program or runtime it needs is missing.")] = False,
    ) -> CallResult:
        """Start a durable execution: a task for agents, or a plan of steps. Gives its id at once, or waits for it.

        It continues when this call or the client ends. At a budget limit it continues, too, with a warning. Follow
        it with engine_status; answer what it asks with engine_approve.
        """

        async def sourced(engine: Engine, folder: str | None) -> LoadedPlan:
            if sum(given is not None for given in (plan, file, task)) != 1:
                raise UsageError("name one thing to run: `plan`, `file` or `task`")
            request = RunRequest(
                plan=plan if isinstance(plan, dict) else None,
                plan_text=plan if isinstance(plan, str) else None,
                plan_file=Path(file).expanduser() if file is not None else None,
                task=task if isinstance(task, str) else None,
                tasks=task if isinstance(task, list) else None,
                strategy=strategy,
                role=role,
                chain=chain,
                files=files or (),
                skills=skills or (),
                runtime=runtime,
                model=model,
                fallback=fallback,
                parallel=parallel,
                allow=allow or (),
                budget=budget,
                budget_tokens=budget_tokens,
                workdir=folder,
            )
            found = await _with_runtime(engine, request.load(engine), client_name(ctx))
            notes = await engine.prerequisites(found, folder, anyway=anyway)
            return msgspec.structs.replace(found, warnings=(*found.warnings, *notes))

        return await self._calls.begin(ctx, sourced, inputs or {}, workdir, wait_s, on_cancel, on_overrun)

    @told
    async def engine_estimate(
        self,
        task: Annotated[
            str | list[str | dict[str, Any]] | None, Field(description="A task, or a list of tasks, for agents.")
        ] = None,
        plan: Annotated[dict[str, Any] | str | None, Field(description="Instead: a whole plan.")] = None,
        file: Annotated[str | None, Field(description="Instead: a plan file, relative to workdir.")] = None,
        runtime: Annotated[str | None, Field(description="The agents' runtime.")] = None,
        model: Annotated[str | None, Field(description="The agents' model.")] = None,
        workdir: Workdir = None,
    ) -> EstimateView:
        """Forecast how long a task or plan will take and what it will cost, from past runs. Starts nothing."""
        request = RunRequest(
            plan=plan if isinstance(plan, dict) else None,
            plan_text=plan if isinstance(plan, str) else None,
            plan_file=Path(file).expanduser() if file is not None else None,
            task=task if isinstance(task, str) else None,
            tasks=task if isinstance(task, list) else None,
            runtime=runtime,
            model=model,
            workdir=os.path.expanduser(workdir) if workdir else None,
        )
        return estimate_view(await request.estimate(await self._engines(False)))

    @told
    async def engine_status(
        self,
        ctx: Context[Any, Any],
        execution: Annotated[
            str | None,
            Field(description="Its id, or a unique beginning of it; unset: all executions, and the health."),
        ] = None,
        wait_s: Wait = 0.0,
        until: Annotated[
            Until, Field(description="Wait for its end (or a question), or for any step's change.")
        ] = "end",
        step: Annotated[str | None, Field(description="Show this step alone, with the whole of its output.")] = None,
    ) -> StatusView | InputRequiredResult:
        """Show the status of an execution: steps, outputs, errors with advice, open questions, cost, warnings.

        Without an id: the engine's health, and its executions, the unfinished ones first.
        """
        engine = await self._engines(False)
        if execution is None:
            if step is not None:
                raise UsageError("name the `execution` of that step")
            return await overview(engine)
        try:
            return await self._calls.see(engine, execution, QuestionRelay.of(ctx), wait_s, until, step)
        except Damaged as damage:
            return await damaged(engine, damage)

    @told
    async def engine_transcript(
        self,
        execution: Id,
        step: Annotated[str, Field(description="The step of the agent.")],
        after: Annotated[int, Field(ge=0, description="Only what comes after this place.")] = 0,
    ) -> TranscriptView:
        """Show an agent's conversation: prompts, replies, calls and results, as Markdown, part by part."""
        engine = await self._engines(False)
        return await transcript_view(engine, execution, step, after)

    @told
    async def engine_budget(
        self, by: Annotated[By, Field(description="Grouping of the spending; all but days cover this month.")] = By.DAY
    ) -> BudgetView:
        """Show limits, spending, reservations and what is left, today and this month."""
        return await budget_view(await self._engines(False), by)

    @told
    async def engine_history(
        self,
        by: Annotated[str, Field(description=f"Group by {', '.join(FIELDS)}.", max_length=20)] = "day",
        since: Annotated[str | None, Field(description="First day: `30d`, `4w`, a date.", max_length=20)] = None,
        until: Annotated[str | None, Field(description="Last day.", max_length=20)] = None,
        failed: Annotated[bool, Field(description="Only failures.")] = False,
        plan: Annotated[str, Field(description="Only executions of this plan.", max_length=200)] = "",
        slow: Annotated[
            bool, Field(description="Bottlenecks, and steps that get slower or fail more, instead.")
        ] = False,
    ) -> HistoryView:
        """Sum up past executions or their steps by a field: times, waits, cost, tokens, failures."""
        engine = await self._engines(False)
        if slow:
            if by != "day" or until or failed:
                raise UsageError("`slow` goes with `since` and `plan` only")
            return slow_view(await engine.slow_steps(since=since, plan=plan))
        return history_view(await engine.history(by, since=since, until=until, failed=failed, plan=plan))

    @told
    async def engine_context(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        step: Annotated[str | None, Field(description="Only the agent of this step.")] = None,
        summarise: Annotated[
            bool, Field(description="Have the step's conversation summarised before its agent's next call.")
        ] = False,
    ) -> ContextView:
        """Show the tokens, window, threshold and summaries of an execution's agents, and their pinned facts."""
        engine = await self._engines(False)
        head = await engine.find(execution)
        if summarise:
            if step is None:
                raise UsageError("name the `step` whose conversation is to be summarised")
            await engine.summarise(head.id, step, by=said_by(ctx))
        found = await engine.context(head.id, step)
        return ContextView(execution=head.id, contexts=[one.plain() for one in found])

    @told
    async def engine_interrupt(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        mode: Annotated[
            Literal["interrupt", "pause", "cancel"],
            Field(description="Stop now and stand still; let running steps finish first; or end it for good."),
        ] = "interrupt",
        wait_s: Annotated[float, Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait for that.")] = 10.0,
    ) -> ExecutionView:
        """Stop an execution. Interrupted and paused ones can be resumed from exactly there."""
        engine, by = await self._engines(False), said_by(ctx)
        stop = {"interrupt": engine.interrupt, "pause": engine.pause, "cancel": engine.cancel}[mode]
        state = await stop(execution, by=by, within=wait_s)
        return await self._calls.now(engine, state.id)

    @told
    async def engine_resume(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        budget: Usd = None,
        budget_tokens: Tokens = None,
        decisions: Annotated[
            dict[str, DecisionChoice] | None,
            Field(description="For steps whose outcome is unknown: run again, it took effect, or count as failed."),
        ] = None,
        retry: Annotated[
            dict[str, RetryChange] | None,
            Field(description='Steps to try again, also after the end: {STEP: {}}, or {STEP: {"with": {…}, …}}.'),
        ] = None,
        skip: Annotated[
            list[str] | None, Field(description="Steps to skip, also after the end; their output is null.")
        ] = None,
        keep_plan: Annotated[
            bool, Field(description="Continue with the plan as it was started, though its file changed.")
        ] = False,
        wait_s: Wait = 0.0,
    ) -> CallResult:
        """Go on with an execution that is paused, was interrupted, or was left behind by a dead process.

        With `retry` or `skip`, also with one that ended failed or partial.
        """
        engine, relay = await self._engines(False), QuestionRelay.of(ctx)
        if relay.execution is not None:
            return await self._calls.see(engine, relay.execution, relay, wait_s)
        state = await engine.state(execution)
        if both := sorted({*(retry or ())}.intersection(skip or ())):
            raise UsageError(f"step {both[0]} is in `retry` and in `skip`: name it in one of them")
        wanted: dict[str, dict[str, Any]] = {
            name: {"edits": change.with_, "runtime": change.runtime, "model": change.model, "fresh": change.fresh}
            for name, change in (retry or {}).items()
        }
        asked: list[dict[str, Any]] = [{"kind": "retry", "step": name, **how} for name, how in wanted.items()]
        asked += [{"kind": "skip", "step": name} for name in skip or ()]
        await engine.check_redo(state.id, asked, keep_plan=keep_plan, decisions=decisions or ())
        notes = [note for name in wanted for note in retry_notes(state, find_step(state, name))]
        for name, how in wanted.items():
            state = await engine.retry(state.id, name, **how, by=said_by(ctx))
        for name in skip or ():
            state = await engine.skip(state.id, name, by=said_by(ctx))
        driven = engine.driven(state)
        more = limits_asked_about(state) if budget is not None or budget_tokens is not None else []
        if driven and not (more or decisions or retry or skip):
            raise UsageError(f"execution {state.id} is running", advice=(f"engine_status(execution={state.id!r})",))
        for scope, waits in more:
            by = said_by(ctx)
            await engine.allow_budget(state.id, usd=budget, tokens=budget_tokens, scope=scope, step=waits, by=by)
        for step, choice in (decisions or {}).items():
            await engine.settle(state.id, step, choice, by=said_by(ctx))
        if not driven:
            notes += engine.missing_values(state)
            await self._calls.resume(engine, state.id, keep_plan=keep_plan)
        return await self._calls.see(engine, state.id, relay, wait_s, notes=notes)

    @told
    async def engine_say(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        step: Annotated[str, Field(description="The step of the agent.")],
        text: Annotated[str, Field(description="The message, in the person's words.")],
        keep_plan: Annotated[
            bool, Field(description="Continue with the plan as it was started, though its file changed.")
        ] = False,
        wait_s: Wait = 0.0,
    ) -> SaidView:
        """Say something to an agent for a person. A running agent gets it after a tool call or after its turn;
        a stopped or failed one goes on with it; a completed one goes on with it in a fork.
        """
        engine = await self._engines(False)
        by = said_by(ctx)
        receipt = await engine.say(execution, step, text, by=by, within=wait_s, to_resume=True, keep_plan=keep_plan)
        state, warnings = receipt.state, list[str]()
        if not state.status.finished and not engine.driven(state):
            warnings = engine.missing_values(state)
            await self._calls.resume(engine, state.id, keep_plan=keep_plan or receipt.forked)
        return SaidView(**receipt.as_dict(), warnings=warnings)

    @told
    async def engine_diff(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        step: Annotated[str, Field(description="Only this step, with its items.")] = "",
        patches: Annotated[bool, Field(description="With the lines that changed, not the names alone.")] = True,
    ) -> DiffView:
        """Show the files that an execution's agents changed."""
        engine = await self._engines(False)
        head = await engine.find(execution)
        found = await engine.diff(head.id, step)
        for file in (file for one in found for file in one["files"] if not patches):
            file["patch"] = ""
        return DiffView(execution=head.id, changes=[WorkView(**one) for one in found])

    @told
    async def engine_undo(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        step: Annotated[str, Field(description="The finished step.")],
    ) -> UndoView:
        """Undo the file changes of a finished step, unless a file was changed since."""
        engine = await self._engines(False)
        head = await engine.find(execution)
        changes = await engine.undo(head.id, step, by=said_by(ctx))
        return UndoView(execution=head.id, step=step, changes=changes)

    @told
    async def engine_workspaces(
        self,
        ctx: Context[Any, Any],
        execution: Annotated[str, Field(description="Only of this execution; its id, or a unique beginning.")] = "",
        clean: Annotated[bool, Field(description="Remove those without work that would be lost.")] = False,
    ) -> FoldersView:
        """List the worktrees and copies that agents work in: branch, state of the work, place in a merge.

        With `clean`, folders without unmerged work are removed with their branches; the others are kept.
        """
        engine = await self._engines(False)
        found = await engine.workspaces(execution, clean=clean, by=said_by(ctx))
        return FoldersView(workspaces=[FolderView(**one) for one in found])

    @told
    async def engine_approve(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        step: Annotated[str, Field(description="The step that asks.")],
        allow: Annotated[bool, Field(description="What the person has decided.")],
        digest: Annotated[str, Field(description="The question's digest: the answer is for exactly that input.")],
        note: Annotated[str, Field(description="What the agent or the record should be told.")] = "",
    ) -> ExecutionView:
        """Answer a step's request for approval. Only a person may decide: show them the exact input first."""
        engine = await self._engines(False)
        state = await engine.state(execution)
        await engine.approve(state.id, step, allow=allow, by=said_by(ctx), note=note, digest=digest)
        return await self._calls.now(engine, state.id)


async def _with_runtime(engine: Engine, sourced: LoadedPlan, client: str) -> LoadedPlan:
    """The plan with a runtime for the agents that nobody has named one for (A6).

    A client that is a runtime itself, by the name that it gives itself, gets its own family if that is healthy: Claude
    Code asks, Claude Code works. Else it is the first healthy one in the table of runtimes.
    """
    plan = sourced.plan
    needed = plan.runtime is None and any(step.is_agent and step.runtime is None for step in plan.steps)
    if not needed or engine.settings.runtime is not None or engine.agents is None:
        return sourced
    called = client.strip().lower()
    order = [*(row.name for row in RUNTIMES.values() if called in row.client_names), *RUNTIMES]
    chosen = order[0]  # if none can be used, the error is about the one that was meant
    for name in dict.fromkeys(order):
        health = await engine.agents.runners[name].available()
        if health.ok and not health.unset:
            chosen = name
            break
    revised = Plan.decode(plan.model_copy(update={"runtime": chosen}).encoded)
    return LoadedPlan(revised, sourced.source, sourced.tools, sourced.warnings)


MOST_FOUND = 50
TOLD_OF_CODE = f"""\
{WHAT_CODE_IS}
Find the tools that it can call, with their types, by code_search first. It is durable: it continues when this call or \
the client ends, and engine_status follows it. The result is the step's output, what it logged is the step's log."""
"""Clients cut descriptions off after some 2,000 characters: types would not fit."""


class ProgramTools:
    def __init__(self, calls: ExecutionCalls) -> None:
        self._calls = calls
        self.redactor = calls.redactor

    @told
    async def code(
        self,
        ctx: Context[Any, Any],
        source: Annotated[str, Field(description="The body of an async JavaScript function.")],
        args: Annotated[dict[str, Any] | None, Field(description="Values that the program reads as `args`.")] = None,
        grants: Annotated[
            list[str] | None,
            Field(description="The only tools that it may call; names and patterns like files.*; all if unset."),
        ] = None,
        limits: Annotated[
            dict[str, Any] | None,
            Field(description='What it may use: memory ("64MB"), cpu ("5s"), wall ("10m"), calls, output, log.'),
        ] = None,
        workdir: Workdir = None,
        wait_s: Wait = 60.0,
    ) -> CallResult:
        async def sourced(engine: Engine, folder: str | None) -> LoadedPlan:
            return LoadedPlan(plan_of_program(source, args, grants, limits))

        return await self._calls.begin(ctx, sourced, {}, workdir, wait_s)

    @told
    async def code_search(
        self,
        query: Annotated[str, Field(description="Words that describe the tool, or part of its name; empty for all.")],
        limit: Annotated[int, Field(ge=1, le=MOST_FOUND)] = 10,
    ) -> str:
        """Find tools to call from code, composed ones included, and get their TypeScript declarations."""
        engine = await self._calls.engines(False)
        found = fitting(engine, query, limit)
        if not found:
            return "no tool matches; there are: " + ", ".join(tool.name for tool in callable_tools(engine))
        return declarations(found)

    @told
    async def engine_tool(
        self,
        ctx: Context[Any, Any],
        name: Annotated[str, Field(description="The tool: files.read, shell, or a composed one; see code_search.")],
        args: Annotated[dict[str, Any] | None, Field(description="Its arguments.")] = None,
        workdir: Workdir = None,
        wait_s: Wait = 60.0,
    ) -> CallResult:
        """Use one tool of the engine by its name, composed ones included, as a durable execution of one step.

        The result is the step's output.
        """

        async def sourced(engine: Engine, folder: str | None) -> LoadedPlan:
            return LoadedPlan(plan_of_tool(engine, name, args or {}))

        return await self._calls.begin(ctx, sourced, {}, workdir, wait_s)
