"""Remove records of files that only removed executions had (K5).

A store of a checkout or a folder lives as long as the home. It notes the records of each execution in a file of its
own (`kept/EXECUTION`), in the same lock as the record. What no note names, and the store itself does not need, is
removed; the notes of the removed executions go last, so that a process that is killed in between leaves them to the
next one. A store of an earlier version has no notes, and is left as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from windlass.errors import ToolError
from windlass.faults import fault_point
from windlass.workspaces.file_store import prune_files
from windlass.workspaces.git import locked
from windlass.workspaces.git_store import prune_objects
from windlass.workspaces.notes import NOTES, noted_trees

__all__ = ["noted_executions", "prune_records"]

_log = logging.getLogger("windlass.workspaces")


def noted_executions(home: Path) -> set[str]:
    """The executions that have records in the stores of this home."""
    return {note.name for note in (home / "snapshots").glob(f"*/{NOTES}/*")}


def prune_records(home: Path, gone: Collection[str]) -> None:
    """Remove the records that these executions had alone. May be done again."""
    for notes in sorted((home / "snapshots").glob(f"*/{NOTES}")):
        ours = [note for name in gone if (note := notes / name).exists()]
        if not ours:
            continue
        store = notes.parent
        with locked(store.with_suffix(".lock")) as lock:
            kept = noted_trees(note for note in notes.iterdir() if note not in ours)
            try:
                if store.suffix == ".git":
                    prune_objects(store, kept, lock)
                else:
                    prune_files(store, kept)
            except (ToolError, OSError) as error:
                _log.warning("the records in %s stay: %s", store, error)
                continue
            fault_point("workspace.pruned")
            for note in ours:
                note.unlink()
