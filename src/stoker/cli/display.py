"""Drawing in a terminal. Imports rich, so only commands that draw import this."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from contextlib import suppress

from rich.console import Console
from rich.text import Text

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # shown in one piece, where the terminal can
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the command's frame knows what to do


def console() -> Console:
    """A console that wraps nothing and colours only what it is told to."""
    return _Console(highlight=False, soft_wrap=True)


class Canvas:
    """Lines at the end of a terminal that are drawn again in place; what stands above stays.

    Between two frames the cursor waits at the first line, not below the last. Terminals that change their
    size wrap lines anew, drop some and get others back, each in its own way, but all keep the cursor at the
    text where it was. So the next frame begins where this one does, and clears all that is below.
    """

    def __init__(self, out: int, hides_cursor: bool = False) -> None:
        self._out, self._hides_cursor = out, hides_cursor
        self._console = Console(highlight=False, soft_wrap=True, force_terminal=True)
        self._rows = 0  # of the frame that the cursor stands at the first line of

    def draw(self, lines: Sequence[Text]) -> None:
        """Write a frame over the last one; a terminal that takes nothing (Ctrl-S) misses it.

        There are to be fewer lines than the terminal has, and all narrower, so that nothing wraps or scrolls.
        """
        if not select.select([], [self._out], [], 0)[1]:
            return
        with self._console.capture() as captured:
            self._console.print(Text("\n").join(lines))
        body = captured.get().rstrip("\n").replace("\n", "\x1b[K\n")
        self._rows = len(lines)
        begin = f"{_BEGIN}{_HIDE * self._hides_cursor}{_NO_WRAP}\r"
        self._write(f"{begin}{body}\x1b[K\n\x1b[J{_WRAP}\x1b[{self._rows}A\r{_END}")

    def leave(self) -> None:
        """Put the cursor below the frame, which stays. The next one is drawn where the cursor is then."""
        down = f"\x1b[{self._rows}B\r" if self._rows else ""
        self._write(f"{down}{_SHOW * self._hides_cursor}")
        self.forget()

    def forget(self) -> None:
        """Somebody else has moved the cursor."""
        self._rows = 0

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        with suppress(OSError):  # the terminal is gone; the signal that tells so comes
            while data:
                data = data[os.write(self._out, data) :]


def size_of(out: int) -> tuple[int, int]:
    """Columns and lines of a terminal."""
    with suppress(OSError):
        columns, lines = os.get_terminal_size(out)
        return columns or 80, lines or 24
    return 80, 24
