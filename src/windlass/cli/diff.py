"""`diff`: the files that agents changed (K5); `workspaces`: the folders of their own that they work in (K4)."""

from __future__ import annotations

from typing import Annotated, Any

from windlass.cli.command import Group, Option
from windlass.cli.names import ExecutionId, OptionalExecutionId, OptionalStepName
from windlass.cli.session import AsJson, CommandEnd, Home, out, out_lines, print_json, say, who, with_engine
from windlass.cli.text import plural
from windlass.engine.engine import Engine
from windlass.visible import visible

__all__ = ["merge_text", "register"]


def register(app: Group) -> None:
    app.add(diff)
    app.add(workspaces)


def diff(
    execution: ExecutionId,
    step: OptionalStepName = None,
    stat: Annotated[bool, Option("--stat", help="List the files, without their contents")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Show the files that agents changed."""

    async def work(engine: Engine) -> int:
        head = await engine.find(execution)
        found = await engine.diff(head.id, step or "")
        if as_json:
            print_json({"id": head.id, "changes": [_without_patches(one) if stat else one for one in found]})
            return 0
        for one in found:
            _show(one, stat)
        return 0

    raise CommandEnd(with_engine(work, home))


def workspaces(
    execution: OptionalExecutionId = None,
    clean: Annotated[bool, Option("--clean", help="Remove those without work that would be lost")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """List the folders of agents with the state of their work, or clean up."""

    async def work(engine: Engine) -> int:
        found = await engine.workspaces(execution or "", clean=clean, by=who())
        if as_json:
            print_json({"workspaces": found})
            return 0
        for one in found:
            removed = " (removed)" if one.get("removed") else ""
            out(f"{one['execution']}  {one['step']}  {one['work']}{removed}")
            out(f"  {one['path']}{'  ' + one['branch'] if one['branch'] else ''}")
            if (merge := one["merge"]) is not None and merge["state"] != "merged":
                out(f"  {merge_text(merge)}")
        if not found:
            say("No folders of agents.")
        return 0

    raise CommandEnd(with_engine(work, home))


def merge_text(merge: dict[str, str]) -> str:
    """The state of an agent's work at its merge: `land: not merged: its step failed`."""
    became = "not merged" if merge["state"] == "out" else merge["state"]
    return f"{merge['step']}: {became}{': ' + merge['reason'] if merge['reason'] else ''}"


def _without_patches(one: dict[str, Any]) -> dict[str, Any]:
    files = [{name: value for name, value in file.items() if name != "patch"} for file in one["files"]]
    return {**one, "files": files}


def _show(one: dict[str, Any], stat: bool) -> None:
    files = one["files"]
    so_far = "" if one["ended"] else " so far"
    out(f"{one['step']}: {plural(len(files), 'file')} changed{so_far}")
    if one["note"]:
        out(f"  {one['note']}")
    for file in files:
        counts = "binary" if file["added"] is None else f"+{file['added']} -{file['removed']}"
        out(f"  {file['change']:<7}  {file['path']}  {counts}")
    if not stat:
        for file in files:
            out_lines(visible(file["patch"]).removesuffix("\n"))
