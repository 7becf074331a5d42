"""Findings of the checks, with their places in the plan file; and the rest of a flawed step that can be checked."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import Any, NamedTuple, Protocol

from windlass.errors import Problem
from windlass.plan.model import OF_AGENTS, OF_PROGRAMS, Plan, Step
from windlass.plan.program import source_problem
from windlass.plan.schema import nearest
from windlass.plan.yamlread import FilePosition, Path
from windlass.values import ValidationError

__all__ = ["STAND_IN", "Findings", "Locate", "Report", "readable_id", "salvaged"]

_MOST_COMPARISONS = 100_000
"""Words that one check compares to find the nearest: a thousand take about 15 ms."""


class Locate(Protocol):
    def __call__(self, path: Path, inside: FilePosition | None = None) -> FilePosition | None:
        """Find the position of a plan's path in its file, or of a place inside the text that is its value."""
        ...


class Findings(NamedTuple):
    """Result of the checks. The plan is set if there is no problem."""

    plan: Plan | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


class Report:
    """Collects what is found, with its places."""

    def __init__(self, file: str, locate: Locate | None) -> None:
        self._file = file
        self._locate = locate
        self._problems: list[Problem] = []
        self._warnings: list[Problem] = []
        self._comparisons = 0

    def problem(self, message: str, path: Path, hint: str = "", inside: FilePosition | None = None) -> None:
        self._problems.append(self._at(path, message, hint, inside))

    def warning(self, message: str, path: Path, hint: str) -> None:
        self._warnings.append(self._at(path, message, hint))

    def did_you_mean(self, word: str, known: Collection[str], prefix: str = "") -> str:
        self._comparisons += len(known)
        found = nearest(word, known) if self._comparisons <= _MOST_COMPARISONS else None
        return f"did you mean `{prefix}{found}`?" if found else ""

    def line(self, path: Path) -> int | None:
        place = self._locate(path) if self._locate else None
        return place.line if place else None

    def findings(self, plan: Plan | None) -> Findings:
        found = (sorted(ps, key=_order) for ps in (self._problems, self._warnings))
        problems, warnings = map(tuple, found)
        return Findings(None if problems else plan, problems, warnings)

    def _at(self, path: Path, message: str, hint: str, inside: FilePosition | None = None) -> Problem:
        place = self._locate(path, inside) if self._locate else None
        line, column = place or (None, None)
        return Problem(message, self._file, line, column, _where(path), hint)


def _order(problem: Problem) -> tuple[float, int]:
    return problem.line or float("inf"), problem.column or 0


def _where(path: Path) -> str:
    """`steps[2].needs[0]`"""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return shown.removeprefix(".")


STAND_IN = "_"
"""The id or tool of a step that has none of its own."""


def salvaged(raw: Any, flaws: Set[str]) -> Step | None:
    """A step without its flawed fields, with stand-ins for what no step can be without."""
    if not isinstance(raw, dict):
        return None
    # Limits are valid or not depending on the rest of the step, and nothing else depends on them.
    kept = {key: value for key, value in raw.items() if key not in flaws and key != "limits"}
    kept.setdefault("id", STAND_IN)
    kept |= {"tool": kept.get("tool") or STAND_IN}
    if (kept.get("prompt") or "").strip():
        others: tuple[str, ...] = ("run", "tool", "with", "code", *OF_PROGRAMS)
    elif kept.get("run"):
        others = ("tool", "code", *OF_AGENTS, *OF_PROGRAMS, "agent", "prompt")
    elif source_problem(kept.get("code") or "") is None:
        others = ("run", "tool", *OF_AGENTS, "agent", "prompt")
    else:
        others = ("run", "code", *OF_AGENTS, "agent", "prompt")
    try:
        return Step.model_validate({key: value for key, value in kept.items() if key not in others})
    except ValidationError:  # fields that are right each by itself, and wrong together
        return Step.model_validate({"id": kept["id"], "tool": STAND_IN})


def readable_id(raw: Any) -> str | None:
    found = raw.get("id") if isinstance(raw, dict) else None
    return found if isinstance(found, str) and found else None
