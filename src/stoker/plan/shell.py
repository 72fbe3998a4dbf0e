"""Where in a bash command a place stands, and how a value is quoted for it."""

from __future__ import annotations

import re
from enum import Enum

from stoker.core.values import Value, text


class Place(Enum):
    """The shell context of one place in a command. Values may stand in the first three."""

    BARE = "outside quotes"
    SINGLE = "inside '…'"
    DOUBLE = 'inside "…"'
    BACKTICK = "inside backticks"
    ANSI = "inside $'…'"
    EXPANSION = "inside ${…}"
    ARITHMETIC = "inside ((…))"
    CONDITION = "inside [[ … ]]"
    COMMENT = "behind a #"
    UNCLEAR = "behind shell syntax too intricate to quote for"


REMEDIES = {
    Place.BACKTICK: "use $(…) instead of backticks",
    Place.ANSI: "use '…' or \"…\" instead of $'…'",
    Place.EXPANSION: 'assign it to a variable first: `x={name}; … "${x}"`',
    Place.ARITHMETIC: "let a program compute: $(expr {name} + 1), or for i in $(seq {name})",
    Place.CONDITION: "use [ … ]: [ {name} = new ], [ {name} -gt 3 ]",
    Place.COMMENT: "take the comment out of the command",
    Place.UNCLEAR: "move that part into a script, or assign the value to a variable first",
}

_QUOTES = {"'": Place.SINGLE, '"': Place.DOUBLE, "`": Place.BACKTICK}
_HIDDEN = (Place.ARITHMETIC, Place.EXPANSION, Place.BACKTICK, Place.CONDITION)
_WORD_BREAKS = frozenset(" \t;&|()<>")
_CASE = re.compile(r"case(?![^\s;&|()<>])")
_CONDITION = re.compile(r"\[\[(?=\s)")
_CONDITION_END = re.compile(r"\]\](?![^\s;&|()<>])")


