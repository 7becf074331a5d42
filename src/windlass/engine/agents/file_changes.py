"""The files that agents changed (K5): recorded around each turn, shown as differences, and put back.

Files that a check of the work wrote are nobody's work. In a folder that is the agent's alone they are put back as soon
as the check has ended, so that they are neither committed nor taken for the agent's; elsewhere they stay.

A record that cannot be made fails nothing: the journal says why there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.agent import AgentState, WorkPeriod, add_record
from windlass.core.state import State, StepState
from windlass.errors import Category, ToolError, UsageError
from windlass.faults import fault_point
from windlass.ports import Call, Contact
from windlass.workspaces.git import find_repository
from windlass.workspaces.put_back import RecordedPeriod, put_all_back, put_back
from windlass.workspaces.store import ChangeKind, Recorded, Store, find_store, shown, store_with
from windlass.workspaces.worktrees import holders_of, is_on_branch

__all__ = [
    "WorkRecorder",
    "changed_files",
    "files_seen",
    "put_files_back",
    "record_of",
    "recorded_changes",
    "take_back_writes",
    "worked_beside",
]

MOST_NAMED = 10


class WorkRecorder:
    """Records the files before and after the turns of an agent, and takes back what checks wrote in between."""

    def __init__(self, call: Call, contact: Contact, clock: Clock, *, alone: bool) -> None:
        """`alone`: the folder is the agent's own, and nobody else works there."""
        self._call, self._contact, self._clock = call, contact, clock
        self._alone, self._failed = alone, False
        self._last: Recorded | None = None
        """The newest record of this attempt."""
        self._periods = list(agent.periods) if (agent := contact.step.agent) is not None else []
        """The stretches of work of the step, also those that are not in the journal yet."""

    async def record(self, moment: Literal["before", "after"]) -> None:
        """Record the files as they are now. After a failure there is nothing to compare with: then it does nothing."""
        if self._failed:
            return
        try:
            found = await asyncio.to_thread(self._recorded)
        except (ToolError, OSError) as error:
            self._failed = True
            found = Recorded(str(self._call.workdir), "", f"not recorded: {error}")
        fault_point("workspace.recorded")
        self._last = found
        self._contact.tell(await self._event(moment, found))

    async def remember(self) -> None:
        """Take the files as they are now for those before a check; the record of the agent's work stays as it is."""
        if self._alone and not self._failed:
            self._last = await asyncio.to_thread(self._recorded)

    async def _event(self, moment: Literal["before", "after"], found: Recorded) -> ev.WorkspaceSnapshot:
        now, step, attempt = self._clock.now(), self._call.step, self._call.attempt
        event = ev.WorkspaceSnapshot(now, step, attempt, moment, found.root, found.tree, shown(found.note))
        add_record(self._periods, event)
        if moment == "before" or not found.tree:
            return event
        files = await asyncio.to_thread(_files_of, self._periods, self._call.home)
        return msgspec.structs.replace(event, changed=len(files) if files is not None else None)

    async def check_again(self, agent: AgentState) -> None:
        """Make ready for a check that comes before any turn of this attempt. What a check wrote that died with its
        engine is taken back; other changes since the last turn are a person's, and stay."""
        if not self._alone or not agent.periods or not (last := agent.periods[-1]).after:
            return
        if agent.lost == self._call.attempt - 1:
            self._last = Recorded(last.root, last.after)
            await self.take_back()
        await self.record("before")
        if self._last is not None and self._last.tree:
            # On disk before the check begins: only by this record its changes are told from those of a person.
            await self._contact.record(await self._event("after", self._last))

    async def take_back(self) -> None:
        """Put back what a check wrote since the last record, in a folder that is the agent's own."""
        if not self._alone or self._last is None or not self._last.tree:
            return
        try:
            written = await asyncio.to_thread(take_back_writes, self._last, self._call)
        except (ToolError, OSError) as error:
            self._call.output("note", f"files that the check wrote stay, and count as the agent's: {error}\n")
            return
        if written:
            names = ", ".join(written[:MOST_NAMED]) + (" …" if len(written) > MOST_NAMED else "")
            self._call.output("note", f"files that the check wrote were put back: {names}\n")

    def _recorded(self) -> Recorded:
        before, home = self._last, self._call.home
        if before is not None and before.tree:  # in the same way, also if the agent has made the folder a repository
            return store_with(before.tree, before.root, home).record(self._call.execution)
        return find_store(self._call.workdir, home).record(self._call.execution)


