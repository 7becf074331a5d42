"""The servers of `tests/tools/net/loopback.py` serve these tests, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "net"))
