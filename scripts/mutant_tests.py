"""The tests of `make mutants`: which of them pass which lines, and whether one notices a mutant.

All tests are collected once, and each run of some is a fork of that process. The tests that pass a mutant's line are
tried one after another until one fails or their time is over: first those that noticed another one of the module, then
those of its name, then those of its package, the quickest first, and one of each test function before a second one.
The slow ones come last.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from signal import ITIMER_PROF, ITIMER_REAL, SIGALRM, SIGPROF
from types import FunctionType
from typing import Any, NoReturn

import coverage
import pytest
from mutations import SOURCE, Mutant, functions_of, import_changed, mutants_of, replace_code

__all__ = ["Runner", "Verdict"]

ROOT = SOURCE.parent.parent
KEPT = ROOT / ".mutants"
"""What the last runs found out about the tests whose files, and whose subject, are still the same."""
FAILED = 1
OPTIONS = [
    *(f"-pno:{name}" for name in ("cacheprovider", "xdist", "terminal")),
    "--timeout=0",
    "-oaddopts=-p no:schemathesis -m 'not soak'",
]

Verdict = str
"""`killed by TEST`, or `survived`, or that no test passes the line."""


@dataclass
class Passed:
    """What one file of tests was seen to pass: for each test, its seconds, and the lines of each module."""

    key: str
    tests: dict[str, tuple[float, dict[str, frozenset[int]]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


class Runner:
    """A plugin of pytest, which takes the place of its loop over the tests."""

    def __init__(self, modules: Sequence[Path], tests: Sequence[str], seconds: float, jobs: int) -> None:
        self._modules = modules
        self._tests, self._seconds, self._jobs = tests, seconds, jobs
        memory = "/dev/shm"  # without a disk, tests that write take a fraction of the time
        self._folder = Path(tempfile.mkdtemp(prefix="mutants-", dir=memory if os.access(memory, os.W_OK) else None))
        self._folder.chmod(0o711)  # PostgreSQL runs as a user of its own
        self._passed: dict[str, Passed] = {}
        self._killers: dict[str, list[str]] = defaultdict(list)
        self._trial: Callable[[Runner], None] = lambda _: None
        self._functions: dict[Path, list[FunctionType]] = {}
        self._session: Any = None
        self._count = 0

    def run(self, trial: Callable[[Runner], None]) -> None:
        """Collect the tests, find out what they pass, and begin the trial."""
        self._trial = trial
        try:
            code = pytest.main([*OPTIONS, *self._tests], plugins=[self])
            if code != 0:
                raise SystemExit(f"the tests could not be collected (pytest ended with {int(code)})")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        os.environ["PYTEST_XDIST_WORKER"] = "mutants"  # the forks share what the tests make once
        self._find_out()
        self._functions = functions_of(self._modules)
        self._trial(self)
        return True

    def try_all(self, mutants: Iterable[Mutant], minutes: float) -> Iterator[tuple[Mutant, Verdict]]:
        """Try each mutant, some at a time, for as long as there is time."""
        deadline = time.monotonic() + minutes * 60
        running: dict[int, tuple[Mutant, float, Path]] = {}
        waiting = iter(mutants)
        while True:
            while len(running) < self._jobs and time.monotonic() < deadline and (mutant := next(waiting, None)):
                if tests := self._those_that_pass(mutant):
                    folder = self._new_folder()
                    pid = self._fork(folder, lambda m=mutant, t=tests, f=folder: self._try(m, t, f))  # type: ignore[misc]
                    running[pid] = mutant, time.monotonic() + 8 * self._seconds, folder
                else:
                    yield mutant, "no test passes this line"
            if not running:
                return
            for pid, (mutant, ends, folder) in list(running.items()):
                if (code := _ended(pid, ends)) is not None:
                    del running[pid]
                    yield mutant, self._verdict(mutant, code, folder)
            time.sleep(0.01)

    def _verdict(self, mutant: Mutant, code: int, folder: Path) -> Verdict:
        said = folder / "killer"
        killer = said.read_text() if said.exists() else ""
        shutil.rmtree(folder, ignore_errors=True)
        if killer and killer not in self._killers[mutant.module]:
            self._killers[mutant.module].insert(0, killer)
        return "survived" if code == 0 else f"killed by {killer or 'a test that came to no end'}"

    def _those_that_pass(self, mutant: Mutant) -> list[str]:
        """The tests to try, for as many seconds as a mutant may take. All of its module, if an import executes it.

        Behind those that pass its line come those that pass another one of its coroutine function.
        """
        functions: dict[str, list[tuple[float, str]]] = defaultdict(list)
        near: set[str] = set()
        for passed in self._passed.values():
            for test, (seconds, modules) in passed.tests.items():
                lines = modules.get(mutant.module, frozenset())
                if lines and (mutant.imported or not lines.isdisjoint(mutant.around)):
                    functions[test.partition("[")[0]].append((seconds, test))
                    if lines.isdisjoint(mutant.lines):
                        near.add(test)
        name, package = f"test_{mutant.path.stem}", f"tests/{mutant.module.partition('/')[0]}/"
        killers = self._killers[mutant.module]
        chosen = []
        for function, some in functions.items():
            for count, (seconds, test) in enumerate(sorted(some)):
                later = test not in killers, seconds > self._seconds / 5, name not in test, test in near, count
                chosen.append(((*later, not function.startswith(package), seconds), test))
        spent = 0.0
        tests: list[str] = []
        for (*_, seconds), test in sorted(chosen):
            if not tests or spent + seconds <= self._seconds:
                spent += seconds
                tests.append(test)
        return tests

    def _try(self, mutant: Mutant, tests: list[str], folder: Path) -> int:
        if mutant.imported or not replace_code(mutant, self._functions[mutant.path]):
            command = [sys.executable, __file__, str(mutant.path), str(mutant.number), f"--basetemp={folder}"]
            os.execv(command[0], [*command, "-x", *OPTIONS, *tests])
        for test in self._perform(tests, folder, limited=True):
            if self._session.testsfailed:
                (folder / "killer").write_text(test)
                return FAILED
        return 0

    def _perform(self, tests: Sequence[str], folder: Path, *, limited: bool = False) -> Iterator[str]:
        """Run these tests in this fork; yields the name of each after it has ended.

        If `limited`, this process ends with a test that takes or computes many times as long as without a change.
        """
        took = {test: seconds for passed in self._passed.values() for test, (seconds, _) in passed.tests.items()}
        config = self._session.config
        config._tmp_path_factory._basetemp = folder
        items = {item.nodeid: item for item in self._session.items}
        chosen = [items[test] for test in tests]
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            if limited:
                too_long = partial(_too_long, folder, item.nodeid)
                limit = 5 + 5 * took[item.nodeid]
                # On a busy machine a test takes many times as long, and computes no more than else.
                for number, timer, seconds in ((SIGPROF, ITIMER_PROF, limit), (SIGALRM, ITIMER_REAL, 4 * limit)):
                    signal.signal(number, too_long)
                    signal.setitimer(timer, seconds)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item.nodeid
        for timer in (ITIMER_PROF, ITIMER_REAL):
            signal.setitimer(timer, 0)
        config.hook.pytest_sessionfinish(session=self._session, exitstatus=0)

    def _find_out(self) -> None:
        """Note what each test passes: of files of tests that have changed since, and of all if the subject has."""
        kept = KEPT / "passed.pickle"
        with suppress(OSError, pickle.PickleError, EOFError, AttributeError):
            self._passed = pickle.loads(kept.read_bytes())
        files: dict[str, list[str]] = defaultdict(list)
        for item in self._session.items:
            files[item.nodeid.partition("::")[0]].append(item.nodeid)
        subject = _digest(self._modules)
        keys = {file: f"{subject} {_digest([ROOT / file])}" for file in files}
        self._passed = {file: passed for file, passed in self._passed.items() if keys.get(file) == passed.key}
        missing = [file for file in files if file not in self._passed]
        if missing:
            print(f"running {len(missing)} files of tests to see what they pass …", flush=True)
        running: dict[int, tuple[str, Path]] = {}
        while missing or running:
            while missing and len(running) < self._jobs:
                file, folder = missing.pop(), self._new_folder()
                pid = self._fork(folder, lambda f=file, o=folder: self._record(keys[f], files[f], o))  # type: ignore[misc]
                running[pid] = file, folder
            for pid, (file, folder) in list(running.items()):
                if (code := _ended(pid, time.monotonic() + 1)) is not None:
                    del running[pid]
                    if code:
                        raise SystemExit(f"{file} could not be run without any change: it ended with {code}")
                    self._passed[file] = pickle.loads((folder / "passed").read_bytes())
                    shutil.rmtree(folder, ignore_errors=True)
                    for test in self._passed[file].failed:
                        print(f"fails without any change, and is left out: {test}", flush=True)
            time.sleep(0.01)
        KEPT.mkdir(exist_ok=True)
        kept.write_bytes(pickle.dumps(self._passed))

    def _record(self, key: str, tests: list[str], folder: Path) -> int:
        passed, began, failed = Passed(key), time.monotonic(), 0
        counter = coverage.Coverage(data_file=None, config_file=False, include=[*map(str, self._modules)])
        # A file of tests may pass none of the modules.
        counter.set_option("run:disable_warnings", ["no-data-collected"])
        counter.start()
        counter.switch_context(tests[0])
        following = dict(zip(tests, [*tests[1:], ""], strict=True))
        for test in self._perform(tests, folder):
            if self._session.testsfailed > failed:
                passed.failed.append(test)
            else:
                passed.tests[test] = time.monotonic() - began, {}
            began, failed = time.monotonic(), self._session.testsfailed
            counter.switch_context(following[test])
        counter.stop()
        data = counter.get_data()
        lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for path in data.measured_files():
            module = Path(path).relative_to(SOURCE).as_posix()
            for line, seen in data.contexts_by_lineno(path).items():
                for test in seen:
                    lines[test][module].add(line)
        for test, (seconds, _) in passed.tests.items():
            passed.tests[test] = seconds, {module: frozenset(some) for module, some in lines[test].items()}
        (folder / "passed").write_bytes(pickle.dumps(passed))
        return 0

    def _new_folder(self) -> Path:
        self._count += 1
        made = self._folder / str(self._count)
        made.mkdir()
        return made

    def _fork(self, folder: Path, act: Callable[[], int]) -> int:
        """Act in a fork, which leaves files in that folder alone."""
        pid = os.fork()
        if pid:
            return pid
        os.setsid()
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        silent = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(silent, number)
        code = FAILED
        try:
            code = act()
        finally:
            os._exit(code)


def _too_long(folder: Path, test: str, *_signal: object) -> NoReturn:
    (folder / "killer").write_text(test)
    os._exit(FAILED)


def _ended(pid: int, deadline: float) -> int | None:
    """The exit code of a fork that has ended; one whose time is over is ended, with all that it started."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    late = not ended and time.monotonic() > deadline
    if ended or late:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    if late:
        os.waitpid(pid, 0)
        return FAILED
    return os.waitstatus_to_exitcode(status) if ended else None


def _digest(files: Iterable[Path]) -> str:
    made = hashlib.sha256()
    for file in files:
        made.update(file.read_bytes())
    return made.hexdigest()


if __name__ == "__main__":  # a fork that has to import the mutant's module anew
    import_changed(mutants_of(Path(sys.argv[1]))[int(sys.argv[2])])
    sys.exit(int(pytest.main(sys.argv[3:])))
