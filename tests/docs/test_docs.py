"""The documentation holds: its commands run, its links resolve, and its tables are the code's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from doc_pages import REPOSITORY, Block, blocks, is_program, pages, play

import windlass
from windlass import errors
from windlass.assembly import PlanLoader, programs
from windlass.cli.app import app
from windlass.cli.init import TEMPLATES
from windlass.cli.session import exit_code
from windlass.core.decide import Policy
from windlass.core.state import State
from windlass.core.transitions import EXECUTION_MOVES, STEP_MOVES, ExecutionStatus
from windlass.errors import Category, WindlassError
from windlass.journal.database import FAULTS
from windlass.plan.model import Approve, Effect, Importance, Limits, Plan, Retry, Step
from windlass.plan.template import _env
from windlass.ports import Runner
from windlass.process import Supervisor
from windlass.runners import RunnerDeps
from windlass.runners.claude.runner import ClaudeCodeRunner
from windlass.runners.model_api.runner import ModelApiRunner
from windlass.settings import Settings
from windlass.tools.built_in import BuiltInTools, ToolSetup
from windlass.trust import Trust

PAGES = pages()
OWN_PAGES = [page for page in PAGES if "examples" not in page.parts]
DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"


def name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands under a heading, to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section {heading!r}"
    return found[1]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every table row, without heads and rules."""
    lines = text.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        is_rule = bool(re.fullmatch(r"\|[-| ]+\|", line))
        is_head = not before.startswith("|")
        if line.startswith("|") and not is_rule and not is_head:
            yield cells


# -- pages as programs -------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in OWN_PAGES if is_program(page)], ids=name)
def test_what_a_page_shows_is_what_happens(page: Path, project: Any, zygote: Any) -> None:
    """With the command as it is installed for the first page, and with forks of it for all others."""
    own = {} if page == README else {"PATH": f"{zygote.folder}:{project.env['PATH']}"}
    play(page, project.path, {**project.env, **own})


@pytest.mark.parametrize("page", [README, DOCS / "quickstart.md"], ids=name)
def test_the_first_pages_are_run(page: Path) -> None:
    assert is_program(page)


def test_every_guide_is_run_and_every_template_has_one() -> None:
    index = text_of("guides/README.md")
    guides = re.findall(r"\]\(([\w-]+\.md)\)", index)
    assert len(guides) >= 5
    assert {DOCS / "guides" / guide for guide in guides} == set((DOCS / "guides").glob("*.md")) - {
        DOCS / "guides" / "README.md"
    }
    assert all(is_program(DOCS / "guides" / guide) for guide in guides)
    assert not [template for template in TEMPLATES if template != "first" and f"`{template}`" not in index]


PLANS = [b for page in PAGES for b in blocks(page) if b.info == "yaml" and not b.fragment]


@pytest.mark.parametrize("block", PLANS, ids=str)
def test_every_plan_in_the_docs_passes_the_checks(block: Block, project: Any) -> None:
    """As `windlass plan check --yes` does it, in this process because there are many."""
    for other in blocks(block.page):
        if other.info == "python" and other.file:
            project.file(other.file, other.text)
    plan = project.file("plan.yaml", block.text)
    trust = Trust(plan.parent / "user", lambda _folder, _files: True)
    built_in = BuiltInTools(ToolSetup(Settings(), plan.parent, Supervisor(), {}), lambda _folder: False)
    tools = programs(Policy(), plan.parent, Supervisor(), built_in).registry
    workshop = PlanLoader(tools, trust)
    assert workshop.read(plan, plan.parent).warnings == ()


def test_the_plans_of_the_examples_pass_plan_check(windlass: Any) -> None:
    for plan in sorted((REPOSITORY / "examples").glob("*/plan.yaml")):
        assert "warning" not in windlass("plan", "check", plan, "--yes").err


