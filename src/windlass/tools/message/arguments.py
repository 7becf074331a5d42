"""The arguments and results of the message tools."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from windlass.tools.functional import Arguments

__all__ = ["Email", "EmailSent", "Send", "Sent", "Webhook", "WebhookSent"]

MOST_RECIPIENTS = 50
MOST_ATTACHMENTS = 20
LONGEST_SUBJECT = 500


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Addresses = Annotated[list[str], BeforeValidator(_one_or_more), Field(max_length=MOST_RECIPIENTS)]
Paths = Annotated[list[str], BeforeValidator(_one_or_more), Field(max_length=MOST_ATTACHMENTS)]
ServiceName = Annotated[
    str | None, Field(description="Its name in the settings; may be left out when there is only one that fits")
]
Literally = Annotated[
    bool, Field(description="Send `{{ … }}` as it stands; otherwise a template that was not filled in is refused")
]


class Email(Arguments):
    service: ServiceName = None
    to: Addresses = []
    """Plain addresses, each on the settings' list of recipients."""
    cc: Addresses = []
    bcc: Addresses = []
    subject: str = Field(max_length=LONGEST_SUBJECT)
    text: str | None = None
    html: str | None = None
    attachments: Paths = []
    """Paths inside the working directory."""
    literal: Literally = False

    @model_validator(mode="after")
    def _complete(self) -> Email:
        if not self.everybody:
            raise ValueError("a mail needs a recipient: give `to`, `cc` or `bcc`")
        if len(self.everybody) > MOST_RECIPIENTS:
            raise ValueError(f"a mail goes to {MOST_RECIPIENTS} recipients at most")
        if self.text is None and self.html is None:
            raise ValueError("give `text`, `html` or both")
        return self

    @property
    def everybody(self) -> list[str]:
        """Each recipient once."""
        return list(dict.fromkeys([*self.to, *self.cc, *self.bcc]))


class Refusal(Arguments):
    recipient: str
    code: int
    reason: str


class _Result(Arguments):
    service: str
    sent_at: str
    repeated: bool = False
    """It had been sent before, by the same step: nothing was sent now, and this is what came of it then."""


class EmailSent(_Result):
    message_id: str
    code: int
    response: str
    """The server's answer when it took the message over."""
    accepted: list[str]
    refused: list[Refusal]
    """Recipients that the server would not take; the others have it."""


class Send(Arguments):
    service: ServiceName = None
    text: str
    title: str = Field(default="", max_length=LONGEST_SUBJECT)
    format: Literal["text", "markdown", "html"] = "text"
    level: Literal["info", "success", "warning", "failure"] = "info"
    attachments: Paths = []
    """Paths inside the working directory, for services that take files."""
    literal: Literally = False


class Sent(_Result):
    kind: str
    """The kind of service: Slack, Discord, JSON …"""


class Webhook(Arguments):
    service: ServiceName = None
    data: JsonValue
    """The data to post, as JSON."""


class WebhookSent(_Result):
    id: str
    """The Idempotency-Key that went with it: the same for every attempt."""
    status: int
    response: str
    """The beginning of the answer."""
