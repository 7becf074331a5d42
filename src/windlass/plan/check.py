"""Find every problem of a plan in one pass, worded in the plan's own terms.

- `check_data` checks the data of a plan file: first its shape (see `schema.explain`), then its meaning.
- `check_steps` checks a `Plan` that Python code built, whose shape is right already.
- The meaning: ids, needs, cycles, names in templates and programs, and with a `ToolCatalog` the tools.

One root cause gives one problem: a step with a bad field is checked further without that field, and
a step whose id cannot be read silences complaints about unknown ids. Nothing is rendered or run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Protocol

from windlass.plan.graph import find_cycle, templates_of
from windlass.plan.marking import joined_value
from windlass.plan.model import AGENT, CODE, DEFAULT_ROLE, MAX_STEPS, STEP_TOOLS, Plan, Step
from windlass.plan.program import granted_tools, is_pattern, program_reads
from windlass.plan.quoting import unsafe_value
from windlass.plan.report import STAND_IN, Findings, Locate, Report, readable_id, salvaged
from windlass.plan.schema import explain, kind_of
from windlass.plan.template import (
    Reference,
    TemplateProblem,
    never_list,
    paths_in,
    plain_path,
    reference_of,
    syntax_problem,
)
from windlass.plan.yamlread import FilePosition, Path
from windlass.values import ValidationError

__all__ = ["Findings", "Locate", "ToolCatalog", "check_data", "check_steps"]

_STEP_FIELDS = ("output", "status", "error", "errors", "id", "branch", "workdir")
_EXECUTION_FIELDS = ("id", "workdir", "plan")
_ROOTS = ("steps", "inputs", "item", "index", "execution")
_OF_JINJA = ("range", "loop", "caller", "varargs", "kwargs", "self")
"""Names that Jinja2 itself defines: a function, and the variables of its blocks."""
_DICT_METHODS = ("get", "items", "keys", "values")
_HYPHENATED = re.compile(r"\b(steps|inputs)\.([A-Za-z_]\w*(?:-\w+)+)")
_MOST_CYCLES = 20


class ToolCatalog(Protocol):
    """The tools, as far as the checks need them."""

    def names(self) -> list[str]: ...

    def knows(self, name: str) -> bool:
        """Return True if there is such a tool, listed or not."""
        ...

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Return every problem of a known tool's arguments."""
        ...

    def misnamed(self, name: str, given: Iterable[str]) -> list[str]:
        """Return the problems of the arguments' names alone, for arguments whose values are still templates."""
        ...


def check_data(
    data: Any, *, file: str = "", locate: Locate | None = None, tools: ToolCatalog | None = None
) -> Findings:
    """Check the data of a plan file."""
    report = Report(file, locate)
    if not isinstance(data, dict):
        report.problem(f"a plan is a mapping with `steps`, but this is {kind_of(data)}", ())
        return report.findings(None)
    steps = data.get("steps")
    if isinstance(steps, list) and len(steps) > MAX_STEPS:
        message = f"a plan may have at most {MAX_STEPS:,} steps, and this one has {len(steps):,}"
        report.problem(message, ("steps",))
        return report.findings(None)
    _check_empty_grants(steps, report)
    try:
        plan = Plan.model_validate(data)
    except ValidationError as error:
        for complaint in explain(data, error):
            report.problem(complaint.message, complaint.path, complaint.hint)
        _Meaning.of_flawed(data, error, report, tools).check()
        _check_triggers(data.get("triggers"), data.get("inputs"), report)
        return report.findings(None)
    _Meaning.of_plan(plan, report, tools).check()
    _check_triggers(plan.triggers, plan.inputs, report)
    return report.findings(plan)


def check_steps(plan: Plan, *, tools: ToolCatalog | None = None) -> Findings:
    """Check the meaning of a plan that was built in Python."""
    report = Report("", None)
    _Meaning.of_plan(plan, report, tools).check()
    _check_triggers(plan.triggers, plan.inputs, report)
    return report.findings(plan)


