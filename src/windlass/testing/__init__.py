"""Fakes that are real: a clock to set, a journal in memory, a world in a box, a scripted model, for your tests too.

    from windlass.testing import Done, Fail, FakeClock, MemoryJournal, Script, simulate
    from windlass.testing import Reply, ScriptedModel, ScriptedRunner, Turn

- `FakeClock` is a `Clock` that a test sets and advances.
- `MemoryJournal` and `MemoryLedger` keep every promise of theirs but the disk.
- `simulate` plays a plan against scripted attempts, people and power cuts, with the real rules, in no time.
- `ScriptedRunner` is a `Runner` whose agent does what a list of turns says.
- `ScriptedModel` is a local server that speaks the wire protocols of the model APIs, for the real runtimes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from windlass.journal.memory import MemoryJournal
from windlass.testing.simulate import Act, Done, Fail, Hang, Script, simulate
from windlass.testing.simulation import FakeClock, Simulation

if TYPE_CHECKING:
    from windlass.journal.memory import MemoryLedger
    from windlass.testing.scripted_model import Received, Reply, ScriptedModel, Served, ToolUse
    from windlass.testing.scripted_runner import ScriptedRunner, Turn
    from windlass.testing.tool_conformance import exercise_tool

__all__ = [
    "Act",
    "Done",
    "Fail",
    "FakeClock",
    "Hang",
    "MemoryJournal",
    "MemoryLedger",
    "Received",
    "Reply",
    "Script",
    "ScriptedModel",
    "ScriptedRunner",
    "Served",
    "Simulation",
    "ToolUse",
    "Turn",
    "exercise_tool",
    "simulate",
]

_LATER = {
    **dict.fromkeys(("Received", "Reply", "ScriptedModel", "Served", "ToolUse"), "windlass.testing.scripted_model"),
    **dict.fromkeys(("ScriptedRunner", "Turn"), "windlass.testing.scripted_runner"),
    "MemoryLedger": "windlass.journal.memory",
    "exercise_tool": "windlass.testing.tool_conformance",
}
"""Imported when first asked for: a simulation needs no server."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
