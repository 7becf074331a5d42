"""`plan check|show|schema|estimate`: looking at a plan without running it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from windlass.cli.command import Argument, Group
from windlass.cli.session import AsJson, CommandEnd, Home, Yes, out, print_json, remember_home, say, with_engine
from windlass.errors import PlanInvalid

if TYPE_CHECKING:
    from windlass.engine.engine import Engine
    from windlass.plan.load import Loaded

__all__ = ["register"]

PlanFile = Annotated[Path, Argument(metavar="PLAN", help="Plan file, YAML or JSON")]

plan_app = Group("plan", help="Check, show or estimate a plan without running it.", no_args_is_help=True)


def register(app: Group) -> None:
    app.add_command(plan_app)


@plan_app.add
def check(plan: PlanFile, yes: Yes = False, as_json: AsJson = False, home: Home = None) -> None:
    """All problems at once, each with file, line, reason and the nearest known word."""

    def valid(steps: int, warnings: list[str]) -> int:
        if as_json:
            print_json({"ok": True, "problems": [], "warnings": warnings})
        for warning in warnings:
            say(f"warning: {warning}")
        say(f"{plan} is valid ({steps} step{'s' if steps != 1 else ''})")
        return 0

    async def work(engine: Engine) -> int:
        try:
            loaded = engine.read(plan)
            await engine.check_programs(loaded.plan)
        except PlanInvalid as invalid:
            if as_json:
                problems = [msgspec.to_builtins(problem) for problem in invalid.problems]
                print_json({"ok": False, "problems": problems, "warnings": []})
            else:
                for problem in invalid.problems:
                    say(str(problem))
            say(f"{len(invalid.problems)} problem{'s' if len(invalid.problems) != 1 else ''}")
            return 2
        return valid(len(loaded.plan.steps), list(loaded.warnings))

    if home:
        remember_home(home)
    if (commands := _valid_commands(plan, home)) is not None:
        raise CommandEnd(valid(len(commands.plan.steps), [str(warning) for warning in commands.warnings]))
    raise CommandEnd(with_engine(work, home, yes=yes))


def _valid_commands(path: Path, home: str | None) -> Loaded | None:
    """Check a plan of commands alone, without an engine: opening one takes longer than the check.

    None for a plan that has a problem or uses another tool: the engine, which knows them all, says what is wrong.
    """
    from windlass.homes import find_home
    from windlass.plan.load import load_plan
    from windlass.settings import load_settings

    if load_settings(find_home(home)).tools:  # they may take the tool away
        return None
    try:
        loaded = load_plan(path, tools=_CommandCatalog())
    except PlanInvalid:
        return None
    return None if loaded.plan.tools else loaded


class _CommandCatalog:
    """The tool `shell`, as a plan's checks ask for it."""

    def names(self) -> list[str]:
        return ["shell"]

    def knows(self, name: str) -> bool:
        return name == "shell"

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        from windlass.tools.shell_arguments import ShellArguments
        from windlass.values import complaints

        return complaints(ShellArguments, arguments)

    def misnamed(self, name: str, given: Iterable[str]) -> list[str]:
        from windlass.tools.shell_arguments import ShellArguments

        return [key for key in given if key not in ShellArguments.model_fields]


@plan_app.add
def show(plan: PlanFile, yes: Yes = False, as_json: AsJson = False, home: Home = None) -> None:
    """The steps in the order they can run, with what each waits for."""

    async def work(engine: Engine) -> int:
        from windlass.plan.prepare import prepare

        sourced = engine.read(plan)
        graph = prepare(sourced.plan).graph
        if as_json:
            print_json({**json.loads(sourced.plan.encoded), "order": list(graph.order)})
            return 0
        depth: dict[str, int] = {}
        for step_id in graph.order:
            step = sourced.plan.by_id[step_id]
            depth[step_id] = max((depth[need] + 1 for need in graph.needs[step_id]), default=0)
            marks = [str(step.importance)] if step.importance != "normal" else []
            marks += ["needs approval"] if step.approve == "always" else []
            marks += [f"when {step.when}"] if step.when is not None else []
            marks += ["foreach"] if step.foreach is not None else []
            needs = f" ← {', '.join(graph.needs[step_id])}" if graph.needs[step_id] else ""
            remark = f"  ({'; '.join(marks)})" if marks else ""
            out(f"{'  ' * depth[step_id]}{step_id}: {step.tool_name}{needs}{remark}")
        return 0

    raise CommandEnd(with_engine(work, home, yes=yes))


@plan_app.add
def schema() -> None:
    """JSON Schema of plan files, for editors."""
    from windlass.plan.schema import plan_schema

    print_json(plan_schema())


@plan_app.add
def estimate(plan: PlanFile, yes: Yes = False, as_json: AsJson = False, home: Home = None) -> None:
    """Estimate how long a plan will take and what it will cost, from the history of this home."""

    async def work(engine: Engine) -> int:
        from windlass.cli.forecast_text import estimate_lines, names

        loaded = engine.read(plan)
        found = await engine.estimate(loaded.plan, engine.attempt_runner.tools.extended(loaded.tools))
        if as_json:
            print_json(found.as_estimate())
            return 0
        if found.left is None:
            say(f"unknown: these steps have not run here yet ({names(found.unknown)})")
        for line in estimate_lines(found):
            out(line)
        return 0

    raise CommandEnd(with_engine(work, home, yes=yes))
