"""A running study in a terminal: one frame that is drawn again in place.

`frame` makes the lines of it from a board, purely. `Live` owns the terminal, its keys and signals, and draws
on a `Canvas`. What the shell printed before stays above, and the last frame stays when the study is over.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from stoker.cli.board import Board, Ended, Outcome, State, Task, Wish, around, clock, duration
from stoker.cli.display import Canvas, size_of
from stoker.cli.lines import ENDING, Heard, ending_wish, log_tail, summary
from stoker.spec.problems import printable

_FASTEST = 0.125  # seconds between two frames
_WIDE = 95  # cells from which a bar and what it means stand in one line
_SILENT = 30.0  # seconds after which an agent's silence is worth a word
_MOST_EXTRA = 8  # lines of ended trials or of a log
_MARKS = {
    Outcome.FINISHED: ("✔", "green"),
    Outcome.FAILED: ("✘", "red"),
    Outcome.RELEASED: ("↺", "yellow"),
    Outcome.STOPPED: ("■", "yellow"),
}


class Detail(Enum):
    """What stands below the slots; `d` goes from one to the next."""

    NONE = "slots only"
    ENDED = "ended trials"
    LOG = "log"

    @property
    def next(self) -> Detail:
        """What `d` shows."""
        order = list(Detail)
        return order[(order.index(self) + 1) % len(order)]


@dataclass(frozen=True)
class View:
    """How a board is looked at."""

    width: int
    height: int
    detail: Detail = Detail.ENDED
    log_of: Task | None = None
    log: Sequence[str] = ()
    keys: bool = True  # whether there are any to hint at


# The frame


def frame(board: Board, view: View) -> list[Text]:
    """All lines of the display; fewer than the terminal has, and narrower."""
    top = [_header(board, view), Text()]
    below = [Text(), *_summary(board, view)]
    hints = [Text(), _hints(board, view)] if view.keys else []
    room = max(1, view.height - 1 - len(top) - len(below) - len(hints))
    wanted = list(_extra(board, view))
    extra = wanted[: max(0, min(_MOST_EXTRA + 2, room // 2, max(room // 3, room - _rows(board))))]
    rows = list(_slots(board, view, room - len(extra)))
    return _crop([*top, *rows, *below, *(extra if len(extra) > 2 else []), *hints], view)


def last_frame(board: Board, view: View) -> list[Text]:
    """What stays of the display; the words at the end follow it."""
    return _crop([_header(board, view), _bar(board, view.width - 1)], view)


def _crop(lines: list[Text], view: View) -> list[Text]:
    for line in lines:
        line.truncate(max(1, view.width - 1), overflow="ellipsis")
    return lines[: max(1, view.height - 1)]


def _header(board: Board, view: View) -> Text:
    passed = clock(board.now - board.began)
    left = Text.assemble((board.study, "bold"), ("  ", ""), (board.where, "dim"))
    left.truncate(max(1, view.width - len(passed) - 2), overflow="ellipsis", pad=True)
    return left.append(f" {passed}", "dim")


@dataclass(frozen=True)
class _Columns:
    """Widths that depend only on the terminal and on what grows slowly, so that no column jumps."""

    label: int
    name: int
    stage: int
    metric: int


def _columns(board: Board, width: int) -> _Columns:
    label = min(12, max((cell_len(slot.label) for slot in board.slots), default=0))
    label = max(label, 7 if any(task.slot is None for task in board.tasks.values()) else 0)
    stage = min(16, max(8, board.stage_width))
    rest = width - 1 - label - stage - 8 - 3 * 2
    metric = min(32, rest * 2 // 5) if rest >= 44 else 0
    return _Columns(label, max(8, rest - metric - (2 if metric else 0)), stage, metric)


def _rows(board: Board) -> int:
    return len(board.slots) + sum(task.slot is None for task in board.tasks.values())


def _slots(board: Board, view: View, room: int) -> Iterator[Text]:
    columns = _columns(board, view.width)
    tasks, loose = board.in_slots(), [task for task in board.tasks.values() if task.slot is None]
    rows: list[tuple[str, Task | None, str]] = [
        (slot.label, task, f"held by {slot.holder}" if slot.holder else board.waits.get(number, ""))
        for number, (slot, task) in enumerate(zip(board.slots, tasks, strict=True))
    ] + [("no slot", task, "") for task in loose]
    shown = rows if len(rows) <= room else rows[: max(0, room - 1)]
    for label, task, why in shown:
        yield _row(board, columns, label, task, why)
    if hidden := rows[len(shown) :]:
        running = sum(task is not None for _, task, _ in hidden)
        yield Text(f"and {len(hidden):,} more, {running:,} of them running", "dim")
    if not rows:
        yield Text("waiting for a slot" if board.notes else "starting", "dim")


def _row(board: Board, columns: _Columns, label: str, task: Task | None, why: str) -> Text:
    line = Text.assemble((fit(label, columns.label), "cyan"), "  ")
    if task is None:
        idle = "paused" if board.paused else "idle"
        return line.append(why or idle, "yellow" if why else "dim")
    line.append(f"{fit(task.name, columns.name)}  {fit(f'{task.step} {task.stage}'.strip(), columns.stage)}")
    line.append(f"  {clock(board.now - task.began):>8}", "dim")
    if columns.metric:
        line.append(f"  {clip(board.metric(task), columns.metric)}")
    return line


def _summary(board: Board, view: View) -> Iterator[Text]:
    yield from _progress(board, view.width - 1)
    end, busy = board.expected_end(), board.utilisation()
    told = [f"ends {around(end, board.now)}"] if end else []
    told += [f"slots {busy:.0%} busy"] if busy is not None else []
    yield Text(" · ".join(told))
    if board.others:
        yield Text(_others(board))
    if board.away:
        yield Text(f"the store does not answer: {board.away}; running stages go on", "yellow")
    if board.quitting:
        yield Text("stopping; Ctrl-C again kills", "yellow")
    elif board.finishing:
        trials = f"{len(board.begun)} trial{'s' * (len(board.begun) != 1)}"
        yield Text(f"finishing {trials}, then leaving · q again stops them now", "yellow")
    elif board.paused:
        yield Text("paused: running trials go on, no new ones start", "yellow")
    if board.leaving:
        yield Text(f"the agent leaves: {board.leaving}", "dim")
    yield from (Text(note, "dim") for note in board.notes[:2])


def _progress(board: Board, width: int) -> Iterator[Text]:
    if width < _WIDE:
        yield _bar(board, width)
        yield Text(summary(board, " · "))
    else:
        yield _bar(board, min(40, width // 3)).append(f"  {summary(board, ' · ')}")


def _bar(board: Board, width: int) -> Text:
    counts = board.counts
    bad = -(-(counts.failed + counts.stopped) * width // max(1, counts.total))  # never too small to be seen
    good = min(counts.finished * width // max(1, counts.total), width - bad)
    return Text.assemble(("━" * good, "green"), ("━" * bad, "red"), ("─" * (width - good - bad), "dim"))


def _others(board: Board) -> str:
    some = []
    for peer in board.others[:3]:
        silent = f" (silent {clock(peer.silent)})" if peer.silent > _SILENT else ""
        some.append(f"{printable(peer.host)} runs {peer.running}{silent}")
    more = len(board.others) - len(some)
    agents = f"{len(board.others)} other agent{'s' * (len(board.others) > 1)}"
    return f"{agents}: {', '.join(some)}" + (f", and {more:,} more" if more else "")


def _extra(board: Board, view: View) -> Iterator[Text]:
    if view.detail is Detail.ENDED and board.recent:
        yield Text()
        yield Text("ended", "dim")
        for ended in list(board.recent)[: -_MOST_EXTRA - 1 : -1]:
            yield _ended(ended, min(_columns(board, view.width).name, (view.width - 18) // 2))
    if view.detail is Detail.LOG and view.log_of:
        yield Text()
        yield Text(f"log of {view.log_of.name}", "dim")
        yield from (Text(f"│ {line}") for line in view.log[-_MOST_EXTRA:] or ["(empty)"])


def _ended(ended: Ended, width: int) -> Text:
    mark, style = _MARKS[ended.outcome]
    line = Text.assemble((mark, style), f" {fit(ended.name, width)}  {fit(duration(ended.seconds), 11)}  ")
    return line.append(ended.told, "red" if ended.outcome is Outcome.FAILED else "")


def _hints(board: Board, view: View) -> Text:
    hints = [] if board.quitting else [("p", "pause"), ("q", "finish and quit")]
    if board.paused or board.finishing:
        hints = [("p", "resume"), ("q", "stop now" if board.finishing else "finish and quit")]
    hints += [("d", f"show {view.detail.next.value}")]
    hints += [("tab", "next slot")] if view.detail is Detail.LOG else []
    line = Text()
    for key, told in hints:
        line.append(key, "bold").append(f" {told}   ", "dim")
    line.rstrip()
    return line


def fit(text: str, width: int) -> str:
    """The text in exactly so many cells; what is too long loses its middle, as both ends tell names apart."""
    if cell_len(text) <= width:
        return text + " " * (width - cell_len(text))
    end = max(0, width - 1) // 3
    tail = text[-end:] if end else ""
    while cell_len(tail) > end:
        tail = tail[1:]
    return set_cell_size(f"{set_cell_size(text, max(0, width - 1 - end)).rstrip()}…{tail}", width)


def clip(text: str, width: int) -> str:
    """Names and numbers in at most so many cells: the last are left out, rather than half of one shown."""
    parts = text.split("  ")
    while len(parts) > 1 and cell_len("  ".join(parts)) > width:
        parts.pop()
    return fit("  ".join(parts), width).rstrip()


# The terminal


class Live:
    """The display on standard output, and the keys of its terminal.

    In the background (`bg`, `stoker run &`) it neither draws nor touches the terminal, which is the shell's.
    """

    def __init__(self, board: Board, ask: Callable[[Wish], None]) -> None:
        self.board = board
        self._ask = ask
        self._out = sys.stdout.fileno()
        self._canvas = Canvas(self._out, hides_cursor=True)
        self._tty = _open_tty()
        self._usual: list[Any] | None = None  # the terminal's settings as we found them
        self._ours = False  # whether they are changed
        self._drawn_at, self._stale = 0.0, True
        self._detail, self._log_of = Detail.ENDED, 0
        self._open = True
        self._heard = Heard(*ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
        atexit.register(self.close)

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take in one event of the agent; it is shown at the next tick."""
        self.board.feed(event)
        self._stale = True

    def tick(self, state: State, now: float) -> None:
        """Take in what the store says, and draw if there is something new: a second that passed is."""
        self.board.see(state, now)
        due = self._stale or int(now) != int(self._drawn_at)
        if due and not 0 <= now - self._drawn_at < _FASTEST and self._enter():
            self._drawn_at, self._stale = now, False
            self._canvas.draw(frame(self.board, self._view()))

    def descriptors(self) -> Sequence[int]:
        """What to wait for: signals, and keys while the terminal is ours."""
        if not self._open:
            return []
        return [self._heard.descriptor, *([self._tty] if self._tty is not None and self._ours else [])]

    def ready(self) -> None:
        """Act on keys and signals."""
        while self._open and (heard := self._heard.take()):  # again, as a stop ends with a signal
            for number in heard:
                self._on_signal(number)
        for key in self._keys():
            self._on_key(key)

    def close(self) -> None:
        """Leave the last frame and the terminal as it was. May be repeated."""
        if self._open:
            self._open = False
            self._canvas.draw(last_frame(self.board, self._view()))
            self._leave()
            self._heard.close()
            if self._tty is not None:
                os.close(self._tty)
            atexit.unregister(self.close)

    # Keys and signals

    def _on_signal(self, number: signal.Signals) -> None:
        self._stale = True
        if number in ENDING:
            self._ask(ending_wish(self.board, number))
        elif number == signal.SIGTSTP:
            self._leave()
            self._heard.stop()
        elif number == signal.SIGCONT:  # the shell has set the terminal as it likes it, and written there
            self._ours = False
            self._canvas.forget()

    def _keys(self) -> str:
        if self._tty is None or not self._ours or not _is_foreground(self._tty):
            return ""
        try:
            keys = os.read(self._tty, 1024).decode(errors="replace")
        except BlockingIOError:
            return ""
        except OSError:
            keys = ""
        self._ours = bool(keys)  # a terminal that is gone is readable, and has nothing to say
        return "" if keys.startswith("\x1b") else keys  # arrows and the like

    def _on_key(self, key: str) -> None:
        self._stale = True
        if key in "pq" and not self.board.quitting:
            self._ask(self._pause() if key == "p" else self._quit())
        elif key == "d":
            self._detail = self._detail.next
        elif key == "\t":
            self._log_of += 1

    def _pause(self) -> Wish:
        """`p` pauses, or goes on; it also takes back that this is to end."""
        board = self.board
        board.paused, board.finishing = not (board.paused or board.finishing), False
        return Wish.PAUSE if board.paused else Wish.RESUME

    def _quit(self) -> Wish:
        """`q` loses no work at the first time: what runs is finished, unless nothing does."""
        board = self.board
        board.quitting = board.finishing or not board.begun
        board.finishing = True
        return Wish.QUIT if board.quitting else Wish.FINISH

    # Drawing

    def _view(self) -> View:
        width, height = size_of(self._out)
        task, log = None, []
        if self._detail is Detail.LOG and self.board.tasks:
            tasks = sorted(self.board.tasks.values(), key=lambda task: (task.slot is None, task.slot))
            task = tasks[self._log_of % len(tasks)]
            log = log_tail(task.log)
        return View(width, height, self._detail, task, log, keys=self._tty is not None)

    def _enter(self) -> bool:
        """Take the terminal, if it is to be had: keys come at once, and are not shown."""
        if self._tty is None:
            return True
        if not _is_foreground(self._tty):
            return False
        if not self._ours:
            with suppress(termios.error):
                usual = self._usual = self._usual or termios.tcgetattr(self._tty)
                changed = [*usual[:3], usual[3] & ~(termios.ICANON | termios.ECHO), *usual[4:]]
                termios.tcsetattr(self._tty, termios.TCSANOW, changed)
                self._ours = True
        return True

    def _leave(self) -> None:
        """Give the terminal back."""
        self._canvas.leave()
        if self._tty is not None and self._usual and _is_foreground(self._tty):
            with suppress(termios.error):
                termios.tcsetattr(self._tty, termios.TCSANOW, self._usual)
        self._ours = False


def _open_tty() -> int | None:
    """The terminal this process belongs to; standard input may be something else."""
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _is_foreground(tty: int) -> bool:
    with suppress(OSError):
        return os.tcgetpgrp(tty) == os.getpgrp()
    return False
