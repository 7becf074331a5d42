"""The folder that a step names for its agent with `workdir`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from windlass.errors import Category, ToolError
from windlass.plan.model import Step
from windlass.ports import Call

__all__ = ["in_workdir", "workdir_of"]


def workdir_of(step: Step, arguments: Mapping[str, Any], base: Path) -> Path:
    """The folder of an agent that works in `base` unless its step names another. Only a plan names one: an agent that
    is called by a program does not choose where it works."""
    named = arguments.get("workdir") if step.workdir is not None else None
    return Path(os.path.normpath(base / named)) if named else base


def in_workdir(step: Step, arguments: Mapping[str, Any], call: Call) -> Call:
    """The call in the folder that the step names."""
    folder = workdir_of(step, arguments, call.workdir)
    if folder == call.workdir:
        return call
    if not folder.is_dir():
        raise ToolError(f"`workdir`: the folder {folder} does not exist", category=Category.CONFIGURATION)
    return msgspec.structs.replace(call, workdir=folder)
