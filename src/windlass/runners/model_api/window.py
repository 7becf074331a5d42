"""Keep the conversation of one run within its model's window (F1–F3): the use of `windlass.context` in this runtime.

`fit` is called before every request. Above the threshold, the older part is summarised by a model and replaced, in one
record of the conversation's file that is appended once the summary is checked: killed before that, the conversation is
as it was. A summary that is useless, or a model that cannot be asked, gives way to key points; results that are too
large for the window by themselves are cut. `refused` does the same after the provider itself found a request too long.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass.context.limits import ContextLimits
from windlass.context.messages import ContextMessage, ContextUse, cut_point, shorten_middle
from windlass.context.pins import Pin, PinList
from windlass.context.summary import INSTRUCTIONS, key_points, problem_of, replacement, summary_prompt
from windlass.context.tokens import TokenRate, estimate_tokens
from windlass.ports import AgentRequest, Host, SummaryMethod, ToolSpec, Usage
from windlass.runners.model_api.attachments import attached, attachment_tokens
from windlass.runners.model_api.conversation import Conversation
from windlass.runners.model_api.target import ModelTarget
from windlass.runners.model_api.wire import Counted, ModelExchange, OpenModel, UsageTally
from windlass.runners.toolbox import RESULT_LIMIT

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

__all__ = ["ContextWindow", "SummaryModel"]

_EACH = 4
"""Tokens that an API adds to each part of a message."""
_LEAST_WINDOW = 2_000
_LARGE = 500_000
"""Bytes of a conversation that are too many to count in the event loop."""
_WORTH_ASKING = 500
"""Tokens below which no model is asked for a summary: it would be as long, and cost more."""
_REFUSALS = 3
"""Times in a row that a request found too long by the provider is made smaller and sent again."""


@dataclass(frozen=True, slots=True)
class SummaryModel:
    """The model that summarises."""

    target: ModelTarget
    window: int | None
    open: Callable[[], AbstractAsyncContextManager[OpenModel]]
    """Opens it; the step's own model is open already."""


class Summary(NamedTuple):
    """Facts that are kept with a summary in the conversation's file, and reported."""

    by: SummaryMethod
    text: str
    pins: PinList
    tokens_before: int
    messages: int
    """Messages that it stands for, those of earlier summaries included."""
    model: str = ""
    usage: Usage | None = None
    first: bool = False
    """The first message of the conversation is the summary; not so if only results were cut."""


