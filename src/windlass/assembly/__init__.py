"""Settings → adapters → Engine: the one place that knows every adapter."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windlass.assembly.agents import agent_tool, policy_of, runtimes
from windlass.assembly.plan_loader import PlanLoader
from windlass.clock import SystemClock
from windlass.core.decide import Policy
from windlass.engine.agents.tool import MergeTool
from windlass.engine.code.composed import ComposedTools
from windlass.engine.code.running import ProgramDeps
from windlass.engine.code.search import CodeSearch
from windlass.engine.code.tool import CodeTool
from windlass.engine.drivers import LocalDrivers
from windlass.engine.engine import Engine
from windlass.engine.gates import Gates
from windlass.engine.gates.intake import Admission
from windlass.engine.gates.terms import TermsOfUse
from windlass.engine.housekeeping import release_dead_reservations
from windlass.engine.perform import AttemptRunner
from windlass.errors import JournalError
from windlass.homes import find_home, prepare_home, user_folder
from windlass.journal.checkpoint import CheckpointFolder
from windlass.journal.stores import HomeStores
from windlass.ports import ComposedStore, Journal, Ledger, Runner, Sandbox, Tool, ToolLike, as_tool
from windlass.process import Supervisor
from windlass.sandbox.programs import WasmSandbox
from windlass.settings import Settings, load_settings
from windlass.settings.variables import StepEnvironment, with_mcp_variables
from windlass.tools.built_in import TABLE, BuiltInTools, Registry, ToolSetup
from windlass.tools.composed import FolderComposedStore
from windlass.trust import Ask, Trust

__all__ = ["PlanLoader", "Programs", "cache_folder", "child_environment", "open_engine", "programs", "trace_problem"]


def child_environment(settings: Settings, env: Mapping[str, str] = os.environ) -> StepEnvironment:
    """The environment of a step's processes: an allow-list, never the engine's whole environment."""
    return StepEnvironment(env, settings.env_allow)


def open_engine(
    home: str | os.PathLike[str] | None = None,
    *,
    tools: Iterable[Tool | ToolLike] = (),
    runners: Iterable[Runner] = (),
    ask: Ask | None = None,
    make: bool = True,
    label: str = "",
    pipes: bool = True,
    settings: Mapping[str, Any] | None = None,
    **flags: Any,
) -> Engine:
    """An engine on the embedded default: SQLite in the home, no server; or on the PostgreSQL of the setting `journal`.
    Close it when done.

    `settings` are settings by name, and `flags` the same as keyword arguments, except the setting `tools`: the argument
    of that name, and `runners`, are your own. One of yours takes the place of a tool of the same
    name for the web, messages or the browser; none takes that of `shell` or a file tool. `ask` answers whether a
    folder's code is trusted.
    Without `make`, a home that is not there is not made: it looks empty, and nothing is left behind.
    `label` is part of the name under which executions are driven.
    Without `pipes`, a plan file must be a regular file: a server would wait for a pipe or a device without end.
    """
    folder = find_home(home)
    chosen = load_settings(folder, {**(settings or {}), **flags})
    stores = HomeStores(folder, chosen.journal)
    if make:
        make_home(folder)
    kept = make or stores.exist
    env = child_environment(chosen)
    supervisor = Supervisor(visible=env)
    journal: Journal
    ledger: Ledger
    if kept:
        journal, ledger = stores.journal(), stores.ledger()
    else:
        from windlass.journal.memory import MemoryJournal, MemoryLedger  # only to look at a home that is not there

        journal, ledger = MemoryJournal(), MemoryLedger()
    clock = SystemClock()
    drivers = LocalDrivers(journal, clock, label)
    trust = Trust(user_folder(), ask)
    terms = TermsOfUse(chosen.tools)

    def is_sensitive(name: str) -> bool:
        tool = code.registry.get(name)
        return tool is not None and terms.of(tool).sensitive

    policy = policy_of(chosen, is_sensitive)
    book = stores.gates() if kept else None
    gates = Gates(book, terms, (stores.places() or folder / "places") if kept else None, clock)
    available = runtimes(chosen, folder, supervisor, runners, gates.book, clock)
    release = partial(release_dead_reservations, drivers, ledger)
    agents = agent_tool(chosen, policy, available, ledger, trust, release, clock)
    own = [as_tool(tool) for tool in tools]
    replaced = {tool.name for tool in own if tool.name in TABLE and TABLE[tool.name].replaceable}
    built_in = BuiltInTools(ToolSetup(chosen, folder, supervisor, env), trust.has, terms.enabled, replaced)
    code = programs(policy, folder, supervisor, built_in, [agents, MergeTool(agents), *own], terms.enabled)
    intake = Admission(chosen.load, folder)
    telemetry = None
    if chosen.telemetry.endpoint is not None:
        from windlass.telemetry import Tracing  # most homes send no traces

        telemetry = Tracing(chosen.telemetry, journal, with_mcp_variables(chosen))
        drivers.commits.subscribe(telemetry.committed)
    spans = telemetry.child_environment if telemetry is not None else None
    executions = folder / "executions"
    attempt_runner = AttemptRunner(
        code.registry, supervisor, env, executions, chosen.grace, gates, intake, span_variables=spans
    )
    kept_files = None
    if kept and chosen.store is not None:
        from windlass.blobs import open_blobs  # most homes share nothing
        from windlass.engine.kept_files import KeepingRunner, KeptFiles

        kept_files = KeptFiles(open_blobs(chosen.store), folder)
        attempt_runner = KeepingRunner(*msgspec.structs.astuple(attempt_runner), kept_files=kept_files, clock=clock)
    notifier = None
    if kept and chosen.notify:
        from windlass.notify.notifier import HomeNotifier  # few homes have rules

        parts = (journal, ledger, clock, supervisor)
        # A server's terminal is nobody's place to be told something.
        bell = not label and sys.stderr.isatty()
        notifier = HomeNotifier(chosen, folder, *parts, lambda: drivers.name, bell=bell)
    cluster = None
    if chosen.temporal is not None:
        from windlass.temporal.cluster import TemporalCluster  # few homes have a cluster

        cluster = TemporalCluster(chosen.temporal, stores.workers())
    return Engine(
        drivers,
        attempt_runner,
        home=folder,
        ledger=ledger,
        settings=chosen,
        notifier=notifier,
        policy=policy,
        agents=agents,
        sandbox=code.sandbox,
        shelf=code.shelf,
        built_in=built_in,
        reader=PlanLoader(code.registry, trust, pipes=pipes),
        archive=CheckpointFolder(folder / "executions"),
        telemetry=telemetry,
        cluster=cluster,
        kept_files=kept_files,
    )


def trace_problem(settings: Settings) -> str | None:
    """Ask the endpoint for traces; gives the problem, nothing if it answers, None if there is no endpoint."""
    if settings.telemetry.endpoint is None:
        return None
    from windlass.telemetry.send import problem_of

    return problem_of(settings.telemetry.endpoint, settings.telemetry.headers_env)


def make_home(folder: Path) -> None:
    """Make the home, marked as the user's own before anything else is in it."""
    try:
        prepare_home(folder)
        (folder / "executions").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise JournalError(
            f"the home {folder} cannot be created: {error.strerror}",
            advice=("choose another: windlass --home DIR …, or WINDLASS_HOME",),
        ) from error


