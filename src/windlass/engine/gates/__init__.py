"""The gates before every use of a tool, by a step, an agent or a program (H1, H3, C4, C8)."""

from windlass.engine.gates.circuit import TookTooLong
from windlass.engine.gates.gates import Gates

__all__ = ["Gates", "TookTooLong"]
