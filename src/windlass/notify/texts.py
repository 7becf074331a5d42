"""The words of notifications: one title and a few lines for people, the same as data for programs.

Names come from plans and tools, that is from anybody. `plain` takes the power out of them: of control and bidirectional
characters (terminals), line breaks (mail headers), markup and mentions (chats, desktops).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from windlass.clock import iso
from windlass.visible import one_line, visible

__all__ = ["Occasion", "Wording", "plain"]

LONGEST_NAME = 120
LONGEST_CONTENT = 4000
_POWERFUL = str.maketrans({"<": "‹", ">": "›", "`": "'", "*": "∗", "~": "∼", "|": "¦", "&": "+", "\\": "/", "#": "♯"})
_LINK = re.compile(r"(?i)\b(https?|ftp|file|javascript|data|mailto)(://|:)")
_MENTION = re.compile(r"@(?=\S)")


def plain(text: str, longest: int = LONGEST_NAME) -> str:
    """One line of somebody's text that no chat, mail, desktop or terminal takes for more than text."""
    return _tame(one_line(text.encode("utf-8", "replace").decode()), longest)


def _tame(text: str, longest: int) -> str:
    text = _MENTION.sub("@ ", text.translate(_POWERFUL).replace("](", "] ("))
    text = _LINK.sub(lambda found: f"{found[1]}: ", text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class Occasion:
    """Something that people may want to be told."""

    kinds: tuple[str, ...]
    """The kinds that rules know it by, its own first."""
    name: str
    """Names it among all occasions of its execution, or of the home where `everywhere`."""
    at: float
    title: str
    lines: tuple[str, ...]
    data: dict[str, Any]
    commands: tuple[str, ...] = ()
    """Commands to type, without `windlass`."""
    content: str = ""
    """More, for rules that want the content."""
    question: tuple[str, str, float] | None = None
    """Step, digest and end of a question that a link can answer."""
    while_open: str = ""
    until: float = 0.0
    """The end of its news, if that is another one than usual."""
    due: float | None = None
    """The time of which it tells, if that is to come."""
    ran: float | None = None
    """Seconds that the execution ran, where `after` is about these."""
    everywhere: bool = False
    """It is about the home, not about one execution."""


class Wording:
    """Makes the title, text and data of an occasion, for one place."""

    def __init__(self, home: str, public_url: str | None, clean: Callable[[str], str]) -> None:
        """`clean` hides secrets; `public_url` is where links lead."""
        self._home, self._public_url, self._clean = home, public_url, clean

    def words(self, occasion: Occasion, link: str, *, content: bool, local: bool) -> tuple[str, str, dict[str, Any]]:
        """`link` is the path of a signed link, or empty. Only a `local` reader is told where the home is."""
        windlass = f"windlass --home {shlex.quote(self._home)}" if local else "windlass"
        commands = [f"{windlass} {command}" for command in occasion.commands]
        lines = [*occasion.lines, *commands]
        facts = {**occasion.data, "kind": occasion.kinds[0], "title": occasion.title, "at": iso(occasion.at)}
        data = {name: self._clean(plain(fact)) if isinstance(fact, str) else fact for name, fact in facts.items()}
        data["commands"] = [f"windlass {command}" for command in occasion.commands]
        if content and occasion.content:
            data["content"] = _tame(visible(self._clean(occasion.content)), LONGEST_CONTENT)
            lines += ["", data["content"]]
        # Cleaned before the link is added: a signature is no secret, and must stay as it is.
        text = self._clean("\n".join(lines))
        if link and self._public_url is not None:
            address = self._public_url + link
            assert occasion.question is not None
            ends = _minute(occasion.question[2])
            text += f"\n\nSee exactly what it asks, and answer (until {ends}):\n{address}"
            data |= {"link": address, "link_until": iso(occasion.question[2])}
        return self._clean(occasion.title), text, data


def _minute(at: float) -> str:
    return f"{str(iso(at))[:16].replace('T', ' ')} UTC"
