"""`windlass budget`: limits, spending and what is left, with the unknown named as unknown (E1)."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from windlass.cli.budget import as_text, register
from windlass.cli.command import Group
from windlass.cli.session import CommandEnd
from windlass.core.budget import Amount, Scope, ScopeName, Standing, day_of, month_of
from windlass.engine.spending import By, Page, Period, as_json, look_up
from windlass.homes import prepare_home
from windlass.journal.ledger import HEADINGS, SqliteLedger
from windlass.journal.memory import MemoryLedger
from windlass.ports import Charge, Spending, Usage

if TYPE_CHECKING:
    from conftest import Project

BERLIN = ZoneInfo("Europe/Berlin")
NOON = 1794826800.0
"""2026-11-16, 12:00 in Berlin."""
DAY = 86_400.0
UNSAID = Amount()
NONE: dict[ScopeName, Amount] = {"step": Amount(), "execution": Amount(), "day": Amount(), "month": Amount()}


def limits(**given: Amount) -> dict[ScopeName, Amount]:
    return {**NONE, **given}  # type: ignore[dict-item]


@dataclass
class Story:
    """A ledger, told in one line for each attempt."""

    ledger: MemoryLedger | SqliteLedger
    now: float = NOON
    count: int = 0

    async def spends(self, usd: float | None, tokens: int = 0, ago: float = 0.0, reserved: Amount = UNSAID) -> None:
        who, at = self._next(), self.now - ago
        assert await self.ledger.reserve(who, at, reserved, []) is None
        await self.ledger.settle(who, at, Usage(tokens, 0, usd=usd, source="unknown" if usd is None else "runtime"))

    async def holds(self, usd: float, tokens: int = 0) -> None:
        assert await self.ledger.reserve(self._next(), self.now, Amount(usd, tokens), []) is None

    def _next(self) -> Charge:
        self.count += 1
        return Charge("x", "a", self.count, "claude-code", f"model-{self.count % 2}", "developer")


@pytest.fixture
def story() -> Story:
    return Story(MemoryLedger(tz=BERLIN))


async def page(story: Story, by: By = By.DAY, **given: Amount) -> Page:
    return await look_up(story.ledger, story.now, limits(**given), by, BERLIN)


def line(page: Page, start: str, nth: int = 0) -> str:
    return [text for text in as_text(page) if text.strip().startswith(start)][nth]


def test_the_headings_are_those_of_the_ledger() -> None:
    assert tuple(by.value for by in By) == HEADINGS


async def test_e1_what_is_left_is_the_limit_without_what_was_spent_and_set_aside(story: Story) -> None:
    await story.spends(1.2, tokens=300)
    await story.spends(3.0, tokens=100, ago=2 * DAY)
    await story.holds(0.5, tokens=1000)
    shown = await page(story, day=Amount(10.0, 5000), month=Amount(usd=50.0))
    assert as_json(shown)["day"] == {
        "name": "2026-11-16",
        "limit_usd": 10.0,
        "spent_usd": 1.2,
        "unknown": 0,
        "assumed_usd": 0.0,
        "reserved_usd": 0.5,
        "left_usd": 8.3,
        "limit_tokens": 5000,
        "tokens": 300,
        "reserved_tokens": 1000,
        "left_tokens": 3700,
    }
    month = as_json(shown)["month"]
    assert (month["name"], month["spent_usd"], month["left_usd"]) == ("2026-11", 4.2, 45.3)
    assert (month["limit_tokens"], month["left_tokens"]) == (None, None)
    assert line(shown, "today") == "today (2026-11-16)"
    assert line(shown, "spent") == "  spent     $1.20, 300 tokens"
    assert line(shown, "reserved") == "  reserved  $0.50, 1,000 tokens"
    assert line(shown, "left") == "  left      $8.30 of $10.00, 3,700 of 5,000 tokens"
    assert line(shown, "left", 1) == "  left      $45.30 of $50.00"


async def test_e1_unknown_costs_are_named_and_count_with_what_was_set_aside(story: Story) -> None:
    await story.spends(1.2)
    await story.spends(None, reserved=Amount(usd=0.25))
    await story.spends(None, reserved=Amount(usd=0.25))
    shown = await page(story, day=Amount(usd=10.0))
    day = as_json(shown)["day"]
    assert (day["spent_usd"], day["unknown"], day["assumed_usd"], day["left_usd"]) == (1.2, 2, 0.5, 8.3)
    assert "at least $1.20 (2 attempts of unknown cost)" in line(shown, "spent")
    assert line(shown, "attempts of unknown cost count").endswith(": $0.50")
    assert "$8.30 of $10.00" in line(shown, "left")
    admitted = await story.ledger.reserve(Charge("y", "a", 1), NOON, Amount(usd=8.3), [shown.day.standing.scope])
    assert admitted is None, "what is shown as left can be had"


async def test_e1_what_is_only_unknown_is_not_shown_as_nothing(story: Story) -> None:
    await story.spends(None)
    shown = await page(story)
    assert line(shown, "spent") == "  spent     1 attempt of unknown cost, 0 tokens"
    assert "$0" not in line(shown, "2026-11-16")


async def test_e1_a_limit_that_was_passed_leaves_nothing_and_says_by_how_much(story: Story) -> None:
    await story.spends(12.0, tokens=700)
    shown = await page(story, day=Amount(10.0, 500))
    assert line(shown, "left") == "  left      $0.00 of $10.00 (over by $2.00), 0 of 500 tokens (over by 200)"
    day = as_json(shown)["day"]
    assert (day["left_usd"], day["left_tokens"]) == (0.0, 0)


async def test_e1_without_limits_and_spending_it_says_so(story: Story) -> None:
    shown = await page(story)
    assert as_text(shown) == [
        "today (2026-11-16)",
        "  spent     $0.00, 0 tokens",
        "  left      no limit",
        "this month (2026-11)",
        "  spent     $0.00, 0 tokens",
        "  left      no limit",
        "each step: no limit; each execution: no limit",
        "",
        "nothing spent in the last 7 days",
    ]
    assert as_json(shown)["by"] == []
    assert as_json(shown)["day"]["left_usd"] is None


async def test_e1_limits_of_steps_and_executions_are_shown(story: Story) -> None:
    shown = await page(story, step=Amount(0.5), execution=Amount(2.0, 100_000))
    assert "each step: $0.50; each execution: $2.00 and 100,000 tokens" in as_text(shown)
    assert as_json(shown)["limits"] == {
        "step": {"usd": 0.5, "tokens": None},
        "execution": {"usd": 2.0, "tokens": 100_000},
        "day": {"usd": None, "tokens": None},
        "month": {"usd": None, "tokens": None},
    }


async def test_e1_the_last_seven_days_are_listed_across_a_change_of_the_clocks(story: Story) -> None:
    story.now = 1793142000.0  # 2026-10-28 00:00 in Berlin: six days back there was summer time
    for days in range(9):
        await story.spends(1.0, ago=days * DAY - 12 * 3600)  # noon, or an hour beside it
    shown = await page(story)
    assert [row.heading for row in shown.rows] == [f"2026-10-{day}" for day in (28, 27, 26, 25, 24, 23, 22)]


async def test_e1_other_headings_list_this_month_and_months_list_all(story: Story) -> None:
    await story.spends(1.0, tokens=10)
    await story.spends(2.0, tokens=20)
    await story.spends(5.0, ago=31 * DAY)
    by_model = as_json(await page(story, By.MODEL))["by"]
    assert [(row["model"], row["spent_usd"], row["tokens_in"]) for row in by_model] == [
        ("model-0", 2.0, 20),
        ("model-1", 1.0, 10),
    ]
    by_month = as_json(await page(story, By.MONTH))["by"]
    assert [(row["month"], row["spent_usd"]) for row in by_month] == [("2026-11", 3.0), ("2026-10", 5.0)]


async def test_e1_the_table_stands_in_columns_and_names_what_has_no_name(story: Story) -> None:
    await story.ledger.settle(Charge("x", "a", 1, role="developer"), NOON, Usage(1200, 5, usd=0.0042, source="prices"))
    await story.ledger.settle(Charge("x", "b", 1), NOON, Usage(7, 1))
    assert as_text(await page(story, By.ROLE))[-3:] == [
        "role         cost                       tokens in  tokens out  attempts",
        "developer    $0.0042                        1,200           5         1",
        "(not named)  1 attempt of unknown cost          7           1         1",
    ]


async def test_e1_a_long_list_is_cut_for_people_and_whole_for_programs(story: Story) -> None:
    for number in range(25):
        await story.ledger.settle(Charge(f"x{number:02d}", "a", 1), NOON, Usage(usd=float(number), source="runtime"))
    shown = await page(story, By.EXECUTION)
    assert [text[:3] for text in as_text(shown)[-21:-1]] == [f"x{number:02d}" for number in range(24, 4, -1)]
    assert as_text(shown)[-1].startswith("… and 5 more")
    assert len(as_json(shown)["by"]) == 25


# -- the command -------------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    """The command as it is registered, on the home of this folder."""
    app = Group()
    register(app)
    ran = CliRunner().invoke(app, ["budget", *arguments])
    if isinstance(ran.exception, CommandEnd):
        assert ran.exception.code == 0, ran.output
    else:
        assert ran.exception is not None
        assert ran.exit_code == 2, ran.output
    return ran


def test_e1_the_command_shows_the_homes_ledger_under_the_users_limits(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.user_file("config.toml", "[budget]\nstep = 0.5\nday = {usd = 10, tokens = 5000}\n")
    prepare_home(project.home)
    now = time.time()
    monkeypatch.setattr("windlass.clock.SystemClock.now", lambda _: now)  # also around midnight it is all of one day

    async def spend() -> None:
        story = Story(SqliteLedger(project.home / "windlass.db"), now)
        await story.spends(1.25, tokens=300)
        await story.spends(None, reserved=Amount(usd=0.25))
        await story.holds(0.5, tokens=700)
        await story.ledger.close()

    asyncio.run(spend())
    shown = json.loads(run("--json").stdout)
    assert shown["day"]["name"] == day_of(now)
    assert shown["day"]["left_usd"] == 8.0
    assert shown["day"]["left_tokens"] == 4000
    assert (shown["month"]["limit_usd"], shown["month"]["spent_usd"], shown["month"]["unknown"]) == (None, 1.25, 1)
    assert shown["limits"]["step"] == {"usd": 0.5, "tokens": None}
    assert [row["spent_usd"] for row in shown["by"]] == [1.25]
    text = run("--by", "month").stdout
    assert "$8.00 of $10.00, 4,000 of 5,000 tokens" in text
    assert f"{month_of(now)}  at least $1.25 (1 attempt of unknown cost)" in text


def test_e1_where_there_is_no_home_nothing_is_made(project: Project) -> None:
    ran = run()
    assert "nothing spent" in ran.stdout
    assert "no limits set" in ran.stderr
    assert not project.home.exists()


@pytest.mark.usefixtures("project")
def test_an_unknown_heading_is_refused_with_those_that_there_are() -> None:
    said = run("--by", "week").output
    for heading in HEADINGS:
        assert heading in said


def test_e1_the_documentation_shows_what_is_printed() -> None:
    whole: dict[ScopeName, Amount] = limits(execution=Amount(2.5), day=Amount(10.0, 5_000_000), month=Amount(150.0))
    today = Spending("2026-11-15", 1.2, 2, 45_100, 3_110, 14, 0.25)
    month = Spending("2026-11", 31.07, 2, 1_100_400, 104_000, 301, 0.25)
    before = Spending("2026-11-14", 4.86, 0, 210_034, 18_950, 31)
    held = Amount(0.25, 0)
    shown = Page(
        Period("2026-11-15", today, Standing(Scope("day", whole["day"]), Amount(1.7, 48_210), held)),
        Period("2026-11", month, Standing(Scope("month", whole["month"]), Amount(31.57, 1_204_400), held)),
        whole,
        By.DAY,
        [today, before],
    )
    page = (Path(__file__).parents[2] / "docs" / "budget.md").read_text(encoding="utf-8")
    assert "$ windlass budget\n" + "\n".join(as_text(shown)) + "\n```" in page
