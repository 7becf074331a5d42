"""Two tools for plan.yaml: functions that the plan's steps call by name."""

from collections import Counter
from pathlib import Path

from windlass import Call, ToolError, tool


@tool(effect="none")
def count_words(path: str, call: Call) -> dict[str, int]:
    """How often each word stands in a text file."""
    file = Path(call.workdir, path)
    words = [word.strip(".,;:!?").lower() for word in file.read_text(encoding="utf-8").split()]
    if not words:
        raise ToolError(f"{path} has no words in it", category="configuration", advice=["put some text into it"])
    call.output("stdout", f"{path}: {len(words)} words\n")
    return dict(Counter(words))


@tool(effect="none")
def add_up(counts: list[dict[str, int]], top: int = 3) -> dict[str, object]:
    """The counts of all files together, with the most frequent words."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    most = sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
    return {"words": total.total(), "top": [{"word": word, "times": times} for word, times in most]}
