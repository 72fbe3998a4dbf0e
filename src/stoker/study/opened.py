"""A study that exists: where it is, what it is made of, and what has become of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest, nsmallest
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

from stoker.core.errors import UsageError
from stoker.plan.trials import Trial
from stoker.spec.study import Study
from stoker.store.records import Status, TrialId
from stoker.study import names
from stoker.study.fleet import Fleet
from stoker.study.place import Place, open_place
from stoker.study.state import StudyState
from stoker.study.work import StudyWork


class Objective(NamedTuple):
    """What a study is after."""

    metric: str
    goal: str  # max or min


class Opened:
    """A study in a directory or a bucket, while it runs or after. `refresh` looks at it again."""

    def __init__(
        self, place: Place, is_gone: Callable[[Mapping[str, Any]], bool] = lambda beat: False
    ) -> None:
        self.place = place
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
        found = self.study.settings.get("objective")
        return Objective(str(found["metric"]), str(found["goal"])) if isinstance(found, dict) else None

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
            metrics = result.body.get("metrics")
            value = metrics.get(metric) if isinstance(metrics, dict) else None
            if result.body.get("status") == Status.FINISHED.value and isinstance(value, (int, float)):
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


def open_study(word: str, is_gone: Callable[[Mapping[str, Any]], bool] = lambda beat: False) -> Opened:
    """The study that a user names by its output directory or URL; raises UsageError if there is none."""
    opened = Opened(open_place(word), is_gone)
    opened.refresh()
    if not opened.state.iterations:
        raise UsageError(f"there is no study in {word}; `stoker run` makes one")
    return opened
