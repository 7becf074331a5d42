"""`browser.*`: web pages as a person uses them, in a Chromium that is installed (H2).

`chromium.py` starts the browser as a process of ours, one for all executions. `session.py` is what one execution has in
it, `sessions.py` finds, begins and ends them. All that a page reaches goes through the execution's `socks_proxy.py`,
which asks the guard. `acts.py` and `artifacts.py` do what the tools are asked for, `failures.py` says what went wrong,
and `tools.py` puts it together.
"""

from windlass.ports import Tool
from windlass.tools.browser.tools import BrowserTools
from windlass.tools.built_in import ToolSetup

__all__ = ["BrowserTools", "build_tools"]


def build_tools(setup: ToolSetup) -> list[Tool]:
    return BrowserTools(setup.settings.browser, setup.settings.network, setup.supervisor, setup.env).tools()
