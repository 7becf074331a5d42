"""One attempt of one agent step: choose a runtime, brief it, reserve budget, run it, settle, report the outcome.

A conversation is continued by the next attempt, however this one ends, unless the runtime has lost it or the model
refuses what is in it. In every case the usage is settled and reported
before the attempt ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from windlass.context.limits import ContextLimits, ContextRule
from windlass.core import events as ev
from windlass.core.agent import KeptSession
from windlass.core.budget import known_part, tokens_of
from windlass.core.delegate import falls_back, runtime_of
from windlass.core.handover import LONGEST_HANDOVER, hand_over, work_done
from windlass.core.retry import LONGEST_WAIT
from windlass.engine.agents.agent_tools import AgentTools
from windlass.engine.agents.checks import WorkChecks, asks_for_data
from windlass.engine.agents.context import context_rule
from windlass.engine.agents.deps import AgentDeps, RoleFacts
from windlass.engine.agents.file_changes import WorkRecorder, recorded_changes
from windlass.engine.agents.host import EngineHost
from windlass.engine.agents.model_choice import model_for
from windlass.engine.agents.moved import bring_session, keep_session
from windlass.engine.agents.permits import permitted
from windlass.engine.agents.plan_output import PlanCatalog, asks_for_plan
from windlass.engine.agents.reservation import BudgetReservation
from windlass.engine.agents.runtimes import Chosen, choose
from windlass.engine.agents.workdir import in_workdir
from windlass.engine.perform import Held
from windlass.errors import REFUSED_CONTENT, Category, Failure, ToolError
from windlass.ports import (
    AgentRequest,
    AgentResult,
    Amount,
    Brief,
    Call,
    Charge,
    Contact,
    Handoff,
    Permissions,
    Runner,
    hooks_of,
)
from windlass.runtimes import CLI, RUNTIMES

__all__ = ["AgentAttempt"]

CHARACTERS = 3
"""Characters of a token, at least: code and data have three, prose four."""


class AgentAttempt:
    """One attempt of one agent step."""

    def __init__(self, deps: AgentDeps, arguments: Mapping[str, Any], call: Call, contact: Contact) -> None:
        self._deps = deps
        self._told = arguments
        self._contact = contact
        self._role = str(arguments["role"])
        self._id = f"{call.execution}:{call.step}:{call.attempt}"
        agent = contact.step.agent
        self._origin = agent.session_origin if agent is not None else ""
        """The execution that this one was forked from, while the conversation is theirs."""
        call = in_workdir(contact.step.spec, arguments, call)
        self._enter(call)
        self._account = ""
        self._version = ""
        self._handed_on: list[Handoff] = []
        self._worked_in: str | None = None
        """The conversation of the runtime, once it has named it."""
        self._is_trusted = deps.trusted(call.workdir)
        """Also of a folder of its own, which has the same files."""

    async def perform(self) -> Any:
        if (wanted := self._told.get("workspace")) is None:
            return await self._do_work()
        from windlass.engine.agents.workspace import AgentFolder  # most agents share the working directory

        folder = AgentFolder(wanted, self._call, self._contact, self._deps.clock)
        self._enter(await folder.enter())
        try:
            value = await self._do_work()
            await folder.keep_work(_text(self._told["prompt"]))
            return value
        finally:
            await asyncio.shield(folder.keep_bundle())

    def _enter(self, call: Call) -> None:
        """Work in the call's folder, and check and record the work there."""
        deps, contact = self._deps, self._contact
        self._call = call
        catalog = PlanCatalog(contact.tools, deps.misfits, call.workdir)
        self._files = WorkRecorder(call, contact, deps.clock, alone=self._told.get("workspace") is not None)
        self._checks = WorkChecks(self._told, call, contact, deps.clock, deps.policy, catalog, self._files)

    async def _do_work(self) -> Any:
        if (proven := await self._checks.proven()) is not None:
            return self._checks.value(proven)
        role = await asyncio.to_thread(self._deps.briefing.role, self._role, self._call.workdir)
        if "handoff" in self._told:
            self._handed_on = await asyncio.to_thread(self._handoff)
        chosen = await self._choose(role)
        runner, self._version = chosen.runner, chosen.version
        model, notes = self._model(runner.name, role)
        self._account = hooks_of(runner).account(model, self._call.variables)
        self._check_quota(runner.name)
        charge = Charge(self._call.execution, self._call.step, self._call.attempt, runner.name, model or "", role.name)
        deps = self._deps
        reservation = BudgetReservation(
            deps.ledger,
            deps.settings.budget,
            deps.clock,
            self._contact,
            charge,
            deps.release_dead,
            lambda prompt: runner.call_cost(model, prompt),
            lambda text: self._call.output("note", f"{text}\n"),
        )
        session = self._session(runner.name)
        if session is not None and not await bring_session(runner, session, self._call, self._contact):
            session, notes = None, [*notes, self._lost(runner.name)]
        try:
            result, host = await self._turn(runner, role, model, reservation, session, notes)
            if result.metadata.get("session_lost"):
                lost = [*notes, self._lost(runner.name)]
                result, host = await self._turn(runner, role, model, reservation, None, lost)
        finally:
            await asyncio.shield(keep_session(runner, self._worked_in, self._call, self._contact))
        for adjustment in result.adjustments:
            host.note(adjustment)
        return self._checks.value(await self._outcome(runner.name, result, host, reservation))

    # -- before ----------------------------------------------------------------------------------

    async def _choose(self, role: RoleFacts) -> Chosen:
        state, step, policy = self._contact.state, self._contact.step, self._deps.policy
        named = runtime_of(state, step, policy)
        given_up = step.agent.given_up if step.agent is not None else ()
        fallback = falls_back(state, step, policy)
        chosen = await choose(
            self._deps.runners,
            named,
            fallback=fallback,
            given_up=given_up,
            account=lambda runner: hooks_of(runner).account(self._model(runner.name, role)[0], self._call.variables),
        )
        if chosen.instead_of:
            now = self._deps.clock.now()
            event = ev.RuntimeFellBack(now, step.id, named, chosen.runner.name, chosen.because, final=False)
            self._contact.tell(event)
        return chosen

    def _check_quota(self, runtime: str) -> None:
        """Hold the attempt if another step found the quota used up: `decide` does not know the account or fallback."""
        until = self._contact.state.quotas.get(self._account or runtime, 0.0)
        if until > self._deps.clock.now():
            whose = self._account or runtime
            raise Held("quota", f"the quota of {whose} is used up", until=until, runtime=runtime, account=self._account)

    def _model(self, runtime: str, role: RoleFacts) -> tuple[str | None, list[str]]:
        deps, contact = self._deps, self._contact
        return model_for(runtime, role, contact.state, contact.step, deps.settings, deps.policy)

    def _session(self, runtime: str) -> str | None:
        """The conversation to go on with: of this step, on this runtime, if an attempt broke off."""
        agent = self._contact.step.agent
        if agent is not None and agent.session is not None and agent.session_runtime == runtime:
            return agent.session
        left = self._left(runtime)
        return left.session if left is not None else None

    def _left(self, runtime: str) -> KeptSession | None:
        """The runtime's own conversation, where another one has worked on the step since."""
        agent = self._contact.step.agent
        return agent.left.get(runtime) if agent is not None else None

    def _inherited(self) -> Path | None:
        """The folder of the step in the execution that this one was forked from, while its conversation is theirs."""
        return self._call.folder.parent / self._origin / "steps" / self._call.step if self._origin else None

    def _lost(self, runtime: str) -> str:
        """Forget the conversation; gives the note about it."""
        self._tell_session(runtime, None)
        return "the earlier conversation is lost: starting a new one"

    def _tell_session(self, runtime: str, session: str | None) -> None:
        now = self._deps.clock.now()
        self._contact.tell(ev.AgentSession(now, self._call.step, self._call.attempt, runtime, session))

    async def _brief(self, runner: Runner, model: str | None, session: str | None, room: int | None) -> Brief:
        briefing, told, workdir = self._deps.briefing, self._told, self._call.workdir
        agent = self._contact.step.agent
        if session is not None and not (agent is not None and agent.unheard):
            asked = self._contact.step.approval
            answer = ""
            if asked is not None and asked.untold and asked.attempt == self._call.attempt - 1:
                said = "allowed" if asked.allow else "denied"  # the note of an allowed one comes as a message
                note = f": {asked.note}" if asked.note and not asked.allow else "."
                answer = f"Your request to use {asked.tool} was {said}{note}"
            before = await self._before(runner.name, session, room)
            brief = await asyncio.to_thread(
                briefing.go_on, role=self._role, workdir=workdir, reason=self._why(), answer=answer, before=before
            )
            # An agent that was done, or whose step is completed, goes on with the message alone.
            done = agent is not None and (agent.session_origin or agent.reopening or agent.claim is not None)
            follows_up = agent is not None and agent.told and done
            return replace(brief, prompt="", nudge=False) if follows_up else brief
        return await asyncio.to_thread(
            briefing.brief,
            task=self._task(),
            workdir=workdir,
            role=self._role,
            skills=told.get("skills", ()),
            files=told.get("files", ()),
            handoff=self._handed_on,
            before=await self._before(runner.name, session, room),
            # In a folder that is not trusted a runtime is told to leave all of it out, its rules too.
            reads_rules_itself=_reads_rules(runner.name) and self._is_trusted,
            room=room,
            allow_absolute=not any("{{" in path for path in self._contact.step.spec.files),
            media=hooks_of(runner).media(model),
        )

    def _task(self) -> str:
        return "\n\n".join(filter(None, (_text(self._told["prompt"]), self._form_of_result())))

    def _form_of_result(self) -> str:
        form = self._told.get("output")
        if form == "plan":
            box = self._contact.tools
            tools = (tool for name in box.names() if (tool := box.get(name)) is not None)
            limit = self._contact.state.plan.budget
            budget = limit.usd if limit is not None else None
            return asks_for_plan(tools, self._deps.briefing.roles(self._call.workdir), self._deps.runners, budget)
        return asks_for_data(form) if form is not None else ""

    def _rule(self, role: RoleFacts, model: str | None) -> ContextRule:
        return context_rule(self._deps.settings.context, self._contact.state.plan.context, role.name, model)

    def _room(self, runner: Runner, role: RoleFacts, model: str | None) -> int | None:
        """Characters of files and of other steps' output that the first prompt has room for; None: not known."""
        rule = self._rule(role, model)
        window = rule.window or hooks_of(runner).window(model)
        return None if window is None else ContextLimits(window, rule.threshold).material * CHARACTERS

    async def _before(self, runtime: str, session: str | None, room: int | None) -> str:
        """The work of earlier attempts, for a conversation that begins anew, and of other runtimes, for one that was
        left and goes on; without any, no journal is read."""
        agent, left = self._contact.step.agent, self._left(runtime) if session is not None else None
        if (session is not None and left is None) or agent is None or not (agent.attempt or self._origin):
            return ""
        theirs = await self._contact.history(self._origin) if self._origin else []
        if agent.told:  # a completed step goes on with a message: what it did is part of the matter
            theirs = [event for event in theirs if not isinstance(event, ev.AttemptFinished)]
        events = [*theirs, *await self._contact.history()]
        if left is not None:
            own = [place for place, event in enumerate(events, 1) if 0 < getattr(event, "attempt", 0) <= left.attempt]
            events = events[max(own, default=0) :]
        limit = LONGEST_HANDOVER if room is None else min(LONGEST_HANDOVER, room // 4)
        return hand_over(events, limit)

    def _handoff(self) -> list[Handoff]:
        return [
            Handoff(given["step"], given["role"], given["output"], self._work(given["step"]))
            for given in self._told.get("handoff", ())
        ]

    def _work(self, name: str) -> str:
        step = self._contact.state.steps.get(name)
        owners = (step, *(step.children or ())) if step is not None else ()
        agents = [one.agent for one in owners if one.agent is not None]
        return work_done(agents, recorded_changes(agents, self._call.home))

    def _why(self) -> str:
        error = self._contact.step.error
        return error.message if error is not None else ""

    # -- the run ---------------------------------------------------------------------------------

    async def _turn(
        self,
        runner: Runner,
        role: RoleFacts,
        model: str | None,
        reservation: BudgetReservation,
        session: str | None,
        notes: Sequence[str],
    ) -> tuple[AgentResult, EngineHost]:
        call, deps = self._call, self._deps
        brief = await self._brief(runner, model, session, self._room(runner, role, model))
        agent = self._contact.step.agent
        messages = _untaken(runner, agent.told.values() if agent is not None else ())
        brief = _with_messages(brief, messages)
        given = permitted(deps.settings.permissions, role.name, self._told.get("permissions"))
        permissions = role.narrow(given, runner.name)
        tools = AgentTools(self._contact.tools, call, self._contact, role.narrow(given, CLI.name))
        notes = [*notes, *map(_not_asked, tools.unlisted())]
        host = EngineHost(
            call=call,
            contact=self._contact,
            clock=deps.clock,
            runtime=runner.name,
            role=role.name,
            permissions=permissions,
            reservation=reservation,
            tools=tools,
            stop=lambda: runner.interrupt(self._id),
        )
        began = False
        try:
            allowance = await reservation.open(self._prompt_tokens(brief, session))
            request = self._request(role, model, brief, allowance, session, permissions)
            await self._files.record("before")
            event = self._began(runner.name, request, notes)
            await self._contact.record(event)
            for note in event.notes:
                host.note(note)
            began = True
            host.give(messages, "prompt")
            result = await self._see_through(runner, request, host)
            while result.success and (self._was_told(host) or await self._sent_back(result)):
                if result.session is None:
                    break
                await host.look_at_budget()
                if host.held is not None:  # the work does not pass, and there is no money to go on
                    raise reservation.restated(host.held, host.used)
                self._raise_model(runner.name, role, model)
                request = self._follow_up(runner, request, host, result, allowance)
                await self._files.record("before")  # what a check wrote is not the agent's
                result = await self._see_through(runner, request, host)
            if result.success:
                self._contact.close()
                if host.told() and result.session is None:
                    host.note(f"a message came too late: {runner.name} keeps no conversation to go on in")
        finally:
            await asyncio.shield(self._settle(reservation, host) if began else reservation.put_back())
        return result, host

    def _was_told(self, host: EngineHost) -> bool:
        return host.held is None and bool(host.told())

    async def _sent_back(self, result: AgentResult) -> bool:
        """Check the work; True if the agent has to go on."""
        return await self._checks.send_back(result.output, can_go_on=result.session is not None)

    def _raise_model(self, runtime: str, role: RoleFacts, model: str | None) -> None:
        """Leave the rest to the next model of the step, if it is its turn: an attempt of its own has its cost."""
        following = self._model(runtime, role)[0]
        if following != model:
            text = f"{following} goes on in place of {model}, whose work failed its checks"
            self._call.output("note", f"{text}\n")
            raise Held("model", text)

    def _follow_up(
        self, runner: Runner, request: AgentRequest, host: EngineHost, result: AgentResult, allowance: Amount
    ) -> AgentRequest:
        """The request of another turn, with what its turns have left of the attempt's allowance."""
        host.next_turn()
        messages = _untaken(runner, host.told())
        host.give(messages, "follow-up")
        usd, tokens, used = *allowance, host.used
        left = Amount(
            None if usd is None else max(0.01, usd - known_part(used)),
            None if tokens is None else tokens - used.tokens_in - used.tokens_out,
        )
        brief = _with_messages(Brief(request.brief.system, ""), messages)
        return replace(request, session=result.session, inherited=None, brief=brief, budget=left)

    def _prompt_tokens(self, brief: Brief, session: str | None) -> int:
        """Tokens of the first prompt: of the brief, and of the conversation that it is added to."""
        agent = self._contact.step.agent
        before = agent.prompt if agent is not None and session is not None else 0
        return before + tokens_of(brief.system + brief.prompt)

    def _request(
        self,
        role: RoleFacts,
        model: str | None,
        brief: Brief,
        allowance: Amount,
        session: str | None,
        permissions: Permissions,
    ) -> AgentRequest:
        call, told = self._call, self._told
        return AgentRequest(
            id=self._id,
            task=_text(told["prompt"]),
            brief=brief,
            workdir=call.workdir,
            scratch=call.scratch,
            env=call.variables,
            role=role.name,
            model=model,
            skills=tuple(told.get("skills", ())),
            files=tuple(told.get("files", ())),
            handoff=tuple(self._handed_on),
            budget=allowance,
            session=session,
            inherited=self._inherited() if session is not None else None,
            permissions=permissions,
            max_turns=told.get("max_turns") or role.max_turns,
            temperature=role.temperature,
            trusted=self._is_trusted,
            form=form if isinstance(form := told.get("output"), Mapping) else None,
            context=self._rule(role, model),
            grace=call.grace,
            pool=call.pool,
            metadata={"execution": call.execution, "step": call.step},
        )

    def _began(self, runtime: str, request: AgentRequest, notes: Sequence[str]) -> ev.AgentBegan:
        brief = request.brief
        return ev.AgentBegan(
            self._deps.clock.now(),
            self._call.step,
            self._call.attempt,
            runtime,
            request.role,
            brief.system,
            brief.prompt,
            request.model or "",
            request.session,
            (*notes, *brief.notes),
            self._version,
        )

    async def _see_through(self, runner: Runner, request: AgentRequest, host: EngineHost) -> AgentResult:
        """Run the agent. However it ends, its changes of files are recorded: before anything checks them."""
        try:
            result = await self._run(runner, request, host)
            host.ended(result.usage)
            if result.success:
                host.answered()  # also by a runtime that reported nothing on the way
            return result
        finally:
            self._worked_in = host.named
            await asyncio.shield(self._files.record("after"))

    async def _run(self, runner: Runner, request: AgentRequest, host: EngineHost) -> AgentResult:
        """Run the agent. On a stop, it ends its turn politely, so that its usage is known."""
        loop = asyncio.get_running_loop()
        run = loop.create_task(runner.run(request, host))
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError:
            # Beside the wait for its end: an interrupt that fails or hangs must not keep the run from being ended.
            asking = loop.create_task(runner.interrupt(request.id))
            await asyncio.wait({run}, timeout=request.grace)
            if not run.done():
                run.cancel()
                await asyncio.wait({run}, timeout=request.grace)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            if run.done() and not run.cancelled() and run.exception() is None:
                host.ended(run.result().usage)
            raise

    async def _settle(self, reservation: BudgetReservation, host: EngineHost) -> None:
        """Report the usage to the ledger and the journal before the attempt ends."""
        self._contact.tell(host.reported())
        host.over.set()
        await host.watched()
        await reservation.settle(host.used)

    # -- after -----------------------------------------------------------------------------------

    async def _outcome(
        self, runtime: str, result: AgentResult, host: EngineHost, reservation: BudgetReservation
    ) -> str:
        if result.success:  # also when its last words passed the budget: they are paid for
            if not host.told_text and result.output:
                host.text(result.output)
            return result.output
        if host.held is not None:
            raise reservation.restated(host.held, host.used)
        failure = result.failure
        if failure is None:
            failure = Failure(Category.TRANSIENT, f"{runtime} stopped before the task was done", elsewhere=True)
        if result.metadata.get("budget") and (held := await reservation.run_out(failure.message)) is not None:
            raise held
        if _comes_back(failure.resets_at, self._deps.clock.now()):
            whose = f" ({self._account})" if self._account else ""
            said = f"{failure.message}{whose}"
            raise Held("quota", said, until=failure.resets_at, runtime=runtime, account=self._account)
        if failure.kind == REFUSED_CONTENT:
            self._tell_session(runtime, None)  # every further attempt in it would be refused, too
        raise ToolError.of(failure, result.output or None)


def _not_asked(server: str) -> str:
    return (
        f"the MCP server {server} was not asked for its tools in the last days, so the agent has none of them: "
        "windlass tools check"
    )


def _untaken(runner: Runner, told: Iterable[ev.AgentTold]) -> list[ev.AgentTold]:
    """Messages to put into the prompt, for a runner that does not take them itself."""
    return [] if hooks_of(runner).takes_messages else list(told)


def _with_messages(brief: Brief, messages: Sequence[ev.AgentTold]) -> Brief:
    text = "\n\n".join(filter(None, (brief.prompt, *(message.text for message in messages))))
    return replace(brief, prompt=text) if messages else brief


def _reads_rules(runtime: str) -> bool:
    row = RUNTIMES.get(runtime)
    return row is not None and row.reads_rules


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)


def _comes_back(resets_at: float | None, now: float) -> bool:
    """True for a time worth waiting for: one in the past would be retried at once, again and again."""
    return resets_at is not None and now < resets_at < now + LONGEST_WAIT
