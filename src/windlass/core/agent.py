"""State of a step's agent: its runtime, its conversation, its usage. Folded from the agent's events."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from windlass.core.budget import at_least_money, known_cost, known_part, money
from windlass.core.events import AgentChecked, AgentSummarised, AgentTold, Usage, WorkspaceOpened, WorkspaceSnapshot
from windlass.errors import Failure
from windlass.runtimes import RUNTIMES

__all__ = ["AgentState", "Cost", "KeptSession", "WorkPeriod", "add_record", "next_in_family"]


class KeptSession(NamedTuple):
    """The conversation of a runtime that another one took over from."""

    session: str
    attempt: int
    """The last attempt that worked in it."""
    summaries: tuple[AgentSummarised, ...]


class WorkPeriod(NamedTuple):
    """A stretch of work, from one record of the files to another."""

    root: str
    before: str
    began: float
    after: str = ""
    """Empty while it works, and if it was cut off."""
    ended: float = math.inf
    after_check: bool = False
    """True if only a check of the work lies between it and the one before."""

    def overlaps(self, other: WorkPeriod) -> bool:
        """True if both were in the same folder at the same time."""
        return self.root == other.root and self.began < other.ended and other.began < self.ended

    def goes_on(self, tree: str) -> bool:
        """True if it ended with this record, or was cut off and can be compared with it."""
        same_kind = self.before.partition(":")[0] == tree.partition(":")[0]
        return self.after == tree or (not self.after and same_kind)


def add_record(periods: list[WorkPeriod], event: WorkspaceSnapshot, *, after_check: bool = False) -> None:
    """Add a record of the files to an agent's stretches of work."""
    if not event.tree:
        return
    last = periods[-1] if periods else None
    if event.moment == "after":
        if last is not None and last.root == event.root:
            periods[-1] = last._replace(after=event.tree, ended=event.at)
    elif last is None or last.root != event.root or not last.goes_on(event.tree):
        periods.append(WorkPeriod(event.root, event.tree, event.at, after_check=after_check))
    else:  # goes on where it stopped, or was cut off: nobody knows who did what since
        periods[-1] = last._replace(after="", ended=math.inf)


