"""A project whose agents run on the real `claude` and the real `opencode`, with a scripted model behind both.

`serving` points a project's user at a scripted model: Claude Code by the environment, OpenCode by the user's own
settings of it. Nothing of the machine's user is seen, nothing but loopback is spoken to. `write` and `bash` are what
the model says to use a tool, in the words of the runtime; `living` are the processes that a command has left behind.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import claude_agent_sdk
import pytest
from begun_programs import without_forks
from opencode_fixtures import needs_opencode, opencode_binary, prepare_user, settings
from waiting import wait_until

from windlass.core import events as ev
from windlass.testing import Reply, ScriptedModel

if TYPE_CHECKING:
    from conftest import Background, Project

    from windlass.testing.scripted.conversation import ReplyScript

__all__ = [
    "BOTH",
    "BUNDLED",
    "CLAUDE",
    "CLAUDE_AND_SOAK",
    "MODEL",
    "OPEN",
    "PRICE",
    "agent",
    "bash",
    "living",
    "pids",
    "price",
    "program",
    "serving",
    "told",
    "wait_for",
    "with_program",
    "write",
]

CLAUDE, OPEN = "claude-code", "open-code"
BOTH = pytest.mark.parametrize("runtime", [CLAUDE, pytest.param(OPEN, marks=needs_opencode)])
CLAUDE_AND_SOAK = pytest.mark.parametrize(
    "runtime", [CLAUDE, pytest.param(OPEN, marks=[needs_opencode, pytest.mark.soak])]
)
"""For what the engine does and the runner's own tests have on OpenCode, too."""
MODEL = "claude-sonnet-4-5"
SLOWEST_SERVER = 400_000
"""Milliseconds until the runtimes go on without an MCP server that still starts: Claude Code would after 5 s."""
BUNDLED = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
PRICE = (3.0, 15.0)
"""Dollars per million tokens read and written: what Claude Code knows, and what OpenCode's settings here say."""


@contextmanager
def serving(
    project: Project, script: ReplyScript = (), *, for_open_code: ReplyScript | None = None, **told: Any
) -> Iterator[Any]:
    """The model, at work for both runtimes; with a script for OpenCode, a model for each.

    `told` are settings of the user's, by name. Paths of programs are among them and can be changed.
    """
    with ScriptedModel(script) as model:
        if for_open_code is None:
            prepare(project, model, model, **told)
            yield model
            return
        with ScriptedModel(for_open_code) as other:
            prepare(project, model, other, **told)
            yield model, other


def prepare(project: Project, claude: ScriptedModel, opencode: ScriptedModel, **told: Any) -> None:
    """Let the project's user have both runtimes, and the QuickJS that earlier tests have compiled."""
    prepare_user(project.user)
    for compiled in Path(os.environ["XDG_CACHE_HOME"], "windlass").glob("*.cwasm"):
        (project.user / ".cache/windlass").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(compiled, project.user / ".cache/windlass")
    (project.user / "config").mkdir(exist_ok=True)
    costs = {"cost": {"input": PRICE[0], "output": PRICE[1]}}
    known = settings(opencode.openai_url, experimental={"mcp_timeout": SLOWEST_SERVER})
    models = known["provider"]["scripted"]["models"]
    models["scripted"].update(costs)
    models["stronger"] = models["scripted"] | {"name": "stronger"}
    (project.user / ".config/opencode/opencode.json").write_text(json.dumps(known))
    runtimes = {CLAUDE: {"path": str(BUNDLED), "model": MODEL}, OPEN: {"path": opencode_binary()}}
    project.env |= {
        "CLAUDE_CONFIG_DIR": str(project.user / "config"),
        "XDG_DATA_HOME": str(project.user / ".local/share"),
        "XDG_STATE_HOME": str(project.user / ".local/state"),
        "XDG_CACHE_HOME": str(project.user / ".cache"),
        "TMPDIR": str(project.user / "tmp"),
        "ANTHROPIC_BASE_URL": claude.url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        **dict.fromkeys(("MCP_CONNECT_TIMEOUT_MS", "MCP_TIMEOUT"), str(SLOWEST_SERVER)),
        **dict.fromkeys(("DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER"), "1"),
        **dict.fromkeys(
            (f"OPENCODE_DISABLE_{name}" for name in ("MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")), "1"
        ),
        "WINDLASS_RUNTIMES": json.dumps(runtimes),
        **{
            f"WINDLASS_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
            for name, value in told.items()
        },
    }


def with_program(project: Project, runtime: str, path: str) -> None:
    """The user's settings name another program for a runtime."""
    runtimes = json.loads(project.env["WINDLASS_RUNTIMES"])
    runtimes[runtime]["path"] = path
    project.env["WINDLASS_RUNTIMES"] = json.dumps(runtimes)


def program(path: Path, lines: str) -> str:
    """A stand-in for a program that is broken."""
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


# -- what the model says -----------------------------------------------------------------------------


def write(runtime: str, path: Path, content: str = "written\n", **how: Any) -> Reply:
    if runtime == CLAUDE:
        return Reply.use("Write", {"file_path": str(path), "content": content}, **how)
    return Reply.use("write", {"filePath": str(path), "content": content}, **how)


def bash(runtime: str, command: str, **how: Any) -> Reply:
    return Reply.use("Bash" if runtime == CLAUDE else "bash", {"command": command, "description": "a command"}, **how)


def price(tokens_in: int, tokens_out: int) -> float:
    return (tokens_in * PRICE[0] + tokens_out * PRICE[1]) / 1e6


# -- while it runs -----------------------------------------------------------------------------------


def wait_for(model: ScriptedModel, count: int, *runs: Background) -> None:
    """Wait until so many requests have come. A command that ends before that has a reason, which is told."""

    def come() -> bool:
        for run in runs:
            assert run.process.poll() is None or len(model.requests) >= count, f"it ended too early:\n{run.err}"
        return len(model.requests) >= count

    wait_until(come, f"{count} requests come; {model.errors}")


# -- what came of it ---------------------------------------------------------------------------------


def told(project: Project, *kinds: type[ev.Event]) -> list[Any]:
    """The events of these kinds, of the project's only execution."""
    (execution,) = project.ids()
    return [event for event in project.events(execution) if isinstance(event, kinds)]


def agent(run: Any, step: int = 0) -> Any:
    """A step of what `--json` printed, and what it says of its agent."""
    found = run.json["steps"][step]
    return found, found["agent"]


def living(project: Project) -> list[str]:
    """Every process of this project's user that lives, by its command line. A zombie has no environment any more."""
    return [_command_line(pid) for pid in _of_user(project)]


def pids(project: Project, sign: str) -> set[int]:
    """Those of them whose command lines have this in them."""
    return without_forks(int(pid) for pid in _of_user(project) if sign in _command_line(pid))


def _of_user(project: Project) -> list[str]:
    mark = f"HOME={project.user}".encode()
    return [name for name in os.listdir("/proc") if name.isdigit() and mark in _read(name, "environ")]


def _command_line(pid: str) -> str:
    return b" ".join(_read(pid, "cmdline")).decode(errors="replace")


def _read(pid: str, what: str) -> Sequence[bytes]:
    try:
        return Path("/proc", pid, what).read_bytes().split(b"\0")
    except OSError:
        return []  # it has ended
