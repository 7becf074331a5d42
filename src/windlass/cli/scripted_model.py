"""`scripted-model`: a script in place of a model, to try plans with agents without a key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windlass.cli.command import Argument, Group, Option
from windlass.cli.session import CommandEnd
from windlass.testing.scripted_model import serve_file

__all__ = ["register"]


def register(app: Group) -> None:
    app.add(scripted_model, "scripted-model")


def scripted_model(
    script: Annotated[Path, Argument(metavar="SCRIPT", help="A YAML or JSON file: a list of replies")],
    port: Annotated[int, Option("--port", metavar="N", min=0, max=65535, help="Listen here; 0 is any free port")] = 0,
    check: Annotated[bool, Option("--check", help="At the end, exit 1 if errors or unused replies are left")] = False,
) -> None:
    """Serve a script in place of a model: print its address, and answer until SIGTERM or Ctrl-C.

    \b
    A script has a reply for each request, in their order:
      - use: {tool: files__write, input: {path: hello.sh, content: "echo hello"}}
      - say: Written.

    \b
    In another terminal, with the address that it prints:
      export ANTHROPIC_BASE_URL=ADDRESS ANTHROPIC_API_KEY=none
      windlass run plan.yaml --runtime cli
    """
    raise CommandEnd(serve_file(script, port, check=check))
