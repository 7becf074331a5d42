"""State of a step's agent: its runtime, its conversation, its usage. Folded from the agent's events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from windlass.core.budget import known_cost, known_part, money
from windlass.core.events import AgentSummarised, AgentTold, Usage
from windlass.errors import Failure
from windlass.runtimes import RUNTIMES

__all__ = ["AgentState", "Cost", "KeptSession", "next_in_family"]


class KeptSession(NamedTuple):
    """The conversation of a runtime that another one took over from."""

    session: str
    attempt: int
    """The last attempt that worked in it."""
    summaries: tuple[AgentSummarised, ...]


@dataclass(slots=True)
class AgentState:
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
    left: dict[str, KeptSession] = field(default_factory=dict)
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
    cut_off: int = 0
    """Attempts that died with their engine: their usage after the last report is unknown."""
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
    usage: dict[int, Usage] = field(default_factory=dict)
    """Usage of each attempt, by its number."""
    files: dict[str, None] = field(default_factory=dict)
    """Files that it wrote, as far as its calls say so, the newest last."""
    commands: dict[str, None] = field(default_factory=dict)
    """Commands that it ran, the newest last."""
    told: dict[str, AgentTold] = field(default_factory=dict)
    """Messages of people that the agent has not been given yet, oldest first."""
    summaries: list[AgentSummarised] = field(default_factory=list)
    """Summaries of the conversation, each replacing the older part of what was there before."""

    summary_wanted: bool = False
    """A person asked for a summary, and it is not made yet."""

    def leave_session(self) -> None:
        """Keep the conversation for the day when its runtime works on the step again."""
        if self.session is not None and not self.session_origin:
            self.left[self.session_runtime] = KeptSession(self.session, self.session_attempt, tuple(self.summaries))
        self.session, self.summaries = None, []

    def forget_sessions(self) -> None:
        self.session, self.summaries = None, []
        self.left.clear()

    def api_failed(self, at: float) -> None:
        self.api_failures += 1
        self.failing_since = at if self.failing_since is None else self.failing_since

    def progressed(self) -> None:
        """The model API answered."""
        self.api_failures, self.failing_since = 0, None

    @property
    def cost(self) -> Cost:
        return Cost.of(self.usage.values()) + Cost(unknown=self.cut_off)


@dataclass(frozen=True, slots=True)
class Cost:
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
        return f"at least {money(self.usd)}" if self.usd else "unknown"


def next_in_family(runtime: str, given_up: tuple[str, ...]) -> str | None:
    """The runtime that could take over from this one (A7); None for `cli`."""
    row = RUNTIMES.get(runtime)
    members = (other.name for other in RUNTIMES.values() if row is not None and other.family == row.family)
    return next((name for name in members if name != runtime and name not in given_up), None)
