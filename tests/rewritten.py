"""A new clone's tests are rewritten once: pytest explains a failed `assert` by rewriting each module that has one.

It keeps what it wrote beside Python's own bytecode, but its workers read the same modules in the same order, so each of
them would rewrite all. Here each takes its part of them before it reads any.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest
from _pytest.assertion import AssertionState, rewrite
from _pytest.assertion.rewrite import assertstate_key

TESTS: Final = Path(__file__).parent


def rewrite_part(config: pytest.Config) -> None:
    """Rewrite this worker's part of the tests' modules. One that is no Python yet fails where it is read."""
    worker: dict[str, object] | None = getattr(config, "workerinput", None)
    state = config.stash.get(assertstate_key, None)
    if worker is None or state is None or sys.dont_write_bytecode:
        return
    first, step = int(str(worker["workerid"]).removeprefix("gw")), int(str(worker["workercount"]))
    for source in sorted(TESTS.rglob("test_*.py"))[first::step]:
        _rewrite(source, config, state)


def _rewrite(source: Path, config: pytest.Config, state: AssertionState) -> None:
    kept = rewrite.get_cache_dir(source) / (source.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(source, kept) is not None or not rewrite.try_makedirs(kept.parent):
        return
    try:
        read, code = rewrite._rewrite_test(source, config)
    except SyntaxError:
        return
    rewrite._write_pyc(state, code, read, kept)
