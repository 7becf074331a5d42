"""A step takes no more of Python than it did (J1): bytecodes are the same on every machine, however busy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.bytecodes import RECORD, VERSION
from benchmarks.instructions import GROWTH

REPOSITORY = Path(__file__).resolve().parents[2]


def test_j1_a_step_executes_no_more_bytecodes_than_a_tenth_over_the_record() -> None:
    recorded = json.loads(RECORD.read_text(encoding="utf-8")).get(VERSION)
    if recorded is None:
        pytest.skip(f"no figures of Python {VERSION}: python -m benchmarks.bytecodes --record")
    command = [sys.executable, "-m", "benchmarks.bytecodes"]
    counted = json.loads(subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout)
    assert counted.keys() == recorded.keys()
    grown = {kind: count for kind, count in counted.items() if count > recorded[kind] * GROWTH}
    assert grown == {}, f"recorded are {recorded}; on purpose? python -m benchmarks.bytecodes --record"
