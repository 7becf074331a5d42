"""The command that installs parts of Windlass where it runs: by pip, or by the program that made the environment (I7).

Advice says `pip install 'windlass[code]'`. An environment of `uv tool` or pipx is changed by that program alone, and is
made of what its last command named: so the command names the parts that are there, too. Only advice of ours passes
here, never a text of a plan, a step or an agent.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from typing import Any

__all__ = ["fitting_install", "install_command"]

_ADVICE = re.compile(
    r"(?:^|(?<=[:;] ))pip install (?P<flag>--upgrade |--force-reinstall )?"
    r"(?P<quote>'?)windlass(?:\[(?P<extras>[\w,]+)\])?(?P=quote)(?= or |;|$)"
)
_UV, _PIPX = "uv-receipt.toml", "pipx_metadata.json"
"""Files that programs leave in an environment which they alone change."""


def fitting_install(text: str) -> str:
    """Advice with `pip install windlass…` as it works here."""
    if "pip install" not in text or (maker := _maker()) is None:
        return text
    return _ADVICE.sub(lambda found: shlex.join(_command(maker, found["extras"] or "", found["flag"] or "")), text)


def install_command(extras: str) -> tuple[str, ...]:
    """The words of the command that adds extras to this environment."""
    if (maker := _maker()) is not None:
        return _command(maker, extras)
    if find_spec("pip") is None and shutil.which("uv"):
        return ("uv", "pip", "install", "--python", sys.executable, f"windlass[{extras}]")
    return (sys.executable, "-m", "pip", "install", f"windlass[{extras}]")


def _maker() -> str | None:
    return next((name for name in (_UV, _PIPX) if os.path.exists(os.path.join(sys.prefix, name))), None)


def _command(maker: str, extras: str, flag: str = "") -> tuple[str, ...]:
    program = ("uv", "tool") if maker == _UV else ("pipx",)
    if "--upgrade" in flag:
        return (*program, "upgrade", "windlass")
    anew = ("--force",) if maker == _PIPX else ("--reinstall",) if flag else ()
    return (*program, "install", *anew, _package(maker, extras))


def _package(maker: str, extras: str) -> str:
    """The package with these extras and those that were installed before, from the file that it came from."""
    try:
        source, before = _uv_source() if maker == _UV else _pipx_source()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # their file, which may take another form
        source, before = "", []
    named = ",".join(sorted({*before, *extras.split(",")} - {""}))
    return (source if os.path.isabs(source) else "windlass") + (f"[{named}]" if named else "")


def _uv_source() -> tuple[str, list[str]]:
    import tomllib

    with open(os.path.join(sys.prefix, _UV), "rb") as file:
        receipt: dict[str, Any] = tomllib.load(file)
    own = [one for one in receipt["tool"]["requirements"] if one["name"] == "windlass"][0]  # noqa: RUF015 - IndexError
    return own.get("path") or own.get("directory") or "", own.get("extras", [])


def _pipx_source() -> tuple[str, list[str]]:
    with open(os.path.join(sys.prefix, _PIPX), "rb") as file:
        named: str = json.load(file)["main_package"]["package_or_url"]
    source, _, extras = named.partition("[")
    return source, extras.partition("]")[0].split(",")
