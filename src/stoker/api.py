"""Studies from Python: run one, open one that is there, look at its trials.

    import stoker

    study = stoker.run("params.yaml", output="output")
    for trial in study.best(3):
        print(trial.name, trial.params, trial.metrics)

It does what the commands do, without a display: the study may be open in a notebook while it runs elsewhere.
Whatever goes wrong with what a user gave raises `StokerError`, with the message that the command would show.
"""

from __future__ import annotations

import select
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.agent.host import is_gone
from stoker.core.errors import StokerError, UsageError
from stoker.core.values import Value
from stoker.store.records import TrialId
from stoker.study import orders
from stoker.study.opened import Opened, open_study
from stoker.study.ranges import DONE, State
from stoker.study.state import Counts, TrialNow

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure  # type: ignore[import-untyped]  # it has no types

    from stoker.engines.local import LocalAgent
    from stoker.report.errors import Causes
    from stoker.report.origin import Origin
    from stoker.study.logs import Logs

__all__ = ["Log", "StokerError", "Study", "Trial", "open", "run"]

_SHOWN = ("finished", "failed", "stopped", "running", "waiting")


@dataclass(frozen=True)
class Log:
    """What one stage of one attempt at a trial said."""

    stage: str
    path: str  # a file; for a study in a bucket, its name there
    _read: Callable[[], Iterator[bytes]] = field(repr=False, compare=False)

    def text(self) -> str:
        """All of it, as it is now."""
        return b"".join(self._read()).decode(errors="replace")


@dataclass(frozen=True)
class Trial:
    """One assignment of parameters, and what had become of it when the study was looked at."""

    number: int
    iteration: int
    name: str
    params: Mapping[str, Value]
    status: str  # waiting, running, finished, failed, stopped; released, lost and retrying wait, too
    round: int
    metrics: Mapping[str, float]
    directory: Path | None  # None for a study in a bucket
    _logs: Logs = field(repr=False, compare=False)

    def logs(self) -> list[Log]:
        """Its logs, oldest first; read when they are asked for.

        >>> print(study.trial("17").logs()[-1].text())
        """
        return [Log(log.stage, log.path, partial(self._logs.read, log)) for log in self._logs.all()]


