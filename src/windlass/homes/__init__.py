"""Homes: where the state is kept, and which of the folders that look like one are the user's own.

A home is believed: its journal says which commands run next. So only a home that its user made is used. The user has a
secret key, and each home of theirs has a proof made with it (`proof`); a home that came with a repository, or
that somebody else made, has none. Owner and mode of the home, its files and all folders above it are looked at
(`safety`). `find_home` is the only way from a command to a home, and `prepare_home` the only one to a new home.

- `mark_home_as_ours` is for commands that put a home together from files: `adopt`, a restored backup.
- `adopt_home` is what `windlass adopt` does when its user has agreed.
- `look_at` gives the judgement without raising: for `doctor` and `adopt`.
- `check_database` compares a database with the home that it is in; the journal calls it.

This package knows no settings and no journal, and opens no database of a home before the home was judged.
"""

from __future__ import annotations

from windlass.homes.find import (
    HomeJudgement,
    adopt_home,
    database_of,
    find_home,
    locate,
    look_at,
    prepare_home,
    require_adoptable,
)
from windlass.homes.names import HOME_FILE, STATE_NAMES, has_checkpoints, not_saved, user_folder
from windlass.homes.proof import check_database, home_id, is_in_home, mark_home_as_ours, write_home_id

__all__ = [
    "HOME_FILE",
    "STATE_NAMES",
    "HomeJudgement",
    "adopt_home",
    "check_database",
    "database_of",
    "find_home",
    "has_checkpoints",
    "home_id",
    "is_in_home",
    "locate",
    "look_at",
    "mark_home_as_ours",
    "not_saved",
    "prepare_home",
    "require_adoptable",
    "user_folder",
    "write_home_id",
]
