"""`history`: what stopped executions took, waited for and cost, by any field; bottlenecks, and steps that change (D7).

Only the journal is opened. `engine.history_page` asks it; here the answers are shown to people and spreadsheets.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from windlass.cli.command import Group, Option
from windlass.cli.session import AsJson, CommandEnd, Home, out, print_json, say, suggest, with_journal
from windlass.cli.terminal import clip
from windlass.errors import UsageError
from windlass.visible import one_line

if TYPE_CHECKING:
    from windlass.core.rollup import HistoryRow
    from windlass.core.trends import StepChange
    from windlass.engine.history_page import HistoryPage, SlowPage
    from windlass.ports import History, Journal

__all__ = ["csv_rows", "history_lines", "register", "slow_lines"]

WIDEST = 48
"""Characters of a name in a table."""
BAR = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"
MOST_ROWS = 40
"""Rows that people are shown; programs get all."""
MOST_PLANS, MOST_STEPS = 10, 5
"""Plans, and steps of each, that people are shown as bottlenecks."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a text that begins so for something to carry out."""
MOST_FORECASTS = 10_000
"""The newest forecasts that are scored."""
REPORT_EVERY = 2.0


def register(app: Group) -> None:
    app.add(history)


def history(
    by: Annotated[
        str | None,
        Option(
            "--by",
            metavar="FIELD",
            help="Group by day, plan or status; or steps by step, tool, runtime, model, role or category",
        ),
    ] = None,
    since: Annotated[str | None, Option("--since", metavar="DAY", help="First day: 30d, 4w, or a date")] = None,
    until: Annotated[str | None, Option("--until", metavar="DAY", help="Last day")] = None,
    plan: Annotated[str, Option("--plan", metavar="NAME", help="Only executions of this plan")] = "",
    failed: Annotated[bool, Option("--failed", help="Only failures; without --by, by category")] = False,
    slow: Annotated[bool, Option("--slow", help="Show bottlenecks, and steps that get slower or fail more")] = False,
    forecasts: Annotated[bool, Option("--forecasts", help="Show how good forecasts were, by part of the way")] = False,
    rebuild: Annotated[bool, Option("--rebuild", help="Build the history anew from the journal first")] = False,
    as_csv: Annotated[bool, Option("--csv", help="Print CSV")] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Show what past executions took, waited for and cost.

    \b
    windlass history --by model --since 30d
    windlass history --slow --plan nightly
    """
    from windlass.engine.history_page import look_up, query_of, slow_steps

    if as_csv and as_json:
        raise UsageError("choose one of --csv and --json")
    if slow and (as_csv or failed or by or until):
        raise UsageError("--slow goes with --since, --plan and --json only")
    if forecasts and (slow or as_csv or failed or by or since or until):
        raise UsageError("--forecasts goes with --plan and --json only")
    now = time.time()
    query = query_of(by or ("category" if failed else "day"), since, until, failed, plan, now)

    async def work(journal: Journal) -> int:
        await _bring_up_to_date(journal.history, rebuild)
        if forecasts:
            return await _show_scores(journal, plan, as_json)
        if slow:
            slow_page = await slow_steps(journal, query)
            if as_json:
                print_json(slow_page.as_dict())
            else:
                _print(slow_lines(slow_page))
            return 0
        page = await look_up(journal, query, now)
        if as_json:
            print_json(page.as_dict())
        elif as_csv:
            csv.writer(sys.stdout, lineterminator="\n").writerows(csv_rows(page))
        else:
            _print(history_lines(page))
        _say_what_is_missing(page)
        return 0

    raise CommandEnd(with_journal(work, home))


async def _show_scores(journal: Journal, plan: str, as_json: bool) -> int:
    from windlass.cli.forecast_text import score_lines
    from windlass.core.forecast.calibration import BAND
    from windlass.core.forecast.scores import cost_scores, scores

    outcomes = await journal.forecasts.outcomes(plan, MOST_FORECASTS)
    times = scores((one.forecast, one.took_s) for one in outcomes)
    costs = cost_scores((one.forecast, one.usd) for one in outcomes)
    runs = len({one.execution for one in outcomes if one.forecast.left is not None and one.forecast.whole})
    if as_json:
        told = {"scores": times, "cost_scores": costs}
        rows = {name: [score.as_dict() for score in found] for name, found in told.items()}
        print_json({"runs": runs, "band": BAND, **rows})
    else:
        _print(list(score_lines(times, costs, runs)))
    return 0


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        out(line)


async def _bring_up_to_date(history: History, rebuild: bool) -> None:
    """Build what is missing, and say so while it takes its time."""
    said = time.monotonic()

    def progress(left: int) -> None:
        nonlocal said
        if left and time.monotonic() - said > REPORT_EVERY:
            said = time.monotonic()
            say(f"building the history: {left:,} executions left")

    await (history.rebuild(progress) if rebuild else history.catch_up(progress=progress))


def _say_what_is_missing(page: HistoryPage) -> None:
    if page.answer.unfinished:
        verb = "execution is" if page.answer.unfinished == 1 else "executions are"
        say(f"{page.answer.unfinished:,} {verb} pending or running: not included until it stops")
    for execution, reason in page.answer.damaged.items():
        say(f"not included: {execution} is damaged ({clip(reason, 80)})")
    if page.answer.damaged:
        suggest("damaged executions: restore one with windlass restore FILE, or remove them: windlass clean --damaged")
    if page.in_future:
        say("a day in the future: the clock was wrong when those executions stopped")


# -- tables ---------------------------------------------------------------------------------------


def history_lines(page: HistoryPage) -> list[str]:
    query, rows = page.query, page.answer.rows
    title = f"{'failed ' if query.failed else ''}{query.unit} by {query.by}"
    title += f" of plan {clip(one_line(query.plan), WIDEST)}" if query.plan else ""
    title += f", {_days(page)}"
    if not rows:
        return [f"{title}: none"]
    priced = any(row.cell.usd for row in rows)
    measure: Callable[[HistoryRow], int] = (lambda row: row.cell.usd) if priced else (lambda row: row.cell.worked)
    most = max(map(measure, rows))
    names = ("plan", "step") if query.by == "step" else (query.by,)
    times = ("P50", "P90", "P99", "work", "queue", "wait", "person")
    head = (*names, "runs", "failed", *times, "CPU", "memory", "files", "cost", "tokens", "")
    cells = [head]
    for row in rows[:MOST_ROWS]:
        cells.append((*(clip(one_line(name), WIDEST) for name in row.names), *_figures(row), _bar(measure(row), most)))
    if len(rows) > 1:
        cells.append(("total", *[""] * (len(names) - 1), *_figures(page.answer.total()), ""))
    cells[0] = (*head[:-1], f"chart of {'cost' if priced else 'work'}")
    more = len(rows) - MOST_ROWS
    return [title, *_table(cells, len(names)), *([f"… and {more:,} more; list all: --json"] if more > 0 else [])]


def _days(page: HistoryPage) -> str:
    since, until = page.query.since, page.query.until
    if since is None and until is None:
        return "all days"
    return f"{since or 'the first day'} to {until or page.today}"


def _figures(row: HistoryRow) -> tuple[str, ...]:
    from windlass.cli.used_text import size_text

    cell = row.cell
    return (
        f"{row.runs:,}" if row.runs else "-",
        f"{row.failed:,}" if row.failed else "-",
        *(_time(seconds) for seconds in row.percentiles().values()),
        *(_time(row.seconds(name)) for name in ("worked", "queued", "waited", "person")),
        _time(row.cpu_s),
        size_text(row.memory_bytes) if row.memory_bytes is not None else "-",
        f"{row.changed_files:,}" if row.changed_files else "-",
        _cost(row),
        f"{cell.tokens_in + cell.tokens_out:,}" if cell.tokens_in or cell.tokens_out else "-",
    )


def _cost(row: HistoryRow) -> str:
    """The known cost, and that there is more: unknown is never shown as nothing."""
    from windlass.core.budget import at_least_money, money

    if row.usd is None:
        return "unknown"
    if not row.cell.unknown:
        return money(row.usd) if row.usd else "-"
    return at_least_money(row.usd)


def _time(seconds: float | None) -> str:
    if not seconds:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 100 * 3600 else f"{seconds / 86400:.0f} d"


def _bar(part: float, whole: float) -> str:
    if part <= 0 or whole <= 0:
        return ""
    full, rest = divmod(round(8 * BAR * part / whole), 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")) or "▏"


def _table(cells: Sequence[tuple[str, ...]], names: int) -> list[str]:
    """Lay out a table: names and the chart at the left of their columns, figures at the right."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]) - 1)]
    lines = []
    for line in cells:
        parts = [text.ljust(width) if column < names else text.rjust(width) for column, (text, width) in
                 enumerate(zip(line, widths, strict=False))]  # fmt: skip
        lines.append("  ".join([*parts, line[-1]]).rstrip())
    return lines


def csv_rows(page: HistoryPage) -> list[list[Any]]:
    """The rows for a spreadsheet; a name that it would take for a formula is marked as text."""
    dicts = [row.as_dict(page.query.by) for row in page.answer.rows]
    names = ["plan", "step"] if page.query.by == "step" else [page.query.by]
    figures = [key for key in page.answer.total().figures(page.query.by) if key != "statuses"]
    head = [*names, *figures]
    return [head, *([_csv_cell(row[key]) for key in head] for row in dicts)]


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        text = one_line(value)
        return f"'{text}" if value.lstrip(" ").startswith(_FORMULA) else text
    return "" if value is None else value


# -- slow steps -----------------------------------------------------------------------------------


def slow_lines(page: SlowPage) -> list[str]:
    from windlass.core.trends import FALSE_ALARMS, RUNS_READ

    if not page.bottlenecks:
        return ["no steps have run to their end: nothing to look at"]
    lines = [f"time on the critical path, up to the last {RUNS_READ} executions of each plan"]
    plans = list(dict.fromkeys(one.plan for one in page.bottlenecks))
    cells = [("plan", "step", "share", "each run", "on the path", "")]
    for plan in plans[:MOST_PLANS]:
        for one in [found for found in page.bottlenecks if found.plan == plan][:MOST_STEPS]:
            runs = f"{one.on_path} of {one.executions}"
            names = (clip(one_line(one.plan), WIDEST), clip(one_line(one.step), WIDEST))
            cells.append((*names, f"{one.share:.0%}", _time(one.seconds), runs, _bar(one.share, 1.0)))
    lines += _table(cells, 2)
    if len(plans) > MOST_PLANS:
        lines.append(f"… and {len(plans) - MOST_PLANS:,} more plans; list all: --json")
    lines.append("")
    if not page.looked_at:
        lines.append("no step has enough runs yet to tell if it gets slower or fails more (24 of the same version)")
    else:
        lines.append(f"{page.looked_at:,} steps compared with their earlier runs; false alarms: {FALSE_ALARMS:.0%}")
        if not any(one.kind != "edited" for one in page.changes):
            lines.append("no step gets slower or fails more")
    return lines + [_change(one) for one in page.changes]


def _change(one: StepChange) -> str:
    name = f"{clip(one_line(one.plan), WIDEST)} · {clip(one_line(one.step), WIDEST)}"
    match one.kind:
        case "slower":
            ratio = f"{one.recent / one.before:.1f} times" if one.before else "from nothing"
            change = f"median {_time(one.before)} → {_time(one.recent)} ({ratio})"
            return f"slower: {name}: {change}, last {one.runs_recent} runs against {one.runs_before}, p = {one.p:.1g}"
        case "failing":
            change = f"{one.before:.0%} → {one.recent:.0%} of runs failed"
            return f"fails more: {name}: {change}, last {one.runs_recent} against {one.runs_before}, p = {one.p:.1g}"
        case _:
            return f"edited: {name}: {one.runs_recent} runs since; too few to compare, {one.runs_before} older left out"
