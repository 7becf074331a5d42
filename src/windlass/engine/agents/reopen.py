"""Have an agent go on whose branch does not fit together with the others (K4): in its conversation and its worktree.

The work of the others is merged into its worktree, with the conflicts in its files, and it is told what does not fit.
It is done when no conflict is left, and its own checks and those of the merge pass there; then its branch has a commit
that merges. All of this is recorded as work of its own step, which stays completed. After a crash it goes on where it
was: the journal has the message to it, its replies and its checks.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.state import StepState
from windlass.engine.agents.attempt import AgentAttempt
from windlass.engine.agents.deps import AgentDeps
from windlass.engine.agents.workdir import workdir_of
from windlass.errors import Category, ToolError
from windlass.plan.model import DEFAULT_TRIES
from windlass.ports import Call, Contact
from windlass.workspaces.bundles import bring_worktree, bundle_of
from windlass.workspaces.store import shown
from windlass.workspaces.worktrees import Worktree, bring_in, open_worktree

__all__ = ["can_go_on", "go_on"]


def can_go_on(owner: StepState) -> bool:
    """True unless it has gone on before, and came to an end without success, or worked in the execution that this is a
    fork of: its branch is that one's."""
    agent = owner.agent
    return agent is not None and owner.input is not None and (agent.reopening or not agent.reopened)


async def go_on(
    deps: AgentDeps,
    owner: StepState,
    others: str,
    reason: str,
    checks: Sequence[Mapping[str, Any]],
    call: Call,
    contact: Contact,
) -> str:
    """Have the agent of `owner` bring its branch together with the commit `others`; gives the reason if it cannot."""
    agent = owner.agent
    assert agent is not None
    theirs = contact.for_agent_of(owner)
    number = agent.attempt + 1
    try:
        worktree, conflicts = await asyncio.to_thread(_prepare, owner, others, call, contact.files is not None)
        if not agent.reopening:
            now = deps.clock.now()
            theirs.tell(ev.AgentReopened(now, owner.id, number, call.step))
            text = _message(reason, conflicts)
            await theirs.record(ev.AgentTold(now, owner.id, uuid.uuid4().hex[:12], text, call.step))
        call.output("note", f"{owner.id} goes on: {reason}\n")
        arguments = {name: value for name, value in owner.input.items() if name != "output"}
        arguments["check"] = [*_no_conflict(worktree, conflicts), *_all(owner.input.get("check", ()), checks)]
        arguments["tries"] = owner.input.get("tries", DEFAULT_TRIES)
        there = msgspec.structs.replace(call, step=owner.id, attempt=number)
        await AgentAttempt(deps, arguments, there, theirs).perform()
    except ToolError as error:
        if error.failure.category in (Category.TRANSIENT, Category.RESOURCE):
            raise
        await theirs.record(ev.AgentReopened(deps.clock.now(), owner.id, number, call.step, error.failure.message))
        return f"{reason}\nthe agent could not mend it: {error.failure.message}"
    return ""


def _prepare(owner: StepState, others: str, call: Call, moves: bool) -> tuple[Worktree, tuple[str, ...]]:
    workdir = workdir_of(owner.spec, owner.input, call.workdir)
    files, bundle = owner.input["workspace"].get("files", ()), bundle_of(call.scratch.parent / owner.id)
    if moves and bundle.is_file():
        bring_worktree(workdir, call.execution, owner.id, bundle, files)
    worktree = open_worktree(workdir, call.execution, owner.id, files)
    return worktree, bring_in(worktree, others)


def _message(reason: str, conflicts: Sequence[str]) -> str:
    if not conflicts:
        return (
            f"Your work was merged with the work of others, and together they are not right: {reason}\n\n"
            "The work of the others is in your working directory now. Find the cause and mend it, so that both hold. "
            "It will be checked again when you are done."
        )
    files = "\n".join(f"    {shown(name)}" for name in conflicts)
    return (
        f"Your work is merged with the work of others, and both changed the same lines. These files have conflicts:\n\n"
        f"{files}\n\nThe merge is under way in your working directory: each conflict stands in its file between "
        "<<<<<<< (yours) and >>>>>>> (theirs). Resolve all of them so that both changes hold, and remove the marks. "
        "You need not commit. It will be checked when you are done."
    )


def _no_conflict(worktree: Worktree, conflicts: Sequence[str]) -> list[dict[str, Any]]:
    """A check that no mark of a conflict is left."""
    if not conflicts:
        return []
    names = (shlex.quote(os.path.relpath(worktree.path / name, worktree.workdir)) for name in conflicts)
    return [{"tool": "shell", "with": {"line": f"! grep -nE '^(<<<<<<<|>>>>>>>) ' -- {' '.join(names)}"}}]


def _all(*lists: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The checks of all, each once."""
    found: list[Mapping[str, Any]] = []
    for one in (check for checks in lists for check in checks):
        if one not in found:
            found.append(one)
    return found
