"""Settings → adapters → Engine: the one place that knows every adapter."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from windlass.clock import SystemClock
from windlass.core.decide import Policy
from windlass.core.delegate import DEFAULT_RUNTIME
from windlass.core.events import Source
from windlass.engine.engine import Engine
from windlass.engine.perform import Performer
from windlass.engine.sourced import Sourced
from windlass.errors import JournalError, UsageError
from windlass.journal.checkpoint import CheckpointFolder
from windlass.journal.ledger import SqliteLedger
from windlass.journal.memory import MemoryJournal
from windlass.journal.memory_ledger import MemoryLedger
from windlass.journal.sqlite import SqliteJournal
from windlass.plan.load import load_plan, peek_tools
from windlass.ports import Tool
from windlass.process import Supervisor
from windlass.settings import Settings, find_home, load_settings, user_folder
from windlass.tools.files import file_tools
from windlass.tools.pyfiles import tools_in
from windlass.tools.registry import Registry
from windlass.tools.shell import Shell
from windlass.trust import Ask, Trust

__all__ = ["Workshop", "built_in_tools", "child_environment", "open_engine"]

_CHILDREN_SEE = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TERM",
    "TMPDIR",
    "TZ",
    "VIRTUAL_ENV",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
]


def built_in_tools() -> list[Tool]:
    return [Shell(), *file_tools()]


def child_environment(settings: Settings, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a step's processes get to see: an allow-list, never the engine's whole environment."""
    return {name: env[name] for name in (*_CHILDREN_SEE, *settings.env_allow) if name in env}


class Workshop:
    """Reads plan files and brings their tools, asking for trust where it must."""

    def __init__(self, registry: Registry, ask: Ask | None = None) -> None:
        self._registry = registry
        self._trust = Trust(user_folder(), ask)

    def read(self, path: Path) -> Sourced:
        """A plan file, checked whole, with the tools that it names."""
        files = [(path.parent / name).resolve() for name in peek_tools(path)]
        tools = self.load(files)
        loaded = load_plan(path, tools=self._registry.extended(tools))
        source = Source(
            path=str(path.resolve()),
            digest=loaded.digest,
            tools={str(file): _digest(file) for file in files},
        )
        return Sourced(loaded.plan, source, tuple(tools), tuple(map(str, loaded.warnings)))

    def of_source(self, source: Source) -> list[Tool]:
        """The tools that an execution was started with, for as far as their files are still there."""
        return self.load([Path(file) for file in source.tools if Path(file).is_file()])

    def load(self, files: list[Path]) -> list[Tool]:
        missing = [file for file in files if not file.is_file()]
        if missing:
            names = ", ".join(str(file) for file in missing)
            raise UsageError(f"the plan names tools that are not there: {names}")
        self._trust.require(files)
        return [found for file in files for found in tools_in(file)]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def open_engine(
    home: str | os.PathLike[str] | None = None,
    *,
    tools: Iterable[Tool] = (),
    ask: Ask | None = None,
    make: bool = True,
    **flags: Any,
) -> Engine:
    """An engine on the embedded default: SQLite in the home, no server. Close it when done.

    `flags` are settings by name; `tools` are your own. `ask` answers whether a folder's code is trusted.
    Without `make`, a home that is not there is not made: it looks empty, and nothing is left behind.
    """
    folder = find_home(home)
    settings = load_settings(folder, flags)
    file = folder / "windlass.db"
    if make or (folder.exists() and not folder.is_dir()):
        make_home(folder)
    kept = make or file.exists()
    journal = SqliteJournal(file) if kept else MemoryJournal()
    ledger = SqliteLedger(file) if kept else MemoryLedger()
    registry = Registry([*built_in_tools(), *tools])
    performer = Performer(registry, Supervisor(), child_environment(settings), folder / "executions", settings.grace)
    policy = policy_of(settings)
    return Engine(
        journal,
        performer,
        SystemClock(),
        home=folder,
        ledger=ledger,
        settings=settings,
        policy=policy,
        workshop=Workshop(registry, ask),
        archive=CheckpointFolder(folder / "executions", settings.checkpoints_kept),
        checkpoint_each_step=settings.checkpoint_each_step,
    )


def policy_of(settings: Settings) -> Policy:
    return Policy(
        settings.approval_expiry,
        settings.pause_expiry,
        settings.on_pause_expiry,
        settings.runtime or DEFAULT_RUNTIME,
        settings.fallback,
        settings.wait_for_quota,
    )


def make_home(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "executions").mkdir(mode=0o700, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n!config.toml\n!agents/\n!composed-tools/\n")
    except OSError as error:
        raise JournalError(
            f"the home {folder} cannot be made: {error.strerror}",
            advice=("choose another: windlass --home DIR …, or WINDLASS_HOME",),
        ) from error
