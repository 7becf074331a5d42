"""Running a file tool: checked arguments, a thread, an undo log, and cancellation.

`Looking` and `Changing` are the two kinds; the tools themselves are in `tools.py`. A thread cannot be
cancelled, so a cancelled call asks its thread to stop and waits for it. The thread takes back what it did
before it ends, and only then does the cancellation go on its way.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextvars import copy_context
from pathlib import Path
from typing import Any

from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Toolbox
from windlass.tools.files.failures import explain, shown
from windlass.tools.files.log import OPEN, locked, put_away, recorded
from windlass.tools.files.models import problems
from windlass.tools.files.place import OpenedPath, Tally, tally
from windlass.tools.files.preflight import Approved, basis_in, preflight
from windlass.tools.files.safe_path import Root
from windlass.tools.files.undo import Undo, begin, roll_back, roll_back_in
from windlass.tools.files.undo_step import undo_steps
from windlass.tools.functional import Arguments, FunctionalTool

__all__ = ["Changing", "Looking"]


Look = Callable[[Root, Any, Callable[[], None], int], dict[str, Any]]
"""An operation of `look.py`: root, arguments, the check for stopping, how often to halve what it uses."""
Change = Callable[[Root, Undo, Any], dict[str, Any]]
"""An operation of `operations.py`."""


class _Stopped(ToolError):
    """The worker thread noticed that the attempt is to stop."""

    def __init__(self) -> None:
        super().__init__("stopped before it was finished", category=Category.TRANSIENT)


class _FileTool(FunctionalTool):
    def __init__(
        self, name: str, description: str, model: type[Arguments], result: type[Arguments], effect: Effect
    ) -> None:
        super().__init__(name, description, model, self._act, effect=effect, result=result)

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        return problems(self._model, arguments)

    async def _act(self, given: Any, call: Call) -> Any:
        stop = call.stopping

        def check() -> None:
            if stop.is_set():
                raise _Stopped

        counting = Tally()

        def work() -> Any:
            tally.set(counting)  # in the context of this thread's work alone
            before = time.thread_time()
            try:
                check()
                return self._run(given, call, check)
            except OSError as error:
                raise explain(error, self._doing(given)) from error
            finally:
                counting.cpu += time.thread_time() - before

        worker = _in_thread(work)
        try:
            return await asyncio.shield(worker)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: ask it to stop, and wait until it has cleaned up.
            stop.set()
            await _ended(worker)
            await self._regret(worker, call)
            raise
        finally:
            call.meter.add(cpu=counting.cpu, received=counting.read, sent=counting.written)

    def _doing(self, given: Any) -> str:
        path = getattr(given, "path", None) or getattr(given, "source", None)
        return f"{self.name} {shown(path)}" if path else self.name

    @abstractmethod
    def _run(self, given: Any, call: Call, check: Callable[[], None]) -> Any:
        """Do the work, in a thread; `check` raises when it is to stop."""

    async def _regret(self, worker: asyncio.Future[Any], call: Call) -> None:
        """Called when a cancelled call's worker has ended."""
        worker.exception()


class Looking(_FileTool):
    """A tool that only looks."""

    def __init__(
        self, name: str, description: str, model: type[Arguments], look: Look, result: type[Arguments]
    ) -> None:
        super().__init__(name, description, model, result, Effect.NONE)
        self._look = look

    def _run(self, given: Any, call: Call, check: Callable[[], None]) -> Any:
        with Root(call.workdir, call.home) as root:
            return self._look(root, given, check, call.reduced)


class Changing(_FileTool):
    """A tool that changes files: all it does is done, or none of it."""

    def __init__(
        self,
        name: str,
        description: str,
        model: type[Arguments],
        change: Change,
        result: type[Arguments],
        *,
        floor: int = 0,
    ) -> None:
        """`floor`: bytes of a file system that stay free in any case."""
        super().__init__(name, description, model, result, Effect.REPEATABLE)
        self._change = change
        self._floor = floor

    compares_files = True

    def basis(self, arguments: Mapping[str, Any], workdir: Path, tools: Toolbox) -> dict[str, str]:
        """Every file that it would change or read, with its hash."""
        if self.validate(arguments):
            return {}
        with Root(workdir) as root:
            return basis_in(root, self._given(arguments))

    def take_back(self, folder: Path, steps: Collection[str], workdir: Path) -> list[dict[str, str]]:
        return undo_steps(folder, steps, workdir)

    def _run(self, given: Any, call: Call, check: Callable[[], None]) -> Any:
        identity = json.dumps([self.name, given.model_dump(mode="json")], sort_keys=True)
        request = hashlib.sha256(identity.encode()).hexdigest()
        with Root(call.workdir, call.home) as root, locked(call.scratch) as home:
            roll_back_in(root, home, OPEN)
            earlier = recorded(root, home, request, call.attempt)
            if earlier is not None:
                return earlier
            put_away(home)
            approved = Approved(call.approved)
            if call.approved is not None:
                approved.compare(basis_in(root, given))
            try:
                preflight(root, given, self._floor)
                with begin(root, home, request=request, attempt=call.attempt, check=check, floor=self._floor) as undo:
                    undo.approved = approved
                    result = self._change(root, undo, given)
                    undo.seal(result)
                    return result
            except BaseException as error:
                self._take_back(root, home, error, given)
                raise

    def _take_back(self, root: Root, home: OpenedPath, error: BaseException, given: Any) -> None:
        try:
            roll_back_in(root, home, OPEN)
        except (ToolError, OSError) as second:
            doing = self._doing(given)
            first, then = (explain(e, doing) if isinstance(e, OSError) else e for e in (error, second))
            raise ToolError(
                f"{first}; {then}",
                category=Category.CONFIGURATION,
                advice=then.failure.advice if isinstance(then, ToolError) else (),
            ) from error

    async def _regret(self, worker: asyncio.Future[Any], call: Call) -> None:
        error = worker.exception()
        if error is None:
            # It had finished in the moment of the cancellation: nobody will hear of it, so it is undone.
            undoing = _in_thread(lambda: roll_back(call.scratch, call.workdir, sealed=True))
            await _ended(undoing)
            error = undoing.exception()
        if error is not None and not isinstance(error, _Stopped):
            call.output("stderr", f"{self.name} was cancelled: {error}\n")


def _in_thread(work: Callable[[], Any]) -> asyncio.Future[Any]:
    """Like asyncio.to_thread, but no Task: a loop that shuts down cancels Tasks and lets threads run on."""
    return asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)


async def _ended(worker: asyncio.Future[Any]) -> None:
    """Wait for a thread, through any cancellation."""
    while not worker.done():
        try:
            await asyncio.wait({worker})
        except asyncio.CancelledError:
            continue
