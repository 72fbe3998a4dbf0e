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
    COMMENT = "behind a #, which hides the rest of the command"
    UNCLEAR = "behind shell syntax too intricate to quote for"


REMEDIES = {
    Place.BACKTICK: "use $(…) instead of backticks",
    Place.ANSI: "use '…' or \"…\" instead of $'…'",
    Place.EXPANSION: "assign it to a variable first: `x={name}; … ${{x}}`",
    Place.ARITHMETIC: "assign it to a variable first: `n={name}; … $((n + 1))`",
    Place.COMMENT: "line breaks are joined: take the comment out of the command",
    Place.UNCLEAR: "move that part into a script, or assign the value to a variable first",
}

_QUOTES = {"'": Place.SINGLE, '"': Place.DOUBLE, "`": Place.BACKTICK}
_WORD_BREAKS = frozenset(" \t;&|()<>")
_CASE = re.compile(r"case(?![^\s;&|()<>])")


class Lexer:
    """Follows bash through the fixed text of a command, piece by piece, and knows where it stands.

    It must never believe in a place that is not so: where it cannot be sure, it says UNCLEAR.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, Place]] = []  # (what closes it, what is inside), outermost first
        self._unclear = False
        self._word_start = True
        self.heredoc = False
        self.escaped = False  # a backslash waits for the next character

    @property
    def place(self) -> Place:
        """Where the next character stands."""
        if self._unclear:
            return Place.UNCLEAR
        inner = self._open[-1][1] if self._open else Place.BARE
        hidden = (Place.ARITHMETIC, Place.EXPANSION, Place.BACKTICK)
        return next((place for _, place in self._open if place in hidden), inner)

    @property
    def unclosed(self) -> str | None:
        """What would have to come to close the innermost open quote or bracket."""
        if not self._open or self._open[-1][1] is Place.COMMENT:
            return None
        return self._open[-1][0]

    def hole(self, may_vanish: bool) -> None:
        """A value stands here; `may_vanish` if it can turn out empty."""
        self._word_start = self._word_start and may_vanish

    def feed(self, fixed: str) -> None:
        """Read on through fixed text."""
        at = 0
        while at < len(fixed):
            at += self._escape() or self._step(fixed[at:])

    def _escape(self) -> int:
        taken, self.escaped = self.escaped, False
        return int(taken)

    def _step(self, rest: str) -> int:
        inside = self._open[-1][1] if self._open else Place.BARE
        if inside is Place.COMMENT:
            return len(rest)
        if inside is Place.SINGLE:
            return self._close_or_pass(rest)
        if rest[0] == "\\":
            self.escaped, self._word_start = True, False
            return 1
        if inside in (Place.ANSI, Place.BACKTICK):
            return self._close_or_pass(rest)
        if inside is Place.DOUBLE:
            return self._dollar(rest) or self._backtick(rest) or self._close_or_pass(rest)
        if inside in (Place.EXPANSION, Place.ARITHMETIC):
            return self._in_expression(rest)
        return self._in_command(rest)

    def _close_or_pass(self, rest: str) -> int:
        if self._open and rest[0] == self._open[-1][0]:
            self._open.pop()
        self._word_start = False
        return 1

    def _push(self, opener: str, closer: str, place: Place) -> int:
        self._open.append((closer, place))
        self._word_start = place is Place.BARE
        return len(opener)

    def _dollar(self, rest: str) -> int:
        if rest.startswith("$(("):
            self._push("", ")", Place.ARITHMETIC)
            return self._push("$((", ")", Place.ARITHMETIC)
        if rest.startswith("$("):
            return self._push("$(", ")", Place.BARE)
        if rest.startswith("${"):
            return self._push("${", "}", Place.EXPANSION)
        if rest.startswith("$["):
            return self._push("$[", "]", Place.ARITHMETIC)
        return 0

    def _backtick(self, rest: str) -> int:
        return self._push("`", "`", Place.BACKTICK) if rest[0] == "`" else 0

    def _in_expression(self, rest: str) -> int:
        """Inside ${…} or ((…)), where quotes mean different things in different places."""
        taken = self._dollar(rest) or self._backtick(rest)
        if taken:
            return taken
        if rest[0] in "'\"":
            self._unclear = True
        if rest[0] == "(" and self._open[-1][0] == ")":
            return self._push("(", ")", Place.ARITHMETIC)
        return self._close_or_pass(rest)

    def _in_command(self, rest: str) -> int:
        if rest.startswith("$'"):
            return self._push("$'", "'", Place.ANSI)
        taken = self._dollar(rest)
        if taken:
            return taken
        if rest[0] in _QUOTES:
            return self._push(rest[0], rest[0], _QUOTES[rest[0]])
        if rest[0] in "()<#":
            return self._operator(rest)
        if self._word_start and self._open and _CASE.match(rest):
            self._unclear = True  # its patterns end in a ) that closes nothing
        self._word_start = rest[0] in _WORD_BREAKS
        return 1

    def _operator(self, rest: str) -> int:
        if rest.startswith("(("):
            self._push("", ")", Place.ARITHMETIC)
            return self._push("((", ")", Place.ARITHMETIC)
        if rest[0] == "(":
            return self._push("(", ")", Place.BARE)
        if rest.startswith("<<<"):
            self._word_start = True
            return 3
        if rest.startswith("<<"):
            self.heredoc = True
        if rest[0] == "#" and self._word_start:
            return self._push("#", "", Place.COMMENT)
        taken = self._close_or_pass(rest)
        self._word_start = rest[0] != "#"
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
    if not isinstance(value, str):
        return _PLAIN.fullmatch(written) is not None
    return _PLAIN.fullmatch(written) is not None and written[0] != "-" and written not in _RESERVED
