"""The types of the public API, proven by the type checker itself (I5)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import windlass

HERE = Path(__file__).parent


def test_i5_a_strictly_typed_program_can_use_the_public_api() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(HERE / "api.py")],
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_i5_the_program_uses_every_public_name() -> None:
    text = (HERE / "api.py").read_text()
    assert [name for name in windlass.__all__ if name not in text and not name.startswith("__")] == []
    assert (Path(windlass.__file__).parent / "py.typed").exists()
