"""Find verified work whose files have changed since its checks passed (K2).

The journal has the hash of the files as the checks left them. To compare it, the files are recorded anew: that costs
about as much as `git status`, so it is done only for somebody who looks, and once for all who look within a moment.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from windlass.core.events import AgentChecked
from windlass.core.state import State
from windlass.errors import ToolError
from windlass.workspaces.store import store_of

__all__ = ["StaleChecks"]

LOOK_AGAIN = 1.0
"""Seconds for which the content of a folder counts as known."""


class StaleChecks:
    """Compares the files that checks saw with those of now."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known: dict[tuple[str, str], tuple[float, str]] = {}
        self._lock = threading.Lock()

    def find(self, state: State) -> frozenset[str]:
        """Steps with verified work whose files are not as their checks left them."""
        verified = {
            step.id: step.agent.checked
            for step in state.steps.values()
            if step.agent is not None and step.agent.checked is not None and step.agent.verdict == "verified"
        }
        with self._lock:
            return frozenset(name for name, checked in verified.items() if self._has_changed(checked))

    def _has_changed(self, checked: AgentChecked) -> bool:
        if not checked.tree:
            return False
        key = (checked.root, checked.tree.partition(":")[0])
        seen_at, tree = self._known.get(key, (0.0, ""))
        if not seen_at or time.monotonic() - seen_at > LOOK_AGAIN:
            try:
                tree = store_of(Path(checked.root), key[1], self._home).record().tree
            except (ToolError, OSError):  # the folder is gone, or the home is read-only: nothing is known
                tree = ""
            self._known[key] = (time.monotonic(), tree)
        return bool(tree) and tree != checked.tree
