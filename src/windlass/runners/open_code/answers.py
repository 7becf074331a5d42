"""What the server answers, and the end of a turn that cannot go on after it."""

from __future__ import annotations

from typing import Any

from windlass.errors import Category, Failure
from windlass.runners.open_code import failures

__all__ = ["Stopped", "answered", "refusal"]


class Stopped(Exception):
    """The turn cannot go on; the failure says why."""

    def __init__(self, failure: Failure, *, session_lost: bool = False) -> None:
        super().__init__(failure.message)
        self.failure, self.session_lost = failure, session_lost


def answered(answer: Any) -> dict[str, Any]:
    """The JSON object of an answer, or the failure that it means."""
    if answer.status_code >= 400:
        raise Stopped(refusal(answer.status_code, answer.text))
    try:
        found = answer.json()
    except ValueError:
        raise Stopped(
            failures.cut_off(f"its server answered with something else than JSON: {answer.text[:200]!r}")
        ) from None
    return found if isinstance(found, dict) else {}


def refusal(status: int, text: str) -> Failure:
    said = f"its server answered {status}: {' '.join(text.split())[:300]}"
    if status >= 500:
        return failures.cut_off(said)
    return Failure(Category.LOGIC, f"{failures.NAME}: {said}", elsewhere=True)
