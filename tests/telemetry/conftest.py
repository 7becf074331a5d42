"""A receiver for each test, and an engine that sends its traces there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from receiver import Receiver
from server_process import serve, server

__all__ = ["receiver", "serve", "server"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made
