"""Side calls of the runtimes: they must not use up the script."""

from __future__ import annotations

from windlass.testing.scripted.received import Received
from windlass.testing.scripted.reply import Reply

__all__ = ["answer_to_aside", "is_aside"]


def is_aside(received: Received) -> bool:
    return False


def answer_to_aside(received: Received) -> Reply:
    return Reply.say("Scripted")
