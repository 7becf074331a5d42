"""`say`: a message to the agent of a step, running, stopped or done (K1)."""

from __future__ import annotations

from typing import Annotated

from windlass.cli.begin import begin
from windlass.cli.command import Argument, Group, Option
from windlass.cli.detach import send_off
from windlass.cli.names import ExecutionId, StepName
from windlass.cli.run import Detach, KeepPlan, ProgressOption, see_through, warn_of_values
from windlass.cli.session import AsJson, CommandEnd, Home, Yes, attended, print_json, say, suggest, who, with_engine
from windlass.cli.stdin import stdin_text
from windlass.cli.view import Progress, view_for
from windlass.engine.engine import Engine
from windlass.errors import CannotResume

__all__ = ["register"]


def register(app: Group) -> None:
    app.add(say_to_agent, "say")


def say_to_agent(
    execution: ExecutionId,
    step: StepName,
    text: Annotated[str, Argument(metavar="TEXT", help="The message; - reads it from stdin")],
    wait: Annotated[
        float, Option("--wait", metavar="SECONDS", min=0, help="Maximum time to wait until the agent has it")
    ] = 5.0,
    keep_plan: KeepPlan = False,
    detach: Detach = False,
    progress: ProgressOption = Progress.AUTO,
    yes: Yes = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Say something to an agent.

    A running agent gets it after the running tool call or after its turn. A stopped or failed one goes on with it. A
    completed one goes on with it in a fork.

    \b
    windlass say @last fix "also update the changelog"
    """
    message = stdin_text() if text == "-" else text

    async def work(engine: Engine) -> int:
        receipt = await engine.say(execution, step, message, by=who(), within=wait, to_resume=True, keep_plan=keep_plan)
        say(receipt.text)
        state = receipt.state
        driven = engine.driven(state)
        if driven or receipt.how or state.status.finished:  # it has it, and may have ended since
            if as_json:
                print_json(receipt.as_dict())
            if driven:
                suggest(f"Running in its own process. Follow with: windlass watch {state.id}")
            return 0
        warn_of_values(engine, state)
        if detach:
            return await send_off(engine, state.id, as_json, yes=yes)
        resuming = engine.resume(state.id, hold=yes or attended(), keep_plan=keep_plan or receipt.forked)
        try:
            resumed = await begin(engine, resuming)
        except CannotResume as error:
            kept = f"the message is kept. When that is corrected: windlass resume {state.id}"
            raise CannotResume(error.reasons, advice=(kept, *error.advice)) from error
        return await see_through(engine, resumed, view_for(progress), yes=yes, as_json=as_json)

    raise CommandEnd(with_engine(work, home, yes=yes))
