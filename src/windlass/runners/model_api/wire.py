"""One request to a model, streamed. The only file that makes model clients and sends anything.

The clients' own retries are off: whether and when to try again is the engine's decision, and it wants to see every
failure. Their silence limit is the HTTP client's read timeout: so long without a single byte, keep-alives included,
ends the request.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from windlass.core.budget import known_part
from windlass.core.events import Usage
from windlass.ports import ToolSpec
from windlass.prices import Prices
from windlass.runners.model_api.encoded import EncodedMessages
from windlass.runners.model_api.target import ModelTarget, Provider
from windlass.runners.result_form import is_closed
from windlass.runners.toolbox import Joiner

if TYPE_CHECKING:
    from ssl import SSLContext

    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.tools import ToolDefinition

__all__ = [
    "MOST_OUTPUT",
    "Counted",
    "ModelExchange",
    "OpenModel",
    "UsageTally",
    "clients",
    "installed",
    "load",
    "open_model",
    "refuses_form",
    "takes_form",
]

MOST_TOKENS = 10**9
"""Tokens of one reply that a server is believed."""
MOST_OUTPUT = 32_000
"""Tokens that one reply is taken to have at most: that much is reserved under a limit. Anthropic's models are told so
then; OpenAI's and those of other servers are not, because each refuses a number above its own most."""
CONNECT = 15.0
"""Seconds to wait for a connection."""

_NO_KEY = "none"
"""The clients insist on a key; a server that needs none ignores it."""


def installed(provider: Provider) -> bool:
    """Return True if the provider's clients are installed, without importing them, which takes seconds."""
    return find_spec("pydantic_ai") is not None and find_spec(provider) is not None


def clients(provider: Provider) -> tuple[str, str]:
    """The modules that speak with it. They take 2.6 s to import."""
    return "pydantic_ai.direct", f"pydantic_ai.models.{provider}"


async def load(provider: Provider) -> None:
    """Import the clients, in a thread the first time: that must not hold up other steps."""
    for name in clients(provider):
        if name not in sys.modules:
            await asyncio.to_thread(import_module, name)
    # A model that takes no temperature gets none. The user is told so by the result, not by a warning on stderr.
    warnings.filterwarnings("ignore", message="Sampling parameters", category=UserWarning)


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model that is ready to be asked."""

    client: Model
    encoded: EncodedMessages
    """The messages of its last request."""


@asynccontextmanager
async def open_model(target: ModelTarget, silence: float, sends: Callable[[bytes], None]) -> AsyncIterator[OpenModel]:
    """The model, ready to be asked; its connections are closed at the end. `sends` is called with each request body."""
    import httpx2

    encoded = EncodedMessages()

    async def sending(request: httpx2.Request) -> None:
        content = await request.aread()
        if (whole := encoded.completed(content)) is not content:
            request.stream = httpx2.ByteStream(whole)
            request.headers["content-length"] = str(len(whole))
        sends(whole)

    # Proxies of the environment are for the world outside, never for a server on this machine.
    timeout = httpx2.Timeout(silence, connect=CONNECT)
    async with httpx2.AsyncClient(
        timeout=timeout,
        trust_env=not target.local,
        verify=_certificates(),
        follow_redirects=True,
        event_hooks={"request": [sending]},
    ) as http:
        client = _anthropic if target.provider == "anthropic" else _openai
        yield OpenModel(client(target, http, timeout), encoded)


@cache
def _certificates() -> SSLContext:
    """The certificates to trust, the environment's own included. They are read once: that takes 50 ms."""
    import httpx2

    return httpx2.create_ssl_context()


def _anthropic(target: ModelTarget, http: Any, timeout: Any) -> Model:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    key = None if target.token else target.key or _NO_KEY
    client = AsyncAnthropic(
        api_key=key, auth_token=target.token, base_url=target.base_url, max_retries=0, http_client=http, timeout=timeout
    )
    return _adapting_once(AnthropicModel, target.model, AnthropicProvider(anthropic_client=client))


def _openai(target: ModelTarget, http: Any, timeout: Any) -> Model:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    client = AsyncOpenAI(
        api_key=target.key or _NO_KEY, base_url=target.base_url, max_retries=0, http_client=http, timeout=timeout
    )
    if target.own:
        return _adapting_once(
            OpenAIChatModel, target.model, OpenAICompatibleProvider(target.kind, openai_client=client)
        )
    return _adapting_once(OpenAIChatModel, target.model, OpenAIProvider(openai_client=client))


