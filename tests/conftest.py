"""What the tests of the engine and of the command line share.

`project` is a folder of its own with a user of its own around it: nothing of the machine's settings or trust is
seen, and nothing is left behind. `windlass` runs the real command line in a process of its own, in the foreground,
in the background, or in a terminal. `until` and `eventually` wait for something to become true: no test sleeps.
"""

from __future__ import annotations

import gc
import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import termios
import textwrap
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import pytest
from forks import PROGRAM, Forked, Zygote, shared_zygote
from hypothesis import HealthCheck, settings
from once import session_folder
from ports import KeptPort
from rewritten import rewrite_part
from waiting import PATIENCE, wait_until, wait_until_async

from windlass.core.breaker import LONGEST_REST
from windlass.core.events import Event, decode
from windlass.core.state import State, fold
from windlass.homes import HOME_FILE, mark_home_as_ours
from windlass.testing import Reply, ScriptedModel

if TYPE_CHECKING:
    from postgres_server import PostgresServer

# A suite that is started in the background, as CI may do it, ignores Ctrl-C, and so would every process it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How many examples a property is tried with: a few in every run, many in `make soak`. None has to be found quickly.
# The few are the same in every run, so that a change is judged by what it changes; `make soak` looks for new ones.
for profile, examples in {"few": 40, "soak": 2000}.items():
    settings.register_profile(
        profile,
        max_examples=examples,
        derandomize=profile == "few",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("few")


@pytest.fixture(scope="session", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One cache for all tests, and for all workers of a session: the compiled QuickJS is made once."""
    shared = session_folder(tmp_path_factory)
    (shared / "cache").mkdir(mode=0o700, exist_ok=True)
    (shared / "cache" / "windlass").mkdir(mode=0o700, exist_ok=True)  # where it exists, `doctor` keeps what it compiles
    os.environ["XDG_CACHE_HOME"] = str(shared / "cache")


@pytest.fixture(scope="session", autouse=True)
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One authority to trust in place of a hundred and forty: reading those takes each client 50 ms of computing."""
    pem, end = Path(certifi.where()).read_text(), "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(pem.partition(end)[0] + end)
    os.environ["SSL_CERT_FILE"] = str(file)
    for name in ("SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL, started by the first test that needs it."""
    from postgres_server import PostgresServer  # few tests need it, and it takes a moment to import

    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a database of its own."""
    with postgres_server.database() as address:
        yield address


@pytest.fixture(scope="session", autouse=True)
def own_user_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads or writes the developer's settings, trust or key."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_until


@pytest.fixture
def eventually() -> Callable[..., Awaitable[Any]]:
    return wait_until_async


Served = Callable[..., tuple[ScriptedModel, dict[str, str]]]


@pytest.fixture
def served() -> Iterator[Served]:
    """A model that says these words, and what points the program at it."""
    with ExitStack() as stack:

        def serve(*script: Reply) -> tuple[ScriptedModel, dict[str, str]]:
            model = stack.enter_context(ScriptedModel(script))
            return model, {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none"}

        yield serve


@pytest.fixture
def port() -> Iterator[int]:
    """A port for a server that is started more than once at it, or not at all."""
    kept = KeptPort()
    yield kept.number
    kept.close()


@pytest.fixture
def long_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A breaker that opens in this process stays open while other processes look at it, however long that takes."""
    for name in ("FIRST_REST", "LONGEST_API_REST"):
        monkeypatch.setattr(f"windlass.core.breaker.{name}", LONGEST_REST)


class Project:
    """A project's folder, and what its `.windlass` holds."""

    def __init__(self, base: Path) -> None:
        self.path = base / "project"
        self.user = base / "user"
        self.home = self.path / ".windlass"
        self.path.mkdir()
        self.user.mkdir()
        self.env = {
            "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}",
            "HOME": str(self.user),
            "XDG_CONFIG_HOME": str(self.user / ".config"),
            "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
            "LANG": "C.UTF-8",
            "SSL_CERT_FILE": os.environ["SSL_CERT_FILE"],
        }

    def file(self, name: str, text: str) -> Path:
        """Write a file of the project; the text may be indented as a whole. One in the home is its user's own."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        if path.parent == self.home and not (self.home / HOME_FILE).exists():
            mark_home_as_ours(self.home, self.env)
        return path

    def plan(self, text: str, name: str = "plan.yaml") -> str:
        self.file(name, text)
        return name

    def user_file(self, name: str, text: str) -> Path:
        path = self.user / ".config" / "windlass" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def lines(self, name: str) -> list[str]:
        """What steps have written into a file so far, a line each; empty while there is none."""
        path = self.path / name
        return path.read_text().splitlines() if path.exists() else []

    def ids(self) -> list[str]:
        """The executions of the home, oldest first, read past the engine."""
        return [row[0] for row in self._rows("SELECT id FROM executions ORDER BY id")]

    def drivers(self) -> list[str]:
        """Who has or had each execution, read past the engine."""
        return [row[0] for row in self._rows("SELECT driver FROM executions")]

    def events(self, execution: str) -> list[Event]:
        """An execution's journal, read past the engine."""
        sql = (
            "SELECT events.body FROM events JOIN executions ON executions.key = events.execution "
            "WHERE executions.id = ? ORDER BY events.seq"
        )
        return [decode(row[0]) for row in self._rows(sql, execution)]

    def state(self, execution: str) -> State:
        return fold(self.events(execution))

    def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        if not (self.home / "windlass.db").exists():
            return []
        db = sqlite3.connect(self.home / "windlass.db", timeout=30)
        try:
            if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                return []  # it is being made
            return db.execute(sql, parameters).fetchall()
        finally:
            db.close()

    def everything(self) -> bytes:
        """Every byte beneath the home."""
        return b"".join(path.read_bytes() for path in sorted(self.home.rglob("*")) if path.is_file())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path)
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, made.env[name])
    monkeypatch.chdir(made.path)
    return made


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What stdout holds, if that is one JSON document and nothing else."""
        return json.loads(self.out)

    def command(self, word: str) -> str:
        """The one command with that word in it that was printed as what to type next."""
        (line,) = re.findall(rf"^\s*(?:next: )?(windlass .*{word}\b.*)$", self.out + self.err, re.MULTILINE)
        return str(line)

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Background:
    """A command that goes on while the test does other things."""

    def __init__(self, process: Forked, output: Path) -> None:
        self.process = process
        self._out, self._err = output.with_suffix(".out"), output.with_suffix(".err")

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> Ran:
        code = self.process.wait(PATIENCE)
        return Ran(code, self.out, self.err)


_ECHO = termios.ECHO | termios.ICANON
MEASURED = "COVERAGE_PROCESS_CONFIG" in os.environ
"""`make coverage` runs the tests."""
ENDS_WITHIN = 20.0


class Terminal:
    """A command on a terminal of its own. What it writes to stdout goes to a file, so that it can be told apart."""

    def __init__(self, zygote: Zygote, argv: list[str], env: dict[str, str], cwd: Path, output: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._out = output.with_suffix(".out")
        self._shown = b""
        tty = Path(os.ttyname(theirs))
        told = {**env, "TERM": "xterm"}
        self.process = zygote.start(argv[1:], told, cwd, output, stdin=tty, stderr=tty, session=True)
        os.close(theirs)

    @property
    def shown(self) -> str:
        """All that the terminal has shown so far."""
        with suppress(OSError):  # EIO: nobody has the other end any more
            while select.select([self._ours], [], [], 0)[0] and (piece := os.read(self._ours, 65536)):
                self._shown += piece
        return self._shown.decode(errors="replace")

    def expect(self, text: str) -> None:
        def there() -> bool:
            ended = self.process.poll() is not None  # asked first: its last words come before its end
            shown = self.shown
            assert text in shown or not ended, f"it ended without {text!r}:\n{shown}"
            return text in shown

        wait_until(there, f"the terminal shows {text!r}")

    def expect_again(self, text: str, after: str) -> None:
        """Wait until a text is shown after another one: what is typed before a question is forgotten."""
        wait_until(lambda: text in self.shown.partition(after)[2], f"the terminal shows {text!r} after {after!r}")

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    @property
    def echoes(self) -> bool:
        """It echoes what is typed and collects it in lines, as a shell expects of it."""
        return termios.tcgetattr(self._ours)[3] & _ECHO == _ECHO

    def reset(self) -> None:
        """Give it the settings of a shell."""
        settings = termios.tcgetattr(self._ours)
        settings[3] |= _ECHO
        termios.tcsetattr(self._ours, termios.TCSANOW, settings)

    def ended(self) -> Ran:
        code = wait_until(lambda: None if self.process.poll() is None else (self.process.returncode, self.shown))
        return Ran(code[0], self._out.read_text(), self.shown)

    def close(self) -> None:
        os.close(self._ours)


class Windlass:
    """The command line, run for real."""

    def __init__(self, project: Project, logs: Path, zygote: Zygote) -> None:
        self._project = project
        self._logs = logs
        self._zygote = zygote
        self._count = 0
        self._started: list[Background | Terminal] = []

    def __call__(
        self, *arguments: str | Path, code: int = 0, cwd: Path | None = None, stdin: str | bytes = "", **env: str
    ) -> Ran:
        """Run to the end, and expect that exit code. No error may ever show its innards."""
        argv, told, folder, output = self._how(arguments, env)
        words = output.with_suffix(".in")
        words.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        started: Forked | subprocess.Popen[bytes]
        if any(name.startswith("PYTHON") for name in env):  # only a new interpreter reads these
            with words.open("rb") as given, output.with_suffix(".out").open("wb") as out:
                with output.with_suffix(".err").open("wb") as err:
                    started = subprocess.Popen(argv, env=told, cwd=cwd or folder, stdin=given, stdout=out, stderr=err)
        else:
            started = self._zygote.start(argv[1:], told, cwd or folder, output, stdin=words)
        try:
            code_given = started.wait(PATIENCE)
        finally:
            started.kill()
        ran = Ran(code_given, *(output.with_suffix(name).read_bytes().decode() for name in (".out", ".err")))
        assert "Traceback" not in ran.err, str(ran)
        assert ran.code == code, f"{' '.join(map(str, arguments))}: {ran}"
        return ran

    def shell(self, line: str, code: int = 0) -> Ran:
        """A line exactly as it was printed, typed at a shell in the project's folder."""
        env = self._project.env
        done = subprocess.run(
            ["sh", "-c", line],
            env={**env, "PATH": f"{self._zygote.folder}:{env['PATH']}"},
            cwd=self._project.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert ran.code == code, f"{line}: {ran}"
        return ran

    def background(self, *arguments: str | Path, **env: str) -> Background:
        argv, told, folder, output = self._how(arguments, env)
        return self._keep(Background(self._zygote.start(argv[1:], told, folder, output, session=True), output))

    def terminal(self, *arguments: str | Path, **env: str) -> Terminal:
        return self._keep(Terminal(self._zygote, *self._how(arguments, env)))

    def detached(self, *arguments: str | Path, **env: str) -> str:
        """`run --detach`, which ends when its driver has begun. Gives the id."""
        execution = self("run", "--detach", *arguments, **env).out.strip()
        assert self._project.state(execution).driver
        return execution

    def pid_of(self, execution: str) -> int:
        """The process that drives an execution, as its journal names it."""
        return int(self._project.state(execution).driver.partition("-")[0])

    def kill(self, execution: str) -> None:
        """kill -9 to the process that drives an execution, and wait for its end."""
        pid = self.pid_of(execution)
        handle = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            assert select.select([handle], [], [], PATIENCE)[0]
        finally:
            os.close(handle)

    def _how(self, arguments: tuple[str | Path, ...], env: dict[str, str]) -> Any:
        self._count += 1
        argv = [PROGRAM, *map(str, arguments)]
        return argv, {**self._project.env, **env}, self._project.path, self._logs / f"command-{self._count}"

    def _keep(self, started: Any) -> Any:
        self._started.append(started)
        return started

    def clean_up(self) -> None:
        """Leave no process behind, however the test ended."""
        pids = []
        with suppress(sqlite3.Error):  # a journal that a test has broken names no drivers
            for driver in self._project.drivers():
                with suppress(ValueError):  # nobody drove it
                    pids.append(int(driver.partition("-")[0]))
        mine = os.fsencode(self._project.path.parent)
        for pid in pids:
            with suppress(OSError):
                if mine in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        for started in self._started:
            if started.process.poll() is None:
                if MEASURED:  # a killed process leaves no figures
                    started.process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        started.process.wait(ENDS_WITHIN)
                started.process.kill()
                started.process.wait()
            if isinstance(started, Terminal):
                started.close()
        self._zygote.end_drivers(self._project.path.parent)


@pytest.fixture(scope="session")
def zygote() -> Zygote:
    return shared_zygote()


FIRST = ("bench", "temporal_server", "browser", "warm_web")
"""Fixtures with a program that takes seconds to start, and computing while it is idle: OpenCode, Temporal, browsers."""
ADDRESS = re.compile(r" at 0x[0-9a-f]{6}")


def pytest_configure(config: pytest.Config) -> None:
    rewrite_part(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have the garbage collector never look at the tests themselves: they are most of what is in memory."""
    gc.disable()
    collected = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return collected


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave repetitions to `make soak`, and begin with what shares a large program: then one worker has them all."""
    names = [getattr(item, "fixturenames", ()) for item in items]
    order = [next((place for place, name in enumerate(FIRST) if name in used), len(FIRST)) for used in names]
    items[:] = [item for _, item in sorted(zip(order, items, strict=True), key=lambda pair: pair[0])]
    lines = Path(__file__).with_name("repetitions.txt").read_text().splitlines()
    repetitions = tuple(f"tests/{line}" for line in lines if line and not line.startswith("#"))
    for item in items:
        if ADDRESS.search(item.nodeid):
            raise pytest.UsageError(
                f"{item.nodeid}: the name of a test holds an object's address, which each worker sees another of; "
                "give the object a __repr__ or the test ids"
            )
        if item.nodeid.startswith(repetitions):
            item.add_marker(pytest.mark.soak)


def pytest_sessionfinish() -> None:
    if shared_zygote.cache_info().currsize:
        shared_zygote().close()


@pytest.fixture
def windlass(project: Project, tmp_path: Path, zygote: Zygote) -> Iterator[Windlass]:
    runner = Windlass(project, tmp_path, zygote)
    yield runner
    runner.clean_up()
