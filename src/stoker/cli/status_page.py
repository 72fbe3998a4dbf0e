"""What `stoker status` draws: the page of a study, and that of a trial. Imports rich."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import inf
from statistics import fmean
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from stoker.cli.board import around, clock, duration, metrics_text, time_left
from stoker.cli.live import fit
from stoker.cli.placed import Places, run_again
from stoker.cli.study_options import DEFAULT_OUTPUT
from stoker.cli.told import (
    age,
    ago,
    failure,
    host_of,
    last_metrics,
    many,
    number,
    short,
    size,
    slots_of,
    summary,
)
from stoker.core.times import seconds
from stoker.core.values import text
from stoker.engines.interface import State as Standing
from stoker.spec.problems import printable
from stoker.store.records import End, TrialId
from stoker.study import files
from stoker.study.fleet import Agent, Life
from stoker.study.logs import Log, Logs, attempt_of
from stoker.study.opened import Opened
from stoker.study.ranges import State
from stoker.study.state import Attempt, Counts, TrialNow

SHOWN = 8
"""So many of a kind are shown, unless all are asked for."""
BEST = 5
LATELY = 12
"""Of so many finished trials, the time is taken to say how long the others may take."""
MOST_NAMES = 1_000
"""The files of more trials are not looked for: their names take a while."""
NARROW = 16
"""Cells that metrics of running trials keep where the terminal is narrow."""
ALIGNED = 1_000
"""So many names decide how wide their column is, as lines are written while others are still read."""
MOST_PID = 10**8
_WIDE = 95  # cells from which a bar and what it means stand in one line
_STYLES = {
    State.FINISHED: "green",
    State.RUNNING: "cyan",
    State.FAILED: "red",
    State.STOPPED: "yellow",
    State.LOST: "yellow",
    State.RETRYING: "yellow",
    State.RELEASED: "yellow",
}
_LIVES = {Life.SILENT: "silent", Life.GONE: "gone", Life.LEFT: "left"}


def _matters(agent: Agent) -> bool:
    """Whether an agent is at work, or others still wait for it."""
    return agent.life is Life.ALIVE or (agent.life is Life.SILENT and bool(agent.claims))


def _broad(trials: Iterable[TrialId]) -> int:
    """Cells of the longest number."""
    return max((len(number(trial)) for trial in trials), default=0)


class _Row(NamedTuple):
    """A trial in the table of all."""

    now: TrialNow
    name: str
    told: str


class Page:
    """The page of a study, made anew whenever it was looked at."""

    def __init__(self, opened: Opened, where: str, options: argparse.Namespace) -> None:
        self._opened, self._where, self._options = opened, where, options
        self._best: tuple[int, list[tuple[float, TrialId]]] = (-1, [])
        self._at_work: list[TrialNow] = []
        self._times: dict[TrialId, float | None] = {}  # what trials took that finished lately
        self._places = Places(opened)

    def lines(self, now: float, width: int | None) -> Iterator[Text]:
        """All lines; of a width, None for one where nothing is cut."""
        options = self._options
        self._look()
        yield from self._head(now, width)
        if not options.failed and not options.running:
            yield from _section("agents", _table(self._agents(), width, 0))
            yield from _section("placed", self._placed())
        if not options.failed and not options.all:
            yield from _section("running", _table(self._running(now), width, 1, gives_way=4))
        if not options.running and not options.all:
            yield from _section("failed", self._failed(width))
        if options.all:
            yield from _section("trials", self._all(width))
        elif not options.failed and not options.running:
            yield from self._best_trials(width)

    def summary(self) -> str:
        """In one line: counts, and if there is nobody to do what is left."""
        counts = self._opened.state.counts()
        activity = self._activity(counts) if counts.running + counts.waiting else iter(())
        return ", ".join([summary(counts), *(line.plain for line in activity if line.style == "yellow")])

    def _look(self) -> None:
        """See what runs, and what finished last, in one go: of a large study it takes a moment."""
        state, lately = self._opened.state, deque[TrialNow](maxlen=LATELY)
        self._at_work = []
        if state.counts().running:
            for now in state.trials(State.RUNNING, State.FINISHED):
                (self._at_work if now.state is State.RUNNING else lately).append(now)
        self._times = {
            now.trial: self._times[now.trial] if now.trial in self._times else self._seconds(now)
            for now in lately
        }

    def _seconds(self, now: TrialNow) -> float | None:
        """What a finished trial took; None if not all of its stages are told, as others ran some of them."""
        body = self._opened.state.result(now)
        stages = body.get("stages")
        figures = [body.get(stage) for stage in stages] if isinstance(stages, list) else []
        taken = [told.get("seconds") for told in figures if isinstance(told, dict)]
        known = [told for told in taken if isinstance(told, (int, float)) and 0 <= told < inf]
        return sum(known) if known and len(known) == len(figures) else None

    # The head

    def _head(self, now: float, width: int | None) -> Iterator[Text]:
        counts = self._opened.state.counts()
        yield Text.assemble((printable(self._opened.name), "bold"), "  ", (printable(self._where), "dim"))
        told = Text(summary(counts, " · " if width else ", "))
        if width is None:
            yield told
        elif width < _WIDE:
            yield _bar(counts, width - 1)
            yield told
        else:
            yield _bar(counts, min(40, width // 3)).append("  ").append_text(told)
        yield from self._activity(counts)
        left = self._time_left(now)
        if left is not None:
            yield Text(f"ends {around(now + left, now)}")
        if gone := self._without_files():
            yield Text(f"the files of {many(gone, 'finished trial')} are gone", "yellow")

    def _time_left(self, now: float) -> float | None:
        """Seconds until the study may be over; None if nobody is at work, or nothing has finished yet."""
        state, counts = self._opened.state, self._opened.state.counts()
        taken = [seconds for seconds in self._times.values() if seconds is not None]
        slots = sum(slots_of(agent) for agent in state.agents() if agent.life is Life.ALIVE)
        workers = min(max(slots, counts.running), counts.running + counts.waiting)
        if not taken or not workers or state.is_stopped:
            return None
        mean = fmean(taken)
        remaining = [max(0.0, mean - (age(trial.since, now) or 0.0)) for trial in self._at_work]
        return time_left(mean, remaining, counts.waiting, workers)

    def _without_files(self) -> int:
        """How many finished trials have no directory any more, where it can be told quickly."""
        opened, counts = self._opened, self._opened.state.counts()
        if opened.place.output is None or not 0 < counts.finished <= MOST_NAMES:
            return 0
        try:
            there = set(os.listdir(opened.place.output))  # noqa: PTH208  (names are enough)
        except OSError:
            return 0
        finished = (now.trial for now in opened.state.trials(State.FINISHED))
        return sum(
            not opened.work.planned(trial.iteration).is_flat and opened.trial(trial).name not in there
            for trial in finished
        )

    def _activity(self, counts: Counts) -> Iterator[Text]:
        state, agents = self._opened.state, self._opened.state.agents()
        at_work = any(agent.life is Life.ALIVE for agent in agents)
        left = counts.running + counts.waiting
        if state.is_stopped:
            yield Text(f"the study is stopped; {run_again(self._opened)} goes on with it", "yellow")
        elif left and not at_work and not self._are_coming():
            yield Text(f"nobody is at work; {run_again(self._opened)} goes on", "yellow")
        if not at_work and agents:
            last = min(agents, key=lambda agent: agent.silence)
            yield Text(f"last at work {ago(last.silence)}, on {host_of(last)}", "dim")

    def _are_coming(self) -> bool:
        """Whether agents are placed already, and only have to begin."""
        for _, found in self._places.look():
            if isinstance(found, str) or any(one.state is not Standing.ENDED for one in found):
                return True  # also if nobody can tell
        return False

    # Agents

    def _agents(self) -> Iterator[Sequence[Cell]]:
        agents, running = self._opened.state.agents(), Counter(trial.agent for trial in self._at_work)
        shown = [agent for agent in agents if self._options.all or _matters(agent)]
        for agent in shown if self._options.all else shown[:SHOWN]:
            slots = many(slots_of(agent), "slot") if slots_of(agent) else "slots unknown"
            runs = f"{running[agent.name]:,} running" if agent.life is Life.ALIVE else ""
            life = _LIVES.get(agent.life, "")
            beat = f"{life}, last beat {ago(agent.silence)}" if life else f"beat {ago(agent.silence)}"
            style = "yellow" if agent.life in (Life.SILENT, Life.GONE) else "dim"
            yield (self._label(agent), "cyan"), (slots, ""), (runs, ""), (beat, style)
        if not self._options.all and len(shown) > SHOWN:
            yield ((f"and {len(shown) - SHOWN:,} more", "dim"),)

    def _placed(self) -> Iterator[Text]:
        for line, is_wrong in self._places.lines():
            yield Text(f"  {line}", "yellow" if is_wrong else "")

    def _label(self, agent: Agent) -> str:
        """The host, and which process of it if several are at work; or the job that it is."""
        if agent.placed:
            return printable(f"{host_of(agent)} {agent.placed.replace(':', ' ')}")
        peers = [a for a in self._opened.state.agents() if a.host == agent.host and a.life is Life.ALIVE]
        pid = agent.pid if 0 < agent.pid <= MOST_PID else "?"
        return host_of(agent) if len(peers) < 2 and not self._options.all else f"{host_of(agent)} {pid}"

    # Trials

    def _running(self, now: float) -> Iterator[Sequence[Cell]]:
        most = None if self._options.running else SHOWN
        by_name = {agent.name: agent for agent in self._opened.state.agents()}
        broad = _broad(trial.trial for trial in self._at_work[:most])
        for trial in self._at_work[:most]:
            passed, log = age(trial.since, now), self._log(trial)
            agent = by_name.get(trial.agent)
            yield (
                (f"{number(trial.trial):>{broad}}", "bold"),
                (printable(self._opened.trial(trial.trial).name), ""),
                (printable(log.stage) if log else "", ""),
                (clock(passed) if passed is not None else "", "dim"),
                (self._metrics(log), ""),
                (self._label(agent) if agent else short(trial.agent), "cyan"),
            )
        if most is not None and len(self._at_work) > most:
            yield (
                ("", ""),
                (f"and {len(self._at_work) - most:,} more: stoker status{self._at} --running", "dim"),
            )

    def _log(self, trial: TrialNow) -> Log | None:
        """The log of the stage that runs: the newest, if it is from after the trial was claimed."""
        logs = Logs(self._opened, [trial.trial]).all()
        return logs[-1] if logs and logs[-1].began >= (seconds(trial.since) or 0.0) else None

    def _metrics(self, log: Log | None) -> str:
        """What a running trial said last; a bucket would have to be asked for its whole log."""
        if log is None or log.file is not None:
            return ""
        return last_metrics(log.path, self._opened.study.settings)

    def _failed(self, width: int | None) -> Iterator[Text]:
        total = self._opened.state.counts().failed
        found = self._opened.state.trials(State.FAILED) if total else iter(())
        shown = list(islice(found, None if self._options.failed else SHOWN))
        broad = _broad(now.trial for now in shown)
        for now in shown:
            trial = self._opened.trial(now.trial)
            stage, ended = failure(trial.stages, self._opened.state.result(now))
            why = f"{stage}: {ended}" if stage else ended
            name = printable(trial.name)
            if width:
                name = fit(name, max(8, min(cell_len(name), width - broad - len(why) - 7)))
            line = Text.assemble("  ", (f"{number(now.trial):>{broad}}", "bold"), f"  {name}  ", (why, "red"))
            yield line
            yield Text(f"  {'':>{broad}}  {self._log_of(now.trial, stage)}", "dim")
        if more := total - len(shown):
            yield Text(f"  {'':>{broad}}  and {more:,} more: stoker status{self._at} --failed", "dim")

    def _log_of(self, trial: TrialId, stage: str) -> str:
        """The log to look into; of a bucket, how to get it."""
        if not self._opened.place.is_remote:
            logs = [log for log in Logs(self._opened, [trial]).all() if log.stage == stage or not stage]
            if logs:
                return printable(logs[-1].path)
        return f"stoker logs{self._at} {number(trial)}"

    @property
    def _at(self) -> str:
        """For commands that people may type: where the study is, if they have to say so."""
        return "" if self._where == DEFAULT_OUTPUT else f" -o {printable(shlex.quote(self._where))}"

    def _all(self, width: int | None) -> Iterator[Text]:
        """Number, name, status and metrics, line by line, as there may be many."""
        rows = self._rows()
        first = list(islice(rows, ALIGNED))
        state = self._opened.state
        broad = len(number(TrialId(state.iterations[-1], max(map(state.size, state.iterations)))))
        name = max((cell_len(row.name) for row in first), default=0)
        told = max((cell_len(row.told) for row in first), default=0)
        if width:
            name = min(name, max(8, width // 3, width - broad - told - 17))
        for row in chain(first, rows):
            shown = fit(row.name, name if width else max(name, cell_len(row.name)))
            line = Text.assemble("  ", (f"{number(row.now.trial):>{broad}}", "bold"), f"  {shown}  ")
            line.append(f"{row.now.state.value:<8}  ", _STYLES.get(row.now.state, "dim")).append(row.told)
            if width:
                line.truncate(width - 1, overflow="ellipsis")
            line.rstrip()
            yield line

    def _rows(self) -> Iterator[_Row]:
        """All trials in order, with results in the same order: neither is kept in memory."""
        results = self._opened.state.results()
        result = next(results, None)
        for now in self._opened.state.trials():
            told = ""
            while result is not None and result.trial < now.trial:
                result = next(results, None)
            if result is not None and result.trial == now.trial:
                told = metrics_text(self._opened.metrics(now.trial, result.body))
            elif now.state is State.RUNNING:
                told = self._metrics(self._log(now))
            again = f"round {now.round}" if now.round > 1 else ""
            name = printable(self._opened.trial(now.trial).name)
            yield _Row(now, name, "  ".join(filter(None, (told, again))))

    def _best_trials(self, width: int | None) -> Iterator[Text]:
        objective, finished = self._opened.objective, self._opened.state.counts().finished
        if objective is None or not finished:
            return
        if self._best[0] != finished:
            self._best = finished, self._opened.best(BEST)
        broad = _broad(trial for _, trial in self._best[1])
        rows: list[Sequence[Cell]] = [
            (
                (f"{number(trial):>{broad}}", "bold"),
                (printable(self._opened.trial(trial).name), ""),
                (f"{value:.6g}", "green"),
            )
            for value, trial in self._best[1]
        ]
        title = f"best by {printable(objective.metric)}, {objective.goal}"
        yield from _section(title, _table(rows, width, 1))


# The page of a trial


def history_page(opened: Opened, trial: TrialId) -> Iterator[Text]:
    """All that is known of one trial."""
    described, now, history = opened.trial(trial), opened.state.trial(trial), opened.state.history(trial)
    state = now.state if now is not None else State.SKIPPED
    yield Text.assemble(
        (number(trial), "bold"), f"  {printable(described.name)}  ", (state.value, _STYLES.get(state, "dim"))
    )
    yield from _facts("directory", [printable(_where(opened, trial, state))])
    yield from _facts("params", [printable(f"{name}: {text(v)}") for name, v in described.params.items()])
    logs = Logs(opened, [trial]).all()
    for place, attempt in enumerate(history.attempts, 1):
        yield from _attempt(opened, trial, place, attempt, state)
        yield from _figures(described.stages, _record(attempt, history.results))
        mine = [log for log in logs if attempt_of(log, history.attempts) is attempt]
        yield from (Text(f"               {printable(log.path)}", "dim") for log in mine)
    result = history.results.get(now.round if now is not None else 1, {})
    metrics = opened.metrics(trial, result)
    if metrics:
        yield from _facts("metrics", [metrics_text({name: value}) for name, value in metrics.items()])


def _where(opened: Opened, trial: TrialId, state: State) -> str:
    """Where the trial's files are, or that they were removed: what became of it stays known."""
    directory = opened.directory(trial)
    if directory is None:
        is_there = files.newest(opened.place.store, trial) is not None
        where, how = opened.place.url, " (stoker pull gets it)"
    else:
        is_there = directory.is_dir()
        where, how = str(directory), ""
    return f"{where}{' (removed)' if state is State.FINISHED and not is_there else how}"


