"""Records the terminal session of the README: `make session` writes docs/images/session.svg.

The commands run for real, in a pseudo-terminal, in a folder of their own. A terminal emulator (pyte) turns their bytes
into screens; each screen that differs is a group of the SVG, shown at its time. The file is text, and loads nothing.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "images" / "session.svg"
COLUMNS, ROWS = 88, 27
PLAN = """\
name: release
steps:
  - {id: build, run: sleep 1 && echo built}
  - id: test
    needs: build
    foreach: [unit, web, docs]
    run: sleep 2 && echo {{ item | quote }} passed
  - {id: publish, needs: test, run: echo published, approve: always, question: Publish it?}
"""
TYPED = (
    ("cat release.yaml", ""),
    ("windlass run release.yaml & sleep 3; kill -9 $!    # crash it", ""),
    ("windlass resume @last", "[l]ater:"),
)
"""Each command, and the end of the line after which `y` is typed."""
COLOURS = {
    "default": "#d7dde4",
    "green": "#7ec699",
    "red": "#f08d8d",
    "brown": "#e6c07b",
    "blue": "#7cb7ff",
    "magenta": "#c792ea",
    "cyan": "#6fd3d3",
    "brightblack": "#8b95a1",
}
LABEL = "A terminal: windlass run is killed in the middle of a plan, and windlass resume finishes it."
STYLE = """\
text{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre}
g{visibility:hidden}
@media (prefers-reduced-motion:reduce){g{animation:none!important}g:last-of-type{visibility:visible}}"""
FRAME = """\
<rect width="100%" height="100%" rx="8" fill="#1d232b"/>
<circle cx="20" cy="18" r="5" fill="#f08d8d"/><circle cx="36" cy="18" r="5" fill="#e6c07b"/>
<circle cx="52" cy="18" r="5" fill="#7ec699"/>"""
PAUSE = 1.2
"""Seconds for which a finished command stands before the next."""
LONGEST = 300.0
"""Seconds after which a command that does not end is given up."""


@dataclass
class Recording:
    """Screens with their times."""

    screen: pyte.Screen = field(default_factory=lambda: pyte.Screen(COLUMNS, ROWS))
    frames: list[tuple[float, str]] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.stream = pyte.ByteStream(self.screen)

    def show(self, data: bytes, seconds: float) -> None:
        """Feed bytes to the terminal; what is seen then is seen `seconds` after the last."""
        self.now += seconds
        self.stream.feed(data)
        drawn = _drawn(self.screen)
        if not self.frames or self.frames[-1][1] != drawn:
            self.frames.append((self.now, drawn))

    def type(self, text: str) -> None:
        for word in re.findall(r"\S+\s*", text):
            self.show(word.encode(), 0.3)


def record(recording: Recording, command: str, answer_after: str, env: dict[str, str], folder: Path) -> None:
    """Type a command and run it in a pseudo-terminal until it ends."""
    recording.show(b"\x1b[32m$\x1b[0m ", 0.0)
    recording.type(command)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    running = subprocess.Popen(
        ["bash", "-c", command], stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=folder, start_new_session=True
    )
    os.close(theirs)
    recording.show(b"\r\n", 0.3)
    last = began = time.monotonic()
    try:
        while time.monotonic() < began + LONGEST:
            ready, _, _ = select.select([ours], [], [], 0.3)
            try:
                data = os.read(ours, 65536) if ready else b""
            except OSError:  # the last program that wrote has ended
                break
            if ready and not data:
                break
            seen, last = time.monotonic() - last, time.monotonic()
            recording.show(data, seen)
            if answer_after and any(row.rstrip().endswith(answer_after) for row in recording.screen.display):
                time.sleep(0.8)
                os.write(ours, b"y\n")
                answer_after = ""
        else:
            os.killpg(running.pid, signal.SIGKILL)
            raise SystemExit(f"{command} did not end")
    finally:
        os.close(ours)
        running.wait()
    recording.show(b"\x1b[?25h", PAUSE)


def _drawn(screen: pyte.Screen) -> str:
    """The screen as SVG texts, a line each."""
    lines = []
    for row in range(ROWS):
        cells = [screen.buffer[row][column] for column in range(COLUMNS)]
        parts, column = [], 0
        for (colour, bold), run in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
            text = "".join(cell.data for cell in run)
            if text.strip():
                weight = ' font-weight="bold"' if bold else ""
                shade = COLOURS.get(colour, f"#{colour}" if re.fullmatch("[0-9a-f]{6}", colour) else COLOURS["default"])
                parts.append(
                    f'<tspan x="{12 + column * 8.4:.1f}" fill="{shade}"{weight}>{escape(text.rstrip())}</tspan>'
                )
            column += len(text)
        if parts:
            lines.append(f'<text y="{52 + row * 18}">{"".join(parts)}</text>')
    return "".join(lines)


def svg(frames: list[tuple[float, str]]) -> str:
    """The recording: a group for each screen, which a style rule shows for as long as it stood."""
    whole = frames[-1][0] + 6
    width, height = 24 + COLUMNS * 8.4, 60 + ROWS * 18
    rules, groups = [], []
    for number, (begin, drawn) in enumerate(frames):
        end = frames[number + 1][0] if number + 1 < len(frames) else whole
        start, stop = 100 * begin / whole, 100 * end / whole
        rules.append(
            f"@keyframes f{number}{{0%,{max(start - 0.001, 0):.3f}%{{visibility:hidden}}"
            f"{start:.3f}%,{stop - 0.001:.3f}%{{visibility:visible}}{stop:.3f}%,100%{{visibility:hidden}}}}"
        )
        groups.append(f'<g style="animation:f{number} {whole:.1f}s step-end infinite">{drawn}</g>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" aria-label="{LABEL}">'
    )
    return "\n".join([head, "<style>", STYLE, *rules, "</style>", FRAME, *groups, "</svg>", ""])


def thinned(frames: list[tuple[float, str]], least: float = 0.25) -> list[tuple[float, str]]:
    """Without screens that stood for less than `least` seconds."""
    following = [*frames[1:], (frames[-1][0] + 1, "")]
    return [frame for frame, after in zip(frames, following, strict=True) if after[0] - frame[0] >= least]


def main() -> None:
    recording = Recording()
    with tempfile.TemporaryDirectory(prefix="windlass-session-") as name:
        folder = Path(name, "project")
        folder.mkdir()
        (folder / "release.yaml").write_text(PLAN)
        bin = ROOT / ".venv" / "bin"
        env = {"PATH": f"{bin}:/usr/bin:/bin", "HOME": name, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": "$ "}
        for command, answer_after in TYPED:
            record(recording, command, answer_after, env, folder)
    TARGET.write_text(svg(thinned(recording.frames)), encoding="utf-8")
    sys.stdout.write(
        f"{TARGET}: {len(recording.frames)} screens, {recording.now:.0f} s, {TARGET.stat().st_size // 1024} KiB\n"
    )


if __name__ == "__main__":
    main()
