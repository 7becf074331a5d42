"""The folders that agents were given (K4): listed with the state of their work and their place in a merge, and removed
where no work is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.state import State, StepState
from windlass.core.transitions import StepStatus
from windlass.engine.agents.workspace import worktree_from
from windlass.errors import ToolError
from windlass.removal import remove_tree
from windlass.workspaces.store import store_with
from windlass.workspaces.worktrees import branch_of, find_worktree, is_on_branch, remove_worktree, work_in

__all__ = ["list_folders", "remove_folders"]

REMOVABLE = ("no work", "merged")


def list_folders(state: State, driven: bool, home: Path) -> list[dict[str, Any]]:
    """The folders of an execution's agents and merges, each with the state of the work in it."""
    found = []
    for step, folder in _folders(state):
        work = "in use" if driven and not step.settled else _work(step, folder, home)
        if work:
            found.append(
                {
                    "execution": state.id,
                    "step": step.id,
                    "kind": folder.kind,
                    "path": folder.path,
                    "branch": folder.branch,
                    "work": work,
                    "merge": _merge_of(state, step, folder),
                }
            )
    return found


def remove_folders(state: State, listed: Iterable[dict[str, Any]], now: float, by: str) -> list[ev.Event]:
    """Remove the folders without work that would be lost, with their branches; gives the events to write."""
    events: list[ev.Event] = []
    removable = {one["step"] for one in listed if one["work"] in REMOVABLE}
    for step, folder in [pair for pair in _folders(state) if pair[0].id in removable]:
        if folder.kind == "worktree":
            remove_worktree(worktree_from(folder))
        else:
            remove_tree(Path(folder.path))
        events.append(ev.WorkspaceRemoved(now, step.id, folder.path, by))
    return events


def _folders(state: State) -> Iterator[tuple[StepState, ev.WorkspaceOpened]]:
    for step in state.steps.values():
        if step.agent is not None and step.agent.workspace is not None:
            yield step, step.agent.workspace
        elif step.spec.merge is not None and (found := find_worktree(Path(state.workdir), state.id, step.id)):
            path, workdir = str(found.path), str(found.workdir)
            opened = ev.WorkspaceOpened(0.0, step.id, step.attempts, "worktree", path, True, workdir)
            names = {"repository": found.repository, "branch": found.branch, "base": found.base}
            yield step, msgspec.structs.replace(opened, **names)


def _merge_of(state: State, owner: StepState, folder: ev.WorkspaceOpened) -> dict[str, str] | None:
    """The step that merges the branch, with what became of it there; None if none does."""
    named = owner.parent.id if owner.parent is not None else owner.id
    merge = next((step for step in state.steps.values() if step.spec.merge == named), None)
    if merge is None or not folder.branch:
        return None
    found = {"step": merge.id, "state": "waits", "reason": ""}
    output = merge.output if isinstance(merge.output, dict) else {}
    left = {one["step"]: one["reason"] for one in output.get("left", ())}
    if owner.settled and owner.status is not StepStatus.COMPLETED:
        return {**found, "state": "out", "reason": owner.skipped_because or "its step failed"}
    if owner.agent is not None and owner.agent.reopening:
        return {**found, "state": "with its agent", "reason": "it brings its work together with that of the others"}
    if owner.id in left:
        return {**found, "state": "left", "reason": left[owner.id]}
    if any(one["step"] == owner.id for one in output.get("merged", ())) or _is_merged(state, merge, owner):
        return {**found, "state": "merged"}
    if merge.settled:
        return {**found, "state": "out", "reason": merge.skipped_because or f"{merge.id} is {merge.status}"}
    return found


def _is_merged(state: State, merge: StepState, owner: StepState) -> bool:
    """True if a merge that is under way has taken the work."""
    if owner.agent is None or not owner.agent.commit or merge.settled or not merge.attempts:
        return False
    return is_on_branch(Path(state.workdir), owner.agent.commit, branch_of(state.id, merge.id))


def _work(step: StepState, folder: ev.WorkspaceOpened, home: Path) -> str:
    """`no work`, `merged`, or what would be lost; empty if there is nothing any more."""
    try:
        if folder.kind == "worktree":
            return work_in(worktree_from(folder)) if folder.ready else ""
        return _work_in_copy(step, folder, home)
    except ToolError as error:
        return str(error)


def _work_in_copy(step: StepState, folder: ev.WorkspaceOpened, home: Path) -> str:
    if not Path(folder.path).is_dir():
        return ""
    periods = step.agent.periods if step.agent is not None else []
    if not periods:
        return "not recorded" if step.attempts and step.agent is not None and step.agent.attempt else "no work"
    store = store_with(periods[0].before, periods[0].root, home)
    return "changes that are only here" if store.changes(periods[0].before, store.record().tree) else "no work"
