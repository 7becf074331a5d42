"""The estimate of tokens, against texts whose tokens were counted (tests/context/samples/counts.json says by what)."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.context.tokens import TokenRate, estimate_tokens

SAMPLES = Path(__file__).parent / "samples"
TRUE = json.loads((SAMPLES / "counts.json").read_text())["tokens"]


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(TRUE))
def test_f1_the_estimate_is_within_5_percent_of_the_true_count(name: str) -> None:
    assert estimate_tokens(sample(name)) == pytest.approx(TRUE[name], rel=0.05)


def test_f1_every_stored_sample_has_its_true_count() -> None:
    assert {path.stem for path in SAMPLES.glob("*.txt")} == set(TRUE)
    assert {name.partition("-")[0] for name in TRUE} == {"prose", "code", "json", "chinese", "emoji"}


def test_f1_a_long_text_is_estimated_by_samples_of_it() -> None:
    text = sample("prose-letter") * 2000 + sample("json-compact") * 1000
    true = TRUE["prose-letter"] * 2000 + TRUE["json-compact"] * 1000
    before = time.thread_time()
    assert estimate_tokens(text) == pytest.approx(true, rel=0.1)
    assert time.thread_time() - before < 0.5


@given(st.text())
def test_f1_any_text_has_an_estimate_that_is_not_absurd(text: str) -> None:
    tokens = estimate_tokens(text)
    assert 0 <= tokens <= 3 * len(text.encode("utf-8", "surrogatepass")) + 1
    assert (tokens == 0) == (text == "")


def test_f1_a_provider_that_counts_differently_is_learnt_from_its_first_reply() -> None:
    known = TokenRate()
    known.learn(1000, 1300)
    assert known.count(2000) == 2600


@pytest.mark.parametrize("counted", [0, 1, 100_000])
def test_f1_a_count_that_cannot_be_true_is_not_learnt(counted: int) -> None:
    known = TokenRate()
    known.learn(1000, counted)
    assert known.count(1000) == 1000
