"""What an HTTP status means for a message that shall arrive once."""

from __future__ import annotations

from windlass.errors import Category, ToolError
from windlass.tools.message.once import OutcomeUnknown

__all__ = ["GATEWAYS", "of_status"]

GATEWAYS = {502, 504}
"""A gateway's word: what became of it behind the gateway, it does not know."""
_LATER = {408, 421, 425, 429}


def of_status(status: int, message: str, retry_after: float | None = None) -> ToolError:
    if status in GATEWAYS:
        return OutcomeUnknown(f"{message}; nobody knows whether it has arrived")
    if status in (401, 403, 407):
        return ToolError(message, category=Category.PERMISSION, advice=("check the service's address and its secrets",))
    if status in _LATER or status >= 500:
        return ToolError(message, category=Category.TRANSIENT, retry_after=retry_after)
    return ToolError(message, category=Category.LOGIC, advice=("check the service's address, and what is sent",))
