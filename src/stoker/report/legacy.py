"""Trials without records: what `param`, `stat`, progress and logs tell of a directory, whoever wrote them.

Such a directory was copied without its records, lost them, or is from another tool that keeps the same files.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stoker.core.values import Value, text
from stoker.manager import progress
from stoker.manager.trial import files
from stoker.report.origin import About, Found, Stages, Thing
from stoker.report.rows import Numbers, Row, numbers_of
from stoker.spec.load import load_file
from stoker.spec.nodes import MappingNode, Node, ScalarNode, SequenceNode, documents, scalar
from stoker.spec.problems import Source, StudyFileError, listing, printable
from stoker.store.records import TrialId
from stoker.study.metrics import read_end, read_metrics
from stoker.study.opened import Objective
from stoker.study.place import RECORDS

LOG = re.compile(r"log\.(.+)\.(\d{8}\.\d{6})", re.DOTALL)
_PROGRESS = re.compile(r"progress\.(.+)\.\d+-\d+\.jsonl", re.DOTALL)
_GOOD = frozenset({"finished", "success", "succeeded", "done", "ok", "true", "0"})
_OPEN = frozenset({"running", "released", "stopped", "waiting"})


class Unrecorded:
    """The trials of a directory, and what a study `file` tells of them; StudyFileError if that is wrong."""

    def __init__(self, where: str, file: str | None = None) -> None:
        self._output = Path(where)
        self.about = _about(where, file)
        self.is_slow = False
        self._has_complained = False

    def rows(self, with_waiting: bool = True) -> Iterator[Row]:
        """A row for each trial, numbered in their order.

        Metrics are what managers recorded, and what patterns find in the last log of each stage.
        """
        broken: list[str] = []
        for number, path in enumerate(trials(self._output), 1):
            param, stat, names = read_yaml(path / "param"), read_yaml(path / "stat") or {}, _names(path)
            if param is None:
                broken.append(path.name)
                param = {}
            logs = _logs(names)
            metrics: dict[str, Numbers] = {}
            for log in (own[-1] for own in logs.values()):
                found = read_metrics(str(path / log), self.about.patterns) if self.about.patterns else {}
                metrics.update((name, Numbers(value)) for name, value in found.items())
            for series in _series(path, names).values():
                metrics.update((name, numbers_of(one.values)) for name, one in series.items() if one.values)
            row = Row(
                TrialId(1, number),
                path.name,
                "",
                {name: _value(value) for name, value in param.items() if _is_param(name, value)},
                status(stat, param.get("_scripts")),
                metrics,
                max(map(len, logs.values()), default=0),
                stages={stage: _told(word) for stage, word in stat.items()},
            )
            if with_waiting or row.status != "waiting":
                yield row
        self._complain(broken)

    def _complain(self, broken: list[str]) -> None:
        """Tell once of trials whose `param` is no use."""
        if broken and not self._has_complained:
            self._has_complained = True
            names = printable(listing(broken, 5, "and"))
            sys.stderr.write(f"stoker: what `param` says cannot be read, and is left out: {names}\n")

    def sweep(self, row: Row) -> str:
        """Nothing tells of sweeps."""
        return "all trials"

    def series(self, row: Row) -> Stages:
        """What managers recorded."""
        path = self._output / row.name
        return _series(path, _names(path))

    def logs(self, row: Row) -> dict[str, Callable[[int], str]]:
        """The last log of each stage, the last stage last."""
        path = self._output / row.name
        return {stage: _reader(path / own[-1]) for stage, own in _logs(_names(path)).items()}

    def each(self, read: Callable[[Thing], Found], things: Iterable[Thing]) -> Iterator[Found]:
        """One after the other."""
        return map(read, things)


def _about(where: str, file: str | None) -> About:
    """What a study file tells of trials that it may have been of; not much if there is none."""
    name = Path(where).absolute().parent.name
    if file is None:
        return About(name, where)
    study = load_file(file)
    patterns, objective = study.settings.get("metrics"), study.objective
    return About(
        name,
        where,
        None if objective is None else Objective(*objective),
        patterns if isinstance(patterns, dict) else {},
        study.source.name,
        study.source.text,
    )


def is_legacy(word: str) -> bool:
    """Whether a user names a directory that has trials, but no study."""
    path = Path(word)
    return "://" not in word and not (path / RECORDS / "plan").is_dir() and any(_trials(path))


def trials(output: Path) -> list[Path]:
    """The directories of trials in the order of their names, numbers by value."""
    return sorted(_trials(output), key=lambda path: _natural(path.name))


def _trials(output: Path) -> Iterator[Path]:
    """Those that have a `param`."""
    found = output.iterdir() if output.is_dir() else ()
    return (path for path in found if os.path.isfile(path / "param"))  # noqa: PTH113  (also where none may look)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    parts = re.findall(r"\d+|\D+", name, re.ASCII)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _names(path: Path) -> list[str]:
    """The files of a trial, no pipes, which would wait; none if somebody has just removed them."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())
    except OSError:
        return []