def _check_triggers(found: Any, inputs: Any, report: Report) -> None:
    if found:
        from windlass.plan.triggers import check_triggers  # most plans have none

        check_triggers(found, inputs if isinstance(inputs, dict) else {}, report)


def _check_empty_grants(steps: Any, report: Report) -> None:
    """`grants:` with nothing behind it looks like no tools, and would be all of them."""
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        if isinstance(step, dict) and step.get("grants", ...) is None and ("code" in step or "tool" in step):
            message = f"step {readable_id(step) or index + 1}: `grants`: expected a list, found nothing"
            report.problem(message, ("steps", index, "grants"), "write [] for no tools; leave it out for all of them")


class _Meaning:
    """Checks steps against each other, against the inputs and against the tools."""

    def __init__(
        self,
        steps: Sequence[Step | None],
        ids: Sequence[str | None],
        inputs: Mapping[str, Any] | None,
        report: Report,
        tools: ToolCatalog | None,
        runtime: Any = None,
        flawed: Set[int] = frozenset(),
    ) -> None:
        self._steps = steps
        """The steps; None where there is nothing to check."""
        self._ids = ids
        """Their ids; None where one cannot be read."""
        self._known = frozenset(i for i in ids if i is not None)
        self._all_ids_known = None not in ids
        self._inputs = inputs
        self._report = report
        self._tools = tools
        self._runtime = runtime
        """The plan's runtime, as it was written."""
        self._flawed = flawed
        """Indexes of steps that are checked without their invalid fields."""
        self._waits: dict[str, Sequence[str]] = {}
        """The steps that each step waits for."""

    @classmethod
    def of_plan(cls, plan: Plan, report: Report, tools: ToolCatalog | None) -> _Meaning:
        return cls(plan.steps, [s.id for s in plan.steps], plan.inputs, report, tools, plan.runtime)

    @classmethod
    def of_flawed(
        cls, data: dict[str, Any], error: ValidationError, report: Report, tools: ToolCatalog | None
    ) -> _Meaning:
        """Make the checks for the valid rest of a plan that failed validation."""
        flaws: dict[int, set[str]] = {}
        for entry in error.errors(include_url=False, include_context=False, include_input=False):
            match entry["loc"]:
                case "steps", int(index), str(field), *_:
                    flaws.setdefault(index, set()).add(field)
                case "steps", int(index):
                    flaws.setdefault(index, set())
        steps, inputs = data.get("steps"), data.get("inputs", {})
        steps = steps if isinstance(steps, list) else []
        return cls(
            [salvaged(step, flaws.get(index, set())) for index, step in enumerate(steps)],
            [readable_id(step) for step in steps],
            inputs if isinstance(inputs, dict) else None,
            report,
            tools,
            data.get("runtime"),
            flaws.keys(),
        )

    def check(self) -> None:
        self._check_ids()
        for index, step in enumerate(self._steps):
            if step is not None:
                looked_at = self._check_templates(index, step) | self._check_program(index, step)
                self._check_needs(index, step, looked_at)
                self._check_tool(index, step)
                self._check_grants(index, step)
                self._check_quoting(index, step)
                self._check_marks(index, step)
                self._check_service(index, step)
        self._check_handlers()
        self._check_runtime()
        self._check_cycles()

    def _check_handlers(self) -> None:
        """Warn of steps that wait for a failure after which nothing runs."""
        if any(step is not None and isinstance(step.when, str) for step in self._steps):
            from windlass.plan.statuses import failure_handlers  # most plans have no conditions

            for one in failure_handlers(self._steps, self._waits):
                message = f"{self._subject(one.place)}: {one.message}"
                self._report.warning(message, ("steps", one.place, "when"), one.hint)

    def _check_service(self, index: int, step: Step) -> None:
        if step.service is not None and not any(one and step.id in one.needs for one in self._steps):
            hint = f"add `needs: [{step.id}]` to each step that uses it"
            self._report.warning(f"step {step.id}: a service that no step needs ends at once", ("steps", index), hint)

    def _subject(self, index: int) -> str:
        return f"step {self._ids[index] or index + 1}"

    def _problem(
        self, index: int, message: str, where: Path, hint: str = "", inside: FilePosition | None = None
    ) -> None:
        self._report.problem(f"{self._subject(index)}: {message}", ("steps", index, *where), hint, inside)

    def _check_ids(self) -> None:
        first: dict[str, int] = {}
        for index, name in enumerate(self._ids):
            if name is not None and first.setdefault(name, index) != index:
                line = self._report.line(("steps", first[name], "id"))
                other = f"on line {line}" if line else f"at step {first[name] + 1} of the plan"
                self._problem(index, f"this id is already used {other}", ("id",))

    def _check_needs(self, index: int, step: Step, looked_at: Set[str]) -> None:
        waits = dict.fromkeys(sorted(looked_at))
        given = step.handoff if isinstance(step.handoff, tuple) else ()
        named = [("needs", position, need) for position, need in enumerate(step.needs)]
        named += [("handoff", position, need) for position, need in enumerate(given)]
        named += [("merge", 0, step.merge)] if step.merge is not None else []
        for field, position, need in named:
            where: Path = (field, position)
            if need == self._ids[index]:
                self._problem(index, "it depends on itself", where)
            elif need in self._known:
                waits[need] = None
            elif self._all_ids_known:
                hint = self._report.did_you_mean(need, self._known)
                self._problem(index, f"it needs `{need}`, which is not a step of this plan", where, hint)
        if (name := self._ids[index]) is not None:
            self._waits[name] = tuple(waits)

    def _check_templates(self, index: int, step: Step) -> Set[str]:
        """Check every template of a step. Returns the other steps that they refer to."""
        others: set[str] = set()
        for where, text, expression in templates_of(step):
            path = _parts(where)
            if wrong := syntax_problem(text, expression=expression):
                self._problem(index, f"`{where}` is not a valid template: {_short(wrong)}", path)
            try:
                paths = paths_in(text, expression=expression)
            except TemplateProblem:  # it was reported; one with an unknown filter can be read
                continue
            seen = {reference_of(each) for each in paths}
            if hint := self._minus_or_hyphen(text, seen):
                self._problem(index, f"`{where}` has a hyphen that is read as a minus", path, hint)
                continue
            for reference in sorted(seen, key=str):
                if wrong_name := self._wrong_name(reference, index, step, path[0]):
                    message, hint = wrong_name
                    self._problem(index, f"`{where}` {message}", path, hint)
                elif reference.root == "steps" and reference.name in self._known:
                    others.add(str(reference.name))
            for message, hint in (*self._wrong_outputs(paths), *_wrong_statuses(text, expression)):
                self._problem(index, f"`{where}` {message}", path, hint)
        for key in _template_keys(step.with_):
            message = f"{self._subject(index)}: `with` has the key `{_short(key)}`, which stays as it is"
            self._report.warning(message, ("steps", index, "with"), "only values are filled in")
        self._check_list(index, step)
        return others

    @cached_property
    def _forms(self) -> dict[str, Mapping[str, Any]]:
        """The schemas of the outputs that have a known form."""
        from windlass.plan.outputs import output_form  # only plans with templates and programs need it

        steps = [step for index, step in enumerate(self._steps) if step is not None and index not in self._flawed]
        return {step.id: form for step in steps if (form := output_form(step)) is not None}

    def _wrong_outputs(self, paths: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, str]]:
        """The problems of keys that the output of a step does not have, with hints."""
        if not (paths := [path for path in paths if path[2:3] == ("output",)]):
            return
        from windlass.plan.outputs import unknown_key  # as above

        for path in sorted(paths):
            match path:
                case "steps", name, "output", *keys if (form := self._forms.get(name)) is not None:
                    found = unknown_key(form, keys)
                    if found is None or found.key in _DICT_METHODS:
                        continue
                    before = ".".join(("steps", name, "output", *found.path, ""))
                    of_command = self._is_command(name)
                    but = "but the output of a command has only" if of_command else "but its schema has only"
                    hint = self._report.did_you_mean(found.key, found.known, before)
                    known = ", ".join(found.known) or "no keys"
                    yield f"refers to `{before}{found.key}`, {but} {known}", hint

    def _is_command(self, name: str) -> bool:
        """Return True if the output of a step is that of one command."""
        from windlass.plan.outputs import COMMAND_OUTPUT  # as above

        return self._forms.get(name) is COMMAND_OUTPUT

    def _check_list(self, index: int, step: Step) -> None:
        """Check that `foreach` does not run over what is no list: the output of a command, an input, or `3`."""
        if not isinstance(step.foreach, str):
            return
        match path := plain_path(step.foreach):
            case ["steps", name, "output", *keys] if self._is_command(name) and not [*self._wrong_outputs([(*path,)])]:
                shown = ".".join(("steps", name, "output", *keys))
                hint = f"if it prints JSON, write: steps.{name}.output.stdout | from_json"
                self._problem(index, f"`foreach` needs a list, and `{shown}` of a command is none", ("foreach",), hint)
            case ["inputs", name] if not isinstance((self._inputs or {}).get(name), list | tuple | None):
                message = f"`foreach` needs a list, and the input `{name}` is {kind_of((self._inputs or {})[name])}"
                self._problem(index, message, ("foreach",))
            case None if never_list(step.foreach):
                self._problem(index, f"`foreach` needs a list, and `{_short(step.foreach)}` is none", ("foreach",))

    def _check_program(self, index: int, step: Step) -> Set[str]:
        """Check the names that a program reads, each once. Returns the other steps among them."""
        others: set[str] = set()
        told: set[str] = set()
        for read in program_reads(step.code or ""):
            known = self._known if read.root == "steps" else self._inputs or frozenset()
            if read.root == "steps" and read.name in known and read.name != self._ids[index]:
                others.add(read.name)
            if not read.sure:
                continue
            path = (read.root, read.name, *read.fields)
            found = [*self._wrong_outputs([path])]
            if read.name not in known and read.name + read.rest in known:
                found = [("has a hyphen that is read as a minus", f'write {read.root}["{read.name}{read.rest}"]')]
            elif wrong_name := self._wrong_name(reference_of(path), index, step, "code"):
                found = [wrong_name]
            for message, hint in found:
                if message not in told:
                    place = FilePosition(read.line, read.column)
                    self._problem(index, f"`code` {message}", ("code",), hint, place)
                told.add(message)
        self._check_calls(index, step.code or "", step.grants, ("code",))
        return others

    def _check_calls(self, index: int, source: str, grants: Sequence[str] | None, where: Path) -> None:
        """Check the tools that a program calls."""
        if not source or self._tools is None or not self._tools.knows(CODE):
            return
        from windlass.plan.tool_calls import wrong_calls  # most plans have no programs

        for wrong in wrong_calls(source, grants, self._tools.knows, self._meant_tool):
            self._problem(index, f"`code` {wrong.message}", where, wrong.hint, wrong.place)

    def _meant_tool(self, name: str) -> str:
        return self._report.did_you_mean(name, self._tool_names, "tools.")

    def _minus_or_hyphen(self, text: str, seen: Set[Reference]) -> str:
        """Return a hint to quote a name with a hyphen, which Jinja2 reads as a subtraction."""
        for root, name in _HYPHENATED.findall(text):
            known = self._known if root == "steps" else self._inputs or frozenset()
            cut = name.partition("-")[0]
            if name in known and cut not in known and Reference(root, cut, None) in seen:
                return f'write {root}["{name}"]'
        return ""

    def _wrong_name(self, seen: Reference, index: int, step: Step, field: str | int) -> tuple[str, str] | None:
        """Return the problem of one reference in a template, with a hint; None if it is fine."""
        mean = self._report.did_you_mean
        match seen:
            case Reference("steps", str(name)) if name == self._ids[index]:
                return f"refers to its own step, `steps.{name}`", ""
            case Reference("steps", str(name)) if name not in self._known:
                if self._all_ids_known:
                    hint = mean(name, self._known, "steps.")
                    return f"refers to `steps.{name}`, which is not a step of this plan", hint
            case Reference("steps", str(name), str(part)) if part not in _STEP_FIELDS:
                hint = mean(part, _STEP_FIELDS, f"steps.{name}.")
                hint = hint or f"did you mean `steps.{name}.output.{part}`?"
                known = ", ".join(_STEP_FIELDS)
                return f"refers to `steps.{name}.{part}`, but a step has only {known}", hint
            case Reference("inputs", str(name)) if name not in _DICT_METHODS:
                if self._inputs is not None and name not in self._inputs:
                    hint = mean(name, self._inputs, "inputs.") or f"add it under `inputs`: {name}"
                    return f"refers to `inputs.{name}`, which is not an input of this plan", hint
            case Reference("item" | "index" as name):
                if step.foreach is None and index not in self._flawed:
                    return f"refers to `{name}`, which only a step with `foreach` has", ""
                if field in ("when", "foreach"):
                    return f"refers to `{name}`, but is evaluated before the items exist", ""
            case Reference("execution", str(name)) if name not in _EXECUTION_FIELDS:
                known = ", ".join(_EXECUTION_FIELDS)
                return f"refers to `execution.{name}`, but an execution has only {known}", ""
            case Reference("env"):
                hint = "add an input for it, or read it in the shell as $NAME"
                return "refers to `env`, but templates cannot read the environment", hint
            case Reference(root) if root not in _ROOTS and root not in _OF_JINJA:
                return f"refers to `{root}`, which does not exist", self._where_it_is(root)
        return None

    def _where_it_is(self, root: str) -> str:
        if root in self._known:
            return f"did you mean `steps.{root}.output`?"
        if root in (self._inputs or ()):
            return f"did you mean `inputs.{root}`?"
        return self._report.did_you_mean(root, _ROOTS) or f"known: {', '.join(_ROOTS)}"

    @cached_property
    def _tool_names(self) -> frozenset[str]:
        """Every tool there is: to list them all takes longer than to look for the few that a plan names."""
        return frozenset(self._tools.names()) if self._tools is not None else frozenset()

    def _check_tool(self, index: int, step: Step) -> None:
        if self._tools is None or step.tool == STAND_IN:
            return
        name = step.tool_name
        if step.is_agent:
            self._check_agent(index, step)
        elif name == CODE and step.is_code:
            self._check_code(index, step)
        elif step.merge is not None:
            self._check_merge(index, step)
        elif not self._tools.knows(name):
            hint = self._report.did_you_mean(name, self._tool_names)
            field = "run" if step.run is not None else "tool"
            self._problem(index, f"there is no tool `{name}`", (field,), hint)
        elif index not in self._flawed:
            field = "with" if step.with_ or step.run is None else "run"
            names_only = _holds_template(step)
            arguments = step.arguments
            found = self._tools.misnamed(name, arguments) if names_only else self._tools.validate(name, arguments)
            for message in found:
                self._problem(index, message, (field,))

    def _check_agent(self, index: int, step: Step) -> None:
        """Check the role, skills and runtime of an agent. Its prompt may be a template, so it is left out."""
        assert self._tools is not None
        if self._tools.knows(AGENT) and index not in self._flawed:
            told = {name: step.arguments[name] for name in _KNOWN_BEFORE if name in step.arguments}
            for name in [name for name in _LOOKED_UP if "{{" in str(told.get(name))]:
                field = "agent" if name == "role" else name
                self._problem(index, f"`{field}` takes no template: its names are looked up before the start", (field,))
                del told[name]
            for message in self._tools.validate(AGENT, {"prompt": "…", **told}):
                field = next((name for name in _KNOWN_BEFORE if f"`{name}`" in message), "role")
                if field == "role":  # a plan has it as `agent`
                    field, message = "agent", message.replace("`role`", "`agent`", 1)
                self._problem(index, message, (field,))
            for key, where in (("check", ("check",)), ("pick", ("pick", "check"))):
                for position, use in enumerate(step.arguments.get(key, ())):
                    self._check_use(index, (*where, position), use)
            if isinstance(step.output, dict):
                from windlass.schemas import unusable  # takes a while to import

                for message in unusable(step.output, of_arguments=False):
                    self._problem(index, f"its `output` is not a schema that can be used: {message}", ("output",))

    def _check_runtime(self) -> None:
        """Check the plan's runtime, if an agent runs on it."""
        used = any(step is not None and step.is_agent and step.runtime is None for step in self._steps)
        if self._tools is not None and used and isinstance(self._runtime, str) and self._tools.knows(AGENT):
            for message in self._tools.validate(AGENT, {"role": DEFAULT_ROLE, "runtime": self._runtime}):
                if "`runtime`" in message:
                    self._report.problem(message, ("runtime",))

    def _check_merge(self, index: int, step: Step) -> None:
        """Check that the step to merge works in worktrees, and the checks."""
        merged = next((other for other in self._steps if other is not None and other.id == step.merge), None)
        if merged is not None and (merged.workspace is None or merged.workspace.kind != "worktree"):
            self._problem(
                index, f"step `{step.merge}` has no `workspace: worktree`, so there is nothing to merge", ("merge",)
            )
        if step.only is not None and merged is not None and (merged.foreach is None or merged.pick is not None):
            self._problem(index, f"`only` chooses among items, and step `{step.merge}` has one branch", ("only",))
        for position, use in enumerate(step.arguments["check"]):
            self._check_use(index, ("check", position), use)

    def _check_use(self, index: int, where: Path, use: Mapping[str, Any]) -> None:
        """Check the tool of a check of an agent's work, and a command's quoting."""
        assert self._tools is not None
        name = use["tool"]
        if name == CODE and "source" in use:
            if not self._tools.knows(CODE):
                self._problem(index, _NO_SANDBOX, (*where, "code"))
            self._check_calls(index, use["source"], None, (*where, "code"))
        elif not self._tools.knows(name):
            hint = self._report.did_you_mean(name, self._tool_names)
            self._problem(index, f"its check uses `{_short(name)}`, which is not a tool", where, hint)
        elif name in STEP_TOOLS:
            self._problem(index, f"`{name}` cannot be a check: use a command or another tool", where)
        elif name == "shell" and (unsafe := unsafe_value(use["with"])) is not None:
            message = f"{self._subject(index)}: its check: {unsafe.message}"
            self._report.warning(message, ("steps", index, *where), unsafe.hint)
        else:
            for message in self._tools.misnamed(name, use["with"]):
                self._problem(index, f"its check: {message}", where)

    def _check_code(self, index: int, step: Step) -> None:
        """Check a program with its tool, without `args` where they hold templates."""
        assert self._tools is not None
        if not self._tools.knows(CODE):
            self._problem(index, _NO_SANDBOX, ("code",))
        elif index not in self._flawed:
            left_out = ("args",) if _holds_template(step) else ()
            told = {name: value for name, value in step.arguments.items() if name not in left_out}
            for message in self._tools.validate(CODE, told):
                self._problem(index, message, ("code",))

    def _check_grants(self, index: int, step: Step) -> None:
        """Check that the tools granted to a program exist."""
        if self._tools is None:
            return
        for position, grant in enumerate(step.grants or ()):
            path: Path = ("grants", position)
            if granted_tools((grant,), self._tool_names):
                continue
            if is_pattern(grant):
                message = f"{self._subject(index)}: no tool matches `{_short(grant)}`"
                self._report.warning(message, ("steps", index, *path), "see `windlass tools`")
            else:
                family = any(name.startswith(f"{grant}.") for name in self._tool_names)
                hint = f"did you mean `{grant}.*`?" if family else self._report.did_you_mean(grant, self._tool_names)
                self._problem(index, f"it grants `{_short(grant)}`, which is not a tool", path, hint)

    def _check_quoting(self, index: int, step: Step) -> None:
        """Warn of values that a shell would read as its own language."""
        if step.tool_name == "shell" and (unsafe := unsafe_value(step.arguments)) is not None:
            path: Path = ("run",) if step.run is not None else ("with",)
            self._report.warning(f"{self._subject(index)}: {unsafe.message}", ("steps", index, *path), unsafe.hint)

    def _check_marks(self, index: int, step: Step) -> None:
        """Warn of a value in a prompt whose mark as data would split a word or the name of a file."""
        if step.prompt is None or index in self._flawed:
            return
        if (joined := joined_value(step.prompt, items_of_user=step.items_are_users)) is not None:
            message = (
                f"`prompt` joins `{_short(joined.template)}` to other text, and marks it as data, because it is not "
                f"from `inputs`: the agent sees {_short(joined.shown)}, with line breaks around the value"
            )
            spaces = "put spaces around the value"
            hint = f"name files by `{{{{ index }}}}`, or {spaces}" if step.foreach is not None else spaces
            self._report.warning(f"{self._subject(index)}: {message}", ("steps", index, "prompt"), hint)

    def _check_cycles(self) -> None:
        order = {name: index for index, name in enumerate(self._ids)}
        if len(self._known) < len(self._ids) - self._ids.count(None):
            return  # with an id taken twice, who waits for whom is anyone's guess
        waits = dict(self._waits)
        for _ in range(_MOST_CYCLES):
            cycle = find_cycle(waits)
            if cycle is None:
                return
            ring = cycle[:-1]
            start = ring.index(min(ring, key=lambda name: order[name]))
            ring = ring[start:] + ring[:start]
            shown = ring if len(ring) <= 50 else [*ring[:25], f"({len(ring) - 50} more)", *ring[-25:]]
            path: Path = ("steps", order[ring[0]], "needs")
            self._report.problem(f"these steps wait for each other: {' → '.join([*shown, ring[0]])}", path)
            for name in ring:
                del waits[name]


