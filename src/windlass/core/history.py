"""Records of stopped executions: what each step and the whole took, waited and cost. Pure.

`record_of` makes one from a folded state. Journals keep it in the commit of the event that stops the execution, and
make it again from the events where it is missing, so it never says anything that the journal does not. Waiting for a
person, and pauses, are kept apart from waits for a retry, a quota or a place, and both from work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from windlass.core.transitions import ExecutionStatus, StepStatus

if TYPE_CHECKING:
    from windlass.core.agent import AgentState, Cost
    from windlass.core.state import State
    from windlass.core.step import StepState

__all__ = ["RECORD_FORMAT", "ExecutionRecord", "ModelUsage", "StepRecord", "has_stopped", "matches", "record_of"]

RECORD_FORMAT = 8
"""The version of these records and of their tables. A journal that holds another one makes them again."""

_COMPLETED, _FAILED, _WAITING = StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.WAITING
_encoded = msgspec.json.Encoder().encode


class ModelUsage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of a step's attempts and usage that one runtime and model had."""

    runtime: str
    model: str
    attempts: int = 0
    known_usd: float = 0
    unknown: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def plus(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
            self.runtime,
            self.model,
            self.attempts + other.attempts,
            self.known_usd + other.known_usd,
            self.unknown + other.unknown,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
        )


class StepRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step of a stopped execution; the items of a foreach are summed up in it."""

    step: str
    """Its id, without the index of an item; empty for steps that a changed plan replaced."""
    tool: str
    attempts: int
    """0 for a step that was skipped, or completed without running: by a person's word."""
    started: float | None
    ended: float | None
    """None if it did not settle."""
    worked_s: float
    input_bytes: int
    """The size of its input as JSON."""
    after: str = ""
    """The step that it waited for last; empty if it waited for none."""
    queued_s: float = 0
    """Seconds that its attempts waited for a place, a rate, memory or a breaker."""
    cpu_s: float | None = None
    """Seconds of computing of its processes; None where it is not known."""
    memory: int | None = None
    """The most bytes in memory that an attempt of it had at one time; None where it is not known."""
    status: str = "completed"
    category: str = ""
    """The category of its failure; empty unless it failed."""
    items: int = 0
    """Items of a foreach; 0 for any other step."""
    waited_s: float = 0
    """Seconds that it waited for a retry, a quota or a budget that others held."""
    person_s: float = 0
    """Seconds that it waited for a person, or for its paused execution."""
    runtime: str = ""
    """The runtime, model and role of its agent, as they were last (see `shares`); empty without one."""
    model: str = ""
    role: str = ""
    known_usd: float = 0
    """The part of its cost that is known."""
    unknown: int = 0
    """Attempts of unknown cost."""
    tokens_in: int = 0
    tokens_out: int = 0
    edited: bool = False
    """A person gave it other arguments, or another runtime or model, than the plan."""
    cache_read: int = 0
    """Of `tokens_in`: read from a cache."""
    cache_write: int = 0
    """Of `tokens_in`: written to a cache."""
    asked: str = ""
    """The model as it was asked for; empty for the runtime's own."""
    changed: int | None = None
    """Files that its agents changed, summed up over the items of a foreach; None where it is not known."""
    shares: tuple[ModelUsage, ...] = ()
    """Its attempts and usage by runtime and model, where there was more than the last of these."""

    @property
    def usd(self) -> float | None:
        """Its cost; None where any of it is unknown, which is not the same as nothing."""
        return None if self.unknown else self.known_usd


class ExecutionRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stopped execution: finished, or paused until it goes on."""

    id: str
    plan: str
    """The plan's name."""
    digest: str
    """The plan's digest."""
    status: str
    category: str
    """The category of its failure; empty unless it failed."""
    created: float
    started: float | None
    """None if it was cancelled before it began."""
    ended: float
    """The time at which it stopped."""
    took_s: float
    """Seconds that it ran, without pauses and without the time in which only a person could go on."""
    person_s: float
    """The rest of the time between its start and its end."""
    queued_s: float
    """This and the next two are sums over its steps, which may run at once."""
    waited_s: float
    worked_s: float
    known_usd: float
    unknown: int
    """Attempts of unknown cost."""
    tokens_in: int
    tokens_out: int
    attempts: int
    steps: tuple[StepRecord, ...]
    cpu_s: float | None = None
    """The sum of its steps; None where nothing of it is known."""
    memory: int | None = None
    """The most of one of its steps."""
    changed: int | None = None
    """Files that the agents of its steps changed; one that two steps changed counts twice."""
    plain: bool = False
    """Every step completed at its first attempt between its beginning and its end, and nothing but times and a size is
    known of it: records of this kind are summed up together."""

    @property
    def usd(self) -> float | None:
        """Its cost; None where any of it is unknown."""
        return None if self.unknown else self.known_usd


