"""Brings into packages what git does not hold: QuickJS and the built dashboard, before their files are gathered.

A wheel also has the pages of the documentation, for `windlass docs`.

An sdist carries the files, so a wheel is built from it without the network. An editable install does not ask for them:
there `make install` does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MAN_PAGE = "docs/windlass.1"
"""Made by `make release`, from the commands; a package that is built without it has none."""


class PackagedFiles(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        for script in ("fetch_quickjs.py", "build_dashboard.py"):
            subprocess.run([sys.executable, str(Path(self.root, "scripts", script))], check=True)
        if self.target_name == "wheel" and Path(self.root, MAN_PAGE).is_file():
            build_data["shared_data"][MAN_PAGE] = "share/man/man1/windlass.1"
        if self.target_name == "wheel":
            pages = [page for page in Path(self.root, "docs").rglob("*.md") if page.parent.name != "decisions"]
            build_data["force_include"] |= {str(page): f"windlass/{page.relative_to(self.root)}" for page in pages}
