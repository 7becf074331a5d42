"""The scripted model's side of a connection: routes requests, asks for a reply, and sends it as the protocol words it.

`ReplySource` is the server's view of `ScriptedModel`: it chooses replies and notes what happened.
"""

from __future__ import annotations

import asyncio
import json
from types import ModuleType
from typing import Any, Protocol

from windlass.testing.scripted import anthropic_wire, gemini_wire, openai_wire, responses_wire
from windlass.testing.scripted.chat_shape import as_chat, gemini_call
from windlass.testing.scripted.http import BadRequest, Exchange, Request, read_request
from windlass.testing.scripted.reply import Received, Reply, Wire

__all__ = ["ReplySource", "serve"]

HOLD_LOOK = 0.005
"""Seconds between two looks at a `hold`: an event of threads cannot be awaited."""
GARBAGE = b'data: {"type": "message_st\x00\xff\xfe}}}\n\n<html>\n\n'
WIRES: dict[Wire, ModuleType] = {
    "anthropic": anthropic_wire,
    "openai": openai_wire,
    "responses": responses_wire,
    "gemini": gemini_wire,
}
ROUTES: dict[str, Wire] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai",
    "/v1/responses": "responses",
}


class ReplySource(Protocol):
    """Chooses replies and takes notes of requests."""

    @property
    def models(self) -> tuple[str, ...]:
        """The names that `GET /v1/models` lists."""
        ...

    def reply_to(self, wire: Wire, request: Request, body: dict[str, Any]) -> tuple[Received, Reply]: ...

    def counted(self, wire: Wire, request: Request, body: dict[str, Any]) -> int: ...

    def served(self, received: Received, reply: Reply) -> None:
        """The reply is sent whole."""
        ...

    def wrong(self, what: str) -> None: ...


