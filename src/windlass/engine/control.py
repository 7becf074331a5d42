"""Steers executions for people and programs, from any process: pause, cancel, answer, retry, skip, undo.

A request goes to the driver: directly if it is here, through the journal's inbox if it is elsewhere. An execution that
no process drives is taken up just long enough to write the request down and obey it.

Undoing a step is up to the tools: one that can take its changes back overrides `Tool.take_back`, as the file tools do.
The files come first and the event second: killed in between, the same request finds it done, and writes it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from windlass.core import events as ev
from windlass.core.advice import no_outcome, ways_after
from windlass.core.budget import ScopeName
from windlass.core.history import has_stopped, record_of
from windlass.core.questions import is_answer_on_budget
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus
from windlass.core.view import has_verified_work
from windlass.engine.agents.tool import AgentTool
from windlass.engine.drivers import Launcher, LocalDrivers
from windlass.engine.inbox import checked_limit
from windlass.engine.lookup import find_step
from windlass.engine.observer import Observer
from windlass.engine.requests import Requests, check_edits, keepable, persist
from windlass.errors import Conflict, ToolError, UsageError, WindlassError
from windlass.homes import user_folder
from windlass.plan.model import AGENT
from windlass.ports import Ledger, Tool, Toolbox

if TYPE_CHECKING:
    from windlass.engine.agents.context import StepContext
    from windlass.engine.agents.staleness import StaleChecks

__all__ = ["Control", "take_back"]


class Control:
    """Carries out people's requests to executions."""

    def __init__(
        self,
        drivers: LocalDrivers,
        observer: Observer,
        requests: Requests,
        launcher: Launcher,
        ledger: Ledger,
        agents: AgentTool | None,
    ) -> None:
        self._drivers = drivers
        self._ledger = ledger
        self._journal = drivers.journal
        self._clock = drivers.clock
        self._observer = observer
        self._requests = requests
        self._launcher = launcher
        self._agents = agents
        self._stale: StaleChecks | None = None

    async def pause(
        self, execution: str, *, now: bool = False, by: str = "", within: float | None = None, reason: str = ""
    ) -> State:
        """Let running attempts finish (or with `now` stop them), then pause. `reason` is kept, if it is given.

        Returns the state once it has paused, or as it is after `within` seconds.
        """
        return await self._control(execution, "pause", now=now, by=by, within=within, reason=reason)

    async def interrupt(self, execution: str, *, by: str = "", within: float | None = None) -> State:
        """Stop running attempts and pause."""
        return await self._control(execution, "interrupt", now=True, by=by, within=within)

    async def cancel(self, execution: str, *, by: str = "", within: float | None = None) -> State:
        """Stop running attempts and end it for good."""
        return await self._control(execution, "cancel", now=True, by=by, within=within)

    async def approve(
        self,
        execution: str,
        step: str,
        *,
        allow: bool = True,
        by: str = "",
        note: str = "",
        digest: str | None = None,
        request: str | None = None,
    ) -> None:
        """Answer a request for approval. `digest` binds the answer to the request that the person has seen.

        `request`, here and below, is an id for the event that is written, by which the caller finds it again.
        """

        async def ask() -> None:
            state = await self._observer.state(execution)
            await self._requests.refuse_attempts(state, "approve", step)
            waiting = find_step(state, step)
            asked = waiting.approval
            if asked is None or asked.allow is not None or waiting.id not in state.questions:
                answered = ""
                if asked is not None and asked.allow is not None:
                    answered = f" (already {'allowed' if asked.allow else 'denied'} by {asked.by or 'a person'})"
                raise UsageError(
                    f"step {step} of {state.id} is not waiting for approval{answered}",
                    advice=(f"see its status: windlass status {state.id}", "list open approvals: windlass approvals"),
                )
            if self._clock.now() >= asked.expires_at:
                close = f"have the question closed: windlass resume {state.id}"
                again = f"ask again: windlass retry {state.id} {shlex.quote(step)}"
                raise UsageError(
                    f"the approval of step {step} of {state.id} has expired: it counts as denied",
                    advice=(again,) if self._drivers.driven(state) else (close, f"then {again}"),
                )
            if digest is not None and digest != asked.digest:
                raise UsageError(
                    f"step {step} of {state.id} now asks for something else: check it before you answer",
                    advice=("see the open question: windlass approvals",),
                )
            body = {"kind": "approve", "step": step, "digest": asked.digest, "allow": allow}
            await self._requests.answer(state, {**body, "by": by, "note": note, "request": request})

        await persist(ask)

    async def always_rule(self, execution: str, step: str) -> str:
        """The rule of the user's settings by which an agent would not have had to ask its open question."""
        state = await self._observer.state(execution)
        waiting = find_step(state, step)
        asked = waiting.approval
        if asked is None or asked.allow is not None or waiting.id not in state.questions:
            raise UsageError(f"step {step} of {state.id} is not waiting for approval")
        if self._agents is None or waiting.prepared.tool != AGENT or not asked.attempt:
            raise UsageError(
                "the plan or the settings ask for this approval, and rules are for what agents ask",
                advice=("change `approve` of the step, or `approvals` in your settings",),
            )
        if "WINDLASS_PERMISSIONS" in os.environ:
            raise UsageError("WINDLASS_PERMISSIONS is set, and stronger than your settings file: add the rule there")
        from windlass.engine.agents.permits import exact_rule  # few ever save a rule

        return exact_rule(self._agents.settings.permissions, asked.tool, asked.input)

    async def approve_always(
        self,
        execution: str,
        step: str,
        rule: str,
        *,
        by: str = "",
        note: str = "",
        digest: str | None = None,
        request: str | None = None,
    ) -> None:
        """Allow what an agent asks, and save the rule that was shown, so that nobody is asked for it again.

        The rule is checked before the answer is given, and written after it: only a person's answer writes one.
        """
        if rule != await self.always_rule(execution, step):
            raise UsageError("the rule is not that of this question: look at it again before you save it")
        from windlass.settings.edit import add_allowed  # few ever save a rule

        file = user_folder() / "config.toml"
        await asyncio.to_thread(add_allowed, file, rule, dry=True)
        await self.approve(execution, step, by=by, note=note, digest=digest, request=request)
        await asyncio.to_thread(add_allowed, file, rule)
        assert self._agents is not None
        # Attempts that begin from now on, here; other processes read the file when they start.
        settings = self._agents.settings
        if rule not in settings.permissions.allow:
            permissions = settings.permissions.model_copy(update={"allow": (*settings.permissions.allow, rule)})
            self._agents.settings = settings.model_copy(update={"permissions": permissions})

    async def settle(
        self,
        execution: str,
        step: str,
        choice: ev.DecisionChoice,
        *,
        by: str = "",
        output: Any = None,
        request: str | None = None,
    ) -> None:
        """Decide the unknown outcome of an attempt."""
        if choice not in get_args(ev.DecisionChoice):
            raise UsageError(f"there is no decision {choice!r}; there are: {', '.join(get_args(ev.DecisionChoice))}")
        body = {"kind": "decide", "step": step, "choice": choice, "by": by, "output": output, "request": request}

        async def ask() -> None:
            state = await self._observer.state(execution)
            await self._requests.refuse_attempts(state, "decide", step)
            if find_step(state, step).waiting_for != "outcome":
                raise no_outcome(state, step)
            await self._requests.answer(state, body)

        await persist(ask)

    async def allow_budget(
        self,
        execution: str,
        *,
        allow: bool = True,
        usd: float | None = None,
        tokens: int | None = None,
        scope: str = "execution",
        step: str = "",
        by: str = "",
    ) -> None:
        """Allow or refuse more spending: `usd` and `tokens` are the limits of the scope from here on (E3).

        Without a limit, it answers a step that waits for budget: no, or yes without any limit of the scope.
        """
        if scope not in get_args(ScopeName):
            raise UsageError(f"unknown budget scope {scope!r}: use step, execution, day or month")
        limit = checked_limit(usd, tokens)
        body = {"kind": "budget", "allow": allow, "usd": limit.usd, "tokens": limit.tokens, "by": by}

        async def ask() -> None:
            state = await self._observer.state(execution)
            await self._requests.refuse_attempts(state, "budget", step)
            if state.status.finished:
                raise UsageError(f"execution {state.id} is already {state.status}", advice=ways_after(state))
            if scope == "step":
                find_step(state, step)
            if not is_answer_on_budget(state, allow, limit.usd, limit.tokens):
                raise UsageError(
                    f"no step of {state.id} is waiting for budget",
                    advice=(f"see what it waits for: windlass status {state.id}",),
                )
            await self._requests.answer(state, {**body, "scope": scope, "step": step})

        await persist(ask)

    async def retry(
        self,
        execution: str,
        step: str,
        *,
        edits: Mapping[str, Any] | None = None,
        runtime: str | None = None,
        model: str | None = None,
        fresh: bool = False,
        by: str = "",
        request: str | None = None,
    ) -> State:
        """Have a failed step, or the failed items of a foreach, tried again: with other arguments, on another runtime.

        Its agent goes on in its conversation, unless `fresh`, or on another runtime: then it begins a new one.
        Returns when the request is on disk. One that ended failed or partial is reopened, and paused until `resume`.
        """

        async def ask() -> State:
            state = await self._observer.state(execution)
            await self._requests.refuse_attempts(state, "retry", step)
            strange = [] if self._agents is None or runtime is None else self._agents.validate({"runtime": runtime})
            if strange:
                raise UsageError("; ".join(strange))
            tools = self._launcher.attempt_runner.tools
            body = {"kind": "retry", "edits": edits, "runtime": runtime, "model": model, "fresh": fresh, "by": by}
            changes = check_edits(find_step(state, step), body, tools)
            return await self._requests.redo(state, step, {**body, "edits": changes, "request": request})

        return await persist(ask)

    async def skip(self, execution: str, step: str, *, by: str = "", request: str | None = None) -> State:
        """Do without a step: it is stopped if it runs, and dependents run with a null output.

        Returns when the request is on disk. One that ended failed or partial is reopened, and paused until `resume`.
        """

        async def ask() -> State:
            state = await self._observer.state(execution)
            await self._requests.refuse_attempts(state, "skip", step)
            return await self._requests.redo(state, step, {"kind": "skip", "by": by, "request": request})

        return await persist(ask)

    async def context(self, execution: str, step: str | None = None) -> list[StepContext]:
        """Tokens, window, threshold and summaries of an execution's agents, or of one (F1–F3)."""
        state, entries = await self._observer.record((await self._observer.find(execution)).id)
        if self._agents is None:
            return []
        from windlass.engine.agents.context import contexts  # few ask

        return contexts(state, entries, step, self._agents.runners, self._agents.settings)

    async def summarise(self, execution: str, step: str, *, by: str = "") -> StepContext:
        """Have the older part of an agent's conversation summarised before its next call; returns when that is on disk.

        On Claude Code and OpenCode their own compaction does it, when their next turn begins.
        """

        from windlass.engine.agents.context import check_agent

        async def ask() -> None:
            state = await self._observer.state(execution)
            found = check_agent(state, step)
            if state.status.finished or found.settled:
                ended = f"execution {state.id} is already {state.status}" if state.status.finished else ""
                raise UsageError(
                    f"{ended or f'step {found.id} is already {found.status}'}: its agent makes no further call",
                    advice=ways_after(state) if state.status.finished else (),
                )
            await self._requests.answer(state, {"kind": "summarise", "step": found.id, "by": by})

        await persist(ask)
        return (await self.context(execution, step))[0]

    async def undo(
        self, execution: str, step: str, *, by: str = "", request: str | None = None
    ) -> list[dict[str, str]]:
        """Undo a finished step's changes of files: returns the undone changes, newest first (H2).

        Refused while a process drives the execution, and where a file was changed since: then nothing is touched.
        """
        keepable({"by": by})

        async def ask() -> list[dict[str, str]]:
            state = await self._observer.state(execution)
            attempt_runner = self._launcher.attempt_runner
            event = await take_back(
                state,
                find_step(state, step),
                driven=self._drivers.driven(state),
                tools=attempt_runner.tools,
                folder=attempt_runner.folder / state.id,
                home=attempt_runner.folder.parent,
                now=self._clock.now(),
                by=by,
                request=request or "",
            )
            after = state.seq
            state.apply(event)
            record = record_of(state) if has_stopped(state) else None
            await self._journal.append(state.id, after, [event], record=record)
            return event.changes

        return await persist(ask)

    async def diff(self, execution: str, step: str = "") -> list[dict[str, Any]]:
        """The files that agents changed: of one step with its items, or of all; so far, for one that works (K5).

        Each stretch of work has its `step`, `root`, `ended`, `note` and `files` (`path`, `change`, `added`, `removed`,
        `patch`).
        """
        from windlass.engine.agents.file_changes import changed_files  # few commands need it

        state = await self._observer.state(execution)
        named = find_step(state, step) if step else None
        try:
            return await asyncio.to_thread(changed_files, state, named, self._launcher.attempt_runner.folder.parent)
        except ToolError as error:
            raise _CannotTakeBack(f"the changes cannot be shown: {error.failure.message}", error) from error

    async def stale(self, state: State) -> frozenset[str]:
        """Steps whose work was verified, and whose files have changed since (K2)."""
        if not has_verified_work(state):
            return frozenset()
        from windlass.engine.agents.staleness import StaleChecks  # few executions need it

        self._stale = self._stale or StaleChecks(self._launcher.attempt_runner.folder.parent)
        return await asyncio.to_thread(self._stale.find, state)

    async def workspaces(self, execution: str = "", *, clean: bool = False, by: str = "") -> list[dict[str, Any]]:
        """Folders of agents, each with the state of its work: of one execution, or of all here (K4).

        With `clean`, those without work that would be lost are removed, with their branches; they have `removed`.
        """
        from windlass.engine.agents.folders import list_folders, remove_folders  # few commands need it
        from windlass.workspaces.worktrees import place_of

        keepable({"by": by})
        home = self._launcher.attempt_runner.folder.parent
        if execution:
            names = [(await self._observer.find(execution)).id]
        else:
            places = place_of("x", "x").parent.parent
            there = {place.name for place in places.iterdir() if place.is_dir()} if places.is_dir() else set()
            names = [head.id for head in await self._journal.heads(limit=0) if head.id in there]
        found: list[dict[str, Any]] = []
        for name in names:

            async def ask(name: str = name) -> list[dict[str, Any]]:
                state = await self._observer.state(name)
                listed = await asyncio.to_thread(list_folders, state, self._drivers.driven(state), home)
                if clean and not self._drivers.driven(state):
                    events = await asyncio.to_thread(remove_folders, state, listed, self._clock.now(), by)
                    if events:
                        await self._journal.append(state.id, state.seq, events)
                    gone = {event.step for event in events if isinstance(event, ev.WorkspaceRemoved)}
                    listed = [{**one, "removed": one["step"] in gone} for one in listed]
                return listed

            found += await persist(ask)
        return found

    async def verify(self, execution: str, step: str = "") -> State:
        """Run the checks of agents' work again, without the agents; of one step, or of all that are settled (K2).

        Refused while a process drives the execution. The results are recorded, and the state has them.
        """

        async def ask() -> State:
            from windlass.engine.agents.verify import check_again  # few commands need it

            state = await self._observer.state(execution)
            named = find_step(state, step) if step else None
            found, refused = await check_again(
                state, named, self._drivers.driven(state), self._launcher.attempt_runner, self._clock
            )
            if found:
                await self._journal.append(state.id, state.seq, found)
            if refused is not None:
                raise refused
            return await self._observer.state(state.id)

        return await persist(ask)

    async def _control(
        self,
        execution: str,
        kind: Literal["pause", "interrupt", "cancel"],
        *,
        now: bool,
        by: str,
        within: float | None,
        reason: str = "",
    ) -> State:
        body = keepable({"kind": kind, "now": now, "by": by, "reason": reason})

        async def ask() -> State:
            state = await self._observer.state(execution)
            if state.status.finished:
                raise UsageError(f"execution {state.id} is already {state.status}", advice=ways_after(state))
            if state.status is ExecutionStatus.PAUSED and kind != "cancel":
                return state
            if state.id in self._drivers:
                await self._drivers.deliver(state.id, body)
            elif self._drivers.driven(state):
                await self._journal.send(state.id, self._clock.now(), body)
            else:
                return await self._obey_here(state, ev.ControlRequested(self._clock.now(), kind, by, now, reason))
            state = await self._obeyed(state.id, within)
            if kind == "cancel" and state.status is ExecutionStatus.PAUSED:
                raise Conflict(f"execution {state.id} paused before the request was read")
            return state

        return await persist(ask)

    async def _obey_here(self, state: State, request: ev.ControlRequested) -> State:
        """Take up an execution that no process drives, just long enough to write the request down and obey it."""
        if AGENT in state.prepared.tools:
            await self._ledger.abandon(state.id, self._clock.now())
        driver = self._launcher.driver(state, hold=False)
        for message in await self._journal.receive():
            if message.execution == state.id and message.body.get("kind") == request.kind:
                driver.answered(message)
        return await (await self._launcher.drive(driver, [self._launcher.opening(state, local=True), request]))

    async def _obeyed(self, execution: str, within: float | None) -> State:
        """Wait until the request has been obeyed, but no longer than that."""
        try:
            async with asyncio.timeout(within):
                return await self._observer.wait(execution)
        except TimeoutError:
            return await self._observer.state(execution)


