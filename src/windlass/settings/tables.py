"""Tables of the settings for budgets, runtimes, prices, permissions, approvals, traces and notifications."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, get_args

from windlass.plan.quantities import Duration, Wait
from windlass.runtimes import ModelClass
from windlass.values import CheckedValue, field

__all__ = [
    "LOCAL_CHANNELS",
    "ApprovalSettings",
    "BudgetSettings",
    "ContextSettings",
    "LimitSettings",
    "NotifyRule",
    "PermissionSettings",
    "PriceSettings",
    "RuntimeSettings",
    "TelemetrySettings",
    "nearest",
]


class LimitSettings(CheckedValue):
    """A limit in dollars, tokens or both; a bare number is dollars."""

    usd: float | None = field(default=None, ge=0, allow_inf_nan=False)
    tokens: int | None = field(default=None, ge=0)

    @classmethod
    def _before(cls, value: Any) -> Any:
        return {"usd": value} if isinstance(value, int | float | str) and not isinstance(value, bool) else value


class BudgetSettings(CheckedValue):
    """Limits of spending (E1). Days and months are those of the computer's time zone."""

    step: LimitSettings = LimitSettings.model_construct()
    """For each step of a plan, all its attempts together."""
    execution: LimitSettings = LimitSettings.model_construct()
    """For each execution; `--budget` and a plan's own `budget` take its place."""
    day: LimitSettings = LimitSettings.model_construct()
    """For all executions of this home in a day."""
    month: LimitSettings = LimitSettings.model_construct()
    """For all executions of this home in a month."""
    on_overrun: Literal["ask", "proceed"] = "ask"
    """At a limit, ask a person or proceed with a warning."""
    reserve_usd: float | None = field(default=None, gt=0, le=1000)
    """Dollars reserved for one call of a model, in place of the most that it can cost: more agents fit side by side,
    and each may pass a limit by the rest of its call."""


class RuntimeSettings(CheckedValue):
    """One runtime for agents."""

    path: str | None = None
    """The program, where it is not the one on PATH."""
    command: tuple[str, ...] = ()
    """For `acp`, `gemini` and `codex`: the agent's program and its arguments, by which it speaks the protocol."""
    model: str | None = None
    """The model, where a step and its role name none."""
    models: dict[ModelClass, str] = {}
    """Models by class, for when it takes over from a runtime with a model of that class."""
    base_url: str | None = None
    """For `cli`: the OpenAI-compatible server to speak to."""
    engine_tools: Literal["code", "all", "none"] = "code"
    """For all but `cli`: the engine's tools that agents are told of. `code`: programs, which can call
    all of them, and composed tools; `all`: each of them by itself, too; `none`: none."""


class ContextRuleSettings(CheckedValue):
    """The context of the agents of one role."""

    threshold: float | None = field(default=None, ge=0.1, le=0.95)
    model: str | None = None


class ModelContextSettings(ContextRuleSettings):
    """The context of the agents of one model."""

    window: int | None = field(default=None, ge=2_000)
    """Tokens that it can read at once, where the price data do not know it or are wrong."""


class ContextSettings(CheckedValue):
    """The summaries that keep a conversation within its model's window (F1). A plan's own `context` comes first."""

    threshold: float | None = field(default=None, ge=0.1, le=0.95)
    """Part of the window at which the older messages are summarised; 0.8 if nothing is set."""
    model: str | None = None
    """The model that summarises, for `cli`. Unset: the step's own."""
    roles: dict[str, ContextRuleSettings] = {}
    """The same for one role."""
    models: dict[str, ModelContextSettings] = {}
    """The same for one model, by its id or a pattern, and its window."""


class PriceSettings(CheckedValue):
    """Dollars per million tokens."""

    input: float = field(ge=0, allow_inf_nan=False)
    output: float = field(ge=0, allow_inf_nan=False)
    cache_read: float | None = field(default=None, ge=0, allow_inf_nan=False)
    cache_write: float | None = field(default=None, ge=0, allow_inf_nan=False)