def _series(path: Path, names: Iterable[str]) -> dict[str, dict[str, progress.Series]]:
    stages: dict[str, set[str]] = {}
    for name in names:
        if match := _PROGRESS.fullmatch(name):
            stages.setdefault(match[1], set()).add(name)
    return {stage: progress.read(str(path), stage) for stage, own in stages.items() if _are(path, stage, own)}


def _are(path: Path, stage: str, names: set[str]) -> bool:
    """Whether these are all that is called progress of a stage: what else there is, is no file."""
    return all(Path(file.path).name in names for file in files(str(path), f"progress.{stage}", "jsonl"))


def _logs(names: Iterable[str]) -> dict[str, list[str]]:
    """Stage → its logs, in the order in which they began, which is part of their names."""
    found: dict[str, list[str]] = {}
    for match in sorted(filter(None, map(LOG.fullmatch, names)), key=lambda match: match[2]):
        found.setdefault(match[1], []).append(match[0])
    return found


def _reader(path: Path) -> Callable[[int], str]:
    return lambda most: read_end(str(path), most)


def status(stat: Mapping[str, Any], scripts: Any) -> str:
    """What a trial came to, by the words for its stages, of which `param` may tell all there are."""
    words = list(map(_word, stat.values()))
    missing = [stage for stage in scripts if stage not in stat] if isinstance(scripts, dict) else []
    if any(word not in _GOOD | _OPEN for word in words):
        return "failed"
    return next((word for word in words if word in _OPEN), "finished" if words and not missing else "waiting")


def _word(told: Any) -> str:
    return text(told).lower() if isinstance(told, Value) else ""


def _told(told: Any) -> dict[str, Any]:
    """What is known of a stage that failed: a word, or its exit code; nothing of one that did not."""
    word = _word(told)
    if word in _GOOD | _OPEN:
        return {}
    if re.fullmatch(r"-?\d+", word, re.ASCII):  # as Python tells it, below 0 for a signal
        return {"why": word, "signal" if int(word) < 0 else "code": abs(int(word))}
    return {"why": word}


# YAML


def read_yaml(path: Path) -> dict[str, Any] | None:
    """A `param` or `stat`; None if there is none that can be read. Values are as in the study file."""
    try:
        if not path.is_file():
            return None
        roots = documents(Source(str(path), path.read_text(encoding="utf-8")))
        found = _Plain().value(roots[0]) if roots else {}
    except (OSError, UnicodeDecodeError, StudyFileError, RecursionError, _TooMuchError):
        return None
    return found if isinstance(found, dict) else None


MOST = 4_000_000
"""So many signs and nodes of a file are read, with what aliases repeat: few lines can stand for billions."""


class _TooMuchError(Exception):
    """Aliases repeat more than can be meant."""


class _Plain:
    """From nodes to plain values, as long as there are not too many."""

    def __init__(self) -> None:
        self._left = MOST

    def value(self, node: Node) -> Any:
        self._left -= 1 + (len(node.value) if isinstance(node, ScalarNode) else 0)
        if self._left < 0:
            raise _TooMuchError
        if isinstance(node, MappingNode):
            own = ((name, value) for name, value in node.value if isinstance(name, ScalarNode))
            return {str(name.value): self.value(value) for name, value in own}
        if isinstance(node, SequenceNode):
            return [self.value(value) for value in node.value]
        return scalar(node) if isinstance(node, ScalarNode) else None


def _is_param(name: str, value: Any) -> bool:
    return not name.startswith("_") and value is not None


def _value(value: Any) -> Value:
    return value if isinstance(value, Value) else json.dumps(value, ensure_ascii=False)
