"""Documentation pages as programs: their blocks are read, run, and compared with what they say.

A comment directly before a fenced block says what the block is:

- `<!-- test -->`: run it. Blocks of one page share a folder, a user and a shell, in the page's order.
  `<!-- test exit=3 -->`: its last command ends with that code.
- `<!-- output -->`: what the block before it printed, both streams. A line `…` stands for any number of lines,
  `…` in a line for any text. Ids, times, durations and checksums may differ, and so may the folder.
- `<!-- file: NAME -->`: a file of that name is written.
- `<!-- fragment -->`: YAML that is no whole plan.

Several are joined with commas: `<!-- file: bad.yaml, fragment -->`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SHOWN_FOLDER = "/home/ana/project"
"""Where the pages say that they are."""

PATIENCE = 400.0
"""Seconds that all blocks of a page may take."""

_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^>]*?) -->\n+)?^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_END = "=== end of block"
_SAME = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\b[0-9a-f]{64}\b|(?<=sha256\": \")…"), "SHA"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?"), "DATE"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "N s"),
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    mark: str
    info: str
    text: str

    @property
    def tested(self) -> bool:
        return self.mark.startswith("test")

    @property
    def file(self) -> str | None:
        """The name of the file that it is to be."""
        found = re.search(r"file: ([^ ,]+)", self.mark)
        return found[1] if found else None

    @property
    def fragment(self) -> bool:
        return "fragment" in self.mark

    @property
    def code(self) -> str:
        """The exit code that its last command is to end with."""
        found = re.search(r"exit=(\d+)", self.mark)
        return found[1] if found else "0"

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def pages() -> list[Path]:
    """Every page of the documentation."""
    found = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/**/*.md")]
    return sorted(found)


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("info")) + 1
        yield Block(page, line, found["mark"] or "", found["info"].strip(), found["text"])


def is_program(page: Path) -> bool:
    return any(block.tested for block in blocks(page))


def play(page: Path, folder: Path, env: Mapping[str, str]) -> None:
    """Run what a page marks, in order, and hold it to what it says comes of it. Its PATH says which `windlass` runs."""
    steps = [block for block in blocks(page) if block.tested or block.file]
    script = "".join(["exec 2>&1\n", *map(_script, steps)])
    output = _run(script, folder, env).replace(str(folder), SHOWN_FOLDER)
    parts = re.split(rf"^{_END} (\d+)\n", output, flags=re.MULTILINE)
    printed, codes = dict(zip(steps, parts[::2], strict=False)), dict(zip(steps, parts[1::2], strict=False))
    for block in steps:
        code = codes.get(block)
        assert code == block.code, f"{block} ended with {code}:\n{printed.get(block)}"
    previous: Block | None = None
    for block in blocks(page):
        if block.mark == "output":
            assert previous is not None, f"{block} is the output of nothing"
            _compare(block, printed[previous])
        elif block in printed:
            previous = block


def _run(script: str, folder: Path, env: Mapping[str, str]) -> str:
    """All that bash prints, by way of a file: what it leaves in the background must not hold up the reader."""
    log = folder.parent / "printed.txt"
    with log.open("wb") as printed:
        bash = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            start_new_session=True,
        )
        try:
            bash.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(bash.pid, signal.SIGKILL)
            bash.wait()
            raise AssertionError(f"a block did not come to an end:\n{log.read_text()}") from None
    return log.read_text()


def _script(block: Block) -> str:
    if block.file:
        body = f"cat > {block.file} <<'=== end of file'\n{block.text}=== end of file\n"
    elif block.info == "python":
        body = f"python - <<'=== end of file'\n{block.text}=== end of file\n"
    else:
        body = f"{{\n{block.text}}} </dev/null\n"
    return f"{body}printf '{_END} %s\\n' $?\n"


def _compare(block: Block, printed: str) -> None:
    """Every line of the block, in order; only `…` lets lines be left out."""
    lines = [_same(line) for line in printed.splitlines()]
    at, gap = 0, False
    for wanted in map(_same, block.text.splitlines()):
        if wanted.strip() == "…":
            gap = True
            continue
        form = re.compile(".*".join(map(re.escape, wanted.split("…"))))
        reach = range(at, len(lines) if gap else min(at + 1, len(lines)))
        found = next((i for i in reach if form.fullmatch(lines[i])), None)
        assert found is not None, f"{block} says\n  {wanted}\nbut this was printed:\n{printed}"
        at, gap = found + 1, False
    assert gap or not "".join(lines[at:]).strip(), f"{block} leaves out:\n" + "\n".join(lines[at:])


def _same(line: str) -> str:
    for form, name in _SAME:
        line = form.sub(name, line)
    return line.rstrip()
