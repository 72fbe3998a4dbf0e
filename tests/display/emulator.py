"""A terminal as a person sees it: what a program wrote, on a screen with a history, also when it is resized.

It knows the few sequences that the display uses, and refuses others. Terminals differ in what they do when
their width changes: most wrap their lines anew, xterm cuts them; `rewraps` says which. One that shrinks drops
lines below the cursor first, then pushes those at the top into its history; one that grows gets them back.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[(\?)?([\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Row:
    """Cells of one row; if it `goes_on`, the next row is the rest of the same line."""

    def __init__(self, cells: str = "", goes_on: bool = False) -> None:
        self.cells, self.goes_on = cells, goes_on


class Emulator:
    """What stands in a terminal. The cursor is at `row` of all rows that ever were, and at `column`."""

    def __init__(self, columns: int, lines: int, rewraps: bool = True) -> None:
        self.columns, self.lines, self._rewraps = columns, lines, rewraps
        self.rows = [Row()]
        self.row = self.column = self._top = 0
        self._wraps = True
        self._rest = ""

    def feed(self, text: str) -> None:
        text, self._rest = self._rest + text, ""
        place = 0
        while place < len(text):
            token = _TOKEN.match(text, place)
            if token is None:
                assert re.fullmatch(r"\x1b(\[\??[\d;]*)?", text[place:]), text[place : place + 20]
                self._rest = text[place:]  # the other half comes later
                return
            place = token.end()
            self._obey(token)

    def _obey(self, token: re.Match[str]) -> None:
        private, numbers, final, control, words = token.groups()
        if words:
            self._put(words)
        elif control:
            self.column = 0  # the terminal's driver makes \r\n of \n
            self.row += control == "\n"
        elif private:
            self._wraps = final == "h" if numbers == "7" else self._wraps
        elif final in "AB":
            self.row += int(numbers or 1) * (1 if final == "B" else -1)
            self.row = min(max(self.row, self._top), self._top + self.lines - 1)
        elif final in "KJ":
            self._erase(below=final == "J")
        else:
            assert final == "m", token[0]
        self._settle()

    def _put(self, words: str) -> None:
        for character in words:
            if self.column == self.columns:
                if self._wraps:
                    self.rows[self.row].goes_on = True
                    self.row, self.column = self.row + 1, 0
                    self._settle()
                else:
                    self.column -= 1
            cells = self.rows[self.row].cells.ljust(self.column)
            self.rows[self.row].cells = cells[: self.column] + character + cells[self.column + 1 :]
            self.column += 1

    def _erase(self, below: bool) -> None:
        row = self.rows[self.row]
        row.cells, row.goes_on = row.cells[: self.column], False
        if below:
            del self.rows[self.row + 1 :]

    def _settle(self) -> None:
        self.rows += [Row() for _ in range(self.row + 1 - len(self.rows))]
        self._top = max(self._top, self.row + 1 - self.lines)

    def resize(self, columns: int, lines: int) -> None:
        if self._rewraps:
            self._rewrap(columns)
        for row in self.rows[self._top :]:
            row.cells = row.cells[:columns]
        self.columns, self.lines = columns, lines
        self._top = min(self._top, max(0, len(self.rows) - lines))  # grown: the history comes back
        self._settle()
        del self.rows[self._top + lines :]

    def _rewrap(self, columns: int) -> None:
        rows: list[Row] = []
        line, top, cursor = "", 0, (0, 0)
        for number, row in enumerate(self.rows):
            if number == self._top:
                top = len(rows) + len(line) // columns
            if number == self.row:
                down, right = divmod(len(line) + self.column, columns)
                cursor = len(rows) + down, right
            line += row.cells.ljust(self.columns) if row.goes_on else row.cells
            if not row.goes_on:
                rows += [Row(line[n : n + columns], goes_on=True) for n in range(0, len(line) or 1, columns)]
                rows[-1].goes_on = False
                line = ""
        self.rows, self._top, (self.row, self.column) = rows, top, cursor

    def everything(self) -> list[str]:
        """All rows, those of the history too, without empty ones at the end."""
        return "\n".join(row.cells.rstrip() for row in self.rows).rstrip().split("\n")
