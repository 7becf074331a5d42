"""A world in a box: scripted attempts, people and power cuts against the real rules, by chance and yet repeatable.

    run = simulate(plan, Script({"fetch": [Fail("transient"), Done(7)]}, crash=0.1), seed=42)
    assert run.state.status == "completed"

`Script` says what the world does: how attempts end, and how likely anything comes between. `simulate` plays it to
its end. One plan, script and seed give one journal, always: a seed that fails once fails until it is mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from windlass.core.decide import Policy
from windlass.core.events import AttemptStarted
from windlass.core.redo import check_retry, check_skip
from windlass.core.state import State, StepState
from windlass.errors import Category, Failure, UsageError
from windlass.plan.model import Plan
from windlass.testing.simulation import Simulation

__all__ = ["Act", "Done", "Fail", "Hang", "Script", "simulate"]


@dataclass(frozen=True, slots=True)
class Done:
    """The attempt gives this output."""

    output: Any = None
    after: float = 1.0


@dataclass(frozen=True, slots=True)
class Fail:
    """The attempt fails."""

    category: Category | str = Category.LOGIC
    message: str = "scripted"
    after: float = 1.0
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """The attempt never ends by itself. A step's `timeout` ends it, as it would for real."""


Act = Done | Fail | Hang


@dataclass(frozen=True, slots=True)
class Script:
    """Behaviour of the simulated world. Every number without a unit is a chance between 0 and 1."""

    attempts: Mapping[str, Sequence[Act]] | Callable[[AttemptStarted, Random], Act] = field(default_factory=dict)
    """Ends of attempts: a list for each step (its last act repeats; unlisted steps are done), or a function."""
    crash: float = 0.0
    """Each turn: the driver dies, between turns or around a commit."""
    pause: float = 0.0
    interrupt: float = 0.0
    cancel: float = 0.0
    most: int = 20
    """Disturbances after which the world leaves the execution alone."""
    clock_jump: float = 0.0
    """Seconds by which the clock may have been set, either way, when the execution is taken up again."""
    answer: float = 1.0
    """Each question: that anybody answers it. The others expire, or stay open."""
    allow: float = 1.0
    """Each answer: that it is yes, or `again` for an attempt whose outcome nobody saw."""
    retry: float = 0.0
    """Each turn, and at the end: that somebody retries a step that this can be asked of."""
    skip: float = 0.0
    """The same for skipping one."""


def simulate(
    plan: Plan,
    script: Script | None = None,
    seed: int = 0,
    *,
    inputs: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    kind: type[Simulation] = Simulation,
) -> Simulation:
    """Play a script until the execution is finished, or stands before a question that nobody answers."""
    return _Simulator(kind(plan, inputs, policy=policy), script or Script(), Random(seed)).play()


TURNS = 2_000
"""More than any execution needs that does not go round in circles."""
NEVER = float("inf")