def matches(record: StepRecord, step: str | None, tool: str | None, runtime: str | None, model: str | None) -> bool:
    """True for a step that ran to its end and is the one that is asked for."""
    if record.ended is None or not record.attempts or record.status not in ("completed", "failed"):
        return False
    given = ((step, record.step), (tool, record.tool), (runtime, record.runtime), (model, record.model))
    return all(wanted is None or wanted == found for wanted, found in given)


def has_stopped(state: State) -> bool:
    """True if an execution is finished or paused, so that it has a record."""
    return state.status is ExecutionStatus.PAUSED or state.status.finished


def record_of(state: State) -> ExecutionRecord:
    """Sum up a stopped execution."""
    ended = state.stopped_at if state.stopped_at is not None else state.updated_at
    graph, known = state.prepared.graph, state.steps
    group_of, after = graph.group_of, list(graph.after)
    for group in graph.joins:  # steps that wait for the same ones share the answer
        after[group] = _last_settled(known, graph.needs[graph.groups[group][0]])
    first = state.started_at if state.started_at is not None else ended
    ran = list(map(known.__getitem__, graph.order))
    if state.origin is not None:
        ran = [step for step in ran if not _is_kept(step)]
    others: list[StepRecord] = []
    steps = [
        # Nearly every step. Written out here, because the record may cost only a little of what the step does.
        StepRecord(
            step.id,
            step.prepared.tool,
            step.attempts,
            step.started_at,
            step.finished_at,
            step.worked,
            len(_encoded(step.input)),
            after[group_of[step.id]],
            step.queued or 0,
        )
        if step.status is _COMPLETED
        and step.agent is None
        and step.used is None
        and not (step.waited or step.children or step.edits or step.prepared.is_agent)
        else _other(step, ended, after[group_of[step.id]], others)
        for step in ran
    ]
    queued, worked = sum([step.queued_s for step in steps]), sum([step.worked_s for step in steps])
    tries = [step.attempts for step in steps]
    if state.spent_before.usd or state.spent_before.unknown or state.spent_before.tokens_in:
        others.append(_replaced(state.spent_before))
        steps.append(others[-1])
    ends = [step.ended or 0.0 for step in steps]
    in_time = first <= min(ends, default=first) and max(ends, default=ended) <= ended
    plain = in_time and not others and tries.count(1) == len(tries)
    waited, usd, unknown, tokens_in, tokens_out = 0.0, 0.0, 0, 0, 0
    for other in others:
        waited, usd, unknown = waited + other.waited_s, usd + other.known_usd, unknown + other.unknown
        tokens_in, tokens_out = tokens_in + other.tokens_in, tokens_out + other.tokens_out
    took = max(0.0, state.worked_s - state.held_s)
    return ExecutionRecord(
        state.id,
        state.plan.name,
        state.plan.digest,
        state.status.value,
        state.error.category.value if state.error is not None else "",
        state.created_at,
        state.started_at,
        ended,
        took,
        max(0.0, ended - state.started_at - took) if state.started_at is not None else 0.0,
        queued,
        waited,
        worked,
        usd,
        unknown,
        tokens_in,
        tokens_out,
        sum(tries),
        tuple(steps),
        *((None, None) if plain else _used(steps)),
        changed=_changed(others) if others else None,
        plain=plain,
    )


def _other(step: StepState, ended: float, after: str, others: list[StepRecord]) -> StepRecord:
    """The record of a step of which more is known than times, which is noted among the others."""
    others.append(_step(step, ended, after))
    return others[-1]


def _is_kept(step: StepState) -> bool:
    """True for a step of a fork that ran in the original execution."""
    items = step.children
    ran = step.attempts or (items is not None and (not items or any(item.attempts for item in items)))
    return step.status is _COMPLETED and not ran


def _used(steps: list[StepRecord]) -> tuple[float | None, int | None]:
    """Seconds of computing of all together, and the most memory of one; None where nothing is known."""
    cpus = [step.cpu_s for step in steps if step.cpu_s is not None]
    return sum(cpus) if cpus else None, max([step.memory for step in steps if step.memory is not None], default=None)


def _changed(steps: list[StepRecord]) -> int | None:
    """Files that agents changed, of all together; None where nothing is known."""
    counts = [step.changed for step in steps if step.changed is not None]
    return sum(counts) if counts else None


def _last_settled(steps: dict[str, StepState], needs: tuple[str, ...]) -> str:
    return max(needs, key=lambda need: steps[need].finished_at or 0.0)


