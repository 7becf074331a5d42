"""Files of the checks themselves (K2): those that are protected are put back before the checks run.

What an agent changed is taken from the records of the files around its work. Unless the step says otherwise, the
checks run on the original tests, as far as their commands name them: if they pass, the agent gets its own back, and the
checks run on those, too. Another file that a check runs as a program is left as the agent made it, and named: it may be
the very thing that was to be mended.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.core.agent import AgentState
from windlass.engine.agents.protected_names import (
    MissingName,
    find_unmatched,
    fits,
    folder_tests,
    from_workdir,
    unmatched_text,
)
from windlass.errors import Category, ToolError
from windlass.globs import is_pattern
from windlass.ports import Call
from windlass.workspaces.git import find_repository, run_git, user_ignores
from windlass.workspaces.put_back import RecordedPeriod, put_back
from windlass.workspaces.store import Store, find_store, shown, store_with

__all__ = [
    "give_tests_back",
    "named_tests",
    "require_named",
    "require_recorded",
    "restore_protected",
    "restore_tests",
    "touched_programs",
]

MOST_NAMES = 1_000
"""Names of one file, through links: a link to a folder around it gives it names without end."""
_INTERPRETERS = ("sh", "bash", "python", "python3", "node", "ruby", "perl", "source", ".")


_TEST = re.compile(
    r"(^|/)(tests?|specs?|__tests__|checks?)/|(^|/)((tests?|checks?|verify|specs?)|(test|check|verify)[-_.][^/]*"
    r"|[^/]*[-_.](test|spec|check))(\.\w+)*/?$",
    re.IGNORECASE,
)
"""Paths of tests and of scripts that check: `tests/`, `test_x.py`, `x.spec.ts`, `check.sh`."""


def named_tests(uses: Iterable[Mapping[str, Any]]) -> list[str]:
    """Paths of tests, files and folders, that the commands of the checks name: `pytest tests/test_x.py::test_a`.

    A lone word is no path: `test` of `make test` and of `test -s report`.
    """
    words = (word.partition("::")[0] for use in uses for word in _words(str(use["with"].get("line", ""))))
    paths = (word for word in map(_from_here, words) if word is not None and ("/" in word or "." in word))
    return [path for path in dict.fromkeys(paths) if _TEST.search(path)]


def restore_tests(agent: AgentState, tests: Sequence[str], call: Call) -> tuple[str, ...]:
    """Put back the tests that the agent has changed or deleted; gives the paths of those that its last turn left so.

    Raises `ToolError` if it cannot.
    """
    if not tests:
        return ()
    try:
        restored = _restore(agent, tests, call, new_ones=False)
        if not restored:
            return ()
        store, since = _since_last_turn(agent, call)
        changed = {shown(change.path) for change in store.changes(since.before, since.after)}
        return tuple(path for path in restored if path in changed)
    except (ToolError, OSError) as error:
        raise ToolError(
            f"the agent changed tests that the check names, and the original ones cannot be put back: {error}",
            category=Category.PERMISSION,
            advice=("put them back by hand, then retry the step", "or let it change them: `protect: []` in the step"),
        ) from error


def give_tests_back(agent: AgentState, tests: Sequence[str], call: Call) -> None:
    """Give the agent its tests back as its last turn left them, after `restore_tests`."""
    store, since = _since_last_turn(agent, call)
    first = next(period for period in agent.periods if period.root == agent.periods[-1].root)
    put_back(store, [since], _protects(tests, call.workdir, store.root, frozenset(), _targets(store, first.before)))


def _since_last_turn(agent: AgentState, call: Call) -> tuple[Store, RecordedPeriod]:
    """The changes since the agent's last turn, and the store that has them."""
    last = agent.periods[-1]
    store = store_with(last.after, last.root, call.home)
    return store, RecordedPeriod(last.after, store.record(call.execution).tree)


def require_recorded(patterns: Sequence[str], call: Call) -> None:
    """Raise `ToolError` if a file that `protect` names is ignored by git, so that no record has it."""
    repository = find_repository(call.workdir)
    if repository is None or find_store(call.workdir, call.home).root != repository.top:
        return
    for file in (call.workdir / pattern for pattern in patterns if not is_pattern(pattern)):
        asked = ("-c", f"core.excludesFile={user_ignores(call.workdir)}", "check-ignore", "--no-index", "--", str(file))
        if file.is_file() and run_git(*asked, cwd=call.workdir, good=(0, 1, 128)):
            raise ToolError(
                f"{file} cannot be protected: git ignores it, so it is not recorded",
                category=Category.CONFIGURATION,
                advice=("take it out of .gitignore, or out of `protect`",),
            )


def require_named(patterns: Sequence[str], call: Call) -> list[MissingName]:
    """Return the names of `protect` that fit nothing before the agent's work. Raises `ToolError` if one is a mistake:
    the files that it means would be unprotected."""
    found = find_unmatched(patterns, call.workdir)
    if mistakes := [one for one in found if one.is_mistake]:
        name = mistakes[0].name.rstrip("/")
        kept_away = f"**/{name}" if mistakes[0].meant else f"{name}/**"
        raise ToolError(
            "; ".join(map(unmatched_text, mistakes)),
            category=Category.CONFIGURATION,
            advice=(
                "name what is there, or leave it out of `protect`",
                f"to keep the agent from making it, write a pattern: {kept_away}",
            ),
        )
    return found


