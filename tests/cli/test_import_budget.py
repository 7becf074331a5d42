"""A command imports what it uses: the modules of each are counted, because time depends on the machine (I1)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from windlass.cli.app import COMMANDS, app

if TYPE_CHECKING:
    from conftest import Project

LIMITS = {
    "--help": 161,
    "list": 265,
    "status": 265,
    "status @last": 297,
    "plan check plan.yaml": 230,
    "run plan.yaml": 432,
}
"""Modules that a command may have imported at its end. Lower a limit when the count has gone down."""

NEVER = [
    "claude_agent_sdk",
    "fastapi",
    "httpx2",
    "jinja2",
    "jsonschema",
    "mcp",
    "openai",
    "playwright",
    "pydantic",
    "pydantic_ai",
    "rich",
    "typer",
    "uvicorn",
    "wasmtime",
    "windlass.notify",
    "windlass.runners.claude",
    "windlass.runners.model_api",
    "windlass.runners.open_code",
    "windlass.server",
    "windlass.testing",
    "windlass.tools.browser",
    "windlass.tools.files",
    "windlass.tools.http",
    "windlass.tools.mcp",
    "windlass.tools.message",
    "windlass.tools.search",
]
"""Not for a plan of one shell step, nor for looking at it."""
NOT_FOR_LISTS = ["pydantic_core", "yaml", "windlass.plan", "windlass.assembly", "windlass.settings"]

SITES_OWN = ("sitecustomize", "usercustomize")
"""Debian's Python has one of them."""

COUNTED = """
import json, os, sys

class NoForecast:  # the first is made after a second, which a busy machine may need for the step alone
    def find_spec(self, name, path=None, target=None):
        if forecasts := sys.modules.get("windlass.engine.forecasts"):
            forecasts.FIRST = 3600.0

sys.meta_path.insert(0, NoForecast())
from windlass.cli.entry import main
try:
    main()
finally:
    os.write(int(os.environ["COUNT_TO"]), json.dumps(sorted(sys.modules)).encode())
"""


def modules_of(line: str) -> list[str]:
    reading, writing = os.pipe()
    command = [sys.executable, "-c", COUNTED, *line.split()]
    env = {**os.environ, "COUNT_TO": str(writing)}
    with os.fdopen(reading) as counted:
        ran = subprocess.run(command, env=env, pass_fds=[writing], capture_output=True, text=True, check=False)
        os.close(writing)
        assert ran.returncode == 0, ran.stderr
        found: list[str] = json.loads(counted.read())
    return [name for name in found if name not in SITES_OWN]


@pytest.mark.parametrize("line", LIMITS)
def test_i1_a_command_imports_no_more_than_it_needs(project: Project, windlass: Any, line: str) -> None:
    project.plan("steps: [{id: a, run: echo hi}]")
    if "@last" in line:
        windlass("run", "plan.yaml")
    found = modules_of(line)
    wrong = [*NEVER, *(NOT_FOR_LISTS if line in ("--help", "list", "status") else [])]
    assert [name for name in wrong if name in found] == []
    assert len(found) <= LIMITS[line]


@pytest.mark.parametrize("line", ["plan check plan.yaml", "run plan.yaml"])
def test_i1_a_plan_with_a_program_needs_no_library_for_json_schema(project: Project, line: str) -> None:
    project.plan("steps: [{id: a, code: return 1, limits: {wall: 9s}}]")
    found = modules_of(line)
    assert "windlass.engine.code.tool" in found
    assert "jsonschema" not in found


@pytest.mark.parametrize("name", [name for name, known in COMMANDS.items() if known.help])
def test_i1_the_table_of_commands_says_what_their_own_help_says(name: str) -> None:
    own = " ".join((app.commands[name].help or "").split())
    assert own.startswith(COMMANDS[name].help)


SERVER = """
import asyncio, json, sys, windlass
from windlass.server.app import create_routes
from windlass.server.service import Service

async def main():
    async with windlass.open() as engine:
        create_routes(Service(engine))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("script", "never"),
    [
        (SERVER, ["mcp", "mcp_types", "pydantic_ai"]),  # MCP comes with its first request
        ("import windlass.sandbox.worker", ["windlass.ports", "windlass.core", "pydantic"]),  # one for each program
    ],
    ids=["a server", "a worker of the sandbox"],
)
def test_j1_a_process_of_ours_begins_with_what_it_needs(project: Project, script: str, never: list[str]) -> None:
    told = f"{script}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", told], check=True, capture_output=True, text=True, cwd=project.path, env=project.env
    )
    loaded = json.loads(done.stdout)
    assert "windlass" in loaded
    assert [name for name in never if name in loaded] == []
