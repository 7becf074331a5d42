"""The recipe "Adding a tool" of CONTRIBUTING.md, followed word for word in a copy of the package (H1)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from doc_pages import REPOSITORY

import windlass as package

PLAN = 'steps: [{id: hello, tool: greet, with: {name: Ana}}, {id: say, run: ["echo", "{{ steps.hello.output }}"]}]'


@pytest.fixture
def recipe() -> tuple[str, str]:
    """The module and the line that the recipe shows."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    section = text.partition("\n## Adding a tool\n")[2].partition("\n## ")[0]
    module, line = re.findall(r"^   ```python\n(.*?)^   ```$", section, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(module), textwrap.dedent(line)


def test_h1_a_tool_is_added_by_one_file_and_one_line(recipe: tuple[str, str], tmp_path: Path, project: object) -> None:
    copy = tmp_path / "copy" / "windlass"
    shutil.copytree(Path(package.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tools" / "greet.py").write_text(recipe[0])
    table = copy / "tools" / "built_in.py"
    begins = "TABLE: dict[str, BuiltInEntry] = {\n"
    text = table.read_text()
    assert begins in text
    table.write_text(text.replace(begins, begins + recipe[1]))
    (tmp_path / "plan.yaml").write_text(PLAN)

    def windlass(*arguments: str) -> str:
        code = f"import sys; sys.path.insert(0, {str(copy.parent)!r}); from windlass.cli.entry import main; main()"
        ended = subprocess.run(
            [sys.executable, "-c", code, "--home", str(tmp_path / "home"), *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    assert "Hello, Ana!" in windlass("run", "plan.yaml")
    assert re.search(r"greet +none +Greet somebody", windlass("tools"))