class AgentState(msgspec.Struct):
    """One step's agent, over all its attempts."""

    runtime: str = ""
    """The runtime of the last attempt."""
    version: str = ""
    """The version of that runtime's program."""
    role: str = ""
    model: str = ""
    """The model that did the last of it, by its own name; until then as it was asked for."""
    asked: str = ""
    """The model as it was asked for; empty for the runtime's own."""
    session: str | None = None
    """The conversation that a further attempt goes on with."""
    session_runtime: str = ""
    session_version: str = ""
    """The version of the program that wrote the conversation last."""
    session_attempt: int = 0
    """The last attempt that worked in it."""
    left: dict[str, KeptSession] = msgspec.field(default_factory=dict)
    """Conversations of other runtimes, by their names: an attempt on one of them goes on in its own."""
    instead: str | None = None
    """The runtime that took over, once another one failed."""
    given_up: tuple[str, ...] = ()
    """Runtimes that failed for good."""
    gave_up_because: str = ""
    """The reason of the last such failure."""
    gave_up_with: Failure | None = None
    """The same with its advice; None in journals of earlier versions."""
    attempt: int = 0
    """The last attempt that was given to a runtime."""
    worker: str = ""
    """The worker that performed it, where several share the execution; empty if it is lost."""
    cut_off: int = 0
    """Attempts that died with their engine: their usage after the last report is unknown."""
    lost: int = 0
    """The last of these."""
    api_failures: int = 0
    """Failures of the model API in a row."""
    failing_since: float | None = None
    """The time of the first of them."""
    unheard: bool = False
    """The task changed since the conversation was given it: the next attempt says it whole."""
    session_origin: str = ""
    """The execution that the conversation belongs to, in a fork that has no copy of it yet."""
    waits: tuple[int, str] = (0, "")
    """The attempt that waits for budget reserved by others, and its message."""
    prompt: int = 0
    """Tokens of the longest prompt, as far as the reports tell one call from the next."""
    usage: dict[int, Usage] = msgspec.field(default_factory=dict)
    """Usage of each attempt, by its number."""
    done_by: dict[int, tuple[str, str]] = msgspec.field(default_factory=dict)
    """Runtime and model of each attempt that reported a usage."""
    files: dict[str, None] = msgspec.field(default_factory=dict)
    """Files that it wrote, as far as its calls say so, the newest last."""
    commands: dict[str, None] = msgspec.field(default_factory=dict)
    """Commands that it ran, the newest last."""
    told: dict[str, AgentTold] = msgspec.field(default_factory=dict)
    """Messages of people that the agent has not been given yet, oldest first."""
    summaries: list[AgentSummarised] = msgspec.field(default_factory=list)
    """Summaries of the conversation, each replacing the older part of what was there before."""

    claim: str | None = None
    """Its result, as it says itself: it has done nothing since. Kept for agents whose work is checked."""
    checked: AgentChecked | None = None
    """The last check of that."""
    checks: int = 0
    """Times that its work was checked since the step began, or since a person had it tried again (from -1 on: see
    `StepRetried`)."""
    rounds: int = 0
    """Times that there was something new to check: its claims, and the retries of a person. Unlike `checks` it only
    grows, so that it names the programs of a check."""

    unmatched: tuple[str, ...] = ()
    """Names of `protect` that fitted no file when it began, as its checks noted them."""

    refused: int = 0
    """Failed checks of its work in this conversation: they choose among several models."""

    periods: list[WorkPeriod] = msgspec.field(default_factory=list)
    """Its work on files, in order: several where somebody else, or a check, changed files in between."""
    changed: int | None = None
    """Files that it has changed in these; None where that is not known."""
    workspace: WorkspaceOpened | None = None
    """The folder of its own that it works in."""
    commit: str = ""
    """Its work on its branch, once it is done."""
    reopened: int = 0
    """Times that a merge had it go on, since it began or since a person had it tried again."""
    reopening: bool = False
    """It has come to no end in that."""
    unrecorded: str = ""
    """The reason why its files were not recorded, or not all."""

    summary_wanted: bool = False
    """A person asked for a summary, and it is not made yet."""

    def leave_session(self) -> None:
        """Keep the conversation for the day when its runtime works on the step again."""
        if self.session is not None and not self.session_origin:
            self.left[self.session_runtime] = KeptSession(self.session, self.session_attempt, tuple(self.summaries))
        self.session, self.summaries = None, []

    def forget_sessions(self) -> None:
        self.session, self.summaries, self.refused = None, [], 0
        self.left.clear()

    def works_on(self) -> None:
        """It does something more: what was claimed and checked before is out of date."""
        self.claim = self.checked = None

    def api_failed(self, at: float) -> None:
        self.api_failures += 1
        self.failing_since = at if self.failing_since is None else self.failing_since

    def progressed(self) -> None:
        """The model API answered."""
        self.api_failures, self.failing_since = 0, None

    @property
    def verdict(self) -> Literal["verified", "refuted", "claimed"]:
        """Verdict on its result: a check has passed or failed, or there is its word alone."""
        if self.checked is None:
            return "claimed"
        if not self.checked.passed:
            return "refuted"
        return "claimed" if all(result.of_form for result in self.checked.results) else "verified"

    @property
    def cost(self) -> Cost:
        return Cost.of(self.usage.values()) + Cost(unknown=self.cut_off)


class Cost(msgspec.Struct, frozen=True):
    """Known cost and tokens, with the number of attempts of unknown cost."""

    usd: float = 0.0
    """The part that is known."""
    unknown: int = 0
    """Attempts of unknown cost."""
    tokens_in: int = 0
    tokens_out: int = 0

    @classmethod
    def of(cls, usages: Iterable[Usage]) -> Cost:
        total = cls()
        for usage in usages:
            unknown = known_cost(usage) is None
            total += cls(known_part(usage), unknown, usage.tokens_in, usage.tokens_out)
        return total

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.usd + other.usd,
            self.unknown + other.unknown,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
        )

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    @property
    def shown_usd(self) -> float | None:
        """None when nothing of it is known: unknown is never shown as 0."""
        return None if self.unknown and not self.usd else round(self.usd, 9)

    @property
    def text(self) -> str:
        """`$0.12`, `at least $0.12`, `unknown`."""
        if not self.unknown:
            return money(self.usd)
        return at_least_money(self.usd) if self.usd else "unknown"


def next_in_family(runtime: str, given_up: tuple[str, ...]) -> str | None:
    """The runtime that could take over from this one (A7); None for `cli`."""
    row = RUNTIMES.get(runtime)
    others = (
        other for other in RUNTIMES.values() if row is not None and other.family == row.family and other.takes_over
    )
    return next((other.name for other in others if other.name != runtime and other.name not in given_up), None)
