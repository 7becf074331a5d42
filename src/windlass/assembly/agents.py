"""The runtimes for agents, made when they are first needed, and the tool that uses them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from windlass.agents import Briefing
from windlass.clock import Clock, SystemClock
from windlass.core.decide import Policy, no_tool
from windlass.core.delegate import DEFAULT_RUNTIME
from windlass.engine.agents.runtimes import GuardedRunner
from windlass.engine.agents.tool import AgentTool
from windlass.ports import GateStore, Ledger, Runner
from windlass.prices import Prices
from windlass.process import Supervisor
from windlass.runners import RunnerDeps
from windlass.runtimes import RUNTIMES, Runtime
from windlass.settings import RuntimeSettings, Settings
from windlass.trust import Trust

__all__ = ["Runtimes", "agent_tool", "policy_of", "runtimes"]


def policy_of(settings: Settings, by_nature: Callable[[str], bool] = no_tool) -> Policy:
    return Policy(
        settings.approval_expiry,
        settings.pause_expiry,
        settings.on_pause_expiry,
        settings.runtime or DEFAULT_RUNTIME,
        settings.fallback,
        settings.wait_for_quota,
        settings.approvals.always,
        settings.approvals.sensitive,
        settings.patience,
        by_nature,
    )


class Runtimes(Mapping[str, Runner]):
    """Runners by name. A plan without agents pays for none of them."""

    def __init__(self, make: Mapping[str, Callable[[], Runner]], book: GateStore | None, clock: Clock) -> None:
        """With a `book`, each is behind its breaker."""
        self._make = dict(make)
        self._book, self._clock = book, clock
        self._made: dict[str, Runner] = {}

    def __getitem__(self, name: str) -> Runner:
        if name not in self._made:
            made = self._make[name]()
            self._made[name] = made if self._book is None else GuardedRunner(made, self._book, self._clock)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._make)

    def __len__(self) -> int:
        return len(self._make)

    def __contains__(self, name: object) -> bool:
        return name in self._make

    async def close(self) -> None:
        for runner in self._made.values():
            await runner.close()


def runtimes(
    settings: Settings,
    home: Path,
    supervisor: Supervisor,
    own: Iterable[Runner] = (),
    book: GateStore | None = None,
    clock: Clock | None = None,
) -> Runtimes:
    """The runtimes as the settings have them. `own` are the caller's; one of a known name takes its place."""
    clock = clock or SystemClock()
    prices = Prices(settings.price_table)

    def maker(row: Runtime) -> Callable[[], Runner]:
        def make() -> Runner:
            mine = settings.runtimes.get(row.name) or RuntimeSettings()
            if mine.path:
                mine = mine.model_copy(update={"path": os.path.expanduser(mine.path)})
            module, _, name = row.runner.partition(":")
            runner: Runner = getattr(import_module(module), name)(
                RunnerDeps(supervisor, os.environ, clock.now, home, mine, prices)
            )
            return runner

        return make

    known = {row.name: maker(row) for row in RUNTIMES.values()}
    for runner in own:
        known[runner.name] = lambda runner=runner: runner  # type: ignore[misc]
    return Runtimes(known, book, clock)


def agent_tool(
    settings: Settings,
    policy: Policy,
    runners: Runtimes,
    ledger: Ledger,
    trust: Trust,
    release: Callable[[], Awaitable[None]],
    clock: Clock,
) -> AgentTool:
    return AgentTool(
        runners=runners,
        briefing=Briefing(),
        ledger=ledger,
        clock=clock,
        settings=settings,
        policy=policy,
        trusted=trust.has,
        release_dead=release,
    )
