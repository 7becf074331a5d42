"""What the model behind the agents says: it does what it is asked, goes on when a tool failed, and is at times away."""

from __future__ import annotations

import re
from collections.abc import Callable

from faults import Faults

from windlass.testing import Received, Reply

__all__ = ["DESIGN", "answering"]

DESIGN = "A drum, a crank and a pawl."
_FAILS = {
    "529": Reply.error(529, "overloaded"),
    "503": Reply.error(503, "busy"),
    "cut": Reply.drop(),
    "cut in the middle": Reply.drop(after="A dr"),
}


def answering(faults: Faults) -> Callable[[Received], Reply]:
    def answer(request: Received) -> Reply:
        return _FAILS[faults.one_of(*_FAILS)] if faults.strikes() else _answer(request)

    return answer


def _answer(request: Received) -> Reply:
    # By all that was said: who goes on after a fault is not told the task again.
    if "WINCH.md" in request.text:
        handed = DESIGN if DESIGN in request.text else "nobody has said how"
        return Reply.say("Written.") if _wrote(request, "WINCH.md") else _write("WINCH.md", handed)
    if "how to build a winch" in request.text:
        return Reply.say(DESIGN)
    figures = re.search(r"first=(\d+), second=(\d+)", request.text)
    if figures is None:
        return Reply.use("files__read", {"path": "figures.txt"})
    total = str(int(figures[1]) + int(figures[2]))
    return Reply.say(f"The sum is {total}.") if _wrote(request, "sum.txt") else _write("sum.txt", total)


def _write(path: str, content: str) -> Reply:
    return Reply.use("files__write", {"path": path, "content": content})


def _wrote(request: Received, path: str) -> bool:
    return any(path in told and "sha256" in told for told in request.tool_results)
