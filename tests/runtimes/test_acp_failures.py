"""The meaning of an agent's errors, in the words that Codex and Gemini CLI have for them (A9, C3)."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.runners.acp.failures import of_error, of_stop
from windlass.runners.acp.wire import RpcError
from windlass.runners.endings import ENDINGS, TurnEnding

URL = "url: http://127.0.0.1:1/v1/responses, request id: req_0001"
LAST = "exceeded retry limit, last status: 429 Too Many Requests, request id: req_0002"
BODY = '{"error": {"message": "tools.0: bad schema", "type": "invalid_request_error", "param": null, "code": null}}'
SAID: list[tuple[TurnEnding, Any]] = [
    (TurnEnding.NO_ACCESS, f"unexpected status 401 Unauthorized: invalid x-api-key, {URL}"),
    (TurnEnding.OVERLOADED, f"unexpected status 529 <unknown status code>: overloaded, {URL}"),
    (TurnEnding.NO_MODEL, f"unexpected status 404 Not Found: model: nothing-like-it, {URL}"),
    (TurnEnding.RATE, {"message": LAST, "codex_error_info": {"response_too_many": {"http_status_code": 429}}}),
    (TurnEnding.REFUSED, {"message": BODY, "codex_error_info": "other"}),
    (
        TurnEnding.LENGTH,
        "stream disconnected before completion: Incomplete response returned, reason: max_output_tokens",
    ),
    (TurnEnding.REFUSAL, "stream disconnected before completion: Incomplete response returned, reason: content_filter"),
    (TurnEnding.CUT, "stream disconnected before completion: error sending request for url"),
]


@pytest.mark.parametrize(("ending", "data"), SAID, ids=[ending.name for ending, _ in SAID])
def test_a9_an_error_is_the_same_ending_as_on_every_runtime(ending: TurnEnding, data: Any) -> None:
    told = {"message": data} if isinstance(data, str) else data
    found = of_error(RpcError(-32603, "Internal error", told), "codex", now=0.0)
    meaning = ENDINGS[ending]
    assert (found.category, found.elsewhere) == (meaning.category, meaning.elsewhere)
    assert meaning.advice.format(runtime="codex") in found.advice
    assert found.message.startswith("codex: ")


def test_a9_an_agent_without_a_login_says_how_one_logs_in() -> None:
    found = of_error(RpcError(-32000, "Authentication required", None), "codex", now=0.0, advice=("log in",))
    assert (found.category, found.advice[0]) == (ENDINGS[TurnEnding.NO_ACCESS].category, "log in")


@pytest.mark.parametrize(
    ("reason", "output", "ending"),
    [
        ("end_turn", "done", None),
        ("end_turn", " ", TurnEnding.EMPTY),
        ("max_tokens", "half", TurnEnding.LENGTH),
        ("max_turn_requests", "half", TurnEnding.TURNS),
        ("refusal", "no", TurnEnding.REFUSAL),
        ("cancelled", "half", TurnEnding.DIED),
    ],
)
def test_a9_a_reason_to_stop_is_an_ending(reason: str, output: str, ending: TurnEnding | None) -> None:
    found = of_stop(reason, output, "codex")
    assert (found is None) is (ending is None)
    if found is not None and ending is not None:
        assert ENDINGS[ending].advice in found.advice
