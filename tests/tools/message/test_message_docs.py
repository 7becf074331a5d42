"""The page about messages: its settings are settings, and its plan's messages can be sent with them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from message_world import World

from windlass.settings import MessageSettings
from windlass.settings.tools import ServiceSettings
from windlass.tools.message.arguments import Email, EmailSent, Send, Sent, Webhook, WebhookSent

PAGE = (Path(__file__).parents[3] / "docs" / "messages.md").read_text(encoding="utf-8")


def block(info: str) -> str:
    (found,) = re.findall(rf"^```{info}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_settings_of_the_page_let_its_plan_send(world: World) -> None:
    told = tomllib.loads(block("toml"))["messages"]
    MessageSettings.model_validate(told)
    world.services, world.recipients = told["services"], told["recipients"]
    steps = {step["id"]: step for step in yaml.safe_load(block("yaml"))["steps"]}
    filled = {"mail": {"to": "ana@example.com", "subject": "3 commits"}, "tell": {"text": "x"}, "hook": {}}
    for name, values in filled.items():
        assert world.tools()[steps[name]["tool"]].validate({**steps[name]["with"], **values}) == []


@pytest.mark.parametrize(
    "model", [Email, Send, Webhook, EmailSent, Sent, WebhookSent, ServiceSettings, MessageSettings]
)
def test_the_page_names_everything_that_there_is(model: Any) -> None:
    named = set(re.findall(r"\w+", PAGE))
    assert set(model.model_fields) - {"services"} <= named
