"""Webhooks: `POST /hooks/…` starts a scheduled plan, for whoever signs with the secret of its trigger (L1).

A delivery is on disk before it is answered with 202, and a tick starts it. A request that is not signed gets 401 and
no reason: that is for `windlass schedule why`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from windlass.core.triggers import Arrival
from windlass.engine.engine import Engine
from windlass.engine.hooks import HOOKS, delivery_from, hook_path, signature_trouble
from windlass.errors import JournalError
from windlass.plan.triggers import WebhookTrigger, triggers_of
from windlass.ports.deliveries import HookRefusal
from windlass.ports.triggers import ScheduledPlan, TriggerStore
from windlass.server.bodies import body_refusal
from windlass.server.problems import problem

__all__ = ["MAX_DELIVERY", "Hooks", "hook_routes"]

MAX_DELIVERY = 1024 * 1024
"""Bytes that a delivery may bring: they become an input of an execution."""
REFUSALS_EVERY = 1.0
"""Seconds that refused requests wait for others before they are written: anybody can send them."""
_log = logging.getLogger("windlass.server")


class _Hook(NamedTuple):
    plan: str
    trigger: str
    webhook: WebhookTrigger


class Hooks:
    """The webhooks of scheduled plans. A plan is read again when its file has changed."""

    def __init__(self, engine: Engine, store: TriggerStore) -> None:
        self._engine, self._store = engine, store
        self._read: dict[str, tuple[tuple[int, ...], dict[str, _Hook]]] = {}
        """By plan: the file's identity when it was read, and its hooks by path."""
        self._refused: dict[tuple[str, str], HookRefusal] = {}
        """Refused requests of triggers that are not written yet."""
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def find(self, path: str) -> _Hook | None:
        for plan in await self._store.plans():
            found = (await self._of(plan)).get(path)
            if found is not None:
                return found
        return None

    async def _of(self, plan: ScheduledPlan) -> dict[str, _Hook]:
        try:
            facts = os.stat(plan.path)
        except OSError:
            return {}
        identity = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        known = self._read.get(plan.path)
        if known is None or known[0] != identity:
            known = identity, await asyncio.to_thread(self._hooks_in, plan)
            self._read[plan.path] = known
        return known[1]

    def _hooks_in(self, plan: ScheduledPlan) -> dict[str, _Hook]:
        try:
            triggers = triggers_of(self._engine.read(plan.path, plan.workdir).plan)
        except JournalError:
            raise
        except Exception:  # the tick says so, and `schedule why`
            return {}
        hooks = [_Hook(plan.path, one.id, one.webhook) for one in triggers if one.webhook is not None]
        return {hook_path(hook.plan, hook.trigger): hook for hook in hooks}

    def refuse(self, hook: _Hook, reason: str) -> None:
        """Note a refused request for `schedule why`; it is written a second later, with others that come until then."""
        fields = {"plan": hook.plan, "trigger": hook.trigger, "reason": reason}
        _log.warning("a request to a webhook was refused", extra={"fields": fields})
        now, key = self._engine.clock.now(), (hook.plan, hook.trigger)
        before = self._refused[key].number if key in self._refused else 0
        self._refused[key] = HookRefusal(before + 1, now, reason)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_soon(), name="windlass-refused-requests")

    async def _write_soon(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), REFUSALS_EVERY)
        while self._refused:
            (plan, trigger), refusal = self._refused.popitem()
            try:
                await self._store.deliveries.refuse(plan, trigger, refusal)
            except JournalError as error:
                _log.error("refused requests to a webhook were not noted: %s", error.message)

    async def close(self) -> None:
        """Write what is not written yet."""
        self._closing.set()
        if self._writing is not None:
            await self._writing


def hook_routes(hooks: Hooks, engine: Engine, store: TriggerStore, received: asyncio.Event) -> list[Route]:
    """Make the route of webhooks. `received` is set for each new delivery: a tick is to start it."""

    async def receive(request: Request) -> Response:
        hook = await hooks.find(request.url.path)
        if hook is None:
            return problem(404, "not found", "there is no such webhook")
        body = await _read(request)
        if body is None:
            return problem(413, "too long", f"a delivery can have at most {MAX_DELIVERY:,} bytes")
        reason = signature_trouble(hook.webhook, request.headers, body, os.environ)
        if reason:
            hooks.refuse(hook, reason)
            return problem(401, "not signed", "the request is not signed with the secret of this webhook")
        refused = body_refusal(request.headers.get("content-type", ""), body)
        if refused is not None:
            hooks.refuse(hook, f"its body is not sound JSON (status {refused.status_code})")
            return refused
        state = await store.state(hook.plan, hook.trigger)
        delivery = delivery_from(hook.webhook, request.headers, body, engine.clock.now())
        kept = await store.deliveries.receive(hook.plan, hook.trigger, delivery)
        received.set()
        execution = Arrival.delivery(kept.id, kept.at).execution(hook.plan, hook.trigger)
        status = "accepted" if kept == delivery else "duplicate"
        if kept == delivery and state is not None and state.paused:
            status = "paused"
        return JSONResponse({"status": status, "execution": execution}, 202 if status == "accepted" else 200)

    return [Route(HOOKS + "{hook}", endpoint=receive, methods=["POST"])]


async def _read(request: Request) -> bytes | None:
    """The body; None if it is too long."""
    pieces: list[bytes] = []
    length = 0
    async for piece in request.stream():
        length += len(piece)
        if length > MAX_DELIVERY:
            return None
        pieces.append(piece)
    return b"".join(pieces)
