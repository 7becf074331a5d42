"""Images and PDF documents in a conversation, and the room that they take in a model's window."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_ai.messages import BinaryContent, ModelMessage

__all__ = ["attached", "attachment_tokens", "excess_bytes"]

IMAGE_TOKENS = 1_600
"""Tokens of an image: providers scale a larger one down to this."""
PAGE_TOKENS = 2_500
PAGE_BYTES = 100_000
"""Bytes of a PDF document that count as a page: its pages are guessed, not counted."""


def attached(message: ModelMessage) -> list[BinaryContent]:
    """The images and PDF documents in a message."""
    from pydantic_ai.messages import BinaryContent, UserPromptPart

    contents = [part.content for part in message.parts if isinstance(part, UserPromptPart)]
    pieces = [piece for content in contents if not isinstance(content, str) for piece in content]
    return [piece for piece in pieces if isinstance(piece, BinaryContent)]


def attachment_tokens(file: BinaryContent) -> int:
    return IMAGE_TOKENS if file.is_image else PAGE_TOKENS * max(1, len(file.data) // PAGE_BYTES)


def excess_bytes(file: BinaryContent) -> int:
    """Bytes of its base64 text beyond those of a plain text that has as many tokens."""
    return (len(file.data) + 2) // 3 * 4 - 4 * attachment_tokens(file)
