"""A stage's command with places for parameters: `{p}` for a value, `[p]` for `--p value`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from stoker.core.values import Value
from stoker.plan.shell import REMEDIES, Lexer, Place, quote

RESERVED = ("_output", "_name", "_time", "_trial", "_attempt", "_slot", "_study")
"""Names a command may use without setting them."""

_TOKEN = re.compile(
    r"\{\{(?P<text>[\w-]+)\}\}"  # {{name}}: the text {name}
    r"|\[\[(?P<option_text>[\w-]+)\]\]"  # [[name]]: the text [name]
    r"|(?<![\\$])\$\{[\w-]+\}"  # ${NAME}: the shell's own
    r"|\{(?P<value>[\w-]+)\}"
    r"|\[(?P<option>[\w-]+)\]"
)
_OPENERS = {")": "(", "}": "{", "]": "[", "]]": "[["}
_SPACE_AT_END = re.compile(r"(?<!\\)(?:\\\\)* $")  # not one that a backslash makes part of a word
_SUBSCRIPT = re.compile(r"(?:^|[\s;&|(])\w+\[[^\]]*$")


@dataclass(frozen=True)
class Hole:
    """A place for a parameter."""

    name: str
    option: bool  # [name]
    place: Place
    nth: int = field(default=0, compare=False)  # how often its token stands in the command before it

    @property
    def written(self) -> str:
        """As it stands in the template."""
        return f"[{self.name}]" if self.option else f"{{{self.name}}}"


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a template: at which token, why, and what to do."""

    token: str
    nth: int  # how often the token stands in the command before that place; -1 for the last of all
    message: str
    remedy: str


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
        texts, holes = self._without_false_options(params)
        command = texts[0]
        for place, (hole, after) in enumerate(zip(holes, texts[1:], strict=True)):
            # a value that touches another one is quoted, lest the two together mean something
            alone = (texts[place] or place == 0) and (after or place == len(holes) - 1)
            command += _filled(hole, params[hole.name], command if alone else "$", after) + after
        return command

    def _without_false_options(self, params: Mapping[str, Value]) -> tuple[list[str], list[Hole]]:
        """Holes that will be filled, and the texts before, between and behind them."""
        texts, holes = [""], []
        for piece in self.pieces:
            if isinstance(piece, str):
                texts[-1] = _closed_up(texts[-1], piece)
            elif not piece.option or params[piece.name] is not False:
                holes.append(piece)
                texts.append("")
        texts[0] = texts[0].lstrip()
        if _SPACE_AT_END.search(texts[-1]):
            texts[-1] = texts[-1].rstrip()
        return texts, holes


def _closed_up(before: str, after: str) -> str:
    """Two texts from between which an option vanished, with one space instead of two."""
    return before + (after[1:] if after.startswith(" ") and _SPACE_AT_END.search(before) else after)


def _filled(hole: Hole, value: Value, before: str, after: str) -> str:
    if not hole.option:
        return quote(value, hole.place, before, after)
    if value is True:
        return f"--{hole.name}"
    return f"--{hole.name} " + quote(value, hole.place, " ", after)


def parse(command: str) -> Template:
    """Cut a command into pieces. Flaws are collected, not raised; a template with flaws is not to be run."""
    command = join_lines(command)
    parser, at = _Parser(command), 0
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
    def __init__(self, command: str) -> None:
        self._command = command
        self._lexer = Lexer()
        self._read = ""  # so far, with an x for every hole
        self._pieces: list[str | Hole] = []
        self._flaws: list[Flaw] = []

    def fixed(self, text: str) -> None:
        self._lexer.feed(text)
        self._read += text
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
            nth = self._command.count(match[0], 0, match.start())
            self._hole(Hole(match["value"] or match["option"], bool(match["option"]), self._lexer.place, nth))
        else:
            self.fixed(match[0])

    def _hole(self, hole: Hole) -> None:
        flaw = self._flaw_of(hole)
        if flaw:
            self._flaws.append(Flaw(hole.written, hole.nth, *flaw))
        self._lexer.hole(may_vanish=hole.option)
        self._read += "x"
        self._pieces.append(hole)

    def _flaw_of(self, hole: Hole) -> tuple[str, str] | None:
        """Why no value can stand at a place, and what to do; None if one can."""
        text = f"[[{hole.name}]]" if hole.option else f"{{{{{hole.name}}}}}"
        if hole.place is Place.COMMENT:
            return None  # reported for the whole command
        if hole.place in REMEDIES:
            remedy = REMEDIES[hole.place].replace("{name}", hole.written)
            if hole.option:
                remedy = f"move it out of there, or write {text} for the text itself"
            return f"{hole.written} stands {hole.place.value}, where no value is safe", remedy
        if self._lexer.escaped:
            remedy = f"take the backslash away, or write {text} for the text itself"
            return f"the backslash before {hole.written} would undo its quoting", remedy
        if hole.place is not Place.SINGLE and re.search(
            r"\$\w*$" if hole.option else r"(?<!\\)\$$", self._read
        ):
            remedy = f"put a space before it, or write {text} for the text itself"
            return f"{hole.written} sticks to the shell variable before it", remedy
        if hole.place is Place.BARE and _SUBSCRIPT.search(self._read):
            return f"{hole.written} stands inside name[…], where no value is safe", REMEDIES[Place.UNCLEAR]
        return None

    def finish(self) -> Template:
        closer = self._lexer.unclosed
        if self._lexer.heredoc:
            remedy = "line breaks are joined: use <<< 'text', or a script"
            self._flaws.append(Flaw("<<", 0, "a here-document cannot stand in a command", remedy))
        if self._lexer.place is Place.COMMENT:
            message = "line breaks are joined, so this comment hides the rest of the command"
            self._flaws.append(Flaw("#", -1, message, REMEDIES[Place.COMMENT]))
        elif closer:
            message = f"a quote or bracket is open at the end: {closer} is missing"
            self._flaws.append(
                Flaw(_OPENERS.get(closer, closer), -1, message, f"close it, or write \\{closer}")
            )
        self._check_doubles()
        return Template(tuple(self._pieces), tuple(self._flaws))

    def _check_doubles(self) -> None:
        holes = [piece for piece in self._pieces if isinstance(piece, Hole)]
        values = {hole.name for hole in holes if not hole.option}
        for hole in dict.fromkeys(hole for hole in holes if hole.option and hole.name in values):
            message = f"{{{hole.name}}} and {hole.written} stand in one command"
            remedy = f"write `--{hole.name} {{{hole.name}}}` instead of {hole.written}"
            self._flaws.append(Flaw(hole.written, hole.nth, message, remedy))
