"""`doctor --fix`: run the commands that the findings name, each after a question.

Only the three kinds of commands that the findings themselves suggest are run: packages of an extra, a program from npm,
and permissions of the home. They are run without a shell.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from windlass.cli.install_advice import install_command
from windlass.cli.session import attended, say
from windlass.errors import UsageError

if TYPE_CHECKING:
    from windlass.cli.doctor import Finding

__all__ = ["fix_findings"]

_EXTRA = re.compile(r"\bpip install 'windlass\[([\w,]+)\]'")
_NPM = re.compile(r"\bnpm i -g ([@\w./-]+)")
_CHMOD = re.compile(r"\bchmod (700|u\+w) (.+)$")


def fix_findings(findings: Iterable[Finding], yes: bool) -> int:
    """Run what mends them; returns how many commands were run. With `yes`, what is optional is left alone."""
    if not yes and not attended():
        raise UsageError(
            "doctor --fix asks before each command, and there is no terminal to ask on",
            advice=("to run them unasked: --fix --yes",),
        )
    ran = 0
    for words, wanted in _commands(findings):
        # Not before its turn: it names what the command before it has installed.
        command = install_command(words[1]) if words[0] == "pip" else words
        shown = shlex.join(command)
        if not (wanted if yes else click.confirm(f"run {shown}?", default=wanted, err=True)):
            continue
        say(f"running: {shown}")
        ran += 1
        try:
            code = subprocess.run(command, stdout=sys.stderr.fileno(), check=False).returncode
        except OSError as error:
            say(f"cannot run it: {error.strerror}")
        else:
            if code:
                say(f"it ended with exit code {code}")
    return ran


def _commands(findings: Iterable[Finding]) -> Iterable[tuple[tuple[str, ...], bool]]:
    """Each command once, with whether it mends something that is wrong, not only missing."""
    found: dict[tuple[str, ...], bool] = {}
    for finding in findings:
        if command := _command(finding.mend):
            found[command] = found.get(command, False) or not finding.optional
    return found.items()


def _command(mend: str) -> tuple[str, ...]:
    """The command in an advice, as words, or `pip` and extras; empty if it is one for people."""
    if extra := _EXTRA.search(mend):
        return ("pip", extra[1])
    if (package := _NPM.search(mend)) and shutil.which("npm"):
        return ("npm", "i", "-g", package[1])
    if mode := _CHMOD.search(mend):
        return ("chmod", mode[1], mode[2])
    return ()
