"""The dependency graph of a plan's steps, computed once and shared by every execution of the plan.

A step waits for the steps in its `needs` and for every step that its templates or its program read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from windlass.plan.model import Plan, Step
from windlass.plan.program import steps_read
from windlass.plan.template import Reference, references

__all__ = ["Graph", "find_cycle", "step_references", "templates_of"]


class Graph(msgspec.Struct, frozen=True):
    needs: dict[str, tuple[str, ...]]
    """The steps that each step waits for."""
    dependents: dict[str, tuple[str, ...]]
    """The steps that wait for each step."""
    in_charge: dict[str, frozenset[str]]
    """Steps whose failing or being skipped a step handles itself: its `when` reads `steps.X.status`."""
    order: tuple[str, ...]
    """Every step after those it waits for; where that leaves a choice, in the plan's order."""
    groups: tuple[tuple[str, ...], ...]
    """Steps that wait for the same steps: one counter tells when all of a group may start."""
    group_of: dict[str, int]
    feeds: dict[str, tuple[int, ...]]
    """The groups that wait for each step."""
    after: tuple[str, ...]
    """The one step that each group waits for; empty for a group that waits for none, or for several."""
    joins: tuple[int, ...]
    """The groups that wait for several steps."""

    @classmethod
    def of(cls, plan: Plan) -> Graph:
        known = {step.id for step in plan.steps}
        needs: dict[str, tuple[str, ...]] = {}
        in_charge: dict[str, frozenset[str]] = {}
        dependents: dict[str, list[str]] = {step.id: [] for step in plan.steps}
        for step in plan.steps:
            looks_at = {r.name for r in step_references(step) if r.root == "steps" and r.name in known}
            looks_at.discard(step.id)  # its program gives the name `steps` to something of its own
            given = step.handoff if isinstance(step.handoff, tuple) else ()
            merged = (step.merge,) if step.merge in known else ()
            ordered = dict.fromkeys((*step.needs, *given, *merged, *sorted(n for n in looks_at if n is not None)))
            needs[step.id] = tuple(ordered)
            for need in ordered:
                dependents[need].append(step.id)
            if isinstance(step.when, str):
                handled = frozenset(
                    r.name
                    for r in references(step.when, expression=True)
                    if r.root == "steps" and r.name is not None and r.field == "status"
                )
                if handled:
                    in_charge[step.id] = handled
        after = {step: tuple(waiting) for step, waiting in dependents.items()}
        groups, group_of, feeds = _grouped(needs)
        before = [needs[steps[0]] for steps in groups]
        return cls(
            needs,
            after,
            in_charge,
            _ordered(needs, dependents),
            groups,
            group_of,
            feeds,
            tuple([steps[0] if len(steps) == 1 else "" for steps in before]),
            tuple([group for group, steps in enumerate(before) if len(steps) > 1]),
        )

    def descendants(self, step: str) -> list[str]:
        """Every step that waits for this one, directly or not, nearest first."""
        seen = dict.fromkeys(self.dependents[step])
        queue = list(seen)
        for current in queue:
            for after in self.dependents[current]:
                if after not in seen:
                    seen[after] = None
                    queue.append(after)
        return list(seen)


def _grouped(
    needs: Mapping[str, Sequence[str]],
) -> tuple[tuple[tuple[str, ...], ...], dict[str, int], dict[str, tuple[int, ...]]]:
    """The steps by what they wait for, the group of each, and the groups that wait for each."""
    members: dict[frozenset[str], list[str]] = {}
    for step, before in needs.items():
        members.setdefault(frozenset(before), []).append(step)
    group_of = {step: group for group, steps in enumerate(members.values()) for step in steps}
    feeds: dict[str, list[int]] = {step: [] for step in needs}
    for group, before_all in enumerate(members):
        for need in before_all:
            feeds[need].append(group)
    return tuple(map(tuple, members.values())), group_of, {step: tuple(groups) for step, groups in feeds.items()}


def _ordered(needs: Mapping[str, Sequence[str]], dependents: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """A topological order: of the steps that could be next, always the first in the plan."""
    place = {step: number for number, step in enumerate(needs)}
    names = list(needs)
    unmet = {step: len(before) for step, before in needs.items()}
    ready = [place[step] for step, count in unmet.items() if count == 0]
    ordered: list[str] = []
    while ready:  # a sorted list is a heap
        step = names[heapq.heappop(ready)]
        ordered.append(step)
        for after in dependents[step]:
            unmet[after] -= 1
            if unmet[after] == 0:
                heapq.heappush(ready, place[after])
    return tuple(ordered)


def templates_of(step: Step) -> Iterator[tuple[str, str, bool]]:
    """Every template of a step: where it stands, its text, and whether it is an expression."""
    if isinstance(step.when, str):
        yield "when", step.when, True
    if isinstance(step.foreach, str):
        yield "foreach", step.foreach, True
    elif step.foreach is not None:
        yield from _texts("foreach", step.foreach)
    if step.run is not None:
        yield from _texts("run", step.run)
    if step.prompt is not None:
        yield from _texts("prompt", step.prompt)
        yield from _texts("files", step.files)
        yield from _texts("model", step.model)
        yield from _texts("models", step.models)
        if step.workspace is not None:
            yield from _texts("workspace.files", step.workspace.files)
    if isinstance(step.only, str):
        yield "only", step.only, True
    if step.all_checks:
        arguments = step.arguments
        for where, key in (("check", "check"), ("pick.check", "pick")):
            for index, use in enumerate(arguments.get(key, ())):
                yield from _texts(f"{where}[{index}]", use["with"])
        yield from _texts("protect", step.protect)
    yield from _texts("question", step.question)
    yield from _texts("with", step.with_)
    yield from _texts("workdir", step.workdir)
    yield from _texts("env", step.env)
    if step.service is not None:
        yield from _texts("service", step.arguments["service"])


def _texts(where: str, value: Any) -> Iterator[tuple[str, str, bool]]:
    if isinstance(value, str):
        if "{" in value:
            yield where, value, False
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(f"{where}.{key}", inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _texts(f"{where}[{index}]", inner)


def step_references(step: Step) -> set[Reference]:
    """Return the references in a step's templates, and the steps that its program reads."""
    found: set[Reference] = set()
    for _where, text, expression in templates_of(step):
        found |= references(text, expression=expression)
    if step.code is not None:
        found |= {Reference(read.root, read.name, read.field) for read in steps_read(step.code)}
    return found


def find_cycle(needs: Mapping[str, Sequence[str]]) -> list[str] | None:
    """One cycle as `[a, b, c, a]`, or None. Iterative: a plan may be 20,000 steps deep."""
    done: set[str] = set()
    for start in needs:
        if start in done:
            continue
        path: list[str] = []
        on_path: dict[str, int] = {}
        stack: list[Iterator[str]] = []
        current: str | None = start
        while True:
            if current is not None:
                if current in on_path:
                    return [*path[on_path[current] :], current]
                if current not in done and current in needs:
                    on_path[current] = len(path)
                    path.append(current)
                    stack.append(iter(needs[current]))
            if not stack:
                break
            current = next(stack[-1], None)
            if current is None:
                stack.pop()
                finished = path.pop()
                del on_path[finished]
                done.add(finished)
    return None
