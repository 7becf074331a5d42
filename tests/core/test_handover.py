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
    assert len(text.encode()) <= LONGEST_HANDOVER == 8192, "8 KB, as the docs say"
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


def test_k7_an_attempt_that_came_to_no_end_tells_what_it_said_and_began() -> None:
    text = hand_over([began(), ev.OutputWritten(0.0, "s", 1, "agent", "Looking around")])
    assert text == "Attempts:\n- 1 (on claude-code, model opus): broke off\nSaid by the agent:\n- Looking around"
    whole = ev.AgentSpoke(0.0, "s", 1, "Looking around.")
    text = hand_over([began(model=""), ev.OutputWritten(0.0, "s", 1, "agent", "Looking"), whole])
    assert text == "Attempts:\n- 1 (on claude-code): broke off\nSaid by the agent:\n- Looking around."
    used = ev.AgentActed(0.0, "s", 1, "Edit", "x.md", {}, "1")
    ends: list[ev.Event] = [ev.AttemptStopped(0.0, "s", 1, "lost"), began(2), ev.AttemptStopped(0.0, "s", 2, "paused")]
    text = hand_over([began(), used, returned("1", "a\nread-only", failed=True), acted("Bash", command="ls"), *ends])
    assert "- 1 (on claude-code, model opus): cut off by a crash\n" in text
    assert "- 2 (on claude-code, model opus): stopped (paused)\n" in text
    assert "Files written:\n- x.md: not written, it failed: read-only\nCommands run:\n- ls\n" in text


def test_k7_what_is_done_again_is_told_as_the_newest() -> None:
    names = ("a", "b", "a")
    assert hand_over([began(), *(acted("Write", file_path=name) for name in names)]).endswith("written:\n- b\n- a")
    agent = AgentState()
    for name in names:
        note_work(agent, acted("Write", file_path=name))
    assert list(agent.files) == ["b", "a"]


def test_k7_long_texts_are_cut_in_the_middle_and_long_lines_at_the_end() -> None:
    def said(text: str) -> str:
        return hand_over([began(), ev.AgentSpoke(0.0, "s", 1, text)]).partition("Said by the agent:\n- ")[2]

    assert said("x" * 1600) == "x" * 1600
    assert said("x" * 900 + "y" * 901) == "x" * 800 + " […] " + "y" * 800
    replies: list[ev.Event] = [ev.AgentSpoke(0.0, "s", 1, letter * 1000) for letter in "ab"]
    assert hand_over([began(), *replies]).endswith("- " + "a" * 200 + " […] " + "a" * 200 + "\n- " + "b" * 1000)
    streamed: list[ev.Event] = [ev.OutputWritten(0.0, "s", 1, "agent", part) for part in ("b" * 3000, "e" * 3000)]
    assert hand_over([began(), *streamed]).endswith("b" * 800 + " […] " + "e" * 800)
    summaries = [ev.AgentSummarised(0.0, "s", 1, 1, "model", 900, 90, text="x" * size) for size in (3200, 3201)]
    assert ["[…]" in hand_over([began(), acted("Bash", command="ls"), summary]) for summary in summaries] == [
        False,
        True,
    ]

    def told(command: str, result: str, *, failed: bool = False) -> str:
        text = hand_over([began(), acted("Bash", "1", command=command), returned("1", result, failed=failed)])
        return text.partition("Commands run:\n- ")[2]

    assert told("c" * 400, "") == "c" * 400 + " → worked"
    assert told("c" * 401, "") == "c" * 399 + "… → worked"
    assert told("a" + " " * 1000 + "b", "r" * 200) == "a b → worked: " + "r" * 200
    assert told("c", f"1\n2\n3\n{'4' * 133}", failed=True) == f"c → failed: 2 / 3 / {'4' * 133}"


def test_k7_no_work_takes_more_than_the_size_however_short_or_long_its_lines_are() -> None:
    for count, length in ((3000, 1), (100, 390)):
        events: list[ev.Event] = [acted("Bash", command=f"{number} " + "x" * length) for number in range(count)]
        text = hand_over([began(), *events])
        assert LONGEST_HANDOVER - 1200 < len(text.encode()) <= LONGEST_HANDOVER


def test_b2_as_many_commands_as_are_told_leave_none_out() -> None:
    agent = AgentState()
    for number in range(12):
        note_work(agent, acted("shell", line=f"echo {number}"))
    assert work_done([agent]) == "Commands run:\n" + "\n".join(f"- echo {number}" for number in range(12))
