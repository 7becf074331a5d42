"""What the tests of once-only run in processes of their own: one mail, by the tool itself or as a step of a plan.

python message_child.py use|plan WORLD_JSON
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import windlass
from windlass import Plan, Step
from windlass.errors import ToolError
from windlass.ports import Call, Tool
from windlass.settings import MessageSettings
from windlass.tools.message import message_tools

__all__ = ["MAIL", "plan", "tools"]

MAIL = {"to": "ana@example.com", "subject": "Hello", "text": "Good morning"}


def tools(told: dict[str, Any]) -> list[Tool]:
    return message_tools(MessageSettings.model_validate(told["settings"]), {}, book=Path(told["book"]))


def plan(**step: Any) -> Plan:
    first = Step(id="mail", tool="message.email", with_=MAIL, approve="never", **step)
    return Plan(name="mails", steps=[first, Step(id="after", needs=["mail"], run="true")])


async def _use(told: dict[str, Any]) -> None:
    call = Call(
        execution="x1",
        step="s",
        attempt=1,
        workdir=Path.cwd(),
        folder=Path.cwd(),
        processes=None,  # type: ignore[arg-type]  # messages start none
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    (email,) = [tool for tool in tools(told) if tool.name == "message.email"]
    try:
        result = await email.execute(MAIL, call)
    except ToolError as error:
        result = {"kind": error.failure.kind, "message": str(error)}
    sys.stdout.write(json.dumps(result) + "\n")


async def _plan(told: dict[str, Any]) -> None:
    async with windlass.open(tools=tools(told)) as engine:
        await (await engine.start(plan(), hold=False)).wait()


if __name__ == "__main__":
    asyncio.run({"use": _use, "plan": _plan}[sys.argv[1]](json.loads(sys.argv[2])))