_NO_SANDBOX = "code steps need the sandbox: pip install 'windlass[code]'"
_KNOWN_BEFORE = ("role", "runtime", "skills", "max_turns", "permissions")
"""Arguments of an agent that are no templates."""
_LOOKED_UP = ("role", "runtime", "skills")
"""The arguments among them that name something."""


def _wrong_statuses(text: str, expression: bool) -> Iterable[tuple[str, str]]:
    """The problems of comparisons with a text that is no status, with hints."""
    if "status" not in text or not any(operator in text for operator in ("==", "!=", " in ")):
        return ()
    from windlass.plan.statuses import wrong_statuses  # most templates compare nothing

    return wrong_statuses(text, expression=expression)


def _template_keys(value: Any) -> Iterator[str]:
    """Keys of mappings in which somebody wrote a template."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str) and "{{" in key:
                yield key
            yield from _template_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _template_keys(inner)


def _holds_template(step: Step) -> bool:
    """Return True if the step's arguments hold a template."""
    texts = (text for where, text, _ in templates_of(step) if where not in ("when", "foreach"))
    return any(mark in text for text in texts for mark in ("{{", "{%", "{#"))


def _parts(where: str) -> Path:
    """Split `with.names[0]` into a path. A key with dots is split too; then its parent is located."""
    return tuple(int(i) if i else key for key, i in re.findall(r"([^.\[\]]+)|\[(\d+)\]", where))


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:197]}…"
