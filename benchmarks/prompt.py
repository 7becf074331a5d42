"""What an agent is told, put together: 200 skills on disk, 500 context files, against merely reading the same files.

Both sides read through the page cache. Ours also finds the roles and skills, reads their frontmatter, resolves and
judges every path, and marks every content.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

__all__ = ["PromptCost", "prompt_cost"]

SKILLS, FILES, USED, ROUNDS = 200, 500, 10, 9


class PromptCost(NamedTuple):
    seconds: float
    bare_seconds: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.bare_seconds


def prompt_cost(folder: Path) -> PromptCost:
    """Medians of discovery and assembly, and of reading the same 700 files one by one."""
    from windlass.agents import Briefing

    project = folder.absolute() / "project"
    paths = _make(project)
    briefing = Briefing({"HOME": str(folder.absolute() / "user")})
    names = [f"skill-{number}" for number in range(USED)]

    def ours() -> None:
        brief = briefing.brief(
            task="Do it.", workdir=project, role="developer", skills=[*names, "*"], files=["src/**/*.py"]
        )
        if brief.prompt.count("<file path=") != FILES or brief.notes:
            raise SystemExit(f"the prompt is not whole: {brief.notes}")

    def bare() -> None:
        for path in paths:
            path.read_bytes()

    times = [(_seconds(ours), _seconds(bare)) for _ in range(ROUNDS)]
    return PromptCost(*(statistics.median(column) for column in zip(*times, strict=True)))


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _make(project: Path) -> list[Path]:
    (project / ".git").mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(SKILLS):
        path = project / ".claude" / "skills" / f"skill-{number}" / "SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        head = f"---\nname: skill-{number}\ndescription: How thing {number} is done, and when\nlicense: MIT\n---\n"
        path.write_text(head + "Do this, then that.\n" * 100)
        paths.append(path)
    for number in range(FILES):
        path = project / "src" / f"part{number % 20}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def function_{number}(x: int) -> int:\n    return x + {number}\n" * 30)
        paths.append(path)
    return paths


if __name__ == "__main__":
    found = prompt_cost(Path(".bench") / "prompt")
    print(f"{found.ratio:.1f}× reading the files ({found.seconds * 1000:.0f} ms, {found.bare_seconds * 1000:.0f} ms)")
