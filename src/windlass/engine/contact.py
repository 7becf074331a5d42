"""The link between an attempt and its driver: the attempt reports events and gets a person's answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from windlass.core import events as ev
from windlass.core.approval import Basis, asked_again, changes, digest_of
from windlass.core.state import State, StepState
from windlass.engine.gates import Gates
from windlass.engine.gates.outflow import MOST_SHOWN, OutputCap
from windlass.ports import Answer, Call, PersonAnswer, Tool, Toolbox, Whereabouts

if TYPE_CHECKING:
    from windlass.ports.service import ServiceHost

__all__ = ["AttemptContext", "AttemptOutput", "Listener", "ReopenedContext", "off_the_clock"]


class Listener(Protocol):
    """The driver, as an attempt sees it."""

    @property
    def state(self) -> State: ...

    def hear(self, event: ev.Event, *, soon: bool = True, within: str = "") -> None: ...

    def show(self, started: ev.AttemptStarted, stream: str, text: str) -> None:
        """Output of an attempt, from any thread."""
        ...

    def written(self) -> asyncio.Future[None]:
        """Done when everything heard so far is on disk."""
        ...

    def asked(self, step: str, digest: str) -> asyncio.Future[Answer]:
        """The answer, when it comes."""
        ...

    async def history(self, execution: str = "") -> list[ev.Event]:
        """The journal so far, of this execution or of another one."""
        ...

    def message(self, step: str) -> asyncio.Future[None]:
        """Done when the next message of a person to this step's agent is on disk."""
        ...

    def close(self, step: str) -> None:
        """This step's agent takes no more messages: its attempt is about to end."""
        ...

    def question(
        self, step: StepState, digest: str, tool: str, input: Any, basis: Basis, text: str, workdir: str
    ) -> ev.ApprovalAsked: ...


_AT_ONCE = (ev.AgentBegan, ev.AgentSession, ev.UsageReported, ev.RuntimeFellBack, ev.BudgetWarned, ev.BudgetWaited)
"""Events to write at once, because they must not be lost or a caller waits for them. The rest is batched."""


class AttemptOutput(OutputCap):
    """`call.output` of an attempt that a driver has started."""

    __slots__ = ("_driver", "_started")

    def __init__(self, driver: Listener, started: ev.AttemptStarted) -> None:
        self._driver, self._started, self._left = driver, started, MOST_SHOWN

    def say(self, stream: str, text: str) -> None:
        self._driver.show(self._started, stream, text)


class AttemptContext(msgspec.Struct, eq=False):
    """Implements `ports.Contact` for one attempt."""

    _driver: Listener
    step: StepState
    tools: Toolbox
    _gates: Gates
    limit: asyncio.Timeout | None = None
    """The timeout of the attempt."""
    files: Whereabouts | None = None
    services: ServiceHost | None = None
    _one_at_a_time: asyncio.Lock | None = None

    @property
    def state(self) -> State:
        return self._driver.state

    def tell(self, event: ev.Event, *, soon: bool | None = None) -> None:
        self._driver.hear(event, soon=isinstance(event, _AT_ONCE) if soon is None else soon)

    async def use(self, tool: Tool, arguments: Mapping[str, Any], call: Call) -> Any:
        return await self._gates.use(tool, arguments, call, self.tools)

    async def record(self, event: ev.Event) -> None:
        self._driver.hear(event)
        await self._driver.written()

    async def history(self, execution: str = "") -> list[ev.Event]:
        names = (self.step.id, self.step.spec.id)  # a retry of all items is an event of the step
        return [event for event in await self._driver.history(execution) if getattr(event, "step", None) in names]

    async def message(self) -> None:
        await asyncio.shield(self._driver.message(self.step.id))

    def close(self) -> None:
        self._driver.close(self.step.id)

    def unclocked(self) -> AbstractContextManager[None]:
        return off_the_clock(self.limit)

    async def ask(self, tool: str, input: Any, workdir: Path, *, use: str = "", question: str = "") -> PersonAnswer:
        named = f"{self.step.id}#{use}" if use else self.step.id
        folder = "" if workdir == Path(self.state.workdir) else str(workdir)
        self._one_at_a_time = self._one_at_a_time or asyncio.Lock()
        async with self._one_at_a_time:
            asked: Basis | None = None
            while True:
                basis = await asyncio.to_thread(self._basis, tool, input, workdir)
                digest = digest_of(named, tool, input, basis)
                answered = (self.step.answers or {}).get(digest)
                if answered is not None:
                    return PersonAnswer(bool(answered.allow), answered.note, basis)
                before = asked if asked is not None else self._asked_before(named, tool, input)
                again = asked_again(changes(before, basis)) if before is not None else ""
                text = "; ".join(filter(None, (question, again)))
                answer = self._driver.asked(self.step.id, digest)
                self._driver.hear(self._driver.question(self.step, digest, tool, input, basis, text, folder))
                with off_the_clock(self.limit):
                    if not (said := await answer).allow:
                        return PersonAnswer(False, said.note, basis)
                asked = basis  # allowed: found above in the next turn, unless something changed meanwhile

    def _basis(self, tool: str, input: Any, workdir: Path) -> dict[str, str]:
        return self._gates.basis(self.tools.get(tool), input, workdir, self.tools)

    def _asked_before(self, named: str, tool: str, input: Any) -> Basis | None:
        """The basis of the last answer to the same question."""
        for answer in reversed((self.step.answers or {}).values()):
            if answer.attempt and answer.digest == digest_of(named, tool, input, answer.basis):
                return answer.basis
        return None

    def for_agent_of(self, step: StepState) -> ReopenedContext:
        return ReopenedContext(self._driver, step, self.tools, self._gates, limit=self.limit, _within=self)


class ReopenedContext(AttemptContext):
    """The same for the agent of a completed step, within the attempt of another one."""

    _within: AttemptContext | None = None

    def tell(self, event: ev.Event, *, soon: bool | None = None) -> None:
        assert self._within is not None
        at_once = isinstance(event, _AT_ONCE) if soon is None else soon
        self._driver.hear(event, soon=at_once, within=self._within.step.id)

    async def record(self, event: ev.Event) -> None:
        self.tell(event, soon=True)
        await self._driver.written()

    def close(self) -> None:
        """Nobody can send a message to it: its step is completed."""

    async def ask(self, tool: str, input: Any, workdir: Path, *, use: str = "", question: str = "") -> PersonAnswer:
        assert self._within is not None
        return await self._within.ask(tool, input, workdir, use=use, question=question)


@contextmanager
def off_the_clock(limit: asyncio.Timeout | None) -> Iterator[None]:
    """Stop a timeout's clock within this, while a person takes time to answer."""
    ends = limit.when() if limit is not None else None
    if limit is None or ends is None:
        yield
        return
    now = asyncio.get_running_loop().time
    left = ends - now()
    limit.reschedule(None)
    try:
        yield
    finally:
        with suppress(RuntimeError):  # the timeout has ended meanwhile
            limit.reschedule(now() + left)
