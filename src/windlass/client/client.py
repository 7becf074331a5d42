"""The client itself: a method for each thing that a server can be asked, and its streams of events.

Every request that changes something carries a key of its own, by which the server knows it again, so it is safely
repeated when the connection is cut before the answer came. Executions and events are the API's JSON objects.

The server numbers every event, so a listener that says which one it had last misses nothing and hears nothing twice:
after a cut, a restart of the server, a silence longer than its heartbeats, or being cut off as too slow, the stream is
opened again from there. Only an answer that would be the same next time ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from windlass.client.errors import Refused, Unreachable, refusal
from windlass.errors import Category, UsageError
from windlass.homes import find_home
from windlass.plan.model import Plan
from windlass.regular import read_regular

if TYPE_CHECKING:
    import httpx2

__all__ = ["Client"]

FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0
"""Seconds between two tries of a request; a lost stream begins with the first one, too."""
LONGEST_ANSWER = 310.0
"""Seconds: the longest `wait` of a request is 300."""
LONGEST_KEY = 255
"""Characters of a key, as the server takes them."""


class Client:
    """Speaks with one server. Use it as `async with Client(url, token) as client`."""

    def __init__(
        self, url: str, token: str, *, retry: float = 10.0, silence: float = 45.0, patience: float | None = None
    ) -> None:
        """Three times in seconds, after which something else is done.

        `retry`: for so long, a request is made again while nobody answers. `silence`: a stream without heartbeats is
        opened anew. `patience`: a lost stream is given up with `Unreachable`; None tries for good.
        """
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is not a server's address", advice=("it begins with http:// or https://",))
        self.url = url.rstrip("/")
        self._server = _StreamAddress(self.url, token, silence, patience)
        self._retry = retry
        self._http: httpx2.AsyncClient | None = None

    @classmethod
    def local(cls, home: str | os.PathLike[str] | None = None, **options: Any) -> Client:
        """The server that runs for a home; without one, for this folder's."""
        folder = find_home(home)
        address, token = _read_address(folder), folder / "server.token"
        if not address or not token.exists():
            raise UsageError(f"no server runs for the home {folder}", advice=("start one: windlass serve",))
        return cls(address, read_regular(token).decode().strip(), **options)

    async def __aenter__(self) -> Client:
        import httpx2

        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self._server.token}"},
            timeout=httpx2.Timeout(10.0, read=LONGEST_ANSWER),
            trust_env=not is_loopback(self.url),
            # Reading the certificates takes 50 ms, and a server at http:// has none.
            verify=not self.url.lower().startswith("http://"),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()

    # -- starting and looking ----------------------------------------------------------------------

    async def start(
        self, plan: Plan | Mapping[str, Any] | None = None, *, wait: float = 0.0, key: str | None = None, **order: Any
    ) -> dict[str, Any]:
        """Start a plan, or what `order` names: `plan_file`, `plan_text`, `task`, `tasks`, with `inputs` and the rest.

        With `wait`, the answer comes when it stands still, at most so many seconds later. Whoever starts with the same
        `key` again gets the same execution.
        """
        return await self._post("/api/executions", _order(plan, order), key=key, wait=wait)

    async def estimate(self, plan: Plan | Mapping[str, Any] | None = None, **order: Any) -> dict[str, Any]:
        """Forecast a plan, or what `order` names as for `start`, without starting it: time, cost, what is unknown."""
        return await self._post("/api/plans/estimate", _order(plan, order))

    async def get(self, execution: str, *, wait: float = 0.0) -> dict[str, Any]:
        """One execution as it stands; with `wait`, when it stands still, at most so many seconds later."""
        found: dict[str, Any] = await self._ask("GET", _path(execution), query={"wait": wait} if wait else None)
        return found

    async def list(
        self, *, status: Sequence[str] = (), name: str = "", page: int = 100
    ) -> AsyncIterator[dict[str, Any]]:
        """A line about each execution, newest first. Pages are fetched as they are needed."""
        query: dict[str, Any] = {"status": list(status), "limit": page} | ({"name": name} if name else {})
        found = await self._ask("GET", "/api/executions", query=query)
        while True:
            for one in found["executions"]:
                yield one
            if not found["next"]:
                return
            found = await self._ask("GET", found["next"])

    async def events(self, execution: str, after: int = 0) -> AsyncGenerator[dict[str, Any], None]:
        """Its events after a sequence, past and to come, until it is finished: in order, each once, whatever happens
        to the connection or the server in between. It goes on waiting while the execution is paused."""
        async with aclosing(_follow(self._server, f"{_path(execution)}/stream", "seq", after)) as events:
            async for event in events:
                yield event
                if event["type"] == "execution.finished" and not await self._reopened(execution, event["seq"]):
                    return

    async def transcript(
        self, execution: str, step: str, *, after: int = 0, whole: bool = False
    ) -> Sequence[dict[str, Any]]:
        """The conversation of a step's agent so far: prompts, replies, calls and results, in order."""
        query: dict[str, Any] = {"step": step, "after": after, "whole": str(whole).lower()}
        found = await self._ask("GET", f"{_path(execution)}/transcript", query=query)
        entries: Sequence[dict[str, Any]] = found["entries"]
        while found["next"]:
            found = await self._ask("GET", found["next"])
            entries = [*entries, *found["entries"]]
        return entries

    async def _reopened(self, execution: str, after: int) -> bool:
        """Tell whether anything happened after an end: a person may have retried or skipped a step."""
        if self._http is None:
            return False  # a client that is not open has its streams alone: the first end is taken for the last
        page = await self._ask("GET", f"{_path(execution)}/events", query={"after": after, "limit": 1})
        return bool(page["events"])

    async def stream(self, after: int | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The events of all executions after a position; without one, from now on. It has no end."""
        async with aclosing(_follow(self._server, "/api/stream", "position", after)) as events:
            async for event in events:
                yield event

    # -- control -----------------------------------------------------------------------------------

    async def pause(self, execution: str, *, now: bool = False, within: float = 10.0) -> dict[str, Any]:
        """Let running attempts finish (or with `now` stop them), then stand still."""
        return await self._post(f"{_path(execution)}/pause", {"now": now, "within": within})

    async def interrupt(self, execution: str, *, within: float = 30.0) -> dict[str, Any]:
        """Stop running attempts and stand still."""
        return await self._post(f"{_path(execution)}/interrupt", {"within": within})

    async def cancel(self, execution: str, *, within: float = 30.0) -> dict[str, Any]:
        """Stop running attempts and end it for good."""
        return await self._post(f"{_path(execution)}/cancel", {"within": within})

    async def resume(self, execution: str, **how: Any) -> dict[str, Any]:
        """Go on with it, in the server: `accept_changes`, `keep_plan`, `take_over`, `decisions`, `budget` …"""
        return await self._post(f"{_path(execution)}/resume", how)

    async def retry(
        self,
        execution: str,
        step: str,
        *,
        edits: Mapping[str, Any] | None = None,
        runtime: str | None = None,
        model: str | None = None,
        fresh: bool = False,
    ) -> dict[str, Any]:
        """Try a failed step again, also after the end: with other arguments, on another runtime or model.

        Its agent goes on in its conversation; `fresh` begins a new one.
        """
        body = {"with": dict(edits or {}), "runtime": runtime, "model": model, "fresh": fresh}
        return await self._post(f"{_path(execution, step)}/retry", body)

    async def skip(self, execution: str, step: str) -> dict[str, Any]:
        """Go on without a step, also after the end: steps that depend on it run with a null output."""
        return await self._post(f"{_path(execution, step)}/skip", {})

    async def diff(self, execution: str, step: str = "") -> dict[str, Any]:
        """Files that agents changed, with their differences: of one step, or of all."""
        found: dict[str, Any] = await self._ask("GET", f"{_path(execution)}/diff", query={"step": step})
        return found

    async def workspaces(self, execution: str = "", *, clean: bool = False) -> dict[str, Any]:
        """Folders of agents with the state of their work: of one execution, or of all. With `clean`, those without work
        that would be lost are removed."""
        if clean:
            return await self._post("/api/workspaces/clean", {"execution": execution})
        found: dict[str, Any] = await self._ask("GET", "/api/workspaces", query={"execution": execution})
        return found

    async def undo(self, execution: str, step: str) -> dict[str, Any]:
        """Undo the file changes of a finished step, unless a file was changed since."""
        return await self._post(f"{_path(execution, step)}/undo", None)

    async def say(self, execution: str, step: str, text: str, *, within: float = 0.0) -> dict[str, Any]:
        """Say something to the agent of a step; tells how it was delivered, or that it waits.

        A stopped or failed step goes on with it, a completed one in a fork.
        """
        body = {"text": text, "within": within}
        return await self._post(f"{_path(execution, step)}/say", body)

    async def fork(self, execution: str, *, from_step: str | None = None, **how: Any) -> dict[str, Any]:
        """A new execution that keeps what this one completed before `from_step`: `inputs`, `plan`, `fresh` …"""
        order = _order(how.pop("plan", None), {**how, "from_step": from_step})
        return await self._post(f"{_path(execution)}/fork", order)

    async def checkpoint(self, execution: str) -> str:
        """Write a portable file of it; gives its path on the server's machine."""
        return str((await self._post(f"{_path(execution)}/checkpoint", None))["path"])

    # -- answers -----------------------------------------------------------------------------------

    async def approvals(self) -> Sequence[dict[str, Any]]:
        """Open questions to people, with exactly what they ask for."""
        page = await self._send("GET", "/api/approvals")
        found: Sequence[dict[str, Any]] = page.json()
        while "next" in page.links:
            page = await self._send("GET", page.links["next"]["url"])
            found = [*found, *page.json()]
        return found

    async def approve(self, question: Mapping[str, Any] | str, *, allow: bool = True, note: str = "") -> dict[str, Any]:
        """Answer one of `approvals()`, or its id. The answer is for exactly what was shown there."""
        name = question if isinstance(question, str) else str(question["id"])
        return await self._post(f"/api/approvals/{_part(name)}", {"allow": allow, "note": note})

    async def decide(self, execution: str, step: str, choice: str, *, output: Any = None) -> dict[str, Any]:
        """Say what became of an attempt whose outcome nobody saw: `again`, `done` or `fail`."""
        return await self._post(f"{_path(execution)}/decisions", {"step": step, "choice": choice, "output": output})

    async def allow_budget(self, execution: str, **answer: Any) -> dict[str, Any]:
        """Say whether more may be spent: `allow`, `usd`, `tokens`, `scope`, `step`."""
        return await self._post(f"{_path(execution)}/budget", answer)

    async def budget(self) -> dict[str, Any]:
        """Budgets: the limit, spent and left, today and this month."""
        found: dict[str, Any] = await self._ask("GET", "/api/budget")
        return found

    async def history(self, by: str = "day", **query: Any) -> dict[str, Any]:
        """Past executions summed up by a field: `since`, `until`, `failed`, `plan`; or `slow` for bottlenecks."""
        given = {"by": by, **{name: value for name, value in query.items() if value is not None}}
        plain = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
        found: dict[str, Any] = await self._ask("GET", "/api/history", query=plain)
        return found

    async def login_link(self) -> str:
        """A link that logs a browser in, once, within ten minutes."""
        found: dict[str, str] = await self._ask("POST", "/api/login-links")  # no key: what has one is stored
        return found["login"]

    # -- asking ------------------------------------------------------------------------------------

    async def _post(self, path: str, body: Any, *, key: str | None = None, wait: float = 0.0) -> dict[str, Any]:
        query = {"wait": wait} if wait else None
        found: dict[str, Any] = await self._ask("POST", path, body, query, key or str(uuid.uuid4()))
        return found

    async def _ask(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None, key: str = ""
    ) -> Any:
        return (await self._send(method, path, body, query, key)).json()

    async def _send(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None, key: str = ""
    ) -> httpx2.Response:
        """One request, made again while the connection is cut: a key says to the server that it is the same one."""
        import httpx2

        if self._http is None:
            raise UsageError("the client is not open", advice=("use it as `async with Client(url, token) as client`",))
        if not (key.isascii() and key.isprintable() and len(key) <= LONGEST_KEY):
            raise UsageError(f"a key is 1 to {LONGEST_KEY} printable ASCII characters; given is {key!r}")
        headers = {"Idempotency-Key": key} if key else {}
        try:
            request = self._http.build_request(method, path, json=body, params=query, headers=headers)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"the request has a value that JSON cannot hold: {error}") from error
        wait, give_up = FIRST_WAIT, asyncio.get_running_loop().time() + self._retry
        while True:
            try:
                answer = await self._http.send(request)
            except httpx2.TransportError as error:
                if asyncio.get_running_loop().time() >= give_up:
                    raise Unreachable(
                        f"the server at {self.url} cannot be reached: {error or type(error).__name__}",
                        advice=("check that it runs: windlass serve", "check the execution's status before repeating"),
                    ) from error
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)
                continue
            if answer.status_code >= 400:
                raise refusal(answer.status_code, answer.content)
            return answer


