"""The folder of its own that an agent works in (K4): made before its first attempt, found again by the next ones.

The journal has it before it is made and after. When the work is done it is committed to the folder's branch, so that
nothing of it is only in the files.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from socket import gethostname
from typing import Any

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.transitions import StepStatus
from windlass.errors import Category, ToolError
from windlass.ports import Call, Contact
from windlass.workspaces.bundles import bring_worktree, bundle_of, has_worked_in, note_attempt, write_bundle
from windlass.workspaces.copies import open_copy
from windlass.workspaces.worktrees import Worktree, commit_work, is_on_branch, open_worktree, place_of

__all__ = ["AgentFolder", "worktree_from"]


class AgentFolder:
    """The folder of an attempt's agent."""

    def __init__(self, wanted: Mapping[str, Any], call: Call, contact: Contact, clock: Clock) -> None:
        self._wanted, self._call, self._contact, self._clock = wanted, call, contact, clock
        self._found: Worktree | None = None

    async def enter(self) -> Call:
        """Make or find the folder; gives the call with it as the working directory."""
        call, kind = self._call, self._wanted["kind"]
        agent = self._contact.step.agent
        known = agent.workspace if agent is not None else None
        if known is None or not known.ready:
            bundle_of(call.scratch).unlink(missing_ok=True)  # of a worktree that was removed since
            await self._contact.record(self._event(kind, place_of(call.execution, call.step), None))
        try:
            if known is not None and known.ready and self._contact.step.worker:
                await asyncio.to_thread(self._require_here, known)
            self._found = found = await asyncio.to_thread(self._open)
            if self._moves:
                await asyncio.to_thread(note_attempt, found, call.attempt)
        except OSError as error:
            raise ToolError(f"the {kind} cannot be made: {error}", category=Category.RESOURCE) from error
        for note in found.notes:
            call.output("note", f"{note}\n")
        if known is None or not known.ready or known.path != str(found.path):
            self._contact.tell(self._event(kind, found.path, found))
        return msgspec.structs.replace(call, workdir=found.workdir)

    @property
    def _moves(self) -> bool:
        """True if the folder goes to other machines with the step's files."""
        return self._contact.files is not None and self._wanted["kind"] == "worktree"

    def _require_here(self, known: ev.WorkspaceOpened) -> None:
        """Have the work of the attempts before here, as another machine left it. Fail rather than begin anew."""
        call, worker, bundle = self._call, self._contact.step.worker, bundle_of(self._call.scratch)
        step = self._contact.step
        last, commit = (step.agent.attempt, step.agent.commit) if step.agent is not None else (0, "")
        if self._moves and self._contact.files != "behind" and bundle.is_file():
            if bring_worktree(call.workdir, call.execution, call.step, bundle, self._wanted.get("files", ())):
                call.output("note", "the worktree was brought from another machine\n")
            return
        if self._moves:
            if has_worked_in(call.workdir, call.execution, call.step, last):
                return  # on this machine, or in a folder that all share
        elif Path(known.path) == place_of(call.execution, call.step) and Path(known.path).is_dir():
            return
        if step.status is StepStatus.COMPLETED and commit and is_on_branch(call.workdir, commit, known.branch):
            return  # a merge has it go on, and all of its work is on its branch
        raise ToolError(
            f"the {known.kind} of step {call.step}, {known.path}, is not on worker {worker}: another one worked in it",
            category=Category.CONFIGURATION,
            advice=(
                f"when that worker is back: windlass retry {call.execution} {shlex.quote(call.step)}",
                "give such steps a `tag` of one worker, or all workers a shared folder as XDG_DATA_HOME",
            ),
        )

    def _open(self) -> Worktree:
        call = self._call
        if self._wanted["kind"] == "copy":
            return open_copy(call.workdir, call.execution, call.step, call.home)
        return open_worktree(call.workdir, call.execution, call.step, self._wanted.get("files", ()))

    def _event(self, kind: Any, path: Path, found: Worktree | None) -> ev.WorkspaceOpened:
        now, step, attempt = self._clock.now(), self._call.step, self._call.attempt
        if found is None:
            return ev.WorkspaceOpened(now, step, attempt, kind, str(path), ready=False)
        return ev.WorkspaceOpened(
            now,
            step,
            attempt,
            kind,
            str(path),
            ready=True,
            workdir=str(found.workdir),
            repository=found.repository,
            branch=found.branch,
            base=found.base,
            files=found.files,
        )

    async def keep_bundle(self) -> None:
        """Have the worktree among the step's files, as it is now: another machine may go on in it."""
        found, bundle = self._found, bundle_of(self._call.scratch)
        if found is None or not self._moves:
            return
        try:
            inner = await asyncio.to_thread(write_bundle, found, bundle)
        except (ToolError, OSError) as error:
            bundle.unlink(missing_ok=True)  # an older one would be taken for this attempt's
            self._call.output("note", f"the worktree stays on {gethostname()}: {error}\n")
        else:
            for name in inner:
                text = f"the folder {name} in the worktree is a repository of its own, and stays on {gethostname()}"
                self._call.output("note", f"{text}\n")

    async def keep_work(self, task: str) -> None:
        """Commit the work to its branch."""
        found = self._found
        if found is None or not found.branch:
            return
        title = " ".join(task.split())[:60]
        commit = await asyncio.to_thread(commit_work, found, f"{self._call.step}: {title}")
        now, step, attempt = self._clock.now(), self._call.step, self._call.attempt
        self._contact.tell(ev.WorkspaceCommitted(now, step, attempt, found.branch, commit))


def worktree_from(event: ev.WorkspaceOpened) -> Worktree:
    """The worktree that the journal knows."""
    return Worktree(
        Path(event.path), Path(event.workdir), event.branch, event.base, event.repository, tuple(event.files)
    )
