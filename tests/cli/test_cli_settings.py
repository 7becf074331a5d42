"""Settings: flags over environment over project over user; what is wrong in them is told with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import windlass as package
from windlass.errors import UsageError

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = "steps: [{id: a, run: env}, {id: b, run: 'true', approve: always}]"


async def grace(**flags: object) -> float:
    async with package.open(**flags) as engine:
        return engine.performer.grace


async def test_flags_over_environment_over_project_over_user(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await grace() == 5.0
    project.user_file("config.toml", "grace = 1\n")
    assert await grace() == 1.0
    project.file(".windlass/config.toml", 'grace = "2s"\n')
    assert await grace() == 2.0
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
    project.user_file("config.toml", 'approval_expirey = "1h"\n')
    project.file(".windlass/config.toml", 'env_allow = ["AWS_SECRET_ACCESS_KEY"]\non_pause_expiry = "explode"\n')
    ran = windlass("run", project.plan(PLAN), code=2, WINDLASS_GRACE="soon")
    lines = ran.err.splitlines()
    (unknown,) = [line for line in lines if "approval_expirey" in line]
    assert "did you mean `approval_expiry`?" in unknown
    assert str(project.user) in unknown
    (value,) = [line for line in lines if "on_pause_expiry" in line]
    assert str(project.home / "config.toml") in value
    (widened,) = [line for line in lines if "env_allow" in line]
    assert "only stand in the user's own settings" in widened
    (environment,) = [line for line in lines if "grace" in line]
    assert "WINDLASS_GRACE" in environment
    assert project.ids() == []


def test_a_setting_that_does_not_exist_is_refused_in_the_api_too(project: Project) -> None:
    with pytest.raises(UsageError, match="checkpoints"):
        package.open(checkpoint="stop")