def take_back_writes(before: Recorded, call: Call) -> list[str]:
    """Put the files back as they were recorded before a check; gives their paths. Raises `ToolError`."""
    store = store_with(before.tree, before.root, call.home)
    after = store.record(call.execution).tree
    undone = put_back(store, [RecordedPeriod(before.tree, after)]) if after != before.tree else []
    return [one["path"] for one in undone]


async def files_seen(call: Call, results: Sequence[ev.CheckResult]) -> tuple[str, str]:
    """Folder and content of the files that checks saw which passed, as they left them; empty where that is unknown."""
    if all(result.of_form for result in results):
        return "", ""
    found = await record_of(call)
    return (found.root, found.tree) if found is not None else ("", "")


async def record_of(call: Call) -> Recorded | None:
    """Record the files as they are now; None where that cannot be done."""
    try:
        return await asyncio.to_thread(find_store(call.workdir, call.home).record, call.execution)
    except (ToolError, OSError):
        return None


def changed_files(state: State, named: StepState | None, home: Path) -> list[dict[str, Any]]:
    """The changes of a step and its items, or of all agents, each stretch of work by itself."""
    steps = list(state.steps.values()) if named is None else [named, *(named.children or ())]
    agents = [(step, step.agent) for step in steps if step.agent is not None]
    found = [_view(step, period, agent, home) for step, agent in agents for period in _shown_periods(agent)]
    if found:
        return found
    raise _nothing(state, named, (agent for _, agent in agents), "to show")


def recorded_changes(agents: Iterable[AgentState], home: Path) -> list[str] | None:
    """The files that agents changed, one a line, by the records around their work; None where there is no record."""
    found = _files_of([period for agent in agents for period in agent.periods], home)
    return [f"{shown(path)} ({kind})" for path, kind in found.items()] if found is not None else None


def put_files_back(state: State, step: StepState, home: Path) -> list[dict[str, str]]:
    """Undo what the agents of a step and its items changed; nothing if none of it was recorded."""
    ours = [step, *(step.children or ())]
    periods = sorted(_periods(ours), key=lambda period: period.began)
    if any(not period.after for period in periods):
        raise ToolError("its end was not recorded, so nobody can tell its changes from those of others")
    if (other := worked_beside(state, ours)) is not None:
        raise ToolError(
            f"{other.id} worked in the same folder at the same time, so nobody can tell whose changes they are",
            advice=("next time give each agent a folder of its own, as in: windlass docs workspaces",),
        )
    for one in ours:
        _refuse_merged(one)
    works: list[tuple[Store, list[RecordedPeriod]]] = []
    for root in dict.fromkeys(period.root for period in periods):
        merged = _merged([period for period in periods if period.root == root])
        store = store_with(merged[0].before, root, home)
        works.append((store, [RecordedPeriod(period.before, period.after, period.after_check) for period in merged]))
    kept = {str(Path(one.root)): _own_folder(owner) for owner in ours for one in _periods([owner])}
    return [{**change, **kept[root]} for root, change in put_all_back(works)]


