"""Trials without records: what `param`, `stat`, progress and logs tell of a directory, whoever wrote them.

Such a directory was copied without its records, lost them, or is from another tool that keeps the same files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stoker.core.values import Value, text
from stoker.manager import progress
from stoker.report.rows import Numbers, Part, Row, numbers_of
from stoker.spec.load import load_file
from stoker.spec.nodes import MappingNode, Node, ScalarNode, SequenceNode, documents, scalar
from stoker.spec.problems import Source, StudyFileError
from stoker.store.records import TrialId
from stoker.study.metrics import read_metrics
from stoker.study.opened import Objective
from stoker.study.place import RECORDS

LOG = re.compile(r"log\.(.+)\.\d{8}\.\d{6}", re.DOTALL)
_PROGRESS = re.compile(r"progress\.(.+)\.\d+-\d+\.jsonl", re.DOTALL)
_GOOD = frozenset({"finished", "success", "succeeded", "done", "ok", "true", "0"})
_OPEN = frozenset({"running", "released", "stopped", "waiting"})


class Told(NamedTuple):
    """What a study file tells of trials that it may have been of."""

    patterns: Mapping[str, str] = {}  # of metrics
    objective: Objective | None = None


def told_by(file: str | None) -> Told:
    """What a study file tells, nothing if there is none; raises StudyFileError if it is wrong."""
    if file is None:
        return Told()
    settings = load_file(file).settings
    patterns, objective = settings.get("metrics"), settings.get("objective")
    return Told(
        patterns if isinstance(patterns, dict) else {},
        Objective(str(objective["metric"]), str(objective["goal"])) if isinstance(objective, dict) else None,
    )


def is_legacy(word: str) -> bool:
    """Whether a user names a directory that has trials, but no study."""
    path = Path(word)
    return "://" not in word and not (path / RECORDS / "plan").is_dir() and any(trials(path))


def trials(output: Path) -> Iterator[Path]:
    """The directories of trials: those that have a `param`; in the order of their names, numbers by value."""
    found = output.iterdir() if output.is_dir() else ()
    yield from sorted(
        (path for path in found if (path / "param").is_file()), key=lambda path: _natural(path.name)
    )


def _natural(name: str) -> list[tuple[bool, int, str]]:
    parts = re.findall(r"\d+|\D+", name, re.ASCII)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def rows(output: Path, patterns: Mapping[str, str]) -> Iterator[Row]:
    """A row for each trial, as `stoker.report.rows` has them for studies with records.

    Metrics are what managers recorded, and what `patterns` find in the last log of each stage.
    """
    for number, path in enumerate(trials(output), 1):
        param, names = read_yaml(path / "param") or {}, _names(path)
        logs = _logs(names)
        metrics: dict[str, Numbers] = {}
        for log in (stage_logs[-1] for stage_logs in logs.values()):
            found = read_metrics(str(path / log), patterns) if patterns else {}
            metrics.update((name, Numbers(value)) for name, value in found.items())
        for _, name, series in _series(path, names):
            metrics[name] = numbers_of(series)
        yield Row(
            TrialId(1, number),
            path.name,
            "",
            {name: _value(value) for name, value in param.items() if _is_param(name, value)},
            status(read_yaml(path / "stat") or {}, param.get("_scripts")),
            metrics,
            max(map(len, logs.values()), default=0),
        )


def parts(output: Path) -> Iterator[Part]:
    """All series of all trials."""
    for number, path in enumerate(trials(output), 1):
        for stage, name, series in _series(path, _names(path)):
            yield Part(str(number), path.name, stage, name, series)


def _series(path: Path, names: Iterable[str]) -> Iterator[tuple[str, str, progress.Series]]:
    stages = dict.fromkeys(match[1] for name in names if (match := _PROGRESS.fullmatch(name)))
    for stage in stages:
        for name, series in progress.read(str(path), stage).items():
            if series.values:
                yield stage, name, series


def _names(path: Path) -> list[str]:
    return sorted(found.name for found in path.iterdir())


def _logs(names: Iterable[str]) -> dict[str, list[str]]:
    """Stage → its logs; times are part of their names, so these are in order."""
    found: dict[str, list[str]] = {}
    for name in names:
        if match := LOG.fullmatch(name):
            found.setdefault(match[1], []).append(name)
    return found


def status(stat: Mapping[str, Any], scripts: Any) -> str:
    """What a trial came to, by the words for its stages, of which `param` may tell all there are."""
    words = [text(word).lower() if isinstance(word, Value) else "" for word in stat.values()]
    missing = [stage for stage in scripts if stage not in stat] if isinstance(scripts, dict) else []
    if any(word not in _GOOD | _OPEN for word in words):
        return "failed"
    return next((word for word in words if word in _OPEN), "finished" if words and not missing else "waiting")


# YAML


def read_yaml(path: Path) -> dict[str, Any] | None:
    """A `param` or `stat`; None if there is none that can be read. Values are as in the study file."""
    try:
        roots = documents(Source(str(path), path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, StudyFileError):
        return None
    found = _plain(roots[0]) if roots else None
    return found if isinstance(found, dict) else None


def _plain(node: Node) -> Any:
    if isinstance(node, MappingNode):
        return {str(name.value): _plain(value) for name, value in node.value}
    if isinstance(node, SequenceNode):
        return [_plain(value) for value in node.value]
    return scalar(node) if isinstance(node, ScalarNode) else None


def _is_param(name: str, value: Any) -> bool:
    return not name.startswith("_") and value is not None


def _value(value: Any) -> Value:
    return value if isinstance(value, Value) else json.dumps(value, ensure_ascii=False)
