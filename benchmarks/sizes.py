"""What size costs: a 10,000-step plan per step against a 100-step one, its memory, and a start from cold.

Run as a script in a process of its own (`python -m benchmarks.sizes STEPS DIR`), so that memory is its own.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["run_size", "version_ratio"]


def run_size(steps: int, folder: Path, rounds: int = 1) -> dict[str, Any]:
    """Run a chain of so many steps from a plan file, in a fresh process."""
    argv = [sys.executable, "-m", "benchmarks.sizes", str(steps), str(folder), str(rounds)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def version_ratio(rounds: int = 15) -> tuple[float, float, float]:
    """`windlass --version` over `python -c pass`, with both medians in seconds."""
    script = Path(sys.executable).parent / "windlass"
    ours = statistics.median(_seconds([str(script), "--version"]) for _ in range(rounds))
    bare = statistics.median(_seconds([sys.executable, "-c", "pass"]) for _ in range(rounds))
    return ours / bare, ours, bare


def _seconds(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    return time.perf_counter() - began


def _main(steps: int, folder: Path, rounds: int) -> None:
    import windlass
    from benchmarks.ours import increment

    folder.mkdir(parents=True, exist_ok=True)
    plan_file = folder / f"chain-{steps}.yaml"
    lines = [f"name: chain of {steps}", "steps:"]
    for i in range(steps):
        x = f'"{{{{ steps.s{i - 1}.output }}}}"' if i else "0"
        lines += [f"  - id: s{i}", "    tool: increment", f"    with: {{x: {x}}}"]
    plan_file.write_text("\n".join(lines) + "\n")

    async def run() -> list[float]:
        took = []
        async with windlass.open(folder / "home", tools=[increment]) as engine:
            sourced = engine.read(plan_file)
            for _ in range(rounds):
                began = time.perf_counter()
                state = await (await engine.start(sourced)).wait()
                took.append(time.perf_counter() - began)
                if state.steps[f"s{steps - 1}"].output != steps:
                    raise SystemExit("the chain did not run")
        return took

    took = asyncio.run(run())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"per_step": statistics.median(took) / steps, "peak_mb": peak}))


if __name__ == "__main__":
    _main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
