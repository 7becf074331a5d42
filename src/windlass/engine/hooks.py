"""Webhooks of scheduled plans: their paths, whether a request is signed, and what a delivery is known by (L1).

The signature covers the body and nothing else. So a delivery is known by its id and by its body: whoever repeats a
request, with another id or event or without, starts nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Mapping

from windlass.core.triggers import Arrival
from windlass.plan.triggers import WebhookTrigger
from windlass.ports.deliveries import HookDelivery

__all__ = ["HOOKS", "arrival_of", "delivery_from", "hook_path", "signature_trouble"]

HOOKS = "/hooks/"
SHORTEST_SECRET = 16
"""Characters of a secret that nobody guesses."""
_ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)


def hook_path(plan: str, trigger: str) -> str:
    """The path that requests for a trigger are sent to: it tells nothing of where the plan is."""
    return HOOKS + hashlib.sha256(f"{plan}\0{trigger}".encode()).hexdigest()[:24]


def signature_trouble(hook: WebhookTrigger, headers: Mapping[str, str], body: bytes, env: Mapping[str, str]) -> str:
    """The reason why a request is not signed with the hook's secret; empty if it is. Not for whoever sent it."""
    name = hook.secret.from_
    secret = env.get(name, "")
    if len(secret) < SHORTEST_SECRET:
        found = f"has fewer than {SHORTEST_SECRET} characters" if secret else "is not set"
        return f"the variable {name} {found} where windlass serve runs"
    given = headers.get(hook.header, "").strip().lower().removeprefix("sha256=")
    if not given:
        return f"it has no signature in {hook.header}"
    made = hmac.new(os.fsencode(secret), body, hashlib.sha256).hexdigest()
    fits = hmac.compare_digest(made.encode(), given.encode())
    return "" if fits else f"its signature is not that of the secret in {name}"


def delivery_from(hook: WebhookTrigger, headers: Mapping[str, str], body: bytes, at: float) -> HookDelivery:
    """A request as a delivery. Without a sound id, the body's digest is its id."""
    digest = hashlib.sha256(body).hexdigest()
    given = headers.get(hook.delivery, "").strip()
    event = headers.get(hook.event, "").strip()
    return HookDelivery(given if _ID.fullmatch(given) else digest[:32], at, digest, event[:100], body)


def arrival_of(delivery: HookDelivery, hook: WebhookTrigger) -> Arrival:
    """A delivery for a turn of its trigger."""
    refusal = ""
    if hook.events and delivery.event not in hook.events:
        refusal = f"its event {delivery.event or '(none)'!r} is none of {', '.join(hook.events)} (events)"
    return Arrival.delivery(delivery.id, delivery.at, refusal)