class ContextWindow:
    """The tokens of one conversation, and what is done when they become too many."""

    def __init__(
        self,
        request: AgentRequest,
        host: Host,
        conversation: Conversation,
        *,
        system: str,
        tools: list[ToolSpec],
        window: int | None,
        summariser: SummaryModel,
        tally: UsageTally,
        now: Callable[[], float],
        redact: Callable[[str], str],
    ) -> None:
        self._request, self._host, self._conversation = request, host, conversation
        self._system, self._summariser = system, summariser
        self._tally, self._now, self._redact = tally, now, redact
        self._base = estimate_tokens(system) + sum(_spec_tokens(tool) for tool in tools)
        self._calibration = TokenRate()
        self._seen: dict[int, tuple[ModelMessage, ContextMessage]] = {}
        self._window = window
        self._refusals = 0
        self._nothing_at = 0
        """Number of messages of which none was worth a summary that a person asked for."""

    # -- counting ------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """Tokens of the next request, as the provider is going to count them."""
        return self._calibration.count(self._estimate())

    @property
    def result_limit(self) -> int:
        """Characters of one tool result, at three to a token; what turns out to be denser is cut before the request."""
        if (limits := self._limits()) is None:
            return RESULT_LIMIT
        return min(RESULT_LIMIT, min(limits.result, int(self._free(limits) * 0.4)) * 3)

    @property
    def whole_result(self) -> str:
        facts = self._request.metadata
        command = f"windlass transcript {facts.get('execution', 'ID')} {facts.get('step', 'STEP')}"
        return f"ask for a smaller part; all of it: {command}"

    def learn(self, counted: Counted | None) -> None:
        """Take the provider's own count of the last request into account; its reply must not be added yet."""
        if counted is not None and counted.whole:
            self._refusals = 0
            self._calibration.learn(self._estimate(), counted.tokens_in)

    def _estimate(self) -> int:
        return self._base + sum(message.tokens for message in self._messages())

    def _messages(self) -> list[ContextMessage]:
        """The conversation as the rules see it; each message is looked at once."""
        messages = self._conversation.messages
        seen = {id(message): self._seen.get(id(message)) or (message, self._read(message)) for message in messages}
        self._seen = seen
        return [seen[id(message)][1] for message in messages]

    def _read(self, message: ModelMessage) -> ContextMessage:
        if (about := self._about_of(message)) is not None:
            text = str(message.parts[0].content)  # type: ignore[union-attr]
            return ContextMessage("summary", str(about["text"]), estimate_tokens(text) + _EACH)
        return context_message(message)

    def _about_of(self, message: ModelMessage) -> dict[str, Any] | None:
        last = self._last
        return last if last.get("first") and message is self._conversation.messages[0] else None

    @property
    def _last(self) -> dict[str, Any]:
        """Facts of the last summary; empty before the first one."""
        return self._conversation.summaries[-1] if self._conversation.summaries else {}

    @property
    def _pins(self) -> PinList:
        return PinList(tuple(Pin(kind, text) for kind, text in self._last.get("pinned", ())))

    def _free(self, limits: ContextLimits) -> int:
        """Tokens below the threshold that the system prompt and the tools leave for the conversation."""
        return max(_LEAST_WINDOW // 4, limits.most - self._calibration.count(self._base))

    def _limits(self) -> ContextLimits | None:
        return None if self._window is None else ContextLimits(self._window, self._request.context.threshold)

    # -- before a request ------------------------------------------------------------------------------

    async def fit(self, model: OpenModel) -> bool:
        """Make the next request fit. False: there is no budget for a summary, and none for the request either."""
        if self._conversation.size > _LARGE and not self._seen:
            await asyncio.to_thread(self._messages)  # tens of seconds for 50 MB: others go on meanwhile
        limits = self._limits()
        wanted = self._host.summary_wanted() and self._nothing_at != len(self._conversation.messages)
        if wanted and limits is None:
            limits = ContextLimits(max(_LEAST_WINDOW, self.tokens), self._request.context.threshold)
        if limits is None or not (wanted or self.tokens > limits.most):
            return True
        affordable = await self._summarise(model, limits, wanted=wanted)
        if affordable and self.tokens > limits.most:
            await self._shorten_results(limits)
        return affordable

    async def refused(self, model: OpenModel) -> bool:
        """The provider found the request too long: make it smaller. False if that cannot be done."""
        self._refusals += 1
        before = self.tokens
        if self._refusals > _REFUSALS or before < _LEAST_WINDOW:
            return False
        # The window is smaller than was known, or the estimate is too low: either way, much less is sent.
        self._window = max(_LEAST_WINDOW, min(self._window or before, before) * 3 // 4)
        self._host.note(f"the request was too long for the model: it is made smaller ({before:,} tokens)")
        return await self.fit(model) and self.tokens < before

    async def _summarise(self, model: OpenModel, limits: ContextLimits, *, wanted: bool) -> bool:
        messages, before = self._messages(), self.tokens
        free = self._free(limits)
        keep = min(limits.keep, int(free * 0.4))
        if wanted:
            keep = min(keep, int((before - self._calibration.count(self._base)) * 0.3))
        cut = cut_point(messages, int(keep / self._calibration.ratio))
        older = messages[:cut]
        size = sum(message.tokens for message in older)
        if cut == 0 or (wanted and size < _WORTH_ASKING):
            self._nothing_at = len(messages)
            return True
        pins = await asyncio.to_thread(self._pins.with_messages, older, self._request.task)
        pins = pins.within(min(limits.pinned, int(free * 0.25)))
        room = int(min(limits.summary, free * 0.15) / self._calibration.ratio)
        used: Usage | None = None
        asked, text = "", None
        by: SummaryMethod = "model"
        if size >= _WORTH_ASKING:
            prompt = summary_prompt(older, pins, room, self._room_of_summariser(limits))
            if not await self._host.afford(estimate_tokens(prompt)):
                return False
            asked = self._summariser.target.model
            text, used = await self._ask(model, prompt)
            if problem := problem_of(text, older, room, self._redact) if text is not None else "":
                self._host.note(f"the summary by {asked} is not used, {problem}: key points take its place")
                text = None
        if not text:
            text, by = key_points(older, room, self._redact), "key points"
        if not text:
            text, by = "What came before is left out.", "truncation"
        replaced = cut - bool(self._last.get("first")) + int(self._last.get("messages", 0))
        made = replacement(len(self._conversation.summaries) + 1, replaced, text, pins)
        summary = Summary(by, text, pins, before, replaced, asked, used, first=True)
        await self._replace(cut, [_user(made.text, self._system)], summary)
        return True

    def _room_of_summariser(self, limits: ContextLimits) -> int:
        window = self._summariser.window or limits.window
        return max(1_000, int(window * 0.7) - limits.summary - limits.pinned)

    async def _ask(self, model: OpenModel, prompt: str) -> tuple[str | None, Usage | None]:
        """Ask for a summary; None if there was no answer. Its cost counts, also if it is not used."""
        own = self._summariser.target.priced_as == self._tally.priced_as
        exchange = ModelExchange()
        tally = self._tally.another(self._summariser.target.model, self._summariser.target.priced_as)
        try:
            if own:
                await exchange.ask(model, [_user(prompt, INSTRUCTIONS)], [], None, _say_nothing)
            else:
                async with self._summariser.open() as other:
                    await exchange.ask(other, [_user(prompt, INSTRUCTIONS)], [], None, _say_nothing)
        except asyncio.CancelledError:
            self._settle(exchange, tally)
            raise
        except Exception as error:  # whatever the client stumbles over: key points need no model
            self._host.note(
                f"{self._summariser.target.model} could not summarise ({_first_line(error)}): key points do"
            )
            self._settle(exchange, tally)
            return None, tally.usage
        self._settle(exchange, tally)
        return exchange.text if exchange.response is not None else "", tally.usage

    def _settle(self, exchange: ModelExchange, tally: UsageTally) -> None:
        if (counted := exchange.counted) is not None:
            tally.add(counted, self._now())
            self._tally.add(counted, self._now(), self._summariser.target.priced_as)
            self._host.usage(self._tally.usage)

    async def _replace(self, count: int, messages: list[ModelMessage], summary: Summary) -> None:
        pinned = [list(pin) for pin in summary.pins.facts]
        about = {**summary._asdict(), "pinned": pinned, "usage": None}
        del about["pins"]
        self._conversation.replace_older(count, messages, about)
        await self._conversation.keep()
        self._host.summarised(
            by=summary.by,
            tokens_before=summary.tokens_before,
            tokens_after=self.tokens,
            messages=summary.messages,
            model=summary.model,
            text=summary.text,
            pinned=tuple(pin.text for pin in summary.pins.facts),
            usage=summary.usage,
        )

    # -- results that are too large --------------------------------------------------------------------

    async def _shorten_results(self, limits: ContextLimits) -> None:
        """Cut the results that stay, the largest first, until the request fits."""
        from pydantic_ai.messages import ModelRequest, ToolReturnPart

        messages, before = list(self._conversation.messages), self.tokens
        parts = [
            (place, number, part)
            for place, message in enumerate(messages)
            if isinstance(message, ModelRequest)
            for number, part in enumerate(message.parts)
            if isinstance(part, ToolReturnPart) and isinstance(part.content, str)
        ]
        excess = before - limits.most
        cut = 0
        for place, number, part in sorted(parts, key=lambda found: -len(str(found[2].content))):
            tokens = self._calibration.count(estimate_tokens(str(part.content)))
            if excess <= 0 or tokens < 200:
                break
            kept = max(100, tokens - excess - 100)
            most = len(str(part.content)) * kept // tokens
            content: Any = shorten_middle(str(part.content), most, self.whole_result)
            shorter = dataclasses.replace(part, content=content)
            message = messages[place]
            assert isinstance(message, ModelRequest)
            new = list(message.parts)
            new[number] = shorter
            messages[place] = dataclasses.replace(message, parts=new)
            excess -= tokens - kept
            cut += 1
        if not cut:
            return
        last = self._last
        text = str(last.get("text", "")) or f"Results of tools are cut: {cut}."
        first = bool(last.get("first"))
        summary = Summary("truncation", text, self._pins, before, int(last.get("messages", 0)), first=first)
        await self._replace(len(messages), messages, summary)


def context_message(message: ModelMessage) -> ContextMessage:
    """A message of pydantic_ai as the rules of `windlass.context` see it."""
    from pydantic_ai.messages import (
        ModelResponse,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    words: list[str] = []
    uses: list[ContextUse] = []
    tokens, results = sum(map(attachment_tokens, attached(message))), False
    for part in message.parts:
        text = ""
        match part:
            case TextPart(content=text):
                words.append(text)
            case ThinkingPart(content=text):
                pass
            case UserPromptPart(content=content):
                text = content if isinstance(content, str) else "\n".join(p for p in content if isinstance(p, str))
                words.append(text)
            case ToolCallPart(tool_name=tool, args=arguments):
                text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
                uses.append(ContextUse(tool, text))
                tokens += estimate_tokens(tool) + _EACH
            case ToolReturnPart(tool_name=tool, content=content, outcome=outcome):
                results = True
                text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
                uses.append(ContextUse(tool, text, failed=outcome == "failed"))
                tokens += _EACH
        tokens += estimate_tokens(text) + _EACH
    if isinstance(message, ModelResponse):
        return ContextMessage("reply", "\n".join(words), tokens, tuple(uses))
    return ContextMessage("results" if results else "user", "\n".join(words), tokens, tuple(uses))


def _user(text: str, system: str) -> ModelMessage:
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    return ModelRequest(parts=[UserPromptPart(text)], instructions=system or None)


def _spec_tokens(tool: ToolSpec) -> int:
    return _tokens_of_spec(json.dumps([tool.name, tool.description, dict(tool.schema)])) + 2 * _EACH


@lru_cache(1_000)
def _tokens_of_spec(text: str) -> int:
    """Counted once: every agent of a process has nearly the same tools."""
    return estimate_tokens(text)


def _say_nothing(text: str) -> None:
    """The words of a summary are not the agent's."""


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
