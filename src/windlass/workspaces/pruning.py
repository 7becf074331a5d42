"""Remove records of files that only removed executions had (K5).

A store of a checkout or a folder lives as long as the home. It notes the records of each execution in a file of its
own (`kept/EXECUTION`), in the same lock as the record. What no note names, and the store itself does not need, is
removed; the notes of the removed executions go last, so that a process that is killed in between leaves them to the
next one. They go also where a store cannot be pruned now: the next removal there finds what no note names. A store of
an earlier version has no notes, and is left as it is.
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

__all__ = ["prune_records"]

_log = logging.getLogger("windlass.workspaces")


def prune_records(home: Path, gone: Collection[str]) -> None:
    """Remove the records that these executions had alone. May be done again."""
    for notes in sorted((home / "snapshots").glob(f"*/{NOTES}")):
        if ours := [note for name in gone if (note := notes / name).exists()]:
            try:
                _prune(notes, ours)
            except (ToolError, OSError) as error:
                _log.warning("the records in %s stay for now: %s", notes.parent, error)


def _prune(notes: Path, gone: Collection[Path]) -> None:
    store = notes.parent
    with locked(store.with_suffix(".lock")):
        kept = noted_trees(note for note in notes.iterdir() if note not in gone)
        try:
            if store.suffix == ".git":
                prune_objects(store, kept)
            else:
                prune_files(store, kept)
        finally:
            fault_point("workspace.pruned")
            for note in gone:
                note.unlink()
