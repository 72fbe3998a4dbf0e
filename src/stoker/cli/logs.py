"""Show what a trial says: the last lines of its last log, or with -f all that comes until it is done.

A trial has a log for each stage of each attempt; --stage and --attempt choose among them. In a terminal,
control characters are left out; in a pipe, a log is passed on as it is. With -f, exits with 0 if the trial
finished, and with 1 if it failed or was stopped. A log in a bucket is as new as its agent's last save.

A trial that a changed study file added later has the number of its iteration before its own: 2.7.
"""

from __future__ import annotations

import argparse
import codecs
import re
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from shutil import get_terminal_size

from stoker.cli.store_options import add_store, add_trials, open_at, say, store_of
from stoker.cli.told import how_it_ended, many
from stoker.core.errors import UsageError
from stoker.spec.problems import listing, printable, suggest
from stoker.store.interface import StoreError
from stoker.store.records import TrialId
from stoker.study.logs import Log, Logs, attempt_of
from stoker.study.opened import Opened
from stoker.study.ranges import DONE, State

USAGE = "[STORE] TRIAL"
EXAMPLES = """\
  stoker logs 17                   the last log of trial 17
  stoker logs 17 -f                and what it says from now on, stage after stage
  stoker logs Norm_new --stage train --all
  stoker logs 17 --attempt 1       what it said before it was tried again
  stoker logs runs 2.7             of trial 7 of iteration 2, in the study in runs/
"""

