"""From the text of a study file to a Study, or to all its problems at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from stoker.core.errors import UsageError
from stoker.plan.sweep import Sweep
from stoker.spec.keys import SETTINGS
from stoker.spec.nodes import Node, documents
from stoker.spec.parameters import Parameters
from stoker.spec.problems import Problem, Source, StudyFileError, is_misspelt, listing, suggest
from stoker.spec.reader import Entries, Field, Reader
from stoker.spec.stages import Command, check_values, possible_values, read_stages
from stoker.spec.study import Study

DEFAULT_FILE = "params.yaml"

_PARAMETER_KEYS = ("template", "default", "alias")
_START = "`stoker init` writes one to start from"

_COMMANDS = ("command", "commands", "cmd", "script", "scripts", "stage", "stages", "run", "program")
_OTHER_WORDS = {
    **dict.fromkeys(_COMMANDS, "commands stand under template: `template: python train.py --lr {lr}`"),
    **dict.fromkeys(
        ("parameter", "parameters", "param", "params", "values"),
        "parameters stand under default, or in a sweep: below a line of ---",
    ),
    **dict.fromkeys(
        ("sweep", "sweeps", "grid", "matrix"), "a sweep is a part of its own, below a line of ---"
    ),
    **dict.fromkeys(
        ("timeout", "timeouts"), "it belongs to a stage: `train: {command: python train.py, timeout: 2h}`"
    ),
    **dict.fromkeys(("gpu", "gpus", "slot", "slots", "device", "devices"), "did you mean 'resource'?"),
}
"""What people call things that have another name here, or another place."""


def load_file(path: str, stages: Sequence[str] = ()) -> Study:
    """Read a study file from disk. `stages` are those asked for on the command line, if any."""
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        near = suggest(path, [found.name for found in Path().glob("*.y*ml")])
        raise UsageError(f"there is no file {path}; {near or _START}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        problem = Problem(line, column, "this is not UTF-8", "save the file as UTF-8")
        raise StudyFileError(Source(path, raw.decode("latin-1")), [problem]) from None
    return load(Source(path, text), stages, os.path.exists)


def load(
    source: Source, stages: Sequence[str] = (), exists: Callable[[str], bool] = lambda path: False
) -> Study:
    """Read a study from text. `exists` tells which values are paths of something; raises StudyFileError."""
    roots = documents(source)
    if not roots:
        raise StudyFileError(source, [Problem(1, 1, "the file is empty", _START)])
    reader = Reader(source)
    entries = reader.entries(roots[0], "the study")
    if not reader.problems:
        study = _Loader(reader, entries, Existing(exists)).load(roots[1:], stages)
    if reader.problems:
        raise StudyFileError(source, reader.problems)
    return study


class Existing:
    """Tells which values are paths of something, and remembers those that are."""

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self.found: set[str] = set()

    def __call__(self, path: str) -> bool:  # noqa: D102
        if self._exists(path):
            self.found.add(path)
        return path in self.found


class _Loader:
    def __init__(self, reader: Reader, entries: Entries, exists: Existing) -> None:
        self._reader = reader
        self._entries = entries
        self._exists = exists

    def load(self, sweep_nodes: list[Node], asked: Sequence[str]) -> Study:
        settings = self._settings()
        self._hint_at_objective(settings)
        found = settings.get("search")
        search = found if isinstance(found, dict) else {}
        params = Parameters(self._reader, self._exists, search.get("seed", 0), search.get("trials"))
        commands = self._commands()
        self._reader.flags = {
            hole.name for command in commands for hole in command.stage.template.holes if hole.option
        }
        sweeps = self._sweeps(params, sweep_nodes, tuple(command.stage.name for command in commands))
        check_values(self._reader, commands, sweeps, params, asked)
        return Study(
            source=self._reader.source,
            stages=tuple(command.stage for command in commands),
            sweeps=sweeps,
            slots=_slots(settings.get("resource", "auto")),
            orphans=_orphans(commands, sweeps),
            seed=search.get("seed", 0),
            existing=frozenset(self._exists.found),
            settings=settings,
            waiting=(*_waiting(SETTINGS, settings, ""), *_waiting_elsewhere(commands, search)),
            hints=tuple(sorted(set(self._reader.hints))),
        )

    def _settings(self) -> dict[str, object]:
        kinds = {setting.name: setting.kind for setting in SETTINGS}
        found: dict[str, object] = {}
        for key, (key_node, value_node) in self._entries.items():
            if key in kinds:
                found[key] = kinds[key].read(self._reader, value_node, key)
            elif re.search(rf"[\[{{]{re.escape(key)}[\]}}]", self._reader.source.text):
                remedy = "a parameter belongs under default, or in a sweep: below a line of ---"
                self._reader.problem(key_node, f"'{key}' is a parameter, not a setting", remedy)
            elif key.lower() in _OTHER_WORDS:
                self._reader.problem(key_node, f"unknown key '{key}'", _OTHER_WORDS[key.lower()])
            elif key not in _PARAMETER_KEYS:
                self._reader.unknown(key_node, "key", [*_PARAMETER_KEYS, *kinds])
        return {key: value for key, value in found.items() if value is not None}

    def _hint_at_objective(self, settings: Mapping[str, object]) -> None:
        """An objective that is nearly the name of a metric is misspelt. Any other may come from a manager."""
        objective, metrics = settings.get("objective"), settings.get("metrics")
        known = metrics if isinstance(metrics, dict) else {}
        metric = str(objective.get("metric")) if isinstance(objective, dict) else None
        if metric is None or metric in known or not is_misspelt(metric, known):
            return
        message = f"objective: no pattern under metrics gives '{metric}'"
        self._reader.hint_at_token(self._entries["objective"][1], metric, message, suggest(metric, known))

    def _commands(self) -> list[Command]:
        if "template" in self._entries:
            return read_stages(self._reader, self._entries["template"][1])
        others = set(self._entries) - {setting.name for setting in SETTINGS}
        if not suggest("template", others) and others.isdisjoint(_COMMANDS):
            remedy = "say what to run: `template: python train.py --lr {lr}`"
            self._reader.problems.append(Problem(1, 1, "the study has no 'template'", remedy))
        return []

    def _sweeps(self, params: Parameters, nodes: list[Node], stages: tuple[str, ...]) -> tuple[Sweep, ...]:
        for key, read in (("alias", params.read_alias), ("default", params.read_default)):
            if key in self._entries:
                read(self._entries[key][1])
        sweeps = [params.read_sweep(node, stages) for node in nodes]
        params.check_aliases_used()
        return _numbered(sweeps or [Sweep((), dict(params.default), stages)])


def _numbered(sweeps: Sequence[Sweep]) -> tuple[Sweep, ...]:
    starts = accumulate((sweep.size for sweep in sweeps), initial=0)
    places = zip(range(len(sweeps)), sweeps, starts, strict=False)
    return tuple(replace(sweep, place=place, first=start) for place, sweep, start in places)


def _orphans(commands: Sequence[Command], sweeps: Sequence[Sweep]) -> tuple[str, ...]:
    used = {hole.name for command in commands for hole in command.stage.template.holes}
    known = dict.fromkeys(name for sweep in sweeps for name in possible_values(sweep))
    return tuple(name for name in known if name not in used)


def _slots(resource: object) -> tuple[str, ...] | None:
    return resource if isinstance(resource, tuple) else None


def _waiting(fields: Sequence[Field], found: object, prefix: str) -> list[str]:
    """Settings present in the file that nothing acts on yet; a group that waits as a whole counts once."""
    if not isinstance(found, dict):
        return []
    names: list[str] = []
    for setting in fields:
        if setting.name in found and setting.later:
            names.append(prefix + setting.name)
        elif setting.name in found:
            names += _waiting(setting.kind.fields, found[setting.name], f"{setting.name}.")
    return names


def _waiting_elsewhere(commands: Sequence[Command], search: dict[str, object]) -> list[str]:
    stages = [command.stage for command in commands]
    used = {
        "timeout": any(stage.timeout is not None for stage in stages),
        "slot": not all(stage.holds_slot for stage in stages),
        "search.method": search.get("method", "random") != "random",
    }
    return [name for name, is_used in used.items() if is_used]


def select(study: Study, titles: Sequence[str], stages: Sequence[str]) -> tuple[Sweep, ...]:
    """The sweeps with one of the titles, running only the stages asked for; everything if none are."""
    known_titles = list(dict.fromkeys(sweep.title for sweep in study.sweeps if sweep.title is not None))
    known_stages = [stage.name for stage in study.stages]
    for what, wanted, known in (("sweep titled", titles, known_titles), ("stage", stages, known_stages)):
        for word in wanted:
            if word not in known:
                there = f"there are {listing(known, last='and')}" if known else "no sweep has a _title"
                raise UsageError(f"there is no {what} '{word}'; {suggest(word, known) or there}")
    chosen = (sweep for sweep in study.sweeps if not titles or sweep.title in titles)
    asked = tuple(stage for stage in known_stages if stage in stages)
    return tuple(replace(sweep, stages=asked) if asked else sweep for sweep in chosen)
