"""Before an execution goes on: is everything still there, and still the same? (D5)

Every reason against it is found and told at once, so that nobody mends one thing to run into the next.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from windlass.core.state import State
from windlass.ports import Sandbox, Toolbox
from windlass.version import __version__

__all__ = ["Findings", "environment_of", "examine", "file_digest"]


@dataclass(slots=True)
class Findings:
    """What stands against a resume."""

    changed: list[str] = field(default_factory=list)
    """Things that differ from when it last ran: a person may accept them."""
    missing: list[str] = field(default_factory=list)
    """Things without which it cannot run."""
    tools: list[str] = field(default_factory=list)
    """Tools without which it cannot run, unless a changed plan does without them."""

    @property
    def reasons(self) -> list[str]:
        return [*self.missing, *self.tools, *self.changed]

    def ways_out(self, execution: str) -> list[str]:
        """What a person can do about it."""
        ways = []
        if self.changed:
            ways.append(f"go on with the changes: windlass resume {execution} --accept-changes")
            ways.append(f"go on with the plan as it was: windlass resume {execution} --keep-plan")
        ways.append(f"start anew, keeping what is done: windlass fork {execution}")
        return ways


def environment_of(sandbox: Sandbox | None) -> dict[str, str]:
    """The versions here that matter for going on with an execution."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = {"quickjs": sandbox.version} if sandbox is not None else {}
    return {"windlass": __version__, "python": python, **code}


def examine(state: State, tools: Toolbox, workdir: str, environment: Mapping[str, str]) -> Findings:
    findings = Findings()
    _examine_plan(state, findings)
    _examine_environment(state, environment, findings)
    if not Path(workdir).is_dir():
        findings.missing.append(f"its working directory {workdir} does not exist (--workdir DIR)")
    wanted = {s.spec.tool_name: s.id for s in state.top_level() if not s.settled}
    for name, step in wanted.items():
        if tools.get(name) is None:
            near = tools.nearest(name)
            hint = f"; there is {near!r}" if near else ""
            findings.tools.append(f"the tool {name!r} that step {step} needs is not there{hint}")
    return findings


def _examine_environment(state: State, now: Mapping[str, str], findings: Findings) -> None:
    """Only versions that something unfinished rests on."""
    before = {name: version for name, version in state.environment.items() if now.get(name, version) != version}
    left = [step for step in state.steps.values() if not step.settled]
    begun = next((step.id for step in left if step.programs is not None), None)
    if "quickjs" in before and begun is not None:
        change = f"QuickJS {before['quickjs']}, and here is {now['quickjs']}"
        findings.changed.append(f"the program of step {begun} began on {change}: it may not come to the same calls")
    if "python" in before and state.source.tools and left:
        findings.changed.append(f"its Python tools ran on Python {before['python']}, and here is {now['python']}")


def _examine_plan(state: State, findings: Findings) -> None:
    source = state.source
    if source.path is not None and source.digest is not None:
        now = file_digest(Path(source.path))
        if now is not None and now != source.digest:
            findings.changed.append(f"the plan {source.path} has changed since")
    for path, digest in source.tools.items():
        now = file_digest(Path(path))
        if now is None:
            findings.tools.append(f"the file of tools {path} is gone")
        elif now != digest:
            findings.changed.append(f"the tools in {path} have changed since")


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, or None when it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
