"""`demo`: a real plan on this machine, with no key and no server, to see what a run looks like.

Only the words of its agent are scripted, and it says so: a model's would need a key.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

from windlass.cli.begin import begin
from windlass.cli.browser import can_open
from windlass.cli.command import Group, Option
from windlass.cli.run import ProgressOption, see_through
from windlass.cli.session import AsJson, CommandEnd, Home, say, suggest, with_engine
from windlass.cli.view import Progress, view_for
from windlass.engine.engine import Engine
from windlass.journal.stores import HomeStores

__all__ = ["register"]

PLAN = Path(__file__).parent / "demo.yaml"
WORDS = "I have read REPORT.md with a tool, and it answers its title. (A script says this; a model would say more.)"


def register(app: Group) -> None:
    app.add(demo)


def demo(
    folder: Annotated[
        Path | None, Option("--folder", metavar="DIR", help="Working directory (default: in the home)")
    ] = None,
    open_browser: Annotated[bool, Option("--open", help="Show it in the browser afterwards, until Ctrl-C")] = False,
    progress: ProgressOption = Progress.AUTO,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Run a small real plan with shell, files, a fan-out, a retry and a scripted agent."""
    from windlass.testing import Reply, ScriptedModel

    shown = ""

    async def work(engine: Engine) -> int:
        nonlocal shown
        workdir = (folder or engine.home / "demo").resolve()
        workdir.mkdir(parents=True, exist_ok=True)
        say(f"the plan: {PLAN}")
        say(f"working directory: {workdir}")
        say("its agent uses a scripted model on this machine, not a real one: no key, no cost")
        say("")
        starting = engine.start(engine.read(PLAN), {"python": sys.executable}, workdir=workdir)
        execution = await begin(engine, starting)
        code = await see_through(engine, execution, view_for(progress), yes=True, as_json=as_json)
        say("")
        say(f"the result: {workdir / 'REPORT.md'}")
        say(f"stored in:  {HomeStores(engine.home, engine.settings.journal).shown}")
        suggest(f"show again: windlass status {execution.id}")
        suggest(f"            windlass logs {execution.id}")
        suggest("in a browser: windlass serve --open")
        shown = f"/executions/{execution.id}"
        suggest(f"re-run:     windlass fork {execution.id} --from count   # repeats only a part of it")
        if shutil.which("windlass") is None:
            say(f"(type it as {min(os.path.relpath(sys.argv[0]), sys.argv[0], key=len)}: windlass is not on your PATH)")
        return code

    script = [Reply.use("files__read", {"path": "REPORT.md"}), Reply.say(WORDS)]
    with ScriptedModel(script) as model:
        os.environ |= {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none-needed"}
        code = with_engine(work, home, make=True, prices={"scripted-model": {"input": 0, "output": 0}})
    if open_browser and code == 0 and can_open() and sys.stdin.isatty() and sys.stderr.isatty():
        from windlass.cli.serve import open_dashboard

        say("")
        open_dashboard(home, shown)
    raise CommandEnd(code)