class Study:
    """A study in its store, as it was when it was last looked at. `refresh` looks again."""

    def __init__(self, opened: Opened | None, where: str) -> None:
        self._found, self.where = opened, where
        self._bodies: dict[TrialId, Mapping[str, Any]] | None = None

    def __repr__(self) -> str:
        counts = self.counts
        return f"<Study {self.name} in {self.where}: {counts.finished} of {counts.total} finished>"

    def _repr_html_(self) -> str:
        """In a notebook: how many trials became what, what the study is after, and the best so far."""
        from stoker.report.notebook import summary

        counts = {state: getattr(self.counts, state) for state in _SHOWN}
        best = [
            (f"{str(trial).removeprefix('1.')} {self._opened.trial(trial).name}", value)
            for value, trial in self._opened.best(1)
        ]
        title = f"{self.name} in {self.where}"
        return summary(title, counts, self._opened.objective, best[0] if best else None)

    @property
    def _opened(self) -> Opened:
        if self._found is None:
            raise StokerError(f"{self.where} has no records of a study, which this needs")
        return self._found

    @property
    def name(self) -> str:
        """The name of the study file, or of the folder that it is in."""
        return self._opened.name

    @property
    def counts(self) -> Counts:
        """How many trials there are, by state: `counts.finished`, `.failed`, `.running`, `.waiting`, …"""
        return self._opened.state.counts()

    @property
    def trials(self) -> list[Trial]:
        """All trials, in order.

        >>> rows = [{**trial.params, **trial.metrics} for trial in study.trials]
        """
        return [self._trial(now) for now in self._opened.state.trials()]

    def trial(self, word: str | int) -> Trial:
        """The trial with a number, a name, or a part that only one name has."""
        found = self._opened.find([str(word)])
        if len(found) > 1:
            raise UsageError(f"'{word}' means {len(found):,} trials")
        now = self._opened.state.trial(found[0])
        assert now is not None  # noqa: S101  (it was found)
        return self._trial(now)

    def best(self, most: int = 1) -> list[Trial]:
        """The best trials by the study's objective, best first."""
        if self._opened.objective is None:
            raise UsageError("the study file has no `objective`, which says what is good")
        found = (self._opened.state.trial(trial) for _, trial in self._opened.best(most))
        return [self._trial(now) for now in found if now is not None]

    def _trial(self, now: TrialNow) -> Trial:
        from stoker.study.logs import Logs

        described, result = self._opened.trial(now.trial), self._results().get(now.trial, {})
        return Trial(
            number=now.trial.number,
            iteration=now.trial.iteration,
            name=described.name,
            params=described.params,
            status=now.state.value,
            round=now.round,
            metrics=self._opened.metrics(now.trial, result),
            directory=self._opened.directory(now.trial),
            _logs=Logs(self._opened, [now.trial]),
        )

    def _results(self) -> dict[TrialId, Mapping[str, Any]]:
        """All results in one go: of finished ranges, one object has a thousand."""
        if self._bodies is None:
            self._bodies = {result.trial: result.body for result in self._opened.state.results()}
        return self._bodies

    # Results

    @cached_property
    def _origin(self) -> Origin:
        from stoker.report.recorded import Recorded

        return Recorded(self._opened)

    def table(self, *columns: str, where: str = "", sort: str = "") -> DataFrame:
        """A pandas data frame with a row for each trial, and all columns if none are named.

        >>> study.table("lr", "acc.max", where="status=finished", sort="-acc")
        """
        from stoker.report import frames, table
        from stoker.report.curves import InLogs

        rows, objective = self._origin.rows(), self._origin.about.objective
        names, in_logs = columns or ("all",), InLogs(self._origin)
        return frames.frame(table.make(rows, objective, names, sort, where, in_logs))

    def group(self, *names: str, where: str = "") -> DataFrame:
        """Finished trials taken together by these parameters: count, and mean and std of each metric.

        >>> study.group("lr")  # over seeds
        """
        from stoker.report import frames, grouping
        from stoker.report.curves import InLogs

        rows, objective = self._origin.rows(), self._origin.about.objective
        return frames.frame(grouping.group(rows, objective, names, where, InLogs(self._origin)))

    def progress(self) -> DataFrame:
        """All series that managers recorded, as one long pandas data frame: a row for each value."""
        from stoker.report import frames

        return frames.progress(self._origin)

    def figure(self, name: str, x: str = "step", yrange: tuple[float, float] | None = None) -> Figure:
        """A Plotly figure by the name that `stoker plot` has for it; a notebook shows it.

        `x` is step, time, or another series; `yrange` are the ends of the y axis of `sweeps`.

        >>> study.figure("sweeps", x="time", yrange=(0.9, 1))
        """
        from stoker.report import figures, interactive

        return interactive.figure(figures.draw(self._origin, name, x, yrange))

    def errors(self) -> Causes:
        """Failures by cause, the most frequent first: a list that shows itself, in a notebook, too.

        >>> [(cause.count, cause.title) for cause in study.errors()]
        """
        from stoker.report.errors import errors

        return errors(self._origin, list(self._origin.rows(with_waiting=False)))

    # Doing

    def refresh(self) -> Study:
        """Look at the store again. Trials that were handed out stay as they were."""
        self._opened.refresh()
        self._bodies = None
        self.__dict__.pop("_origin", None)  # it remembers the study as it was
        return self

    def run(self, slots: Sequence[str | int] = ()) -> Study:
        """Run on this machine what is left, and again what failed or was stopped. Returns when all is done.

        `slots` are GPUs as `-r` has them: ["0", "2,3"]. Ctrl-C gives back what runs.
        """
        state = self._opened.state
        orders.resume_study(state)
        orders.open_rounds(state, [now.trial for now in state.trials(State.FAILED, State.STOPPED)], False)
        _run_agent([self.where, *(["-r", *_words(slots)] if slots else [])])
        return self.refresh()

    def stop(self, *words: str | int) -> None:
        """Stop these trials, or everything; agents obey within seconds. `wait` waits until nothing runs."""
        if words:
            orders.stop_trials(self._opened.state, self._opened.find(map(str, words)))
        else:
            orders.stop_study(self._opened.state)

    def retry(self, *words: str | int, fresh: bool = False) -> int:
        """Ask for these trials again, or for all that failed; returns how many. Agents pick them up.

        Finished stages run again only if `fresh`, and so do finished trials.
        """
        again = DONE if fresh else DONE - {State.FINISHED}
        state = self._opened.state
        asked = self._opened.find(map(str, words)) if words else None
        found = [now.trial for now in state.trials(*(again if words else (State.FAILED,)))]
        chosen = [trial for trial in found if asked is None or trial in asked]
        return len(orders.open_rounds(state, chosen, fresh).trials)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do, or nothing runs in a study that was stopped; False if it takes
        longer than `timeout` seconds. Somebody else must run it: see `run`."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._is_over():
            if until is not None and time.monotonic() >= until:
                return False
            time.sleep(3.0 if self._opened.place.is_remote else 0.5)
            self.refresh()
        return True

    def _is_over(self) -> bool:
        counts = self.counts
        return not counts.running and (self._opened.state.is_stopped or not counts.waiting)