class Programs(NamedTuple):
    sandbox: Sandbox
    shelf: ComposedStore
    registry: Registry


def cache_folder() -> Path:
    """The folder for files that can be made again at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path(os.environ.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "windlass"


def programs(
    policy: Policy,
    home: Path,
    supervisor: Supervisor,
    built_in: BuiltInTools,
    tools: Iterable[Tool] = (),
    enabled: Callable[[str], bool] = lambda name: True,
) -> Programs:
    """The registry of all tools: the built-in ones, `tools`, those that run programs, and those that come and go.

    A tool that is not `enabled` is left out. No worker of the sandbox is started before a program needs one."""
    sandbox = WasmSandbox(supervisor, cache_folder())
    desk = ProgramDeps(sandbox, SystemClock())
    fixed: list[Tool] = [*tools, CodeTool(desk, policy), CodeSearch()]
    folder = "composed-tools"
    taken = [*TABLE, *(tool.name for tool in fixed), "mcp"]
    shelf = FolderComposedStore(home / folder, user_folder() / folder, lambda: taken)
    composed = ComposedTools(shelf, desk, policy)

    def come_and_go() -> list[Tool]:
        return [tool for tool in (*composed(), *built_in.more()) if enabled(tool.name)]

    def find(name: str) -> Tool | None:
        if not enabled(name):
            return None
        return built_in.find(name) or next((tool for tool in composed() if tool.name == name), None)

    kept = [tool for tool in fixed if enabled(tool.name)]
    return Programs(sandbox, shelf, Registry(kept, come_and_go, find, built_in))