def _order(plan: Plan | Mapping[str, Any] | None, order: dict[str, Any]) -> dict[str, Any]:
    """The body of a request to run something."""
    named = {name: str(value) if isinstance(value, Path) else value for name, value in order.items()}
    if plan is not None:
        named["plan"] = json.loads(plan.encoded) if isinstance(plan, Plan) else dict(plan)
    return named


def _path(execution: str, step: str | None = None) -> str:
    of_step = "" if step is None else f"/steps/{_part(step)}"
    return f"/api/executions/{_part(execution)}{of_step}"


def _part(name: str) -> str:
    """A name as one part of a path."""
    if name in ("", ".", ".."):  # the address would be another
        raise UsageError(f"there is no execution, step or question {name!r}")
    return quote(name, safe="")


def _read_address(home: Path) -> str:
    """Address of the running server; empty if there is none."""
    try:
        told = json.loads(read_regular(home / "server.lock"))
    except (OSError, ValueError):
        return ""
    return str(told.get("address", "")) if isinstance(told, dict) else ""


LONGEST_PAUSE = 10.0
"""Seconds before a lost stream is opened again, at most."""
_FOR_GOOD = {1008: Category.CONFIGURATION, 4404: Category.CONFIGURATION}
"""Close codes that say that the request itself is wrong."""