class _Simulator:
    """Looks at what could happen next, and lets the earliest of it happen, or a disturbance."""

    def __init__(self, world: Simulation, script: Script, chance: Random) -> None:
        self._world, self._script, self._chance = world, script, chance
        self._disturbances = 0
        self._ends: dict[tuple[str, int, float], tuple[float, Act]] = {}
        """Time and kind of each attempt's end."""
        self._heard: dict[tuple[str, float | None], bool] = {}
        """For each question, if anybody will answer it."""

    def play(self) -> Simulation:
        world = self._world
        for _turn in range(TURNS):
            if world.state.status.finished and not self._reopen():
                return world
            if not world.journal:
                world.start()
            elif not world.driving:
                if not self._come_back():
                    return world
            elif not self._disturb():
                self._let_happen()
        raise AssertionError("it neither ends nor pauses: the rules repeat themselves")

    def _come_back(self) -> bool:
        """Somebody takes it up again: later, with an answer, or when a question has expired. False if nothing helps."""
        world, jump = self._world, self._script.clock_jump
        world.clock.set(world.clock.now() + self._chance.uniform(0.0, 60.0) + self._chance.uniform(-jump, jump))
        if self._answer_one() is None and world.state.paused_for in ("approval", "decision"):
            expiry = world.state.next_timer(world.clock.now())
            if expiry is None and not world.state.due(world.clock.now()):
                return False
            world.clock.set(expiry or world.clock.now())
        world.resume()
        return True

    def _reopen(self) -> bool:
        """Somebody retries or skips a step of an execution that has ended."""
        for share, deed in ((self._script.retry, self._retry), (self._script.skip, self._skip)):
            if self._disturbances < self._script.most and self._chance.random() < share:
                self._disturbances += 1
                if deed():
                    return True
        return False

    def _retry(self) -> bool:
        return self._redo(check_retry, self._world.retry)

    def _skip(self) -> bool:
        return self._redo(check_skip, self._world.skip)

    def _redo(self, check: Callable[[State, StepState], None], deed: Callable[[str], None]) -> bool:
        """Ask it of one of the steps that it can be asked of; False if there is none."""
        state = self._world.state
        steps = [step.id for step in state.steps.values() if _fits(check, state, step)]
        if steps:
            deed(self._chance.choice(steps))
        return bool(steps)

    def _answer_one(self) -> StepState | None:
        """Answer a question that is open and that somebody cares about; None if there is none."""
        now = self._world.clock.now()
        for step in self._world.state.questions.values():
            if step.until is not None and step.until <= now:
                continue
            if self._heard.setdefault((step.id, step.waiting_since), self._chance.random() < self._script.answer):
                yes = self._chance.random() < self._script.allow
                if step.waiting_for == "approval":
                    self._world.approve(step.id, allow=yes)
                else:
                    self._world.settle(step.id, "again" if yes else self._chance.choice(["done", "fail"]))
                return step
        return None

    def _disturb(self) -> bool:
        if self._disturbances >= self._script.most:
            return False
        roll = self._chance.random()
        for share, deed in self._odds():
            roll -= share
            if roll < 0:
                self._disturbances += 1
                deed()
                return True
        return False

    def _odds(self) -> Iterator[tuple[float, Callable[[], object]]]:
        script, world = self._script, self._world
        yield script.crash / 2, world.crash
        yield script.crash / 4, lambda: world.crash("before_commit")
        yield script.crash / 4, lambda: world.crash("after_commit")
        yield script.pause, lambda: world.pause(now=self._chance.random() < 0.3)
        yield script.interrupt, world.interrupt
        yield script.cancel, world.cancel
        yield script.retry, self._retry
        yield script.skip, self._skip

    def _let_happen(self) -> None:
        """Let the earliest event happen: a stop, an answer, an attempt's end, or a timer."""
        world = self._world
        if world.stopping:
            self._stop(next(iter(world.stopping)))
            return
        if self._answer_one() is not None:
            return
        ends = [(*self._end_of(started), step) for step, started in world.running.items()]
        at, act, step = min(ends, key=lambda end: end[0], default=(NEVER, Hang(), ""))
        timer = self._next_time()
        if timer is not None and timer <= at:
            world.clock.set(max(timer, world.clock.now() + 0.001))
            world.pass_time(0.0)
        elif at < NEVER:
            world.clock.set(max(at, world.clock.now()))
            self._finish(step, act)
        elif world.running:
            world.cancel()  # what hangs, hangs for ever: somebody loses patience
        else:
            raise AssertionError("nothing is at work, nothing is waited for, and yet it is not finished")

    def _stop(self, step: str) -> None:
        """Stop an attempt that was asked to stop; one in four finishes all the same."""
        _at, act = self._end_of(self._world.running[step])
        if isinstance(act, Hang) or self._chance.random() < 0.75:
            self._world.stop(step)
        else:
            self._finish(step, act)

    def _finish(self, step: str, act: Act) -> None:
        match act:
            case Done(output):
                self._world.finish(step, output)
            case Fail(category, message, _after, retry_after):
                self._world.fail(step, Failure(Category(category), message, retry_after=retry_after))
            case Hang():
                self._world.time_out(step)

    def _end_of(self, started: AttemptStarted) -> tuple[float, Act]:
        key = (started.step, started.attempt, started.at)
        if key not in self._ends:
            act = self._act(started)
            limit = self._world.state.steps[started.step].spec.timeout
            after = (limit or NEVER) if isinstance(act, Hang) else act.after
            self._ends[key] = (started.at + after, act)
        return self._ends[key]

    def _act(self, started: AttemptStarted) -> Act:
        attempts = self._script.attempts
        if callable(attempts):
            return attempts(started, self._chance)
        acts = attempts.get(started.step) or attempts.get(started.step.partition("[")[0]) or (Done(),)
        return acts[min(started.attempt, len(acts)) - 1]

    def _next_time(self) -> float | None:
        """Time at which the driver would look again of itself: a timer, or the execution's own limit."""
        state, now = self._world.state, self._world.clock.now()
        due, left = state.next_timer(now), state.time_left(now)
        if left is None or left <= 0:
            return due
        return now + left if due is None else min(due, now + left)


def _fits(check: Callable[[State, StepState], None], state: State, step: StepState) -> bool:
    try:
        check(state, step)
    except UsageError:
        return False
    return True
