"""Find values in a command that a shell, or another program that evaluates text, could read as code (B5).

`| quote` makes one word of a value for the shell that reads the line. It does not hold inside other quotes, nor for a
program that evaluates that word once more: `sh -c`, `eval`, `ssh`, `python -c`, `| sh`. A list needs no quoting, with
the same exception. Every value that is not recognised as safe gets a warning, with a way to write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from windlass.plan.shell_line import ShellCommand, Value, Word, parse_line, parse_list

__all__ = ["unsafe_value"]


class UnsafeValue(NamedTuple):
    message: str
    hint: str


_AS_ARGUMENT = "pass it as an argument: sh -c 'echo \"$1\"' sh {{ … | quote }}; or through `env`"
_AS_NUMBER = "make a number of it: {{ … | int }}"
_END_QUOTES = f'end the quotes before it: "text "{{{{ … | quote }}}}" text"; or {_AS_NUMBER}'
_ADD_QUOTE = "add `| quote`, or write `run` as a list of arguments"
_QUOTES = ("in double quotes", "in single quotes")

_SHELL = re.compile(r"(?:ba|da|z|k|mk|pdk|a|fi|c|tc|rba|ya|pw)?sh|busybox|powershell")
_LANGUAGE = re.compile(r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|osascript|Rscript)[\d.]*")
_AWK = re.compile(r"[gmn]?awk|original-awk")
_CODE_OPTION = {"shell": re.compile(r"-\w*c|--command|-Command"), "language": re.compile(r"-\w*[ceEpr]|--eval|--print")}
_EVALUATORS = frozenset(
    [
        "eval",
        "source",
        ".",
        "trap",
        "alias",
        "let",
        "declare",
        "typeset",
        "local",
        "readonly",
        "unset",
        "[[",
        "ssh",
        "mosh",
        "su",
        "runuser",
        "watch",
        "parallel",
        "script",
        "at",
        "batch",
        "crontab",
        "expect",
        "gdb",
        "emacs",
        "vim",
        "vi",
        "ex",
        "ed",
        "tmux",
        "screen",
        "make",
        "gmake",
        "m4",
    ]
)
"""Commands that read any of their words as code, for shells as for themselves."""
_ANYWHERE = frozenset({"ssh"})
_PREFIXES = frozenset(
    [
        "!",
        "{",
        "if",
        "then",
        "elif",
        "else",
        "while",
        "until",
        "do",
        "builtin",
        "command",
        "exec",
        "env",
        "sudo",
        "doas",
        "nohup",
        "nice",
        "time",
        "timeout",
        "stdbuf",
        "setsid",
        "xargs",
        "busybox",
    ]
)
"""Words that another command may follow."""
_TAKES = frozenset({"for", "read", "set", "mapfile", "readarray", "export"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


def unsafe_value(arguments: dict[str, Any]) -> UnsafeValue | None:
    """The first value in the arguments of the `shell` tool that may be read as code."""
    line, words = arguments.get("line"), arguments.get("argv")
    if isinstance(line, str) and "{{" in line:
        return _in_line(line)
    if isinstance(words, list) and any("{{" in word for word in words if isinstance(word, str)):
        command = parse_list([word if isinstance(word, str) else str(word) for word in words])
        return _in_list(command, [str(word) for word in words])
    return None


def _in_line(line: str) -> UnsafeValue | None:
    commands, values = parse_line(line)
    values = [value for value in values if value.form != "number"]
    for value in values:
        if value.form == "bare":
            hint = _way_out(value, commands) if value.context else _ADD_QUOTE
            return _unsafe(value, "the shell reads the value of {} as code", hint)
        if value.context:
            message = f"{{}} is {value.context}, where `| quote` does not protect it"
            return _unsafe(value, message, _way_out(value, commands))
    if not values:
        return None
    around = _Line(values[0], values[0] if _carries(commands, line) else None, frozenset(_written(commands)))
    return next((found for command in commands if (found := _in_command(command, around))), None)


def _way_out(value: Value, commands: list[ShellCommand]) -> str:
    """Advice for a value in quotes or the like: put it outside, unless they hold code for a program."""
    if value.context == "in arithmetic":
        return _AS_NUMBER
    names = {_name(word) for command in commands for word in command.words}
    evaluated = any(_kind(name) or name in _EVALUATORS for name in names)
    return _END_QUOTES if value.context in _QUOTES and not evaluated else _AS_ARGUMENT


class _Line(NamedTuple):
    """Values and files of the rest of the line that may reach a command."""

    value: Value
    """The first value that the line prints."""
    carried: Value | None
    """The same, if a variable may hold it."""
    written: frozenset[str]
    """Files that the line writes."""


def _carries(commands: list[ShellCommand], line: str) -> bool:
    """A value may come to stand in a variable: by an assignment, a loop, `read`, a file, or the call of a function."""
    words = [word for command in commands for word in command.words]
    assigned = any(word.values and _ASSIGNMENT.match(word.text) for word in words)
    taken = any(word.text in _TAKES for word in words)
    return assigned or taken or any(command.written for command in commands) or bool(re.search(r"\(\s*\)", line))


def _written(commands: list[ShellCommand]) -> Iterator[str]:
    for command in commands:
        yield from map(_normal, command.written)
        if any(_name(word) == "tee" for word in command.words[:1]):
            yield from (_normal(word.text) for word in command.words[1:])


def _in_list(command: ShellCommand, words: list[str]) -> UnsafeValue | None:
    first = next((v for word in command.words for v in word.values if v.form != "number"), None)
    if first is None:
        return None
    for name, code in _shell_codes(command):
        if any(value.form != "number" for value in command.words[code].values):
            if found := _in_line(words[code]):
                return UnsafeValue(f"{name} reads a line: {found.message}", "add `| quote` there, or " + _AS_ARGUMENT)
            command.words[code] = Word("safe")  # every value in it is a word of its own
    return _in_command(command, _Line(first, None, frozenset()))


def _shell_codes(command: ShellCommand) -> list[tuple[str, int]]:
    """The places of code for a shell, as far as it is the next word after `-c`."""
    found = []
    for at, word in enumerate(command.words):
        if _SHELL.fullmatch(_name(word)):
            code, option = _code_of(command.words, at, "shell")
            if option and code is not None:
                found.append((_name(word), code))
    return found


def _in_command(command: ShellCommand, line: _Line) -> UnsafeValue | None:
    words = command.words
    start = _start(words)
    if start is None:
        return None
    runs = words[start]
    if runs.expands and runs.text.strip("\0") == "" and (found := _values([runs]) or line.carried):
        return _unsafe(found, "the line runs the text of {} as a command", _AS_ARGUMENT)
    if "/" in runs.text and _normal(runs.text) in line.written:
        return _unsafe(
            line.value, f"the line runs {_name(runs)}, which it writes, and {{}} may be part of it", _AS_ARGUMENT
        )
    for at, word in enumerate(words):
        name = _name(word)
        if (at == start and _evaluates(name, words)) or name in _ANYWHERE:
            rest = words[at + 1 :]
            doubtful = any(one.expands or _normal(one.text) in line.written for one in rest)
            found = _values(rest) or (line.value if doubtful else None)
            return _evaluated(found, name) if found else None
        if kind := _kind(name):  # what follows its code is for the code
            code, option = _code_of(words, at, kind)
            found = _in_evaluator(command, at, kind, code, option, line)
            if found or code is not None:
                return _evaluated(found, name) if found else None
    return None


def _in_evaluator(
    command: ShellCommand, at: int, kind: str, code: int | None, option: bool, line: _Line
) -> Value | None:
    """The value that is read as code by a program which takes that as an option, an operand or from its input."""
    words = command.words
    by_xargs = any(word.text == "xargs" for word in words[:at])
    if code is None:
        reads_input = (command.fed or by_xargs) and kind in ("shell", "language")
        return _values(words[at + 1 :]) or (line.value if reads_input else None)
    if found := _values([word for word in words[at + 1 : code + 1] if not _is_variable(word, kind)]):
        return found
    text = words[code]
    if text.expands and line.carried:
        return line.carried
    if option or kind in ("awk", "sed"):
        if by_xargs or (kind == "shell" and _evaluates_inside(text.text)):
            return line.value
        if kind == "sed":  # it takes options behind its operands, too
            ended = next((i for i, word in enumerate(words) if i > code and word.text == "--"), len(words))
            return _values(words[code + 1 : ended])
        # Perl opens files that its loop reads in a way that runs "command|".
        looping = any(re.fullmatch(r"-\w*[np]\w*", word.text) for word in words[at + 1 : code])
        return _values(words[code + 1 :]) if looping and _name(words[at]).startswith("perl") else None
    return line.value if text.text == "-" or _normal(text.text) in line.written else None


def _code_of(words: list[Word], at: int, kind: str) -> tuple[int | None, bool]:
    """The place of the code, and if an option brings it. Without such an option it is the first operand: a script."""
    option = _CODE_OPTION.get(kind)
    skip = False
    for index in range(at + 1, len(words)):
        text = words[index].text
        if skip:
            skip = False
        elif kind == "sed" and text in ("-e", "-f", "--expression", "--file"):
            return (index + 1 if index + 1 < len(words) else None), True
        elif kind == "awk" and text in ("-v", "-F", "-f"):
            skip = True
        elif option is not None and (found := option.match(text)):
            if len(text) > found.end() and kind == "language" and not text.startswith("--"):
                return index, True  # -e'print 1': the code is the rest of the word
            return (index + 1 if index + 1 < len(words) else None), True
        elif not text.startswith(("-", "+")) or text == "-":
            return index, False
    return None, False


def _evaluates_inside(code: str) -> bool:
    """Code for a shell that evaluates more than it says: it could get at a value through a variable."""
    commands, _ = parse_line(code.replace("{", " ").replace("}", " "))
    anything = Value("", "quoted")
    return any(_in_command(one, _Line(anything, anything, frozenset())) is not None for one in commands)


def _evaluates(name: str, words: list[Word]) -> bool:
    if name in ("printf", "test", "["):  # bash evaluates the index of an array there
        return any(word.text == "-v" for word in words)
    if name == "env":
        return any(word.text.startswith("\0") or word.text.startswith(("-S", "--split-string")) for word in words)
    return name in _EVALUATORS


def _kind(name: str) -> str:
    if _SHELL.fullmatch(name):
        return "shell"
    if _LANGUAGE.fullmatch(name):
        return "language"
    return "awk" if _AWK.fullmatch(name) else "sed" if name in ("sed", "gsed") else ""


def _start(words: list[Word]) -> int | None:
    """The place of the command itself, behind assignments and words such as `sudo` and `if`."""
    for at, word in enumerate(words):
        if _ASSIGNMENT.match(word.text):
            continue
        if word.text == "env" and _evaluates("env", words):
            return at
        if word.text in _PREFIXES or (at and words[at - 1].text in _PREFIXES and word.text.startswith("-")):
            continue
        if at and re.fullmatch(r"[\d.]+[smhd]?", word.text):  # timeout 5 …
            continue
        return at
    return None


def _normal(path: str) -> str:
    return path.removeprefix("./")


def _name(word: Word) -> str:
    return word.text.rsplit("/", 1)[-1]


def _is_variable(word: Word, kind: str) -> bool:
    """Return True for awk's `-v name=value`, and for the word after `-v`."""
    return kind == "awk" and (word.text.startswith("-v") or bool(_ASSIGNMENT.match(word.text)))


def _values(words: list[Word]) -> Value | None:
    return next((value for word in words for value in word.values if value.form != "number"), None)


def _evaluated(value: Value, name: str) -> UnsafeValue:
    return _unsafe(value, f"{name} reads the value of {{}} as code, quoted or not", _AS_ARGUMENT)


def _unsafe(value: Value, message: str, hint: str) -> UnsafeValue:
    shown = value.text if len(value.text) <= 200 else f"{value.text[:197]}…"
    return UnsafeValue(message.replace("{}", f"`{{{{ {shown} }}}}`", 1), hint)