class Lexer:
    """Follows bash through the fixed text of a command, piece by piece, and knows where it stands.

    It must never believe in a place that is not so: where it cannot be sure, it says UNCLEAR.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, Place]] = []  # (what closes it, what is inside), outermost first
        self._unclear = False
        self._word_start = True
        self._previous = " "
        self.heredoc = False
        self.escaped = False  # a backslash waits for the next character

    @property
    def place(self) -> Place:
        """Where the next character stands."""
        if self._unclear:
            return Place.UNCLEAR
        return next((place for _, place in self._open if place in _HIDDEN), self._inside)

    @property
    def unclosed(self) -> str | None:
        """What would have to come to close the innermost open quote or bracket."""
        return self._open[-1][0] if self._open and self._inside is not Place.COMMENT else None

    @property
    def _inside(self) -> Place:
        return self._open[-1][1] if self._open else Place.BARE

    def hole(self, may_vanish: bool) -> None:
        """A value stands here; `may_vanish` if it can turn out empty."""
        self._word_start = self._word_start and may_vanish
        self._previous = "x"

    def feed(self, fixed: str) -> None:
        """Read on through fixed text."""
        at = 0
        while at < len(fixed):
            if self.escaped:
                self.escaped, taken = False, 1
            else:
                taken = self._step(fixed, at)
            self._previous = fixed[at + taken - 1]
            at += taken

    def _step(self, fixed: str, at: int) -> int:
        """Read what begins at a place, and return its length."""
        inside, character = self._inside, fixed[at]
        if inside is Place.COMMENT:
            return len(fixed) - at
        if inside is Place.SINGLE:
            return self._pass(character)
        if character == "\\":
            self.escaped, self._word_start = True, False
            return 1
        if inside in (Place.ANSI, Place.BACKTICK):
            return self._pass(character)
        if inside is Place.DOUBLE:
            return self._dollar(fixed, at) or self._backtick(character) or self._pass(character)
        if inside in (Place.EXPANSION, Place.ARITHMETIC):
            return self._in_expression(fixed, at)
        return self._in_command(fixed, at)

    def _pass(self, character: str) -> int:
        if self._open and character == self._open[-1][0]:
            self._open.pop()
        self._word_start = False
        return 1

    def _push(self, opener: str, closer: str, place: Place) -> int:
        self._open.append((closer, place))
        self._word_start = place is Place.BARE
        return len(opener)

    def _dollar(self, fixed: str, at: int) -> int:
        if fixed.startswith("$((", at):
            self._push("", ")", Place.ARITHMETIC)
            return self._push("$((", ")", Place.ARITHMETIC)
        if fixed.startswith("$(", at):
            return self._push("$(", ")", Place.BARE)
        if fixed.startswith("${", at):
            return self._push("${", "}", Place.EXPANSION)
        if fixed.startswith("$[", at):
            return self._push("$[", "]", Place.ARITHMETIC)
        return 0

    def _backtick(self, character: str) -> int:
        return self._push("`", "`", Place.BACKTICK) if character == "`" else 0

    def _in_expression(self, fixed: str, at: int) -> int:
        """Inside ${…} or ((…)), where quotes mean different things in different places."""
        taken = self._dollar(fixed, at) or self._backtick(fixed[at])
        if taken:
            return taken
        if fixed[at] in "'\"" or (fixed[at] in "<>(" and self._inside is Place.EXPANSION):
            self._unclear = True
        closer = {"(": ")", "[": "]"}.get(fixed[at])
        if closer and closer == self._open[-1][0]:
            return self._push(fixed[at], closer, Place.ARITHMETIC)
        return self._pass(fixed[at])

    def _in_command(self, fixed: str, at: int) -> int:
        if fixed.startswith("$'", at):
            return self._push("$'", "'", Place.ANSI)
        taken = self._dollar(fixed, at)
        if taken:
            return taken
        if fixed[at] in _QUOTES:
            return self._push(fixed[at], fixed[at], _QUOTES[fixed[at]])
        if fixed[at] in "()<#":
            return self._operator(fixed, at)
        return self._word(fixed, at)

    def _word(self, fixed: str, at: int) -> int:
        if self._word_start and self._open and _CASE.match(fixed, at):
            self._unclear = True  # its patterns end in a ) that closes nothing
        if self._word_start and _CONDITION.match(fixed, at):
            return self._push("[[", "]]", Place.CONDITION)
        if self._word_start and self._inside is Place.CONDITION and _CONDITION_END.match(fixed, at):
            self._open.pop()
            return 2
        self._word_start = fixed[at] in _WORD_BREAKS
        return 1

    def _operator(self, fixed: str, at: int) -> int:
        if fixed.startswith("((", at):
            self._push("", ")", Place.ARITHMETIC)
            return self._push("((", ")", Place.ARITHMETIC)
        if fixed[at] == "(":
            # bash itself loses its way with quotes in an array inside a substitution
            self._unclear = self._unclear or (self._previous == "=" and bool(self._open))
            return self._push("(", ")", Place.BARE)
        if fixed.startswith("<<<", at):
            self._word_start = True
            return 3
        if fixed.startswith("<<", at):
            self.heredoc = True
        if fixed[at] == "#" and self._word_start:
            return self._push("#", "", Place.COMMENT)
        taken = self._pass(fixed[at])
        self._word_start = fixed[at] != "#"
        return taken


_PLAIN = re.compile(r"[\w./:@%+-]+", re.ASCII)
_RESERVED = frozenset(
    "case coproc do done elif else esac fi for function if in select then time until while".split()  # noqa: SIM905
)
_NUMBER_BEFORE_REDIRECTION = re.compile(r"\d*[<>]")
_OPEN_VARIABLE = re.compile(r"\$\w*$")
_TILDE = re.compile(r"~[^\s/'\"]*$")


def quote(value: Value, place: Place, before: str, after: str) -> str:
    """The value as it must be written at a place, so that a program gets it unchanged.

    `before` and `after` are the texts it stands between: a name before it (`$HOME{x}`) or a redirection
    behind it (`{x}>log`) would swallow a value without quotes.
    """
    written = text(value)
    if place is Place.SINGLE:
        return written.replace("'", "'\\''")
    if place is Place.DOUBLE:
        escaped = re.sub(r'([\\$`"])', r"\\\1", written)
        return f'""{escaped}' if _OPEN_VARIABLE.search(before) else escaped
    glued = _OPEN_VARIABLE.search(before) or _TILDE.search(before) or _NUMBER_BEFORE_REDIRECTION.match(after)
    if not glued and _is_plain(value, written):
        return written
    return "'" + written.replace("'", "'\\''") + "'"


def _is_plain(value: Value, written: str) -> bool:
    """Whether bash reads the text as one word, unchanged, wherever a word may stand."""
    if not _PLAIN.fullmatch(written):
        return False
    return not isinstance(value, str) or (
        written[0] != "-" and ".." not in written and written not in _RESERVED
    )
