"""A running study as plain lines, for pipes and simple terminals; and the words at the end of every run.

START gpu 0 train 1/4 output/Norm_new-Moment_0.1
DONE  gpu 0 train 1/4 output/Norm_new-Moment_0.1 12.3 s
FAIL  gpu 0 train 2/4 output/Norm_new-Moment_0.2 exit code 1: see output/Norm_new-Moment_0.2/log.train.…
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from stoker.cli.board import Board, End, Outcome, Screen, State, Task, Wish, around, duration
from stoker.cli.study_options import DEFAULT_OUTPUT
from stoker.spec.problems import printable

if TYPE_CHECKING:  # rich takes a while to import, and lines do not need it
    from rich.text import Text

MINUTE = 60.0
QUIET = 10 * MINUTE
"""A summary comes every minute, but while nothing changes only as often as this."""

FAILURES = 5
LOG_LINES = 8
_TAIL_BYTES = 16_384
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_WORDS = {
    Outcome.FINISHED: "DONE",
    Outcome.FAILED: "FAIL",
    Outcome.RELEASED: "BACK",  # given back, for another attempt
    Outcome.STOPPED: "STOP",
}


def make_screen(study: str, where: str, total: int, plain: bool, ask: Callable[[Wish], None]) -> Screen:
    """The screen that fits standard output. To be closed; it has the signals of this process until then."""
    board = Board(study, where, total, time.time())
    if plain or not _can_draw(sys.stdout):
        return Lines(board, ask, sys.stdout)
    from stoker.cli.live import Live

    return Live(board, ask)


def _can_draw(out: TextIO) -> bool:
    utf8 = (out.encoding or "").lower().replace("-", "") == "utf8"
    return out.isatty() and utf8 and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


class Heard:
    """Signals become bytes in a pipe, so that they are acted upon between steps and not amid one.

    What is ignored stays so: `nohup` and `trap '' INT` are meant.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self.descriptor, self._end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._end, False)
        self._interrupts = 0
        self._before = {
            number: signal.signal(number, self._note)
            for number in numbers
            if signal.getsignal(number) is not signal.SIG_IGN
        }

    def _note(self, number: int, _: FrameType | None) -> None:
        with suppress(BlockingIOError):
            os.write(self._end, bytes([number]))
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 2:  # nobody listens: something hangs
            raise KeyboardInterrupt

    def take(self) -> list[signal.Signals]:
        """The signals since the last call."""
        self._interrupts = 0
        with suppress(BlockingIOError):
            return [signal.Signals(number) for number in os.read(self.descriptor, 4096)]
        return []

    def stop(self) -> None:
        """Stop this process as Ctrl-Z does; the kernel knows when there is no shell to wake it again."""
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)

    def close(self) -> None:
        """Handle signals as before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self._end)


ENDING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


def ending_wish(board: Board, number: signal.Signals) -> Wish:
    """Ctrl-C asks to end, and again insists, as Ctrl-\\ does; other signals come from programs, which ask."""
    insist = number == signal.SIGQUIT or (board.quitting and number == signal.SIGINT)
    board.quitting = True
    return Wish.KILL if insist else Wish.QUIT


class Lines:
    """One line for whatever happens. When nobody reads them any more, the study is asked to end."""

    def __init__(self, board: Board, ask: Callable[[Wish], None], out: TextIO) -> None:
        self.board = board
        self._ask, self._out = ask, out
        self._heard: Heard | None = Heard(*ENDING)
        self._broken = False
        self._said, self._said_at = "", board.now

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take in one event of the agent, and tell of it."""
        before = self.board.slots, self.board.notes, self.board.away
        happened = self.board.feed(event)
        for line in [_line(self.board, happened)] if happened else _other_lines(self.board, event, before):
            self._write(line)

    def tick(self, state: State, now: float) -> None:
        """Take in what the store says, and sum up now and then."""
        self.board.see(state, now)
        if not self._broken and _is_deserted(self._out):
            self._break()
        said = summary(self.board)
        if now - self._said_at >= (MINUTE if said != self._said else QUIET):
            self._said, self._said_at = said, now
            end = self.board.expected_end()
            self._write(f"STUDY {said}" + (f", ends {around(end, now)}" if end else ""))

    def descriptors(self) -> Sequence[int]:
        """What to wait for."""
        return [self._heard.descriptor] if self._heard else []

    def ready(self) -> None:
        """Hear signals."""
        for number in self._heard.take() if self._heard else ():
            self._ask(wish := ending_wish(self.board, number))
            hint = "" if wish is Wish.KILL else ": Ctrl-C again ends everything at once"
            self._write(f"STUDY stopping{hint}")

    def close(self) -> None:
        """Give the signals back. May be repeated."""
        if self._heard:
            self._heard.close()
            self._heard = None

    def _write(self, line: str) -> None:
        if self._broken:
            return
        try:
            self._out.write(f"{line}\n")
            self._out.flush()
        except BrokenPipeError:
            self._break()
        except OSError:  # a full disk: no reason to end a study
            pass

    def _break(self) -> None:
        self._broken = True
        if not self.board.quitting:
            self.board.quitting = True
            self._ask(Wish.QUIT)


