"""Signatures of webhooks, and what a delivery is known by (L1)."""

from __future__ import annotations

import hashlib
import hmac
import os

import pytest

from windlass.engine.hooks import arrival_of, delivery_from, hook_path, signature_trouble
from windlass.plan.triggers import WebhookTrigger

HOOK = WebhookTrigger.model_validate({"secret": {"from": "HOOK_SECRET"}, "events": ["push"]})
SECRET = "0123456789abcdef"
BODY = b'{"a": 1}'
SIGNATURE = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()


def trouble(signature: str, secret: str | None = SECRET) -> str:
    env = {} if secret is None else {"HOOK_SECRET": secret}
    return signature_trouble(HOOK, {"X-Hub-Signature-256": signature}, BODY, env)


@pytest.mark.parametrize("form", [SIGNATURE, f"sha256={SIGNATURE}", f" sha256={SIGNATURE.upper()} "])
def test_l1_a_signature_of_the_body_fits_in_its_usual_forms(form: str) -> None:
    assert trouble(form) == ""


@pytest.mark.parametrize("wrong", [SIGNATURE[:-1], SIGNATURE[:-1] + "x", f"sha1={SIGNATURE}", "sha256=", "\xe4"])
def test_l1_any_other_signature_does_not_fit(wrong: str) -> None:
    assert trouble(wrong)


def test_l1_a_secret_that_is_missing_or_short_fits_nothing() -> None:
    short = "0123456789abcde"
    made = hmac.new(short.encode(), BODY, hashlib.sha256).hexdigest()
    assert trouble(made, short) == "the variable HOOK_SECRET has fewer than 16 characters where windlass serve runs"
    nothing = hmac.new(b"", BODY, hashlib.sha256).hexdigest()
    for secret in (None, ""):
        assert trouble(nothing, secret) == "the variable HOOK_SECRET is not set where windlass serve runs"


def test_l1_a_secret_that_is_no_text_signs_by_its_bytes() -> None:
    secret = b"\xff" * 16
    made = hmac.new(secret, BODY, hashlib.sha256).hexdigest()
    assert trouble(made, os.fsdecode(secret)) == ""
    assert trouble(SIGNATURE, os.fsdecode(secret)) == "its signature is not that of the secret in HOOK_SECRET"


@pytest.mark.parametrize("given", ["", "a b", "x" * 101, "\x1b[2J", "\xe4"])
def test_l1_without_a_sound_id_the_digest_of_the_body_is_the_id(given: str) -> None:
    made = delivery_from(HOOK, {"X-GitHub-Delivery": given}, BODY, 1.0)
    assert made.id == hashlib.sha256(BODY).hexdigest()[:32]
    assert delivery_from(HOOK, {"X-GitHub-Delivery": "d-1"}, BODY, 1.0).id == "d-1"


def test_l1_an_event_that_is_not_named_has_a_reason_to_be_skipped() -> None:
    push = delivery_from(HOOK, {"X-GitHub-Event": "push"}, BODY, 1.0)
    assert arrival_of(push, HOOK).refusal == ""
    other = push._replace(event="\x1b[2J")
    assert arrival_of(other, HOOK).refusal == r"its event '\x1b[2J' is none of push (events)"


def test_l1_the_path_of_a_webhook_stays_as_services_were_given_it() -> None:
    assert hook_path("/srv/plan.yaml", "pushed") == "/hooks/22928232d73f34ecf073abbd"


def test_l1_each_trigger_of_each_plan_has_a_path_that_does_not_name_it() -> None:
    paths = {hook_path(plan, name) for plan in ("/a.yaml", "/b.yaml") for name in ("x", "y")}
    assert len(paths) == 4
    assert all(path.startswith("/hooks/") and "yaml" not in path for path in paths)
