"""Code steps in plans: what they may say, what they wait for, and what their tool is given.

In the plans below, `#!` marks the line that the problem must name; inside a program it is `//!`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import ValidationError

from windlass.errors import PlanInvalid, Problem
from windlass.plan.check import check_data
from windlass.plan.graph import Graph
from windlass.plan.load import check_plan, load_text
from windlass.plan.model import CODE, Plan, Step
from windlass.plan.prepare import prepare
from windlass.plan.program import granted_tools
from windlass.plan.quantities import ProgramBounds, StepLimits, parse_size, shown_size
from windlass.plan.schema import plan_schema
from windlass.ports.sandbox import ProgramLimits

MB = 1024 * 1024


class Catalogue:
    """Tools among which there is a sandbox, particular about one word."""

    def __init__(self, *names: str) -> None:
        self._names = list(names or ("shell", "files.list", "files.read", "files.write", "code"))
        self.asked: list[Mapping[str, Any]] = []

    def names(self) -> list[str]:
        return self._names

    def knows(self, name: str) -> bool:
        return name in self.names()

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        self.asked.append(arguments)
        return ["this is no program"] if "syntax error" in arguments.get("source", "") else []

    def misnamed(self, name: str, given: Iterable[str]) -> list[str]:
        return []


def problems_of(text: str, *tools: str, file: str = "plan.yaml") -> tuple[Problem, ...]:
    with pytest.raises(PlanInvalid) as caught:
        load_text(dedent(text), file=file, tools=Catalogue(*tools))
    return caught.value.problems


def loaded(text: str) -> Plan:
    found = load_text(dedent(text), file="plan.yaml", tools=Catalogue())
    assert found.warnings == ()
    return found.plan


# ── Good plans ───────────────────────────────────────────────────────────────────────────────────────

GOOD = {
    "a program alone": "steps:\n  - {id: a, code: return 1}\n",
    "a program that reads a step": """
        steps:
          - {id: log, run: git log}
          - id: group
            code: |
              const lines = steps.log.output.stdout.split("\\n");
              return {fixes: lines.filter(l => /fix/i.test(l))};
    """,
    "everything that a step may have": """
        inputs: {since: v1}
        steps:
          - id: a
            foreach: [1, 2]
            when: inputs.since
            code: return item + index + args.x + inputs.since
            with: {x: "{{ item }}"}
            grants: [files.*, shell]
            limits: {memory: 32mb, cpu: 2s, wall: 5m, calls: 10, output: 512kb, log: 0}
            importance: critical
            retry: 2
            timeout: 10m
            effect: repeatable
            approve: always
    """,
    "one grant": "steps:\n  - {id: a, code: return 1, grants: shell}\n",
    "no grants": "steps:\n  - {id: a, code: return 1, grants: []}\n",
    "every grant": "steps:\n  - {id: a, code: return 1, grants: '*'}\n",
    "grants and limits of a tool": "steps:\n  - {id: a, tool: files.write, grants: [shell], limits: {calls: 3}}\n",
    "names that only look like steps": """
        steps:
          - id: a
            code: |
              // steps.nothing
              /* steps.nothing */
              const text = "steps.nothing" + 'steps.nothing' + `steps.nothing`;
              return {steps: {nothing: 1}, text, x: args.steps.nothing};
    """,
    "steps of its own": "steps:\n  - {id: a, code: 'const steps = []; steps.push(1); return steps.a'}\n",
    "inputs of its own": "steps:\n  - {id: a, code: 'return args.map(inputs => inputs.x)'}\n",
    "what every object has": "steps:\n  - {id: a, code: 'return inputs.hasOwnProperty(\"x\")'}\n",
    "braces like a template": "steps:\n  - {id: a, code: 'return `{{ steps.nothing }} {% if %}`'}\n",
    "tools that it asks for first": """
        steps:
          - id: a
            grants: [files.read]
            code: |
              if (tools.files.write) await tools.files.write({path: "x"});
              try { await tools.http.get({url: "x"}) } catch {}
              await tools.shell?.({line: "x"});
              const text = await tools.files.read.call(null, {path: "y"});
              return [text, "tools.nothing()", args.tools.nothing()];
    """,
    "tools of its own": "steps:\n  - {id: a, code: 'const tools = args.x; return tools.nothing()'}\n",
    "keys of an open output": """
        steps:
          - {id: b, run: x}
          - {id: j, prompt: hi, output: {type: object, properties: {x: {}}}}
          - {id: a, code: 'return [steps.b.output.stdout.length, steps.j.output.y, steps.b.output.toString()]'}
    """,
    "items of its own": "steps:\n  - {id: a, code: 'return args.map((item, index) => item)'}\n",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_code_step_may_have(name: str) -> None:
    plan = loaded(GOOD[name])
    again = Plan.model_validate_json(plan.encoded)
    assert again == plan
    assert again.digest == plan.digest


# ── Bad plans ────────────────────────────────────────────────────────────────────────────────────────


def step(*lines: str) -> str:
    return "\n".join(["steps:", "  - {id: build, run: x}", "  - id: a", *(f"    {line}" for line in lines), ""])


BAD = {
    # ── the kind of work ──
    "code and run": ("steps:\n  - id: a #!\n    code: return 1\n    run: x\n", "exactly one of `run`, `tool`, `agent`"),
    "code and tool": ("steps:\n  - id: a #!\n    code: return 1\n    tool: shell\n", "exactly one of"),
    "code and prompt": ("steps:\n  - id: a #!\n    code: return 1\n    prompt: hi\n", "exactly one of"),
    "empty code": (step("code: '' #!"), "step a: `code` is empty"),
    "blank code": (step("code: ' ' #!"), "step a: `code` is empty"),
    "a number": (step("code: 5 #!"), "`code`: expected text, found the number 5", "quotes"),
    "a list": (step("code: [return 1] #!"), "`code`: expected text, found a list"),
    "a program without end": (
        step("code: #!", f"  '{'x' * 300 * 1024}'"),
        "`code` is 300 KiB long, and a program may have 256 KiB",
    ),
    "code by another name": (step("js: return 1 #!", "run: x"), "unknown key `js`", "`code`"),
    "a program by another name": (step("program: return 1 #!", "run: x"), "unknown key `program`", "`code`"),
    "a source by another name": (step("source: return 1 #!", "run: x"), "unknown key `source`", "`code`"),
    "a script is run": (step("script: x #!", "tool: shell"), "unknown key `script`", "`run`"),
    "an agent's key": (step("code: return 1", "skills: [x] #!"), "`skills` is for agents"),
    # ── what it reads ──
    "an unknown step": (
        step("code: |", "  const x = 1;", "  return steps.biuld.output; //!"),
        "step a: `code` refers to `steps.biuld`, which is not a step of this plan",
        "did you mean `steps.build`?",
    ),
    "an unknown step in brackets": (step("code: |-", "  ", "  return steps['nix'] //!"), "refers to `steps.nix`"),
    "an unknown step in a template literal": (
        step("code: |  # a remark", "", "    // steps.other", "    return `steps.other", "      ${steps.nix}` //!"),
        "refers to `steps.nix`",
    ),
    "an unknown step on the line of code": (step("code: return steps.nix #!"), "refers to `steps.nix`"),
    "an unknown step in a folded text": (step("code: > #!", "  return", "  steps.nix"), "refers to `steps.nix`"),
    "an unknown step in quotes": (step('code: "return 1 + #!', '  steps.nix"'), "refers to `steps.nix`"),
    "an unknown step taken out": (step("code: |", "  const {", "    nix, //!", "  } = steps"), "refers to `steps.nix`"),
    "an unknown step, read twice": (step("code: |", "  f(steps.nix) //!", "  g(steps.nix)"), "refers to `steps.nix`"),
    "an unknown part of a step": (
        step("code: |", "  return steps.build.stdout //!"),
        "refers to `steps.build.stdout`, but a step has only output, status, error, errors, id",
        "`steps.build.output.stdout`",
    ),
    "an unknown key of a command's output": (
        step("code: |", "  const all = steps.build.output.stdout.trim()", "  return steps.build.output.stdot //!"),
        "`code` refers to `steps.build.output.stdot`, but the output of a command has only exit_code, stdout,",
        "did you mean `steps.build.output.stdout`?",
    ),
    "a tool that is not granted": (
        step(
            "grants: [files.read]",
            "code: |",
            "  await tools.files.read({path: 'x'})",
            "  await tools.files.write({}) //!",
        ),
        "step a: `code` calls `tools.files.write`, which is not granted to this program",
        "add files.write to `grants`",
    ),
    "an unknown tool": (
        step("code: |", "  await tools['file'].write({}) //!", "  await tools.file.write({})"),
        "step a: `code` calls `tools.file.write`, which is not a tool",
        "did you mean `tools.files.write`?",
    ),
    "a tool that only steps use": (step("code: |", "  await tools.code({}) //!"), "which no program can call"),
    "itself": (step("code: return steps.a.output #!"), "`code` refers to its own step, `steps.a`"),
    "an unknown input": (
        "inputs: {since: v1}\n" + step("code: |", "  return inputs.sinse //!"),
        "`code` refers to `inputs.sinse`, which is not an input of this plan",
        "`inputs.since`",
    ),
    "a hyphen that reads as a minus": (
        "steps:\n  - {id: my-step, run: x}\n  - id: b\n    code: |\n      return steps.my-step.output //!\n",
        "`code` has a hyphen that is read as a minus",
        'write steps["my-step"]',
    ),
    "a template in its arguments": (
        step("code: return 1", "with:", "  x: '{{ steps.nix.output }}' #!"),
        "`with.x` refers to `steps.nix`",
    ),
    "a cycle": (
        "steps:\n  - id: a #!\n    code: return steps.b.output\n  - {id: b, run: x, needs: [a]}\n",
        "these steps wait for each other: a → b → a",
    ),
    "a flaw elsewhere": (
        step("timeout: 1m", "code: |", "  return steps.nix //!"),
        "refers to `steps.nix`",
    ),
    # ── grants ──
    "a number of grants": (
        step("code: return 1", "grants: 5 #!"),
        "`grants`: expected text or a list, found the number 5",
    ),
    "grants as a mapping": (
        step("code: return 1", "grants: {shell: true} #!"),
        "expected text or a list, found a mapping",
    ),
    "a grant that is a number": (
        step("code: return 1", "grants:", "  - shell", "  - 5 #!"),
        "`grants[1]`: expected text, found the number 5",
    ),
    "an empty grant": (step("code: return 1", "grants: [''] #!"), "`grants[0]` is empty"),
    "grants of nothing": (step("code: return 1", "grants: #!"), "`grants`: expected a list, found nothing", "[]"),
    "an unknown grant": (
        step("code: return 1", "grants:", "  - files.raed #!"),
        "step a: it grants `files.raed`, which is not a tool",
        "`files.read`",
    ),
    "a family for a tool": (step("code: return 1", "grants: files #!"), "it grants `files`", "`files.*`"),
    "an unknown grant of a tool": (step("tool: shell", "grants: [sell] #!"), "it grants `sell`", "`shell`"),
    "grants of a command": (step("run: x", "grants: [shell] #!"), "`grants` is for programs"),
    "grants of an agent": (step("prompt: x", "grants: [shell] #!"), "`grants` is for programs"),
    # ── limits ──
    "limits of a command": (step("run: x", "limits:", "  calls: 1 #!"), "`limits.calls` is for programs"),
    "the time of a command": (step("run: x", "limits:", "  wall: 1s #!"), "the step's `timeout`"),
    "processes of a program": (step("code: return 1", "limits:", "  processes: 1 #!"), "a program has no processes"),
    "limits as a number": (step("code: return 1", "limits: 5 #!"), "`limits`: expected a mapping"),
    "an unknown limit": (
        step("code: return 1", "limits:", "  memry: 64mb #!"),
        "unknown key `memry` in `limits`",
        "`memory`",
    ),
    "a limit like nothing known": (
        step("code: return 1", "limits:", "  zzz: 1 #!"),
        "unknown key `zzz` in `limits`",
        "known here: memory, cpu, wall, calls, output, log, cpu_share, processes",
    ),
    "a limit of the plan": (
        step("code: return 1", "limits:", "  parallel: 1 #!"),
        "unknown key `parallel` in `limits`",
        "it belongs in the plan's `limits`",
    ),
    "a timeout for a limit": (step("code: return 1", "limits:", "  timeout: 5s #!"), "unknown key `timeout`", "`wall`"),
    "a limit of a step in the plan's": (
        "limits:\n  calls: 6 #!\nsteps: [{id: a, run: x}]\n",
        "unknown key `calls` in `limits`",
        "it belongs in a step's `limits`",
    ),
    "a wrong unit of size": (
        step("code: return 1", "limits:", "  memory: 64mega #!"),
        "`limits.memory`: '64mega' is not a size: write it like 512kb, 64mb, 1gb",
    ),
    "a size that is true": (step("code: return 1", "limits:", "  memory: true #!"), "a size is a number of bytes"),
    "half a byte": (step("code: return 1", "limits:", "  log: 1.5 #!"), "`limits.log`: a size must be a whole number"),
    "a size below nothing": (step("code: return 1", "limits:", "  log: -1 #!"), "a size must be a whole number"),
    "too little memory": (
        step("code: return 1", "limits:", "  memory: 4mb #!"),
        "`limits.memory`: must be at least 8mb, not 4mb",
    ),
    "too much memory": (step("code: return 1", "limits:", "  memory: 1025mb #!"), "must be at most 1gb, not 1025mb"),
    "too much output": (step("code: return 1", "limits:", "  output: 17mb #!"), "must be at most 16mb, not 17mb"),
    "an output of nothing": (step("code: return 1", "limits:", "  output: 0 #!"), "must be at least 1b, not 0b"),
    "a wrong unit of time": (step("code: return 1", "limits:", "  cpu: 5mb #!"), "'5mb' is not a duration"),
    "too much time": (
        step("code: return 1", "limits:", "  cpu: 11m #!"),
        "`limits.cpu`: must be at most 10m, not 660s",
    ),
    "days of time": (step("code: return 1", "limits:", "  wall: 25h #!"), "`limits.wall`: must be at most 1d"),
    "fewer calls than none": (step("code: return 1", "limits:", "  calls: -1 #!"), "`limits.calls` must be at least 0"),
    "too many calls": (step("code: return 1", "limits:", "  calls: 100001 #!"), "must be at most 100000"),
    "a word for calls": (step("code: return 1", "limits:", "  calls: few #!"), "expected a whole number"),
    # ── the sandbox ──
    "what the sandbox refuses": (
        step("code: a syntax error #!", "with: {x: '{{ index }}'}", "foreach: [1]"),
        "no program",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_code_step_gets_one_problem_on_the_right_line(name: str) -> None:
    text, message, *hint = BAD[name]
    [problem] = problems_of(text)
    assert message in problem.message
    assert all(part in problem.hint for part in hint)
    assert problem.line == 1 + next(n for n, line in enumerate(text.splitlines()) if re.search("#!|//!", line))
    assert problem.column is not None
    assert not re.search(r"pydantic|Input should|https?:|NoneType|validation error", str(problem))


def test_a_problem_inside_a_block_names_the_column_too() -> None:
    text = "steps:\n  - id: a\n    code: |\n\n      if (1) {\n        return steps.nix;\n      }\n"
    [problem] = problems_of(text)
    assert (problem.line, problem.column) == (6, 16)
    assert text.splitlines()[5][15:].startswith("steps.nix")


def test_lines_are_told_in_files_of_windows_too() -> None:
    text = "steps:\r\n  - id: a\r\n    code: |\r\n      const x = 1;\r\n      return steps.nix;\r\n"
    [problem] = problems_of(text)
    assert (problem.line, problem.column) == (5, 14)


def test_in_json_the_line_is_that_of_the_key() -> None:
    text = '{"steps": [\n  {"id": "a",\n   "code": "const x = 1;\\n\\nreturn steps.nix"}]}'
    [problem] = problems_of(text, file="plan.json")
    assert problem.line == 3


def test_a_flawed_code_step_is_checked_for_the_rest() -> None:
    problems = problems_of("""\
        steps:
          - id: a
            retires: 3
            grants: [sell]
            limits: {memory: 1}
            code: |
              return steps.nix + inputs.nix
          - {id: b, needs: a, code: ""}
          - {id: c, needs: b, run: x, code: return steps.nix}
    """)
    assert [problem.line for problem in problems] == [3, 4, 5, 7, 7, 8, 9]


def test_without_a_sandbox_the_advice_is_to_install_it() -> None:
    [problem] = problems_of("steps:\n  - id: a\n    code: return 1\n", "shell")
    assert problem.message == "step a: code steps need the sandbox: pip install 'windlass[code]'"
    assert problem.line == 3


def test_without_a_catalogue_neither_the_sandbox_nor_grants_are_asked_for() -> None:
    data = {"steps": [{"id": "a", "code": "return 1", "grants": ["nothing"]}]}
    assert check_data(data).problems == ()


def test_a_pattern_that_grants_nothing_is_warned_of() -> None:
    text = "steps:\n  - id: a\n    code: return 1\n    grants:\n      - shell\n      - file.*\n"
    [warning] = load_text(text, file="plan.yaml", tools=Catalogue()).warnings
    assert "no tool matches `file.*`" in warning.message
    assert warning.line == 6


def test_the_sandbox_is_asked_about_the_source_without_arguments_that_are_not_known_yet() -> None:
    tools = Catalogue()
    data = {"inputs": {"x": 1}, "steps": [{"id": "a", "code": "return 1", "with": {"x": "{{ inputs.x }}"}}]}
    assert check_data(data, tools=tools).problems == ()
    assert tools.asked == [{"source": "return 1"}]


def test_a_plan_built_in_python_passes_the_same_checks() -> None:
    plan = Plan(steps=(Step(id="a", code="return steps.b"), Step(id="c", code="return 1", grants=("nothing",))))
    assert [problem.message for problem in check_plan(plan, Catalogue())] == [
        "step a: `code` refers to `steps.b`, which is not a step of this plan",
        "step c: it grants `nothing`, which is not a tool",
    ]


@pytest.mark.parametrize("code", ["", "  \n", "x" * (256 * 1024 + 1)])
def test_a_step_built_in_python_cannot_hold_what_is_no_program(code: str) -> None:
    with pytest.raises(ValidationError, match="`code` is"):
        Step(id="a", code=code)


# ── The order ────────────────────────────────────────────────────────────────────────────────────────


def test_a_code_step_waits_for_its_needs_and_for_every_step_that_its_program_reads() -> None:
    source = """
        const {a} = steps;
        // steps.e
        return a.output + steps["b-b"].output + `${steps.c.output} steps.e` + steps[args.name] + "steps.e"
    """
    others = [Step(id=name, run="x") for name in ("a", "b-b", "c", "d", "e", "f")]
    last = Step(id="last", code=source, needs=("d",), with_={"name": "{{ steps.f.output }}"})
    graph = Graph.of(Plan(steps=(*others, last)))
    assert graph.needs["last"] == ("d", "a", "b-b", "c", "f")
    assert graph.dependents["c"] == ("last",)
    assert graph.order[-1] == "last"


def test_a_program_with_steps_of_its_own_does_not_wait_for_itself() -> None:
    graph = Graph.of(Plan(steps=(Step(id="a", code="let steps = {}; steps.a = 1; return steps.a"),)))
    assert graph.needs == {"a": ()}


# ── What the tool is given ───────────────────────────────────────────────────────────────────────────


def test_the_tool_of_a_code_step_is_given_its_source_arguments_grants_and_limits() -> None:
    limits = StepLimits(memory=32 * MB, cpu=1.5, calls=0)
    made = Step(id="a", code="return 1", with_={"x": 1}, grants=("files.*",), limits=limits)
    assert made.is_code
    assert made.tool_name == CODE == "code"
    assert made.arguments == {
        "source": "return 1",
        "args": {"x": 1},
        "grants": ["files.*"],
        "limits": {"memory": 32 * MB, "cpu": 1.5, "calls": 0},
    }
    assert json.loads(json.dumps(made.arguments)) == made.arguments


def test_what_a_code_step_does_not_say_its_tool_is_not_told() -> None:
    assert Step(id="a", code="return 1").arguments == {"source": "return 1"}
    assert Step(id="a", code="return 1", grants=()).arguments == {"source": "return 1", "grants": []}


def test_grants_and_limits_of_a_tool_are_no_arguments_of_it() -> None:
    made = Step(id="a", tool="mine", with_={"x": 1}, grants=("shell",), limits=StepLimits(calls=3))
    assert made.arguments == {"x": 1}
    assert not made.is_code
    assert (made.grants, made.limits) == (("shell",), StepLimits(calls=3))


LITERAL = "return `{{ inputs.x }} {% if %} {# {{`; // }} {{ item }}"


def test_a_source_is_never_filled_in() -> None:
    plan = Plan(inputs={"x": 5}, steps=(Step(id="a", code=LITERAL), Step(id="b", code=LITERAL, with_={"n": 1})))
    for made in plan.steps:
        compiled = prepare(plan).steps[made.id].arguments
        assert compiled.constant
        assert compiled.render({})["source"] == LITERAL


def test_the_arguments_of_a_program_are_filled_in_beside_its_source() -> None:
    made = Step(id="a", code=LITERAL, with_={"n": "{{ inputs.x }}", "t": "<{{ inputs.x }}>"}, grants=("shell",))
    compiled = prepare(Plan(inputs={"x": 5}, steps=(made,))).steps[made.id].arguments
    assert not compiled.constant
    given = compiled.render({"inputs": {"x": [1]}})
    assert given == {"source": LITERAL, "args": {"n": [1], "t": "<[1]>"}, "grants": ["shell"]}


# ── Sizes, grants, digests ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (1000, 1000),
        ("1000", 1000),
        ("64mb", 64 * MB),
        ("64 MB", 64 * MB),
        ("64MiB", 64 * MB),
        ("512kb", 512 * 1024),
        ("1gb", 1024 * MB),
        ("1.5gb", 1536 * MB),
        ("10b", 10),
        (2.0, 2),
        (0, 0),
    ],
)
def test_a_size_is_read_in_binary_units(written: Any, size: int) -> None:
    assert parse_size(written) == size
    assert parse_size(shown_size(size)) == size


@pytest.mark.parametrize("written", ["", "mb", "64 m b", "-1", "1e3", "64m", "9" * 400, None, [1], float("nan"), 1e300])
def test_what_is_no_size_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(written)


@pytest.mark.parametrize(
    ("grants", "granted"),
    [
        (None, ["shell", "files.read", "files.write"]),
        ((), []),
        (("*",), ["shell", "files.read", "files.write"]),
        (("files.*",), ["files.read", "files.write"]),
        (("f*s.*d", "shell"), ["shell", "files.read"]),
        (("files",), []),
        (("files?read", "[s]hell", "files.rea."), []),
        (("*e*e*e*e*e*e*e*e*x",), []),
    ],
)
def test_grants_are_names_and_patterns_with_stars(grants: tuple[str, ...] | None, granted: list[str]) -> None:
    assert list(granted_tools(grants, ["shell", "files.read", "files.write"])) == granted


def test_no_grants_and_every_grant_stay_apart_when_a_plan_is_kept() -> None:
    plan = Plan(steps=(Step(id="a", code="return 1", grants=()), Step(id="b", code="return 1")))
    again = Plan.model_validate_json(plan.encoded)
    assert [made.grants for made in again.steps] == [(), None]


def test_a_plan_that_was_kept_before_there_were_code_steps_has_the_same_digest() -> None:
    plan = Plan.model_validate(
        {
            "name": "kept",
            "inputs": {"since": "v1"},
            "limits": {"parallel": 2, "timeout": "2h"},
            "budget": 1.5,
            "steps": [
                {"id": "log", "run": "git log {{ inputs.since | quote }}", "retry": 2, "timeout": "30s"},
                {"id": "list", "run": ["ls", "-l"], "needs": "log", "importance": "optional"},
                {
                    "id": "write",
                    "tool": "files.write",
                    "with": {"path": "a.txt", "content": "{{ steps.log.output.stdout }}"},
                    "approve": "always",
                },
                {
                    "id": "draft",
                    "agent": "developer",
                    "prompt": "Summarise {{ steps.log.output }}",
                    "skills": ["git"],
                    "handoff": ["log"],
                },
                {
                    "id": "each",
                    "foreach": [1, 2],
                    "when": "inputs.since",
                    "tool": "shell",
                    "with": {"line": "echo {{ index }}"},
                },
            ],
        }
    )
    assert plan.digest == "9e86fdea88e78baac03812f47006da27f7ef96d5a726aac4b4155447eee0d70d"


# ── Schema and reference ─────────────────────────────────────────────────────────────────────────────


def test_the_schema_tells_editors_of_programs() -> None:
    schema = plan_schema()
    made = schema["$defs"]["Step"]
    assert {"required": ["code"]} in made["oneOf"]
    assert made["properties"]["code"]["description"].startswith("A program")
    forms = [form.get("type") for form in made["properties"]["grants"]["anyOf"]]
    assert forms == ["array", "string"]
    limits = schema["$defs"]["StepLimits"]
    assert limits["additionalProperties"] is False
    assert all(field["description"] for field in limits["properties"].values())


def test_limits_of_a_step_are_those_of_the_sandbox() -> None:
    defaults = {name: getattr(ProgramLimits(), name) for name in ProgramBounds.model_fields}
    assert ProgramBounds.model_validate(defaults).model_dump() == defaults
    assert ProgramBounds.model_fields.keys() < StepLimits.model_fields.keys()


PAGE = (Path(__file__).parents[2] / "docs" / "plans.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n### code\n")[2].partition("\n### ")[0]


def test_every_plan_that_the_reference_shows_of_programs_is_good() -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    assert len(shown) >= 2
    for text in shown:
        assert any(made.is_code for made in loaded(text).steps)


def test_the_reference_has_the_defaults_of_the_sandbox() -> None:
    documented = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", SECTION.partition("key of `limits`")[2], re.MULTILINE))
    written = {name: text.strip().replace(",", "") for name, text in documented.items()}
    assert ProgramBounds.model_validate(written).model_dump() == {
        name: getattr(ProgramLimits(), name) for name in ProgramBounds.model_fields
    }


def test_c8_limits_of_a_command_are_its_memory_its_computing_time_and_its_processes() -> None:
    step = Step(id="a", run="make", limits={"memory": "64gb", "cpu": "2d", "processes": 9})
    assert step.arguments == {"line": "make", "limits": {"memory": 64 << 30, "cpu": 172800.0, "processes": 9}}
    with pytest.raises(ValueError, match=r"`limits\.calls` is for programs"):
        Step(id="a", run="make", limits={"calls": 3})
    with pytest.raises(ValueError, match="for a command use the step's `timeout`"):
        Step(id="a", run="make", limits={"wall": "3s"})
    with pytest.raises(ValueError, match=r"`limits\.memory`: must be at least 16mb, not 8mb"):
        Step(id="a", run="make", limits={"memory": "8mb"})
    with pytest.raises(ValueError, match="a program has no processes"):
        Step(id="a", code="return 1", limits={"processes": 3})
    with pytest.raises(ValueError, match="given twice"):
        Step(id="a", run="make", limits={"cpu": "2s"}, with_={"limits": {"cpu": "3s"}})
    with pytest.raises(ValueError, match="`grants` is for programs"):
        Step(id="a", run="make", grants=["files.*"])
