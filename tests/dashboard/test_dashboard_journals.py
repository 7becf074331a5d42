"""The server for those who work on the pages shows stored executions, and runs nothing (I4)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from server_process import Api

ROOT = Path(__file__).parents[2]


def lists(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/api/executions?limit=100").json["executions"]
    return found


def test_i4_stored_journals_are_served_and_replayed(tmp_path: Path, until: Any) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "serve_journals.py")]
    env = {**os.environ, "HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as script:
        assert script.stdout is not None
        try:
            told = "".join(script.stdout.readline() for _ in range(2))
            (address,) = re.findall(r"WINDLASS_ADDRESS=(\S+)", told)
            (token,) = re.findall(r"WINDLASS_TOKEN=(\S+)", told)
            api = Api(address, token)
            stored = len(list((ROOT / "tests" / "journals").glob("v*-*.jsonl")))
            found = until(lambda: len(lines := lists(api)) > stored and lines)
            assert {"completed", "paused", "failed"} <= {line["status"] for line in found}
        finally:
            script.terminate()
    assert script.returncode == 130
    with pytest.raises(OSError, match="refused"):
        api.get("/health")
