"""`tools`: lists and describes tools; saves, runs and deletes composed ones (G3)."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from windlass.cli.begin import begin
from windlass.cli.command import Argument, Group, Option
from windlass.cli.run import ProgressOption, see_through
from windlass.cli.session import AsJson, CommandEnd, Home, Yes, attended, print_json, say, suggest, with_engine
from windlass.cli.text import shown
from windlass.cli.view import Progress, view_for
from windlass.engine.engine import Engine
from windlass.errors import NotFound, UsageError, WindlassError
from windlass.visible import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["register"]

tools_app = Group("tools", help="List, check, try and save tools.")
EVERY = 1_000
"""Tools listed at once."""


def register(app: Group) -> None:
    app.add_command(tools_app)


def _names(_context: click.Context, begun: str) -> list[CompletionItem]:
    """For completion in a shell, where nothing may be said."""
    from click.shell_completion import CompletionItem

    async def work(engine: Engine) -> list[CompletionItem]:
        return [CompletionItem(name) for name in engine.attempt_runner.tools.names() if name.startswith(begun)]

    try:
        return with_engine(work)
    except WindlassError:
        return []


Name = Annotated[str, Argument(metavar="NAME", help="The tool", complete=_names)]
Everywhere = Annotated[bool, Option("--global", help="For all your projects, in your user folder")]


@tools_app.main_function
def tools(context: click.Context, as_json: AsJson = False, home: Home = None) -> None:
    """The tools that there are here. What is wrong with files of composed tools is told on stderr."""
    if context.invoked_subcommand is not None:
        context.obj = home
        return

    async def work(engine: Engine) -> int:
        from windlass.assembly.tool_catalog import every_tool, tool_data
        from windlass.cli.tool_text import tool_table
        from windlass.engine.gates.view import manner

        gates = engine.attempt_runner.gates
        told = [tool_data(engine, tool) | manner(gates, tool) for tool in every_tool(engine)]
        if as_json:
            print_json(told)
        else:
            sys.stdout.write(tool_table(told))
        shelf = engine.shelf.problems() if engine.shelf is not None else []
        bench = engine.built_in.problems() if engine.built_in is not None else []
        for problem in (*shelf, *bench):
            say(f"warning: {problem}")
        return 0

    raise CommandEnd(with_engine(work, home))


@tools_app.add
def check(context: click.Context, as_json: AsJson = False, home: Home = None) -> None:
    """Check the health of tools and MCP servers, and list open breakers; exit code 1 if one is unhealthy."""

    async def work(engine: Engine) -> int:
        from windlass.cli.tool_text import checked, told_of

        found = await checked(engine)
        if as_json:
            print_json(found)
        else:
            sys.stdout.write(told_of(found))
        if not found["kept"]:
            suggest(f"no breaker state yet: the first run creates {engine.home}")
        return 0 if found["ok"] else 1

    raise CommandEnd(with_engine(work, home or context.obj))


@tools_app.add
def show(context: click.Context, name: Name, as_json: AsJson = False, home: Home = None) -> None:
    """One tool: what it takes and returns, how a program calls it; of a composed one also its source."""

    async def work(engine: Engine) -> int:
        from windlass.assembly.tool_catalog import whole_data
        from windlass.cli.tool_text import tool_page
        from windlass.engine.gates.view import manner
        from windlass.engine.single import tool_named

        tool = tool_named(engine, name)
        told = whole_data(engine, tool) | manner(engine.attempt_runner.gates, tool)
        if as_json:
            print_json(told)
        else:
            sys.stdout.write(tool_page(told))
        return 0

    raise CommandEnd(with_engine(work, home or context.obj))


@tools_app.add
def types(
    context: click.Context,
    query: Annotated[str, Argument(metavar="QUERY", help="Words of its description or name")] = "",
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """TypeScript declarations of the tools that a program can call: of all, or of those that fit."""

    async def work(engine: Engine) -> int:
        from windlass.assembly.tool_catalog import fitting
        from windlass.engine.code.typings import declarations

        found = fitting(engine, query, EVERY)
        if not found:
            raise NotFound(f"no tool matches {query!r}", advice=("list all: windlass tools",))
        if as_json:
            print_json({"tools": [tool.name for tool in found], "typescript": declarations(found)})
        else:
            sys.stdout.write(declarations(found))
        return 0

    raise CommandEnd(with_engine(work, home or context.obj))


@tools_app.add
def save(
    context: click.Context,
    name: Annotated[str, Argument(metavar="NAME", help="Such as count_words or reports.weekly")],
    program: Annotated[Path, Argument(metavar="PROGRAM", help="JavaScript: the body of an async function")],
    schema: Annotated[
        Path | None, Option("--schema", metavar="FILE", help="JSON Schema of its arguments; - is stdin")
    ] = None,
    description: Annotated[str, Option("--description", metavar="TEXT", help="What it does")] = "",
    grants: Annotated[
        list[str] | None,
        Option("--grants", metavar="TOOLS", help="Tools that it may call, comma-separated: files.*"),
    ] = None,
    returns: Annotated[Path | None, Option("--returns", metavar="FILE", help="JSON Schema of its result")] = None,
    everywhere: Everywhere = False,
    replace: Annotated[bool, Option("--replace", help="Replace a tool of the same name")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Keep a program as a tool, for steps, agents and other programs. Its syntax is checked first."""
    from windlass.cli.tool_save import keep, listed, read_object, read_text
    from windlass.ports import ComposedTool
    from windlass.tools.composed.record import check_name

    check_name(name)
    if [str(path) for path in (program, schema, returns)].count("-") > 1:
        raise UsageError("only one of them can be read from stdin")
    tool = ComposedTool(
        name,
        read_text(program, "program"),
        read_object(read_text(schema, "schema"), str(schema)) if schema is not None else {"type": "object"},
        description,
        listed(grants),
        read_object(read_text(returns, "schema"), str(returns)) if returns is not None else None,
        everywhere,
    )

    async def work(engine: Engine) -> int:
        told = await keep(engine, tool, program, replace=replace, any_arguments=schema is None)
        if as_json:
            print_json(told)
        for remark in told["warnings"]:
            suggest(f"warning: {remark}")
        suggest(f"saved in {told['file']}; try it: windlass tools run {name}")
        return 0

    raise CommandEnd(with_engine(work, home or context.obj))