class _WithoutRecords(Study):
    """A directory that has trials, but no records of a study; it is looked at whenever something is asked."""

    def __init__(self, where: str, file: str | None) -> None:
        from stoker.report.legacy import Unrecorded

        super().__init__(None, where)
        self._origin = Unrecorded(where, file)

    def __repr__(self) -> str:
        return f"<Study in {self.where}, without records>"

    def _repr_html_(self) -> str:
        from stoker.report.notebook import summary
        from stoker.report.results import Results

        found = Results(self.name, list(self._origin.rows()), self._origin.about.objective)
        ranked = ((f"{row.number} {row.name}", value) for value, row in found.ranked)
        counts = Counter(row.status for row in found.rows)
        return summary(repr(self)[1:-1], counts, found.objective, next(ranked, None))

    @property
    def name(self) -> str:
        """The name of the folder that it is in."""
        return self._origin.about.name

    def refresh(self) -> Study:
        return self


def open(where: str | PathLike[str] = "output", file: str | PathLike[str] | None = None) -> Study:
    """The study in an output directory, or at the URL of a bucket; StokerError if there is none.

    Of a directory that has trials but no records, tables can be made; a study `file` tells their metrics.

    >>> stoker.open("gs://bucket/study").counts.finished
    """
    word = fspath(where)
    from stoker.report.legacy import is_legacy
    from stoker.study.logs import read_again

    if is_legacy(word):
        return _WithoutRecords(word, None if file is None else fspath(file))
    return Study(open_study(word, is_gone, read_again), word)


def _words(given: str | Sequence[str | int]) -> list[str]:
    """One word is one, not its letters."""
    return [given] if isinstance(given, str) else list(map(str, given))


def run(
    file: str | PathLike[str] = "params.yaml",
    output: str | PathLike[str] = "output",
    *,
    titles: str | Sequence[str] = (),
    stages: str | Sequence[str] = (),
    slots: Sequence[str | int] = (),
    force: bool = False,
) -> Study:
    """Run a study file on this machine, as `stoker run` does, and return the study when nothing is left.

    `titles` and `stages` choose a part of it, `slots` are GPUs as `-r` has them, `force` runs finished trials
    again. Trials that fail raise nothing: see `counts.failed`. StokerError if the file is wrong.
    """
    from stoker.cli.begin import begin
    from stoker.cli.study_options import check_commands, choose

    options = Namespace(
        file=fspath(file),
        yaml=None,
        output=fspath(output),
        title=_words(titles),
        command=_words(stages),
        resource=_words(slots) or None,
        sample=None,
        force=force,
        no_subdir=False,
    )
    chosen = choose(options)
    check_commands(chosen)
    begun = begin(chosen, options)
    if begun.is_left:
        _run_agent(begun.agent_words)
    return open(output)


def _run_agent(words: list[str]) -> None:
    """Have an agent on this machine until it leaves. What interrupts us lets it give back what it runs."""
    from stoker.engines.local import LocalAgent

    agent = LocalAgent(words)
    try:
        _drain(agent)
    except BaseException:
        agent.tell("leave")
        agent.wait()
        raise
    code = agent.wait()
    if code != 0:
        raise StokerError(f"the agent ended with exit code {code}")


def _drain(agent: LocalAgent) -> None:
    """Take what the agent tells, so that it need not keep it."""
    while True:
        select.select([agent.fileno()], [], [])
        try:
            for _ in agent.events():
                pass
        except EOFError:
            return
