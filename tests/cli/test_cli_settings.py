"""Settings: flags over environment over project over user; what is wrong in them is told with its place."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import windlass as package
from windlass.errors import UsageError
from windlass.settings import USER_ONLY, Settings, load_settings
from windlass.settings.project import FREE, RULES

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = "steps: [{id: a, run: env}, {id: b, run: 'true', approve: always}]"


async def grace(**flags: object) -> float:
    async with package.open(**flags) as engine:
        return engine.attempt_runner.grace


async def test_flags_over_environment_over_project_over_user(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await grace() == 5.0
    project.user_file("config.toml", "grace = 1\n")
    assert await grace() == 1.0
    project.file(".windlass/config.toml", 'grace = "0.5s"\n')
    assert await grace() == 0.5
    monkeypatch.setenv("WINDLASS_GRACE", "3")
    assert await grace() == 3.0
    assert await grace(grace=4) == 4.0


def test_each_layer_reaches_the_command_line(project: Project, windlass: Windlass) -> None:
    project.user_file("config.toml", 'env_allow = ["FROM_USER"]\n')
    plan = project.plan(PLAN)
    env = {"FROM_USER": "seen", "FROM_ENV": "seen", "SECRET": "canary-0816"}
    seen = windlass("run", plan, "--json", code=3, **env).json["steps"][0]["output"]["stdout"]
    assert "FROM_USER=seen" in seen
    assert "FROM_ENV" not in seen
    seen = windlass("run", plan, "--json", code=3, WINDLASS_ENV_ALLOW="FROM_ENV,OTHER", **env).json
    assert "FROM_ENV=seen" in seen["steps"][0]["output"]["stdout"]
    assert "canary" not in str(seen)
    assert b"canary-0816" not in project.everything()


def test_everything_wrong_is_told_at_once_with_its_place(project: Project, windlass: Windlass) -> None:
    project.user_file("config.toml", 'approval_expirey = "1h"\nruntime = "claude_code"\n')
    project.file(".windlass/config.toml", 'env_allow = ["AWS_SECRET_ACCESS_KEY"]\non_pause_expiry = "explode"\n')
    ran = windlass("run", project.plan(PLAN), code=2, WINDLASS_GRACE="soon")
    lines = ran.err.splitlines()
    (unknown,) = [line for line in lines if "approval_expirey" in line]
    assert "did you mean `approval_expiry`?" in unknown
    assert str(project.user) in unknown
    (runtime,) = [line for line in lines if "claude_code" in line]
    assert "did you mean `claude-code`?" in runtime
    assert str(project.user) in runtime
    (value,) = [line for line in lines if "on_pause_expiry" in line]
    assert str(project.home / "config.toml") in value
    (widened,) = [line for line in lines if "env_allow" in line]
    assert "allowed only in your own settings" in widened
    (environment,) = [line for line in lines if "grace" in line]
    assert "WINDLASS_GRACE" in environment
    assert project.ids() == []


def test_a_setting_that_does_not_exist_is_refused_in_the_api_too(project: Project) -> None:
    with pytest.raises(UsageError, match="checkpoints"):
        package.open(checkpoint="stop")


HELD = {
    "proceeding over a limit": ("", 'budget.on_overrun = "proceed"', "budget.on_overrun", "ask"),
    "asking at a limit": ('budget.on_overrun = "proceed"', 'budget.on_overrun = "ask"', "budget.on_overrun", "ask"),
    "proceeding, as the user": (
        'budget.on_overrun = "proceed"',
        'budget.on_overrun = "proceed"',
        "budget.on_overrun",
        "proceed",
    ),
    "proceeding beside the user's limits": (
        "budget.day = 1",
        'budget.on_overrun = "proceed"',
        "budget.on_overrun",
        "ask",
    ),
    "a higher limit": ("budget.day = 1", "budget.day = 9", "budget.day.usd", 1),
    "a lower limit": ("budget.day = 9", "budget.day = 1", "budget.day.usd", 1),
    "a limit of its own": ("", "budget.month = {tokens = 7}", "budget.month.tokens", 7),
    "proceeding, the project silent": (
        'budget.on_overrun = "proceed"',
        "budget.day = 1",
        "budget.on_overrun",
        "proceed",
    ),
    "reserving less": ("", "budget.reserve_usd = 0.01", "budget.reserve_usd", None),
    "reserving less than the user": ("budget.reserve_usd = 1", "budget.reserve_usd = 0.1", "budget.reserve_usd", 1),
    "lists of the user": ("approvals.sensitive = []", 'approvals.always = ["b"]', "approvals.sensitive", ()),
    "waiting longer for an answer": ("", 'approval_expiry = "9d"', "approval_expiry", 86400),
    "waiting less for an answer": ("", 'approval_expiry = "1h"', "approval_expiry", 3600),
    "a longer grace": ('grace = "1s"', 'grace = "1d"', "grace", 1),
    "resuming what was paused": ("", 'pause_expiry = "1s"\non_pause_expiry = "resume"', "on_pause_expiry", "cancel"),
    "resuming sooner": (
        'pause_expiry = "7d"\non_pause_expiry = "resume"',
        'pause_expiry = "1s"',
        "pause_expiry",
        604800,
    ),
    "cancelling sooner": ('pause_expiry = "7d"', 'pause_expiry = "1d"', "pause_expiry", 86400),
    "another runtime after all": ("fallback = false", "fallback = true", "fallback", False),
    "no other runtime": ("", "fallback = false", "fallback", False),
    "waiting after all": ("wait_for_quota = false", "wait_for_quota = true", "wait_for_quota", False),
    "no checkpoints": ("", 'checkpoints = "off"', "checkpoints", "step"),
    "more checkpoints": ('checkpoints = "off"', 'checkpoints = "stop"', "checkpoints", "stop"),
    "nothing that is sensitive": ("", "approvals.sensitive = []", "approvals.sensitive", ("files.delete", "message.*")),
    "nothing that is sensitive beside a list": (
        'approvals.always = ["shell"]',
        "approvals.sensitive = []",
        "approvals.sensitive",
        ("files.delete", "message.*"),
    ),
    "more that asks": ('approvals.always = ["a"]', 'approvals.always = ["b"]', "approvals.always", ("a", "b")),
    "a runtime": ('runtime = "cli"', 'runtime = "claude-code"', "runtime", "claude-code"),
}


@pytest.mark.parametrize("name", HELD)
def test_e3_a_project_makes_settings_stricter_and_never_looser(project: Project, name: str) -> None:
    user, given, where, value = HELD[name]
    project.user_file("config.toml", user + "\n")
    project.file(".windlass/config.toml", given + "\n")
    assert attrgetter(where)(load_settings(project.home)) == value


def test_e3_every_setting_is_held_to_the_users_own_or_is_his_alone() -> None:
    """A setting that is added later is the user's alone until somebody writes a rule for it."""
    assert USER_ONLY | RULES.keys() | FREE == Settings.model_fields.keys()
    assert {"permissions", "network", "load", "tools", "runtimes", "env_allow"} <= USER_ONLY
    assert load_settings(Path("/nowhere"), {"budget": {"on_overrun": "proceed"}}, {}).budget.on_overrun == "proceed"
