"""What each plan must have brought about when it is called completed: files, results, messages that arrived."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from models import DESIGN
from runner import World
from servers import FILE

__all__ = ["ENDS", "OUTCOMES", "check", "check_once"]

Outputs = dict[str, Any]
Outcome = Callable[[World, Outputs], bool]


def _json(requests: list[Any]) -> list[Any]:
    """What a service has taken."""
    return [json.loads(request.body) for request in requests]


def _mailed(world: World, out: Outputs) -> bool:
    (mail,) = world.mail.mails
    (attached,) = mail.parsed.iter_attachments()
    return mail.recipients == ["ana@example.com"] and "all is well" in str(attached.get_content())


def _chatted(world: World, out: Outputs) -> bool:
    (told,) = _json(world.chat.requests)
    return bool(told["message"] == "It is done." and told["title"] == "News")


def _told_all(world: World, out: Outputs) -> bool:
    (mail,) = world.mail.mails
    return (
        "It is done." in mail.raw.decode() and _json(world.hook.requests) == [{"done": True}] and _chatted(world, out)
    )


def _put_and_deleted(world: World, out: Outputs) -> bool:
    """Each may have been done again: that changes nothing."""
    methods = list(dict.fromkeys(method for method, _ in world.shop.kept))
    return methods == ["PUT", "DELETE"] and out["head"]["status"] == 200


def _wrote_all(world: World, out: Outputs) -> bool:
    page = "rope: Windlass, Capstan"
    told = _json(world.hook.requests)
    return world.text("page.txt") == page and out["sum"]["result"] == 22 and told == [{"length": len(page)}]


def _ordered(world: World, out: Outputs) -> bool:
    return list(world.shop.orders.values()) == [{"who": "Ana"}] and out["read"]["text"] == "Thank you, Ana"


def _kept(world: World, out: Outputs) -> bool:
    picture, pdf, file = (world.artifact(out[step]) for step in ("picture", "pdf", "file"))
    return picture.startswith(b"\x89PNG") and pdf.startswith(b"%PDF") and file == FILE


def _reckoned(world: World, out: Outputs) -> bool:
    return world.text("sum.txt") == "42" and _json(world.hook.requests) == [{"said": "The sum is 42."}]


OUTCOMES: dict[str, Outcome] = {
    "shell-pipeline": lambda w, out: w.text("sorted.txt") == "a\nb\nc\n" and out["count"]["stdout"] == "3 sorted.txt\n",
    "files-write-read": lambda w, out: out["read"]["content"] == "a drum and a crank",
    "files-edit-patch": lambda w, out: w.text("a.txt") == "one\ndeux\nthree\n",
    "files-move-copy-delete": lambda w, out: (
        [entry["path"] for entry in out["list"]["entries"]] == ["c.txt"] and w.text("c.txt") == "kept"
    ),
    "files-apply-search": lambda w, out: [match["path"] for match in out["search"]["matches"]] == ["src/a.py"],
    "http-get-save": lambda w, out: w.text("item.txt") == "rope",
    "http-put-delete": _put_and_deleted,
    "http-post-patch": lambda w, out: w.shop.kept == [("POST", {"item": "rope"}), ("PATCH", {"item": "chain"})],
    "http-download": lambda w, out: out["count"]["stdout"].strip() == "10000" and out["fetch"]["bytes"] == 10000,
    "search-report": lambda w, out: (
        w.text("report.md") == "- Windlass: https://x.test/windlass\n- Capstan: https://x.test/capstan\n"
    ),
    "message-email": _mailed,
    "message-webhook": lambda w, out: _json(w.hook.requests) == [{"year": "2026"}],
    "message-send": _chatted,
    "message-all": _told_all,
    "mcp-sum": lambda w, out: out["add"]["result"] == 42 and "THE SUM IS THERE" in json.dumps(out["shout"]),
    "mcp-note": lambda w, out: w.desk.notes == ["the rope is paid for"] and out["sum"]["result"] == 2,
    "browser-form": _ordered,
    "browser-table": lambda w, out: w.text("rows.csv") == "Name,Fathoms\nRope,120\nChain,45\n",
    "browser-keeps": _kept,
    "agent-chain": lambda w, out: out["read"]["content"] == w.text("WINCH.md") == DESIGN == out["design"],
    "agent-tools": _reckoned,
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


def check_once(world: World, name: str) -> None:
    """However it ended, nothing that must happen once is in the world twice."""
    done = {
        "mail": [mail.raw for mail in world.mail.mails],
        "webhook": _json(world.hook.requests),
        "chat": _json(world.chat.requests),
        "note": world.desk.notes,
        "order": list(world.shop.orders),
        **{method: [kept for kept in world.shop.kept if kept[0] == method] for method in ("POST", "PATCH")},
    }
    twice = {what: found for what, found in done.items() if len(found) > 1}
    assert not twice, f"{name} did more than once what must happen once: {twice}"
