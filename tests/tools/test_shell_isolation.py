"""Isolation of a shell step (C8): where it can write, whether it has a network, and an honest no otherwise."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Plan, Step
from windlass.process import Exit, Isolation, Supervisor, isolated, layers
from windlass.process.confine import CANNOT, EX_CANNOT
from windlass.process.isolation import LAUNCHER, refusal

if TYPE_CHECKING:
    from conftest import Project

ACTIVE = {layer.name for layer in layers() if layer.active}
files = pytest.mark.skipif("Landlock" not in ACTIVE, reason="this kernel has no Landlock")
network = pytest.mark.skipif("network namespace" not in ACTIVE, reason="no network namespace may be made here")


async def run(run: str | list[str], **more: Any) -> dict[str, Any]:
    """The one step of a plan with this command, as it ended."""
    step = Step(id="a", run=run, with_=more, retry={"max": 0})
    async with windlass.open(grace=0.2) as engine:
        return (await (await engine.start(Plan(steps=[step]), anyway=True)).result())["steps"][0]


@files
async def test_c8_an_isolated_step_changes_nothing_outside_its_folder(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    attempts = [
        f"echo changed > {outside}/kept",
        f"echo more >> {outside}/kept",
        f"truncate -s 0 {outside}/kept",
        f"rm {outside}/kept",
        f"mv {outside}/kept inside",
        f"ln {outside}/kept linked; echo changed > linked",
        f"ln -s {outside}/kept way; echo changed > way",
        f"mkdir {outside}/new",
        f"setsid sh -c 'echo changed > {outside}/kept'",
    ]
    for attempt in attempts:
        await run(f"({attempt}) || true", isolate="files")
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"kept": "kept"}, attempt


@files
async def test_c8_an_isolated_step_reads_all_and_works_in_its_folder(project: Project) -> None:
    line = "mkdir -p d && echo hi > d/a && mv d/a b && cat b && wc -c < /etc/passwd > /dev/null && echo $TMPDIR"
    step = await run(line + ' && f=$(mktemp) && echo x > "$f" && ls "$TMPDIR" | wc -l', isolate="files")
    assert step["error"] is None
    said, temporary, count = step["output"]["stdout"].splitlines()
    assert (said, count.strip()) == ("hi", "1")
    assert not Path(temporary).exists()
    assert (project.path / "b").read_text() == "hi\n"


@network
async def test_c8_a_step_without_a_network_reaches_no_server_not_even_ours(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        reached = await run([sys.executable, "-c", code])
        apart = await run([sys.executable, "-c", code], isolate="network")
    assert (reached["status"], apart["status"]) == ("completed", "failed")
    assert "ConnectionRefusedError" in apart["error"]["message"]


@network
@pytest.mark.skipif(shutil.which("nsenter") is None, reason="nsenter is not installed")
async def test_c8_a_step_cannot_go_back_into_the_network_even_as_root(project: Project) -> None:
    assert (await run(["nsenter", "-t", str(os.getpid()), "-n", "true"], isolate="network"))["status"] == "failed"


@network
async def test_c8_a_step_without_a_network_has_its_own_loopback(project: Project) -> None:
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname(), 5);"
        "print(sorted(name for _, name in socket.if_nameindex()))"
    )
    step = await run([sys.executable, "-c", code], isolate="network")
    assert "lo" in step["output"]["stdout"]
    assert "eth0" not in step["output"]["stdout"]


@files
@network
async def test_c8_isolation_and_limits_hold_together(project: Project, tmp_path: Path) -> None:
    fill = [sys.executable, "-I", "-S", "-c", "x = b'x' * (1 << 34)"]
    step = await run(fill, isolate="all", limits={"memory": "64mb"})
    assert (step["error"]["category"], "64 MB" in step["error"]["message"]) == ("resource", True)


@network
async def test_c8_a_program_that_is_not_there_is_told_in_isolation_too(project: Project) -> None:
    step = await run(["no-such-program-anywhere"], isolate="network")
    assert step["error"]["category"] == "configuration"
    assert "no-such-program-anywhere" in step["error"]["message"]


async def test_c8_isolation_that_cannot_be_had_is_refused_before_the_command_runs(tmp_path: Path) -> None:
    """Here: a folder that the launcher cannot open, as it would be with a kernel that says no."""
    mark = tmp_path / "ran"
    async with isolated(["touch", str(mark)], {"PATH": "/usr/bin:/bin"}, "files", "/no/such/folder") as (argv, env):
        async with Supervisor() as supervisor:
            process = await supervisor.spawn(argv, cwd=str(tmp_path), env=env)
            ended = await process.wait()
            said = (await process.stderr.read()).decode()
    assert not mark.exists()
    assert refusal(ended.code, said)


async def test_c8_a_step_whose_isolation_cannot_be_had_fails_as_a_matter_of_configuration(project: Project) -> None:
    """The launcher's words, said by a command: so it would be on a kernel without Landlock."""
    step = await run(f"echo '{CANNOT}it needs Landlock' >&2; exit {EX_CANNOT}", isolate="network")
    assert step["error"]["category"] == "configuration"
    assert "isolate: network" in step["error"]["message"]
    assert any("doctor" in advice for advice in step["error"]["advice"])