def restore_protected(agent: AgentState, patterns: Sequence[str], call: Call) -> tuple[str, ...]:
    """Put back the protected files that the agent changed; gives their paths. Raises `ToolError` if it cannot."""
    if not patterns:
        return ()
    periods = [period for period in agent.periods if period.after]
    if not periods:
        why = agent.unrecorded or "the agent has worked on no recorded files"
        raise ToolError(
            f"the files of `protect` cannot be protected: {why}",
            category=Category.CONFIGURATION,
            advice=("let it work in a git repository, or leave `protect` out",),
        )
    if elsewhere := [period.root for period in periods if not call.workdir.is_relative_to(period.root)]:
        raise ToolError(
            f"the files of `protect` cannot be protected: the agent worked in {elsewhere[0]} and now in {call.workdir}",
            category=Category.CONFIGURATION,
            advice=("give all workers the same XDG_DATA_HOME, or leave `protect` out",),
        )
    return _restore(agent, patterns, call, new_ones=True)


def _restore(agent: AgentState, patterns: Sequence[str], call: Call, *, new_ones: bool) -> tuple[str, ...]:
    """Put back what the patterns name; `new_ones`: also remove files that the agent made."""
    periods = [period for period in agent.periods if period.after and call.workdir.is_relative_to(period.root)]
    done: list[str] = []
    for root in dict.fromkeys(period.root for period in periods):
        pairs = [
            RecordedPeriod(period.before, period.after, period.after_check) for period in periods if period.root == root
        ]
        store = store_with(pairs[0].before, root, call.home)
        made = frozenset() if new_ones else _made(store, pairs)
        protects = _protects(patterns, call.workdir, Path(root), made, _targets(store, pairs[0].before))
        done += [one["path"] for one in put_back(store, pairs, protects)]
    return tuple(done)


def _made(store: Store, pairs: Sequence[RecordedPeriod]) -> frozenset[str]:
    """Files that were not there before the agent."""
    first: dict[str, bool] = {}
    for pair in pairs:
        for change in store.changes(pair.before, pair.after):
            first.setdefault(change.path, change.old is None)
    return frozenset(path for path, is_new in first.items() if is_new)


def touched_programs(agent: AgentState, uses: Iterable[Mapping[str, Any]], call: Call) -> tuple[str, ...]:
    """Files that the checks run as programs, as far as the commands name them, and that the agent changed."""
    named = {name for use in uses for name in _programs(str(use["with"].get("line", "")))}
    if not named:
        return ()
    found: list[str] = []
    for period in agent.periods:
        if period.after and call.workdir.is_relative_to(period.root):
            store = store_with(period.before, period.root, call.home)
            paths = {str((call.workdir / name).relative_to(period.root)) for name in named}
            changes = store.changes(period.before, period.after)
            found += [shown(one.path) for one in changes if one.old is not None and one.path in paths]
    return tuple(dict.fromkeys(found))


def _programs(line: str) -> list[str]:
    """Paths of the scripts that a command line runs: `./check.sh`, `python tests/run.py`."""
    words = _words(line)
    found = [word for before, word in zip(["", *words], words, strict=False) if _runs(before, word)]
    return [word for word in map(_from_here, found) if word is not None]


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return []


def _from_here(word: str) -> str | None:
    """The word as a path inside the working directory; None if it cannot be one."""
    return None if word.startswith(("/", "-", "~")) or ".." in word else word.removeprefix("./")


def _runs(before: str, word: str) -> bool:
    is_first = before in ("", "&&", "||", ";", "|", "!")
    return (is_first and "/" in word) or (before in _INTERPRETERS and not word.startswith("-"))


def _protects(
    patterns: Sequence[str], workdir: Path, root: Path, but: frozenset[str], targets: Mapping[str, str]
) -> Callable[[str], bool]:
    """True for the path of a file, from the root, that one of the patterns names, from the working directory, also
    through links; and for the links on that way. Those of `but` are left out."""
    inside = "" if workdir == root else f"{workdir.relative_to(root).as_posix()}/"
    patterns = [from_workdir(pattern, workdir) for pattern in patterns]
    tests = [fits(pattern) for pattern in patterns]
    of_links = [*tests, *(test for pattern in patterns for test in folder_tests(pattern))]

    def protects(path: str) -> bool:
        names = [name.removeprefix(inside) for name in _names(path, targets) if name.startswith(inside)]
        fitting = of_links if path in targets else tests
        return path not in but and any(test(name) for test in fitting for name in names)

    return protects


def _targets(store: Store, tree: str) -> dict[str, str]:
    """The links of a record, each with the path from the root that it leads to."""
    found: dict[str, str] = {}
    for path, blob in store.links(tree).items():
        file = store.root / path
        now = os.fsencode(os.readlink(file)) if file.is_symlink() else b""
        target = os.fsdecode(now if store.blob_of(now) == blob else store.content(blob))
        found[path] = os.path.relpath(file.parent / target, store.root)
    return found


def _names(path: str, targets: Mapping[str, str]) -> set[str]:
    """The path, and those that lead to it through links."""
    found, new = set[str](), {path}
    while new and len(found) < MOST_NAMES:
        found |= new
        new = {
            link + name.removeprefix(target)
            for name in new
            for link, target in targets.items()
            if name == target or name.startswith(f"{target}/")
        } - found
    return found
