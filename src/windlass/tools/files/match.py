"""Finds a pattern in lines, in a time that grows with the text and never explodes.

Python's `re` would keep a thread busy for years with one `(a+)+$`, and nobody could stop it. So patterns are read as
those of schemas are (`windlass.schemas.pattern_text`: no lookaround, no backreferences, `\\d` and `\\w` are ASCII)
into an automaton all of whose states move together. Sets of states that were reached once are remembered with where
each character leads from there, so a character usually costs one look into a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from windlass.errors import Category, ToolError
from windlass.schemas.pattern_text import BadPattern, Node, Reader, is_word
from windlass.tools.files.failures import shown

__all__ = ["Find", "finder"]

Find = Callable[[str], int]
"""Where the first match in a line ends; -1 when there is none."""
Test = Callable[[str], bool]

MOST_STATES = 5_000
MOST_REMEMBERED = 200_000
"""States in all remembered sets, and ways between them; then it is forgotten and begun anew."""
_CHAR, _SPLIT, _AT, _END = range(4)
_FOUND = -1
_START, _WORD, _OTHER = range(3)
"""What stands before: nothing, a letter, digit or _, or something else."""


def finder(pattern: str, *, plain: bool, ignore_case: bool, check: Callable[[], None]) -> Find:
    """What finds the pattern; `check` is called now and then, and raises when the search is to stop."""
    if plain:
        return _plain(pattern, ignore_case)
    try:
        reader = Reader(pattern)
        tree = reader.either(0)
        if reader.left:
            raise BadPattern("there is a `)` without its `(`")
        program: list[tuple[Any, ...]] = []
        _emit(tree, program)
        program.append((_END,))
    except BadPattern as error:
        raise ToolError(
            f"{shown(pattern)} cannot be searched for: {error}",
            category=Category.CONFIGURATION,
            advice=("correct the pattern, or search for text as it stands with plain: true",),
        ) from None
    return _Automaton(program, ignore_case, check).find


def _plain(text: str, ignore_case: bool) -> Find:
    def find(line: str) -> int:
        at = line.find(text)
        return at + len(text) if at >= 0 else -1

    def find_folded(line: str) -> int:
        at = line.lower().find(folded)
        return min(at + len(text), len(line)) if at >= 0 else -1

    folded = text.lower()
    return find_folded if ignore_case else find


def _emit(node: Node, program: list[tuple[Any, ...]]) -> None:
    """Write out the states of a part of a pattern; each leads to the one behind it, if nothing else is said."""
    if len(program) > MOST_STATES:
        raise BadPattern("its repetitions are too many")
    match node:
        case ("char", test):
            program.append((_CHAR, test))
        case ("at", where):
            program.append((_AT, where))
        case ("all", parts):
            for part in parts:
                _emit(part, program)
        case ("or", branches):
            _emit_either(branches, program)
        case ("times", part, low, high):
            for _ in range(low):
                _emit(part, program)
            skips = []
            for _ in range(1 if high is None else high - low):
                skips.append(len(program))
                program.append(())
                _emit(part, program)
            if high is None:
                program.append((_SPLIT, skips[0]))
            for skip in skips:
                program[skip] = (_SPLIT, skip + 1, len(program))


def _emit_either(branches: list[Node], program: list[tuple[Any, ...]]) -> None:
    ends = []
    for branch in branches[:-1]:
        split = len(program)
        program.append(())
        _emit(branch, program)
        ends.append(len(program))
        program.append(())
        program[split] = (_SPLIT, split + 1, len(program))
    _emit(branches[-1], program)
    for end in ends:
        program[end] = (_SPLIT, len(program))


class _Automaton:
    def __init__(self, program: list[tuple[Any, ...]], ignore_case: bool, check: Callable[[], None]) -> None:
        self._program, self._ignore_case, self._check = program, ignore_case, check
        self._forget()

    def _forget(self) -> None:
        self._sets: list[tuple[frozenset[int], int]] = []
        self._numbers: dict[tuple[frozenset[int], int], int] = {}
        self._ways: list[dict[str, int]] = []
        """For each set, where a character leads: to another one, or to `_FOUND`."""
        self._remembered = 0
        self._number(frozenset(), _START)

    def _number(self, states: frozenset[int], before: int) -> int:
        known = self._numbers.get((states, before))
        if known is None:
            known = self._numbers[states, before] = len(self._sets)
            self._sets.append((states, before))
            self._ways.append({})
            self._remembered += len(states) + 1
        return known

    def find(self, line: str) -> int:
        ways, state = self._ways, 0
        for at, char in enumerate(line):
            following = ways[state].get(char)
            if following is None:
                following = self._step(state, char)
                ways = self._ways  # may have been begun anew
            if following == _FOUND:
                return at
            state = following
        return len(line) if self._reach(*self._sets[state], "") is None else -1

    def _step(self, state: int, char: str) -> int:
        """Where a character leads that was not met in this state yet."""
        self._check()
        states, before = self._sets[state]
        reached = self._reach(states, before, char)
        if reached is None:
            self._ways[state][char] = _FOUND
            return _FOUND
        program = self._program
        moved = frozenset(s + 1 for s in reached if program[s][0] == _CHAR and self._fits(program[s][1], char))
        if self._remembered > MOST_REMEMBERED:
            self._forget()
            return self._number(moved, _kind(char))
        following = self._ways[state][char] = self._number(moved, _kind(char))
        self._remembered += 1
        return following

    def _fits(self, test: Test, char: str) -> bool:
        if not self._ignore_case:
            return test(char)
        either = (char, char.lower(), char.upper())
        # What is in none of its forms in the class is what `[^a]` is about.
        return all(map(test, either)) if getattr(test, "negated", False) else any(map(test, either))

    def _reach(self, states: Iterable[int], before: int, char: str) -> set[int] | None:
        """All that can be come to without taking the next character (none at the end); None when that is the match."""
        todo, seen, program = [*states, 0], set[int](), self._program
        while todo:
            state = todo.pop()
            if state in seen:
                continue
            seen.add(state)
            kind, *more = program[state]
            if kind == _SPLIT:
                todo += more
            elif kind == _END:
                return None
            elif kind == _AT and _holds(more[0], before, char):
                todo.append(state + 1)
        return seen


def _kind(char: str) -> int:
    return _WORD if is_word(char) else _OTHER


def _holds(where: str, before: int, char: str) -> bool:
    if where == "^":
        return before == _START
    if where == "$":
        return not char
    edge = (before == _WORD) != (bool(char) and is_word(char))
    return edge == (where == "b")
