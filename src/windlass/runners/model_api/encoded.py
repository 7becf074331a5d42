"""The messages of a request as JSON, each encoded once.

A model's API is sent the whole conversation in every turn. The clients would map, copy and encode all of it each time,
so that a turn would cost more and more. Instead they get the messages since the last request, with a placeholder in
front of them (`rest_of`), and the JSON of the last request's messages takes its place in the body (`completed`).

The two parts meet between a message for the model and its reply, where no API joins messages. In every other case (the
first request, one that is sent again, one after a summary) the clients get all messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import is_
from secrets import token_hex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

__all__ = ["EncodedMessages"]


class EncodedMessages:
    def __init__(self) -> None:
        self._placeholder = f"older messages {token_hex(8)}"
        self._sent: list[ModelMessage] = []
        """The messages of the last request."""
        self._json = b""
        """The same as elements of a JSON list."""
        self._sending: list[ModelMessage] = []
        self._older = b""
        """The JSON in place of the placeholder."""

    def rest_of(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages to give to the client in place of these, for the next request."""
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        count = len(self._sent)
        self._sending, self._older = list(messages), b""
        if not (
            0 < count < len(messages)
            and (self._sent[-1].kind, messages[count].kind) == ("request", "response")
            and all(map(is_, self._sent, messages))
        ):
            return self._sending
        self._older = self._json
        said = (message.instructions for message in reversed(messages) if isinstance(message, ModelRequest))
        older = ModelRequest([UserPromptPart(self._placeholder)], instructions=next(filter(None, said), None))
        return [older, *messages[count:]]

    def completed(self, body: bytes) -> bytes:
        """The body with all messages, for one that the client made of `rest_of`."""
        request: dict[str, Any] = json.loads(body)
        messages = request.get("messages")
        if not isinstance(messages, list):
            self._sent = []
            return body
        first = next((at for at, message in enumerate(messages) if message.get("role") in ("user", "assistant")), 0)
        whole = body
        if self._older and self._placeholder.encode() in body:
            messages[first], first = self._placeholder, first + 1
            whole = _encoded(request).replace(_encoded(self._placeholder), self._older, 1)
        new = b",".join(_encoded(_unmarked(message)) for message in messages[first:])
        self._sent, self._json = self._sending, self._older + b"," + new if whole is not body else new
        return whole


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _unmarked(message: dict[str, Any]) -> dict[str, Any]:
    """The message without the mark up to which the API caches: only the newest messages have it."""
    for part in message["content"] if isinstance(message.get("content"), list) else ():
        part.pop("cache_control", None)
    return message
