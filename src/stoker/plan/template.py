"""A stage's command with places for parameters: `{p}` for a value, `[p]` for `--p value`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stoker.core.values import Value
from stoker.plan.shell import REMEDIES, Lexer, Place, quote

RESERVED = ("_output", "_name", "_time", "_trial", "_attempt", "_slot", "_study")
"""Names a command may use without setting them."""

_TOKEN = re.compile(
    r"\{\{(?P<text>[\w-]+)\}\}"  # {{name}}: the text {name}
    r"|\[\[(?P<option_text>[\w-]+)\]\]"  # [[name]]: the text [name]
    r"|\$\{[\w-]+\}"  # ${NAME}: the shell's own
    r"|\{(?P<value>[\w-]+)\}"
    r"|\[(?P<option>[\w-]+)\]"
)
_OPENERS = {")": "(", "}": "{", "]": "["}


@dataclass(frozen=True)
class Hole:
    """A place for a parameter."""

    name: str
    option: bool  # [name]
    place: Place

    @property
    def written(self) -> str:
        """As it stands in the template."""
        return f"[{self.name}]" if self.option else f"{{{self.name}}}"


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a template: at which token, why, and what to do."""

    token: str
    message: str
    remedy: str
    last: bool = False  # the last such token of the command, not the first


@dataclass(frozen=True)
class Template:
    """A command cut into fixed texts and holes."""

    pieces: tuple[str | Hole, ...]
    flaws: tuple[Flaw, ...] = ()

    @property
    def holes(self) -> tuple[Hole, ...]:
        """All places for parameters, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Hole))

    def render(self, params: Mapping[str, Value]) -> str:
        """The command with every hole filled; `params` has all of them, the reserved ones included."""
        command = ""
        for piece, after in zip(self.pieces, (*self.pieces[1:], ""), strict=True):
            following = after if isinstance(after, str) else ""
            if isinstance(piece, str):
                command += piece
            elif piece.option and params[piece.name] is False:
                command = command.removesuffix(" ") if piece.place is Place.BARE else command
            else:
                command += _fill(piece, params[piece.name], command, following)
        return command.strip()


def _fill(hole: Hole, value: Value, before: str, after: str) -> str:
    if not hole.option:
        return quote(value, hole.place, before, after)
    if value is True:
        return f"--{hole.name}"
    return f"--{hole.name} " + quote(value, hole.place, " ", after)


def parse(command: str) -> Template:
    """Cut a command into pieces. Flaws are collected, not raised; a template with flaws is not to be run."""
    parser = _Parser()
    at, command = 0, join_lines(command)
    for match in _TOKEN.finditer(command):
        parser.fixed(command[at : match.start()])
        parser.token(match)
        at = match.end()
    parser.fixed(command[at:])
    return parser.finish()


def join_lines(command: str) -> str:
    """The command on one line; a backslash at a line's end is no longer needed and goes."""
    return " ".join(line for line in map(_without_continuation, command.split("\n")) if line)


def _without_continuation(line: str) -> str:
    line = line.strip()
    backslashes = len(line) - len(line.rstrip("\\"))
    return line[:-1].rstrip() if backslashes % 2 else line


class _Parser:
    def __init__(self) -> None:
        self._lexer = Lexer()
        self._pieces: list[str | Hole] = []
        self._flaws: list[Flaw] = []

    def fixed(self, text: str) -> None:
        self._lexer.feed(text)
        if self._pieces and isinstance(self._pieces[-1], str):
            self._pieces[-1] += text
        elif text:
            self._pieces.append(text)

    def token(self, match: re.Match[str]) -> None:
        if match["text"]:
            self.fixed(f"{{{match['text']}}}")
        elif match["option_text"]:
            self.fixed(f"[{match['option_text']}]")
        elif match["value"] or match["option"]:
            self._hole(match["value"] or match["option"], bool(match["option"]))
        else:
            self.fixed(match[0])

    def _hole(self, name: str, option: bool) -> None:
        hole = Hole(name, option, self._lexer.place)
        self._check(hole)
        self._lexer.hole(may_vanish=option)
        self._pieces.append(hole)

    def _check(self, hole: Hole) -> None:
        before = self._pieces[-1] if self._pieces and isinstance(self._pieces[-1], str) else ""
        if hole.place in REMEDIES:
            remedy = REMEDIES[hole.place].replace("{name}", hole.written)
            self._flaw(
                hole.written, f"{hole.written} stands {hole.place.value}, where no value is safe", remedy
            )
        elif self._lexer.escaped:
            remedy = f"take the backslash away, or write {{{{{hole.name}}}}} for the text itself"
            self._flaw(hole.written, f"the backslash before {hole.written} would undo its quoting", remedy)
        elif hole.option and re.search(r"\$\w*$", before):
            remedy = f"put a space before it, or write [[{hole.name}]] for the text itself"
            self._flaw(hole.written, f"{hole.written} sticks to the shell variable before it", remedy)

    def _flaw(self, token: str, message: str, remedy: str, last: bool = False) -> None:
        self._flaws.append(Flaw(token, message, remedy, last))

    def finish(self) -> Template:
        if self._lexer.heredoc:
            remedy = "line breaks are joined: use <<< 'text', or a script"
            self._flaw("<<", "a here-document cannot stand in a command", remedy)
        closer = self._lexer.unclosed
        if closer:
            message = f"a quote or bracket is open at the end: {closer} is missing"
            self._flaw(_OPENERS.get(closer, closer), message, f"close it, or write \\{closer}", last=True)
        self._check_doubles()
        return Template(tuple(self._pieces), tuple(self._flaws))

    def _check_doubles(self) -> None:
        holes = [piece for piece in self._pieces if isinstance(piece, Hole)]
        options = {hole.name for hole in holes if hole.option}
        for name in dict.fromkeys(hole.name for hole in holes if not hole.option and hole.name in options):
            message = f"{{{name}}} and [{name}] stand in one command"
            self._flaw(
                f"[{name}]",
                message,
                f"keep one: [{name}] becomes `--{name} value`, {{{name}}} the value alone",
            )