def _step(step: StepState, ended: float, after: str) -> StepRecord:
    if step.children is not None:
        return _foreach(step, ended, after)
    waited, agent = step.waited, step.agent
    if step.status is _WAITING and step.waiting_since is not None:
        waited += max(0.0, ended - step.waiting_since)
    cost = agent.cost if agent is not None else None
    return StepRecord(
        step.id,
        step.prepared.tool,
        step.attempts,
        step.started_at,
        step.finished_at,
        step.worked,
        len(_encoded(step.input)),
        after,
        step.queued,
        *((used.cpu, used.memory) if (used := step.used) is not None else (None, None)),
        status=step.status.value,
        category=step.error.category.value if step.error is not None and step.status is _FAILED else "",
        waited_s=max(0.0, waited - step.person) if waited else 0.0,
        person_s=step.person,
        runtime=agent.runtime if agent is not None else "",
        model=agent.model if agent is not None else "",
        role=agent.role if agent is not None else step.spec.agent or "" if step.prepared.is_agent else "",
        known_usd=cost.usd if cost is not None else 0.0,
        unknown=cost.unknown if cost is not None else 0,
        tokens_in=cost.tokens_in if cost is not None else 0,
        tokens_out=cost.tokens_out if cost is not None else 0,
        edited=bool(step.edits or step.runtime or step.model),
        cache_read=sum([usage.cache_read for usage in agent.usage.values()]) if agent is not None else 0,
        cache_write=sum([usage.cache_write for usage in agent.usage.values()]) if agent is not None else 0,
        asked=agent.asked if agent is not None else "",
        changed=agent.changed if agent is not None else None,
        shares=_shares(agent, step.attempts) if agent is not None else (),
    )


def _shares(agent: AgentState, attempts: int) -> tuple[ModelUsage, ...]:
    """Split its attempts and usage by runtime and model, unless all are of the last.

    What cannot be told apart is the last one's: attempts without a report, and the unknown rest of those cut off.
    """
    from windlass.core.agent import Cost  # most executions have no agent

    last = (agent.runtime, agent.model)
    if all(one == last for one in agent.done_by.values()):
        return ()
    found = {last: ModelUsage(*last, attempts, unknown=agent.cut_off)}
    for number, done_by in agent.done_by.items():
        cost = Cost.of([agent.usage[number]])
        own = number <= attempts  # a merge has an agent go on without an attempt of its step
        one = ModelUsage(*done_by, own, cost.usd, cost.unknown, cost.tokens_in, cost.tokens_out)
        found[done_by] = found.get(done_by, ModelUsage(*done_by)).plus(one)
        found[last] = found[last].plus(ModelUsage(*last, -own))
    return tuple(found.values())


def _shares_of_items(items: list[StepRecord], named: StepRecord | None) -> tuple[ModelUsage, ...]:
    """The same of all items of a foreach; `named` is the one by whose agent it is named."""
    found: dict[tuple[str, str], ModelUsage] = {}
    for item in items:
        own = (item.runtime, item.model, item.attempts, item.known_usd, item.unknown, item.tokens_in, item.tokens_out)
        for share in item.shares or (ModelUsage(*own),):
            if not share.runtime and named is not None:  # no agent worked on it
                share = msgspec.structs.replace(share, runtime=named.runtime, model=named.model)
            done_by = (share.runtime, share.model)
            found[done_by] = found[done_by].plus(share) if done_by in found else share
    return tuple(found.values()) if len(found) > 1 else ()


def _foreach(step: StepState, ended: float, after: str) -> StepRecord:
    """Sum up a foreach and its items."""
    items = [_step(item, ended, "") for item in step.children or ()]
    named = next((item for item in reversed(items) if item.runtime), None)
    return StepRecord(
        step.id,
        step.prepared.tool,
        sum([item.attempts for item in items]),
        step.started_at,
        step.finished_at,
        sum([item.worked_s for item in items]),
        sum([item.input_bytes for item in items]),
        after,
        sum([item.queued_s for item in items]),
        *_used(items),
        status=step.status.value,
        category=step.error.category.value if step.error is not None and step.status is _FAILED else "",
        items=len(items),
        waited_s=sum([item.waited_s for item in items]),
        person_s=step.person + sum([item.person_s for item in items]),
        runtime=named.runtime if named is not None else "",
        model=named.model if named is not None else "",
        role=named.role if named is not None else "",
        known_usd=sum([item.known_usd for item in items]),
        unknown=sum([item.unknown for item in items]),
        tokens_in=sum([item.tokens_in for item in items]),
        tokens_out=sum([item.tokens_out for item in items]),
        edited=any([item.edited for item in items]),
        cache_read=sum([item.cache_read for item in items]),
        cache_write=sum([item.cache_write for item in items]),
        asked=named.asked if named is not None else "",
        changed=_changed(items),
        shares=_shares_of_items(items, named),
    )


def _replaced(cost: Cost) -> StepRecord:
    """The spending of steps that a changed plan made begin anew, or removed."""
    return StepRecord(
        "",
        "",
        0,
        None,
        None,
        0.0,
        0,
        status="replaced",
        known_usd=cost.usd,
        unknown=cost.unknown,
        tokens_in=cost.tokens_in,
        tokens_out=cost.tokens_out,
    )
