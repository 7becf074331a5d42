"""A world with agents in it: runtimes that fail, run out of quota and money, and ask in the middle of an attempt."""

from __future__ import annotations

from random import Random
from typing import Any, Literal

from invariants import CheckedSimulation

from windlass.core import events as ev
from windlass.core.approval import digest_of
from windlass.core.decide import Policy
from windlass.core.delegate import runtime_of
from windlass.errors import Category, Failure
from windlass.plan.model import Plan

__all__ = ["AgentPlayer", "AgentSimulation", "agent_plan"]


class AgentSimulation(CheckedSimulation):
    """A simulation whose attempts are agents: they tell, ask and are held before gates."""

    def begin(self, step: str) -> None:
        attempt, found = self.running[step].attempt, self.state.steps[step]
        runtime = runtime_of(self.state, found, self.policy)
        now = self.clock.now()
        self._record(ev.AgentBegan(now, step, attempt, runtime, "developer", "", ""))
        self._record(ev.AgentSession(now, step, attempt, runtime, f"{runtime}-{step}-{attempt}"))
        self._turn()

    def ask(self, step: str, input: Any) -> None:
        """What `AttemptContext.ask` does: what was answered is not asked again."""
        found = self.state.steps[step]
        digest = digest_of(step, "Bash", input)
        if digest not in (found.answers or {}):
            now, attempt = self.clock.now(), self.running[step].attempt
            expires_at = now + self.policy.approval_expiry
            self._record(ev.ApprovalAsked(now, step, digest, "Bash", input, expires_at, attempt))
        self._turn()

    def spend(self, step: str, usd: float | None) -> None:
        usage = ev.Usage(100, 10, usd=usd)
        self._record(ev.UsageReported(self.clock.now(), step, self.running[step].attempt, usage))
        self._turn()

    def shut_out(self, step: str, reason: Literal["quota", "budget"], until: float | None) -> None:
        """A gate is closed: the attempt ends without an outcome, and its step waits."""
        now, attempt = self.clock.now(), self.running.pop(step).attempt
        self.stopping.pop(step, None)
        runtime = runtime_of(self.state, self.state.steps[step], self.policy)
        self._record(ev.AttemptStopped(now, step, attempt, reason))
        self._record(ev.StepWaiting(now, step, reason, until, reason, runtime, "execution"))
        self._turn()

    def allow_budget(self, *, allow: bool) -> None:
        self._record(ev.BudgetAnswered(self.clock.now(), allow, "somebody", usd=9.0))
        self._turn()


def agent_plan(chance: Random) -> Plan:
    """A plan of agents and a few tools, on runtimes of both families."""
    ids = [f"s{n}" for n in range(chance.randint(1, 6))]
    steps = []
    for n, name in enumerate(ids):
        step: dict[str, Any] = {"id": name, "needs": chance.sample(ids[:n], chance.randint(0, min(2, n)))}
        if chance.random() < 0.2:
            step["tool"] = "add"
        else:
            step |= {"agent": "developer", "prompt": "do it", "runtime": chance.choice(["claude-code", "open-code"])}
            if chance.random() < 0.2:
                step["runtime"] = "cli"
            if chance.random() < 0.2:
                step["fallback"] = False
        if chance.random() < 0.15:
            step["approve"] = "always"
        if chance.random() < 0.15:
            step["foreach"] = [1, 2]
        if chance.random() < 0.1:
            step["effect"] = "once"
        if chance.random() < 0.3:
            step["importance"] = chance.choice(["optional", "critical"])
        steps.append(step)
    return Plan.model_validate({"steps": steps, "limits": {"parallel": chance.choice([1, 2, 8])}})


