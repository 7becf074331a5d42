"""The story of earlier attempts, for the agent that takes over (K7)."""

from __future__ import annotations

from windlass.core import events as ev
from windlass.core.agent import AgentState
from windlass.core.handover import LONGEST_HANDOVER, hand_over, note_work, work_done
from windlass.errors import Category, Failure


def began(attempt: int = 1, runtime: str = "claude-code", model: str = "opus") -> ev.AgentBegan:
    return ev.AgentBegan(0.0, "s", attempt, runtime, "developer", "", "do it", model)


def acted(tool: str, call: str = "", attempt: int = 1, **input: str) -> ev.AgentActed:
    return ev.AgentActed(0.0, "s", attempt, tool, next(iter(input.values()), ""), input, call)


def returned(call: str, text: str = "", failed: bool = False) -> ev.AgentReturned:
    return ev.AgentReturned(0.0, "s", 1, call, "", text, failed)


def failed(message: str, attempt: int = 1) -> ev.AttemptFailed:
    return ev.AttemptFailed(0.0, "s", attempt, Failure(Category.TRANSIENT, message))


def test_k7_files_commands_failures_and_what_is_open_are_told() -> None:
    text = hand_over(
        [
            began(),
            ev.AgentTold(0.0, "s", "m1", "keep the old names", "ada"),
            ev.AgentSpoke(0.0, "s", 1, "I look at the code first."),
            acted("Read", "1", file_path="src/a.py"),
            returned("1", "x = 1"),
            acted("Edit", "2", file_path="src/a.py"),
            returned("2", "ok"),
            acted("Bash", "3", command="make test"),
            returned("3", "collected 3\nE  assert 1 == 2\n1 failed", failed=True),
            acted("Bash", "4", command="git status"),
            returned("4", "clean"),
            acted("WebFetch", "5", url="http://nowhere.test"),
            returned("5", "no such host", failed=True),
            ev.AgentSpoke(0.0, "s", 1, "The test of a.py still fails."),
            acted("Write", "6", file_path="src/b.py"),
            failed("claude-code: the model API is overloaded"),
        ]
    )
    assert text == (
        "A person said to the agent:\n- ada: keep the old names\n"
        "Attempts:\n- 1 (on claude-code, model opus): failed: claude-code: the model API is overloaded\n"
        "Files written:\n- src/a.py\n- src/b.py\n"
        "Commands run:\n- make test → failed: collected 3 / E assert 1 == 2 / 1 failed\n- git status → worked: clean\n"
        "Other calls:\n- Read src/a.py\n- WebFetch http://nowhere.test → failed: no such host\n"
        "Said by the agent:\n- I look at the code first.\n- The test of a.py still fails.\n"
        "Left open:\n- begun, result unknown: Write src/b.py"
    )


def test_k7_a_journal_of_before_has_calls_and_streamed_text_only() -> None:
    events = [began(), ev.OutputWritten(0.0, "s", 1, "agent", "Looking "), acted("write", filePath="x.md")]
    text = hand_over([*events, ev.OutputWritten(0.0, "s", 1, "agent", "around."), failed("no disk")])
    assert "Files written:\n- x.md" in text
    assert "Said by the agent:\n- Looking around." in text
    assert "Left open" not in text, "its results were never written down"


def test_k7_an_attempt_that_did_nothing_is_not_told() -> None:
    assert hand_over([]) == ""
    assert hand_over([began(), failed("no connection")]) == ""


def test_k7_what_was_before_a_fresh_retry_is_not_told() -> None:
    old = [began(), acted("Write", file_path="old.py"), failed("no"), ev.StepRetried(1.0, "s", fresh=True)]
    assert hand_over(old) == ""
    text = hand_over([*old, began(2), acted("Write", attempt=2, file_path="new.py"), failed("no", 2)])
    assert "new.py" in text
    assert "old.py" not in text


def test_k7_a_denied_request_and_a_summary_are_told() -> None:
    asked = ev.ApprovalAsked(0.0, "s", "d1", "Bash", {"command": "rm -rf x"}, 9.0, 1)
    summary = ev.AgentSummarised(0.0, "s", 1, 1, "model", 900, 90, text="We decided on SQLite.")
    denied = ev.ApprovalAnswered(0.0, "s", "d1", False, "ada", "never")
    text = hand_over([began(), acted("Bash", command="ls"), asked, denied, summary, failed("x")])
    assert "- denied: Bash rm -rf x: never" in text
    assert "We decided on SQLite." in text


def test_k7_the_newest_and_the_failures_are_kept_within_the_size() -> None:
    events: list[ev.Event] = [began()]
    for number in range(2000):
        events += [
            acted("Bash", str(number), command=f"步骤 {number} " + "x" * 50),
            returned(str(number), "y" * 100, number == 7),
        ]
    text = hand_over([*events, failed("z" * 5000)])
    assert len(text.encode()) <= LONGEST_HANDOVER
    assert "步骤 1999 " in text
    assert "步骤 7 " in text
    assert "步骤 8 " not in text
    assert "left out)" in text


def test_k7_the_same_file_and_the_same_command_are_told_once_with_the_last_outcome() -> None:
    events = [began()]
    uses = [acted("Bash", "1", command="make"), returned("1", "broken", True), acted("Bash", "2", command="make")]
    text = hand_over([*events, *uses, returned("2", "fine"), failed("x")])
    assert text.count("make") == 1
    assert "make → worked: fine" in text


def test_b2_the_state_keeps_the_newest_files_and_commands() -> None:
    agent = AgentState()
    for number in range(100):
        note_work(agent, acted("files.write", path=f"f{number}"))
        note_work(agent, acted("shell", line=f"echo {number}"))
        note_work(agent, acted("Read", file_path="seen.py"))
    assert len(agent.files) == len(agent.commands) == 40
    text = work_done([agent])
    assert "- f99" in text
    assert "- echo 99" in text
    assert "- (28 left out)" in text
    assert "seen.py" not in text
    assert work_done([AgentState()]) == work_done([]) == ""
