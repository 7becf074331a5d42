"""The programs that every JavaScript engine is measured with, the same text for all, each with what it must come to."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.peers.sandboxed import Asked
from tests.sandbox import hostile

__all__ = ["PROGRAMS", "Measured", "hostile_programs"]

CALLS = 300
ROWS = [{"id": n, "name": f"file-{n}.py", "size": n * 37 % 1000, "tags": ["a", "b"]} for n in range(1000)]


class Measured(NamedTuple):
    what: str
    asked: Asked
    value: Any
    per: int = 1
    """What the time is divided by."""
    unit: str = "ms"
    below: float | None = None
    """Seconds that ours is to stay below."""


PROGRAMS = {
    "fresh": Measured("a program that returns 1", Asked("return 1", times=20), 1, below=0.005),
    "data": Measured(
        "1,000 objects given, filtered, summed",
        Asked(
            "const large = inputs.rows.filter((row) => row.size > 500 && row.tags.includes('a'));"
            "return { count: large.length, names: large.slice(0, 100).map((row) => row.name) }",
            {"rows": ROWS},
            times=10,
        ),
        {
            "count": sum(row["size"] > 500 for row in ROWS),  # type: ignore[operator]
            "names": [row["name"] for row in ROWS if row["size"] > 500][:100],  # type: ignore[operator]
        },
    ),
    "calls": Measured(
        "a call of the host, one after the other",
        Asked(f"let n = 0; for (let i = 0; i < {CALLS}; i++) n = await tools.add({{ x: n }}); return n"),
        CALLS,
        CALLS,
        "µs",
        0.0005,
    ),
    "batch": Measured(
        "a call of the host, 300 at once",
        Asked(
            f"const all = Array.from({{ length: {CALLS} }}, (_, x) => tools.add({{ x }}));"
            "return (await Promise.all(all)).reduce((sum, n) => sum + n, 0)"
        ),
        CALLS * (CALLS + 1) // 2,
        CALLS,
        "µs",
        0.0001,
    ),
    "loop": Measured(
        "a loop of 1,000,000 additions",
        Asked("let n = 0; for (let i = 0; i < 1e6; i++) n = (n + i) % 1000003; return n"),
        sum(range(10**6)) % 1000003,
    ),
    # A second on the wall would count what the other 99 do, so that here nobody has so little.
    "at once": Measured(
        "100 programs at once, 10 calls each",
        Asked(
            "let n = 0; for (let i = 0; i < 10; i++) n = await tools.add({ x: n }); return n",
            times=100,
            at_once=True,
            limit=30.0,
        ),
        10,
    ),
}

_REPRESENTATIVE = {
    "COMPUTING": (
        "an empty loop",
        "one search in something endless",
        "one power of a BigInt",
        "a pattern that goes back exponentially",
        "a flood of promises",
        "a flood of microtasks",
        "a getter of the result",
    ),
    "FILLING": ("arrays of arrays", "strings", "buffers", "one buffer", "microtasks"),
    "NESTING": ("a function", "JSON that is read"),
    "FLOODING": ("calls", "calls at once", "lines", "a result of holes", "waiting for nothing"),
}


def hostile_programs(*, all_of_them: bool) -> dict[str, str]:
    """Programs that mean harm, as the tests of the sandbox have them: some of each kind, or every one."""
    chosen: dict[str, str] = {}
    for table, some in _REPRESENTATIVE.items():
        programs = getattr(hostile, table)
        for name in programs if all_of_them else some:
            program = programs[name]
            chosen[f"{table.lower()}: {name}"] = program if isinstance(program, str) else program[0]
    return chosen
