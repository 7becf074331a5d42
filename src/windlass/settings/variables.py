"""Environment variables that steps may see, and the reason why a step does not have one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from windlass.settings import Settings

__all__ = ["STEPS_SEE", "MissingVariable", "StepEnvironment", "missing_variable", "with_mcp_variables"]

STEPS_SEE = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TERM",
    "TMPDIR",
    "TZ",
    "VIRTUAL_ENV",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""Variables that every step sees; the setting `env_allow` names further ones."""


class StepEnvironment(dict[str, str]):
    """The variables that steps see, with the names of all that they may see, set or not."""

    def __init__(self, environ: Mapping[str, str], allowed: Iterable[str]) -> None:
        self.names = frozenset((*STEPS_SEE, *allowed))
        super().__init__({name: value for name, value in environ.items() if name in self.names})


class MissingVariable(NamedTuple):
    reason: str
    """A predicate: `is not set`, `is empty` or `is held back from steps`."""
    advice: str


def missing_variable(name: str, seen: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> MissingVariable:
    """Tell why a step has no value of a variable; `seen` is the environment of steps."""
    put = f"set {name} where Windlass runs"
    if name in seen:
        return MissingVariable("is empty", put)
    allow = f"windlass config add env_allow {shlex.quote(name)}"
    if name in environ:
        return MissingVariable("is held back from steps", f"let steps see it: {allow}")
    if name in (seen.names if isinstance(seen, StepEnvironment) else STEPS_SEE):
        return MissingVariable("is not set", f"{put}: export {name}=…")
    return MissingVariable("is not set", f"{put}, and let steps see it: {allow}")


def with_mcp_variables(settings: Settings, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Give the environment and what the settings hold for MCP servers, by names of its own: keys for a `Redactor`."""
    servers = settings.mcp.items()
    own = {f"mcp.{server}.{name}": value for server, told in servers for name, value in told.env.items()}
    return {**env, **own}
