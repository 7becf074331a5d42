"""`make trust`: run the tests behind the promises under fault and attack, and write the counts into the docs.

    python scripts/trust.py [--only TEXT] [option of pytest …]     --only: rows with a test whose path holds the text

The rows are in `trust.toml`: what is tried, and the tests that try it. A test counts as one case; one that tries many
in a loop says how many with `record_property("tried", n)`. The tables stand in docs/durability.md and docs/security.md
between two comments; everything else on these pages is left as it is.
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"faults": ROOT / "docs/durability.md", "attacks": ROOT / "docs/security.md"}
BEGIN, END = "<!-- trust: {} -->", "<!-- end of trust -->"


def rows() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((Path(__file__).parent / "trust.toml").read_text())


class Counts:
    """A pytest plugin that counts the cases of each test, and those that held."""

    def __init__(self) -> None:
        self.tried: dict[str, int] = defaultdict(int)
        self.held: dict[str, int] = defaultdict(int)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped or (report.when != "call" and report.passed):
            return
        cases = int(dict(report.user_properties).get("tried", 1))
        self.tried[report.nodeid] += cases
        self.held[report.nodeid] += cases if report.passed else 0


def table(kind: str, counts: Counts, before: str) -> str:
    """The table with the new counts; a row whose tests did not run stays as it was before."""
    lines = [f"| {kind[:-1]} | tried | held | by |", "|---|---|---|---|"]
    known = {line.split(" | ")[0].removeprefix("| "): line for line in before.splitlines() if line.startswith("| ")}
    for row in rows()[kind]:
        chosen = [node for node in counts.tried if any(_belongs(node, test) for test in row["tests"])]
        if not chosen and row["what"] in known:
            lines.append(known[row["what"]])
            continue
        tried, held = (sum(found[node] for node in chosen) for found in (counts.tried, counts.held))
        tests = ", ".join(f"`{test.removeprefix('tests/')}`" for test in row["tests"])
        lines.append(f"| {row['what']} | {tried:,} | {held:,} | {tests} |")
    return "\n".join(lines)


def _belongs(node: str, test: str) -> bool:
    return node == test or node.startswith((f"{test}::", f"{test}["))


def write(kind: str, counts: Counts) -> None:
    page = PAGES[kind]
    before, begin, rest = page.read_text().partition(BEGIN.format(kind))
    old, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no place for the table of {kind}")
    page.write_text(f"{before}{begin}\n{table(kind, counts, old)}\n{end}{after}")


def main(arguments: list[str]) -> int:
    """Run the tests of all rows (or of those chosen) and write the tables; pytest's exit code."""
    only = ""
    if arguments[:1] == ["--only"]:
        only, arguments = arguments[1], arguments[2:]
    counts = Counts()
    tried = [row["tests"] for found in rows().values() for row in found]
    tests = sorted({test for row in tried if any(only in test for test in row) for test in row})
    code = pytest.main([*(arguments or ["-n", "2", "--dist", "worksteal", "-q"]), *tests], plugins=[counts])
    for kind in PAGES:
        write(kind, counts)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