@dataclass(frozen=True, slots=True)
class _StreamAddress:
    """Address of a server, and times to wait for it."""

    url: str
    token: str
    silence: float
    """Seconds without a word, after which the connection counts as cut: heartbeats come more often."""
    patience: float | None
    """Seconds without a connection, after which it is given up; None never gives up."""


async def _follow(
    server: _StreamAddress, path: str, number: str, after: int | None
) -> AsyncGenerator[dict[str, Any], None]:
    """Events of a stream, each once; `number` is the field that says where they stand in it (`seq`, `position`)."""
    loop = asyncio.get_running_loop()
    wait = FIRST_WAIT
    lost_at = loop.time()
    while True:
        why = "the connection was cut"
        try:
            async with aclosing(_messages(server, path, after)) as messages:
                async for message in messages:
                    wait, lost_at = FIRST_WAIT, loop.time()
                    if message["type"] == "heartbeat":
                        if number == "position" and after is None:
                            after = message["position"]
                        continue
                    stands = message[number]
                    if after is not None and stands <= after:
                        continue
                    if number == "seq" and after is not None and stands != after + 1:
                        break  # something is missing: ask again from where we are
                    after = stands
                    yield message
                    lost_at = loop.time()  # what the caller did with it is not the server's silence
        except _Cut as cut:
            why = str(cut)
        if server.patience is not None and loop.time() - lost_at > server.patience:
            raise Unreachable(
                f"the stream of {server.url} cannot be reached any more: {why}",
                advice=("check that it runs: windlass serve", f"continue from there: after={after}"),
            )
        await asyncio.sleep(wait * random.uniform(0.5, 1.0))
        wait = min(wait * 2, LONGEST_PAUSE)


