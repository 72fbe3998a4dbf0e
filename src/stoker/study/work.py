"""What there is to run: the plans in a store, and the trials that follow from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from stoker.core.errors import StokerError
from stoker.plan.trials import Plan, Trial
from stoker.spec.load import load, select
from stoker.spec.outputs import owner_in
from stoker.spec.problems import Source
from stoker.spec.study import Study
from stoker.store import records
from stoker.store.interface import Store
from stoker.store.records import TrialId
from stoker.study.place import Place


def plan_body(study: Study, chosen: Mapping[str, Any], time: str) -> dict[str, Any]:
    """A plan as it stands in the store: the study file as it was run, and what of it.

    `chosen` may have `titles`, `stages` and `sample`; `exists`, the values that are paths of something,
    looked at once, so that names do not depend on the machine; and `directory` and `output`, where commands
    run and what they call the study's output.
    """
    return {"file": study.source.name, "text": study.source.text, "time": time, **chosen}


class Planned:
    """One iteration: its study, its plan, and the trials of it that are to be run."""

    def __init__(self, body: Mapping[str, Any], output: Path | None) -> None:
        existing = frozenset(body.get("exists", ()))
        self.time = str(body["time"])
        self.study = load(Source(body["file"], body["text"]), body.get("stages", ()), existing.__contains__)
        sweeps = select(self.study, body.get("titles", ()), body.get("stages", ()))
        owner = owner_in(output) if output is not None else lambda name: None
        self.plan = Plan(sweeps, [stage.name for stage in self.study.stages], owner)
        self.without_slot = frozenset(stage.name for stage in self.study.stages if not stage.holds_slot)
        self.retries = int(str(self.study.settings.get("retry", 0)))
        self.directory: str | None = body.get("directory")  # where its commands run
        self.output: str | None = body.get("output")  # its output as commands name it, from there
        self.is_flat = bool(body.get("flat"))  # all logs in one directory
        self.is_whole = not (body.get("titles") or body.get("stages") or body.get("sample") is not None)
        self.size = max((sweep.first + sweep.size for sweep in sweeps), default=0)
        sample = body.get("sample")
        picked = None if sample is None else self.plan.sample(int(sample), self.study.seed)
        self._picked = None if picked is None else {self.plan.trial(index).number for index in picked}
        self.trial = lru_cache(maxsize=4096)(self._trial)

    def with_params(self, trial: Trial) -> Trial | None:
        """The trial of this iteration with the same parameters, if it asks for them."""
        number = self.plan.first_with(trial.params)
        return None if number is None else self.trial(number)

    def _trial(self, number: int) -> Trial | None:
        """The trial with a number; None if it is not asked for, or was asked for before."""
        if self._picked is not None and number not in self._picked:
            return None
        index = self.plan.index_of(number)
        trial = None if index is None else self.plan.trial(index)
        return None if trial is None or trial.same_as is not None else trial


class Focus:
    """What some iterations ask for, whichever owns it: agents of `stoker run` do that and no more."""

    def __init__(self, work: StudyWork, iterations: Sequence[int]) -> None:
        self._work, self.iterations = work, iterations
        self.owners = lru_cache(maxsize=8192)(self._find_owners)
        self.covers = lru_cache(maxsize=8192)(self._covers)

    @property
    def size(self) -> int:
        """How far the numbers go: those of the first iteration, then those of the next."""
        return sum(self._work.planned(iteration).size for iteration in self.iterations)

    def _find_owners(self, number: int) -> tuple[TrialId, ...]:
        """The trial that a number asks for; none if it asks for nothing."""
        for iteration in self.iterations:
            size = self._work.planned(iteration).size
            if number <= size:
                found = self._work.trial(TrialId(iteration, number))
                owner = None if found is None else self._work.owner(found)
                return () if owner is None else (owner,)
            number -= size
        return ()

    def _covers(self, trial: TrialId) -> bool:
        """Whether these iterations ask for a trial of any iteration."""
        found = self._work.trial(trial)
        return found is not None and any(
            self._work.planned(iteration).with_params(found) is not None for iteration in self.iterations
        )


class StudyWork:
    """All iterations of a study, as they are read from the store, in order.

    A trial is its parameters: it belongs to the first iteration that asks for them. What it runs, and how, is
    as the last one says: whoever mends a command and runs the study again means the new one.
    """

    def __init__(self, output: Path | None) -> None:
        self._output = output
        self._iterations: list[Planned] = []
        self._by_body: dict[str, Planned] = {}
        self._in_force = lru_cache(maxsize=8192)(self._find_in_force)

    def add(self, body: Mapping[str, Any]) -> Planned:
        """The next iteration; one that was added before stays what it is."""
        key = repr(sorted(body.items()))
        if key not in self._by_body:
            self._by_body[key] = Planned(body, self._output)
            self._iterations.append(self._by_body[key])
        return self._by_body[key]

    def size(self, body: Mapping[str, Any]) -> int:
        """How far the numbers of an iteration go."""
        return self.add(body).size

    def skipped(self, body: Mapping[str, Any]) -> Callable[[int], bool]:
        """Tells whether a trial of an iteration is not its own: not asked for, or asked for before."""
        planned = self.add(body)
        earlier = self._iterations[: self._iterations.index(planned)]
        if not earlier:
            return lambda number: planned.trial(number) is None

        @lru_cache(maxsize=8192)
        def is_skipped(number: int) -> bool:
            found = planned.trial(number)
            return found is None or any(other.with_params(found) is not None for other in earlier)

        return is_skipped

    def owner(self, trial: Trial) -> TrialId | None:
        """The trial of the first iteration that asks for the same parameters."""
        for iteration, planned in enumerate(self._iterations, 1):
            same = planned.with_params(trial)
            if same is not None:
                return TrialId(iteration, same.number)
        return None

    def in_force(self) -> Focus | None:
        """What was asked for since the whole file was last run; None if that is everything.

        A trial that the file does not ask for any more is not begun; what it came to before is kept.
        """
        last = len(self._iterations)
        whole = next((k for k in range(last, 0, -1) if self.planned(k).is_whole), 1)
        return None if whole == 1 else Focus(self, range(whole, last + 1))

    def stages(self, trial: TrialId) -> Sequence[str]:
        """The stages to run for a trial, in order: those that the iterations in force ask for."""
        if trial.iteration == len(self._iterations):
            found = self.trial(trial)
            return found.stages if found is not None else ()
        return self._in_force(trial, len(self._iterations))[0]

    def newest(self, trial: TrialId, stage: str | None = None) -> Planned:
        """The last iteration that asks for a trial, and for a stage of it."""
        if trial.iteration == len(self._iterations):
            return self._iterations[-1]
        asking = self._in_force(trial, len(self._iterations))[1]
        return next(
            (planned for planned, stages in asking if stage is None or stage in stages), asking[-1][0]
        )

    def retries(self, trial: TrialId) -> int:
        """How often a trial may fail and be tried again."""
        return self.newest(trial).retries

    def needs_slot(self, trial: TrialId, stage: str) -> bool:
        """Whether a stage holds its slot while it runs."""
        return stage not in self.newest(trial, stage).without_slot

    def trial(self, trial: TrialId) -> Trial | None:
        """A trial by its id; None if it is not asked for."""
        return self.planned(trial.iteration).trial(trial.number)

    def planned(self, iteration: int) -> Planned:
        """An iteration by its number."""
        return self._iterations[iteration - 1]

    def _find_in_force(
        self, trial: TrialId, last: int
    ) -> tuple[tuple[str, ...], list[tuple[Planned, tuple[str, ...]]]]:
        """The stages of a trial, and the iterations that ask for it with theirs, the last first.

        In force is what was asked for since the whole file was last run: `-c train` and then `-c test` add
        up, but a stage that was taken out of the file is gone.
        """
        found = self.trial(trial)
        asking = []
        for planned in reversed(self._iterations[trial.iteration - 1 : last]):
            same = None if found is None else planned.with_params(found)
            if same is not None:
                asking.append((planned, same.stages))
        whole = next(
            (place for place, (planned, _) in enumerate(asking) if planned.is_whole), len(asking) - 1
        )
        wanted = {stage: None for _, stages in asking[: whole + 1] for stage in stages}
        order = [stage.name for stage in asking[0][0].study.stages] if asking else []
        stages = (
            *(stage for stage in order if stage in wanted),
            *(stage for stage in wanted if stage not in order),
        )
        return stages, asking or [(self.planned(trial.iteration), ())]


def read_plans(place: Place) -> list[Planned]:
    """All iterations of a study."""
    plans: list[Planned] = []
    while (body := records.decode(place.store.read(records.plan_key(len(plans) + 1)))) is not None:
        plans.append(Planned(body, place.output))
    return plans


def add_plan(store: Store, body: Mapping[str, Any]) -> int:
    """Put a plan into a study, as its next iteration; one that is the same as the last stays that one."""
    iteration, nonce, last = 1, os.urandom(8).hex(), None
    while True:
        raw = store.read(records.plan_key(iteration))
        found = records.decode(raw)
        if raw is not None and found is None:
            key = records.plan_key(iteration)
            raise StokerError(
                f"{store.url}/{key} cannot be read: it is damaged, or of a newer version of Stoker"
            )
        if found is None:
            if last is not None and _same_plan(last, body):
                return iteration - 1
            store.create(records.plan_key(iteration), records.encode({**body, "nonce": nonce}))
            found = records.decode(store.read(records.plan_key(iteration)))  # "exists" is not an answer
        if found is not None and found.get("nonce") == nonce:
            return iteration
        last = found
        iteration += found is not None


def _same_plan(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two plans ask for the same, whenever they did."""
    passed = ("v", "nonce", "time")
    return {k: v for k, v in one.items() if k not in passed} == {
        k: v for k, v in other.items() if k not in passed
    }