class AgentPlayer:
    """Lets something happen, again and again, until the execution is finished."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.trouble = self.chance.choice([0.0, 0.2, 0.5])
        self.disturbed = self.chance.choice([0.0, 0.1, 0.25])
        self.left = 25
        """Disturbances and closed gates after which the world is kind."""
        policy = Policy(approval_expiry=50.0, wait_for_quota=self.chance.random() < 0.6)
        self.world = AgentSimulation(agent_plan(self.chance), policy=policy, hold=self.chance.random() < 0.5)
        self._began: set[tuple[str, int, float]] = set()

    def play(self) -> AgentSimulation:
        for _turn in range(3_000):
            if self.world.state.status.finished:
                return self.world
            self._step()
        raise AssertionError("it neither ends nor pauses: the rules repeat themselves")

    def _step(self) -> None:
        world = self.world
        if not world.journal:
            world.start()
        elif not world.driving:
            self._come_back()
        elif self.left > 0 and self.chance.random() < self.disturbed:
            self.left -= 1
            self._disturb()
        elif world.stopping:
            world.stop(next(iter(world.stopping)))
        else:
            self._let_happen()

    def _disturb(self) -> None:
        world = self.world
        deeds = [
            world.crash,
            lambda: world.crash("before_commit"),
            lambda: world.crash("after_commit"),
            lambda: world.pause(now=self.chance.random() < 0.5),
            world.interrupt,
        ]
        if self.chance.random() < 0.05:
            deeds = [world.cancel]
        self.chance.choice(deeds)()

    def _come_back(self) -> None:
        """Somebody answers, or time passes; then somebody takes it up again."""
        world = self.world
        world.clock.advance(self.chance.uniform(0.0, 20.0))
        self._answer()
        timer = world.state.next_timer(world.clock.now())
        if world.state.paused_for == "quota" and timer is not None and self.chance.random() < 0.7:
            world.clock.set(timer)
        world.resume()

    def _answer(self) -> bool:
        now = self.world.clock.now()
        for step in list(self.world.state.questions.values()):
            if (step.until is not None and step.until <= now) or self.chance.random() < 0.3:
                continue
            if step.waiting_for == "approval":
                self.world.approve(step.id, allow=self.chance.random() < 0.7)
            elif step.waiting_for == "budget":
                self.world.allow_budget(allow=self.left <= 0 or self.chance.random() < 0.8)
                self.left -= 1
            else:
                self.world.settle(step.id, self.chance.choice(["again", "done", "fail"]))  # type: ignore[arg-type]
            return True
        return False

    def _let_happen(self) -> None:
        world = self.world
        able = [name for name in world.running if not world.state.steps[name].asks_in_attempt]
        if able and self.chance.random() < 0.8:
            self._act(self.chance.choice(able))
        elif self._answer():
            return
        elif (timer := world.state.next_timer(world.clock.now())) is not None:
            world.clock.set(timer)
            world.pass_time(0.0)
        elif not able:
            # A question without an end stays until somebody answers it.
            assert world.state.questions, "nothing is at work, nothing is waited for, and yet it is not finished"

    def _act(self, name: str) -> None:
        world, chance = self.world, self.chance
        started = world.running[name]
        if not world.state.steps[name].spec.is_agent:
            world.finish(name, 1)
            return
        key = (name, started.attempt, started.at)
        if key not in self._began:
            self._began.add(key)
            world.begin(name)
            return
        roll = chance.random()
        if roll < 0.2:
            world.ask(name, {"command": f"do {chance.randint(1, 3)}"})
        elif roll < 0.35:
            world.spend(name, chance.choice([None, 0.1, 0.5]))
        elif roll < 0.45 and self.left > 0:
            self.left -= 1
            world.shut_out(name, "quota", world.clock.now() + chance.choice([0.5, 30.0, 300.0]))
        elif roll < 0.55 and self.left > 0:
            self.left -= 1
            world.shut_out(name, "budget", chance.choice([None, world.clock.now() + 0.5]))
        elif chance.random() < self.trouble:
            category = chance.choice(list(Category))
            world.fail(name, Failure(category, "by chance", elsewhere=chance.random() < 0.5))
        else:
            world.finish(name, "said")
