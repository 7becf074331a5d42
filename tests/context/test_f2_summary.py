"""The choice of the part to summarise, what is pinned, and which summaries are refused."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.context.messages import ContextMessage, ContextUse, cut_point, shorten_middle
from windlass.context.pins import Pin, PinList
from windlass.context.summary import key_points, problem_of, replacement, summary_prompt
from windlass.context.tokens import estimate_tokens

TASK = "Port the invoice service to Python 3.13."


def user(text: str) -> ContextMessage:
    return ContextMessage("user", text, estimate_tokens(text))


def reply(text: str, *calls: ContextUse) -> ContextMessage:
    return ContextMessage("reply", text, estimate_tokens(text) + 20 * len(calls), calls)


def results(*uses: ContextUse) -> ContextMessage:
    return ContextMessage("results", "", sum(estimate_tokens(use.text) for use in uses), uses)


def plain(text: str) -> str:
    return text


WORK = [
    user(f"<task>\n{TASK}\n</task>"),
    reply(
        "I look at the tests.\nDecision: we keep SQLite instead of PostgreSQL.",
        ContextUse("files.read", '{"path": "src/billing/totals.py"}'),
    ),
    results(ContextUse("files.read", "def total(): ...\n" * 50)),
    user("The ticket is BILL-4711, and never touch legacy/."),
    reply("TODO: test_rounding still fails with 0x1f3a9c2b.", ContextUse("shell", '{"command": "pytest -q"}')),
    results(ContextUse("shell", "1 failed: test_rounding", failed=True)),
    reply("The rounding is repaired in commit 3f2a9bc."),
    user("Go on."),
]


def test_f2_calls_stay_with_their_results() -> None:
    for room in range(0, 2000, 10):
        cut = cut_point(WORK, room)
        assert WORK[cut].kind != "results"


kinds = st.lists(st.sampled_from(["user", "exchange", "reply"]), min_size=1, max_size=30)


@given(kinds, st.integers(0, 3000), st.data())
def test_f2_any_cut_keeps_pairs_and_the_newest_exchange(parts: list[str], room: int, data: st.DataObject) -> None:
    messages: list[ContextMessage] = []
    for part in parts:
        tokens = data.draw(st.integers(1, 500))
        messages.append(ContextMessage("user" if part == "user" else "reply", "x", tokens))
        if part == "exchange":
            messages.append(ContextMessage("results", "", data.draw(st.integers(1, 500))))
    cut = cut_point(messages, room)
    assert 0 <= cut < len(messages)
    assert messages[cut].kind != "results"
    kept = messages[cut:]
    newest = 2 if messages[-1].kind == "results" else 1
    assert sum(message.tokens for message in kept) <= room or len(kept) == newest or cut == 0


def test_f2_a_summary_alone_is_not_summarised_again() -> None:
    assert cut_point([ContextMessage("summary", "so far", 100), user("Go on.")], 10) == 0


def test_f2_task_words_decisions_problems_paths_and_identifiers_are_pinned() -> None:
    pins = PinList().with_messages(WORK, TASK)
    assert pins.of("task") == [TASK]
    assert pins.of("said") == ["The ticket is BILL-4711, and never touch legacy/.", "Go on."]
    assert pins.of("decision") == ["Decision: we keep SQLite instead of PostgreSQL."]
    assert pins.of("problem") == ["TODO: test_rounding still fails with 0x1f3a9c2b."]
    assert "src/billing/totals.py" in pins.of("path")
    assert {"BILL-4711", "3f2a9bc"} <= set(pins.of("identifier"))


def test_f2_pins_stand_verbatim_in_what_replaces_the_older_part() -> None:
    pins = PinList().with_messages(WORK, TASK).within(2000)
    made = replacement(1, 7, "The tests were read.", pins)
    assert pins.missing_in(made.text) == []
    assert pins.missing_in("nothing of it") == list(pins.facts)


def test_f2_pins_have_a_bounded_size_and_the_newest_stay() -> None:
    pins = PinList().with_messages([user(f"Remember number {n}: {'x y ' * 50}") for n in range(200)], TASK)
    kept = pins.within(1000)
    assert estimate_tokens(kept.text) <= 1100
    assert kept.of("task") == [TASK]
    assert kept.of("said")[-1].startswith("Remember number 199")
    assert kept.within(1000) == kept


def test_f2_a_task_larger_than_the_room_is_shortened_with_a_note() -> None:
    kept = PinList().with_messages([], "word " * 50_000).within(1000)
    assert estimate_tokens(kept.text) <= 1000
    assert "the transcript has all of it" in kept.of("task")[0]


def test_f2_pins_of_a_summary_are_carried_into_the_next_one() -> None:
    first = PinList().with_messages(WORK[:4], TASK)
    second = first.with_messages([ContextMessage("summary", "so far", 10), *WORK[4:]], TASK)
    assert set(first.facts) <= set(second.facts)
    assert second.of("task") == [TASK]


@pytest.mark.parametrize(
    ("summary", "problem"),
    [
        ("", "it is empty"),
        ("   \n", "it is empty"),
        ("ok", "it says nothing"),
        ("Bananas grow quickly under tropical sunshine while penguins dance merrily.", "not about this conversation"),
        ("word " * 1000, "too long"),
        ("The tests of the invoice service were read; key sk-ant-REDACTED fails", "it holds a secret"),
        ("The tests were read, SQLite stays, and test_rounding still failed with pytest.", ""),
    ],
)
def test_f2_a_useless_summary_is_refused(summary: str, problem: str) -> None:
    def redact(text: str) -> str:
        return text.replace("sk-ant-REDACTED", "***")

    assert problem in problem_of(summary, WORK, 300, redact)
    assert bool(problem) == bool(problem_of(summary, WORK, 300, redact))


def test_f2_a_summary_that_is_not_shorter_is_refused() -> None:
    short: Sequence[ContextMessage] = [user("Hi."), reply("Hello there, dear colleague.")]
    said = "Hello there, dear colleague, hello again, and hello there once more."
    assert problem_of(said, short, 300, plain) == "it is not shorter than what it stands for"


def test_f2_key_points_say_what_was_done_without_a_model() -> None:
    text = key_points(WORK, 300, plain)
    assert "- used files.read" in text
    assert "- shell failed: 1 failed: test_rounding" in text
    assert "3f2a9bc" in text
    assert estimate_tokens(text) <= 300


def test_f2_key_points_keep_the_newest_and_the_earlier_summary() -> None:
    older = [ContextMessage("summary", "Earlier: the schema was read.", 10), *WORK]
    text = key_points(older, 60, plain)
    assert text.startswith("Earlier: the schema was read.")
    assert "3f2a9bc" in text
    assert "files.read" not in text


def test_f2_key_points_hide_secrets() -> None:
    assert "hunter2" not in key_points([reply("the password is hunter2")], 100, lambda t: t.replace("hunter2", "***"))


def test_f2_the_prompt_for_the_summarising_model_is_bounded() -> None:
    huge = [reply("long", ContextUse("shell", "{}")), results(ContextUse("shell", "line\n" * 1_000_000))] * 50
    prompt = summary_prompt(huge, PinList(), 500, 4000)
    assert estimate_tokens(prompt) < 5000
    assert "in at most 300 words" in prompt


def test_f2_a_shortened_text_says_how_much_is_left_out_and_where_it_is() -> None:
    text = shorten_middle("a" * 5000 + "end", 1000, "see the transcript")
    assert text.startswith("aaa")
    assert text.endswith("end")
    assert "[… 4,003 characters are left out here: see the transcript …]" in text
    assert Pin("task", "x").text == "x"
