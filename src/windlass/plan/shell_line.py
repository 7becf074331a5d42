"""Take a shell line with templates in it apart: commands, their words, and the values that a template prints there.

`parse_line` and `parse_list` give `ShellCommand`s for `plan.quoting`, which judges them. The grammar is that of a POSIX
shell, read loosely: every special construct (quotes, substitutions, here-documents, comments, arithmetic) is
a `context` of the values in it; compound commands fall apart into their simple commands. Nothing is run or filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

import msgspec

__all__ = ["ShellCommand", "Value", "Word", "parse_line", "parse_list"]

Form = Literal["bare", "quoted", "number"]
"""Of a printed value: as it is, as one word of the shell (`| quote`), or only digits and the like."""

_NUMBERS = frozenset({"int", "float", "length", "count", "sum"})
_PLAIN_VALUES = re.compile(r"\{\{(?![-+])([^'\"{}]*)(?<![-+])\}\}(?!\})")
"""Values without texts or white space control in them: those of nearly all lines."""
_SEPARATORS = frozenset(";&|()\n")


class Value(msgspec.Struct):
    """One `{{ … }}`."""

    text: str
    form: Form
    context: str = ""
    """The surroundings in which quoting does not hold, as a message names them; "" for a plain word."""


class Word(msgspec.Struct):
    text: str = ""
    """Its literal text; `\\0` stands for a value or an expansion."""
    values: list[Value] = msgspec.field(default_factory=list)
    expands: bool = False
    """It holds `$name`, `$(…)` or the like."""


class ShellCommand(msgspec.Struct):
    words: list[Word] = msgspec.field(default_factory=list)
    written: list[str] = msgspec.field(default_factory=list)
    """Files that its output goes to."""
    fed: bool = False
    """It reads a pipe, a file or a here-document."""


Symbol: TypeAlias = str | Value
"""One character, or one value; "" for a block of the template."""


def parse_list(words: list[str]) -> ShellCommand:
    """The command of a `run` that is a list: no shell reads it, so every value is one word."""
    command = ShellCommand()
    for text in words:
        word = Word()
        for symbol in _symbols(text):
            if isinstance(symbol, Value):
                word.values.append(symbol)
                word.text += "\0"
            else:
                word.text += symbol
        command.words.append(word)
    return command


def parse_line(line: str) -> tuple[list[ShellCommand], list[Value]]:
    """All commands of a line, those in substitutions too, and all values that it prints."""
    parser = _Parser(list(_symbols(line)))
    parser.commands_until("")
    if parser.unsure:
        for value in parser.values:
            value.context = value.context or "in a line whose quotes depend on a block of the template"
    return parser.commands, parser.values


def _symbols(line: str) -> Iterator[Symbol]:
    pieces = _PLAIN_VALUES.split(line)
    if not any(mark in piece for piece in pieces[::2] for mark in ("{{", "{%", "{#")):
        for at, piece in enumerate(pieces):  # Jinja2 takes ten times as long to take it apart
            if at % 2:
                yield Value(" ".join(piece.split()), _form(piece))
            else:
                yield from piece
        return
    from jinja2 import TemplateSyntaxError

    try:
        tokens = list(_env().lex(line))
    except (TemplateSyntaxError, RecursionError):
        yield from line  # the check of templates says what is wrong with it
        return
    printed: str | None = None
    in_block = False
    for _line, kind, text in tokens:
        match kind:
            case "variable_begin":
                printed = ""
            case "variable_end" if printed is not None:
                yield Value(" ".join(printed.split()), _form(printed))
                printed = None
            case "block_begin":
                in_block = True
                yield ""
            case "block_end":
                in_block = False
            case "data" if printed is None and not in_block:
                yield from text
            case _ if printed is not None:
                printed += text


@cache
def _env() -> Environment:
    """Jinja2, imported for plans that print something into a line."""
    from jinja2 import Environment

    return Environment(keep_trailing_newline=True, autoescape=False)


@lru_cache(maxsize=1024)
def _form(expression: str) -> Form:
    from jinja2 import TemplateSyntaxError, nodes

    try:
        tree = _env().parse("{{ " + expression.strip() + " }}")
    except (TemplateSyntaxError, RecursionError):
        return "bare"
    output = next(tree.find_all(nodes.Output), None)
    return _form_of(output.nodes[0]) if output is not None and len(output.nodes) == 1 else "bare"


def _form_of(node: nodes.Node) -> Form:
    from jinja2 import nodes

    match node:
        case nodes.Filter(name="quote"):
            return "quoted"
        # A second argument is what they give for something that is no number.
        case nodes.Filter(name=name, args=[], kwargs=[]) if name in _NUMBERS:
            return "number"
        case nodes.Name(name="index") | nodes.Const(value=int() | float()):
            return "number"
        case nodes.CondExpr(expr1=one, expr2=nodes.Node() as other) | nodes.Concat(nodes=[one, other]):
            forms = {_form_of(one), _form_of(other)}
            return "bare" if "bare" in forms else "quoted" if "quoted" in forms else "number"
    return "bare"


class _Parser:
    """A recursive walk over the symbols of one line."""

    def __init__(self, symbols: list[Symbol]) -> None:
        self._symbols = symbols
        self._at = 0
        self.commands: list[ShellCommand] = []
        self.values: list[Value] = []
        self.unsure = False
        """A block of the template (`{% if … %}`) stands inside quotes, so that it may end them."""
        self._heredocs: list[str] = []

    def _peek(self, ahead: int = 0) -> Symbol | None:
        at = self._at + ahead
        return self._symbols[at] if at < len(self._symbols) else None

    def _starts(self, text: str) -> bool:
        return all(self._peek(ahead) == char for ahead, char in enumerate(text))

    def _value(self, value: Value, context: str, word: Word) -> None:
        value.context = context
        self.values.append(value)
        word.values.append(value)
        word.text += "\0"

    # -- commands ----------------------------------------------------------------------------------

    def commands_until(self, end: str) -> None:
        """Commands up to the character that ends them: `)`, or "" for the end of the line."""
        command = ShellCommand()
        piped = False
        while (symbol := self._peek()) is not None and (not end or symbol != end):
            if symbol == "\n" and self._heredocs:
                self._at += 1
                self._skip_heredocs(command)
            elif isinstance(symbol, str) and symbol in _SEPARATORS and symbol:
                piped = symbol == "|" and self._peek(1) != "|" and self._peek(-1) != "|"
                self._keep(command)
                command = ShellCommand(fed=piped)
                self._at += 1
                if symbol == "(" and self._starts("("):
                    self._inside("))", "in arithmetic", Word())
                elif symbol == "(":
                    self.commands_until(")")
            elif symbol == "" or (isinstance(symbol, str) and symbol.isspace()):
                self._at += 1
            elif symbol == "#":
                self._comment()
            elif isinstance(symbol, str) and symbol in "<>":
                self._redirection(command)
            else:
                word = self._word()
                if word.text.isdigit() and self._peek() in ("<", ">"):
                    continue
                command.words.append(word)
        self._keep(command)
        self._at += 1

    def _keep(self, command: ShellCommand) -> None:
        if command.words:
            self.commands.append(command)

    def _comment(self) -> None:
        word = Word()
        while (symbol := self._peek()) is not None and symbol != "\n":
            if isinstance(symbol, Value):
                self._value(symbol, "in a comment", word)
            self.unsure |= symbol == ""
            self._at += 1

    def _redirection(self, command: ShellCommand) -> None:
        out = self._peek() == ">"
        here = self._starts("<<") and not self._starts("<<<")
        while isinstance(symbol := self._peek(), str) and symbol in "<>&|-" and symbol:
            if self._starts("<(") or self._starts(">("):
                return self._process_substitution(command)
            self._at += 1
        while isinstance(symbol := self._peek(), str) and symbol in " \t" and symbol:
            self._at += 1
        target = self._word()
        if here:
            self._heredocs.append(target.text)
            command.fed = True
        elif out:
            command.written.append(target.text)
        else:
            command.fed = True
        return None

    def _process_substitution(self, command: ShellCommand) -> None:
        self._at += 2
        self.commands_until(")")
        command.words.append(Word("\0", expands=True))

    def _skip_heredocs(self, command: ShellCommand) -> None:
        word = Word()
        for end in self._heredocs:
            line = ""
            while (symbol := self._peek()) is not None:
                self._at += 1
                self.unsure |= symbol == ""
                if isinstance(symbol, Value):
                    self._value(symbol, "in a here-document", word)
                    line += "\0"
                elif symbol == "\n":
                    if line.strip("\t") == end:
                        break
                    line = ""
                else:
                    line += symbol
        self._heredocs = []
        self._keep(command)
        command.words = []

    # -- words -------------------------------------------------------------------------------------

    def _word(self) -> Word:
        word = Word()
        while (symbol := self._peek()) is not None:
            if isinstance(symbol, Value):
                self._value(symbol, "", word)
                self._at += 1
            elif symbol and (symbol.isspace() or symbol in ";&|()<>"):
                break
            elif symbol == "\\":
                self._at += 1
                following = self._peek()
                if isinstance(following, Value):
                    self._value(following, "after a backslash", word)
                elif following is not None and following != "\n":
                    word.text += following
                self._at += 1
            elif symbol == "'":
                self._inside("'", "in single quotes", word)
            elif symbol == '"':
                self._double(word)
            elif symbol in ("$", "`"):
                self._expansion(word, "")
            else:
                word.text += symbol
                self._at += 1
        if word.text == "" and not word.values and self._peek() in ("(", ")"):
            self._at += 1  # a redirection without a target: go on behind it
        return word

    def _inside(self, end: str, context: str, word: Word) -> None:
        """Literal text up to its end."""
        self._at += 1
        while (symbol := self._peek()) is not None:
            if self._starts(end):
                self._at += len(end)
                return
            if isinstance(symbol, Value):
                self._value(symbol, context, word)
            else:
                self.unsure |= symbol == ""
                word.text += symbol
            self._at += 1

    def _double(self, word: Word) -> None:
        self._at += 1
        while (symbol := self._peek()) is not None:
            if symbol == '"':
                self._at += 1
                return
            if isinstance(symbol, Value):
                self._value(symbol, "in double quotes", word)
                self._at += 1
            elif symbol == "\\":
                self._at += 1
                if not isinstance(self._peek(), Value):
                    word.text += str(self._peek() or "")
                    self._at += 1
            elif symbol in ("$", "`"):
                self._expansion(word, "in double quotes")
            else:
                self.unsure |= symbol == ""
                word.text += symbol
                self._at += 1

    def _expansion(self, word: Word, context: str) -> None:
        word.expands = True
        if self._peek() == "`":
            self._inside("`", "in backticks", word)
        elif self._starts("$(("):
            self._at += 2
            self._inside("))", "in arithmetic", word)
        elif self._starts("$("):
            self._at += 2
            inner = len(self.values)
            self.commands_until(")")
            word.values += self.values[inner:]
        elif self._starts("${"):
            self._at += 1
            self._inside("}", "in ${…}", word)
        elif self._starts("$'") and not context:
            self._at += 1
            self._inside("'", "in single quotes", word)
        else:
            self._at += 1
            while isinstance(symbol := self._peek(), str) and (symbol.isalnum() or symbol == "_"):
                self._at += 1
        word.text += "\0"
