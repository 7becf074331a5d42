"""A model that follows a script: a local server that speaks the wire protocols of the real APIs.

    with ScriptedModel([Reply.use("Write", {"file_path": "a", "content": "b"}), Reply.say("done")]) as model:
        ...  # point a client at model.url (Anthropic) or model.openai_url (OpenAI)
    model.check()

It listens on loopback only, in a thread of its own, so it serves sync and async tests and other processes alike. Its
parts are in `scripted/`: replies, wire formats, HTTP, the choice of a reply, and which requests are asides.
As a program: `windlass scripted-model SCRIPT`.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from windlass.testing.scripted.conversation import Aside, ReplyScript, ScriptedConversation, Served, SideQuestions
from windlass.testing.scripted.http import Serving
from windlass.testing.scripted.reply import Received, Reply, ToolUse
from windlass.testing.scripted.script_file import read_script
from windlass.testing.scripted.serve import serve

__all__ = ["Received", "Reply", "ScriptedModel", "Served", "ToolUse"]

PATIENCE = 60.0
"""Seconds that `wait_for` waits by default."""


class ScriptedModel:
    """A local model API that answers from a script."""

    def __init__(
        self,
        script: ReplyScript = (),
        *,
        port: int = 0,
        aside: Aside | None = None,
        models: Sequence[str] = ("scripted",),
    ) -> None:
        """`aside` decides which requests are side calls: False, True, or the Reply that they get.

        `models` is what the API lists; a request may name any model.
        """
        self._conversation = ScriptedConversation(script, aside or SideQuestions(), models)
        self._port = port
        self._serving: Serving | None = None

    @classmethod
    def from_file(cls, path: str | Path, *, port: int = 0, aside: Aside | None = None) -> ScriptedModel:
        """The script in a YAML or JSON file: a list of replies, in the words of `Reply`."""
        return cls(read_script(Path(path)), port=port, aside=aside)

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> ScriptedModel:
        """Listen. A scripted model is served once: its script and its notes belong to one test."""
        if self._serving is not None:
            raise RuntimeError("this scripted model has been started before: make another one")
        self._serving = Serving(functools.partial(serve, self._conversation), self._port)
        return self

    def stop(self) -> None:
        """Break all connections and free the port. Received requests stay to be looked at."""
        if self._serving is not None:
            self._serving.stop()

    def __enter__(self) -> ScriptedModel:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> ScriptedModel:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def url(self) -> str:
        """For Anthropic's clients: `ANTHROPIC_BASE_URL`."""
        if self._serving is None:
            raise RuntimeError("this scripted model is not served yet: use it in a `with` block, or call start()")
        return f"http://127.0.0.1:{self._serving.port}"

    @property
    def openai_url(self) -> str:
        """For OpenAI's clients: `OPENAI_BASE_URL`."""
        return f"{self.url}/v1"

    # -- what a test asks ------------------------------------------------------------------------

    @property
    def requests(self) -> list[Received]:
        """Requests for a reply of the script so far, in order of arrival."""
        return list(self._conversation.requests)

    @property
    def asides(self) -> list[Received]:
        """Side calls: titles, probes. They got a short answer and used up nothing."""
        return list(self._conversation.asides)

    @property
    def count_tokens_calls(self) -> list[Received]:
        return list(self._conversation.counts)

    @property
    def errors(self) -> list[str]:
        """All that went wrong in here: a client that speaks wrongly, a script that ran out."""
        return list(self._conversation.errors)

    @property
    def served(self) -> Served:
        """Totals of the replies that were sent whole."""
        return self._conversation.total

    def wait_for(self, count: int, timeout: float = PATIENCE) -> list[Received]:
        """Wait until so many requests have come, and give them. TimeoutError when they do not."""
        with self._conversation.arrived:
            if not self._conversation.arrived.wait_for(lambda: len(self._conversation.requests) >= count, timeout):
                raise TimeoutError(self._missing(count, timeout))
        return self.requests[:count]

    async def wait_for_async(self, count: int, timeout: float = PATIENCE) -> list[Received]:
        """The same without blocking the event loop."""
        deadline = time.monotonic() + timeout
        while len(self._conversation.requests) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(self._missing(count, timeout))
            await asyncio.sleep(0.005)
        return self.requests[:count]

    def check(self) -> None:
        """AssertionError when anything went wrong in here or a reply was never asked for; lists all of it."""
        if complaints := self._conversation.complaints():
            lines = "\n".join(f"  - {line}" for line in complaints)
            raise AssertionError(f"the scripted model found problems:\n{lines}")

    def _missing(self, count: int, timeout: float) -> str:
        wrong = f"; errors: {'; '.join(self.errors)}" if self.errors else ""
        return f"{len(self.requests)} of {count} requests came within {timeout:g} s, {len(self.asides)} asides{wrong}"
