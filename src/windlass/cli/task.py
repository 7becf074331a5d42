"""`run --task`: the tasks that the command line or a file gives, as a plan made by a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windlass.engine.tasks import AgentFlags, plan_from
from windlass.errors import UsageError
from windlass.plan.model import Plan
from windlass.plan.strategies import Strategy, tasks_of
from windlass.plan.yamlread import read

__all__ = ["AgentFlags", "plan_of_tasks"]

MAX_TASK_FILE = 4 * 1024 * 1024


def plan_of_tasks(
    task: str | None,
    file: Path | None,
    strategy: Strategy | None,
    *,
    role: str | None,
    chain: str | None,
    files: Sequence[str],
    skills: Sequence[str],
) -> tuple[Plan, Strategy]:
    """The plan of `--task` or `--task-file`, and the strategy that made it."""
    if task is not None and not task.strip():
        raise UsageError("--task is empty: what is to be done?")
    tasks: list[dict[str, Any]] = [{"id": "task", "prompt": task}] if task is not None else _read(file)
    members = [name.strip() for name in chain.split(",") if name.strip()] if chain else None
    if members and strategy not in (None, Strategy.MULTI):
        raise UsageError(f"--chain is for the strategy multi, and this is {strategy}")
    name = str(file) if file else ""
    return plan_from(tasks, strategy, role=role, chain=members, files=files, skills=skills, file=name)


def _read(file: Path | None) -> list[dict[str, Any]]:
    assert file is not None
    try:
        if file.stat().st_size > MAX_TASK_FILE:
            raise UsageError(f"{file} is larger than {MAX_TASK_FILE // 1024**2} MiB: that is no list of tasks")
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    if file.suffix.lower() not in (".yaml", ".yml", ".json"):
        return tasks_of(text, str(file))
    return tasks_of(read(text, file=str(file), as_json=file.suffix.lower() == ".json").data, str(file))