class RolePermissionSettings(CheckedValue):
    """Rights of the agents of one role."""

    mode: Literal["ask", "allow", "deny"] | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class PermissionSettings(CheckedValue):
    """Rights of agents without asking a person. A role's own file may only be stricter."""

    mode: Literal["ask", "allow", "deny"] = "ask"
    """Decision on a request that no list decides."""
    allow: tuple[str, ...] = ()
    """Tools that need no question, by the runtime's own names: `Read`, `Bash(git log:*)`, `files.*`."""
    deny: tuple[str, ...] = ()
    """Tools that are refused unasked."""
    roles: dict[str, RolePermissionSettings] = {}
    """The same for one role."""


class ApprovalSettings(CheckedValue):
    """Tools that need a person's approval before a step uses them. A project can only add to the user's lists."""

    always: tuple[str, ...] = ()
    """Tools that always need approval, also against the plan; names and patterns like `shell`, `files.*`."""
    sensitive: tuple[str, ...] = ("files.delete", "message.*")
    """For steps with `approve: sensitive`."""


class TelemetrySettings(CheckedValue):
    """Traces by OpenTelemetry (I6). Without an `endpoint` there are none, whatever the OTEL_… variables say."""

    endpoint: str | None = None
    """An OTLP receiver, HTTP with protobuf: `http://localhost:4318`. `/v1/traces` is added where it is missing."""
    headers_env: dict[str, str] = {}
    """Headers by the environment variables that hold them: `{Authorization = "OTLP_AUTH"}`."""
    content: bool = False
    """Send prompts, arguments, outputs and messages, too; secrets in them are replaced."""
    propagate: bool = True
    """Tell the processes of steps and agents their span, as `TRACEPARENT`."""
    timeout: Duration = 10.0
    """Seconds that a request may take, with its retries; then its spans are dropped."""

    def _after(self) -> TelemetrySettings:
        if self.endpoint is None:
            return self
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(self.endpoint)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            fits = False
        if not fits or parts.query or parts.fragment:
            raise ValueError("`endpoint` is an address like http://localhost:4318")
        if "@" in parts.netloc:
            raise ValueError("`endpoint` holds a password: put it into a variable, and name that in `headers_env`")
        return self


NotifyKind = Literal["approval", "failed", "done", "budget", "quota"]
LOCAL_CHANNELS = ("desktop", "bell")
"""Places for notifications that are no message service."""


class NotifyRule(CheckedValue):
    """One rule about notifications (I8): what is told to whom. Of several that fit one place, the first counts."""

    to: str
    """`desktop`, `bell` (the terminal of `windlass run`), or the name of a message service."""
    on: tuple[NotifyKind, ...] = get_args(NotifyKind)
    recipients: tuple[str, ...] = ()
    """Mail addresses, for a mail service; each gets a mail of its own."""
    after: Wait = 0
    """Seconds that an execution must have run, or a question must have waited."""
    plans: tuple[str, ...] = ()
    """Names and patterns of plans: `release*`. Empty is all."""
    content: bool = False
    """Add the contents: what a step asks to do, and the message of an error."""

    @classmethod
    def _before(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if unknown := next((key for key in value if key not in cls.model_fields), None):
            raise ValueError(f"`{unknown}` is not a key of a rule; {nearest(unknown, cls.model_fields)}")
        lists = {key: [value[key]] for key in ("on", "recipients", "plans") if isinstance(value.get(key), str)}
        given = {**value, **lists}
        for kind in given["on"] if isinstance(given.get("on"), list) else ():
            if kind not in get_args(NotifyKind):
                raise ValueError(f"`on`: there is no {str(kind)[:80]!r}; {nearest(str(kind), get_args(NotifyKind))}")
        return given

    def _after(self) -> NotifyRule:
        if not self.on:
            raise ValueError("`on` is empty: name the kinds to send, or leave it out for all")
        return self


def nearest(word: str, known: Collection[str]) -> str:
    """The known word that was meant, or all of them."""
    import difflib

    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean `{near[0]}`?" if near else "known: " + ", ".join(known)
