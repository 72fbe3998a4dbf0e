"""A study that exists: where it is, what it is made of, and what has become of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from math import isnan
from pathlib import Path
from sys import float_info
from typing import Any, NamedTuple, TypeGuard

from stoker.core.errors import UsageError
from stoker.plan.trials import Trial
from stoker.spec.study import Study
from stoker.store.records import Status, TrialId
from stoker.study import names
from stoker.study.fleet import Fleet
from stoker.study.metrics import EPOCHS
from stoker.study.place import Place, open_place
from stoker.study.state import StudyState
from stoker.study.work import StudyWork

MOST_READ = 20_000
"""So many trials have their logs read again; a thousand take a third of a second."""

IsGone = Callable[[Mapping[str, Any]], bool]
ReadLogs = Callable[["Opened", TrialId, Mapping[str, str]], Mapping[str, float]]


def _nothing(opened: Opened, trial: TrialId, patterns: Mapping[str, str]) -> Mapping[str, float]:
    return {}


def is_number(value: object) -> TypeGuard[float]:
    """Of what JSON has: no bool, though Python counts it among numbers; nothing beyond the largest float."""
    return type(value) is float or (type(value) is int and abs(value) <= float_info.max)


class Objective(NamedTuple):
    """What a study is after."""

    metric: str
    goal: str  # max or min


class Later(NamedTuple):
    """How the file of now reads results: it may be a later one than that of the trials.

    Patterns may be such that trials ran without them, since an earlier iteration had no such ones.
    """

    added: dict[str, str]
    mended: dict[str, str]  # where there was another one, what was recorded is wrong
    objective: Objective | None


def _later(studies: Sequence[Study]) -> Later:
    found, after = [study.settings.get("metrics") for study in studies], studies[-1].objective
    *earlier, now = [patterns if isinstance(patterns, dict) else {} for patterns in found]
    was = {name: {patterns.get(name) for patterns in earlier} for name in now}
    return Later(
        {name: pattern for name, pattern in now.items() if None in was[name]},
        {name: pattern for name, pattern in now.items() if was[name] - {None, pattern}},
        None if after is None else Objective(*after),
    )


def _of_series(series: object, objective: Objective | None) -> dict[str, float]:
    """The number that stands for each series: the last, but of the objective the best."""
    if not series or not isinstance(series, dict):
        return {}
    found = {}
    for name, told in series.items():
        if name == EPOCHS or not isinstance(told, dict) or not is_number(told.get("last")):
            continue
        best = told.get(objective.goal) if objective is not None and name == objective.metric else None
        found[name] = best if is_number(best) else told["last"]
    return found


class Opened:
    """A study in a directory or a bucket, while it runs or after. `refresh` looks at it again.

    `is_gone` tells of a beat that its agent is dead; `read_logs` what patterns find in the logs of a trial.
    """

    def __init__(
        self, place: Place, is_gone: IsGone = lambda beat: False, read_logs: ReadLogs = _nothing
    ) -> None:
        self.place = place
        self._read_logs = read_logs
        self._read: dict[tuple[TrialId, object, int], Mapping[str, float]] = {}  # what was read again
        self._later: tuple[int, Later] = (0, Later({}, {}, None))  # as of so many iterations
        self.work = StudyWork(place.output)
        self.state = StudyState(place.store, self.work, Fleet(is_gone=is_gone))

    def refresh(self) -> None:
        """Look at what has changed."""
        self.state.refresh()

    @property
    def study(self) -> Study:
        """The study file, as it was run last."""
        return self.work.planned(self.state.iterations[-1]).study

    @property
    def name(self) -> str:
        """The study's name, whatever directory it is looked at from."""
        planned = self.work.planned(self.state.iterations[-1])
        path = Path(planned.directory or "/", planned.study.source.name)
        return (path.parent.name if path.stem == "params" else path.stem) or planned.study.name

    @property
    def objective(self) -> Objective | None:
        """What the study file says that it is after, if it does."""
        found = self.study.objective
        return None if found is None else Objective(*found)

    def metrics(self, trial: TrialId, result: Mapping[str, Any]) -> dict[str, float]:
        """What a trial came to, as the study file reads it now.

        A result has what the patterns found when the trial ran. Those that are new or were changed since then
        are looked for in the logs of a finished trial, once; not in very many of them, which would take long.
        Of a series the objective of now tells which number counts: it may have been another one then.
        """
        iterations = len(self.state.iterations)
        if self._later[0] != iterations:
            self._later = iterations, _later([self.work.planned(k).study for k in self.state.iterations])
        later = self._later[1]
        recorded, series = result.get("metrics"), _of_series(result.get("series"), later.objective)
        found: dict[str, float] = {}
        if isinstance(recorded, dict):
            found = {name: value for name, value in recorded.items() if is_number(value)}
        if result.get("status") != Status.FINISHED.value:
            return found | series
        if not later.added and not later.mended:
            return found | series
        key = trial, str(result.get("time")), iterations
        wanted = {name: pattern for name, pattern in later.added.items() if name not in found} | later.mended
        if wanted and key not in self._read and len(self._read) < MOST_READ:
            self._read[key] = self._read_logs(self, trial, wanted)
        return found | dict(self._read.get(key, {})) | series

    def best(self, most: int) -> list[tuple[float, TrialId]]:
        """The best finished trials by the objective, best first, with its value; read now."""
        objective = self.objective
        if objective is None:
            return []
        pick = nlargest if objective.goal == "max" else nsmallest
        numbers = (found for found in self._values(objective.metric) if not isnan(found[0]))
        return pick(most, numbers, key=lambda found: found[0])

    def _values(self, metric: str) -> Iterator[tuple[float, TrialId]]:
        for result in self.state.results():
            if result.body.get("status") == Status.FINISHED.value:
                value = self.metrics(result.trial, result.body).get(metric)
                if value is not None:
                    yield float(value), result.trial

    def find(self, words: Iterable[str]) -> list[TrialId]:
        """The trials that a user means, each once; raises UsageError for a word that means none."""
        return list(dict.fromkeys(trial for word in words for trial in names.find(self.state, word)))

    def trial(self, trial: TrialId) -> Trial:
        """Its name, parameters and stages."""
        found = self.work.trial(trial)
        if found is None:
            raise UsageError(f"there is no trial {trial}")
        return found

    def directory(self, trial: TrialId) -> Path | None:
        """Where the trial's files are; None if they are in a bucket."""
        output = self.place.output
        if output is None or self.work.planned(trial.iteration).is_flat:
            return output
        return output / self.trial(trial).name


def open_study(word: str, is_gone: IsGone = lambda beat: False, read_logs: ReadLogs = _nothing) -> Opened:
    """The study that a user names by its output directory or URL; raises UsageError if there is none."""
    opened = Opened(open_place(word), is_gone, read_logs)
    opened.refresh()
    if not opened.state.iterations:
        raise UsageError(f"there is no study in {word}; `stoker run` makes one")
    return opened
