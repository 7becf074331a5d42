"""Tools for files: read, write, edit, list, move, delete, and several changes as one.

Everything stays inside the step's working directory, whatever the path says (`safe_path.py`). Every change is
made at one stroke and written down first (`undo.py`), so a step that fails, is cancelled or killed leaves the
files as they were (`rollback.py`).

What is not kept: owner, ACLs and extended attributes of a file that is rewritten (as root, the owner is), and
hard links between files that are copied to another device. Deleted files take up space until the execution's
scratch folder is cleaned.
"""

from windlass.tools.files.rollback import roll_back, seal
from windlass.tools.files.tools import file_tools

__all__ = ["file_tools", "roll_back", "seal"]
