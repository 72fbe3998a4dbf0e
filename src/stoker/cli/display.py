"""Drawing in a terminal. Imports rich, so only commands that draw import this."""

from __future__ import annotations

from rich.console import Console


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the command's frame knows what to do


def console() -> Console:
    """A console that wraps nothing and colours only what it is told to."""
    return _Console(highlight=False, soft_wrap=True)
