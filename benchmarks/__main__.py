"""`make bench`: one table, every figure beside what it must reach. Exit code 1 if one is missed.

python -m benchmarks [--no-peers] [--only NAME …] [--record]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.approvals import COUNT as QUESTIONS
from benchmarks.approvals import approval_costs
from benchmarks.bare import bare_rate
from benchmarks.browser import compare as compare_browsers
from benchmarks.dashboard import PAGES, page_figures
from benchmarks.forecasts import forecast_cost, forecast_quality, forecast_share
from benchmarks.gates import gate_costs
from benchmarks.history import EXECUTIONS, answer_times, fill_history
from benchmarks.history_share import SHARES, history_share
from benchmarks.instructions import GROWTH, KINDS, measure_instructions, recorded_figures, valgrind
from benchmarks.instructions_peers import count_peers
from benchmarks.opencode import warm_turns
from benchmarks.ours import SCENARIOS, measure
from benchmarks.peers.environment import prepare
from benchmarks.peers.run import PEERS, run_peer
from benchmarks.postgres import over_dbos, postgres_ratios
from benchmarks.prompt import prompt_cost
from benchmarks.ratios import fallen, ratio_of, record, recorded
from benchmarks.sandbox import ENGINES, Figure, containment, figures
from benchmarks.sandbox_engine import calls_through_the_engine
from benchmarks.server import stream_figures
from benchmarks.server_list import COUNT, list_times
from benchmarks.shell import shell_cost
from benchmarks.sizes import run_size, version_ratio
from benchmarks.slowdisk import slow_disk
from benchmarks.traces import scrape_cost, trace_cost
from benchmarks.turns import turn_overheads
from benchmarks.turns_long import RESULTS, TURNS, long_turns
from benchmarks.workspaces import FILES, snapshot_cost
from windlass import ToolError

FOLDER = Path(".bench")
PEER_SCENARIOS = ("sequential", "concurrent", "looking")
PEER_ROUNDS = 3


class Row(NamedTuple):
    what: str
    measured: str
    wanted: str
    met: bool | None
    """None where nothing was promised."""


def core() -> Iterator[Row]:
    floors = {"sequential": 0.5, "looking": 1.5, "concurrent": 1.5, "graph": 1.5}
    for name, (scenario, text) in SCENARIOS.items():
        ratio, rate = measure(scenario, FOLDER / name)
        floor = floors.get(name)
        wanted = f"≥ {floor}× bare" if floor else ""
        yield Row(text, f"{ratio:.2f}× bare ({rate:,.0f}/s)", wanted, ratio >= floor if floor else None)


def postgres(*, peers: bool = True) -> Iterator[Row]:
    for text, ratio, rate in postgres_ratios(FOLDER / "postgres"):
        measured = f"{ratio:.2f}× bare PostgreSQL ({rate:,.0f}/s)"
        yield Row(f"PostgreSQL: {text}", measured, "≥ 0.5× bare", ratio >= 0.5)
    if not peers:
        return
    for missing in prepare(FOLDER / "peers"):
        print(f"could not be had: {missing}")
    for one in over_dbos(FOLDER / "postgres", FOLDER / "peers"):
        what = f"{one.scenario}: Windlass over DBOS, both on PostgreSQL"
        if one.error:
            yield Row(what, f"not measured: {one.error[-200:]}", "≥ 2×", None)
            continue
        over = one.ours / one.theirs
        text = f"{over:.1f}× ({one.ours:,.0f}/s, DBOS {one.version} {one.theirs:,.0f}/s)"
        yield Row(what, text, "≥ 2×", over >= 2)


def temporal() -> Iterator[Row]:
    from benchmarks.temporal import cluster_figures  # it takes a while to import

    for figure in cluster_figures():
        yield Row(*figure)


def instructions(*, peers: bool = True) -> Iterator[Row]:
    if valgrind() is None:
        print("instructions per step are not measured: apt-get install valgrind")
        return
    ours = {}
    for kind, most in recorded_figures().items():
        found = ours[kind] = measure_instructions(kind)
        wanted = f"≤ {most * GROWTH / 1000:.0f}k"
        yield Row(f"instructions a step: {KINDS[kind][2]}", f"{found / 1000:.0f}k", wanted, found <= most * GROWTH)
    for peer, kind, count, error in count_peers(FOLDER / "counted", FOLDER / "peers") if peers else ():
        text = f"not measured: {error[-200:]}" if error else f"{count / ours[kind]:.1f}× ({count / 1000:,.0f}k)"
        yield Row(
            f"instructions, {kind}: {peer} over Windlass", text, "≥ 5×", None if error else count >= 5 * ours[kind]
        )


def sizes() -> Iterator[Row]:
    small = run_size(100, FOLDER / "small", rounds=30)
    large = run_size(10_000, FOLDER / "large")
    ratio = large["per_step"] / small["per_step"]
    yield Row("10,000 steps, per step, over 100 steps", f"{ratio:.2f}×", "≤ 1.5×", ratio <= 1.5)
    peak = large["peak_mb"]
    yield Row("memory of the 10,000-step run", f"{peak:.0f} MB", "< 120 MB", peak < 120)


def start() -> Iterator[Row]:
    ratio, ours, bare = version_ratio()
    text = f"{ratio:.2f}× ({ours * 1000:.0f} ms, python -c pass {bare * 1000:.0f} ms)"
    yield Row("windlass --version", text, "≤ 6×", ratio <= 6)


def shell() -> Iterator[Row]:
    found = shell_cost()
    text = f"{found.added * 1000:.2f} ms (asyncio {found.alone * 1000:.2f} ms, load {_load()})"
    yield Row("shell step, CPU time over asyncio alone", text, "≤ 1.2 ms", found.added <= 0.0012)
    text = f"{found.below * 1000:.1f} ms (the shell alone {found.below_alone * 1000:.1f} ms)"
    yield Row("  CPU time of the processes below the engine's", text, "", None)


def slow() -> Iterator[Row]:
    found = slow_disk(FOLDER / "slow")
    late = f"loop late by {found['median_ms']:.1f} ms (median), {found['p99_ms']:.1f} ms (99 %), "
    late += f"{found['worst_ms']:.1f} ms (worst)"
    # While a commit takes 10 ms, a loop that it stalls is late by 10 ms half of the time.
    yield Row("fsync of 10 ms", late, "p99 < 5 ms", found["p99_ms"] < 5)
    going = found["steps_per_commit_time"]
    yield Row("steps per 10 ms on that disk, 50 executions", f"{going:.1f}", "> 1", going > 1)


def peers() -> Iterator[Row]:
    environment = FOLDER / "peers"
    for missing in prepare(environment):
        print(f"could not be had: {missing}")
    for name in PEERS:
        for scenario in PEER_SCENARIOS:
            yield _against(name, scenario, environment)


def _against(name: str, scenario: str, environment: Path) -> Row:
    """Ours and the peer's in turn, so that both meet the same disk; the median of the ratios."""
    ratios = []
    what = f"{scenario}: Windlass over {name}"
    for number in range(PEER_ROUNDS):
        folder = FOLDER / f"{name}-{scenario}-{number}"
        theirs = run_peer(name, scenario, environment, folder / "peer", timeout=300)
        if "error" in theirs:
            return Row(what, f"not measured: {theirs['error'][-200:]}", "≥ 5×", None)
        _ratio, ours = measure(SCENARIOS[scenario][0], folder / "ours")
        ratios.append((ours / theirs["steps_per_s"], ours, theirs))
    ratio, ours, theirs = sorted(ratios, key=lambda found: found[0])[len(ratios) // 2]
    text = f"{ratio:.1f}× ({ours:,.0f}/s, {name} {theirs['version']} {theirs['steps_per_s']:,.0f}/s)"
    return Row(what, text, "≥ 5×", ratio >= 5)


def prompts() -> Iterator[Row]:
    cost = prompt_cost(FOLDER / "prompt")
    text = f"{cost.seconds * 1000:.0f} ms ({cost.ratio:.1f}× reading the files)"
    yield Row("prompt of 200 skills and 500 files", text, "< 100 ms", cost.seconds < 0.1)


def opencode() -> Iterator[Row]:
    found = warm_turns(FOLDER / "opencode")
    if found is None:
        yield Row("warm turn of OpenCode over opencode run", "not measured: no opencode here (make dev)", "≥ 5×", None)
    else:
        text = f"{found.ratio:.1f}× ({found.warm * 1000:.0f} ms, run {found.alone:.1f} s)"
        yield Row("warm turn of OpenCode over opencode run", text, "≥ 5×", found.ratio >= 5)


def turns() -> Iterator[Row]:
    for found in turn_overheads(FOLDER / "turns"):
        text = f"{found.added * 1000:.0f} ms, {found.ratio:.0%} of {found.direct * 1000:.0f} ms"
        met = found.added < 0.05 or found.ratio < 0.1
        yield Row(f"added to a turn of {found.runtime}", text, "< 10 % or 50 ms", met)
    for result in RESULTS:
        grown = long_turns(FOLDER / f"long-{result}", result)
        text = f"{grown.late / grown.early:.2f}× ({grown.late * 1000:.0f} ms, {grown.summaries} summaries)"
        what = f"CPU time of turn {TURNS:,} over turn 10, results of {result // 1000} KB"
        yield Row(what, text, "≤ 1.2×", grown.late <= 1.2 * grown.early)
    size = grown.written / (result * TURNS)
    yield Row("  bytes of its conversation's file, over those of the results", f"{size:.2f}×", "≤ 1.5×", size <= 1.5)


def workspaces() -> Iterator[Row]:
    found = snapshot_cost(FOLDER / "workspaces")
    text = f"{found.warm * 1000:.0f} ms (the first {found.first:.1f} s)"
    yield Row(f"record of {FILES:,} files before and after a step, warm", text, "< 1 s", found.warm < 1)
    ratio = found.warm / found.status
    text = f"{ratio:.2f}× ({found.status * 1000:.0f} ms)"
    yield Row("  over git status", text, "≤ 1.2×", ratio <= 1.2)
    ratio = found.worktree / found.worktree_add
    text = f"{ratio:.2f}× ({found.worktree_add:.1f} s)"
    yield Row("a worktree for an agent, over git worktree add", text, "≤ 1.5×", ratio <= 1.5)


def stream() -> Iterator[Row]:
    found = stream_figures(FOLDER / "stream")
    text = f"{found.p99 * 1000:.0f} ms (half {found.p50 * 1000:.0f} ms, worst {found.worst * 1000:.0f} ms)"
    yield Row("1,000 clients, 20 silent, 200 events/s: p99", text, "< 250 ms", found.p99 < 0.25)
    cut = (found.silent_cut_off, found.cut_off, found.gaps)
    yield Row("cut off: silent, reading; gaps", f"{cut[0]}, {cut[1]}; {cut[2]}", "20, 0; 0", cut == (20, 0, 0))
    yield Row("memory that they add", f"{found.grown_mb:.0f} MB", "< 200 MB", found.grown_mb < 200)
    ratio = found.steps_beside / found.steps_alone
    text = f"{ratio:.2f}× ({found.work_ratio:.2f}× per CPU second, load {found.load:.1f})"
    yield Row("the engine's steps beside them", text, "≥ 0.85×", ratio >= 0.85)
    alone = f"{found.alone * 1000:.1f} ms"
    yield Row("first event to the only client, worst of 20", alone, "< 50 ms", found.alone < 0.05)


def lists() -> Iterator[Row]:
    for kind, p50, _p95, p99 in list_times():
        text = f"{p99 * 1000:.1f} ms (half {p50 * 1000:.1f} ms)"
        yield Row(f"{COUNT:,} executions, {kind}: p99", text, "< 6 ms", p99 < 0.006)


def history() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as aside:
        file = Path(aside) / "windlass.db"
        events = fill_history(file, EXECUTIONS)
        for question, first, again in answer_times(file):
            text = f"{first * 1000:.0f} ms (again {again * 1000:.0f} ms)"
            what = f"{EXECUTIONS:,} executions, {events:,} events: history {question}"
            yield Row(what, text, "< 300 ms", max(first, again) < 0.3)
    if valgrind() is None:
        print("the cost of writing the history is not measured: apt-get install valgrind")
        return
    for kind, (_steps, _few, _many, text) in SHARES.items():
        share = history_share(kind)
        yield Row(f"writing the history, {text}", f"{share:.1%} of the instructions", "< 5 %", share < 0.05)


def gates() -> Iterator[Row]:
    for found in gate_costs(FOLDER / "gates"):
        limit = 0.002 if "cache" in found.what else 0.00008
        wanted = f"< {limit * 1e6:,.0f} µs"
        yield Row(f"gates, {found.what}", f"{found.seconds * 1e6:.0f} µs a use", wanted, found.seconds < limit)


def forecasts() -> Iterator[Row]:
    for one in forecast_quality():
        what = f"forecasts at {one.done:.0%} of the steps: in the 80 % band"
        yield Row(what, f"{one.inside:.1%}", "75–85 %", 0.75 <= one.inside <= 0.85)
        text = f"{one.error:.0%} (mean of last runs {one.error_of_mean:.0%}, by percent {one.error_of_percent:.0%})"
        yield Row("  median error", text, "smallest", one.error < min(one.error_of_mean, one.error_of_percent))
    making, learning = forecast_cost()
    text = f"{making * 1000:.0f} ms CPU (learning, once a run: {learning * 1000:.0f} ms)"
    yield Row("one forecast of 1,000 steps", text, "< 50 ms", making < 0.05)
    share = asyncio.run(forecast_share(FOLDER / "forecasts"))
    yield Row("forecasting, of the engine's computing", f"{share:.2%}", "< 2 %", share < 0.02)


def browser() -> Iterator[Row]:
    try:
        found = asyncio.run(compare_browsers())
    except ToolError as error:
        yield Row("a browser step over playwright alone", f"not measured: {error}", "< 1.3×", None)
        return
    text = f"{found['ratio']:.2f}× ({found['ours']:.0f} ms, playwright {found['playwright']:.0f} ms, load {_load()})"
    yield Row("a browser step over playwright alone", text, "< 1.3×", found["ratio"] < 1.3)


def dashboard() -> Iterator[Row]:
    try:
        found = asyncio.run(page_figures([1_000, 10_000]))
    except ToolError as error:
        yield Row("pages of the dashboard", f"not measured: {error}", "", None)
        return
    for page, most in zip(found.pages, (1.5, 2.5), strict=True):
        seconds, slowest = page.shown_ms / 1000, min(page.list_fps, page.timeline_fps, page.graph_fps)
        what = f"page of {page.steps:,} steps"
        yield Row(f"{what}: first steps shown", f"{seconds:.2f} s", f"< {most} s", seconds < most)
        text = f"{page.list_fps:.0f}, {page.timeline_fps:.0f}, {page.graph_fps:.0f} a second"
        yield Row("  frames: list, timeline, graph", text, "≥ 30", slowest >= 30)
        yield Row("  memory of its tab", f"{page.memory_mb:.0f} MB", "< 250 MB", page.memory_mb < 250)
    key, grown, beside = found.watched.slowest_key_ms, found.grown, found.engine
    yield Row("slowest key at 200 events/s, to its frame", f"{key:.0f} ms", "< 200 ms", key < 200)
    more = grown.heap_after_mb - grown.heap_mb
    text = f"{more:.1f} MB more than at a tenth ({grown.heap_mb:.1f} MB)"
    yield Row(f"page left open, heap after {grown.events:,} events", text, "< 5 MB", more < 5)
    text = f"{beside.steps_beside:.2f}× ({beside.work_beside:.2f}× per CPU second, load {_load()})"
    yield Row(f"the engine's steps beside {PAGES} pages", text, "≥ 0.9×", beside.steps_beside >= 0.9)
    same = all(count <= beside.asked_by_client.get(kind, 0) + 2 for kind, count in beside.asked_by_page.items())
    text = ", ".join(f"{kind} {count:.0f}" for kind, count in sorted(beside.asked_by_page.items()))
    yield Row("  requests of a real page are no more than theirs", text, "", same)


def sandbox(engines: Sequence[str] = ENGINES) -> Iterator[Row]:
    _prepare(engines)
    for row in figures(FOLDER / "sandbox", FOLDER / "peers", engines):
        yield _beside(row)
    for found in calls_through_the_engine(FOLDER / "sandbox" / "engine"):
        text = f"{found.per_call * 1e6:.0f} µs (execution of 100: {found.whole * 1000:.0f} ms, load {_load()})"
        yield Row(f"engine, a call, {found.what}", text, "", None)
    yield from _held(engines, all_of_them=False)


def hostile(engines: Sequence[str] = ENGINES) -> Iterator[Row]:
    _prepare(engines)
    yield from _held(engines, all_of_them=True)


def _prepare(engines: Sequence[str]) -> None:
    if len(engines) > 1:
        for missing in prepare(FOLDER / "peers"):
            print(f"could not be had: {missing}")


def _beside(row: list[Figure]) -> Row:
    ours, *others = row
    program, scale = ours.program, 1e6 if ours.program.unit == "µs" else 1e3
    if ours.problem:
        return Row(program.what, f"not measured: {ours.problem[-200:]}", "", None)
    peers = [f"{one.engine} {'–' if one.problem else _short(one.seconds * scale)}" for one in others]
    text = f"{_short(ours.seconds * scale)} {program.unit} ({', '.join([*peers, f'load {_load()}'])})"
    wanted = f"< {program.below * scale:g} {program.unit}" if program.below else ""
    return Row(program.what, text, wanted, ours.seconds < program.below if program.below else None)


def _held(engines: Sequence[str], *, all_of_them: bool) -> Iterator[Row]:
    for engine in engines:
        found = containment(engine, FOLDER / "hostile", FOLDER / "peers", all_of_them=all_of_them)
        if found.problem:
            yield Row(f"hostile programs, {engine}", f"not measured: {found.problem[-200:]}", "", None)
            continue
        beyond = len({*found.too_long, *found.too_large})
        text = f"{beyond} beyond ({len(found.too_long)} time, {len(found.too_large)} memory, {len(found.hung)} hang); "
        text += f"worst {found.worst.cpu:.2f} s, {found.worst.memory >> 20} MB"
        ours = engine == ENGINES[0]
        what = f"{found.programs} hostile programs, {engine}"
        yield Row(what, text, "0 beyond" if ours else "", beyond == 0 if ours else None)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def approvals() -> Iterator[Row]:
    cost = asyncio.run(approval_costs())
    for what, seconds, most in (("first page", cost.page, 0.05), ("one answer", cost.answer, 0.02)):
        text = f"{what} of {QUESTIONS:,} open questions, CPU time"
        yield Row(text, f"{seconds * 1000:.1f} ms", f"< {most * 1000:g} ms", seconds < most)


def traces() -> Iterator[Row]:
    for kind, what in (("foreach", "foreach of 1,000 items"), ("steps", "10,000 steps")):
        cost = trace_cost(kind)
        text = f"{cost.seconds * 1e6:.0f} µs more (without: {cost.plain * 1e6:.0f} µs), {cost.dropped} spans dropped"
        met = cost.seconds < 0.0002 and not cost.dropped
        yield Row(f"traces, CPU time of a step: {what}", text, "< 200 µs, none dropped", met)
    seconds, size = scrape_cost()
    text = f"{seconds * 1000:.0f} ms for {size / 1000:.0f} KB"
    yield Row("a page of metrics, every label at its limit, CPU time", text, "< 100 ms", seconds < 0.1)


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "core": core,
    "instructions": instructions,
    "sizes": sizes,
    "start": start,
    "shell": shell,
    "slow": slow,
    "prompts": prompts,
    "turns": turns,
    "workspaces": workspaces,
    "opencode": opencode,
    "stream": stream,
    "list": lists,
    "history": history,
    "approvals": approvals,
    "postgres": postgres,
    "temporal": temporal,
    "gates": gates,
    "forecasts": forecasts,
    "traces": traces,
    "browser": browser,
    "dashboard": dashboard,
    "sandbox": sandbox,
    "peers": peers,
    "hostile": hostile,
}
BY_NAME_ALONE = ("hostile",)
"""Parts that take so long that they run when they are asked for."""


