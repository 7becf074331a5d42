"""Forecasts in words and as JSON: `plan estimate`, the line of progress, `history --forecasts`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.core.budget import money
from windlass.core.forecast.calibration import Band
from windlass.core.forecast.outlook import elapsed_of
from windlass.core.forecast.scores import BucketScore
from windlass.core.forecast.value import LOW_CONFIDENCE, Forecast, duration_text, from_to
from windlass.core.state import State

__all__ = ["estimate_lines", "names", "score_lines", "surprise"]

_SOURCES = {
    "step": "from their own earlier runs",
    "tool": "from other uses of their tool",
    "kind": "from other steps of their kind",
    "estimate": "as their tools expect",
}
WORTH_A_LINE = 20.0
"""Seconds of an execution below which nobody needs to know how good its forecast was."""
NAMED = 10
"""Steps that are named; more are counted."""


def estimate_lines(found: Forecast) -> Iterator[str]:
    """The estimate of a plan: time, source, cost, and everything that is not known."""
    if found.left is not None:
        half, most = duration_text(found.left.middle), duration_text(found.left.high)
        yield f"{'about' if found.whole else 'at least'} {half} (P50), {most} (P90)"
        if found.origins:
            counts = [f"{count} {'step' if count == 1 else 'steps'} {_SOURCES[name]}" for name, count in _sorted(found)]
            runs = f"{found.runs} run{'' if found.runs == 1 else 's'} of this plan"
            changed = found.runs - found.unchanged
            runs += f", {changed} of them before it changed" if changed else ""
            yield f"from: {runs}; {', '.join(counts)}"
    if found.usd is not None and found.usd.high > 0:
        priced = f", by tokens and price: {names(found.priced)}" if found.priced else ""
        yield f"cost: {money(found.usd.middle)} (P50), {money(found.usd.high)} (P90){priced}"
    elif found.unpriced:
        new = [step for step in found.unpriced if step in found.unknown]
        others = [step for step in found.unpriced if step not in found.unknown]
        reasons = [
            f"these agents have not run here yet, so their number of tokens is not known ({names(new)})" if new else "",
            f"these agents have no known cost or price here ({names(others)})" if others else "",
        ]
        yield f"cost: unknown, because {' and '.join(filter(None, reasons))}"
    if found.left is not None and found.unknown:
        yield f"not counted, because nothing like them ran here yet: {names(found.unknown)}"
    if found.uncounted:
        yield f"counted as one item, because their number is not known before they run: {names(found.uncounted)}"
    if found.approvals:
        waits = f", usually answered in {duration_text(found.approval_s)}" if found.approval_s is not None else ""
        yield f"not counted: waiting for {found.approvals} approval{'' if found.approvals == 1 else 's'}{waits}"
    if found.left is not None and found.low_confidence:
        why = f"fewer than {LOW_CONFIDENCE} runs of this plan" if found.runs < LOW_CONFIDENCE else "see above"
        yield f"low confidence: {why}"


def surprise(first: Forecast, state: State) -> str:
    """A line about an execution that ended outside the band of its first forecast; empty for one within, or short."""
    took = elapsed_of(state, state.updated_at)
    if first.left is None or not first.whole or max(took, first.elapsed_s + first.left.high) < WORTH_A_LINE:
        return ""
    band = Band(*(first.elapsed_s + part for part in first.left))
    how = "earlier" if took < band.low else "later" if took > band.high else ""
    return f"{how} than first forecast: {duration_text(took)} instead of {from_to(band)}" if how else ""


def _sorted(found: Forecast) -> list[tuple[str, int]]:
    return [(name, found.origins[name]) for name in _SOURCES if name in found.origins]


def names(steps: Sequence[str]) -> str:
    more = f" and {len(steps) - NAMED} more" if len(steps) > NAMED else ""
    return ", ".join(steps[:NAMED]) + more


def score_lines(times: Sequence[BucketScore], costs: Sequence[BucketScore], runs: int) -> Iterator[str]:
    """Scores of the forecasts of time and of cost, one line for each quarter of the way."""
    if not times and not costs:
        yield "no forecast has an outcome yet: runs of over a second are forecast, and scored once they complete"
        return
    yield f"forecasts of {runs} run{'' if runs == 1 else 's'}, by the part of the steps that was done"
    head = f"{'done':>8}  {'forecasts':>9}  {'in the 80 % band':>16}  {'median error':>12}  {'bias':>6}"
    for title, scores in (("time", times), ("cost", costs)):
        if scores:
            yield f"{title:<5}{head}"
        for score in scores:
            name = "all" if score.bucket is None else f"{score.bucket * 25}–{score.bucket * 25 + 25} %"
            figures = f"{score.inside:>14.0%}  {score.error:>12.0%}  {score.bias:>+6.0%}".replace("%", " %")
            yield f"{name:>13}  {score.forecasts:>9}  {figures}"
    if runs < LOW_CONFIDENCE:
        yield f"low confidence: fewer than {LOW_CONFIDENCE} runs"
