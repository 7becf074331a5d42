"""An attempt's line to its driver: what is written at once, who is asked, and whose time runs (C6, D2)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from waiting import settled

from windlass.core import events as ev
from windlass.core.state import State, StepState
from windlass.engine.contact import AttemptContext, off_the_clock
from windlass.engine.gates import Gates
from windlass.plan.model import Plan
from windlass.ports import Answer, PersonAnswer
from windlass.testing import Simulation
from windlass.tools.built_in import Registry

AGENT = {"agent": "developer", "prompt": "do it"}


class Listener:
    """A driver that notes what it hears. A person answers by `answer`."""

    def __init__(self) -> None:
        steps = [{"id": "work", **AGENT}, {"id": "earlier", **AGENT}]
        self.run = Simulation(Plan.model_validate({"name": "p", "steps": steps}), hold=True)
        self.run.start()
        self.run.finish("earlier")
        self.heard: list[tuple[ev.Event, bool, str]] = []
        """Events, whether they are to be written at once, and the step within whose attempt they happened."""
        self.closed: list[str] = []
        self._on_disk: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked: dict[str, asyncio.Future[Answer]] = {}
        self.work = AttemptContext(self, self.state.steps["work"], Registry(), Gates())
        self.reopened = self.work.for_agent_of(self.state.steps["earlier"])

    @property
    def state(self) -> State:
        return self.run.state

    def hear(self, event: ev.Event, *, soon: bool = True, within: str = "") -> None:
        self.heard.append((event, soon, within))

    def show(self, started: ev.AttemptStarted, stream: str, text: str) -> None:
        raise NotImplementedError

    def written(self) -> asyncio.Future[None]:
        return self._on_disk

    def write(self) -> None:
        self._on_disk.set_result(None)

    def asked(self, step: str, digest: str) -> asyncio.Future[Answer]:
        self._asked[step] = asyncio.get_running_loop().create_future()
        return self._asked[step]

    async def history(self, execution: str = "") -> list[ev.Event]:
        raise NotImplementedError

    def message(self, step: str) -> asyncio.Future[None]:
        raise NotImplementedError

    def close(self, step: str) -> None:
        self.closed.append(step)

    def question(
        self, step: StepState, digest: str, tool: str, input: Any, basis: Any, text: str, workdir: str
    ) -> ev.ApprovalAsked:
        return ev.ApprovalAsked(1.0, step.id, digest, tool, input, 1e12, step.attempts, text, dict(basis), workdir)

    async def answer(self, *, allow: bool = True, note: str = "") -> ev.ApprovalAsked:
        """Answer the question that was heard last."""
        await settled()
        question = self.heard[-1][0]
        assert isinstance(question, ev.ApprovalAsked)
        for event in (question, ev.ApprovalAnswered(2.0, question.step, question.digest, allow, "me", note)):
            self.state.apply(event)
        self._asked[question.step].set_result(Answer(allow, note))
        return question


SESSION = ev.AgentSession(1.0, "work", 1, "cli", "s1")
SPOKE = ev.AgentSpoke(1.0, "work", 1, "I begin.")


@pytest.mark.parametrize("reopened", [False, True], ids=["its own step", "an agent that goes on within it"])
async def test_d2_what_must_not_be_lost_is_written_at_once_unless_its_teller_says_otherwise(reopened: bool) -> None:
    driver = Listener()
    contact, within = (driver.reopened, "work") if reopened else (driver.work, "")
    for event, soon in ((SESSION, None), (SPOKE, None), (SESSION, False), (SPOKE, True)):
        contact.tell(event, soon=soon)
    assert driver.heard == [
        (SESSION, True, within),
        (SPOKE, False, within),
        (SESSION, False, within),
        (SPOKE, True, within),
    ]


@pytest.mark.parametrize("reopened", [False, True], ids=["its own step", "an agent that goes on within it"])
async def test_d2_to_record_an_event_is_to_wait_until_it_is_on_disk(reopened: bool) -> None:
    driver = Listener()
    contact, within = (driver.reopened, "work") if reopened else (driver.work, "")
    recording = asyncio.ensure_future(contact.record(SPOKE))
    await settled()
    assert driver.heard == [(SPOKE, True, within)]
    assert not recording.done()
    driver.write()
    await recording


async def test_k1_messages_are_closed_for_the_agent_of_the_attempt_alone() -> None:
    driver = Listener()
    driver.reopened.close()
    assert driver.closed == []
    driver.work.close()
    assert driver.closed == ["work"]


async def test_c6_the_agent_of_a_completed_step_asks_within_the_attempt_in_which_it_goes_on() -> None:
    driver = Listener()
    asking = asyncio.ensure_future(driver.reopened.ask("Bash", {"command": "make"}, Path("/"), use="1"))
    question = await driver.answer(allow=False, note="not now")
    assert (question.step, question.tool, question.input) == ("work", "Bash", {"command": "make"})
    assert await asking == PersonAnswer(False, "not now", {})


async def test_c6_a_question_is_asked_again_with_what_changed_since_it_was_answered(tmp_path: Path) -> None:
    driver = Listener()
    file = tmp_path / "notes.md"

    async def asked(path: str) -> str:
        asking = asyncio.ensure_future(driver.work.ask("Read", {"path": path}, tmp_path))
        question = await driver.answer()
        assert (await asking).allow
        return question.question

    file.write_text("one")
    assert await asked("notes.md") == ""
    assert await asked("other.md") == "", "it is another question"
    assert (await driver.work.ask("Read", {"path": "notes.md"}, tmp_path)).allow, "it was answered"
    file.write_text("two")
    assert await asked("notes.md") == "asked again, because since you were asked the file notes.md changed"


async def test_c6_a_person_may_be_asked_where_no_time_is_set() -> None:
    with off_the_clock(None):
        await asyncio.sleep(0)
    async with asyncio.timeout(None) as limit:
        with off_the_clock(limit):
            await asyncio.sleep(0)
        assert limit.when() is None
