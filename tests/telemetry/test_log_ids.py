"""Log lines with the ids of the execution, step, attempt and span that they are about (I6)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import windlass
from windlass.redact import Redactor
from windlass.server.logs import JsonLines
from windlass.settings import TelemetrySettings
from windlass.telemetry import Tracing
from windlass.telemetry.ids import attempt_span


class Kept(logging.Handler):
    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


async def test_i6_a_line_from_inside_an_attempt_names_it_and_its_span(project: Any, tmp_path: Path) -> None:
    log = logging.getLogger("windlass.tests.inside")

    @windlass.tool
    async def talk(word: str) -> str:
        log.warning("said %s", word)
        return word

    plan = "steps: [{id: a, tool: talk, with: {word: x}}, {id: b, tool: talk, with: {word: y}, needs: [a]}]"
    async with windlass.open(tmp_path / "home", tools=[talk]) as engine:
        tracing = Tracing(TelemetrySettings(endpoint="http://127.0.0.1:1"), engine.journal)
        kept = Kept(JsonLines(Redactor({}), tracing))
        log.addHandler(kept)
        try:
            execution = await engine.start(engine.parse(plan), workdir=tmp_path)
            await engine.wait(execution.id)
            log.warning("outside")
            log.warning("about another", extra={"fields": {"execution": "other"}})
        finally:
            log.removeHandler(kept)
    first, second, outside, other = kept.lines
    assert [(line["execution"], line["step"], line["attempt"]) for line in (first, second)] == [
        (execution.id, "a", 1),
        (execution.id, "b", 1),
    ]
    assert second["trace_id"] == execution.id.replace("-", "")
    assert second["span_id"] == f"{attempt_span(execution.id, 'b', 1):016x}"
    assert "execution" not in outside
    assert (other["execution"], "step" in other) == ("other", False)
