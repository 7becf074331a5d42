"""`init`: a plan to begin with, a home for its executions, and a line that keeps the home out of git."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windlass.cli.command import Argument, Group, Option
from windlass.cli.session import CommandEnd, Home, say, suggest, with_engine
from windlass.errors import UsageError
from windlass.regular import read_regular

if TYPE_CHECKING:
    from windlass.engine.engine import Engine
    from windlass.engine.plans import Prerequisites

__all__ = ["register"]

FOLDER = Path(__file__).parent / "templates"
TEMPLATES = {
    "first": "two steps, to see how it works",
    "ci": "build, test, and a release that a person approves",
    "agent": "an agent whose work is checked until it passes",
    "fan-out": "the same for each item of a list, and one result",
    "nightly": "a backup at 3 in the night that retries, cleans up and raises an alarm",
    "research": "questions that agents answer with quotations that are looked up, and a report",
}
SETTINGS = """\
# Settings of this project: they can only be stricter than your own. See: windlass config list --all
# [budget]
# execution = 2.50    # dollars
"""


def register(app: Group) -> None:
    app.add(init)


def init(
    template: Annotated[str, Argument(metavar="TEMPLATE", help=f"One of: {', '.join(TEMPLATES)}")] = "first",
    file: Annotated[Path, Option("--file", metavar="FILE", help="The plan's file")] = Path("plan.yaml"),
    home: Home = None,
) -> None:
    """Write a plan to begin with, and make the home of its executions."""
    if template not in TEMPLATES:
        from windlass.plan.schema import nearest

        known = "\n".join(f"  {name:<9} {about}" for name, about in TEMPLATES.items())
        near = nearest(template, TEMPLATES)
        meant = f"; did you mean `{near}`?" if near else ""
        raise UsageError(f"there is no template {template!r}{meant}; there are:\n{known}")
    if file.suffix == ".json":
        raise UsageError(f"the templates are YAML, and {file} is a name for JSON: choose one like plan.yaml")
    text = (FOLDER / f"{template}.yaml").read_text(encoding="utf-8")
    text = text.replace("{file}", str(file))

    async def work(engine: Engine) -> tuple[Path, Prerequisites]:
        return engine.home, await engine.find_prerequisites(engine.read(file))

    _new(file, text)
    folder, lacks = with_engine(work, home, make=True)
    if not (settings := folder / "config.toml").exists():
        _new(settings, SETTINGS)
    if folder.name == ".windlass" and folder.parent == Path.cwd():
        _ignore(Path(".gitignore"))
    say(f"the home of its executions: {folder}")
    suggest(f"look at it: windlass plan show {file}")
    for line in lacks.missing:
        say(f"it cannot run here yet: {line}")
    for line in lacks.advice:
        suggest(f"  → {line}")
    if lacks.missing and "agent:" in text:
        suggest("  → or without a key, with a script in place of the model: windlass scripted-model --help")
    suggest(f"{'then ' if lacks.missing else ''}run it: windlass run {file}")
    raise CommandEnd(0)


def _new(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError(
            f"{file} exists, and is left as it is", advice=("choose another: windlass init --file FILE",)
        ) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
    say(f"written: {file}")


def _ignore(file: Path) -> None:
    """Keep the home out of git."""
    try:
        text = read_regular(file).decode() if file.exists() else ""
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    if {".windlass", ".windlass/", "/.windlass", "/.windlass/"}.isdisjoint(line.strip() for line in text.splitlines()):
        with file.open("a", encoding="utf-8") as stream:
            stream.write(("" if not text or text.endswith("\n") else "\n") + ".windlass/\n")
        say(f"written: {file} (.windlass/)")
