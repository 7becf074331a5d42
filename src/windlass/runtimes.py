"""The table of runtimes: everything that is asked of a runtime by its name, one row each.

Plans, settings, HTTP, MCP, the command line, prompts and the engine take their names and facts from here, and
`assembly/agents.py` makes the runners. A row names its runner by path, so importing this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

__all__ = [
    "ACP",
    "CLAUDE_CODE",
    "CLI",
    "CODEX",
    "GEMINI",
    "OPEN_CODE",
    "RUNTIMES",
    "ModelClass",
    "Runtime",
    "RuntimeName",
    "runtime_names",
]

ModelClass: TypeAlias = Literal["small", "standard", "large"]


class Runtime(msgspec.Struct, frozen=True):
    name: str
    """As users type it and journals hold it."""
    family: str
    """Within a family one runtime can take over from another."""
    runner: str
    """`MODULE:CLASS` of its `Runner`, made with a `RunnerDeps`."""
    install: str
    """How to install what it needs."""
    tools: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Its tools by what they do (the keys of `agents/roles.py`): those that do this and nothing more."""
    also_does: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Its tools that can do this among other things: denied with it, never offered for it."""
    reads_rules: bool = False
    """Reads the project's AGENTS.md by itself."""
    any_model: bool = False
    """Takes the model that a role for another runtime names."""
    models: Mapping[ModelClass, str] = msgspec.field(default_factory=dict)
    """Its names for a model of a class, where it has names that do not go out of date."""
    takes_over: bool = True
    """Another of its family may fall back to it; without this it must be named."""
    client_names: tuple[str, ...] = ()
    """The names it gives itself as an MCP client, in lower case."""


CLAUDE_CODE = Runtime(
    name="claude-code",
    family="coding",
    runner="windlass.runners.claude.runner:ClaudeCodeRunner",
    install="pip install 'windlass[agents]' or npm i -g @anthropic-ai/claude-code",
    tools={
        "read": "Read",
        "list": "Glob",
        "grep": "Grep",
        "write": "Write",
        "edit": "Edit",
        "notebook": "NotebookEdit",
        "shell": "Bash",
        "fetch": "WebFetch",
        "search": "WebSearch",
        "delegate": "Task",
        "todo": "TodoWrite",
        "skill": "Skill",
    },
    models={"small": "haiku", "standard": "sonnet", "large": "opus"},
    client_names=("claude-code", "claude code"),
)

OPEN_CODE = Runtime(
    name="open-code",
    family="coding",
    runner="windlass.runners.opencode.runner:OpenCodeRunner",
    install="npm i -g opencode-ai",
    tools={
        "read": "read",
        "list": "glob list",
        "grep": "grep",
        "write": "write",
        "edit": "edit",
        "notebook": "edit",
        "shell": "bash",
        "fetch": "webfetch",
        "search": "websearch",
        "delegate": "task",
        "todo": "todowrite",
        "skill": "skill",
    },
    reads_rules=True,
    client_names=("opencode", "open-code"),
)

CLI = Runtime(
    name="cli",
    family="model API",
    runner="windlass.runners.model_api.runner:ModelApiRunner",
    install="pip install 'windlass[agents]'",
    tools={
        "read": "files.read",
        "list": "files.list",
        "grep": "files.search",
        "write": "files.write",
        "edit": "files.edit",
        "shell": "shell",
        "fetch": "http.get",
        "search": "search",
    },
    also_does={
        "read": "files.search files.copy",
        "write": "files.apply files.move files.delete files.patch files.copy http.download",
        "edit": "files.apply files.patch",
        "fetch": "http.* browser.*",
    },
    any_model=True,
)

_KINDS = {
    "read": "read",
    "list": "search",
    "grep": "search",
    "write": "edit",
    "edit": "edit",
    "notebook": "edit",
    "shell": "execute",
    "fetch": "fetch",
    "search": "fetch",
    "delegate": "other",
    "todo": "think",
    "skill": "other",
}
"""The tools of an agent of the Agent Client Protocol: it names them by what they do."""

GEMINI = Runtime(
    name="gemini",
    family="coding",
    runner="windlass.runners.acp.runner:GeminiRunner",
    install="npm i -g @google/gemini-cli",
    tools=_KINDS,
    takes_over=False,
)

CODEX = Runtime(
    name="codex",
    family="coding",
    runner="windlass.runners.acp.runner:CodexRunner",
    install="npm i -g @agentclientprotocol/codex-acp",
    tools=_KINDS,
    reads_rules=True,
    takes_over=False,
    client_names=("codex-mcp-client",),
)

ACP = Runtime(
    name="acp",
    family="coding",
    runner="windlass.runners.acp.runner:AcpRunner",
    install="the agent of your choice, named in the settings of the runtime acp",
    tools=_KINDS,
    takes_over=False,
)

_ROWS = (
    CLAUDE_CODE,
    OPEN_CODE,
    CLI,
    GEMINI,
    CODEX,
    ACP,
)
RUNTIMES: Mapping[str, Runtime] = {row.name: row for row in _ROWS}
"""By name, in the order in which a healthy one is looked for."""

if TYPE_CHECKING:
    RuntimeName = str
else:
    RuntimeName = Literal[tuple(RUNTIMES)]
"""One of them, in models that are validated and described to clients."""


def runtime_names() -> str:
    """`claude-code, open-code, … or acp`."""
    *most, last = RUNTIMES
    return f"{', '.join(most)} or {last}"