LINES = 1000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker logs`."""
    add_trials(parser, "which", "a number (2.7: trial 7 of iteration 2), a name, or a part of only one")
    add_store(parser)
    parser.add_argument("-s", "--stage", metavar="STAGE", help="the log of this stage")
    parser.add_argument(
        "--attempt", metavar="N", type=int, help="of the N-th attempt, as `stoker status TRIAL` counts them"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the trial is done")
    parser.add_argument("-n", "--lines", metavar="N", type=int, help=f"so many lines (default: {LINES:,})")
    parser.add_argument("--all", action="store_true", help="all lines")


def run(options: argparse.Namespace) -> int:
    """Find the log, show it, and follow it if asked to."""
    if options.follow and options.attempt is not None:
        raise UsageError("-f follows a trial through its attempts; leave out --attempt")
    lines = _lines(options)
    opened = open_at(store_of(options))
    trials = _one_trial(opened, options.trials)
    if options.stage is not None:
        _check_stage(opened, trials, options.stage)
    logs = Logs(opened, trials)
    shown = _chosen(opened, trials, logs.all(), options)
    if not shown and not options.follow:
        return _say_why_none(opened, trials, options)
    writer = _Terminal() if sys.stdout.isatty() else _Pipe()
    try:
        position = _show_end(logs, shown[-1], lines, writer) if shown else 0
        if not options.follow:
            return 0
        return _Follow(opened, trials, logs, options.stage, writer).run(shown, position)
    finally:
        writer.close()


def _lines(options: argparse.Namespace) -> int | None:
    """How many; None for all."""
    if options.all and options.lines is not None:
        raise UsageError("-n and --all contradict each other")
    if options.lines is not None and options.lines < 0:
        raise UsageError(f"-n {options.lines}: expected a number of lines")
    return None if options.all else LINES if options.lines is None else options.lines


def _one_trial(opened: Opened, words: Sequence[str]) -> list[TrialId]:
    """The trial that is meant, in each iteration that runs stages of it."""
    if not words:
        raise UsageError("which trial? give its number or name: stoker logs TRIAL")
    trials = opened.find(words)
    names = list(dict.fromkeys(opened.trial(trial).name for trial in trials))
    if len(names) > 1:
        said = " ".join(words)
        raise UsageError(f"'{said}' means {len(names):,} trials, and a log is of one: {listing(names, 5)}")
    return trials


def _check_stage(opened: Opened, trials: Sequence[TrialId], stage: str) -> None:
    known = list(dict.fromkeys(name for trial in trials for name in opened.trial(trial).stages))
    if stage not in known:
        hint = suggest(stage, known) or f"it has {listing(known, last='and')}"
        raise UsageError(f"the trial has no stage '{stage}'; {hint}")


def _chosen(
    opened: Opened, trials: Sequence[TrialId], logs: list[Log], options: argparse.Namespace
) -> list[Log]:
    if options.stage is not None:
        logs = [log for log in logs if log.stage == options.stage]
    if options.attempt is None:
        return logs
    attempts = [attempt for trial in trials for attempt in opened.state.history(trial).attempts]
    if not 1 <= options.attempt <= len(attempts):
        raise UsageError(f"--attempt {options.attempt}: there {_are(len(attempts))} so far")
    return [log for log in logs if attempt_of(log, attempts) is attempts[options.attempt - 1]]


def _are(count: int) -> str:
    return f"{'was' if count == 1 else 'were'} {many(count, 'attempt')}"


def _say_why_none(opened: Opened, trials: Sequence[TrialId], options: argparse.Namespace) -> int:
    name, now = opened.trial(trials[-1]).name, opened.state.trial(trials[-1])
    state = now.state.value if now is not None else "not known"
    asked = "such log" if options.stage is not None or options.attempt is not None else "log"
    say(f"stoker: {name} has no {asked} yet: it is {state}; -f waits for it")
    return 1


# Showing


def _show_end(logs: Logs, log: Log, lines: int | None, writer: _Terminal | _Pipe) -> int:
    """Write the last lines of a log; returns how far it is shown."""
    start = 0 if lines is None else _start_of_last(logs, log, lines)
    say(logs.shown_path(log) + (f"  (the last {lines:,} lines; --all shows everything)" if start else ""))
    for piece in logs.read(log, start):
        writer.write(piece)
        start += len(piece)
    return start


def _start_of_last(logs: Logs, log: Log, lines: int) -> int:
    """Where the last lines begin. Looks at the end of the log first, and further back only if need be."""
    reach = 1 << 16
    while lines:
        place = start = max(0, log.size - reach)
        ends: deque[int] = deque(maxlen=lines + 1)
        for piece in logs.read(log, start):
            ends.extend(place + match.end() for match in re.finditer(rb"\n", piece))
            place += len(piece)
        back = lines + (bool(ends) and ends[-1] == place)  # behind the last newline there is no line
        if len(ends) >= back:
            return ends[-back]
        if start == 0:
            return 0
        reach *= 16
    return log.size


class _Pipe:
    """Passes a log on, byte by byte the same."""

    def write(self, piece: bytes) -> None:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        pass


class _Terminal:
    """Shows a log in a terminal, harmless: progress bars are drawn in place, control characters go."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest, self._drawn = "", False

    def write(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + self._decoder.decode(piece)).split("\n")
        begin = "\r\x1b[K" if self._drawn else ""
        whole = "".join(f"{_clean(line)}\n" for line in lines)
        if "\r" in self._rest:  # what a carriage return has overwritten is not needed again
            self._rest = self._rest[self._rest.rstrip("\r").rfind("\r") + 1 :]
        partial = _clean(self._rest)[: get_terminal_size().columns - 1]
        self._drawn = bool(partial)
        sys.stdout.write(f"{begin}{whole}{partial}")
        sys.stdout.flush()

    def close(self) -> None:
        if self._drawn:
            sys.stdout.write("\n")
            self._drawn = False


def _clean(line: str) -> str:
    shown = line.rstrip("\r").rpartition("\r")[2]
    return printable(_ESCAPES.sub("", shown).expandtabs())


# Following


class _Follow:
    """Goes on with a trial's logs, from stage to stage and attempt to attempt, until it is done."""

    def __init__(
        self,
        opened: Opened,
        trials: Sequence[TrialId],
        logs: Logs,
        stage: str | None,
        writer: _Terminal | _Pipe,
    ) -> None:
        self._opened, self._trials, self._logs, self._stage = opened, trials, logs, stage
        self._writer = writer
        self._pause = 3.0 if opened.place.is_remote else 0.2
        self._looked, self._took = 0.0, 0.0
        self._said = ""

    def run(self, shown: Sequence[Log], position: int) -> int:
        """Show what is behind `position` of the last log that was shown, and all that follows."""
        self._seen, self._position = {log.path for log in shown}, position
        self._current = shown[-1].path if shown else ""
        while True:
            is_over = self._is_over()  # before reading: what is there then is all
            with suppress(StoreError, FileNotFoundError):  # it comes back
                for log in self._later():
                    self._go_on(log)
            if is_over:
                return self._farewell()
            if not self._seen:
                self._say_once("waiting for it to start")
            time.sleep(self._pause)

    def _go_on(self, log: Log) -> None:
        if log.path not in self._seen:
            self._writer.close()
            say(self._logs.shown_path(log))
            self._seen.add(log.path)
            self._current, self._position = log.path, 0
        if self._position > log.size:  # somebody has begun it anew
            self._position = 0
        for piece in self._logs.read(log, self._position):
            self._writer.write(piece)
            self._position += len(piece)

    def _later(self) -> list[Log]:
        """The log that was shown last, as it is now, and those that have come since."""
        logs = [log for log in self._logs.all() if self._stage in (None, log.stage)]
        return [log for log in logs if log.path not in self._seen or log.path == self._current]

    def _is_over(self) -> bool:
        """Whether the trial is done; looked at less often where looking takes long."""
        began = time.monotonic()
        if began - self._looked >= max(self._pause, 20 * self._took):
            with suppress(StoreError):
                self._opened.refresh()
            self._looked, self._took = began, time.monotonic() - began
        found = [self._opened.state.trial(trial) for trial in self._trials]
        return all(now is not None and now.state in DONE for now in found)

    def _say_once(self, line: str) -> None:
        if line != self._said:
            self._said = line
            say(line)

    def _farewell(self) -> int:
        self._writer.close()
        found = [now for trial in self._trials if (now := self._opened.state.trial(trial)) is not None]
        for now in found:
            say(f"{self._opened.trial(now.trial).name}: {how_it_ended(self._opened, now)}")
        return 0 if all(now.state is State.FINISHED for now in found) else 1
