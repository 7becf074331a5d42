"""Arguments of the `shell` tool, apart from the tool: a plan of commands is checked without what runs them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from windlass.plan.quantities import CommandLimits
from windlass.plan.service import ServiceCheck
from windlass.values import Before, CheckedValue, field

__all__ = ["ShellArguments"]


def _spelled(value: Any) -> Any:
    """`{{ inputs.count }}` standing alone is a number: as a word it is what it would be inside a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _variable(value: Any) -> Any:
    return value if isinstance(value, dict) and value.keys() == {"from"} else _spelled(value)


Word = Annotated[str, Before(_spelled)]


class FromVariable(CheckedValue):
    """The value of a variable of the engine's environment that steps may see: the name is recorded, not the value."""

    from_: str = field(key="from", min_length=1)


class ShellArguments(CheckedValue):
    line: str | None = field(default=None, min_length=1)
    """A line for the shell."""
    argv: list[Word] | None = field(default=None, min_length=1)
    """A program and its arguments, with no shell in between."""
    shell: str = "sh"
    """The shell that reads the line: sh, bash, zsh …"""
    cwd: str = "."
    """The folder that it runs in, relative to the working directory."""
    env: dict[str, Annotated[str | FromVariable, Before(_variable)]] = {}
    """Added to the allow-listed environment. `{from: NAME}` is the value of one that is in it."""
    stdin: str | None = None
    max_output: int = field(default=1024 * 1024, ge=0, le=64 * 1024 * 1024)
    """Bytes kept of each of stdout and stderr: of more, the beginning and the end. The whole is then in a log file."""
    ok: list[int] = [0]
    """Exit codes that mean success."""
    limits: CommandLimits | None = None
    """Limits. The command is killed when it passes one of them."""
    service: ServiceCheck | None = None
    """Of a step of a plan: it stays until the steps that need it have ended."""
    isolate: Literal["none", "files", "network", "all"] = "none"
    """files: it can write in the working directory and its own TMPDIR alone; network: there is none; all: both."""

    def _after(self) -> ShellArguments:
        if (self.line is None) == (self.argv is None):
            raise ValueError("give exactly one of `line` and `argv`")
        values = [value for value in self.env.values() if isinstance(value, str)]
        texts = [self.line or "", self.cwd, *(self.argv or ()), *self.env, *values]
        if any("\0" in text for text in texts):
            raise ValueError("a command cannot hold a NUL character")
        if any(not name or "=" in name for name in self.env):
            raise ValueError("the name of an environment variable is not empty and has no `=`")
        return self
