"""Before anything of a plan runs: are the programs, runtimes and keys there that its steps need? (D5)

Everything that is missing is found and told at once, with what to install. Nothing is started for it: a program is
looked for on the PATH that steps get, a runtime says what it knows without running. Unknown tools, roles, runtimes and
unreadable programs are problems of the plan, and are refused with it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from windlass.core.agent import next_in_family
from windlass.core.decide import Policy
from windlass.plan.model import Importance, Plan, Step
from windlass.ports import Health, Runner, hooks_of

__all__ = ["Prerequisites", "find_missing"]

_ONE_COMMAND = re.compile(r"\s*([\w./+-]+)(?:[ \t](?:\{\{[^{}]*\}\}|[^;&|()\n{}])*)?\n?\Z")
"""A line with one command, and no more: its name."""


class Prerequisites(NamedTuple):
    missing: list[str]
    """Things without which a step is sure to fail."""
    doubtful: list[str]
    """The same for steps that may be left out, and runtimes that another one stands in for."""
    advice: list[str]


class _Lack(NamedTuple):
    message: str
    advice: str = ""
    replaced: bool = False
    """Another runtime takes over."""


def find_missing(
    plan: Plan, workdir: str, env: Mapping[str, str], runners: Mapping[str, Runner], policy: Policy
) -> Prerequisites:
    """What the steps of a plan need and is not there."""
    missing: list[str] = []
    doubtful: list[str] = []
    advice: dict[str, None] = {}
    known: dict[str, bool] = {}
    for step in plan.steps:
        for lack in _of_step(plan, step, workdir, env, runners, policy, known):
            may_be_left_out = step.when is not None or step.importance is Importance.OPTIONAL
            message = f"step {step.id}: {lack.message}"
            if lack.replaced or may_be_left_out:
                doubtful.append(f"{message} ({lack.advice})" if lack.advice else message)
            else:
                missing.append(message)
                advice |= {lack.advice: None} if lack.advice else {}
    return Prerequisites(missing, doubtful, list(advice))


def _of_step(
    plan: Plan,
    step: Step,
    workdir: str,
    env: Mapping[str, str],
    runners: Mapping[str, Runner],
    policy: Policy,
    known: dict[str, bool],
) -> Iterator[_Lack]:
    if step.is_agent:
        if (lack := _runtime(plan, step, runners, policy)) is not None:
            yield lack
    elif step.tool_name == "shell":
        for program in _programs(step):
            if program not in known:
                known[program] = _is_there(program, workdir, env)
            if not known[program]:
                where = "is not there" if "/" in program else "is not on PATH"
                yield _Lack(f"the program {program} {where}", f"install {program}")


def _runtime(plan: Plan, step: Step, runners: Mapping[str, Runner], policy: Policy) -> _Lack | None:
    named = step.runtime or plan.runtime or policy.runtime
    health = _installed(runners, named)
    if health is None or health.ok:
        return None
    detail = f"{named} cannot be used: {health.detail}"
    allowed = next(one for one in (step.fallback, plan.fallback, policy.fallback) if one is not None)
    other = next_in_family(named, ()) if allowed else None
    instead = _installed(runners, other) if other is not None else None
    if instead is not None and instead.ok:
        return _Lack(f"{detail}; {other} takes over", health.advice, replaced=True)
    return _Lack(detail, health.advice)


def _installed(runners: Mapping[str, Runner], name: str) -> Health | None:
    runner = runners.get(name)
    return hooks_of(runner).installed() if runner is not None else None


def _programs(step: Step) -> Iterator[str]:
    """Programs that the step is sure to start: of a list the first word, of a line with one command its name."""
    given = step.arguments
    if "PATH" in (given.get("env") or {}) or "isolate" in given:
        return
    words, line, shell = given.get("argv"), given.get("line"), given.get("shell")
    if isinstance(words, list) and words and isinstance(words[0], str) and "{" not in words[0]:
        yield words[0]
    if not isinstance(line, str):
        return
    if isinstance(shell, str) and "{" not in shell:
        yield shell
    if found := _ONE_COMMAND.match(line):
        yield found[1]


def _is_there(program: str, workdir: str, env: Mapping[str, str]) -> bool:
    if "/" in program:  # an earlier step may make it, where it is one of the project's own
        inside = os.path.commonpath([os.path.join(workdir, program), workdir]) == workdir
        return inside or os.path.exists(program)
    if shutil.which(program, path=env.get("PATH", os.defpath)) is not None:
        return True
    asked = ["/bin/sh", "-c", 'command -v -- "$1"', "sh", program]  # it knows its own commands best
    return subprocess.run(asked, env=dict(env), capture_output=True, check=False, timeout=10).returncode == 0
