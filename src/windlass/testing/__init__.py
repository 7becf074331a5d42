"""Fakes that are real: a clock to set, a journal in memory, and a world in a box, for your own tests too.

    from windlass.testing import Done, Fail, FakeClock, MemoryJournal, Script, simulate

- `FakeClock` is a `Clock` that stands still until it is told otherwise.
- `MemoryJournal` keeps every promise of the journal but the disk.
- `simulate` plays a plan against scripted attempts, people and power cuts, with the real rules, in no time.
"""

from __future__ import annotations

from windlass.testing.clock import FakeClock
from windlass.testing.journal import MemoryJournal
from windlass.testing.simulate import Act, Done, Fail, Hang, Script, simulate
from windlass.testing.simulation import Simulation

__all__ = ["Act", "Done", "Fail", "FakeClock", "Hang", "MemoryJournal", "Script", "Simulation", "simulate"]
