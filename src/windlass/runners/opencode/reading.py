"""Pass the events of an OpenCode conversation on to the engine's host.

`Reading` takes the parts and messages of one run, by any contract, passes new ones to the host, and adds up the usage.
Parts come again and again as they grow; each is passed on once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from windlass.core.events import Usage
from windlass.errors import Failure
from windlass.ports import AgentRequest, AgentResult, Host
from windlass.prices import Prices
from windlass.runners.result_form import RESULT_TOOL

__all__ = ["Reading", "summary"]

DENIED = ("The user rejected permission", "The user has specified a rule which prevents")
FOREMOST = ("command", "filePath", "path", "pattern", "url", "query", "description", "name", "prompt")
"""The input that says most about a use of a tool, in this order."""
WIDTH = 200


class Reading:
    """Collects the text, usage and denials of one run."""

    def __init__(
        self,
        host: Host,
        prices: Prices | None = None,
        model: str = "",
        named: Callable[[str], str] = lambda tool: tool,
    ) -> None:
        """`named` gives the engine's names of its own tools."""
        self._host, self._prices, self._named = host, prices, named
        self._texts: dict[str, dict[str, str]] = {}
        """By message, then by part, in the order they came."""
        self._told: dict[str, int] = {}
        """Characters of each text part that the host has."""
        self._kinds: dict[str, str] = {}
        self._begun: set[str] = set()
        self._steps: dict[str, tuple[Usage, float]] = {}
        self._acted: set[str] = set()
        self._spoken: set[str] = set()
        """Text, reasoning and results that were passed on whole."""
        self._thoughts: dict[str, dict[str, str]] = {}
        """By message and part, reasoning that was not passed on yet."""
        self._summaries: set[str] = set()
        """Messages in which OpenCode summarises the conversation: neither turns nor replies of the agent."""
        self.summary_text = ""
        self.summary_usage: Usage | None = None
        """The last summary, and what it took."""
        self.model = model
        self.turns = 0
        self.finish = ""
        self.denied: list[str] = []
        self.data = ""
        """The data that the agent gave with OpenCode's own tool for it, as JSON."""

    @property
    def has_answered(self) -> bool:
        """True once the model has begun an answer: it has the prompt."""
        return bool(self._begun or self._steps or self._texts)

    @property
    def prompt(self) -> int:
        """Tokens of the last request."""
        return next((usage.tokens_in for usage, _ in reversed(self._steps.values())), 0)

    @property
    def output(self) -> str:
        """The text of the last message that has any."""
        spoken = ["".join(parts.values()) for parts in self._texts.values()]
        return next((text for text in reversed(spoken) if text.strip()), "")

    @property
    def last_output(self) -> str:
        """The data that was asked for, or the text of the last message, be it empty."""
        return self.data or ("".join(next(reversed(self._texts.values())).values()) if self._texts else "")

    def result(
        self,
        request: AgentRequest,
        failure: Failure | None,
        *,
        session: str | None,
        interrupted: bool,
        lost: bool,
        adjustments: Iterable[str],
        metadata: Mapping[str, Any],
    ) -> AgentResult:
        """The result of the turn. `lost`: the session to go on with is not there any more."""
        told = [*adjustments, *(f"{tool} was denied" for tool in self.denied)]
        if request.temperature is not None:
            told.append("OpenCode takes no temperature for one request: its own setting was used")
        more = {"session_lost": True} if lost else {}
        return AgentResult(
            output=self.output if failure or interrupted else self.last_output,
            failure=failure,
            usage=self.usage(complete=failure is None and not interrupted),
            session=None if lost else session,
            interrupted=interrupted,
            adjustments=tuple(dict.fromkeys(told)),
            metadata={**metadata, "turns": self.turns, **more},
        )

    def message(self, info: Mapping[str, Any]) -> None:
        """An assistant's message began or changed."""
        if info.get("role") != "assistant":
            return
        if info.get("summary"):
            self._summaries.add(str(info.get("id")))
            return
        self._texts.setdefault(str(info.get("id")), {})
        self.finish = str(info.get("finish") or self.finish)
        if info.get("modelID"):
            self.model = f"{info.get('providerID')}/{info.get('modelID')}"

    def delta(self, message: str, part: str, field: str, text: str) -> None:
        """A piece of a part, as it is spoken."""
        if field != "text" or self._kinds.get(part) != "text" or message not in self._texts:
            return
        parts = self._texts[message]
        parts[part] = parts.get(part, "") + text
        self._tell(part, parts[part])

    def part(self, part: Mapping[str, Any], *, main: bool = True) -> None:
        """Take a part that began or changed. A subagent's text is not passed to the host; its tool use is."""
        key, kind, message = str(part.get("id")), str(part.get("type")), str(part.get("messageID"))
        self._kinds[key] = kind
        match kind:
            case "text" if main and message in self._summaries:
                self.summary_text = str(part.get("text") or "")
            case "text" if main and not part.get("synthetic") and not part.get("ignored"):
                self._text(message, key, str(part.get("text") or ""))
                if _ended(part):
                    self._pass_on(message)
            case "reasoning" if main:
                self._thoughts.setdefault(message, {})[key] = str(part.get("text") or "")
                if _ended(part):
                    self._pass_on(message)
            case "tool":
                self._tool(part)
                if main and part.get("tool") == RESULT_TOOL:
                    self._take_data(part.get("state"))
            case "step-start":
                self._begun.add(str(part.get("messageID")))
            case "step-finish":
                self._step(key, part, main)

    def usage(self, *, complete: bool = True) -> Usage:
        """Return the usage so far. Not `complete`: a step was cut off, so the cost is at least that of the others."""
        told = [usage for usage, _ in self._steps.values()]
        total = Usage(
            tokens_in=sum(usage.tokens_in for usage in told),
            tokens_out=sum(usage.tokens_out for usage in told),
            cache_read=sum(usage.cache_read for usage in told),
            cache_write=sum(usage.cache_write for usage in told),
            model=self.model,
        )
        if not told:
            return total
        # OpenCode reports 0 for a model whose price it does not know, so 0 says nothing.
        cost, source = sum(cost for _, cost in self._steps.values()), "runtime"
        if cost <= 0:
            known = self._prices.cost(self.model, total) if self._prices else None
            if known is None:
                return total
            cost, source = known, "prices"
        if not complete and self._begun:
            return replace(total, at_least=cost)
        return replace(total, usd=cost, source=source)

    def expect(self, message: str) -> None:
        """A message of the assistant's that no event announced."""
        self._texts.setdefault(message, {})

    def _text(self, message: str, key: str, text: str) -> None:
        if message not in self._texts:
            return  # the user's own message comes as parts too
        parts = self._texts[message]
        if len(text) >= len(parts.get(key, "")):
            parts[key] = text
            self._tell(key, text)

    def _pass_on(self, message: str) -> None:
        """Pass on the thoughts and texts of a message, whole: at the end of one, and before a tool that it uses."""
        said = [(key, "", text) for key, text in self._thoughts.pop(message, {}).items()]
        said += [(key, text, "") for key, text in self._texts.get(message, {}).items()]
        for key, text, thinking in said:
            if key not in self._spoken and (text or thinking):
                self._spoken.add(key)
                self._host.spoke(text, thinking)

    def _tell(self, key: str, text: str) -> None:
        known = self._told.get(key, 0)
        if len(text) > known:
            self._told[key] = len(text)
            self._host.text(text[known:])

    def _tool(self, part: Mapping[str, Any]) -> None:
        key, tool = str(part.get("id")), self._named(str(part.get("tool")))
        state = part.get("state")
        state = state if isinstance(state, Mapping) else {}
        if state.get("status") in ("running", "completed", "error") and key not in self._acted:
            self._acted.add(key)
            self._pass_on(str(part.get("messageID")))
            line = summary(state.get("input"), str(state.get("title") or ""))
            self._host.acted(tool, line, state.get("input"), str(part.get("callID") or key))
        if (status := state.get("status")) in ("completed", "error") and key not in self._spoken:
            self._spoken.add(key)
            result = str(state.get("output" if status == "completed" else "error") or "")
            result = "\n".join(filter(None, (result, *_attached(state.get("attachments")))))
            self._host.returned(str(part.get("callID") or key), tool, result, failed=status == "error")
        if state.get("status") == "error" and str(state.get("error")).startswith(DENIED):
            self.denied.append(tool)

    def _take_data(self, state: Any) -> None:
        if isinstance(state, Mapping) and state.get("status") == "completed":
            self.data = json.dumps(state.get("input"), ensure_ascii=False)

    def _step(self, key: str, part: Mapping[str, Any], main: bool) -> None:
        tokens = part.get("tokens")
        tokens = tokens if isinstance(tokens, Mapping) else {}
        cache = tokens.get("cache")
        cache = cache if isinstance(cache, Mapping) else {}
        read, written = _count(cache.get("read")), _count(cache.get("write"))
        used = Usage(
            tokens_in=_count(tokens.get("input")) + read + written,
            tokens_out=_count(tokens.get("output")) + _count(tokens.get("reasoning")),
            cache_read=read,
            cache_write=written,
        )
        cost, message = part.get("cost"), str(part.get("messageID"))
        self._begun.discard(message)
        new = key not in self._steps
        self._steps[key] = (used, float(cost) if isinstance(cost, int | float) else 0.0)
        usd = self._steps[key][1] or (self._prices.cost(self.model, used) if self._prices else None)
        told = replace(used, usd=usd or None, model=self.model)
        if main and message in self._summaries:
            self.summary_usage = told
        elif main:
            self.finish = str(part.get("reason") or "")
            if new:
                self.turns += 1
                self._pass_on(message)
                self._host.spoke("", usage=told)
        self._host.usage(self.usage())


def _attached(attachments: Any) -> Iterator[str]:
    """Name the images and other files of a tool's result by their types."""
    for file in attachments if isinstance(attachments, list) else ():
        if isinstance(file, Mapping):
            yield f"[{str(file.get('mime') or 'file')[:WIDTH]}]"


def _ended(part: Mapping[str, Any]) -> bool:
    time = part.get("time")
    return isinstance(time, Mapping) and time.get("end") is not None


def summary(input: Any, title: str = "") -> str:
    """Return one line for people about the input of a tool."""
    said = input if isinstance(input, Mapping) else {}
    best = next((str(said[name]) for name in FOREMOST if said.get(name)), "") or title
    best = best or next((str(value) for value in said.values() if isinstance(value, str)), "")
    line = " ".join(best.split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0
