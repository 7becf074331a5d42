"""What each plan must have brought about when it is called completed: files, results, messages that arrived."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from runner import World

__all__ = ["ENDS", "OUTCOMES", "check"]

Outputs = dict[str, Any]
Outcome = Callable[[World, Outputs], bool]


def _json(requests: list[Any]) -> list[Any]:
    """What a service was told, each message once: it is told the same again while it is busy."""
    found = [json.loads(request.body) for request in requests]
    return [told for index, told in enumerate(found) if told not in found[:index]]


def _mailed(world: World, out: Outputs) -> bool:
    (mail,) = world.mail.mails
    (attached,) = mail.parsed.iter_attachments()
    return mail.recipients == ["ana@example.com"] and "all is well" in str(attached.get_content())


def _chatted(world: World, out: Outputs) -> bool:
    (told,) = _json(world.chat.requests)
    return bool(told["message"] == "It is done." and told["title"] == "News")


def _wrote_all(world: World, out: Outputs) -> bool:
    page = "rope: Windlass, Capstan"
    told = _json(world.hook.requests)
    return world.text("page.txt") == page and out["sum"]["result"] == 22 and told == [{"length": len(page)}]


OUTCOMES: dict[str, Outcome] = {
    "shell-pipeline": lambda w, out: w.text("sorted.txt") == "a\nb\nc\n" and out["count"]["stdout"] == "3 sorted.txt\n",
    "files-write-read": lambda w, out: out["read"]["content"] == "a drum and a crank",
    "files-edit-patch": lambda w, out: w.text("a.txt") == "one\ndeux\nthree\n",
    "files-move-copy-delete": lambda w, out: (
        [entry["path"] for entry in out["list"]["entries"]] == ["c.txt"] and w.text("c.txt") == "kept"
    ),
    "files-apply-search": lambda w, out: [match["path"] for match in out["search"]["matches"]] == ["src/a.py"],
    "http-get-save": lambda w, out: w.text("item.txt") == "rope",
    "http-put-delete": lambda w, out: (
        [method for method, _ in w.kept] == ["PUT", "DELETE"] and out["head"]["status"] == 200
    ),
    "http-post-patch": lambda w, out: w.kept == [("POST", {"item": "rope"}), ("PATCH", {"item": "chain"})],
    "http-download": lambda w, out: out["count"]["stdout"].strip() == "10000" and out["fetch"]["bytes"] == 10000,
    "search-report": lambda w, out: (
        w.text("report.md") == "- Windlass: https://x.test/windlass\n- Capstan: https://x.test/capstan\n"
    ),
    "message-email": _mailed,
    "message-webhook": lambda w, out: _json(w.hook.requests) == [{"year": "2026"}],
    "message-send": _chatted,
    "mcp-sum": lambda w, out: out["add"]["result"] == 42 and "THE SUM IS THERE" in json.dumps(out["shout"]),
    "code-files": lambda w, out: out["count"] == 6 and w.text("texts/2.txt") == "one two three",
    "code-web": lambda w, out: out["work"] == 42 and w.text("told.txt") == "rope 42",
    "composed": lambda w, out: (
        out["again"] == "bob.txt" and (w.text("ann.txt"), w.text("bob.txt")) == ("hello ann", "hello bob")
    ),
    "foreach-when": lambda w, out: (
        out["count"]["stdout"] == "alpha\nbeta\ngamma\n" and not (w.work / "published").exists()
    ),
    "optional": lambda w, out: w.text("rest.txt").lower() == "without it: true",
    "fallback": lambda w, out: out["ask"] == "how deep: nine fathoms",
    "retries": lambda w, out: len(w.text("tries").split()) == 3,
    "takes-charge": lambda w, out: w.text("failed.txt") == "logic",
    "everything": _wrote_all,
}
ENDS = {"takes-charge": "partial"}
"""All others end completed."""


def check(world: World, name: str, result: dict[str, Any]) -> None:
    """A plan that is said to have ended as it should really has."""
    outputs = {step["id"]: step["output"] for step in result["steps"]}
    assert OUTCOMES[name](world, outputs), (
        f"{name} is {result['status']}, but this is not what it should bring: {outputs}"
    )
