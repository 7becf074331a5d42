"""The facade: everything that a surface (CLI, Python, HTTP, MCP) can ask of executions.

An `Engine` belongs to one home. It drives the executions that were started or resumed through it, as tasks of the
running event loop, and reaches those of other processes through the journal's inbox. Each of its methods is one of a
part with one job; this module makes the parts and assigns the methods to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property, partial, wraps
from inspect import iscoroutinefunction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import msgspec

from windlass.core.decide import Policy
from windlass.engine.agent_messages import AgentMessages
from windlass.engine.agents.tool import AgentTool
from windlass.engine.checkpoints import CheckpointWriter
from windlass.engine.control import Control
from windlass.engine.drivers import Launcher, LocalDrivers
from windlass.engine.execution import Execution
from windlass.engine.forecasts import Forecasts
from windlass.engine.housekeeping import Housekeeping
from windlass.engine.observer import Observer
from windlass.engine.owner import Owner
from windlass.engine.perform import AttemptRunner
from windlass.engine.plans import PlanReader, Plans
from windlass.engine.requests import Requests
from windlass.engine.resuming import Resumer
from windlass.engine.starting import Starter
from windlass.engine.transcripts import Transcripts
from windlass.errors import UsageError
from windlass.homes import has_checkpoints
from windlass.ports import Archive, ComposedStore, Health, Ledger, Sandbox, Telemetry
from windlass.settings import Settings

if TYPE_CHECKING:
    from windlass.engine.history_page import HistoryPage, PastRuns, SlowPage
    from windlass.engine.kept_files import KeptFiles
    from windlass.engine.shared import SharedExecutions
    from windlass.ports.cluster import Cluster
    from windlass.ports.notify import Notifier

__all__ = ["Engine"]

P = ParamSpec("P")
T = TypeVar("T")


class ToolHealth(Protocol):
    """The tools that come with the engine, as far as they have a health or have to be closed."""

    def __contains__(self, name: object) -> bool: ...

    def problems(self) -> list[str]: ...

    async def check(self) -> dict[str, Health]: ...

    async def close(self) -> None: ...


def _of(part: str, method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Engine, P], T]:
    """Make a method of a part one of the engine's, with its signature and docstring."""

    @wraps(method)
    def forward(engine: Engine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if engine.closed:
            advice = "open another one: async with windlass.open(…) as engine: …"
            raise UsageError("this engine is closed: nothing was done", advice=(advice,))
        return method(getattr(engine, part), *args, **kwargs)

    if not iscoroutinefunction(method):
        return forward

    @wraps(method)
    async def forward_on_loop(engine: Engine, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        engine.owner.require()  # not in the call: `asyncio.run(engine.start(…))` makes it before its loop runs
        return await cast(Any, forward(engine, *args, **kwargs))

    return cast("Callable[Concatenate[Engine, P], T]", forward_on_loop)


class Engine:
    """Starts, drives, watches and controls the executions of one home."""

    def __init__(
        self,
        drivers: LocalDrivers,
        attempt_runner: AttemptRunner,
        *,
        home: Path,
        reader: PlanReader,
        archive: Archive,
        ledger: Ledger,
        agents: AgentTool | None = None,
        sandbox: Sandbox | None = None,
        shelf: ComposedStore | None = None,
        built_in: ToolHealth | None = None,
        notifier: Notifier | None = None,
        settings: Settings | None = None,
        policy: Policy | None = None,
        telemetry: Telemetry | None = None,
        cluster: Cluster | None = None,
        kept_files: KeptFiles | None = None,
    ) -> None:
        self.home = home
        self.closed = False
        """`close` has been called, and it does nothing more."""
        self._closing: asyncio.Task[None] | None = None
        self._released = False
        self.owner = Owner()
        self.journal = drivers.journal
        self.clock = drivers.clock
        self.commits = drivers.commits
        """Tells subscribers of the events that drivers of this process write."""
        self.attempt_runner = attempt_runner
        self.ledger = ledger
        self.agents = agents
        self.sandbox = sandbox
        self.shelf = shelf
        """The composed tools."""
        self.built_in = built_in
        """The tools that come with the engine."""
        self.notifier = notifier
        """Sends notifications; None where no rule asks for any."""
        self.settings = settings or Settings()
        self.telemetry = telemetry
        """Sends traces, if the settings say so."""
        self._cluster = cluster
        self._drivers = drivers
        self._checkpoints = CheckpointWriter(drivers, archive, self.settings.checkpoints)
        handle = partial(Execution, self)
        self._observer = observer = Observer(drivers)
        self._policy = policy = policy or Policy()
        self._forecasts = forecasts = Forecasts(
            drivers.journal, drivers.clock, observer, policy, attempt_runner, self.settings.price_table
        )
        launcher = Launcher(drivers, policy, attempt_runner, agents, sandbox, forecasts, notifier, cluster)
        self._world = launcher.world
        self._plans = plans = Plans(reader, launcher, agents, sandbox)
        caller = telemetry.caller if telemetry is not None else None
        requests = Requests(observer, drivers)
        self._resumer = resumer = Resumer(drivers, observer, requests, plans, launcher, handle, ledger, agents)
        self._starter = Starter(
            drivers.journal, drivers.clock, plans, observer, launcher, handle, resumer.check_fork, caller
        )
        self._control = control = Control(drivers, observer, requests, launcher, ledger, agents)
        self._messages = AgentMessages(drivers, observer, requests, self._starter, self._resumer)
        self._housekeeping = Housekeeping(drivers, observer, self._checkpoints, ledger, control, kept_files, home=home)
        self._transcripts = Transcripts(observer, home / "artifacts", kept_files)
        self.damaged = observer.damaged
        """Executions that were found damaged, by id."""

    def __repr__(self) -> str:
        return f"<Engine {self.home}{' (closed)' if self.closed else ''}>"

    # Plans, before anything of them runs
    read = _of("_plans", Plans.read)
    parse = _of("_plans", Plans.parse)
    prerequisites = _of("_plans", Plans.prerequisites)
    missing_values = _of("_plans", Plans.missing_values)
    find_prerequisites = _of("_plans", Plans.find_prerequisites)
    check_plan = _of("_plans", Plans.check)
    check_programs = _of("_plans", Plans.check_programs)

    # Beginning, and going on
    create = _of("_starter", Starter.create)
    start = _of("_starter", Starter.start)
    fork = _of("_starter", Starter.fork)
    resume = _of("_resumer", Resumer.resume)
    check = _of("_resumer", Resumer.check)
    check_redo = _of("_resumer", Resumer.check_redo)

    # Steering
    pause = _of("_control", Control.pause)
    interrupt = _of("_control", Control.interrupt)
    cancel = _of("_control", Control.cancel)
    approve = _of("_control", Control.approve)
    settle = _of("_control", Control.settle)
    allow_budget = _of("_control", Control.allow_budget)
    retry = _of("_control", Control.retry)
    skip = _of("_control", Control.skip)
    undo = _of("_control", Control.undo)
    verify = _of("_control", Control.verify)
    diff = _of("_control", Control.diff)
    stale = _of("_control", Control.stale)
    workspaces = _of("_control", Control.workspaces)
    summarise = _of("_control", Control.summarise)
    say = _of("_messages", AgentMessages.say)

    # Watching
    find = _of("_observer", Observer.find)
    executions = _of("_observer", Observer.executions)
    etas = _of("_observer", Observer.etas)
    counts = _of("_observer", Observer.counts)
    orphans = _of("_observer", Observer.orphans)
    state = _of("_observer", Observer.state)
    states = _of("_observer", Observer.states)
    record = _of("_observer", Observer.record)
    follow = _of("_observer", Observer.follow)
    wait = _of("_observer", Observer.wait)
    context = _of("_control", Control.context)
    always_rule = _of("_control", Control.always_rule)
    open_questions = _of("_observer", Observer.open_questions)
    waiting = _of("_observer", Observer.waiting)
    transcript = _of("_transcripts", Transcripts.transcript)
    follow_transcript = _of("_transcripts", Transcripts.follow_transcript)
    bring_artifacts = _of("_transcripts", Transcripts.bring_artifacts)
    driven = _of("_drivers", LocalDrivers.driven)
    driven_state = _of("_drivers", LocalDrivers.driven_state)

    # Forecasting
    estimate = _of("_forecasts", Forecasts.estimate)
    forecast = _of("_forecasts", Forecasts.forecast)
    forecast_by_step = _of("_forecasts", Forecasts.by_step)
    forecasts = _of("_forecasts", Forecasts.latest)
    forecast_view = _of("_forecasts", Forecasts.view)
    forecast_views = _of("_forecasts", Forecasts.views)
    forecast_outcomes = _of("_forecasts", Forecasts.outcomes)
    forecast_scores = _of("_forecasts", Forecasts.scores)
    attend_forecast = _of("_forecasts", Forecasts.attend_shared)
    leave_forecast = _of("_forecasts", Forecasts.leave)

    # Keeping order
    checkpoint = _of("_housekeeping", Housekeeping.checkpoint)
    restore = _of("_housekeeping", Housekeeping.restore)
    forget = _of("_housekeeping", Housekeeping.forget)
    sweep = _of("_housekeeping", Housekeeping.sweep)

    async def approve_always(self, execution: str, step: str, rule: str, **answer: Any) -> None:
        """Allow what an agent asks, and save the rule that was shown in the user's settings."""
        await self._control.approve_always(execution, step, rule, **answer)
        if self.agents is not None:
            self.settings = self.agents.settings

    async def journal_loss(self) -> str:
        """The warning of a journal in a file that has no executions, and had some; else empty."""
        if self.settings.journal is not None or await self.journal.heads(limit=1) or not has_checkpoints(self.home):
            return ""
        return (
            f"the journal of {self.home} has lost its executions, of which there are checkpoint files: windlass doctor"
        )

    def shared(self, driver: str, worker: str) -> SharedExecutions:
        """Turns and attempts of executions that workers share under the name `driver`; `worker` is this one's name."""
        from windlass.engine.shared import SharedExecutions  # only workers need it

        # No process sees all commits of such an execution, so nobody is told of them: followers read the journal.
        world = msgspec.structs.replace(self._world, committed=lambda _execution, _events, _seq: None)
        load = self._plans.tools_of
        return SharedExecutions(world, self.attempt_runner, self.ledger, load, driver=driver, worker=worker)

    @cached_property
    def past_runs(self) -> PastRuns:
        """Answers questions about executions that have stopped."""
        from windlass.engine.history_page import PastRuns  # few ask

        return PastRuns(self.journal, self.clock)

    async def history(self, by: str = "day", **query: Any) -> HistoryPage:
        """Sum up stopped executions or their steps by a field: `since`, `until`, `failed`, `plan`."""
        return await self.past_runs.history(by, **query)

    async def slow_steps(self, **query: Any) -> SlowPage:
        """Find the steps that take most of the time, and those that get slower or fail more: `since`, `plan`."""
        return await self.past_runs.slow_steps(**query)

    @property
    def driving(self) -> int:
        """The number of executions that go on in this process."""
        return len(self._drivers)

    def waiting_at_gates(self) -> list[dict[str, Any]]:
        """Gates at which steps of this process wait, with the first of them: slots, rates, places, breakers."""
        from windlass.engine.waiting import waiting_steps

        runner = self.attempt_runner
        return waiting_steps(runner.gates, self._drivers.driven_states(), runner.tools, self._policy)

    @property
    def driver(self) -> str:
        """The name under which this engine drives."""
        return self._drivers.name

    @property
    def checkpoint_failures(self) -> Mapping[str, str]:
        """Executions with an automatic checkpoint that could not be written, with the reason."""
        return self._checkpoints.failures

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, reason: str = "") -> None:
        """Interrupt running executions and release everything. Unfinished ones can be resumed.

        `reason` is the reason of their pause, when that is not an interruption: `restart`. In a forked process it does
        nothing: everything belongs to the one that opened the engine. Cancelled while it waits, it goes on by itself.
        """
        if self.owner.forked:
            return
        self.owner.require(ended=True)
        if self._released:
            return
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._release(reason), name="windlass-close")
        # Whoever waits for it may be cancelled, in a cancelled scope of anyio at once: it goes on all the same.
        await asyncio.shield(self._closing)

    async def _release(self, reason: str) -> None:
        try:
            await self._drivers.close(reason)
            self.closed = True
            if not self.owner.ended:  # else the tasks and connections of these ended with their loop
                await self._take_leave()
        finally:  # also at the end of the loop, which cancels this: the home must not look as if this still drove it
            self.closed = True
            await self.attempt_runner.processes.close()
            await self.attempt_runner.gates.close()
            await self.ledger.close()
            await self.journal.close()
            self._released = True

    async def _take_leave(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()
        if self.notifier is not None:
            await self.notifier.close()
        await self._forecasts.close()
        await self._checkpoints.close()
        if self.telemetry is not None:
            await self.telemetry.close()  # while the journal can be read
        for part in (self.agents, self.sandbox, self.built_in, self.attempt_runner.tools):
            if part is not None:
                await part.close()