def _attempt(opened: Opened, trial: TrialId, place: int, attempt: Attempt, state: State) -> Iterator[Text]:
    began = seconds(attempt.claim.get("time"))
    when = time.strftime("%d %b %H:%M:%S", time.localtime(began)) if began else ""
    became = attempt.end.value if attempt.end else "running" if state is State.RUNNING else "lost"
    if attempt.end is End.FAILED:
        stage, why = failure(opened.trial(trial).stages, attempt.figures)
        became = f"failed, {stage}: {why}" if stage else f"failed: {why}"
    style = {"finished": "green", "running": "cyan"}.get(became, "red" if "failed" in became else "yellow")
    round_ = f" (round {attempt.round})" if attempt.round > 1 else ""
    host = short(attempt.agent.rsplit("-", 3)[0])
    yield Text.assemble(
        (f"  {'attempt':<11}  ", "dim"), f"{place}{round_}  {when}, on {host}  ", (became, style)
    )


def _record(attempt: Attempt, results: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The figures of an attempt: its own record has them, or the result that it committed."""
    result = results.get(attempt.round, {})
    is_its_own = attempt.end is End.FINISHED and result.get("attempt") == attempt.number
    return result if is_its_own else attempt.figures


def _figures(stages: Sequence[str], record: Mapping[str, Any]) -> Iterator[Text]:
    for stage in stages:
        figures = record.get(stage)
        if isinstance(figures, dict) and "seconds" in figures:
            parts = [duration(figures["seconds"])]
            parts += [f"CPU {duration(figures['cpu'])}"] if "cpu" in figures else []
            parts += [size(figures["memory"])] if figures.get("memory") else []
            yield Text(f"               {printable(stage)}: {', '.join(parts)}")


def _facts(label: str, lines: Sequence[str]) -> Iterator[Text]:
    for place, line in enumerate(lines):
        yield Text.assemble((f"  {label if place == 0 else '':<11}  ", "dim"), line)


# Drawing


Cell = tuple[str, str]
"""A text, and its style."""


def _section(title: str, lines: Iterable[Text]) -> Iterator[Text]:
    found = iter(lines)
    first = next(found, None)
    if first is not None:
        yield Text()
        yield Text(title, "dim")
        yield first
        yield from found


def _table(
    rows: Iterable[Sequence[Cell]], width: int | None, flexible: int, gives_way: int | None = None
) -> Iterator[Text]:
    """Columns that are as wide as they need be. Where the terminal is narrow, one is cut, and before that
    another may give way."""
    found = list(rows)
    columns = max((len(row) for row in found), default=0)
    whole = [row for row in found if len(row) == columns]
    widths = [max((cell_len(row[place][0]) for row in whole), default=0) for place in range(columns)]
    if width and columns:
        over = sum(widths) + 2 * sum(w > 0 for w in widths) - (width - 1)
        if gives_way is not None and over > 0:
            spared = min(over, max(0, widths[gives_way] - NARROW))
            widths[gives_way], over = widths[gives_way] - spared, over - spared
        widths[flexible] = max(8, widths[flexible] - max(0, over))
    for row in found:
        line = Text("  ")
        for place, (told, style) in enumerate(row):
            is_last = place == len(row) - 1
            fitted = told if is_last and len(row) < columns else fit(told, widths[place])
            if widths[place] or is_last:
                line.append(fitted.rstrip() if is_last else f"{fitted}  ", style)
        line.rstrip()
        yield line


def _bar(counts: Counts, width: int) -> Text:
    bad = -(-(counts.failed + counts.stopped) * width // max(1, counts.total))  # never too small to be seen
    good = min(counts.finished * width // max(1, counts.total), width - bad)
    return Text.assemble(("━" * good, "green"), ("━" * bad, "red"), ("─" * (width - good - bad), "dim"))