def _is_deserted(out: TextIO) -> bool:
    """Whether it is a pipe that nobody reads any more; known before anything is written."""
    watch = select.poll()
    watch.register(out.fileno(), 0)
    return any(told & (select.POLLERR | select.POLLHUP) for _, told in watch.poll(0))


def _line(board: Board, happened: End | Task) -> str:
    task = happened if isinstance(happened, Task) else happened.task
    where = f"{board.label(task)} {task.stage} {board.number(task)} {task.place}"
    if isinstance(happened, Task):
        return f"START {where}"
    line = f"{_WORDS[happened.outcome]:<5} {where}"
    if happened.outcome is not Outcome.FAILED:
        return f"{line} {duration(happened.seconds)}"
    return f"{line} {happened.reason}" + (f": see {printable(task.log)}" if task.log else "")


def _other_lines(board: Board, event: Mapping[str, Any], before: tuple[Any, Any, str]) -> Iterator[str]:
    slots, notes, away = before
    match event["event"]:
        case "slots":
            for slot in board.slots:
                if slot not in slots and (slot.holder or slots):
                    yield f"SLOT  {slot.label} " + (f"is held by {slot.holder}" if slot.holder else "is free")
            yield from (f"NOTE  {note}" for note in board.notes if note not in notes)
        case "note":
            yield from (f"NOTE  {note}" for note in board.notes if note not in notes)
        case "trial" if event.get("metrics"):
            ended = board.recent[-1]
            yield f"TRIAL {ended.outcome.value} {board.number(ended)} {ended.name} {ended.told}"
        case "store" if bool(away) != bool(board.away):
            told = f"does not answer: {board.away}; running stages go on" if board.away else "answers again"
            yield f"STORE {told}"
        case "leave":
            yield f"LEAVE {board.leaving}"


def summary(board: Board, between: str = ", ") -> str:
    """`12 of 40 finished, 1 failed, 4 running, 27 left`."""
    counts = board.counts
    parts = [f"{counts.finished:,} of {counts.total:,} finished"]
    parts += [f"{counts.failed:,} failed"] if counts.failed else []
    parts += [f"{counts.stopped:,} stopped"] if counts.stopped else []
    parts += [f"{counts.running:,} running"] if counts.running else []
    return between.join([*parts, f"{counts.left:,} left"])


# The end


def log_tail(path: str, lines: int = LOG_LINES) -> list[str]:
    """The last lines of a log as they would stand in a terminal, harmless; nothing if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return []
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip().split("\n"))
    found = [printable(_ESCAPES.sub("", line).expandtabs()).rstrip() for line in shown]
    return found[-lines:] if text.strip() else []


def final_words(
    board: Board, width: int, best: Sequence[str] = (), tail: Callable[[str], list[str]] = log_tail
) -> Iterator[Text]:
    """What a person wants to know when a study is over, or left; `best` are lines about the best trials."""
    from rich.text import Text

    def fact(label: str, told: str, style: str = "") -> Text:
        return Text.assemble((f"{label:<11}", "bold"), (told, style))

    busy = board.utilisation()
    yield fact("trials", summary(board), "red" if board.counts.failed else "green")
    yield fact("time", duration(board.now - board.began))
    if busy is not None:
        yield fact("slots", f"{len(board.slots)}, {busy:.0%} busy")
    shown = list(board.failures.values())[:FAILURES]
    for end in shown:
        yield Text()
        yield from _failure(end, width, tail)
    if more := max(board.counts.failed, len(board.failures)) - len(shown):
        yield Text()
        told = f"and {more:,} more" if shown else f"{more:,} failed"
        yield Text(f"{told}: stoker status{_at(board)} --failed", "red")
    if best:
        yield Text()
        yield Text("best", "bold")
        yield from (Text(f"  {_cut(printable(line), width - 3)}") for line in best)
    yield Text()
    yield from (Text.assemble((f"{label:<11}", "bold"), told) for label, told in _next_steps(board))


def _failure(end: End, width: int, tail: Callable[[str], list[str]]) -> Iterator[Text]:
    from rich.text import Text

    task = end.task
    name = _cut(f"{_number(task)} {task.name}", width - 12)
    yield Text.assemble((f"{'failed':<11}", "bold red"), name)
    yield Text(f"{'':<11}{_cut(end.told, width - 12)}", "red")
    for line in tail(task.log) if task.log else ():
        yield Text(f"  │ {_cut(line, width - 5)}", "dim")


def _number(task: Task) -> str:
    return printable(task.trial.removeprefix("1."))


def _at(board: Board) -> str:
    return "" if board.where == DEFAULT_OUTPUT else f" -o {shlex.quote(board.where)}"


def _next_steps(board: Board) -> Iterator[tuple[str, str]]:
    yield "files", board.where
    where = _at(board)
    commands = [f"stoker status{where}"]
    for end in list(board.failures.values())[:1]:
        commands.append(f"stoker logs{where} {_number(end.task)}")
    if board.counts.failed:
        commands.append(f"stoker retry{where} --failed")
    if board.counts.left:
        commands.append("the same command again goes on")
    yield "next", " · ".join(commands)


def _cut(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else f"{set_cell_size(text, max(1, width - 1)).rstrip()}…"
