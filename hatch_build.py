"""What is packaged has QuickJS in it: wheels and sdists fetch it before their files are gathered.

An sdist carries the file, so a wheel is built from it without the network. An editable install does not ask for it:
there `make install` does.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class QuickJS(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            runpy.run_path(str(Path(self.root, "scripts", "fetch_quickjs.py")), run_name="__main__")
