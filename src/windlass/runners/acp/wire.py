"""JSON-RPC over the pipes of one agent's process: our calls and their results, its notifications and its requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from windlass.process import Process
from windlass.runners.program_output import LastWords, json_objects, lines

__all__ = ["AgentWire", "RpcError", "WireEnded"]

NO_SUCH_METHOD = -32601

Hear = Callable[[str, Mapping[str, Any]], None]
Answer = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Gives the result of a request of the agent; None: we do not have this method."""


class RpcError(Exception):
    """The agent answered a call with an error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class WireEnded(Exception):
    """The agent's output ended before it answered a call."""


class AgentWire:
    def __init__(self, process: Process, hear: Hear, answer: Answer) -> None:
        self._process, self._hear, self._answer = process, hear, answer
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._ended = False
        self.last_words = LastWords()
        """The end of its stderr."""
        self._reading = [asyncio.create_task(self._read()), asyncio.create_task(self._listen())]

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """The result of a call. Raises `RpcError` for an error, `WireEnded` if the agent ends before."""
        if self._ended:
            raise WireEnded
        number = len(self._calls) + 1
        self._calls[number] = asyncio.get_running_loop().create_future()
        await self._send({"id": number, "method": method, "params": params})
        return await self._calls[number]

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._send({"method": method, "params": params})

    async def close(self) -> None:
        """After the process has ended: read the rest, and answer nothing any more."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await asyncio.gather(*self._reading)

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        try:
            await self._process.stdin.write(line)
        except BrokenPipeError:
            return  # it has ended, which `_read` finds out

    async def _read(self) -> None:
        try:
            async for message in json_objects(self._process.stdout):
                self._take(message)
        finally:
            self._ended = True
            for call in self._calls.values():
                if not call.done():
                    call.set_exception(WireEnded())
                    call.exception()  # nobody may be waiting for it any more

    async def _listen(self) -> None:
        async for line in lines(self._process.stderr):
            self.last_words.add(line)

    def _take(self, message: Mapping[str, Any]) -> None:
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        params = params if isinstance(params, Mapping) else {}
        if isinstance(method, str) and number is None:
            self._hear(method, params)
        elif isinstance(method, str):
            task = asyncio.create_task(self._reply(number, method, params))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif isinstance(number, int) and (call := self._calls.get(number)) is not None and not call.done():
            if isinstance(error := message.get("error"), Mapping):
                code = error.get("code")
                told = str(error.get("message") or "no reason given")
                call.set_exception(RpcError(code if isinstance(code, int) else 0, told, error.get("data")))
                call.exception()
            else:
                call.set_result(message.get("result"))

    async def _reply(self, number: Any, method: str, params: Mapping[str, Any]) -> None:
        result = await self._answer(method, params)
        if result is None:
            error = {"code": NO_SUCH_METHOD, "message": f"this client has no method {method}"}
            await self._send({"id": number, "error": error})
        else:
            await self._send({"id": number, "result": result})
