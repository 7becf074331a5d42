"""Restate, one server on loopback: `python bench_restate.py --scenario sequential --dir DIR`.

The module is also the service that the server calls: Hypercorn, which Restate's guide names, imports `app`.
One process of it was as fast as two, and as fast with uvloop. Steps are coroutines, because Restate hands
plain functions to a thread, which took up to 1.6 times as long. The 50 at once are threads that hold one
request open each: they cost next to nothing, the work is the server's and the service's.

Linux only: the server asks GitHub for its newest release at every start, and has no setting against it.
"""

import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script: our package is not found

import restate  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.measure import Measurement, Scenario, expect, main, timed

Process = subprocess.Popen[bytes]

READY_WITHIN = 60.0
ANSWER_WITHIN = 300.0


async def add(total: int) -> int:
    return total + 1


async def sum_up(context: restate.Context, steps: int) -> int:
    total = 0
    for _ in range(steps):
        total = await context.run_typed("add", add, total=total)
    return total


service = restate.Service("Benchmark")
service.handler()(sum_up)
app = restate.app([service])


def leave_the_network() -> None:
    """Move this process and its children to a network that has loopback and nothing else.

    No setting keeps the server from asking GitHub, so the kernel does. Where it refuses, nothing is measured:
    a benchmark must not call out from a user's machine unasked.
    """
    new_user, new_network = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET
    flags = new_network if os.geteuid() == 0 else new_user | new_network
    try:
        if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        with socket.socket() as any_socket:
            up_and_running = struct.pack("16sh22x", b"lo", 0x1 | 0x40)  # struct ifreq: IFF_UP | IFF_RUNNING
            fcntl.ioctl(any_socket, 0x8914, up_and_running)  # SIOCSIFFLAGS
    except (OSError, AttributeError) as error:
        raise SystemExit(f"restate-server cannot be kept off the network here: {error}") from None


def find_server() -> tuple[Path, str]:
    """The binary that environment.py put beside this Python, and its version."""
    for package in Path(sys.prefix).glob("node_modules/@restatedev/restate-server-*"):
        about = json.loads((package / "package.json").read_text())
        return package / "bin" / "restate-server", about["version"]
    raise SystemExit(f"no restate-server in {sys.prefix}: run environment.py on it with npm on the path")


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:  # all held until all are chosen, or the system may give one twice
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def running(command: list[str], environment: dict[str, str], cwd: Path, log: Path) -> Iterator[Process]:
    """A server for the length of the block; afterwards that process, and no other, is stopped."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=cwd, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # no proxy between us and loopback


def ask(port: int, path: str, body: object = None) -> Any:
    """The JSON answer to a GET, or to a POST when there is a body."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", "accept": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    with _open(request, timeout=ANSWER_WITHIN) as answer:
        return json.loads(answer.read() or b"null")


def ask_until_ready(process: Process, log: Path, port: int, path: str, body: object = None) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while True:
        try:
            ask(port, path, body)
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                reason = f"not ready at {path}: {error}; {log.name} ends: {log.read_text()[-500:]}"
                raise SystemExit(reason) from error
            time.sleep(0.05)


def measure(scenario: Scenario, folder: Path) -> Measurement:
    binary, _ = find_server()
    leave_the_network()
    node, ingress, admin, endpoint = free_ports(4)
    plain = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LANG": "C.UTF-8"}
    settings = {
        "RESTATE_BASE_DIR": str(folder / "data"),
        "RESTATE_NODE_NAME": "benchmark",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_ADMIN__DISABLE_WEB_UI": "true",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
        # The default, said aloud: the log that acknowledges a step is fsynced before it does.
        "RESTATE_LOG_SERVER__ROCKSDB_DISABLE_WAL_FSYNC": "false",
    }
    hypercorn = [sys.executable, "-m", "hypercorn", f"{Path(__file__).stem}:app", "--workers", "1"]
    here = Path(__file__).resolve().parent
    server_log, service_log = folder / "restate-server.log", folder / "service.log"

    with (
        running([*hypercorn, "--bind", f"127.0.0.1:{endpoint}"], plain, here, service_log) as serving,
        running([str(binary)], plain | settings, folder, server_log) as server,
    ):
        ask_until_ready(serving, service_log, endpoint, "/health")
        ask_until_ready(server, server_log, admin, "/health")
        ask_until_ready(server, server_log, ingress, "/restate/health")
        ask_until_ready(server, server_log, admin, "/deployments", {"uri": f"http://127.0.0.1:{endpoint}"})

        seconds = timed(lambda _, steps: int(ask(ingress, "/Benchmark/sum_up", steps)), scenario)

        query = "SELECT count(*) AS steps FROM sys_journal WHERE entry_type = 'Notification: Run'"
        recorded = ask(admin, "/query", {"query": query})["rows"][0]["steps"]
        expect("steps recorded in all rounds", recorded, scenario.steps_of_all_rounds)

        dumped = subprocess.check_output([binary, "--dump-config"], env=plain | settings, text=True)
        fsync = re.findall(r"^rocksdb-disable-wal-fsync = (\w+)$", dumped, re.MULTILINE)
        expect("rocksdb-disable-wal-fsync of every log", set(fsync), {"false"})
    return Measurement(seconds, "one node, replicated loglet with replication 1, rocksdb-disable-wal-fsync=false")


if __name__ == "__main__":
    main("restate", f"server {find_server()[1]}, sdk {version('restate-sdk')}", measure)
