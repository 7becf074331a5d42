"""How an agent's turn can end without success, and the failure that each ending is: one table for every runtime.

A runner says which `Ending` it saw and in which words; category, fallback and advice come from `ENDINGS`, so that one
ending is the same failure on every runtime (C3, A7). docs/runtimes.md shows the table to users; the tests compare the
two, and run every row on every runtime that can end that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from windlass.errors import Category, Failure

__all__ = ["ENDINGS", "Ending", "Meaning", "failure"]

ALONE = frozenset({"cli"})
"""Runtimes without a family: nothing they fail at could go on elsewhere (A7)."""


class Ending(StrEnum):
    """The names of the rows in docs/runtimes.md."""

    LENGTH = "answer cut off at its longest"
    REFUSAL = "refusal, content filter"
    EMPTY = "empty answer"
    TURNS = "`max_turns` reached"
    BUDGET = "the runtime's own budget limit"
    GARBAGE = "reply that cannot be read"
    CUT = "connection lost"
    OVERLOADED = "overloaded, 5xx"
    RATE = "rate limit, 429"
    QUOTA = "quota used up"
    NO_ACCESS = "no key or login, 401"
    NO_MONEY = "no money, 402"
    FORBIDDEN = "not allowed, 403"
    NO_MODEL = "model not found, 404"
    TOO_LONG = "prompt too long"
    REFUSED = "request not accepted, 400"
    DIED = "program died or hung"
    KILLED = "program killed (SIGKILL)"


class Meaning(NamedTuple):
    category: Category
    elsewhere: bool
    """Another runtime could survive it: it has credentials, models and a program of its own."""
    advice: str
    """`{runtime}` stands for the runtime's name."""


ENDINGS: Mapping[Ending, Meaning] = {
    Ending.LENGTH: Meaning(
        Category.LOGIC, False, "ask for less in one answer: split the step, or have it write to files piece by piece"
    ),
    Ending.REFUSAL: Meaning(
        Category.LOGIC, False, "word the task differently, or name another model: model: in the plan or --model"
    ),
    Ending.EMPTY: Meaning(Category.TRANSIENT, True, "ask in the prompt for a final answer, or name another model"),
    Ending.TURNS: Meaning(Category.LOGIC, False, "give the step less to do, or more turns: max_turns: in the plan"),
    Ending.BUDGET: Meaning(Category.RESOURCE, False, "give the step more budget, or a smaller task"),
    Ending.GARBAGE: Meaning(Category.TRANSIENT, True, "check the address of the model API that {runtime} uses"),
    Ending.CUT: Meaning(Category.TRANSIENT, True, "check the network between this machine and the model API"),
    Ending.OVERLOADED: Meaning(Category.TRANSIENT, True, "the model API is overloaded or down: try again later"),
    Ending.RATE: Meaning(Category.TRANSIENT, True, "run fewer agents at a time: limits: {{parallel: N}} in the plan"),
    Ending.QUOTA: Meaning(Category.TRANSIENT, False, "wait until it comes back, or name a model of another provider"),
    Ending.NO_ACCESS: Meaning(
        Category.PERMISSION, True, "the key or login of {runtime} is missing or expired: windlass doctor"
    ),
    Ending.NO_MONEY: Meaning(Category.PERMISSION, True, "the account that {runtime} uses cannot pay for this"),
    Ending.FORBIDDEN: Meaning(
        Category.PERMISSION, True, "the account that {runtime} uses may not do this: windlass doctor"
    ),
    Ending.NO_MODEL: Meaning(
        Category.CONFIGURATION, True, "name a model that this account has: model: in the plan or --model"
    ),
    Ending.TOO_LONG: Meaning(Category.LOGIC, False, "give the step fewer or smaller files, or split it"),
    Ending.REFUSED: Meaning(
        Category.LOGIC, False, "the request itself was refused: look at it with windlass logs ID --prompt"
    ),
    Ending.DIED: Meaning(Category.TRANSIENT, True, "look at it with: windlass doctor"),
    Ending.KILLED: Meaning(Category.RESOURCE, True, "the system may have run out of memory: run fewer steps at a time"),
}


def failure(
    ending: Ending,
    said: str,
    *,
    runtime: str,
    advice: tuple[str, ...] = (),
    retry_after: float | None = None,
    resets_at: float | None = None,
) -> Failure:
    """The failure that an ending is. `advice` is what the runtime itself adds, and comes first."""
    meaning = ENDINGS[ending]
    return Failure(
        meaning.category,
        f"{runtime}: {said}",
        advice=(*advice, meaning.advice.format(runtime=runtime)),
        retry_after=retry_after,
        resets_at=resets_at,
        elsewhere=meaning.elsewhere and runtime not in ALONE,
    )