def _adapting_once(kind: Any, name: str, provider: Any) -> Model:
    """The model, with the schemas of tools adapted to the provider once for all requests with the same tools: it would
    copy and walk every one of them for each request, which takes 5 ms for 37 tools."""

    class PreparedModel(kind):  # type: ignore[misc]
        _asked: ModelRequestParameters | None = None

        def customize_request_parameters(self, model_request_parameters: ModelRequestParameters) -> Any:
            if model_request_parameters != self._asked:
                self._adapted = super().customize_request_parameters(model_request_parameters)
                self._asked = model_request_parameters
            return self._adapted

    made: Model = PreparedModel(name, provider=provider)
    return made


class ModelExchange:
    """One request and its reply, or the part of it that had come when it ended."""

    def __init__(self) -> None:
        self.text = ""
        self.response: ModelResponse | None = None
        """The reply, when it came whole."""
        self._stream: StreamedResponse | None = None
        self._refused = False

    @property
    def thinking(self) -> str:
        """The thoughts of a reply that came whole, where the model gives them."""
        parts = self.response.parts if self.response is not None else ()
        return "\n".join(part.content for part in parts if part.part_kind == "thinking" and part.content)

    @property
    def counted(self) -> Counted | None:
        """Its usage; None if the model certainly never began, and not `whole` if that is uncertain."""
        if self._stream is None:
            return None if self._refused else Counted(whole=False)
        usage = self._stream.usage
        counts = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        if not any(counts) or not all(0 <= count <= MOST_TOKENS for count in counts):
            return Counted(whole=False)  # no reply takes no tokens
        return Counted(
            tokens_in=usage.input_tokens,
            tokens_out=usage.output_tokens,
            cache_read=usage.cache_read_tokens,
            cache_write=usage.cache_write_tokens,
            whole=self.response is not None and not usage.unmeasured_requests,
        )

    async def ask(
        self,
        model: OpenModel,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolSpec],
        temperature: float | None,
        say: Callable[[str], None],
        *,
        limited: bool = False,
        form: Mapping[str, Any] | None = None,
    ) -> None:
        """Send the conversation and read the reply to its end, or raise what the clients raise. `limited`: under a
        limit, so that a reply is not to be longer than what was reserved for it. `form`: the JSON Schema of a reply
        that calls no tool."""
        try:
            await self._read(model, messages, tools, temperature, say, limited=limited, form=form)
        except Exception as error:
            self._refused = _refused(error)
            raise

    async def _read(
        self,
        model: OpenModel,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolSpec],
        temperature: float | None,
        say: Callable[[str], None],
        *,
        limited: bool,
        form: Mapping[str, Any] | None,
    ) -> None:
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

        known = [_definition(tool) for tool in tools]
        most = _most_output(model.client) if limited else None
        async with model_request_stream(
            model.client,
            [_sendable(message) for message in model.encoded.rest_of(messages)],
            model_settings=_settings(temperature, cached=bool(tools), most=most),
            model_request_parameters=_parameters(known, form),
            instrument=False,
        ) as stream:
            self._stream = stream
            joined = Joiner()
            async for event in stream:
                match event:
                    case (
                        PartStartEvent(part=TextPart(content=piece))
                        | PartDeltaEvent(delta=TextPartDelta(content_delta=piece))
                    ) if piece:
                        if whole := joined(piece):
                            self.text += whole
                            say(whole)
        response = stream.get()
        if ended(response):
            self.response = response


def ended(response: ModelResponse) -> bool:
    """The model itself said why it stopped. A stream that just ends was cut off on its way, however cleanly."""
    details = response.provider_details or {}
    return response.finish_reason == "content_filter" or bool(details.get("finish_reason"))


def _refused(error: Exception) -> bool:
    """The model never saw the request: it was answered with an error, or it never left this machine."""
    from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError, UserError

    if isinstance(error, ModelHTTPError):
        return not error.in_stream
    if isinstance(error, ModelConnectionError):
        return error.phase in ("connect", "pool")
    return isinstance(error, UserError)


def _sendable(message: ModelMessage) -> ModelMessage:
    """The message with arguments that JSON can hold: the clients read NaN, and 1e999, and fail to write them."""
    from pydantic_ai.messages import INVALID_JSON_KEY, ModelResponse, ToolCallPart

    def sendable(part: ModelResponsePart) -> ModelResponsePart:
        if isinstance(part, ToolCallPart) and isinstance(part.args, str):
            try:
                json.dumps(part.args_as_dict(), allow_nan=False)
            except ValueError:
                return dataclasses.replace(part, args=json.dumps({INVALID_JSON_KEY: part.args}))
        return part

    if not isinstance(message, ModelResponse) or not message.tool_calls:
        return message
    return dataclasses.replace(message, parts=[sendable(part) for part in message.parts])


