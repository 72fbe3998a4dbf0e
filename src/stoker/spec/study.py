"""What a study file says, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stoker.core.values import Value
from stoker.plan.sweep import Sweep
from stoker.plan.template import Template
from stoker.plan.trials import Trial
from stoker.spec.problems import Problem, Source


@dataclass(frozen=True)
class Stage:
    """One named command of every trial."""

    name: str
    template: Template
    line: int = 0  # where its command stands in the file
    timeout: float | None = None  # seconds
    holds_slot: bool = True


@dataclass(frozen=True)
class Study:
    """A study file that is valid: everything it names exists and every trial can be rendered."""

    source: Source
    stages: tuple[Stage, ...]
    sweeps: tuple[Sweep, ...]  # all of the file, selected or not
    slots: tuple[str, ...] | None  # CUDA_VISIBLE_DEVICES of each; None: as the machine has
    orphans: tuple[str, ...]  # parameters that no command uses
    seed: int
    existing: frozenset[str]  # values that are paths of something; their names are short
    settings: Mapping[str, object]  # the other keys, checked and converted
    waiting: tuple[str, ...]  # settings that are checked but that nothing acts on yet
    hints: tuple[Problem, ...]

    def commands(self, trial: Trial, reserved: Mapping[str, Value]) -> dict[str, str]:
        """The commands of a trial, stage by stage. `reserved` has a value for each reserved name."""
        params = {**trial.params, **reserved}
        return {
            stage.name: stage.template.render(params) for stage in self.stages if stage.name in trial.stages
        }

    @property
    def objective(self) -> tuple[str, str] | None:
        """The metric that the study is after, and whether `max` or `min` is good; None if it does not say."""
        found = self.settings.get("objective")
        return (str(found["metric"]), str(found["goal"])) if isinstance(found, dict) else None

    @cached_property
    def name(self) -> str:
        """The file's name without its ending; that of its folder if it has the usual name."""
        path = Path(self.source.name).absolute()
        return path.parent.name if path.stem == "params" else path.stem
