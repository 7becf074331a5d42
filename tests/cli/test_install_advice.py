"""Advice to install a part of Windlass names the command that does it where Windlass runs, and `doctor --fix` runs
that one. No other text is changed (I1, C6)."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from windlass import Plan, Step
from windlass.cli import doctor_fix
from windlass.cli.doctor import Finding
from windlass.cli.install_advice import fitting_install
from windlass.cli.session import report_error
from windlass.cli.terminal import as_message
from windlass.cli.text import failure_lines
from windlass.errors import Category, Failure, PlanInvalid, Problem, UsageError
from windlass.testing import Script, simulate

Made: TypeAlias = Callable[..., None]
UV, PIPX = "uv-receipt.toml", "pipx_metadata.json"
ADVICE = "get it: pip install 'windlass[code]' or npm i -g x; pip install --upgrade windlass"
ANEW = "elsewhere: pip install --force-reinstall 'windlass[code]'"
ENDED = simulate(Plan(steps=[Step(id="a", run="true")]), Script({})).state


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Let this process run in an environment with such a file in it."""

    def make(name: str, content: str = "") -> None:
        (tmp_path / name).write_text(content)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))

    return make


@pytest.mark.parametrize(
    ("file", "advice", "anew"),
    [
        ("pyvenv.cfg", ADVICE, ANEW),
        (
            UV,
            "get it: uv tool install 'windlass[code]' or npm i -g x; uv tool upgrade windlass",
            "elsewhere: uv tool install --reinstall 'windlass[code]'",
        ),
        (
            PIPX,
            "get it: pipx install --force 'windlass[code]' or npm i -g x; pipx upgrade windlass",
            "elsewhere: pipx install --force 'windlass[code]'",
        ),
    ],
)
def test_i1_advice_to_install_is_for_the_program_that_made_the_environment(
    made: Made, file: str, advice: str, anew: str
) -> None:
    made(file)
    assert (fitting_install(ADVICE), fitting_install(ANEW)) == (advice, anew)


@pytest.mark.parametrize(
    ("file", "content", "package"),
    [
        (UV, '[tool]\nrequirements = [{ name = "windlass", extras = ["server", "agents"] }]', "windlass"),
        (
            UV,
            '[tool]\nrequirements = [{name = "windlass", extras = ["agents", "server"], path = "/a b.whl"}]',
            "/a b.whl",
        ),
        (PIPX, json.dumps({"main_package": {"package_or_url": "windlass[agents,server]"}}), "windlass"),
        (PIPX, json.dumps({"main_package": {"package_or_url": "/a b.whl[server,agents]"}}), "/a b.whl"),
    ],
)
def test_i1_a_command_that_makes_the_environment_anew_keeps_what_is_in_it(
    made: Made, file: str, content: str, package: str
) -> None:
    made(file, content)
    assert shlex.split(fitting_install("pip install 'windlass[code]'"))[-1] == f"{package}[agents,code,server]"


@pytest.mark.parametrize("content", ["[", "[]", "tool = 1", '{"main_package": null}', "tool.requirements = []"])
@pytest.mark.parametrize("file", [UV, PIPX])
def test_i1_advice_needs_no_file_of_theirs_that_can_be_read(made: Made, file: str, content: str) -> None:
    made(file, content)
    assert fitting_install("pip install 'windlass[code]'").endswith(" 'windlass[code]'")


def test_c6_no_text_but_our_advice_is_changed_to_another_command(made: Made) -> None:
    """A question shows the command that runs."""
    made(UV)
    for text in ("echo pip install windlass-evil", "pip install windlass", ADVICE):
        assert as_message(text) == text
        assert failure_lines("a", Failure(Category.LOGIC, text), ENDED)[0] == f"  ✗ a (logic): {text}"
    for advice in ("echo pip install windlass-evil", "try it: pip install windlass-evil", "pip install requests"):
        assert fitting_install(advice) == advice


def test_i1_errors_and_failures_of_steps_have_the_command_that_works_here(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    made(UV)
    report_error(UsageError("it needs more", advice=("pip install 'windlass[web]'",)), as_json=False)
    report_error(PlanInvalid([Problem("step a: code steps need it: pip install 'windlass[code]'")]), as_json=False)
    shown = capsys.readouterr().err
    assert "  → uv tool install 'windlass[web]'\n" in shown
    assert "step a: code steps need it: uv tool install 'windlass[code]'\n" in shown
    failed = Failure(Category.CONFIGURATION, "it needs more", advice=("pip install 'windlass[web]'",))
    assert failure_lines("a", failed, ENDED)[1] == "      → uv tool install 'windlass[web]'"


def test_i1_doctor_fix_runs_the_commands_that_doctor_shows_and_keeps_what_the_last_one_installed(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(UV)
    mends = ["pip install 'windlass[code]'", "pip install 'windlass[agents]' or npm i -g x"]
    shown = [fitting_install(mend).partition(" or ")[0] for mend in mends]
    ran: list[str] = []

    def run(words: tuple[str, ...], **_: object) -> SimpleNamespace:
        """Write what was installed into the receipt, as uv does."""
        ran.append(shlex.join(words))
        extras = words[-1].removeprefix("windlass[").removesuffix("]").split(",")
        made(UV, f'[tool]\nrequirements = [{{ name = "windlass", extras = {json.dumps(extras)} }}]')
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(doctor_fix.subprocess, "run", run)
    assert doctor_fix.fix_findings([Finding("a", False, "", mend) for mend in mends], yes=True) == 2
    assert shown == ["uv tool install 'windlass[code]'", "uv tool install 'windlass[agents]'"]
    assert ran == ["uv tool install 'windlass[code]'", "uv tool install 'windlass[agents,code]'"]