def _refuse_merged(step: StepState) -> None:
    """Raise `ToolError` if another branch has the work: it would stay there when the agent's own folder is put back."""
    agent = step.agent
    folder = agent.workspace if agent is not None else None
    if agent is None or folder is None or agent.commit in ("", folder.base):
        return
    repository = find_repository(Path(folder.repository))
    holders = holders_of(repository, agent.commit) if repository is not None else []
    if (merged := next((name for name in holders if name != f"refs/heads/{folder.branch}"), None)) is not None:
        raise ToolError(
            f"nothing was touched: the work of {step.id} is merged into {shown(merged.split('/', 2)[2])}",
            category=Category.CONFIGURATION,
            advice=(f"take it back there with `git revert`; its last commit is {agent.commit[:12]}",),
        )


def _own_folder(step: StepState) -> dict[str, str]:
    """The folder of the agent's own with the files, and the branch that keeps its commit; nothing for a shared one."""
    agent = step.agent
    if agent is None or (folder := agent.workspace) is None:
        return {}
    has_commit = agent.commit and is_on_branch(Path(folder.repository), agent.commit, folder.branch)
    return {"folder": folder.path, **({"branch": folder.branch} if has_commit else {})}


def worked_beside(state: State, ours: Sequence[StepState]) -> StepState | None:
    """Another step whose agent worked in the same folder at the same time as those of these."""
    periods = _periods(ours)
    for other in state.steps.values():
        if other not in ours and any(one.overlaps(two) for one in periods for two in _periods([other])):
            return other
    return None


def _files_of(periods: Sequence[WorkPeriod], home: Path) -> dict[str, ChangeKind] | None:
    """The files that were changed in stretches of work, each with its last change; None where not all is known."""
    if not periods or any(not period.after for period in periods):
        return None
    found: dict[str, ChangeKind] = {}
    try:
        for period in periods:
            if period.before != period.after:
                store = store_with(period.before, period.root, home)
                found.update((one.path, one.kind) for one in store.changes(period.before, period.after))
    except (ToolError, OSError):
        return None
    return found


def _shown_periods(agent: AgentState) -> list[WorkPeriod]:
    """Its stretches of work without those that changed nothing; one of these, if there is no other."""
    return [period for period in agent.periods if period.before != period.after] or agent.periods[:1]


def _periods(steps: Iterable[StepState]) -> list[WorkPeriod]:
    return [period for step in steps if step.agent is not None for period in step.agent.periods]


def _merged(periods: list[WorkPeriod]) -> list[WorkPeriod]:
    """Stretches of work that overlap, as one."""
    found: list[WorkPeriod] = []
    for period in periods:
        if found and found[-1].overlaps(period):
            last = max(found[-1], period, key=lambda one: one.ended)
            found[-1] = found[-1]._replace(after=last.after, ended=last.ended)
        else:
            found.append(period)
    return found


def _nothing(state: State, named: StepState | None, agents: Iterable[AgentState], what: str) -> UsageError:
    whose = f"step {named.id}" if named is not None else f"execution {state.id}"
    if named is not None and named.undone:
        return UsageError(f"{whose} was undone: it has no changes {what}")
    undone = [step.id for step in state.top_level() if step.undone and step.prepared.is_agent]
    if named is None and undone:
        return UsageError(f"{whose} has no changes {what}: those of {', '.join(undone)} were undone")
    if reasons := [agent.unrecorded for agent in agents if agent.unrecorded]:
        return UsageError(f"{whose} has no changes {what}: {reasons[0]}")
    origin = state.origin.execution if state.origin is not None else ""
    advice = (f"it may have worked in the execution that this one was forked from: windlass diff {origin}",)
    return UsageError(f"{whose} has no changes {what}: no agent has worked on files", advice=advice if origin else ())


def _view(step: StepState, period: WorkPeriod, agent: AgentState, home: Path) -> dict[str, Any]:
    store = store_with(period.before, period.root, home)
    after = period.after or store.record().tree
    files = [
        {
            "path": shown(file.path),
            "change": file.change,
            "added": file.added,
            "removed": file.removed,
            "patch": file.patch,
        }
        for file in store.diffs(period.before, after)
    ]
    ended = bool(period.after)
    return {"step": step.id, "root": period.root, "ended": ended, "note": agent.unrecorded, "files": files}
