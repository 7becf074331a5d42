"""Merge the branches of agents' worktrees (K4): one after the other, each checked, the target last.

All of it happens in a worktree of its own, on a branch of its own that moves only past what was checked. So after a
crash the next attempt goes on behind the last branch that passed, and nothing is merged twice. Where one does not
merge, or does not pass, its agent goes on in its conversation (`reopen`), and it is merged again; what still does not
stays on its branch and is named. Where the plan says so, a person is asked with the whole difference. The branch that
is checked out in the repository moves last, forward only and by git itself, which refuses where that would overwrite
changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from windlass.core import events as ev
from windlass.core.state import StepState
from windlass.core.transitions import StepStatus
from windlass.engine.agents.checks import WorkChecks, check_and_end
from windlass.engine.agents.deps import AgentDeps
from windlass.engine.agents.file_changes import WorkRecorder
from windlass.engine.agents.plan_output import PlanCatalog
from windlass.engine.agents.reopen import can_go_on, go_on
from windlass.errors import Category, ToolError
from windlass.plan.model import MERGE
from windlass.ports import Call, Contact
from windlass.workspaces.bundles import bring_branch, bundle_of
from windlass.workspaces.merges import MergeFolder

__all__ = ["merge_branches"]

LONGEST_DIFFERENCE = 100_000
"""Characters of the difference that a person is shown with the question."""


class _Branch(NamedTuple):
    step: str
    name: str
    commit: str


async def merge_branches(deps: AgentDeps, arguments: Mapping[str, Any], call: Call, contact: Contact) -> Any:
    """Merge the branches of a step's agents; the step's output, or an error that names what is left."""
    step = contact.state.steps[str(arguments["step"])]
    agents = step.children if step.children is not None else [step]
    chosen = _chosen(step, arguments["only"]) if "only" in arguments else agents
    branches = [branch for one in chosen if (branch := _branch_of(one)) is not None]
    if not branches and chosen:
        if any(one.undone for one in chosen):
            raise ToolError(f"step {step.id} has no work to merge: it was undone", category=Category.CONFIGURATION)
        raise ToolError(
            f"step {step.id} has no work to merge: none of its agents has completed in a worktree",
            category=Category.CONFIGURATION,
            advice=(f"give step {step.id} a `workspace: worktree`",),
        )
    if contact.files is not None:
        for branch in branches:
            bundle = bundle_of(call.scratch.parent / branch.step)
            await asyncio.to_thread(bring_branch, call.workdir, branch.name, branch.commit, bundle)
    folder = await asyncio.to_thread(MergeFolder.open, call.workdir, call.execution, call.step)
    there = msgspec.structs.replace(call, workdir=folder.workdir)
    catalog = PlanCatalog(contact.tools, deps.misfits, folder.workdir)
    files = WorkRecorder(there, contact, deps.clock, alone=False)  # the folder itself goes back after each check
    checks = WorkChecks(arguments, there, contact, deps.clock, deps.policy, catalog, files)
    merged: list[dict[str, str]] = []
    left: list[dict[str, Any]] = []
    for branch in branches:
        branch = branch._replace(commit=await asyncio.to_thread(folder.newest, branch.name, branch.commit))
        reason = await _merge_one(folder, branch, checks)
        owner = contact.state.steps[branch.step]
        if reason and can_go_on(owner):
            others = await asyncio.to_thread(folder.kept)
            reason = await go_on(deps, owner, others, reason, arguments.get("check", ()), call, contact)
            if not reason:
                branch = branch._replace(commit=await asyncio.to_thread(folder.newest, branch.name, branch.commit))
                reason = await _merge_one(folder, branch, checks)
        named = {"step": branch.step, "branch": branch.name, "commit": branch.commit}
        call.output("note", f"{branch.name}: {reason or 'merged'}\n")
        if reason:
            left.append({**named, "reason": reason})
        else:
            merged.append(named)
    return await _finish(folder, merged, left, checks, partial(_ask, deps, folder, contact))


def _chosen(step: StepState, only: Any) -> list[StepState]:
    """The items that `only` names, in the order of the items. Each has to have work: it was chosen for it."""
    items = step.children or ()
    wanted = only if isinstance(only, list | tuple) else [only]
    numbers = range(len(items))
    if strange := [one for one in wanted if isinstance(one, bool) or one not in numbers]:
        most = len(items) - 1
        raise ToolError(
            f"`only` names {strange[0]!r}, and the items of {step.id} are 0 to {most}", category=Category.LOGIC
        )
    found = [items[number] for number in sorted({int(one) for one in wanted})]
    if idle := [item for item in found if _branch_of(item) is None]:
        idle_because = "was undone" if idle[0].undone else f"is {idle[0].status}"
        raise ToolError(
            f"`only` names {idle[0].id}, which has no work to merge: it {idle_because}", category=Category.LOGIC
        )
    return found


def _branch_of(step: StepState) -> _Branch | None:
    agent = step.agent
    if step.status is not StepStatus.COMPLETED or step.undone or agent is None:
        return None
    if agent.workspace is None or not agent.commit:
        return None
    return _Branch(step.id, agent.workspace.branch, agent.commit)


async def _merge_one(folder: MergeFolder, branch: _Branch, checks: WorkChecks) -> str:
    """Merge a branch and check the result; gives the reason if it stays where it is."""
    tip = await asyncio.to_thread(folder.merge, branch.commit, f"merge {branch.step}")
    if tip.conflicts:
        return "conflicts in " + ", ".join(tip.conflicts)
    if tip.is_new:
        if (failed := await _failed(checks)) is not None:
            await asyncio.to_thread(folder.reset)
            return f"with it this check fails: {check_and_end(failed)}"
        await asyncio.to_thread(folder.keep)
    return ""


async def _failed(checks: WorkChecks) -> ev.CheckResult | None:
    return next((result for result in await checks.look() if not result.passed), None)


async def _ask(deps: AgentDeps, folder: MergeFolder, contact: Contact, target: str) -> str:
    """Ask a person before the target moves, where the plan or the settings say so; gives the reason if it may not."""
    if not deps.policy.asks(contact.step.prepared):
        return ""
    difference = await asyncio.to_thread(folder.difference)
    if len(difference) > LONGEST_DIFFERENCE:
        difference = f"{difference[:LONGEST_DIFFERENCE]}\n… see all of it: git diff {target}...{folder.branch}\n"
    commit = await asyncio.to_thread(folder.kept)
    shown = {"target": target, "branch": folder.branch, "commit": commit, "diff": difference}
    answer = await contact.ask(MERGE, shown, folder.workdir)
    return "" if answer.allow else f"denied by a person{f': {answer.note}' if answer.note else ''}"


async def _finish(
    folder: MergeFolder,
    merged: list[dict[str, str]],
    left: list[dict[str, Any]],
    checks: WorkChecks,
    ask: Callable[[str], Awaitable[str]],
) -> dict[str, Any]:
    target = await asyncio.to_thread(folder.target)
    stays = ""
    if merged and target:
        stays = await _catch_up(folder, target, checks) or await ask(target)
        stays = stays or await _catch_up(folder, target, checks) or await asyncio.to_thread(folder.move_target)
    commit = await asyncio.to_thread(folder.close, moved=bool(merged and target and not stays))
    output = {
        "merged": merged,
        "left": left,
        "branch": folder.branch,
        "commit": commit,
        "target": target,
        "stays": stays,
    }
    if left or stays:
        raise _unfinished(output)
    return output


async def _catch_up(folder: MergeFolder, target: str, checks: WorkChecks) -> str:
    """Merge what somebody has committed to the target meanwhile; gives the reason if that does not go."""
    while await asyncio.to_thread(folder.target_moved):
        found = _Branch(target, target, await asyncio.to_thread(folder.target_tip))
        if reason := await _merge_one(folder, found, checks):
            return f"{target} has moved on: {reason}"
    return ""


def _unfinished(output: dict[str, Any]) -> ToolError:
    left, stays = output["left"], output["stays"]
    parts = [f"{one['step']} stays on {one['branch']}: {one['reason']}" for one in left]
    if stays:
        parts.append(f"the merged work stays on {output['branch']}, and {output['target']} where it is: {stays}")
    advice = [f"look at it: git diff {one['branch']}" for one in left[:1]]
    advice += [f"take it over: git merge {output['branch']}"] if stays else []
    return ToolError("\n".join(parts), category=Category.LOGIC, advice=(*advice, "then retry the step"), output=output)
