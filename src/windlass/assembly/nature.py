"""Which tools are sensitive by their own nature, or by the user's word: known once there is a registry."""

from __future__ import annotations

from windlass.engine.gates.terms import TermsOfUse
from windlass.ports import Toolbox

__all__ = ["Nature"]


class Nature:
    def __init__(self, terms: TermsOfUse) -> None:
        self._terms = terms
        self.tools: Toolbox | None = None

    def __call__(self, name: str) -> bool:
        tool = self.tools.get(name) if self.tools is not None else None
        return tool is not None and self._terms.of(tool).sensitive
