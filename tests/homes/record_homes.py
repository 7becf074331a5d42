"""Records a home as this release leaves it: executions that ended well, failed, wait for an answer, and were killed.

    python tests/homes/record_homes.py v1-NAME

writes `stored/v1-NAME.tar.gz`, the home byte for byte. What is there already is never written again: these files are
how we know that a newer Windlass goes on with what an older one left. Run it once for every release that changes what
is in a home. With the `src` of an older release in PYTHONPATH, it records that one's.
"""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

STORED = Path(__file__).parent / "stored"
PLANS = {
    "done": "name: done\nsteps:\n  - {id: a, run: echo one}\n  - {id: b, needs: [a], run: echo two}\n",
    "failed": "name: failed\nsteps:\n  - {id: a, run: exit 3}\n  - {id: b, needs: [a], run: echo never}\n",
    "asks": (
        "name: asks\nsteps:\n  - {id: build, run: echo built}\n"
        "  - {id: push, needs: [build], run: echo pushed >> effects, approve: always}\n"
        "  - {id: tell, needs: [push], run: echo told >> effects}\n"
    ),
    "killed": (
        "name: killed\nsteps:\n  - {id: before, run: echo before >> effects}\n"
        "  - id: slow\n    needs: [before]\n"
        "    run: echo begun > started; until [ -e go ]; do sleep 0.05; done; echo slow >> effects\n"
        "  - {id: after, needs: [slow], run: echo after >> effects}\n"
    ),
}
CODES = {"done": 0, "failed": 1, "asks": 3}
WINDLASS = [sys.executable, "-c", "from windlass.cli.entry import main; main()"]


def record(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="windlass-home-") as name:
        project = Path(name, "project")
        project.mkdir()
        # A question that has expired whenever the home is tried.
        env = {**os.environ, "HOME": name, "NO_COLOR": "1", "WINDLASS_APPROVAL_EXPIRY": "1s"}
        for plan, text in PLANS.items():
            (project / f"{plan}.yaml").write_text(text)
        for plan, code in CODES.items():
            ran = subprocess.run([*WINDLASS, "run", f"{plan}.yaml"], cwd=project, env=env, stdin=subprocess.DEVNULL)
            if ran.returncode != code:
                raise SystemExit(f"{plan} ended with {ran.returncode}, not {code}")
        os.mkfifo(project / "started")
        running = subprocess.Popen([*WINDLASS, "run", "killed.yaml"], cwd=project, env=env, stdin=subprocess.DEVNULL)
        (project / "started").read_text()  # a pipe: until the step has written to it
        running.send_signal(signal.SIGKILL)
        running.wait()
        with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(project / ".windlass", ".windlass", filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Of no particular user; locks and sockets are left out."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member if member.isfile() or member.isdir() else None


if __name__ == "__main__":
    target = STORED / f"{sys.argv[1]}.tar.gz"
    if target.exists():
        sys.exit(f"{target} is there, and stays as it is")
    record(target)
