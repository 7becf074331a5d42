"""`scripted-model`: a script in place of a model, to try plans with agents without a key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windlass.cli.command import Argument, Group, Option
from windlass.cli.session import CommandEnd
from windlass.testing.scripted.program import serve_file, serve_while

__all__ = ["register"]


def register(app: Group) -> None:
    app.add(scripted_model, "scripted-model")


def scripted_model(
    script: Annotated[Path, Argument(metavar="SCRIPT", help="A YAML or JSON file: a list of replies")],
    port: Annotated[int, Option("--port", metavar="N", min=0, max=65535, help="Listen here; 0 is any free port")] = 0,
    check: Annotated[bool, Option("--check", help="At the end, exit 1 if errors or unused replies are left")] = False,
    command: Annotated[
        list[str] | None, Argument(metavar="-- COMMAND", help="Run it against the model, and end with its exit code")
    ] = None,
) -> None:
    """Serve a script in place of a model, while COMMAND runs; without one, until SIGTERM or Ctrl-C.

    \b
    A script has a reply for each request, in their order:
      - use: {tool: files__write, input: {path: hello.sh, content: "echo hello"}}
      - say: Written.

    \b
    windlass scripted-model script.yaml -- windlass run plan.yaml --runtime cli

    \b
    Without COMMAND it prints its address, for another terminal:
      export ANTHROPIC_BASE_URL=ADDRESS ANTHROPIC_API_KEY=none
      windlass run plan.yaml --runtime cli
    """
    if command:
        raise CommandEnd(serve_while(command, script, port, check=check))
    raise CommandEnd(serve_file(script, port, check=check))
