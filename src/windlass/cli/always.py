"""`always` as an answer to an agent: the exact rule, shown before and after it is saved in the user's settings (C6)."""

from __future__ import annotations

from windlass.cli.session import say, suggest, who
from windlass.engine.engine import Engine
from windlass.errors import UsageError
from windlass.homes import user_folder
from windlass.redact import Redactor

__all__ = ["allow_always", "readable_rule", "rule_offer"]


async def readable_rule(engine: Engine, execution: str, step: str) -> str:
    """The rule by which an agent would not have had to ask its open question; raises where there is none."""
    rule = await engine.always_rule(execution, step)
    if list(Redactor().found(rule)):
        raise UsageError("no rule can be made of it: there is a secret in it")
    return rule


def rule_offer(rule: str) -> str:
    """The rule in words, before it is saved."""
    return f"always: save the rule {rule} in {_file()}; agents may then do exactly this in every project, unasked"


async def allow_always(
    engine: Engine, execution: str, step: str, rule: str, *, note: str = "", digest: str | None = None
) -> None:
    """Allow what was asked, save the rule, and say where it is."""
    await engine.approve_always(execution, step, rule, by=who(), note=note, digest=digest)
    say(f"saved the rule {rule} in {_file()}")
    suggest("see it: windlass config get permissions.allow")


def _file() -> str:
    return str(user_folder() / "config.toml")
