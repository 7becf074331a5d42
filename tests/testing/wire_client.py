"""A client that knows nothing but HTTP, for the tests of the scripted model."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from windlass.testing import ScriptedModel

ANTHROPIC = "/v1/messages"
OPENAI = "/v1/chat/completions"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Server-sent events: (name, data); without a name, the data's own object kind."""
        found = []
        for frame in self.body.decode().removesuffix("\n\n").split("\n\n"):
            lines = dict(line.split(": ", 1) for line in frame.split("\n"))
            assert set(lines) <= {"event", "data"}, frame
            data = lines["data"] if lines["data"] == "[DONE]" else json.loads(lines["data"])
            found.append((lines.get("event", ""), data))
        return found


def connect(model: ScriptedModel) -> http.client.HTTPConnection:
    host, port = model.url.removeprefix("http://").split(":")
    return http.client.HTTPConnection(host, int(port), timeout=180)


def ask(model: ScriptedModel, path: str, **more: Any) -> Answer:
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}], **more}
    return send(model, "POST", path, json.dumps(body))


def send(model: ScriptedModel, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    line = connect(model)
    try:
        line.request(method, path, body, headers)
        got = line.getresponse()
        return Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())
    finally:
        line.close()


def say(model: ScriptedModel | str, text: str, agent: str = "test", **more: Any) -> str:
    """What the model answers, by the Anthropic protocol; the message of an error, if it is one."""
    url = model if isinstance(model, str) else model.url
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    headers = {"user-agent": agent, **({"x-session-id": more["session"]} if "session" in more else {})}
    request = urllib.request.Request(f"{url}/v1/messages", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=180) as answer:
            return "".join(block.get("text", "") for block in json.load(answer)["content"])
    except urllib.error.HTTPError as error:
        return f"{error.code}: {json.load(error)['error']['message']}"
