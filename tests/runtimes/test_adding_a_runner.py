"""The recipe "Adding a runner" of CONTRIBUTING.md, followed word for word in a copy of the source."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

REPOSITORY = Path(__file__).parents[2]
CHECK = """
from windlass.agents.roles import to_deny, to_offer
from windlass.core.agent import next_in_family
from windlass.server.request_models import NewExecution
from windlass.settings import Settings
from windlass.runtimes import runtime_names

assert runtime_names() == "claude-code, open-code, cli, gemini, codex, acp or echo"
assert "echo" in Settings.model_validate({"runtimes": {"echo": {"model": "loud"}}}).runtimes
assert "'echo'" in str(NewExecution.model_json_schema())
assert to_offer(["Read"], "echo") == ("peek",) and to_offer(["peek"], "claude-code") == ("Read",)
assert "peek" in to_deny(["Read"], "")
assert next_in_family("echo", ()) is None
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the source, with the module and the row that the recipe has."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipe = text.partition("## Adding a runner")[2].partition("\n## ")[0]
    module, row = re.findall(r"```python\n(.*?)```", recipe, re.DOTALL)
    (path,) = re.findall(r"This is `(src/windlass/runners/\w+\.py)`", recipe)
    half_written = shutil.ignore_patterns("*.pyc.*")  # the bytecode is copied, too: to compile all of it takes seconds
    shutil.copytree(REPOSITORY / "src", tmp_path / "src", ignore=half_written)
    (tmp_path / path).write_text(module)
    table = tmp_path / "src/windlass/runtimes.py"
    rows, end, rest = table.read_text().partition("    ACP,\n)")
    table.write_text(rows + end.removesuffix(")") + row + ")" + rest)
    return tmp_path / "src"


def test_a1_a_runner_is_one_file_and_one_row(source: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "config/windlass").mkdir(parents=True)
    (project / "config/windlass/config.toml").write_text('[runtimes.echo]\nmodel = "loud"\n')
    (project / "plan.yaml").write_text("runtime: echo\nsteps: [{id: say, agent: developer, prompt: good morning}]\n")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(project),
        "XDG_CONFIG_HOME": str(project / "config"),
        "PYTHONPATH": str(source),
    }

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=project, env=env, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    windlass = "from windlass.cli.entry import main; main()"
    ran = json.loads(python("-c", windlass, "run", "plan.yaml", "--json"))
    assert ran["steps"][0]["output"] == "GOOD MORNING"
    assert "runtime echo" in python("-c", windlass, "doctor", "--json")
    python("-c", CHECK)


def test_the_table_imports_no_runner() -> None:
    code = "import sys, windlass.runtimes; assert not [name for name in sys.modules if 'windlass.runners' in name]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