# --- by bubblewrap, where the kernel does not do it for us ----------------------------------------

BUBBLEWRAP = next(layer for layer in layers() if layer.name == "bubblewrap").detail
wrapping = pytest.mark.skipif("fails" in BUBBLEWRAP or "not installed" in BUBBLEWRAP, reason=f"bwrap: {BUBBLEWRAP}")


async def run_wrapped(
    argv: list[str], isolation: Isolation, folder: Path, launcher: Path | None = None
) -> tuple[Exit, str, str]:
    """How it ended, and what it said, under bubblewrap even where the kernel could; or as another launcher decides."""
    env = {"PATH": os.environ["PATH"]}
    forced = launcher is None
    async with isolated(argv, env, isolation, str(folder), wrapped=forced) as (line, variables), Supervisor() as own:
        line = [str(launcher or LAUNCHER) if part == str(LAUNCHER) else part for part in line]
        process = await own.spawn(line, cwd=str(folder), env=variables)
        ended = await process.wait()
        return ended, (await process.stdout.read()).decode(), (await process.stderr.read()).decode()


@wrapping
async def test_c8_bubblewrap_lets_a_command_write_in_its_folder_and_its_tmpdir_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (inside / "way").symlink_to(outside / "kept")
    script = f"""
        for attempt in 'echo changed > {outside}/kept' 'rm {outside}/kept' 'mkdir {outside}/new' 'echo changed > way' \
            'mount -o remount,rw,bind {tmp_path}; echo changed > {outside}/kept' 'echo x > /dev/shm/windlass-test'
        do sh -c "$attempt" && echo "$attempt"
        done 2> /dev/null
        cat {outside}/kept; echo new > made; f=$(mktemp) && echo x > "$f" && echo " $TMPDIR"; echo void > /dev/null
    """
    ended, said, _ = await run_wrapped(["sh", "-c", script], "files", inside)
    assert ended.code == 0
    kept, temporary = said.split()
    assert kept == "kept"
    assert not Path(temporary).exists()
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"kept": "kept"}
    assert (inside / "made").read_text() == "new\n"


@wrapping
@pytest.mark.parametrize("isolation", ["network", "all"])
async def test_c8_bubblewrap_keeps_a_command_from_the_network(tmp_path: Path, isolation: Isolation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        ended, _, complaint = await run_wrapped([sys.executable, "-c", code], isolation, tmp_path)
    assert (ended.code, "ConnectionRefusedError" in complaint) == (1, True)


@wrapping
async def test_c8_bubblewrap_leaves_endings_as_they_are(tmp_path: Path) -> None:
    assert (await run_wrapped(["sh", "-c", "exit 7"], "all", tmp_path))[0].code == 7
    ended, _, complaint = await run_wrapped(["no-such-program-anywhere"], "files", tmp_path)
    assert (ended.code, "no-such-program-anywhere" in complaint) == (127, True)


@wrapping
async def test_c8_bubblewrap_stands_in_for_a_landlock_that_is_too_old(tmp_path: Path) -> None:
    """Here: the launcher, with need of a version that no kernel has."""
    demanding = tmp_path / "confine.py"
    demanding.write_text(LAUNCHER.read_text().replace("NEEDED = 3", "NEEDED = 1000"))
    folder = tmp_path / "folder"
    folder.mkdir()
    script = "touch inside; touch ../outside 2> /dev/null || echo refused"
    ended, said, complaint = await run_wrapped(["sh", "-c", script], "all", folder, demanding)
    assert (ended.code, said, complaint) == (0, "refused\n", "")
    assert [path.name for path in folder.iterdir()] == ["inside"]


@wrapping
async def test_c8_bubblewrap_that_cannot_do_it_is_an_honest_no(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    async with isolated(["touch", "ran"], env, "files", "/no/such/folder", wrapped=True) as (argv, variables):
        async with Supervisor() as supervisor:
            process = await supervisor.spawn(argv, cwd=str(tmp_path), env=variables)
            ended = await process.wait()
            said = (await process.stderr.read()).decode()
    assert "/no/such/folder" in (refusal(ended.code, said) or "")
    assert not (tmp_path / "ran").exists()


# --- what there is --------------------------------------------------------------------------------


def test_c8_every_layer_is_named_whether_it_is_there_or_not() -> None:
    names = [layer.name for layer in layers()]
    kernel = ["cgroups", "processors", "resource limits", "Landlock", "network namespace"]
    assert names == ["process tree", "limits", *kernel, "bubblewrap"]
    assert all(layer.detail for layer in layers())
