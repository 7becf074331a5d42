"""Real agents of the Agent Client Protocol for tests, each with a home of its own, that talk to a scripted model."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hosts import deps

from windlass.ports import AgentRequest, Brief, Permissions
from windlass.process import Supervisor
from windlass.runners.acp.runner import AcpRunner, CodexRunner, GeminiRunner
from windlass.testing import ScriptedModel

__all__ = [
    "CODEX_MODEL",
    "GEMINI_MODEL",
    "AcpWorld",
    "acp_world",
    "codex_config",
    "codex_program",
    "needs_codex",
    "needs_gemini",
]

MODULES = Path(__file__).resolve().parents[2] / ".venv/opencode/node_modules"
CODEX_MODEL = "gpt-5.4"
"""A model that Codex knows: it warns of others in its answer."""
GEMINI_MODEL = "gemini-2.5-flash"
RUNNERS = {"codex": CodexRunner, "gemini": GeminiRunner, "acp": AcpRunner}


def codex_program() -> str | None:
    """The program of this platform, which needs no Node."""
    return next(map(str, MODULES.glob("@zed-industries/codex-acp-*/bin/codex-acp")), None)


def gemini_program() -> str | None:
    found = MODULES / "@google/gemini-cli/bundle/gemini.js"
    return str(found) if found.exists() else None


needs_codex = pytest.mark.skipif(codex_program() is None, reason="no codex-acp: make dev installs it")
needs_gemini = pytest.mark.skipif(gemini_program() is None, reason="no Gemini CLI: make dev installs it")


def codex_config(model: ScriptedModel) -> str:
    """Settings whose only provider is the scripted model, which is asked once."""
    return (
        f'model = "{CODEX_MODEL}"\nmodel_provider = "scripted"\n[model_providers.scripted]\nname = "Scripted"\n'
        f'base_url = "{model.openai_url}"\nwire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
    )


class AcpWorld(NamedTuple):
    runner: AcpRunner
    model: ScriptedModel
    folder: Path
    numbers: count[int]

    def request(self, prompt: str = "go", **how: Any) -> AgentRequest:
        number = next(self.numbers)
        words: dict[str, Any] = {"env": {}, "permissions": Permissions(), "trusted": True, **how}
        brief = Brief(words.pop("system", ""), prompt)
        scratch = self.folder / f"scratch-{number}"
        return AgentRequest(
            id=f"execution:step:{number}",
            task=prompt,
            brief=brief,
            workdir=self.folder / "work",
            scratch=scratch,
            **words,
        )


@asynccontextmanager
async def acp_world(name: str, folder: Path, script: Any, **settings: Any) -> AsyncIterator[AcpWorld]:
    """A runner of this name with a user of its own. `acp` runs Codex, as an agent that nothing is known of."""
    user = folder / "user"
    (folder / "work").mkdir(parents=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(user), "LANG": "C.UTF-8", "TMPDIR": str(folder)}
    if name == "gemini":
        settings.setdefault("command", ["node", gemini_program(), "--acp"])
    else:
        settings.setdefault("command", [codex_program()])
    async with ScriptedModel(script) as model:
        for place, text in (
            (".codex/config.toml", codex_config(model)),
            (".gemini/settings.json", json.dumps({"privacy": {"usageStatisticsEnabled": False}})),
        ):
            (user / place).parent.mkdir(parents=True, exist_ok=True)
            (user / place).write_text(text)
        env |= {"GEMINI_API_KEY": "scripted", "GOOGLE_GEMINI_BASE_URL": model.url}
        supervisor = Supervisor()
        runner = RUNNERS[name](deps(supervisor, env=env, home=folder / "ours", **settings))
        try:
            yield AcpWorld(runner, model, folder, count(1))
        finally:
            await runner.close()
            await supervisor.close()
