"""Forecasts of executions: made while they run here or on workers, recorded, and read by every surface.

One task serves all executions of the process. After each forecast it rests until the engine has computed fifty times as
much, or for 250 times as long, so that learning and simulating take about 2 % of a busy engine's computing, however
many executions there are; and an execution gets its first one after a second, so that short ones cost nothing.

Each forecast is recorded; the first in each quarter of the way is a mark, which calibrates later ones.
No error of a forecast ends or delays an execution.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from windlass.core import events as ev
from windlass.core.state import State, StepState, fold
from windlass.core.transitions import ExecutionStatus
from windlass.engine.driver import Driver
from windlass.errors import Damaged, JournalError, WindlassError
from windlass.plan.model import Plan

if TYPE_CHECKING:
    from windlass.clock import Clock
    from windlass.core.decide import Policy
    from windlass.core.forecast.calibration import Calibration
    from windlass.core.forecast.costs import PriceList
    from windlass.core.forecast.knowledge import Knowledge
    from windlass.core.forecast.outlook import Outlook, Surroundings
    from windlass.core.forecast.scores import BucketScore
    from windlass.core.forecast.simulation import TaskTimes
    from windlass.core.forecast.value import Forecast
    from windlass.engine.observer import Observer
    from windlass.engine.perform import AttemptRunner
    from windlass.engine.shared_forecast import SharedForecast
    from windlass.ports import ForecastOutcome, Journal, Toolbox

    _Learned = tuple[Knowledge, Calibration, Calibration]

__all__ = ["Forecasts", "StepTimes"]

T = TypeVar("T")
_log = logging.getLogger("windlass.engine")

FIRST = 1.0
"""Seconds until an execution's first forecast, and the least between two."""
SHARE = 0.02
"""Part of the engine's computing that forecasting may take."""
IDLE = 5.0
"""While the engine computes little, it rests for this many times as long: it takes 0.4 % of a processor."""
BUSY, FIRST_COST, STEP_COST = 100.0, 0.1, 1e-5
"""While the engine writes more events than that a second, the first forecast comes when it is `SHARE` of what the
engine has computed: it has to import and to learn for so many seconds, and some more for each step."""
AGING = 0.02
"""A forecast is made anew after this part of the time that the execution has run."""
RECORDS = 60
"""Runs of a plan that are learned from; fewer of a plan with very many steps."""
STEPS = 3000
"""Steps of all those runs together."""
JOURNAL_WAIT = 5.0
"""Seconds until the next try, when the journal cannot be used."""
OTHERS = 30
"""Runs of other plans that are learned from, where a step has not run yet."""
LEARN_AGAIN = 60.0
"""Seconds for which executions of a plan share what was learned of it."""
MOST_ASKED = 64
"""Executions whose forecasts are kept for the next one who asks."""
MOST_FRESH = 10
"""Executions without a recorded forecast that get one for a list."""
OWN_OUTCOMES = 60
"""Outcomes from which a plan's forecasts are calibrated by its own alone."""


class StepTimes(NamedTuple):
    """The times of the steps that are left."""

    at: float
    """The moment from which they count."""
    steps: dict[str, TaskTimes]


class _RunningForecast:
    """An execution that runs."""

    __slots__ = ("began", "due", "estimates", "first", "known", "source")

    def __init__(self, source: Driver | SharedForecast, due: float) -> None:
        self.source = source
        self.began = source.state.seq if source.state is not None else 0
        self.due = due
        self.known: _Learned | None = None
        self.estimates: dict[str, tuple[float | None, float | None]] = {}
        self.first: Forecast | None = None

    async def current(self) -> State:
        """Its state of this moment."""
        return self.source.state if isinstance(self.source, Driver) else await self.source.refresh()

    @property
    def events(self) -> int:
        """Events that were written since, as far as it is known here."""
        return self.source.state.seq - self.began if isinstance(self.source, Driver) else 0

    @property
    def steps(self) -> int:
        return len(self.source.state.plan.steps) if self.source.state is not None else 0