async def serve(conversation: ReplySource, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything that one client asks on one connection."""
    # `drain` then waits until all is sent: what a reply says before it breaks is never lost with the connection.
    writer.transport.set_write_buffer_limits(high=0)
    try:
        while (request := await read_request(reader, writer)) is not None:
            await _answer(conversation, Exchange(request, reader, writer))
            if writer.is_closing() or request.headers.get("connection", "").lower() == "close":
                break
    except BadRequest as wrong:
        conversation.wrong(str(wrong))
    except ConnectionError:
        return  # a client may hang up whenever it likes
    except Exception as error:  # a fault in here must not look like one of the client
        conversation.wrong(f"the scripted model itself failed: {type(error).__name__}: {error}")
    finally:
        writer.close()


async def _answer(conversation: ReplySource, exchange: Exchange) -> None:
    request = exchange.request
    match request.method, request.path.rstrip("/"):
        case ("GET", "") | ("HEAD", _):
            await exchange.answer(200, "a scripted model\n")
        case "GET", "/v1/models":
            await exchange.answer(200, _wire(request).listing(conversation.models))
        case "GET", path if path.startswith("/v1/models/"):
            await exchange.answer(200, _wire(request).model(path.removeprefix("/v1/models/")))
        case "POST", "/v1/messages/count_tokens":
            body = await _body(conversation, exchange, "anthropic")
            if body is not None:
                await exchange.answer(200, {"input_tokens": conversation.counted("anthropic", request, body)})
        case "POST", path if (wire := _route(path)) is not None:
            body = await _body(conversation, exchange, wire)
            if body is not None and path.endswith(":countTokens"):
                await exchange.answer(200, {"totalTokens": conversation.counted(wire, request, body)})
            elif body is not None:
                await _reply(exchange, conversation, *conversation.reply_to(wire, request, body))
        case method, path:
            what = f"{method} {path or '/'}: a scripted model does not know this path"
            conversation.wrong(what)
            await exchange.answer(404, _wire(request).error(404, what, 0))


def _route(path: str) -> Wire | None:
    return "gemini" if gemini_call(path) else ROUTES.get(path)


def _wire(request: Request) -> Any:
    """Both protocols list models at the same path: only Anthropic's clients send a version of their API."""
    return anthropic_wire if "anthropic-version" in request.headers else openai_wire


async def _body(conversation: ReplySource, exchange: Exchange, wire: Wire) -> dict[str, Any] | None:
    """Read the request's JSON; a fault in it is noted and answered."""
    body, why = _decoded(exchange.request, wire)
    if not why:
        return dict(body)
    what = f"{exchange.request.method} {exchange.request.path}: {why}"
    conversation.wrong(what)
    await exchange.answer(400, WIRES[wire].error(400, what, 0))
    return None


def _decoded(request: Request, wire: Wire) -> tuple[Any, str]:
    """Decode the body; also give the first thing that the real API would refuse in it, if any."""
    if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
        return None, f"its body is compressed ({encoding}), and a scripted model reads only plain ones"
    try:
        body = json.loads(request.body)
    except ValueError as error:
        return None, f"its body is no JSON: {error}"
    return body, _shape(body, wire, request.target)


def _shape(body: Any, wire: Wire, path: str) -> str:
    if not isinstance(body, dict):
        return "its body is no JSON object"
    chat = as_chat(wire, path, body)
    if not isinstance(chat.get("model"), str):
        return "model: field required"
    messages = chat.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages: at least one message is required"
    return ""


async def _reply(exchange: Exchange, conversation: ReplySource, received: Received, reply: Reply) -> None:
    wire, stamp = WIRES[received.protocol], _stamp(received)
    await asyncio.sleep(reply.delay)
    if reply.hold_at == "start":
        await _hold(exchange, reply)
    match reply:
        case Reply(kind="error", text=""):
            body = wire.error(reply.status, reply.message, received.number)
            await exchange.answer(reply.status, body, {**stamp, **reply.headers})
        case Reply(kind="drop", text=""):
            exchange.cut()
        case Reply(kind="hang", text=""):
            await exchange.until_gone()
        case Reply(kind="garbage"):
            await _garbage(exchange, received, stamp)
        case _ if received.streams:
            await _stream(exchange, conversation, received, reply)
        case _:
            await _whole(exchange, conversation, received, reply)


async def _stream(exchange: Exchange, conversation: ReplySource, received: Received, reply: Reply) -> None:
    wire = WIRES[received.protocol]
    frames = wire.stream(reply, received)
    await exchange.begin({**_stamp(received), **reply.headers})
    for frame in frames.text:
        await exchange.send(frame)
        await asyncio.sleep(reply.pace)
    if reply.hold_at == "middle":
        await _hold(exchange, reply)
    match reply.kind:
        case "drop":
            exchange.cut()
        case "hang":
            await exchange.until_gone()
        case "error":
            await exchange.send(wire.error_frame(reply.status, reply.message))
            await exchange.end()
        case _:
            for frame in frames.rest[:-1]:
                await exchange.send(frame)
                await asyncio.sleep(reply.pace)
            # Noted before the last frame: a client that has seen the end may look at the total at once.
            conversation.served(received, reply)
            await exchange.send(frames.rest[-1])
            await exchange.end()


async def _whole(exchange: Exchange, conversation: ReplySource, received: Received, reply: Reply) -> None:
    """Send the reply at once; one that would break amid a stream breaks amid the body."""
    wire, headers = WIRES[received.protocol], {**_stamp(received), **reply.headers}
    if reply.hold_at == "middle":
        await _hold(exchange, reply)
    if reply.kind == "error":
        await exchange.answer(reply.status, wire.error(reply.status, reply.message, received.number), headers)
        return
    body = wire.message(reply, received)
    if reply.kind == "message":
        conversation.served(received, reply)
        await exchange.answer(200, body, headers)
        return
    await exchange.part_of(body, headers)
    if reply.kind == "drop":
        exchange.cut()
    else:
        await exchange.until_gone()


async def _garbage(exchange: Exchange, received: Received, stamp: dict[str, str]) -> None:
    if received.streams:
        await exchange.begin(stamp)
        await exchange.send(GARBAGE)
        await exchange.end()
    else:
        await exchange.answer(200, GARBAGE.decode("latin-1"), {**stamp, "content-type": "application/json"})


async def _hold(exchange: Exchange, reply: Reply) -> None:
    while reply.hold is not None and not reply.hold.is_set() and not exchange.gone:  # noqa: ASYNC110 (see HOLD_LOOK)
        await asyncio.sleep(HOLD_LOOK)


def _stamp(received: Received) -> dict[str, str]:
    name = "request-id" if received.protocol == "anthropic" else "x-request-id"
    return {name: f"req_{received.number:04}"}
