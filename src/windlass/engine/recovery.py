"""Before an execution goes on: is everything still there, and still the same? (D5)

Every reason against it is found and told at once, so that nobody mends one thing to run into the next.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from windlass.core.state import State
from windlass.ports import Toolbox

__all__ = ["Findings", "examine", "file_digest"]


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


def examine(state: State, tools: Toolbox, workdir: str) -> Findings:
    findings = Findings()
    _examine_plan(state, findings)
    if not Path(workdir).is_dir():
        findings.missing.append(f"its working directory {workdir} does not exist (--workdir DIR)")
    wanted = {s.spec.tool_name: s.id for s in state.top_level() if not s.settled}
    for name, step in wanted.items():
        if tools.get(name) is None:
            near = tools.nearest(name)
            hint = f"; there is {near!r}" if near else ""
            findings.tools.append(f"the tool {name!r} that step {step} needs is not there{hint}")
    return findings


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
