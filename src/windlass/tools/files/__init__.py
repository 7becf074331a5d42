"""Tools for files: read, list, search, write, edit, patch, copy, move, delete, and several changes as one.

Everything stays inside the step's working directory, whatever the path says (`safe_path.py`). Every change is
made at one stroke and written down first (`undo.py`), so a step that fails, is cancelled or killed leaves the
files as they were (`rollback.py`). Before the first change it is asked whether all of them are allowed and fit on
the disk (`ahead.py`); long after the last one a person can have a step taken back (`retrace.py`).

What is not kept: owner, ACLs and extended attributes of a file that is rewritten (as root, the owner is), and
hard links between files that are copied to another device. Replaced and deleted files take up space until the
execution is cleaned, up to `kept.MOST_KEPT` for each step.
"""

from windlass.ports import Tool
from windlass.tools.built_in import ToolSetup
from windlass.tools.files.retrace import undo_steps
from windlass.tools.files.rollback import roll_back, seal
from windlass.tools.files.tools import file_tools

__all__ = ["build_tools", "file_tools", "roll_back", "seal", "undo_steps"]


def build_tools(setup: ToolSetup) -> list[Tool]:
    return file_tools(disk_floor=setup.settings.load.disk_floor)
