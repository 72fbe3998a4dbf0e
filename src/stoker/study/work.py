"""What there is to run: the plans in a store, and the trials that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from stoker.plan.trials import Plan, Trial
from stoker.spec.load import load, select
from stoker.spec.outputs import owner_in
from stoker.spec.problems import Source
from stoker.spec.study import Study
from stoker.store.records import TrialId


def plan_body(study: Study, chosen: Mapping[str, Any], time: str) -> dict[str, Any]:
    """A plan as it stands in the store: the study file as it was run, and what of it.

    `chosen` may have `titles`, `stages` and `sample`; `exists` are the values that are paths of something,
    looked at once, so that names do not depend on the machine.
    """
    return {"file": study.source.name, "text": study.source.text, "time": time, **chosen}


class Planned:
    """One iteration: its study, its plan, and the trials of it that are to be run."""

    def __init__(self, body: Mapping[str, Any], output: Path) -> None:
        existing = frozenset(body.get("exists", ()))
        self.time = str(body["time"])
        self.study = load(Source(body["file"], body["text"]), body.get("stages", ()), existing.__contains__)
        sweeps = select(self.study, body.get("titles", ()), body.get("stages", ()))
        self.plan = Plan(sweeps, [stage.name for stage in self.study.stages], owner_in(output))
        self.without_slot = frozenset(stage.name for stage in self.study.stages if not stage.holds_slot)
        self.size = max((sweep.first + sweep.size for sweep in sweeps), default=0)
        sample = body.get("sample")
        picked = None if sample is None else self.plan.sample(int(sample), self.study.seed)
        self._picked = None if picked is None else {self.plan.trial(index).number for index in picked}
        self.trial = lru_cache(maxsize=4096)(self._trial)

    def _trial(self, number: int) -> Trial | None:
        """The trial with a number; None if it is not asked for, or was asked for before."""
        if self._picked is not None and number not in self._picked:
            return None
        index = self.plan.index_of(number)
        trial = None if index is None else self.plan.trial(index)
        return None if trial is None or trial.same_as is not None else trial


class StudyWork:
    """All iterations of a study, as they are read from the store."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._iterations: dict[str, Planned] = {}
        self._ordered: list[Planned] = []

    def size(self, body: Mapping[str, Any]) -> int:
        """How far the numbers of an iteration go."""
        return self._planned(body).size

    def skipped(self, body: Mapping[str, Any]) -> Callable[[int], bool]:
        """Whether a trial of an iteration is not to be run: not asked for, or run by an earlier iteration."""
        planned = self._planned(body)
        earlier = self._ordered[: self._ordered.index(planned)]

        @lru_cache(maxsize=4096)
        def is_skipped(number: int) -> bool:
            trial = planned.trial(number)
            return trial is None or any(other.plan.first_with(trial.params) is not None for other in earlier)

        return is_skipped

    def stages(self, trial: TrialId) -> Sequence[str]:
        """The stages of a trial, in order."""
        found = self.trial(trial)
        return found.stages if found is not None else ()

    def needs_slot(self, trial: TrialId, stage: str) -> bool:
        """Whether a stage holds its slot while it runs."""
        return stage not in self.planned(trial.iteration).without_slot

    def trial(self, trial: TrialId) -> Trial | None:
        """A trial by its id."""
        return self._ordered[trial.iteration - 1].trial(trial.number)

    def planned(self, iteration: int) -> Planned:
        """An iteration by its number."""
        return self._ordered[iteration - 1]

    def _planned(self, body: Mapping[str, Any]) -> Planned:
        """Bodies come in the order of their iterations."""
        key = repr(sorted(body.items()))
        if key not in self._iterations:
            self._iterations[key] = Planned(body, self._output)
            self._ordered.append(self._iterations[key])
        return self._iterations[key]