@tools_app.add
def run(
    context: click.Context,
    name: Name,
    given: Annotated[
        str | None,
        Option("--with", metavar="JSON", help="Its arguments: JSON, or @FILE with it, or @- for stdin"),
    ] = None,
    workdir: Annotated[Path | None, Option("--workdir", "-C", metavar="DIR", help="Working directory")] = None,
    progress: ProgressOption = Progress.AUTO,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Use a tool once, as an execution of one step: durable, asked about like a step, and on record."""
    from windlass.cli.tool_save import arguments_of

    arguments = arguments_of(given)

    async def work(engine: Engine) -> int:
        from windlass.engine.single import plan_of_tool

        plan = plan_of_tool(engine, name, arguments)
        started = await begin(engine, engine.start(plan, workdir=workdir, hold=yes or attended()))
        view = view_for(progress)
        if as_json:
            return await see_through(engine, started, view, yes=yes, as_json=True)
        with redirect_stdout(io.StringIO()):  # it names the step before each result, and here there is only one
            code = await see_through(engine, started, view, yes=yes, as_json=False)
        (step,) = (await engine.state(started.id)).top_level()
        if code == 0 and step.output is not None:
            sys.stdout.write(shown(step.output).rstrip("\n") + "\n")
        return code

    raise CommandEnd(with_engine(work, home or context.obj, yes=yes, make=True))


tools_app.add(run, "try", help="The same as `run`.")


@tools_app.add
def delete(
    context: click.Context,
    name: Name,
    everywhere: Everywhere = False,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Delete a composed tool, with the count of its uses."""

    async def work(engine: Engine) -> int:
        assert engine.shelf is not None
        _look_for(engine, name, everywhere)
        if not yes:
            if not attended():
                raise UsageError(
                    "there is no terminal to ask for confirmation", advice=(f"windlass tools delete {name} --yes",)
                )
            if not click.confirm(f"Delete the composed tool {one_line(name)}?", err=True):
                say("it stays")
                return 1
        engine.shelf.delete(name, everywhere=everywhere)
        if as_json:
            print_json({"deleted": name})
        say(f"deleted {name}")
        return 0

    raise CommandEnd(with_engine(work, home or context.obj))


def _look_for(engine: Engine, name: str, everywhere: bool) -> None:
    """Raise, before a question is asked, for a tool that cannot be deleted or is in the other place."""
    from windlass.assembly.tool_catalog import kind_of

    tool = engine.attempt_runner.tools.get(name)
    if tool is not None and kind_of(engine, tool) != "composed":
        raise UsageError(f"{name} is not a composed tool: it cannot be deleted")
    if not everywhere and tool is not None and tool.composed is not None and tool.composed.everywhere:
        raise UsageError(
            f"{name} is among your own tools, for all your projects",
            advice=(f"delete it for all of them: windlass tools delete {name} --global",),
        )
