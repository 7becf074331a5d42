"""The seams: small protocols for everything that the engine needs from outside.

Adapters implement them, the engine knows nothing else of them, and one conformance suite each holds every
adapter to the same promises.
"""

from __future__ import annotations

from windlass.ports.composed import ComposedStore, ComposedTool, Uses
from windlass.ports.history import History
from windlass.ports.journal import OVER_BUDGET, Archive, AskedQuestion, Entry, Head, Journal, Message, Note
from windlass.ports.ledger import Amount, Charge, Ledger, ReservationRefused, Scope, Spending
from windlass.ports.meter import Meter
from windlass.ports.runner import (
    AgentRequest,
    AgentResult,
    Brief,
    ChooseTools,
    Handoff,
    Host,
    Media,
    Part,
    Permissions,
    PromptAttachment,
    Runner,
    RunnerHooks,
    SummaryMethod,
    ToolReturn,
    ToolSpec,
    Usage,
    account_name,
    hooks_of,
)
from windlass.ports.sandbox import (
    Delivery,
    GuestCall,
    GuestError,
    Program,
    ProgramError,
    ProgramLimits,
    ProgramRun,
    ProgramTurn,
    Sandbox,
    Trouble,
)
from windlass.ports.telemetry import (
    CurrentAttempt,
    SpanCounts,
    Telemetry,
    current_attempt,
    incoming_traceparent,
)
from windlass.ports.terms import Estimate, GateStore, Rate, Terms
from windlass.ports.tool import Answer, Call, Contact, Health, PersonAnswer, Tool, Toolbox, ToolLike, as_tool, health_of

__all__ = [
    "OVER_BUDGET",
    "AgentRequest",
    "AgentResult",
    "Amount",
    "Answer",
    "Archive",
    "AskedQuestion",
    "Brief",
    "Call",
    "Charge",
    "ChooseTools",
    "ComposedStore",
    "ComposedTool",
    "Contact",
    "CurrentAttempt",
    "Delivery",
    "Entry",
    "Estimate",
    "GateStore",
    "GuestCall",
    "GuestError",
    "Handoff",
    "Head",
    "Health",
    "History",
    "Host",
    "Journal",
    "Ledger",
    "Media",
    "Message",
    "Meter",
    "Note",
    "Part",
    "Permissions",
    "PersonAnswer",
    "Program",
    "ProgramError",
    "ProgramLimits",
    "ProgramRun",
    "ProgramTurn",
    "PromptAttachment",
    "Rate",
    "ReservationRefused",
    "Runner",
    "RunnerHooks",
    "Sandbox",
    "Scope",
    "SpanCounts",
    "Spending",
    "SummaryMethod",
    "Telemetry",
    "Terms",
    "Tool",
    "ToolLike",
    "ToolReturn",
    "ToolSpec",
    "Toolbox",
    "Trouble",
    "Usage",
    "Uses",
    "account_name",
    "as_tool",
    "current_attempt",
    "health_of",
    "hooks_of",
    "incoming_traceparent",
]
