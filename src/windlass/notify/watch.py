"""Finds the occasions of notifications in an execution's events, and makes notes of them by the rules.

Called on the path of every commit of a process that has rules. Nothing here waits or reads, but for the key of the home
when a link is signed for the first time.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from windlass.clock import iso
from windlass.core import events as ev
from windlass.core.budget import Scope, Standing, day_of, money, month_of, shown
from windlass.core.state import State
from windlass.core.transitions import StepStatus
from windlass.notify.texts import Occasion, Wording, plain
from windlass.ports import Note
from windlass.settings.tables import LOCAL_CHANNELS, NotifyRule

if TYPE_CHECKING:
    from windlass.homes.key import HomeKey

__all__ = ["SHORTEST_WAIT", "ExecutionWatch", "NoteMaker", "budget_occasions"]

_log = logging.getLogger("windlass.notify")

NEWS = 3600.0
"""Seconds for which something is news: what could not be sent by then is not sent."""
QUESTION_NEWS = 86400.0
"""The same for a question that is still open."""
BELL_NEWS = 60.0
SHORTEST_WAIT = 2.0
"""Seconds that a question is open before anybody is told: `--yes` and people at their terminal answer before."""
SHARE = 0.8
"""The part of a limit from which on people are told."""
_WORK = (ev.AgentSpoke, ev.AgentActed, ev.AgentReturned, ev.UsageReported, ev.AttemptFinished)
"""Signs that an agent works again, after a wait for its quota."""
_SPENT = (ev.UsageReported, ev.AttemptFinished, ev.AttemptFailed, ev.AttemptStopped)
"""After these the ledger has the spending: an attempt's reservation is settled before its end is recorded."""
_TOLD = (ev.ApprovalAsked, ev.StepWaiting, ev.ExecutionFinished, ev.ExecutionPaused)
_OF_INTEREST = frozenset({*_WORK, *_SPENT, *_TOLD})
_END_KINDS = {"failed": ("failed",), "partial": ("failed", "done")}
"""The kinds of an end; of every other end it is `done`. A partial one has failed steps and results: it is told to both
kinds of rule, as a failure."""


class NoteMaker:
    """Makes the notes of an occasion: one for each place that a rule names."""

    def __init__(
        self,
        rules: Sequence[NotifyRule],
        wording: Wording,
        key: Callable[[], HomeKey],
        owner: Callable[[], str],
        *,
        bell: bool,
    ) -> None:
        """`key` signs links; `owner` names this process; `bell` says that it has a terminal."""
        self._rules = [rule for rule in rules if bell or rule.to != "bell"]
        self._wording, self._key, self._owner = wording, key, owner

    @property
    def counts_money(self) -> bool:
        return any("budget" in rule.on for rule in self._rules)

    def names(self, to: str, recipient: str) -> bool:
        """Tell whether a rule still names that place."""
        return any(rule.to == to and recipient in (rule.recipients or ("",)) for rule in self._rules)

    def notes(self, occasion: Occasion, plan: str, execution: str) -> list[Note]:
        found: dict[str, Note] = {}
        for rule in self._rules:
            if not _fits(rule, occasion, plan):
                continue
            for recipient in rule.recipients or ("",):
                note = self._note(rule, recipient, occasion, execution)
                found.setdefault(note.key, note)
        return list(found.values())

    def _note(self, rule: NotifyRule, recipient: str, occasion: Occasion, execution: str) -> Note:
        where = "home" if occasion.everywhere else execution
        link = ""
        if occasion.question is not None:
            step, digest, ends = occasion.question
            link = self._key().approval_link(execution, step, digest, ends, recipient or rule.to)
        local = rule.to in LOCAL_CHANNELS
        title, text, data = self._wording.words(occasion, link, content=rule.content, local=local)
        due = occasion.at if occasion.due is None else occasion.due
        due += max(rule.after, SHORTEST_WAIT) if occasion.while_open and occasion.due is None else 0.0
        news = BELL_NEWS if rule.to == "bell" else QUESTION_NEWS if occasion.until else NEWS
        until = min(due + news, occasion.until or due + news)
        return Note(
            f"{where} {occasion.name} {rule.to} {recipient}".rstrip(),
            execution,
            occasion.kinds[0],
            rule.to,
            recipient,
            occasion.at,
            due,
            max(until, due),
            title,
            text,
            data,
            self._owner(),
            occasion.while_open,
        )


def _fits(rule: NotifyRule, occasion: Occasion, plan: str) -> bool:
    return (
        any(kind in rule.on for kind in occasion.kinds)
        and (occasion.ran is None or occasion.ran >= rule.after)
        and (not rule.plans or any(fnmatch.fnmatchcase(plan, pattern) for pattern in rule.plans))
    )