async def take_back(
    state: State,
    step: StepState,
    *,
    driven: bool,
    tools: Toolbox,
    folder: Path,
    home: Path,
    now: float,
    by: str,
    request: str,
) -> ev.StepUndone:
    """Undo the changes of the step and its items; returns the event to write."""
    _refuse_untimely(state, step, driven)
    names = [step.id, *(child.id for child in step.children or ())]
    changes: list[dict[str, str]] = []
    try:
        if step.prepared.is_agent:
            from windlass.engine.agents.file_changes import put_files_back  # few commands need it

            changes += await asyncio.to_thread(put_files_back, state, step, home)
        for tool in _one_of_each_class(tools) if not changes else ():
            changes += await asyncio.to_thread(tool.take_back, folder, names, Path(state.workdir))
    except ToolError as error:
        raise _CannotTakeBack(f"step {step.id}: {error.failure.message}", error) from error
    if not changes:
        raise UsageError(
            f"step {step.id} has nothing to undo: it changed no file with the file tools here"
            if not step.prepared.is_agent
            else f"step {step.id} has nothing to undo: its agent changed no file that was recorded",
            advice=("changes by commands and other programs are not recorded",) if not step.prepared.is_agent else (),
        )
    return ev.StepUndone(now, step.id, by, changes, request)


def _refuse_untimely(state: State, step: StepState, driven: bool) -> None:
    if driven:
        raise UsageError(
            f"execution {state.id} is running: its steps cannot be undone now",
            advice=(f"pause it first: windlass pause {state.id}",),
        )
    if step.undone:
        raise UsageError(f"step {step.id} of {state.id} is already undone")
    if not step.settled and not state.status.finished:
        raise UsageError(
            f"step {step.id} is {step.status} and can still continue, so it cannot be undone yet",
            advice=(f"end the execution first: windlass cancel {state.id}",),
        )


def _one_of_each_class(tools: Toolbox) -> list[Tool]:
    """One tool of each class that can take back changes: those of a class share the record of them."""
    found = (tool for name in tools.names() if (tool := tools.get(name)) is not None)
    return list({type(tool).take_back: tool for tool in found}.values())


class _CannotTakeBack(WindlassError):
    """A tool cannot take it back, or will not: a file was changed since, or nothing of it is kept."""

    def __init__(self, message: str, error: ToolError) -> None:
        super().__init__(message, advice=error.failure.advice)
        self.category = error.failure.category
