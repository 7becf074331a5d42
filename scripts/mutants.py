"""`make mutants`: change the rules in small ways, one at a time, and see that a test notices each change.

    python scripts/mutants.py [--only TEXT] [--count N] [--minutes N] [--seconds N] [--seed N] [--jobs N]

`--only` takes the modules whose path holds the text, `--count 0` all mutants of them. A mutant that no test notices is
killed by a new test, or explained in `mutants.toml`; else this ends with code 1. What the tests pass is found out once
and kept in `.mutants`, until the program or the tests change.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tomllib
from pathlib import Path
from typing import Any

from mutant_tests import Runner
from mutations import SOURCE, mutants_of

ROOT = SOURCE.parent.parent
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutate the rules, and see that the tests notice.")
    parser.add_argument("--only", action="append", help="modules whose path holds this text (repeatable)")
    parser.add_argument("--count", type=int, default=400, help="how many, 0 for all")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="how long the tests may take that a mutant is tried with"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="how many at a time")
    asked = parser.parse_args()
    os.chdir(ROOT)
    names = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}
    known = {name: path for name, path in names.items() if name.startswith(tuple(TABLE["modules"]))}
    paths = [path for name, path in known.items() if any(text in name for text in asked.only or [""])]
    every = [mutant for path in paths for mutant in mutants_of(path)]
    explained = {row["mutant"] for row in TABLE["explained"]}
    chosen = random.Random(asked.seed).sample(every, min(asked.count or len(every), len(every)))
    asked_for = [mutant for mutant in chosen if mutant.key not in explained]
    tried, survivors = 0, 0

    def trial(runner: Runner) -> None:
        nonlocal tried, survivors
        for mutant, verdict in runner.try_all(asked_for, asked.minutes):
            tried += 1
            if not verdict.startswith("killed"):
                survivors += 1
                print(f"{verdict}: {mutant.path.relative_to(ROOT)}:{mutant.line}\n    {mutant.key}", flush=True)

    Runner(list(known.values()), TABLE["tests"], asked.seconds, asked.jobs).run(trial)
    print(
        f"{tried} mutants tried of {len(every)}, seed {asked.seed}, and {len(chosen) - len(asked_for)} explained: "
        f"{survivors} survived unexplained"
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