class ExecutionWatch:
    """Watches one execution."""

    def __init__(self, state: State, maker: NoteMaker, spent: Callable[[State, str], None]) -> None:
        """`spent` is called with each step that has used something, if a rule is about budgets."""
        self._state, self._maker, self._spent = state, maker, spent
        self._quota = {
            step.id: step.waiting_since or 0.0 for step in state.steps.values() if step.waiting_for == "quota"
        }
        """Steps that wait, or have waited, for a quota, and have not worked since; with the time of the first wait."""
        self._out = set(state.quotas) if self._quota else set()
        """Accounts whose quota people were told of."""

    def __call__(self, events: Sequence[ev.Event]) -> Sequence[Note]:
        notes: list[Note] = []
        try:
            seq = self._state.seq - len(events)
            for number, event in enumerate(events, seq + 1):
                if type(event) in _OF_INTEREST:
                    for occasion in self._occasions(event, number):
                        notes += self._maker.notes(occasion, self._state.plan.name, self._state.id)
        except Exception:  # whatever it is: a notification must not keep an execution from going on
            _log.exception("no notification could be made for %s", self._state.id)
        return notes

    def _occasions(self, event: ev.Event, seq: int) -> Iterator[Occasion]:
        match event:
            case ev.ApprovalAsked():
                yield self._question(event, seq)
            case ev.StepWaiting() if event.reason == "quota":
                yield from self._quota_reached(event, seq)
            case ev.StepWaiting() if event.until is None and event.reason in ("outcome", "budget"):
                yield self._waiting(event, seq)
            case ev.ExecutionFinished():
                yield self._finished(event, seq)
            case ev.ExecutionPaused() if event.reason == "quota" and self._state.quotas:
                yield self._back(min(self._state.quotas.values()), event.at)
        if isinstance(event, _SPENT) and self._maker.counts_money:
            self._spent(self._state, event.step)
        if isinstance(event, _WORK) and event.step in self._quota:
            waited = event.at - min(self._quota.values())
            self._quota.clear()
            self._out.clear()
            # Of a shorter wait nobody was told: its note is moot by now.
            if self._state.quotas and waited >= SHORTEST_WAIT:
                yield self._back(min(self._state.quotas.values()), event.at, waited)

    # -- occasions -------------------------------------------------------------------------------

    def _question(self, asked: ev.ApprovalAsked, seq: int) -> Occasion:
        step, tool = plain(asked.step), plain(asked.tool)
        content = json.dumps(asked.input, indent=2, ensure_ascii=False)
        return Occasion(
            ("approval",),
            f"approval {seq}",
            asked.at,
            f"{self._plan}: step {step} is waiting for approval",
            (f"Step {step} of {self._plan} asks to use {tool}.", self._where, *self._cost()),
            self._data(step=asked.step, status="waiting", tool=asked.tool),
            (
                f"approve {self._state.id} {_quoted(asked.step)}",
                f"approve {self._state.id} {_quoted(asked.step)} --deny",
            ),
            content=f"{asked.question}\n{content}".strip(),
            question=(asked.step, asked.digest, asked.expires_at),
            while_open=f"approval {asked.digest}",
            until=asked.expires_at,
        )

    def _waiting(self, event: ev.StepWaiting, seq: int) -> Occasion:
        step = plain(event.step)
        outcome = event.reason == "outcome"
        says = "the outcome of its last attempt is unknown" if outcome else "a limit of the budget is reached"
        resume = f"resume {self._state.id}"
        return Occasion(
            ("approval",) if outcome else ("budget", "approval"),
            f"{event.reason} {seq}",
            event.at,
            f"{self._plan}: step {step} needs a decision",
            (f"Step {step} of {self._plan}: {says}.", self._where, *self._cost()),
            self._data(step=event.step, status="waiting", reason=event.reason),
            (
                f"status {self._state.id}",
                f"{resume} --again {_quoted(event.step)}" if outcome else f"{resume} --budget USD",
            ),
            content=event.question,
            while_open=f"waits {event.step}",
            until=event.at + QUESTION_NEWS,
        )

    def _finished(self, event: ev.ExecutionFinished, seq: int) -> Occasion:
        state, failure = self._state, event.error
        lines = [f"{self._plan} is {event.status}.", f"Execution {state.id}."]
        title = f"{self._plan}: {event.status}"
        if failure is not None:
            where = f"step {plain(failure.where)}" if failure.where in state.steps else "it"
            lines.append(f"{where[0].upper()}{where[1:]} failed: {failure.category}.")
            others = [s.id for s in state.top_level() if s.status is StepStatus.FAILED and s.error != failure]
            if others:
                lines.append(f"Also failed: {_first_of(others)}.")
            if event.status == "partial":
                title += f", {where} failed"
        if event.lacks:
            lines.append(f"Without a result: {_first_of(event.lacks)}.")
        began = state.started_at or state.created_at
        data = self._data(status=event.status)
        if failure is not None:
            data |= {"step": failure.where, "category": str(failure.category)}
        return Occasion(
            _END_KINDS.get(event.status, ("done",)),
            f"finished {seq}",
            event.at,
            title,
            (*lines, *self._cost()),
            data,
            (f"status {state.id}",),
            content=failure.message if failure is not None else "",
            ran=max(0.0, event.at - began),
        )

    def _quota_reached(self, event: ev.StepWaiting, seq: int) -> Iterator[Occasion]:
        self._quota.setdefault(event.step, event.at)
        account = event.account or event.runtime
        if account in self._out:
            return
        self._out.add(account)
        back = f"It is back at {iso(event.until)}." if event.until is not None else "When it is back is not known."
        yield Occasion(
            ("quota",),
            f"quota {seq}",
            event.at,
            f"{self._plan}: quota of {plain(account)} is used up",
            (f"Step {plain(event.step)} of {self._plan} waits for the quota of {plain(account)}. {back}", self._where),
            self._data(step=event.step, status="used up", account=account, back_at=iso(event.until)),
            (f"status {self._state.id}",),
            content=event.question,
            while_open="quota",
        )

    def _back(self, at: float, now: float, waited: float | None = None) -> Occasion:
        """A quota's return: by the clock while the execution is paused, else by the first work after it `waited`."""
        paused = waited is None
        goes_on = "is paused: resume it" if paused else "continues"
        return Occasion(
            ("quota",),
            f"quota back {at:.0f}",
            now,
            f"{self._plan}: quota is back",
            (f"The quota that {self._plan} waited for is back. It {goes_on}.", self._where),
            self._data(status="back"),
            (f"resume {self._state.id}",) if paused else (),
            while_open="paused quota" if paused else "",
            due=at if paused else None,
            ran=waited,
        )

    # -- parts -----------------------------------------------------------------------------------

    @property
    def _plan(self) -> str:
        return plain(self._state.plan.name)

    @property
    def _where(self) -> str:
        return f"Execution {self._state.id}."

    def _cost(self) -> Iterable[str]:
        cost = self._state.cost
        if not cost.tokens and not cost.usd:
            return ()
        unknown = f", and {cost.unknown} attempts of unknown cost" if cost.unknown else ""
        return (f"Cost so far: {money(cost.usd)}{unknown}.",)

    def _data(self, **more: Any) -> dict[str, Any]:
        cost = self._state.cost
        usd = round(cost.usd, 9) if cost.tokens or cost.usd else None
        return {"plan": self._state.plan.name, "execution": self._state.id, "usd": usd, **more}


