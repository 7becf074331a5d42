"""One execution moved by hand: the real rules (`decide`, `fold`) with no disk, no threads and no waiting.

    run = Simulation(plan)
    run.start()                     # decides, commits, lets the first attempts loose
    run.finish("fetch", 7)
    run.crash()                     # all that is not in `run.journal` is gone
    run.resume()

A turn here is a turn of the local driver: decide until nothing is left to decide, commit, let the new attempts
loose. So a crash destroys what it would destroy there: everything since the last commit, and all running attempts.
`simulate.py` plays whole scripts on top of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from windlass.core import events as ev
from windlass.core.decide import Launch, Policy, Record, Stop, decide
from windlass.core.redo import check_retry, check_skip
from windlass.core.standing import pause_event
from windlass.core.state import fold
from windlass.core.transitions import ExecutionStatus
from windlass.errors import Category, Failure
from windlass.plan.load import bind_inputs
from windlass.plan.model import Effect, Plan

__all__ = ["FakeClock", "Simulation"]

EPOCH = 1_750_000_000.0
"""Some day in June 2025: a time like those in real journals, and the same in every test."""


class FakeClock:
    """A `Clock` for tests. `advance` lets time pass; `set` also turns it back, as people and time servers do."""

    def __init__(self, at: float = EPOCH) -> None:
        self._now = at

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not pass backwards; use `set` to turn the clock back")
        self._now += seconds

    def set(self, at: float) -> None:
        self._now = at


Moment = Literal["now", "before_commit", "after_commit"]


class Simulation:
    """One execution, its journal, its clock, and the attempts that the world is at work on."""

    def __init__(
        self,
        plan: Plan,
        inputs: Mapping[str, Any] | None = None,
        *,
        clock: FakeClock | None = None,
        policy: Policy | None = None,
        hold: bool = False,
    ) -> None:
        self.plan = plan
        self.clock = clock or FakeClock()
        self.policy = policy or Policy()
        self.hold = hold
        """Wait for a person instead of pausing."""
        self.journal: list[ev.Event] = []
        """Committed events: all that survives a crash."""
        self.running: dict[str, ev.AttemptStarted] = {}
        """Attempts that the world is at work on."""
        self.stopping: dict[str, Stop] = {}
        """Running attempts that were asked to stop and have not ended yet."""
        self.performed: list[ev.AttemptStarted] = []
        """Every attempt that was ever let loose on the world, those that a crash made us forget too."""
        self.driving = False
        """True while a driver is alive."""
        self._drivers = 0
        self._batch: list[ev.Event] = []
        self._fuse: Moment | None = None
        self._created = ev.ExecutionCreated(
            self.clock.now(),
            id="simulated",
            plan=msgspec.Raw(plan.encoded),
            inputs=bind_inputs(plan, inputs or {}),
            workdir="/",
        )
        self.state = fold([self._created], plan)

    # -- what a driver does ----------------------------------------------------------------------

    def start(self) -> None:
        """Create the execution and begin; after a crash that left no trace of it, begin anew."""
        if self.journal:
            raise ValueError("it has begun already: use `resume`")
        self._batch = [self._created]
        self._drive(ev.ExecutionStarted(self.clock.now(), self._new_driver()))
        self._turn()

    def resume(self) -> None:
        """Go on in another process, which knows nothing but the journal."""
        self._take_up()
        self._turn()

    def crash(self, at: Moment = "now") -> None:
        """Lose all that is not in the journal: at once, or in the next turn, just before or after its commit."""
        self._fuse = None if at == "now" else at
        if at == "now":
            self.driving = False
            self._batch.clear()
            self.running.clear()
            self.stopping.clear()
            self._recall()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and have the driver look at the clock."""
        self.clock.advance(seconds)
        self._turn()

    # -- how attempts end ------------------------------------------------------------------------

    def finish(self, step: str, output: Any = None) -> None:
        self._end(step, lambda now, attempt: ev.AttemptFinished(now, step, attempt, output))

    def fail(self, step: str, failure: Failure) -> None:
        self._end(step, lambda now, attempt: ev.AttemptFailed(now, step, attempt, failure.located(step)))

    def stop(self, step: str) -> None:
        """End the attempt without an outcome, as it was asked to stop."""
        reason = self.stopping[step].reason
        self._end(step, lambda now, attempt: ev.AttemptStopped(now, step, attempt, reason))

    def time_out(self, step: str) -> None:
        """The attempt is ended because it took too long: a failure, or a doubt if it may take effect only once."""
        if self.running[step].effect == Effect.ONCE:
            self._end(step, lambda now, attempt: ev.AttemptStopped(now, step, attempt, "timeout"))
        else:
            self.fail(step, Failure(Category.RESOURCE, "took too long"))

    # -- what people do --------------------------------------------------------------------------

    def pause(self, *, now: bool = False) -> None:
        self._record(ev.ControlRequested(self.clock.now(), "pause", "somebody", now))
        self._turn()

    def interrupt(self) -> None:
        self._record(ev.ControlRequested(self.clock.now(), "interrupt", "somebody", True))
        self._turn()

    def cancel(self) -> None:
        """End it for good; if nobody drives it, it is taken up just long enough for that."""
        if not self.driving:
            self._take_up()
        self._record(ev.ControlRequested(self.clock.now(), "cancel", "somebody", True))
        self._turn()

    def approve(self, step: str, *, allow: bool = True) -> None:
        """Answer a request for approval; while nobody drives, the answer waits in the journal."""
        asked = self.state.steps[step].approval
        if asked is None or asked.allow is not None:
            raise ValueError(f"step {step} is not waiting for approval")
        if self.clock.now() >= asked.expires_at:
            raise ValueError(f"the question of step {step} has expired")
        self._record(ev.ApprovalAnswered(self.clock.now(), step, asked.digest, allow, "somebody"))
        self._turn()

    def settle(self, step: str, choice: ev.DecisionChoice, output: Any = None) -> None:
        """Say what became of an attempt whose outcome nobody saw; while nobody drives, that waits too."""
        asked = self.state.questions.get(step)
        if asked is None or asked.waiting_for != "outcome":
            raise ValueError(f"step {step} has no unknown outcome")
        self._record(ev.DecisionMade(self.clock.now(), step, choice, "somebody", output))
        self._turn()

    def retry(self, step: str, edits: Mapping[str, Any] | None = None) -> None:
        """Try a step again, also after the end; while nobody drives, the request waits in the journal."""
        check_retry(self.state, self.state.steps[step])
        self._redo(ev.StepRetried(self.clock.now(), step, "somebody", dict(edits or {})))

    def skip(self, step: str) -> None:
        """Do without a step, also after the end."""
        check_skip(self.state, self.state.steps[step])
        self._redo(ev.StepSkipRequested(self.clock.now(), step, "somebody"))

    # -- inside ----------------------------------------------------------------------------------

    def _redo(self, request: ev.Event) -> None:
        if self.state.status.finished:
            self._record(ev.ExecutionReopened(self.clock.now(), "somebody"))
        self._record(request)
        self._turn()

    def _recall(self) -> None:
        """Fold the journal, as a new process would."""
        self.state = fold(self.journal or [self._created], self.plan)

    def _new_driver(self) -> str:
        self._drivers += 1
        return f"driver-{self._drivers}"

    def _take_up(self) -> None:
        if self.driving or self.state.status.finished:
            raise ValueError("there is nothing to resume")
        self._recall()
        self._drive(ev.ExecutionResumed(self.clock.now(), self._new_driver()))

    def _drive(self, opening: ev.Event) -> None:
        self._record(opening)
        self.driving = True

    def _end(self, step: str, event: Callable[[float, int], ev.Event]) -> None:
        attempt = self.running.pop(step).attempt
        self.stopping.pop(step, None)
        self._record(event(self.clock.now(), attempt))
        self._turn()

    def _turn(self) -> None:
        if not self.driving:
            self._commit()
        while self.driving:
            launches = self._decide()
            if not self._commit():
                return
            for started in launches:
                self.running[started.step] = started
                self.performed.append(started)
            self.driving = self.state.status is ExecutionStatus.RUNNING
            left = pause_event(self.state, self.clock.now(), self.policy, hold=self.hold)
            if left is None:
                return
            self._record(left)

    def _decide(self) -> list[ev.AttemptStarted]:
        launches: list[ev.AttemptStarted] = []
        now, changed = self.clock.now(), True
        while changed:
            changed = False
            for command in decide(self.state, now, self.policy):
                match command:
                    case Launch(step, arguments):
                        effect = step.spec.effect or Effect.REPEATABLE
                        reduced = (step.failures or {}).get(Category.RESOURCE, 0)
                        tool = step.spec.tool_name
                        started = ev.AttemptStarted(now, step.id, step.attempts + 1, tool, arguments, effect, reduced)
                        self._record(started)
                        launches.append(started)
                        changed = True
                    case Record(event):
                        self._record(event)
                        changed = True
                    case Stop(step) if step.id in self.running:
                        self.stopping.setdefault(step.id, command)
                    case Stop(step, reason):
                        # It was to start in this very turn, and what was decided since is against it.
                        launches = [started for started in launches if started.step != step.id]
                        self._record(ev.AttemptStopped(now, step.id, step.attempts, reason))
                        changed = True
        return launches

    def _record(self, event: ev.Event) -> None:
        self.state.apply(event)
        self._batch.append(event)

    def _commit(self) -> bool:
        """Write down what happened; False if the power went meanwhile."""
        if self._fuse != "before_commit":
            # Through JSON and back, so that nothing survives here that would not survive on disk.
            self.journal += [ev.decode(ev.encode(event)) for event in self._batch]
            self._batch.clear()
        if self._fuse is not None:
            self.crash()
            return False
        return True
