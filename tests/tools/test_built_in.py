"""The table of built-in tools: its lines are true, and nothing is loaded before it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from windlass.process import Supervisor
from windlass.settings import SearchSettings, Settings
from windlass.tools.built_in import TABLE, BuiltInTools, ToolSetup

WITHOUT_SEARCH = Settings(search=SearchSettings(providers=[]))


def built_in(home: Path, settings: Settings | None = None) -> BuiltInTools:
    return BuiltInTools(ToolSetup(settings or Settings(), home, Supervisor(), {}), lambda _folder: False)


@pytest.mark.parametrize("name", TABLE)
def test_h2_each_line_of_the_table_builds_the_tool_of_its_name(tmp_path: Path, name: str) -> None:
    assert built_in(tmp_path)[name].name == name


def test_h2_no_module_builds_a_tool_that_is_not_in_the_table(tmp_path: Path) -> None:
    tools = built_in(tmp_path)
    assert [*tools] == [*TABLE]
    assert {name for name in tools if tools[name]} == {name for group in tools._built.values() for name in group}


def test_h2_a_search_without_a_provider_is_no_tool(tmp_path: Path) -> None:
    assert [*built_in(tmp_path, WITHOUT_SEARCH)] == [name for name in TABLE if name != "search"]


LOADED = """
import sys
import windlass
engine = windlass.open(sys.argv[1], make=False)
tools = engine.attempt_runner.tools
assert "files.read" in tools.names() and tools.nearest("files.raed") == "files.read"
def loaded():
    return sorted({name.split(".")[2] for name in sys.modules if name.startswith("windlass.tools.")})
before = loaded()
assert tools.get("http.get") is not None
print(*before, "|", *(name for name in loaded() if name not in before))
"""


def test_h2_to_know_the_names_of_tools_loads_none_of_them(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path / "home")], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    before, after = child.stdout.split("|")
    assert not {"shell", "files", "http", "search", "message", "browser"} & set(before.split())
    assert "http" in after.split()
    assert not {"search", "message", "browser"} & set(after.split())
