"""Tools for files: read, list, search, write, edit, patch, copy, move, delete, and several changes as one.

No path leads out of the step's working directory (`safe_path.py`). Every change is
made at one stroke and written down first, so a step that fails, is cancelled or killed leaves the files as they were
(`undo.py`). Before the first change all of them are checked for permission and room (`preflight.py`); long after the
last one a person can have a step undone (`undo_step.py`). The tools themselves are in `tools.py`: other tools use paths
and failures from here, and need none of them.

Not kept are owner, ACLs and extended attributes of a file that is rewritten (as root, the owner is), and
hard links between files that are copied to another device. Replaced and deleted files take up space until the
execution is cleaned, up to `log.MOST_KEPT` for each step.
"""
