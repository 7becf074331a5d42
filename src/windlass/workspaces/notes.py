"""Notes of a store of records: which records belong to which execution."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["NOTES", "note_tree", "noted_trees"]

NOTES = "kept"
"""The folder of the notes in a store; one of an earlier version has none."""


def note_tree(store: Path, execution: str, tree: str) -> None:
    """Note that a record belongs to an execution. The store's lock is held."""
    notes = store / NOTES
    if not execution or not notes.is_dir():
        return
    note = notes / execution
    known = note.read_text().split() if note.exists() else []
    if tree not in known:
        new = notes.parent / "note.new"
        new.write_text("".join(f"{one}\n" for one in (*known, tree)))
        new.replace(note)


def noted_trees(notes: Iterable[Path]) -> set[str]:
    """The hashes of the records that are named there."""
    return {tree for note in notes for tree in note.read_text().split()}
