"""Plans as the result of an agent (K9): `output: plan`.

The agent is given the form of a plan and the tools, roles and runtimes at hand. Its last message is a plan that passes
the checks of a plan file; problems go back to it as those of any other check do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from windlass.core.budget import money
from windlass.errors import PlanInvalid
from windlass.plan.check import ToolCatalog
from windlass.plan.load import load_text
from windlass.plan.model import AGENT, CODE
from windlass.ports import Tool, Toolbox

__all__ = ["PlanCatalog", "asks_for_plan", "plan_in", "plan_problems", "refused_plan"]

LONGEST_DESCRIPTION = 160
_BLOCK = re.compile(r"^```[a-zA-Z]*[ \t]*\n(.*?)^```[ \t]*$", flags=re.DOTALL | re.MULTILINE)


class PlanCatalog:
    """The tools, and the roles and skills of one folder, as a plan's checks ask for them."""

    def __init__(
        self, tools: Toolbox, misfits: Callable[[Mapping[str, Any], Path], list[str]] | None, workdir: Path
    ) -> None:
        """`misfits` names everything wrong with the arguments of an agent in a folder; None where there are none."""
        self._tools = tools
        self._misfits = misfits
        self._workdir = workdir

    def names(self) -> list[str]:
        return self._tools.names()

    def knows(self, name: str) -> bool:
        return self._tools.is_built_in(name) or self._tools.get(name) is not None

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        if name == AGENT and self._misfits is not None:
            return self._misfits(arguments, self._workdir)
        return self._tools.validate(name, arguments)

    def misnamed(self, name: str, given: Iterable[str]) -> list[str]:
        return self._tools.misnamed(name, given)


def plan_in(text: str) -> str:
    """The plan in an agent's last message: its last block between fences, or all of it."""
    blocks = _BLOCK.findall(text)
    return str(blocks[-1]) if blocks else text.strip() + "\n"


def plan_problems(text: str, catalog: ToolCatalog) -> list[str]:
    """Everything wrong with the plan in an agent's last message; a probable mistake is one, too."""
    try:
        loaded = load_text(plan_in(text), file="plan.yaml", tools=catalog)
    except PlanInvalid as error:
        return [str(problem) for problem in error.problems]
    found = [str(warning) for warning in loaded.warnings]
    if loaded.plan.triggers:
        found.append("a drafted plan cannot have `triggers`: a person schedules it")
    if loaded.plan.tools:
        found.append("a drafted plan cannot have `tools`: it may use only those that are there")
    return found


def asks_for_plan(
    tools: Iterable[Tool], roles: Mapping[str, str], runtimes: Iterable[str], budget: float | None
) -> str:
    """The part of the prompt that tells the agent about plans, and about the means at hand."""
    from windlass.plan.schema import plan_schema

    shape = plan_schema()
    del shape["properties"]["triggers"], shape["$defs"]["Trigger"], shape["$defs"]["FolderWatch"]  # a person schedules
    schema = json.dumps(shape, ensure_ascii=False, separators=(",", ":"))
    means = "\n".join(_line(tool) for tool in tools if tool.name not in (AGENT, CODE))
    listed = "\n".join(f"- {name}: {_short(about)}" for name, about in roles.items())
    limit = f" All of it, this draft too, may cost {money(budget)}." if budget is not None else ""
    return f"""\
When you are done, give the plan as your last message: one block of YAML between ``` fences, and nothing else. It is
checked as a plan file is, and a person agrees to it before it runs.{limit}

A plan has a `name` and `steps`. A step has an `id` and exactly one of:
- `run`: a command, as a line for the shell or a list of words. Exit code 0 is success.
- `tool`, with its arguments in `with`.
- `agent`: a role, with a `prompt` that describes its task; add a `check`, a command that fails if the work is not done.
`needs` names the steps that come before. Steps without it begin at once, and run in parallel. In a text,
`{{{{ steps.ID.output }}}}` is the result of a step (of a command: `.stdout`); a step that uses it waits for that step.
In a command line, write it as `{{{{ steps.ID.output.stdout | quote }}}}`: the shell must not read it as code.
`foreach` runs a step for each `item` of a list. `approve: always` asks a person before the step runs. `retry`,
`timeout`, `when`, `budget` and all else are in the schema. An example:

```yaml
name: mend-the-tests
budget: 5.00
steps:
  - id: test
    run: make test > test.log 2>&1 || true
  - id: fix
    needs: test
    agent: developer
    prompt: Make the tests pass. Their output is in test.log.
    check: make test
    tries: 3
  - id: publish
    needs: fix
    run: git push
    approve: always
```

Tools for `tool` (arguments with * are needed):
{means}

Roles for `agent`:
{listed}

Runtimes for `runtime` (leave it out to use the usual one): {", ".join(runtimes)}

The JSON Schema of plans:
{schema}"""


def refused_plan(problems: str) -> str:
    """The message to an agent whose plan has problems."""
    return f"The plan in your last message cannot run:\n\n{problems}\n\nGive the whole plan again, corrected."


def _line(tool: Tool) -> str:
    schema = tool.schema if isinstance(tool.schema, Mapping) else {}
    needed = schema.get("required", ())
    names = [f"{name}{'*' if name in needed else ''}" for name in schema.get("properties", {})]
    return f"- {tool.name}({', '.join(names)}): {_short(tool.description)}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_DESCRIPTION else line[: LONGEST_DESCRIPTION - 1] + "…"
