"""An execution of workers that is forecast: its state is read from the journal when a forecast is due, not before."""

from __future__ import annotations

from windlass.core.record import folded
from windlass.core.state import State
from windlass.ports import Journal, Toolbox

__all__ = ["SharedForecast"]


class SharedForecast:
    def __init__(self, journal: Journal, execution: str, tools: Toolbox) -> None:
        """`tools` are those of its steps."""
        self._journal, self._execution = journal, execution
        self.state: State | None = None
        """As it was read last."""
        self.tools = tools

    async def refresh(self) -> State:
        """Read what was written since."""
        state = self.state
        new = [entry.event for entry in await self._journal.read(self._execution, state.seq if state else 0)]
        if state is None:
            self.state = state = folded(self._execution, new)
        else:
            for event in new:
                state.apply(event)
        return state