class Forecasts:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        observer: Observer,
        policy: Policy,
        attempt_runner: AttemptRunner,
        prices: Mapping[str, Mapping[str, float]],
    ) -> None:
        """`prices` are the user's own, by model."""
        self._journal = journal
        self._clock = clock
        self._observer = observer
        self._policy = policy
        self._attempt_runner = attempt_runner
        self._own_prices = prices
        self._watched: dict[str, _RunningForecast] = {}
        self._latest: dict[str, Forecast] = {}
        self._learned: dict[str, tuple[float, _Learned]] = {}
        """By the plan's digest, with the time at which it was learned."""
        self._asked: dict[str, tuple[float, int, Forecast]] = {}
        """Forecasts that somebody asked for: until when they are used again, and after which event they were made."""
        self._by_step: dict[str, tuple[float, int, StepTimes]] = {}
        """The same by step."""
        self._asking = asyncio.Lock()
        self._scored: tuple[float, dict[str, list[BucketScore]]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._worker: asyncio.Task[None] | None = None
        self._rested = (0.0, 0.0)
        """The processor's time, and that of the loop, until the first of which it rests."""
        self._computed = -1.0
        """The processor's time when the first execution began; below 0 before that."""
        self._attended = 0.0
        """The loop's time when an execution began after none had been running."""
        self.spent_s = 0.0
        """Seconds of a processor that forecasts have taken."""

    def attend(self, driver: Driver, task: asyncio.Task[State]) -> None:
        """Forecast an execution for as long as it runs here."""
        execution = driver.state.id
        self._watch(execution, driver)
        task.add_done_callback(partial(self.leave, execution))

    def attend_shared(self, execution: str) -> None:
        """Forecast an execution that workers share, until it is left."""
        from windlass.engine.shared_forecast import SharedForecast  # only workers need it

        if execution not in self._watched:
            self._watch(execution, SharedForecast(self._journal, execution, self._attempt_runner.tools))

    def _watch(self, execution: str, source: Driver | SharedForecast) -> None:
        loop = asyncio.get_running_loop()
        self._watched[execution] = _RunningForecast(source, loop.time() + FIRST)
        if len(self._watched) == 1:
            self._attended = loop.time()
        if self._computed < 0:
            self._computed = time.process_time()
        if self._timer is None and self._worker is None:
            self._timer = loop.call_later(FIRST, self._begin)

    def leave(self, execution: str, _task: asyncio.Task[State] | None = None) -> None:
        """Make no more forecasts of it."""
        self._watched.pop(execution, None)
        self._latest.pop(execution, None)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait({self._worker})

    # -- reading ---------------------------------------------------------------------------------

    async def latest(self, *executions: str) -> dict[str, Forecast]:
        """The last forecast of each execution that has one, whichever process made it."""
        here = {name: self._latest[name] for name in executions if name in self._latest}
        elsewhere = [name for name in executions if name not in self._watched]
        return {**(await self._journal.forecasts.latest(*elsewhere) if elsewhere else {}), **here}

    async def forecast(self, state: State) -> Forecast | None:
        """The forecast of an execution: the last one while it runs, else one of this moment; None after its end."""
        if state.status.finished:
            return None
        try:
            if self._observer.driven(state) and (found := await self.latest(state.id)):
                return found[state.id]
            return await self._recent(state, self._asked, self._fresh)
        except Exception:  # a status without a forecast is better than none
            _log.debug("%s cannot be forecast", state.id, exc_info=True)
            return None

    async def view(self, state: State) -> dict[str, Any] | None:
        """The object `forecast` of an execution; None after its end, and where it cannot be made."""
        found = await self.forecast(state)
        return found.as_dict(self._clock.now()) if found is not None else None

    async def views(self, executions: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The same of executions that wait for a person, for many at once: as it was when each began to wait."""
        names = list(dict.fromkeys(executions))
        found = await self.latest(*names)
        for name in [name for name in names if name not in found][:MOST_FRESH]:
            with suppress(WindlassError):
                made = await self.forecast(await self._observer.state(name))
                found |= {name: made} if made is not None else {}
        return {name: {**one.as_dict(one.at), "text": one.beside_question()} for name, one in found.items()}

    async def by_step(self, state: State) -> StepTimes | None:
        """Expected times of the steps that are left; None after the end, and where they cannot be made."""
        if state.status.finished:
            return None
        try:
            return await self._recent(state, self._by_step, self._fresh_by_step)
        except Exception:
            _log.debug("the steps of %s cannot be forecast", state.id, exc_info=True)
            return None

    async def estimate(
        self, plan: Plan, tools: Toolbox | None = None, inputs: Mapping[str, Any] | None = None
    ) -> Forecast:
        """The forecast of a plan before it runs; `tools` are those of its steps, if they are not the engine's."""
        from msgspec import Raw

        bound = {**plan.inputs, **(inputs or {})}
        created = ev.ExecutionCreated(self._clock.now(), "", Raw(plan.encoded), bound, "")
        return await self._fresh(fold([created], plan), tools)

    async def outcomes(self, plan: str = "", limit: int = 2000) -> list[ForecastOutcome]:
        """Recorded forecasts with the end of their executions, oldest first."""
        return await self._journal.forecasts.outcomes(plan, limit)

    async def scores(self) -> dict[str, list[BucketScore]]:
        """Scores of the newest forecasts, of the `time` and of the `cost`; looked up again after a minute."""
        from windlass.core.forecast.scores import cost_scores, scores

        now = asyncio.get_running_loop().time()
        if self._scored is None or now - self._scored[0] > LEARN_AGAIN:
            outcomes = await self.outcomes()
            times = scores((one.forecast, one.took_s) for one in outcomes)
            self._scored = (now, {"time": times, "cost": cost_scores((one.forecast, one.usd) for one in outcomes)})
        return self._scored[1]

    # -- making ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._timer = None
        if self._watched:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._watched:
                execution, watched = min(self._watched.items(), key=lambda item: item[1].due)
                busy, idle = self._rested
                if self._attempt_runner.intake.stands_still:  # nothing would be new, and it would take more space
                    watched.due = max(watched.due, loop.time() + FIRST)
                wait = (watched.due if time.process_time() >= busy else max(watched.due, idle)) - loop.time()
                if wait <= 0 and self._too_early(watched.steps):
                    wait = FIRST
                if wait > 0:
                    await asyncio.sleep(min(wait, FIRST))
                    continue
                try:
                    await self._make(execution, watched)
                except Exception as error:
                    _log.debug("%s cannot be forecast", execution, exc_info=True)
                    if isinstance(error, JournalError) and not isinstance(error, Damaged):
                        watched.due = loop.time() + JOURNAL_WAIT
                    else:
                        self._watched.pop(execution, None)
        finally:
            self._worker = None

    def _too_early(self, steps: int) -> bool:
        """Tell whether the first forecast of this process would take too much of a busy engine's computing."""
        if self.spent_s:
            return False
        events = sum(watched.events for watched in self._watched.values())
        busy = events > BUSY * (asyncio.get_running_loop().time() - self._attended)
        return busy and (time.process_time() - self._computed) * SHARE < FIRST_COST + STEP_COST * steps

    async def _make(self, execution: str, watched: _RunningForecast) -> None:
        from windlass.core.forecast.outlook import Outlook

        state, loop = await watched.current(), asyncio.get_running_loop()
        before = self.spent_s
        if watched.known is None:
            watched.known = await self._shared_knowledge(state)
        known, *_ = watched.known
        began = time.thread_time()
        around = self._surroundings(state, watched.source.tools, watched.known, watched.estimates)
        outlook = Outlook(state, self._clock.now(), known, around)
        self.spent_s += time.thread_time() - began
        found, took = await asyncio.to_thread(_timed, outlook.forecast)
        self.spent_s += took
        rest = (self.spent_s - before) / SHARE
        self._rested = (time.process_time() + rest, loop.time() + IDLE * rest)
        watched.due = loop.time() + max(FIRST, AGING * found.elapsed_s)
        if execution not in self._watched or (await watched.current()).status.finished:
            return
        watched.first = watched.first or found
        found = found.compared_with(watched.first)
        await self._journal.forecasts.add(execution, state.plan.name, found)
        if execution in self._watched:  # what is shown is recorded
            self._latest[execution] = found

    async def _recent(
        self, state: State, kept: dict[str, tuple[float, int, T]], make: Callable[[State], Awaitable[T]]
    ) -> T:
        """One of this moment. Of an execution that runs it may be older, so that making it has its share only.

        However many look, nothing is made twice.
        """
        async with self._asking:
            loop = asyncio.get_running_loop()
            last = kept.get(state.id)
            same = last is not None and (last[1] == state.seq or state.status is ExecutionStatus.RUNNING)
            if last is not None and same and loop.time() < last[0]:
                return last[2]
            before, seq = self.spent_s, state.seq
            found = await make(state)
            kept.pop(state.id, None)
            while len(kept) >= MOST_ASKED:
                kept.pop(next(iter(kept)))
            kept[state.id] = (loop.time() + (self.spent_s - before) / SHARE, seq, found)
            return found

    async def _fresh(self, state: State, tools: Toolbox | None = None) -> Forecast:
        outlook = self._outlook(state, await self._knowledge(state), tools)
        found, took = await asyncio.to_thread(_timed, outlook.forecast)
        self.spent_s += took
        return found

    async def _fresh_by_step(self, state: State) -> StepTimes:
        outlook = self._outlook(state, await self._shared_knowledge(state))
        found, took = await asyncio.to_thread(_timed, outlook.by_step)
        self.spent_s += took
        return StepTimes(outlook.now, found)

    def _outlook(self, state: State, known: _Learned, tools: Toolbox | None = None) -> Outlook:
        from windlass.core.forecast.outlook import Outlook

        around = self._surroundings(state, tools or self._attempt_runner.tools, known, {})
        outlook, took = _timed(partial(Outlook, state, self._clock.now(), known[0], around))
        self.spent_s += took
        return outlook

    async def _shared_knowledge(self, state: State) -> _Learned:
        """The same for all executions of a plan that start within a minute."""
        now, digest = asyncio.get_running_loop().time(), state.plan.digest
        found = self._learned.get(digest)
        if found is None or now - found[0] > LEARN_AGAIN:
            found = (now, await self._knowledge(state))
            self._learned = {key: one for key, one in self._learned.items() if now - one[0] <= LEARN_AGAIN}
            self._learned[digest] = found
        return found[1]

    async def _knowledge(self, state: State) -> _Learned:
        """The history of a plan, and the offsets for its bands of time and cost."""
        from windlass.core.forecast.calibration import Calibration
        from windlass.core.forecast.costs import SMALLEST_USD
        from windlass.core.forecast.knowledge import learn
        from windlass.core.forecast.scores import scored_costs, scored_times

        plan, history = state.plan, self._journal.history
        limit = max(3, min(RECORDS, STEPS // max(1, len(plan.steps))))
        own = await history.records(plan.name, limit)
        seen = {step.step for record in own for step in record.steps if step.status == "completed"}
        others = await history.records("", OTHERS) if any(step.id not in seen for step in plan.steps) else []
        models = {"" if step.models else step.model or plan.model or "" for step in plan.steps if step.is_agent}

        def learned() -> Knowledge:
            known = learn(plan.name, plan.digest, own, others, state.id, self._prices)
            for model in models:
                known.costs.of(model)  # here, not on the loop: the price lists take a while to load
            return known

        known, took = await asyncio.to_thread(_timed, learned)
        self.spent_s += took
        outcomes = await self._journal.forecasts.outcomes(plan.name, 200)
        if len(outcomes) < OWN_OUTCOMES:
            outcomes = await self._journal.forecasts.outcomes("", 400)
        times = Calibration(scored_times((one.forecast, one.took_s) for one in outcomes))
        costs = Calibration(scored_costs((one.forecast, one.usd) for one in outcomes), SMALLEST_USD)
        return known, times, costs

    @cached_property
    def _prices(self) -> PriceList:
        from windlass.prices import Prices  # only where agents are forecast

        return cache(Prices(self._own_prices).rates)

    def _surroundings(
        self,
        state: State,
        tools: Toolbox,
        known: _Learned,
        estimates: dict[str, tuple[float | None, float | None]],
    ) -> Surroundings:
        from windlass.core.forecast.outlook import Surroundings
        from windlass.core.forecast.simulation import Gate

        gates = {}
        for name in state.prepared.tools:
            tool = tools.get(name)
            terms = self._attempt_runner.gates.terms.of(tool) if tool is not None else None
            if terms is not None and (terms.concurrent is not None or terms.rate is not None):
                gates[name] = Gate(terms.concurrent, terms.rate)

        def estimate(step: StepState) -> tuple[float | None, float | None]:
            if step.spec.id not in estimates:
                estimates[step.spec.id] = _of_tool(tools, step)
            return estimates[step.spec.id]

        return Surroundings(self._policy, gates, estimate, known[1], known[2])


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result, and the time that it took this thread's processor."""
    began = time.thread_time()
    return work(), time.thread_time() - began


def _of_tool(tools: Toolbox, step: StepState) -> tuple[float | None, float | None]:
    """The tool's own estimate. Arguments with templates are not known yet, and it may need them."""
    tool, arguments = tools.get(step.prepared.tool), step.spec.arguments
    if tool is None or tool.validate(arguments):
        return None, None
    said = tool.estimate(arguments)
    return said.seconds, said.usd
