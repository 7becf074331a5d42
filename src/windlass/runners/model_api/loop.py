"""The loop: a reply of the model, the tools it asks for, the next reply, until it asks for none.

Each part of it is durable before the next begins (`conversation`). The host gets text, tool use and usage as they
happen. Limits are checked before every further turn: turns, dollars, tokens.

Tools of one reply: those that only look run at the same time; one that changes something runs by itself, in the order
of the calls, because two edits of one file in one reply are meant one after the other. A use that must not be
repeated is marked as begun once it is allowed and before it begins: an approval may take days and other processes, and
a use that only waited for one was not begun. Found begun and without a result, it was under way when the process was
stopped: the model is told so and decides how to go on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal

from windlass.core.budget import known_part, money, tokens_of_bytes
from windlass.core.call_summary import call_summary
from windlass.errors import Category, Failure, classify
from windlass.plan.model import Effect
from windlass.ports import AgentRequest, Host, ToolSpec, Usage
from windlass.runners.endings import TurnEnding, failure
from windlass.runners.model_api.conversation import Conversation, Unwritable
from windlass.runners.model_api.failures import of_exception, too_long
from windlass.runners.model_api.target import ModelTarget
from windlass.runners.model_api.window import ContextWindow
from windlass.runners.model_api.wire import ModelExchange, OpenModel, UsageTally, refuses_form, takes_form
from windlass.runners.toolbox import (
    DATA_RULE,
    UNKNOWN_OUTCOME,
    BadCall,
    ModelCall,
    ModelTools,
    refused,
    result_text,
    use_tool,
)
from windlass.runtimes import CLI

__all__ = ["Loop"]

MAX_TURNS = 50
WHOLE = 10_000_000
"""Characters of a result that the transcript has at most."""
BAD_CALLS = 5
"""Calls in a row that name no tool or have no readable arguments, before it is given up."""


class Loop:
    """One run of an agent. Its fields hold the results so far, however `run` ends."""

    def __init__(
        self,
        request: AgentRequest,
        host: Host,
        conversation: Conversation,
        *,
        target: ModelTarget,
        tally: UsageTally,
        now: Callable[[], float],
        window: Callable[[str, list[ToolSpec]], ContextWindow],
    ) -> None:
        """`window` makes the conversation's context window, for a system prompt and tools."""
        self._request, self._host, self._conversation = request, host, conversation
        self._target, self._now = target, now
        self._toolbox = ModelTools(host.tools())
        self._window = window(self._system(), self._toolbox.specs)
        self._form = request.form
        self._bad_calls = 0
        self._requests = 0
        self._said: list[str] = []
        self._done = False
        self._too_long = False
        self._engine_error: Exception | None = None
        self.tally = tally
        self.turns = 0
        self.out_of_budget = False
        self.adjustments: list[str] = []

    @property
    def output(self) -> str:
        """The last thing it said, when it is done; before that, all of it."""
        return self._said[-1] if self._said and self._done else "\n\n".join(self._said)

    async def run(self, model: OpenModel) -> Failure | None:
        """Run until the model is done (None) or cannot go on."""
        try:
            how: Literal["steer", "follow-up", "prompt"] = self._request.opening
            unsaid = self._has_more_to_say()
            while True:
                if calls := self._conversation.pending():
                    await self._perform(calls)
                if unsaid:  # after the results of calls that were cut off: they belong to the reply before it
                    unsaid = False
                    brief = self._request.brief
                    self._conversation.prompt(brief.prompt, self._system(), brief.attachments)
                    await self._conversation.keep()
                    await self._listen(how)
                elif await self._listen("follow-up" if self._done else how):
                    self._done = False
                elif self._done and not calls:
                    return None
                how = "steer"
                if (stop := self._limit()) is not None:
                    return stop
                if not (await self._window.fit(model) and await self._host.afford(self._prompt_tokens())):
                    return self._out_of_budget("nothing is left for a further call")
                if (failure := await self._ask(model)) is not None and not (
                    self._too_long and await self._window.refused(model)
                ):
                    return failure
        except Unwritable as error:
            return classify(error.reason).located(str(self._request.scratch))

    def _has_more_to_say(self) -> bool:
        """False if the conversation goes on by itself: it needs no word to go on where it waits for a reply, or for
        the results of calls; an answer to a question reaches the agent as the result of the call."""
        brief, said = self._request.brief, self._conversation
        if not brief.prompt:
            return False
        if said.pending():
            return not brief.nudge and not any(part.name == "answer" for part in brief.parts)
        return not (brief.nudge and said.awaits_reply)

    async def _listen(self, how: Literal["steer", "follow-up", "prompt"]) -> bool:
        """Add people's messages to the conversation; True if there were any.

        The conversation has a message before it is reported as heard, with its id: after a crash in between, the id is
        found there, and the message is only reported.
        """
        if not (messages := self._host.told()):
            return False
        for message in messages:
            if message.id not in self._conversation.heard:
                self._conversation.say(message.text, self._system(), message.id)
        await self._conversation.keep()
        await self._host.heard([message.id for message in messages], how)
        return True

    def _prompt_tokens(self) -> int:
        return tokens_of_bytes(self._conversation.size) + self._toolbox.tokens

    def _system(self) -> str:
        parts = [self._request.brief.system, DATA_RULE if self._toolbox.specs else ""]
        return "\n\n".join(part for part in parts if part)

    # -- the model ---------------------------------------------------------------------------------

    async def _ask(self, model: OpenModel) -> Failure | None:
        """One turn; its reply is in the conversation when this returns."""
        turn = ModelExchange()
        form = self._form if takes_form(model.client, self._target, self._form) else None
        before = self._requests
        self.turns += 1
        self._too_long = False
        failure: Failure | None
        try:
            await turn.ask(
                model,
                self._conversation.messages,
                self._toolbox.specs,
                self._request.temperature,
                self._say,
                limited=bool(self._request.budget),
                form=form,
            )
        except asyncio.CancelledError:
            self._settle(turn)
            self._conversation.partial(turn.text)
            self._conversation.keep_now()
            raise
        except Exception as error:  # whatever the clients stumble over is a failed request, not a bug to die of
            if error is self._engine_error:
                raise
            if form is not None and (self._requests == before or refuses_form(error)):
                self._form = None
                self.turns -= 1  # the model never saw it
                self.adjustments.append(
                    f"{self._target.host} does not take the schema of `output`: it was left to the prompt"
                )
                return None
            failure = of_exception(error, self._target, self._now())
            self._too_long = too_long(error)
        else:
            failure = _judge(turn, self._target)
        used = self._settle(turn)
        if failure is not None or turn.response is None:
            self._conversation.partial(turn.text)
        else:
            self._window.learn(turn.counted)
            self._conversation.reply(turn.response)
            self._host.spoke(turn.text, turn.thinking, used, self._conversation.replies)
            self._done = not self._conversation.pending() and turn.response.state != "suspended"
        await self._conversation.keep()
        return failure

    def sent(self, body: bytes) -> None:
        """Looks at a request as it goes out: the clients leave settings out that a model does not take."""
        self._requests += 1
        if (
            self._requests == 1
            and self._request.temperature is not None
            and json.loads(body).get("temperature") is None
        ):
            self.adjustments.append(f"temperature was left out: {self._target.model} takes none")

    def _say(self, piece: str) -> None:
        try:
            self._host.text(piece)
        except Exception as error:
            self._engine_error = error  # the engine's own trouble, in the middle of a reply: not the model's
            raise

    def _settle(self, turn: ModelExchange) -> Usage | None:
        if turn.text:
            self._said.append(turn.text)
        if (counted := turn.counted) is None:
            return None
        used = self.tally.add(counted, self._now())
        self._host.usage(self.tally.usage)
        return used

    # -- the tools ---------------------------------------------------------------------------------

    async def _perform(self, calls: list[ModelCall]) -> None:
        at_once: list[ModelCall] = []
        for call in calls:
            meant = self._toolbox.read(call)
            if not isinstance(meant, BadCall) and self._host.effect(*meant) is Effect.NONE:
                at_once.append(call)
                continue
            await self._together(at_once)
            at_once = []
            await self._use(call)
        await self._together(at_once)

    async def _together(self, calls: list[ModelCall]) -> None:
        uses = [asyncio.ensure_future(self._use(call)) for call in calls]
        try:
            await asyncio.gather(*uses)
        finally:
            for use in uses:
                use.cancel()
            if uses:
                await asyncio.wait(uses)

    async def _use(self, call: ModelCall) -> None:
        meant = self._toolbox.read(call)
        if isinstance(meant, BadCall):
            self._bad_calls += 1
            self._host.acted(call.name, "", call.arguments, call.use_id)
            self._answer(call, call.name, meant.message, failed=True)
        else:
            self._bad_calls = 0
            await self._use_tool(call, *meant)
        await self._conversation.keep()

    async def _use_tool(self, call: ModelCall, tool: str, arguments: dict[str, Any]) -> None:
        if self._conversation.was_begun(call):
            self.adjustments.append(f"{tool} was not repeated: its earlier outcome is unknown")
            self._host.note(f"{tool}: {UNKNOWN_OUTCOME}")
            self._answer(call, tool, UNKNOWN_OUTCOME, failed=True)
            return

        acted = False

        async def begin(effect: Effect) -> None:
            nonlocal acted
            if effect is Effect.ONCE:
                self._conversation.begin(call)
                await self._conversation.keep()
            self._host.acted(tool, call_summary(arguments), arguments, call.use_id)
            acted = True

        returned = await use_tool(self._host, tool, arguments, call.use_id, begin)
        if (adjustment := refused(tool, returned)) is not None:
            self.adjustments.append(adjustment)
        if not acted:
            self._host.acted(tool, call_summary(arguments), arguments, call.use_id)
        shown = result_text(tool, call, returned, self._window.result_limit, self._window.whole_result)
        whole = result_text(tool, call, returned, WHOLE)
        self._answer(call, tool, whole, shown, failed=returned.failure is not None)

    def _answer(self, call: ModelCall, tool: str, text: str, shown: str | None = None, *, failed: bool) -> None:
        """Keep a result: all of it in the journal, what the model's window has room for in the conversation."""
        self._host.returned(call.use_id, tool, text, failed=failed)
        self._conversation.answer(call, text if shown is None else shown, failed=failed)

    # -- the limits --------------------------------------------------------------------------------

    def _limit(self) -> Failure | None:
        """Return the failure of a reached limit, if no further turn may begin."""
        if self._bad_calls >= BAD_CALLS:
            return Failure(
                Category.LOGIC,
                f"{CLI.name}: {self._target.model} made {self._bad_calls} tool calls in a row that could not be read",
                advice=("name a model that is good with tools: `model` in the plan, or of the run",),
            )
        most = self._request.max_turns or MAX_TURNS
        if self.turns >= most:
            return failure(TurnEnding.TURNS, f"not done after {most} turns", runtime=CLI.name)
        return self._over_budget() if self.turns else None

    def _over_budget(self) -> Failure | None:
        limit, used = self._request.budget, self.tally.usage
        if limit.usd is not None and known_part(used) >= limit.usd:
            return self._out_of_budget(f"{money(known_part(used))} of {money(limit.usd)}")
        if limit.tokens is not None and self.tally.tokens >= limit.tokens:
            return self._out_of_budget(f"{self.tally.tokens} of {limit.tokens} tokens")
        return None

    def _out_of_budget(self, spent: str) -> Failure:
        self.out_of_budget = True
        return failure(
            TurnEnding.BUDGET, f"the budget is used up ({spent}) and the agent is not done", runtime=CLI.name
        )


def _judge(turn: ModelExchange, target: ModelTarget) -> Failure | None:
    """Return the failure of a reply that came without an error, or None."""
    response = turn.response
    if response is None:
        return failure(TurnEnding.CUT, f"the reply of {target.host} was cut off on its way", runtime=CLI.name)
    if response.finish_reason == "content_filter":
        reason = (response.provider_details or {}).get("refusal")
        return failure(TurnEnding.REFUSAL, f"{target.model} refused{f': {reason}' if reason else ''}", runtime=CLI.name)
    if response.tool_calls or response.state == "suspended":
        return None
    if response.finish_reason == "length":
        said = f"the reply reached the longest that {target.model} can write, and is cut off"
        return failure(TurnEnding.LENGTH, said, runtime=CLI.name)
    if not turn.text.strip():
        return failure(TurnEnding.EMPTY, f"{target.model} replied with nothing", runtime=CLI.name)
    return None
