"""`pause`, `interrupt`, `cancel`, `approve`: asking something of an execution, from any process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from windlass.cli.command import Group, Option
from windlass.cli.names import ExecutionId, StepName
from windlass.cli.session import AsJson, CommandEnd, Home, print_json, say, suggest, who, with_engine
from windlass.cli.text import next_commands
from windlass.core.state import State
from windlass.core.transitions import ExecutionStatus
from windlass.core.view import snapshot
from windlass.engine.engine import Engine
from windlass.errors import UsageError

__all__ = ["register"]

Wait = Annotated[float, Option("--wait", metavar="SECONDS", min=0, help="Maximum time to wait for it")]


def register(app: Group) -> None:
    app.add(pause)
    app.add(interrupt)
    app.add(cancel)
    app.add(approve)


def pause(
    execution: ExecutionId,
    now: Annotated[bool, Option("--now", help="Stop running attempts instead of letting them finish")] = False,
    wait: Wait = 10.0,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Pause: let running steps finish, start no new ones. `resume` continues it."""
    _ask(home, as_json, "pause", lambda e: e.pause(execution, now=now, by=who(), within=wait))


def interrupt(execution: ExecutionId, wait: Wait = 30.0, as_json: AsJson = False, home: Home = None) -> None:
    """Stop running steps with all their processes, and pause. `resume` continues it."""
    _ask(home, as_json, "interrupt", lambda e: e.interrupt(execution, by=who(), within=wait))


def cancel(execution: ExecutionId, wait: Wait = 30.0, as_json: AsJson = False, home: Home = None) -> None:
    """Stop running steps and end the execution for good."""
    _ask(home, as_json, "cancel", lambda e: e.cancel(execution, by=who(), within=wait))


def _ask(
    home: str | None,
    as_json: bool,
    what: str,
    request: Callable[[Engine], Awaitable[State]],
) -> None:
    async def work(engine: Engine) -> int:
        state = await request(engine)
        if state.status is not ExecutionStatus.RUNNING:
            say(f"{state.plan.name} is {state.status}")
        else:
            suggest(f"{what} requested; running attempts are still finishing (windlass watch {state.id})")
        if as_json:
            print_json(snapshot(state))
        for line in next_commands(state, engine.driven(state)):
            suggest(f"next: {line}")
        return 0

    raise CommandEnd(with_engine(work, home))


def approve(
    execution: ExecutionId,
    step: StepName,
    deny: Annotated[bool, Option("--deny", help="Refuse instead")] = False,
    always: Annotated[
        bool, Option("--always", help="Also save the exact rule that lets agents do this without asking")
    ] = False,
    note: Annotated[str, Option("--note", help="Reason, saved with the answer")] = "",
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Approve or deny a step that is waiting for approval. The answer is for exactly the arguments that were shown.

    \b
    windlass approve @last publish
    windlass approve @last publish --deny --note "after the holidays"
    windlass approve @last fix --always
    """
    if always and deny:
        raise UsageError("--always is for what is allowed: leave out --deny")

    async def work(engine: Engine) -> int:
        driven = engine.driven(await engine.state(execution))  # with the answer, it may end at once
        if always:
            from windlass.cli.always import allow_always, readable_rule

            await allow_always(engine, execution, step, await readable_rule(engine, execution, step), note=note)
        else:
            await engine.approve(execution, step, allow=not deny, by=who(), note=note)
        state = await engine.state(execution)
        say(f"{step} is {'denied' if deny else 'approved'}")
        if as_json:
            print_json(snapshot(state))
        if not driven:
            suggest(f"next: windlass resume {state.id}")
        return 0

    raise CommandEnd(with_engine(work, home))