def budget_occasions(standings: Iterable[Standing], state: State, now: float) -> Iterator[Occasion]:
    """The limits of which four fifths are used."""
    for scope, spent, _reserved in standings:
        for unit, limit, used in (
            ("usd", scope.limit.usd, spent.usd or 0.0),
            ("tokens", scope.limit.tokens, spent.tokens or 0),
        ):
            if limit and used >= SHARE * limit:
                yield _used_up(scope, unit, limit, used, state, now)


def _used_up(scope: Scope, unit: str, limit: float, used: float, state: State, now: float) -> Occasion:
    plan = plain(state.plan.name)
    whose = {
        "step": f"step {plain(scope.step or '')} of {plan}",
        "execution": plan,
        "day": "today",
        "month": "this month",
    }[scope.name]
    period = {"day": day_of(now), "month": month_of(now), "step": scope.step or ""}.get(scope.name, "")
    share = int(100 * used / limit)
    return Occasion(
        ("budget",),
        f"budget {scope.name} {period} {unit} {limit:g}",
        now,
        f"Budget: {share} % of the limit for {whose} is used",
        (f"{shown(used, unit)} of {shown(limit, unit)} is used for {whose}.", f"Execution {state.id}."),
        {
            "plan": state.plan.name,
            "execution": state.id,
            "step": scope.step,
            "status": "near the limit",
            "scope": scope.name,
            "unit": unit,
            "limit": limit,
            "spent": round(used, 9),
        },
        ("budget",),
        everywhere=scope.name in ("day", "month"),
    )


def _first_of(steps: Sequence[str]) -> str:
    more = f" and {len(steps) - 5} more" if len(steps) > 5 else ""
    return f"{', '.join(map(plain, steps[:5]))}{more}"


def _quoted(text: str) -> str:
    return shlex.quote(plain(text))