class _Cut(Exception):
    """The connection is gone; the next one may be better."""


async def _messages(server: _StreamAddress, path: str, after: int | None) -> AsyncGenerator[dict[str, Any], None]:
    """One connection's messages. Raises `_Cut` at its end, or `Refused` if another would be of no use."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

    query = "" if after is None else f"?after={after}"
    try:
        connection = await connect(
            ("ws" + server.url.removeprefix("http")) + path + query,
            additional_headers={"Authorization": f"Bearer {server.token}"},
            compression=None,
            max_size=None,
            proxy=None if is_loopback(server.url) else True,
            open_timeout=server.silence,
            close_timeout=1.0,
        )
    except InvalidStatus as error:
        if error.response.status_code < 500:
            raise refusal(error.response.status_code, bytes(error.response.body or b"")) from error
        raise _Cut(f"the server answered {error.response.status_code}") from error
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise _Cut(str(error) or type(error).__name__) from error
    try:
        while True:
            async with asyncio.timeout(server.silence):
                text = await connection.recv()
            yield json.loads(text)
    except TimeoutError as error:
        raise _Cut(f"no data for {server.silence:g} s") from error
    except ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd is not None else 1006
        reason = closed.rcvd.reason if closed.rcvd is not None else ""
        if code in _FOR_GOOD:
            raise Refused(reason or "the server refused", status=code, category=_FOR_GOOD[code]) from closed
        raise _Cut(reason or f"closed with {code}") from closed
    finally:
        # A peer that is gone does not answer a close; nobody waits for it.
        connection.transport.abort()


def is_loopback(url: str) -> bool:
    """Tell whether the server is on this machine, where no proxy belongs in between."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
