"""Which trial a script runs, as its agent tells it through the environment; and where its files are."""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping

OUTSIDE = "stoker-trial"
"""Where progress and checkpoints go if a script runs outside a study."""
_FILE = re.compile(r"(.+)\.(\d+)-(\d+)(?:\.(\d+))?\.(\w+)")


class Trial:
    """A trial, and the attempt at one of its stages that this process is."""

    def __init__(  # noqa: PLR0913, PLR0917  (plain data, and a dataclass takes long to import)
        self,
        params: Mapping[str, Any],
        directory: str,
        stage: str = "train",
        attempt: tuple[int, int] = (1, 1),
        objective: tuple[str, str] | None = None,
        since: int = 1,
        is_in_study: bool = False,
    ) -> None:
        self.params = dict(params)
        self.directory = directory
        self.stage = stage
        self.attempt = attempt  # round, and attempt in it
        self.objective = objective  # metric, and `min` or `max`
        self.since = since  # what rounds before this one left does not count any more
        self.is_in_study = is_in_study

    @property
    def checkpoints(self) -> str:
        """The directory of checkpoints."""
        return os.path.join(self.directory, "checkpoints")

    @property
    def progress(self) -> str:
        """The file of progress that this attempt writes."""
        return progress_path(self.directory, self.stage, self.attempt)


def progress_path(directory: str, stage: str, attempt: tuple[int, int]) -> str:
    """The file of progress that an attempt writes."""
    return os.path.join(directory, f"progress.{stage}.{attempt[0]}-{attempt[1]}.jsonl")


def is_told(environment: Mapping[str, str]) -> bool:
    """Whether this is a stage of a trial."""
    return bool(environment.get("STOKER_DIRECTORY")) and bool(environment.get("STOKER_STAGE"))


def from_environment(environment: Mapping[str, str]) -> Trial:
    """The trial that an agent tells of."""
    objective = json.loads(environment.get("STOKER_OBJECTIVE") or "null") or {}
    metric = objective.get("metric")
    return Trial(
        params=json.loads(environment.get("STOKER_PARAMS") or "{}"),
        directory=environment["STOKER_DIRECTORY"],
        stage=environment["STOKER_STAGE"],
        attempt=(int(environment.get("STOKER_ROUND", "1")), int(environment.get("STOKER_ATTEMPT", "1"))),
        objective=None if metric is None else (metric, objective.get("goal", "min")),
        since=int(environment.get("STOKER_SINCE", "1")),
        is_in_study=True,
    )


def to_environment(trial: Trial, number: str) -> dict[str, str]:
    """What tells a script its trial."""
    objective = {"metric": trial.objective[0], "goal": trial.objective[1]} if trial.objective else None
    return {
        "STOKER_TRIAL": number,
        "STOKER_STAGE": trial.stage,
        "STOKER_ROUND": str(trial.attempt[0]),
        "STOKER_ATTEMPT": str(trial.attempt[1]),
        "STOKER_SINCE": str(trial.since),
        "STOKER_DIRECTORY": trial.directory,
        "STOKER_PARAMS": json.dumps(trial.params),
        "STOKER_OBJECTIVE": json.dumps(objective) if objective else "",
    }


class File:
    """A file of some attempt: its name tells whose it is."""

    def __init__(self, path: str, attempt: tuple[int, int], number: int) -> None:
        self.path, self.attempt, self.number = path, attempt, number

    @property
    def order(self) -> tuple[tuple[int, int], int]:
        """Files of later attempts come later, and of one attempt those with higher numbers."""
        return self.attempt, self.number


def files(directory: str, stem: str, ending: str) -> Iterator[File]:
    """`STEM.ROUND-ATTEMPT[.NUMBER].ENDING`, in order."""
    try:
        names = os.listdir(directory)
    except OSError:
        return iter(())
    found = []
    for name in names:
        match = _FILE.fullmatch(name)
        if match and match.group(1) == stem and match.group(5) == ending:
            attempt = int(match.group(2)), int(match.group(3))
            found.append(File(os.path.join(directory, name), attempt, int(match.group(4) or 0)))
    return iter(sorted(found, key=lambda file: file.order))
