"""A plan made ready to run: its graph and its compiled templates, shared by all its executions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.plan.graph import Graph
from windlass.plan.model import Approve, Effect, Plan, Step, ToolCheck
from windlass.plan.template import Compiled, TemplateProblem, compile_expression, compile_value

__all__ = ["NoFolder", "Prepared", "PreparedStep", "prepare"]


class NoFolder(TemplateProblem):
    """A `workdir` whose template gives something else than the path of a folder."""


class PreparedStep(msgspec.Struct, eq=False):
    """A step with everything that each attempt of it needs: reading it from the model costs ten times as much."""

    spec: Step
    tool: str
    """The name of the tool that it uses."""
    is_agent: bool
    branches: bool
    """It has a `when` or a `foreach`."""
    timeout: float | None
    effect: Effect | None
    approve: Approve
    workdir: str | None
    _compiled: Compiled | None = None

    @classmethod
    def of(cls, spec: Step) -> PreparedStep:
        branches = spec.when is not None or spec.foreach is not None
        timeout, effect, approve = spec.timeout, spec.effect, spec.approve
        return cls(spec, spec.tool_name, spec.is_agent, branches, timeout, effect, approve, spec.workdir)

    def __reduce__(self) -> tuple[Any, ...]:
        """To be pickled as part of a state: without the compiled arguments, which are functions."""
        return PreparedStep, msgspec.structs.astuple(self)[:-1]

    @property
    def arguments(self) -> Compiled:
        """Its arguments, ready to have their templates filled in. Constant only if its `workdir` is, too."""
        if self._compiled is None:
            found = _compiled(self.spec)
            fixed = found.constant and (self.workdir is None or compile_value(self.workdir).constant)
            self._compiled = Compiled(found.render, fixed)
        return self._compiled

    def in_workdir(self, arguments: Mapping[str, Any], scope: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments with their paths in its `workdir`. Commands, agents and programs have it as an argument."""
        from windlass.plan.file_arguments import in_folder  # few plans need it

        folder = compile_value(self.workdir).render(scope)
        if not isinstance(folder, str) or not folder.strip():
            from windlass.plan.schema import kind_of

            raise NoFolder(f"`workdir` must be the path of a folder, but {self.workdir!r} gives {kind_of(folder)}")
        return arguments if self.tool == "shell" else in_folder(self.tool, arguments, folder)


_NOES = frozenset({"false", "no", "off", "none", "null", "0"})
"""Texts in a `when` by which false was meant."""


class Prepared:
    """A plan with what `decide` needs of it at hand."""

    __slots__ = ("graph", "parallel", "plan", "services", "steps", "timeout", "tools")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.graph = Graph.of(plan)
        self.steps = {step.id: PreparedStep.of(step) for step in plan.steps}
        self.tools = frozenset(step.tool for step in self.steps.values())
        """Names of all tools that its steps use."""
        self.services = frozenset(step.id for step in plan.steps if step.service is not None)
        """Steps whose commands stay for the steps that need them."""
        self.parallel, self.timeout = plan.limits.parallel, plan.limits.timeout

    def condition(self, step: Step, scope: Mapping[str, Any]) -> bool:
        if not isinstance(step.when, str):
            return step.when is not False
        found = compile_expression(step.when)(scope)
        if isinstance(found, str) and found.strip().lower() in _NOES:
            raise TemplateProblem(
                f"`when` needs true or false, but {step.when!r} gives the text {found!r}, and a text is true; "
                f"compare it: {step.when.strip().removeprefix('{{').removesuffix('}}').strip()} == 'true'"
            )
        return bool(found)

    def items(self, step: Step, scope: Mapping[str, Any]) -> list[Any]:
        """Return the items that a foreach step runs over."""
        if isinstance(step.foreach, str):
            found = compile_expression(step.foreach)(scope)
        else:
            found = compile_value(step.foreach).render(scope)
        if not isinstance(found, list | tuple):
            from windlass.plan.schema import kind_of  # no execution needs it that goes well

            advice = "; if a command prints the list as JSON, write: steps.ID.output.stdout | from_json"
            raise TemplateProblem(f"foreach needs a list, but {step.foreach!r} gives {kind_of(found)}{advice}")
        return list(found)

    def question(self, step: Step, scope: Mapping[str, Any]) -> str:
        """The plan's own words for the question before the step."""
        found = compile_value(step.question).render(scope)
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _compiled(step: Step) -> Compiled:
    if step.output is not None or any(isinstance(one, ToolCheck) and one.code for one in step.all_checks):
        return _beside_literals(step.arguments)
    if not step.is_code:
        return compile_value(step.arguments)
    told = step.arguments
    filled = compile_value({name: told[name] for name in ("args", "workdir") if name in told})
    if filled.constant:  # the source is no template, whatever braces it has
        return Compiled(lambda _scope: told, True)
    return Compiled(lambda scope: {**told, **filled.render(scope)}, False)


def _beside_literals(arguments: Mapping[str, Any]) -> Compiled:
    """The arguments of an agent or a merge with what is no template, whatever braces it has: a schema, and programs."""
    rest = {name: value for name, value in arguments.items() if name != "output"}
    fixed = {"output": arguments["output"]} if "output" in arguments else {}
    sources = {key: [use.get("source") for use in rest[key]] for key in ("check", "pick") if key in rest}
    for key in sources:
        rest[key] = [{name: value for name, value in use.items() if name != "source"} for use in rest[key]]
    filled = compile_value(rest)

    def render(scope: Mapping[str, Any]) -> dict[str, Any]:
        found = {**filled.render(scope), **fixed}
        for key, texts in sources.items():
            uses = zip(found[key], texts, strict=True)
            found[key] = [use if text is None else {**use, "source": text} for use, text in uses]
        return found

    return Compiled(render, filled.constant)


_KEPT = 16
_prepared: OrderedDict[str, Prepared] = OrderedDict()


def prepare(plan: Plan) -> Prepared:
    """Prepare a plan once for all the executions of it that this process sees.

    A plan that was built in Python is copied: what the program does with its lists later changes no execution.
    """
    found = _prepared.get(plan.digest)
    if found is None:
        found = _prepared[plan.digest] = Prepared(plan if plan.from_text else Plan.decode(plan.encoded))
        if len(_prepared) > _KEPT:
            _prepared.popitem(last=False)
    else:
        _prepared.move_to_end(plan.digest)
    return found