# -- links -------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    found = set()
    for heading in re.findall(r"^#+ (.+)$", _without_blocks(page.read_text(encoding="utf-8")), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        found.add(kept.replace(" ", "-"))
    return found


def _without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_blocks(page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{name(page)} links to {link}, and there is no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, queue = set(), [REPOSITORY / "README.md"]
    while queue:
        page = queue.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        targets = [(page.parent / link).resolve() for link in links if "://" not in link]
        queue += [inner for t in targets for inner in (sorted(t.rglob("*.md")) if t.is_dir() else [t])]
    assert {name(page) for page in PAGES} <= {name(page) for page in seen}


def test_every_promise_has_a_row_with_tests_of_its_id() -> None:
    tested = {
        id.upper(): page
        for page in (REPOSITORY / "tests").rglob("test_*.py")
        for id in re.findall(r"^(?:async )?def test_([a-l]\d+)_", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    listed = set()
    for ids, _text, _pages, tests in rows(text_of("features.md")):
        named = re.findall(r"[A-L]\d+", ids)
        listed |= set(named)
        files = re.findall(r"\]\(\.\./(tests/[^)]+)\)", tests)
        assert files, f"{ids} names no tests"
        for file in files:
            text = (REPOSITORY / file).read_text(encoding="utf-8")
            assert any(f"def test_{id.lower()}_" in text for id in named), f"{file} has no test of {ids}"
    assert listed == set(tested)


# -- the command line --------------------------------------------------------------------------------


def commands(command: Any, called: str = "windlass") -> Iterator[tuple[str, Any]]:
    if command.hidden:
        return
    yield called, command
    for inner, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{called} {inner}")


def options(command: Any) -> set[str]:
    """The options of a command, without those that are hidden and without --help."""
    shown = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    return {option for p in shown for option in (*p.opts, *p.secondary_opts)} - {"--help", "-h"}


COMMANDS = {called: command for called, command in commands(app) if called != "windlass plan"}


def test_the_cli_page_names_exactly_the_commands_that_exist() -> None:
    named = set(re.findall(r"^### (windlass.*)$", text_of("cli.md"), re.MULTILINE))
    assert named == set(COMMANDS)
    index = re.findall(r"\(#(windlass-[\w-]+)\)", text_of("cli.md").partition("\n## ")[0])
    assert sorted(index) == sorted(called.replace(" ", "-") for called in COMMANDS if called != "windlass")


@pytest.mark.parametrize("called", COMMANDS)
def test_the_cli_page_names_exactly_the_options_that_exist(called: str) -> None:
    documented = {
        option
        for row in rows(section(text_of("cli.md"), called))
        for option in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", row[0])
    }
    assert documented == options(COMMANDS[called])


@pytest.mark.parametrize("called", COMMANDS)
def test_the_help_of_a_command_names_the_options_of_the_cli_page(called: str) -> None:
    shown = CliRunner().invoke(app, [*called.split()[1:], "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    named = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", shown.output))
    assert options(COMMANDS[called]) <= named


def test_the_exit_codes_are_those_of_the_code() -> None:
    documented = {int(row[0]) for row in rows(section(text_of("cli.md"), "Exit codes"))}
    of_errors = {kind.exit_code for kind in _errors(WindlassError)}
    reasons = ("pause", "interrupt", "approval", "decision", "budget", "quota")
    of_states = {exit_code(_standing(status, why)) for status in ExecutionStatus for why in reasons}
    assert documented == of_errors | of_states


def test_the_errors_page_of_the_python_api_has_the_right_exit_codes() -> None:
    for row in rows(section(text_of("python.md"), "Errors")):
        for kind in re.findall(r"`(\w+)`", row[0]):
            assert getattr(errors, kind).exit_code == int(row[2])


def _errors(kind: type[WindlassError]) -> Iterator[type[WindlassError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _errors(child)


def _standing(status: ExecutionStatus, why: str) -> State:
    state = State.__new__(State)
    state.status, state.paused_for = status, why
    return state


def test_every_setting_is_documented_with_its_variable() -> None:
    text = text_of("cli.md")
    documented = {row[0].strip("`") for row in rows(section(text, "Settings"))}
    assert documented == set(Settings.model_fields)
    for setting in Settings.model_fields:
        assert f"WINDLASS_{setting.upper()}" in section(text, "Environment variables")


# -- plans -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "model"),
    [("Keys of a plan", Plan), ("Keys of a step", Step), ("Limits", Limits), ("retry", Retry)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_the_plan_reference_names_every_key(heading: str, model: Any) -> None:
    keys = {field.serialization_alias or key for key, field in model.model_fields.items()}
    documented = {row[0].strip("`") for row in rows(section(text_of("plans.md"), heading))}
    if model is Retry:
        documented -= set(Category)  # the table of categories stands in the same section
    assert documented == keys


@pytest.mark.parametrize(
    ("heading", "words"),
    [("importance", Importance), ("effect", Effect), ("retry", Category)],
)
def test_the_plan_reference_names_every_word(heading: str, words: Any) -> None:
    documented = [row[0].strip("`") for row in rows(section(text_of("plans.md"), heading))]
    assert [word for word in documented if word in set(words)] != []
    assert set(words) <= set(documented)


def test_the_plan_reference_names_the_ways_to_approve() -> None:
    (row,) = [row for row in rows(section(text_of("plans.md"), "Keys of a step")) if row[0] == "`approve`"]
    assert all(f"`{word}`" in row[1] for word in Approve)


def test_every_filter_in_the_plan_reference_exists() -> None:
    named = [
        word
        for row in rows(section(text_of("plans.md"), "Templates"))
        for word in re.findall(r"`(\w+)(?:\([^`]*\))?`", row[0])
    ]
    filters = [word for word in named if word not in ("item", "index", "range")]
    assert {"quote", "json", "from_json", "basename"} <= set(filters)
    assert not [word for word in filters if word not in _env().filters]


@pytest.mark.parametrize(
    ("info", "moves"), [("transitions-step", STEP_MOVES), ("transitions-execution", EXECUTION_MOVES)]
)
def test_the_tables_of_states_are_the_codes_own(info: str, moves: Any) -> None:
    (block,) = [block for block in blocks(DOCS / "durability.md") if block.info == info]
    order = list(moves)
    lines = [f"{old} -> {', '.join(new for new in order if new in moves[old])}".rstrip() for old in order]
    assert block.text.splitlines() == lines


# -- budgets -----------------------------------------------------------------------------------------


def test_e1_the_amounts_that_a_call_reserves_are_those_of_the_runtimes(tmp_path: Path) -> None:
    deps = RunnerDeps(Supervisor(), {"ANTHROPIC_API_KEY": "none"}, lambda: 0.0, tmp_path)
    runners: dict[str, Runner] = {"cli": ModelApiRunner(deps), "claude-code": ClaudeCodeRunner(deps)}
    for runtime, model, reserved, at_once in rows(section(text_of("budget.md"), "Choosing a limit")):
        usd = runners[runtime.strip("`")].call_cost(re.findall(r"`(\w+)`", model)[0], 5_000).usd
        assert usd is not None
        assert (f"${usd:.2f}", str(max(1, int(1 / usd)))) == (reserved, at_once), model


# -- messages and fault points -----------------------------------------------------------------------

SOURCES = sorted((REPOSITORY / "src" / "windlass").rglob("*.py"))


def _texts() -> str:
    """Every text in the program, with … for what is filled in."""
    found = []
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_every_message_in_troubleshooting_is_one_of_the_programs() -> None:
    texts = _texts().replace("`", "")
    for row in rows(text_of("troubleshooting.md")):
        (message,) = re.findall(r"^`(.+?)`", row[0])
        for piece in message.split("…"):
            plain = piece.strip(" ,;:()")
            known = re.sub(r" \d+$", "", plain)  # exit code 127
            assert known in texts, f"no text of the program has {known!r}"


def test_every_fault_point_is_in_contributing() -> None:
    code = "\n".join(file.read_text(encoding="utf-8") for file in SOURCES)
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    documented = {point for row in rows(section(text, "Fault points")) for point in re.findall(r"`([\w.]+)`", row[0])}
    of_files = {f"{name}.{when}" for name in re.findall(r'faults="(\w+)"', code) for when in FAULTS}
    assert documented == set(re.findall(r'fault_point\("([\w.]+)"\)', code)) | of_files


def test_every_make_target_is_in_contributing() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    documented = {row[0].strip("`").removeprefix("make ") for row in rows(section(text, "Set-up"))}
    assert documented == set(phony.split())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_shows_a_machines_own_paths(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"/(?:root|tmp|work|opt)/|/home/(?!ana\b)", text)


async def test_the_table_of_effects_is_that_of_the_tools(project: Any) -> None:
    """D2: of several patterns that fit a tool, the longest holds."""
    rows = re.findall(r"^\| `(none|repeatable|once)` \|.*?\| (.*) \|$", text_of("plans.md"), re.MULTILINE)
    said = {pattern: effect for effect, tools in rows for pattern in re.findall(r"`([\w.*]+)`", tools)}
    async with windlass.open() as engine:
        tools = engine.attempt_runner.tools
        found = {name: str(tools.get(name).effect({})) for name in tools.names()}
    fitting = {name: [pattern for pattern in said if fnmatch(name, pattern)] for name in found}
    assert {name: said[max(patterns, key=len)] if patterns else "" for name, patterns in fitting.items()} == found
