"""The tool named `code`: a program in the sandbox, as a step's work and in an agent's hands (G1, G2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from windlass.core.decide import Policy
from windlass.core.scope import scope_of
from windlass.engine.code.caller import ProgramOrigin, StepCaller
from windlass.engine.code.grounds import program_basis
from windlass.engine.code.running import ProgramDeps, run_program
from windlass.errors import Category, PlanInvalid, ToolError
from windlass.plan.model import CODE, Effect, Plan, ToolCheck
from windlass.plan.program import granted_tools, source_problem
from windlass.plan.quantities import ProgramBounds, misfit
from windlass.plan.report import Report
from windlass.plan.yamlread import FilePosition, Path
from windlass.ports import Call, Contact, ProgramError, ProgramLimits, Sandbox, Tool, Toolbox

__all__ = ["WHAT_CODE_IS", "CodeTool", "limits_of", "refuse_unreadable"]


TYPES_AT_MOST = 12_000
"""Characters of declarations in an agent's prompt; with more, it is advised to search."""
TYPED_AT_MOST = 32
"""Tools whose declarations may be so short. More are not loaded to find out."""

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "source": {"type": "string", "description": "The body of an async JavaScript function."},
        "args": {"description": "Values that the program reads as `args`."},
        "grants": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The only tools that it may call; names and patterns like files.*",
        },
        "limits": {"type": "object", "description": "memory, cpu, wall, calls, output, log"},
    },
    "required": ["source"],
    "additionalProperties": False,
}
WHAT_CODE_IS = """\
Run one JavaScript program that calls many tools, instead of making many calls yourself. `source` is the body of an \
async function: `await tools.NAME({…})`, combine calls with Promise.all, filter and count in code, and `return` only \
what you need to see. There are console.log, JSON, Date, Math and the rest of the language; no files, no network, no \
timers, no import: only tools reach the outside. A failed call throws a ToolError with `category`."""


class CodeTool(Tool):
    """The tool that code steps use."""

    name = CODE
    description = "Run a JavaScript program in the sandbox, which calls tools."
    schema = _SCHEMA
    is_program = True

    def __init__(self, desk: ProgramDeps, policy: Policy) -> None:
        self.desk, self.policy = desk, policy

    def briefed(self, names: Sequence[str], tools: Toolbox) -> str:
        """The description for an agent that has these tools."""
        if len(names) <= TYPED_AT_MOST:
            from windlass.engine.code.typings import declarations  # only agents are told of types

            types = declarations(tool for name in names if (tool := tools.get(name)) is not None)
            if len(types) <= TYPES_AT_MOST:
                return f"{WHAT_CODE_IS}\n{types}"
        return f"{WHAT_CODE_IS}\nThere are many tools: find the ones you need, with their types, by code.search first."

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        """Its calls are on record each by itself: made again, it repeats none that is done."""
        return Effect.REPEATABLE

    def basis(self, arguments: Mapping[str, Any], workdir: FilePath, tools: Toolbox) -> dict[str, str]:
        """Its text and grants are arguments; beside them there are the composed tools that it may call."""
        grants = arguments.get("grants")
        granted = granted_tools(grants if isinstance(grants, list) else None, tools.names())
        return program_basis(map(tools.get, granted), tools)

    def circuit(self, arguments: Mapping[str, Any]) -> None:
        """A program that fails says nothing about the next one."""

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        # Only a step has a `workdir`: agents are not told of it.
        given = {name: value for name, value in arguments.items() if name != "workdir"}
        if not _surely_fits(given) and (problems := super().validate(given)):
            return problems
        wrong = source_problem(arguments["source"])
        unfit = misfit(ProgramBounds, arguments.get("limits") or {})
        return [*([f"`source` {wrong}"] if wrong else []), *([unfit] if unfit else [])]

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        contact = call.contact
        if contact is None:
            raise ToolError("a program runs only inside an execution", category=Category.LOGIC)
        ours = call.origin if isinstance(call.origin, ProgramOrigin) else None
        limits = limits_of(arguments.get("limits"))
        data: dict[str, Any] = {"args": arguments.get("args", {})}
        if ours is None:
            data |= _of_step(contact)
        else:
            limits = _no_more_than(limits, ProgramLimits())  # an agent's wish is not its user's word
        grants = arguments.get("grants")
        return await run_program(
            self.desk,
            call,
            ours or ProgramOrigin(StepCaller(contact, self.policy, call.workdir)),
            arguments["source"],
            data,
            grants=None if grants is None else tuple(grants),
            limits=limits,
            folder=arguments.get("workdir", "") if ours is None else "",
        )


def _surely_fits(arguments: Mapping[str, Any]) -> bool:
    """True for plain arguments that fit the schema: most do, and its library takes a tenth of a second to import."""
    grants = arguments.get("grants", [])
    return (
        arguments.keys() <= {"source", "grants", "limits"}
        and type(arguments.get("source")) is str
        and type(grants) is list
        and all(type(name) is str for name in grants)
        and type(arguments.get("limits", {})) is dict
    )


def limits_of(told: Mapping[str, Any] | None) -> ProgramLimits:
    """The limits that a step names, and the usual ones for the rest."""
    return ProgramLimits(**ProgramBounds.model_validate(told or {}).model_dump(exclude_none=True))


def _no_more_than(wanted: ProgramLimits, most: ProgramLimits) -> ProgramLimits:
    return ProgramLimits(
        min(wanted.memory, most.memory),
        min(wanted.cpu, most.cpu),
        min(wanted.wall, most.wall),
        min(wanted.calls, most.calls),
        min(wanted.output, most.output),
        min(wanted.log, most.log),
    )


def _of_step(contact: Contact) -> dict[str, Any]:
    """Data of the execution that a step's program sees: the same as its templates."""
    state, step = contact.state, contact.step
    scope = scope_of(state, step)
    needs = state.prepared.graph.needs[step.spec.id]
    seen = {"inputs": scope["inputs"], "steps": {name: scope["steps"][name] for name in needs}}
    return seen | {name: scope[name] for name in ("item", "index") if name in scope}


MOST = 500
"""Programs of one plan that are looked at; a mistake in a later one shows when its turn comes."""
_PLACE = re.compile(r"program\.js:(\d+)(?::(\d+))?")


async def refuse_unreadable(sandbox: Sandbox, plan: Plan, report: Report) -> None:
    """Raise PlanInvalid with every program of a step or a check that is none."""
    sources: dict[str, Path] = {}
    for index, step in enumerate(plan.steps):
        if step.code is not None:
            sources.setdefault(step.code, ("steps", index, "code"))
        for key, checks in ((("check",), step.check), (("pick", "check"), step.pick_checks)):
            for position, check in enumerate(checks):
                if isinstance(check, ToolCheck) and check.code is not None:
                    sources.setdefault(check.code, ("steps", index, *key, position, "code"))
    for source, where in list(sources.items())[:MOST]:
        try:
            said = await sandbox.check(source)
        except ProgramError:
            return  # there is no sandbox here: the steps will say so, with what to do
        if said is not None:
            place = _PLACE.search(said)
            at = f" in line {place[1]} of the program" if place else ""
            message = f"step {plan.steps[int(where[1])].id}: {said.splitlines()[0]}{at}"
            inside = FilePosition(int(place[1]), int(place[2] or 1)) if place else None
            report.problem(message, where, "`code` is the body of an async JavaScript function", inside)
    if problems := report.findings(None).problems:
        raise PlanInvalid(problems)