def _definition(tool: ToolSpec) -> ToolDefinition:
    from pydantic_ai.tools import ToolDefinition

    # Not strict: the schema is the tool's own, and strict modes rewrite it.
    return ToolDefinition(
        name=tool.name, parameters_json_schema=dict(tool.schema), description=tool.description, strict=False
    )


def _parameters(tools: list[ToolDefinition], form: Mapping[str, Any] | None) -> ModelRequestParameters:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition

    if form is None:
        return ModelRequestParameters(function_tools=tools)
    return ModelRequestParameters(
        function_tools=tools, output_mode="native", output_object=OutputObjectDefinition(json_schema=dict(form))
    )


def takes_form(model: Model, target: ModelTarget, form: Mapping[str, Any] | None) -> bool:
    """True if the API can hold the model to this schema as it is. Other servers may take it and then call no tool."""
    if form is None or form.get("type") != "object" or not model.profile.get("supports_json_schema_output"):
        return False
    return is_closed(form) if target.provider == "anthropic" else not target.own


def refuses_form(error: Exception) -> bool:
    """The API refuses the request for the schema in it: it is too large for it, or has a keyword that it lacks."""
    from pydantic_ai.exceptions import ModelHTTPError

    if not isinstance(error, ModelHTTPError) or error.status_code != 400:
        return False
    return any(word in str(error.body) for word in ("output_config", "response_format", "schema"))


def _most_output(model: Model) -> int | None:
    """None where the model's own most is not known: it would refuse a higher number."""
    own: Any = model.profile.get("anthropic_max_output_tokens")
    return min(own, MOST_OUTPUT) if own else None


def _settings(temperature: float | None, *, cached: bool, most: int | None) -> Any:
    settings: dict[str, Any] = {"max_retries": 0}
    if most is not None:
        settings["max_tokens"] = most
    if temperature is not None:
        settings["temperature"] = temperature
    if cached:
        # A loop sends the same beginning again and again: the second time from Anthropic's cache, at a tenth of it.
        settings |= {"anthropic_cache_messages": True, "anthropic_cache_instructions": True}
    return settings


@dataclass(frozen=True, slots=True)
class Counted:
    """Usage of one turn, as the API reports it."""

    tokens_in: int = 0
    """Includes tokens read from a cache and written to one."""
    tokens_out: int = 0
    cache_read: int = 0
    cache_write: int = 0
    whole: bool = True
    """The API said all of it: the turn ended, and its numbers came."""


class UsageTally:
    """Tokens and dollars of one run, turn by turn.

    Every turn is priced by itself, because some models cost more per token above a size of prompt. A turn that broke
    off after the model had begun (or may have) was paid for by an unknown amount, so from then on the dollars of the
    run are at least those of the other turns; the tokens stay what was seen of them. A request that was refused before
    the model began cost nothing.
    """

    def __init__(self, prices: Prices, model: str, priced_as: str) -> None:
        self._prices, self.priced_as = prices, priced_as
        self._sum = Usage(model=model, usd=0.0, source="prices")

    @property
    def usage(self) -> Usage:
        return self._sum

    def another(self, model: str, priced_as: str) -> UsageTally:
        """An empty tally of another model, by the same prices."""
        return UsageTally(self._prices, model, priced_as)

    @property
    def tokens(self) -> int:
        return self._sum.tokens_in + self._sum.tokens_out

    def add(self, turn: Counted, at: float, priced_as: str = "") -> Usage:
        """Add a turn; returns its own usage. `priced_as` is the model of a turn that the run's own did not make."""
        before = self._sum
        used = Usage(
            tokens_in=turn.tokens_in,
            tokens_out=turn.tokens_out,
            cache_read=turn.cache_read,
            cache_write=turn.cache_write,
        )
        usd = self._prices.cost(priced_as or self.priced_as, used, at) if turn.whole else None
        known = usd is not None and before.usd is not None
        dollars = known_part(before) + (usd or 0.0)
        self._sum = Usage(
            tokens_in=before.tokens_in + turn.tokens_in,
            tokens_out=before.tokens_out + turn.tokens_out,
            cache_read=before.cache_read + turn.cache_read,
            cache_write=before.cache_write + turn.cache_write,
            usd=dollars if known else None,
            source="prices" if known else "unknown",
            model=before.model,
            at_least=0.0 if known else dollars,
        )
        return replace(used, usd=usd, source="unknown" if usd is None else "prices", model=before.model)