def _rows(part: str, measure: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """Rows of a part. One that breaks is a figure that is missed, and the other parts are measured all the same."""
    try:
        yield from measure()
    except Exception as error:
        traceback.print_exc()
        yield Row(part, f"not measured: {type(error).__name__}", "", False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=[part for part in PARTS if part not in BY_NAME_ALONE]
    )
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--record", action="store_true", help="write the ratios that later runs are compared with")
    chosen = parser.parse_args()
    alone: dict[str, Callable[[], Iterator[Row]]] = {
        "sandbox": partial(sandbox, ENGINES[:1]),
        "hostile": partial(hostile, ENGINES[:1]),
        "postgres": partial(postgres, peers=False),
        "instructions": partial(instructions, peers=False),
    }
    parts = PARTS | alone if chosen.no_peers else PARTS
    for stale in FOLDER.glob("*"):
        if stale.name != "peers":
            shutil.rmtree(stale)
    print(f"bare SQLite: {bare_rate(FOLDER / 'bare', 2000):,.0f} commits/s\n")
    print(f"{'':<50} {'measured':<62} {'wanted':<12}")
    shown: list[Row] = []
    for part in chosen.only:
        if part == "peers" and chosen.no_peers:
            continue
        for row in _rows(part, parts[part]):
            mark = {True: "✓", False: "✗", None: " "}[row.met]
            print(f"{row.what:<50} {row.measured:<62} {row.wanted:<12} {mark}", flush=True)
            shown.append(row)
    for warning in fallen(((row.what, row.measured, row.wanted) for row in shown), recorded()):
        print(warning)
    if chosen.record:
        record({row.what: ratio for row in shown if (ratio := ratio_of(row.measured)) is not None})
    sys.exit(any(row.met is False for row in shown))


if __name__ == "__main__":
    main()
