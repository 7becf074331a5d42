"""A message leaves once: what is written down before and after it is handed over, and what a second attempt finds.

The argument, attempt by attempt. `begun` is on disk before the first byte that the other side could act on. So a second
attempt finds one of:

- nothing: no attempt came that far, or the other side has refused it for good. It is handed over.
- `sent`: the recorded result is returned, nothing is sent.
- `begun` by this very attempt, or by a later one: another process has it in hand, or died with it. Nothing is sent, and
  the error says that nobody knows.
- `begun` by an earlier attempt: that one was cut off, and as the effect is `once`, the engine has asked a person, who
  said that it shall be done again (or the plan's own `effect:` says so). It is handed over again.

The last case needs that no failure of which the end is unknown is retried unasked: it is always `OutcomeUnknown`, which
is final.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from windlass.clock import iso
from windlass.errors import CUT_OFF, Category, Failure, ToolError
from windlass.faults import fault_point
from windlass.ports import Call
from windlass.tools.message.book import Book, Entry

__all__ = ["OutcomeUnknown", "Parcel"]


class OutcomeUnknown(ToolError):
    """It was handed over, and nobody knows what came of it."""

    def __init__(self, message: str, *advice: str) -> None:
        super().__init__(message)
        told = advice or ("ask the recipient, or look at the service, whether it has arrived",)
        # Trying again unasked could send it twice.
        self.failure = Failure(Category.TRANSIENT, message, advice=told, kind=CUT_OFF, final=True)


class Parcel:
    """One message of one step, on its way."""

    def __init__(self, book: Book, now: Callable[[], float], call: Call, service: str, content: Any) -> None:
        """`content` is plain data: all that makes this message differ from another one."""
        self._book, self._now, self._call, self._service = book, now, call, service
        told = json.dumps([service, content], sort_keys=True)
        self._digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def id(self) -> str:
        """The same for every attempt at this message: lets the other side recognise a repetition."""
        return hashlib.sha256(f"{self._call.effect_id}\n{self._digest}".encode()).hexdigest()[:40]

    def known(self) -> dict[str, Any] | None:
        """What came of it, when it has been sent already."""
        entry = self._book.look(self._call.effect_id, self._digest)
        if entry is None or (entry.result is None and entry.attempt < self._call.attempt):
            return None
        return self._recorded(entry)

    async def hand_over(self, act: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Do it, unless it has been done. A ToolError of `act` means that the other side has not taken it; whatever
        else ends it leaves open what came of it."""
        call = self._call
        before = self._book.begin(call.effect_id, self._digest, call.attempt, self._service, self._now())
        if before is not None:
            return self._recorded(before)
        fault_point("message.begun")
        try:
            told = await act()
        except OutcomeUnknown:
            raise
        except ToolError:
            self._book.withdraw(call.effect_id, self._digest)
            raise
        except Exception as error:
            raise OutcomeUnknown(
                f"handing the message over to {self._service!r} ended with {type(error).__name__}: nobody "
                "knows whether it has arrived"
            ) from error
        fault_point("message.handed")
        result = {"service": self._service, "sent_at": iso(self._now()), "repeated": False, **told}
        try:
            self._book.sent(call.effect_id, self._digest, result, self._now())
        except ToolError as error:
            call.output("note", f"the message was sent, but: {error}\n")
        fault_point("message.sent")
        return result

    def _recorded(self, entry: Entry) -> dict[str, Any]:
        if entry.result is not None:
            self._call.output("note", "this message has been sent already: nothing was sent now\n")
            return {**entry.result, "repeated": True}
        raise OutcomeUnknown(
            f"this message was handed over to {self._service!r} at {iso(entry.begun)}, by a process that has not said "
            "how it ended: nobody knows whether it has arrived, so it is not sent again"
        )
