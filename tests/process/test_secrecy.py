"""What a step can read of the engine's environment: nothing that it was not given (I6)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

CANARY = "canary-4711"
CLIMB = """
import os
pid, seen = os.getpid(), []
while pid > 1:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = b"canary-4711" in file.read()
    except OSError as error:
        found = error.strerror
    seen.append(str(found))
    with open(f"/proc/{pid}/stat") as file:
        pid = int(file.read().rpartition(")")[2].split()[1])
print(*seen, sep=", ")
"""
"""Says for itself and each of its ancestors whether the canary is in its environment, or why that cannot be read."""
PLAN = """
steps:
  - id: plain
    run: [python3, climb.py]
  - id: apart
    tool: shell
    with: {argv: [python3, climb.py], isolate: network}
    needs: plain
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@linux
def test_i6_no_step_finds_a_secret_in_the_environment_of_its_ancestors(project: Project, windlass: Windlass) -> None:
    project.file("climb.py", CLIMB)
    ran = windlass("run", project.plan(PLAN), "--json", SERVICE_TOKEN=CANARY, PASSPHRASE=CANARY)
    steps = {step["id"]: step["output"]["stdout"] for step in ran.json["steps"]}
    for step in ("plain", "apart"):
        assert steps[step].count(",") >= 3, "itself, its keeper, the warden, the engine"
        assert "True" not in steps[step]


@linux
def test_i6_the_engine_itself_keeps_its_environment(project: Project) -> None:
    """getenv(3), os.environ and processes that are given it on purpose still have it."""
    code = (
        "import ctypes, os, subprocess, sys\n"
        "from windlass.process.secrecy import hide_environment\n"
        "os.environ['CHANGED'] = 'new'\n"
        "hide_environment(['HOME'])\n"
        "libc = ctypes.CDLL(None); libc.getenv.restype = ctypes.c_char_p\n"
        "print(libc.getenv(b'SERVICE_TOKEN').decode(), os.environ['SERVICE_TOKEN'])\n"
        "print(subprocess.run(['printenv', 'SERVICE_TOKEN', 'CHANGED'], capture_output=True, text=True).stdout)\n"
        "libc.prctl(4, 1, 0, 0, 0)\n"
        "print(open('/proc/self/environ').read().count('canary'), 'HOME=' + os.environ['HOME'] in "
        "open('/proc/self/environ').read())"
    )
    env = {**project.env, "SERVICE_TOKEN": CANARY, "CHANGED": "canary, too"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [CANARY, CANARY, CANARY, "new", "0", "True"]


@linux
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root becomes another user")
def test_i6_a_user_who_is_not_root_cannot_look_into_the_engine_at_all(project: Project) -> None:
    for path in (project.path, project.user):
        os.chown(path, 65534, 65534)
    project.plan("steps: [{id: plain, run: [python3, climb.py]}]")
    project.file("climb.py", CLIMB)
    for path in project.path.parents:
        if path.stat().st_mode & 0o077 == 0:
            path.chmod(0o711)  # pytest's folders are root's alone
    # The interpreter may be in root's own folder: reading is allowed, tracing is not.
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    kept = "-all,+dac_read_search"
    become += [f"--inh-caps={kept}", f"--bounding-set={kept}", "--ambient-caps=+dac_read_search"]
    program = Path(sys.executable).with_name("windlass")
    done = subprocess.run(
        [*become, str(program), "run", "plan.yaml", "--progress", "quiet"],
        env={**project.env, "SERVICE_TOKEN": CANARY},
        cwd=project.path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = done.stdout.strip().removeprefix("plain: ").split(", ")
    assert seen[:4] == ["False", "Permission denied", "Permission denied", "Permission denied"]
    assert "True" not in seen
