"""An agent step's work, as a tool named `agent` (A1–A8): it passes the gates that every tool passes.

It checks the arguments before anything runs; `attempt` does the work.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from windlass.clock import Clock
from windlass.core.decide import Policy
from windlass.core.delegate import falls_back, named_model, runtime_of
from windlass.core.state import State
from windlass.engine.agents.deps import BriefingSource
from windlass.engine.agents.runtimes import choose
from windlass.errors import Category, ToolError
from windlass.plan.model import AGENT, MERGE, Effect, Plan
from windlass.plan.schema import kind_of, nearest
from windlass.ports import Call, Ledger, Runner, Tool, Toolbox, hooks_of
from windlass.settings import Settings

__all__ = ["AgentTool", "MergeTool"]


_TEXTS = {"type": "array", "items": {"type": "string"}}
_CHECKS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "tool": {"type": "string"},
            "with": {"type": "object"},
            "source": {"type": "string"},
            "timeout": {"type": "number"},
        },
        "required": ["tool", "with"],
        "additionalProperties": False,
    },
}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "role": {"type": "string"},
        "prompt": {},
        "runtime": {"type": "string"},
        "model": {"type": "string"},
        "models": _TEXTS,
        "skills": _TEXTS,
        "files": _TEXTS,
        "max_turns": {"type": "integer", "minimum": 1},
        "workdir": {"type": "string"},
        "check": _CHECKS,
        "pick": _CHECKS,
        "protect": _TEXTS,
        "output": {"anyOf": [{"type": "object"}, {"const": "plan"}]},
        "tries": {"type": "integer", "minimum": 1},
        "workspace": {
            "type": "object",
            "properties": {"kind": {"enum": ["worktree", "copy"]}, "files": _TEXTS},
            "required": ["kind"],
            "additionalProperties": False,
        },
        "permissions": {"type": "object"},
        "handoff": {"type": "array"},
    },
    "required": ["role", "prompt"],
    "additionalProperties": False,
}


@runtime_checkable
class Closable(Protocol):
    async def close(self) -> None: ...


@dataclass(eq=False)
class AgentTool(Tool):
    """The tool that agent steps use."""

    runners: Mapping[str, Runner]
    briefing: BriefingSource
    ledger: Ledger
    clock: Clock
    settings: Settings
    policy: Policy
    trusted: Callable[[Path], bool]
    release_dead: Callable[[], Awaitable[None]]
    """Settles the reservations of dead processes, so that no attempt waits for them."""
    name: str = AGENT
    description: str = "An agent works on a task."
    schema = _SCHEMA

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.REPEATABLE

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        """Check that the runtime is known, and that models have names.

        Roles and skills are those of the working directory: see `misfits`.
        """
        names = [(key, arguments[key]) for key in ("runtime", "model") if key in arguments]
        models = arguments.get("models")
        names += [("models", name) for name in models] if isinstance(models, list) else []
        for key, name in names:
            if not isinstance(name, str) or not name.strip():
                return [f"`{key}`: expected a name, found {kind_of(name)}"]
        runtime = arguments.get("runtime")
        if runtime is None or runtime in self.runners:
            return []
        near = nearest(runtime, self.runners)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(self.runners)}"
        return [f"`runtime`: there is no runtime {runtime!r}; {hint}"]

    def strange_runtimes(self, plan: Plan) -> list[str]:
        """Unknown runtimes that its agents would run on, as named by steps, plan or settings."""
        named = {step.runtime or plan.runtime or self.policy.runtime for step in plan.steps if step.is_agent}
        return [problem for runtime in sorted(named) for problem in self.validate({"runtime": runtime})]

    def misfits(self, arguments: Mapping[str, Any], workdir: Path) -> list[str]:
        """Everything wrong with the arguments for an agent that is to work there."""
        named = self.briefing.problems(workdir, arguments.get("role", ""), arguments.get("skills", ()))
        return [*named, *self.validate(arguments)]

    def basis(self, arguments: Mapping[str, Any], workdir: Path, tools: Toolbox) -> dict[str, str]:
        """Hashes of the agent's role and skills, as they are seen from the folder that the step names."""
        return self.briefing.basis(
            workdir / (arguments.get("workdir") or ""), str(arguments.get("role", "")), arguments.get("skills", ())
        )

    def circuit(self, arguments: Mapping[str, Any]) -> None:
        """Runtimes have breakers, each its own."""

    def prepare(self, state: State) -> None:
        """Let the runtimes of unfinished steps load everything for their first run in the background."""
        if AGENT not in state.prepared.tools:
            return
        agents = (step for step in state.top_level() if step.prepared.is_agent and not step.settled)
        needed = {(runtime_of(state, step, self.policy), named_model(state, step) or None) for step in agents}
        for name, model in needed:
            if (runner := self.runners.get(name)) is not None:
                hooks_of(runner).prepare(model)

    async def missing(self, state: State) -> list[str]:
        """Runtimes that unfinished steps are sure to need and that cannot be used here, with advice (D5)."""
        found: dict[str, str] = {}
        for step in state.top_level():
            may_be_left_out = step.spec.may_be_left_out and not step.attempts
            if step.spec.is_agent and not step.settled and not may_be_left_out:
                named = runtime_of(state, step, self.policy)
                fallback = falls_back(state, step, self.policy)
                try:
                    await choose(self.runners, named, fallback=fallback)
                except ToolError as error:
                    advice = f" ({error.failure.advice[0]})" if error.failure.advice else ""
                    found[named] = f"step {step.id}: {error.failure.message}{advice}"
        return list(found.values())

    async def outdated(self, state: State) -> list[str]:
        """Conversations of unfinished steps that a newer version of their runtime wrote than the one here (D5)."""
        found: list[str] = []
        for step in state.steps.values():
            agent = step.agent
            if agent is None or step.settled or agent.session is None or not agent.session_version:
                continue
            runner = self.runners.get(agent.session_runtime)
            here = (await runner.available()).version if runner is not None else ""
            if here and _numbers(here) < _numbers(agent.session_version):
                wrote = f"{agent.session_runtime} {agent.session_version}"
                found.append(
                    f"the conversation of step {step.id} was written by {wrote}, which {here} may be unable to read"
                )
        return found

    async def close(self) -> None:
        """Release the runtimes' warm processes and connections."""
        if isinstance(self.runners, Closable):
            await self.runners.close()

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        if call.contact is None:
            raise ToolError("an agent runs only inside an execution", category=Category.LOGIC)
        from windlass.engine.agents.attempt import AgentAttempt  # most plans have no agents

        return await AgentAttempt(self, arguments, call, call.contact).perform()


@dataclass(eq=False)
class MergeTool(Tool):
    """The tool that merge steps use."""

    agents: AgentTool
    name: str = MERGE
    description: str = "Merges the branches of agents' worktrees, each checked."
    schema = {
        "type": "object",
        "properties": {"step": {"type": "string"}, "only": {}, "check": _CHECKS},
        "required": ["step"],
        "additionalProperties": False,
    }

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.REPEATABLE

    def circuit(self, arguments: Mapping[str, Any]) -> None:
        """A conflict says nothing of the next merge."""

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        if call.contact is None or call.contact.step.spec.merge is None:
            raise ToolError("branches are merged by a step with `merge`", category=Category.LOGIC)
        from windlass.engine.agents.merge import merge_branches  # most plans merge nothing

        return await merge_branches(self.agents, arguments, call, call.contact)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
