"""`plan check|show|schema|estimate|draft|redraft`: a plan before it runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from windlass.cli.command import Argument, Group, Option
from windlass.cli.names import ExecutionId
from windlass.cli.session import STDIN, AsJson, CommandEnd, Home, Yes, out, print_json, remember_home, say, with_engine
from windlass.errors import PlanInvalid, UsageError

if TYPE_CHECKING:
    from windlass.engine.engine import Engine
    from windlass.engine.plans import LoadedPlan
    from windlass.plan.load import Loaded

__all__ = ["register"]

PlanFile = Annotated[Path, Argument(metavar="PLAN", help="Plan file, YAML or JSON; - reads stdin")]

plan_app = Group("plan", help="Check, show, estimate or draft a plan without running it.", no_args_is_help=True)


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
        say(f"{plan if plan != STDIN else 'the plan'} is valid ({steps} step{'s' if steps != 1 else ''})")
        return 0

    async def work(engine: Engine) -> int:
        try:
            loaded = _load(engine, plan)
            engine.check_plan(loaded)
            await engine.check_programs(loaded)
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


def _load(engine: Engine, plan: Path) -> LoadedPlan:
    if plan != STDIN:
        return engine.read(plan)
    from windlass.cli.stdin import load_plan  # few commands read it

    return load_plan(engine)


def _valid_commands(path: Path, home: str | None) -> Loaded | None:
    """Check a plan of commands alone, without an engine: opening one takes longer than the check.

    None for a plan that has a problem or uses another tool: the engine, which knows them all, says what is wrong.
    """
    from windlass.homes import find_home
    from windlass.plan.load import load_plan
    from windlass.settings import load_settings

    if path == STDIN or path.is_fifo():  # the engine would find nothing left in a pipe
        return None
    if load_settings(find_home(home)).tools:  # they may take the tool away
        return None
    try:
        loaded = load_plan(path, tools=_CommandCatalog())
    except PlanInvalid:
        return None
    of_commands = not loaded.plan.tools and all(step.tool_name == "shell" for step in loaded.plan.steps)
    return loaded if of_commands else None


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
        from windlass.cli.plan_text import plan_lines
        from windlass.plan.prepare import prepare

        sourced = _load(engine, plan)
        if as_json:
            order = list(prepare(sourced.plan).graph.order)
            print_json({**json.loads(sourced.plan.encoded), "order": order})
            return 0
        for line in plan_lines(sourced.plan):
            out(line)
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

        loaded = _load(engine, plan)
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


RoleName = Annotated[str | None, Option("--role", metavar="NAME", help="Role of the agent (default: planner)")]
RuntimeName = Annotated[str | None, Option("--runtime", metavar="NAME", help="Runtime of the agent")]
ModelName = Annotated[str | None, Option("--model", metavar="NAME", help="Model of the agent")]
DraftBudget = Annotated[float | None, Option("--budget", metavar="USD", min=0, help="Maximum cost of the draft")]


@plan_app.add
def draft(
    task: Annotated[str | None, Argument(metavar="TASK", help="The task that the plan is for")] = None,
    origin: Annotated[
        str | None, Option("--from", metavar="ID", help="Take the draft of this execution; go on if it was cut off")
    ] = None,
    role: RoleName = None,
    runtime: RuntimeName = None,
    model: ModelName = None,
    budget: DraftBudget = None,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Have an agent draft a plan for a task and print it; nothing of it runs."""
    if (task is None) == (origin is None):
        raise UsageError("name one thing: a TASK, or an execution that drafts one with --from ID")

    async def work(engine: Engine) -> int:
        from windlass.cli.draft import draft_of, draft_plan, print_draft
        from windlass.cli.view import Progress
        from windlass.engine.run_request import RunRequest
        from windlass.plan.strategies import Strategy

        if origin is not None:
            drafted = await draft_of(engine, origin, progress=Progress.AUTO, yes=yes)
        else:
            request = RunRequest(
                task=task, strategy=Strategy.PLAN, role=role, runtime=runtime, model=model, budget=budget
            )
            drafted = await draft_plan(engine, request.start(engine), progress=Progress.AUTO, yes=yes)
        return drafted if isinstance(drafted, int) else await print_draft(engine, drafted, as_json=as_json)

    raise CommandEnd(with_engine(work, home, yes=yes, make=True))


@plan_app.add
def redraft(
    execution: ExecutionId,
    wish: Annotated[str, Argument(metavar="TEXT", help="Your word about the rest")] = "",
    role: RoleName = None,
    runtime: RuntimeName = None,
    model: ModelName = None,
    budget: DraftBudget = None,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Have an agent draft the rest of a stopped execution anew, keeping the completed steps; nothing of it runs."""

    async def work(engine: Engine) -> int:
        from windlass.cli.draft import redraft_plan
        from windlass.cli.view import Progress
        from windlass.engine.run_request import RunRequest

        request = RunRequest(role=role, runtime=runtime, model=model, budget=budget)
        return await redraft_plan(engine, execution, request, wish, progress=Progress.AUTO, yes=yes, as_json=as_json)

    raise CommandEnd(with_engine(work, home, yes=yes))
