"""From the text of a study file to a Study, or to all its problems at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stoker.core.errors import UsageError
from stoker.core.values import Value
from stoker.plan.sweep import Sweep
from stoker.plan.template import RESERVED, Hole, Template, parse
from stoker.spec.keys import SETTINGS, STAGE
from stoker.spec.nodes import MappingNode, Node, ScalarNode, documents
from stoker.spec.parameters import Parameters
from stoker.spec.problems import Problem, Source, StudyFileError, listing, suggest
from stoker.spec.reader import Entries, Field, Reader, describe_node, group
from stoker.spec.study import Stage, Study

DEFAULT_FILE = "params.yaml"

_STAGE_NAME = re.compile(r"\w[\w.+-]{0,49}")
_STAGE = group(*STAGE)
_PARAMETER_KEYS = ("template", "default", "alias")


def load_file(path: str, stages: Sequence[str] = ()) -> Study:
    """Read a study file from disk. `stages` are those asked for on the command line, if any."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        remedy = "`stoker init` writes one to start from" if isinstance(error, FileNotFoundError) else ""
        raise UsageError("; ".join(filter(None, [f"cannot read {path}: {error.strerror}", remedy]))) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        problem = Problem(line, 1, "this line is not UTF-8", "save the file as UTF-8")
        raise StudyFileError(Source(path, raw.decode("latin-1")), [problem]) from None
    return load(Source(path, text.replace("\r\n", "\n")), stages, os.path.exists)


def load(
    source: Source, stages: Sequence[str] = (), exists: Callable[[str], bool] = lambda path: False
) -> Study:
    """Read a study from text. `exists` tells which values are paths of something; raises StudyFileError."""
    roots = documents(source)
    reader = Reader(source)
    if not roots:
        raise StudyFileError(
            source, [Problem(1, 1, "the file is empty", "`stoker init` writes one to start from")]
        )
    first = reader.entries(roots[0], "the study")
    study = _Loader(reader, first, exists).load(roots[1:], stages)
    if reader.problems:
        raise StudyFileError(source, reader.problems)
    return study


class _Command(NamedTuple):
    stage: Stage
    node: Node


class _Loader:
    def __init__(self, reader: Reader, entries: Entries, exists: Callable[[str], bool]) -> None:
        self._reader = reader
        self._entries = entries
        self._exists = exists

    def load(self, sweep_nodes: list[Node], asked: Sequence[str]) -> Study:
        settings = self._settings()
        search = settings.get("search", {})
        assert isinstance(search, dict)  # noqa: S101  (its kind is a group)
        params = Parameters(self._reader, self._exists, search.get("seed", 0), search.get("trials"))
        commands = self._commands()
        for key, read in (("alias", params.read_alias), ("default", params.read_default)):
            if key in self._entries:
                read(self._entries[key][1])
        names = tuple(command.stage.name for command in commands)
        sweeps = tuple(params.read_sweep(node, names) for node in sweep_nodes)
        sweeps = sweeps or (Sweep((), dict(params.default), names),)
        params.check_aliases_used()
        _check_commands(self._reader, commands, sweeps, params, asked)
        return Study(
            source=self._reader.source,
            stages=tuple(command.stage for command in commands),
            sweeps=sweeps,
            slots=_slots(settings.get("resource", "auto")),
            orphans=_orphans(commands, sweeps),
            seed=search.get("seed", 0),
            settings=settings,
            waiting=(*_waiting(SETTINGS, settings, ""), *_waiting_method(search)),
            hints=tuple(sorted(set(self._reader.hints))),
        )

    def _settings(self) -> dict[str, object]:
        kinds = {setting.name: setting.kind for setting in SETTINGS}
        found: dict[str, object] = {}
        for key, (key_node, value_node) in self._entries.items():
            if key in kinds:
                found[key] = kinds[key].read(self._reader, value_node, key)
            elif key not in _PARAMETER_KEYS:
                self._reader.unknown(key_node, "key", [*_PARAMETER_KEYS, *kinds])
        return {key: value for key, value in found.items() if value is not None}

    def _commands(self) -> list[_Command]:
        if "template" not in self._entries:
            if suggest("template", set(self._entries) - {setting.name for setting in SETTINGS}):
                return []  # it is there, misspelt, and reported
            message = "the study has no 'template'"
            remedy = "say what to run: `template: python train.py --lr {lr}`"
            self._reader.problems.append(Problem(1, 1, message, remedy))
            return []
        node = self._entries["template"][1]
        if not isinstance(node, MappingNode):
            return list(filter(None, [self._command("train", node, node)]))
        entries = self._reader.entries(node, "template")
        if not entries:
            self._reader.problem(node, "template: there is no stage", "`train: python train.py --lr {lr}`")
        return list(filter(None, (self._command(name, *found) for name, found in entries.items())))

    def _command(self, name: str, key_node: Node, node: Node) -> _Command | None:
        if not _STAGE_NAME.fullmatch(name):
            self._reader.problem(key_node, f"'{name}' cannot name a stage", "use a short word, such as train")
        options: dict[str, object] = {}
        command_node: Node | None = node
        if isinstance(node, MappingNode):
            options = _STAGE.read(self._reader, node, f"template.{name}") or {}
            command_node = self._reader.entries(node, name).get("command", (None, None))[1]
        if not isinstance(command_node, ScalarNode):
            if command_node is not None:
                self._reject(name, command_node)
            return None
        template = parse(str(command_node.value))
        self._check_template(name, command_node, template)
        timeout = options.get("timeout")
        seconds = timeout if isinstance(timeout, float) else None
        return _Command(Stage(name, template, seconds, "slot" not in options), command_node)

    def _reject(self, name: str, node: Node) -> None:
        remedy = "put the command into a block: `train: >` on one line, the command on the next, indented"
        self._reader.problem(node, f"template.{name}: expected a command, got {describe_node(node)}", remedy)

    def _check_template(self, name: str, node: ScalarNode, template: Template) -> None:
        if not template.pieces:
            self._reader.problem(node, f"template.{name}: the command is empty", "write one behind the colon")
        for flaw in template.flaws:
            message = f"template.{name}: {flaw.message}"
            self._reader.problem_at_token(node, flaw.token, message, flaw.remedy, flaw.last)
        lines = self._reader.source.lines[node.start_mark.line : node.end_mark.line]
        if node.style != "|" and any(line.rstrip().endswith("\\") for line in lines):
            remedy = "delete it: line breaks are joined by themselves"
            message = f"template.{name}: a backslash ends a line, where it would escape the next space"
            self._reader.problem_at_token(node, "\\", message, remedy)


def _check_commands(
    reader: Reader,
    commands: list[_Command],
    sweeps: Sequence[Sweep],
    params: Parameters,
    asked: Sequence[str],
) -> None:
    """Every hole has a value, of the right type, in every sweep that runs its stage."""
    for command in commands:
        running = [sweep for sweep in sweeps if command.stage.name in (asked or sweep.stages)]
        for hole in dict.fromkeys(command.stage.template.holes):
            for message, remedy in _flaws_of(hole, running, params):
                reader.problem_at_token(
                    command.node, hole.written, f"template.{command.stage.name}: {message}", remedy
                )


def _flaws_of(hole: Hole, sweeps: Sequence[Sweep], params: Parameters) -> list[tuple[str, str]]:
    name, escape = hole.name, f"[[{hole.name}]]" if hole.option else f"{{{{{hole.name}}}}}"
    if name in params.alias:
        sets = " ".join(
            f"[{param}]" if hole.option else f"{{{param}}}" for param in params.alias_params(name)
        )
        return [(f"{hole.written} is an alias, which has no value of its own", f"write what it sets: {sets}")]
    if name in RESERVED:
        return [(f"{hole.written} would become --{name}", f"write {{{name}}}")] if hole.option else []
    lacking = [sweep for sweep in sweeps if name not in _values(sweep)]
    if lacking and name not in params.flawed:
        known = {param for sweep in sweeps for param in _values(sweep)} | set(RESERVED)
        where = "" if len(lacking) == len(sweeps) else f" in the sweep of line {lacking[0].line}"
        near = suggest(name, known - {name})
        remedy = f"set it under default or in the sweep, or write {escape} for the text itself"
        told = f"{hole.written} stands for `--{name} value`, but it" if hole.option else hole.written
        return [(f"{told} has no value{where}", f"{near} Else {remedy}" if near else remedy)]
    values = [value for sweep in sweeps for value in _values(sweep).get(name, ())]
    if not hole.option and any(isinstance(value, bool) for value in values):
        return [
            (
                f"{hole.written} is true or false, which no command understands",
                f"write [{name}]: --{name} or nothing",
            )
        ]
    return []


def _values(sweep: Sweep) -> dict[str, list[Value]]:
    """Values each parameter can take in a sweep, as far as they are written out."""
    values: dict[str, list[Value]] = {name: [value] for name, value in sweep.base.items()}
    for axis in sweep.axes:
        choices = getattr(axis.ladder, "choices", None) or (axis.ladder.choice(0),)
        for choice in choices:
            for name, value in choice.sets:
                values.setdefault(name, []).append(value)
    return values


def _orphans(commands: Sequence[_Command], sweeps: Sequence[Sweep]) -> tuple[str, ...]:
    used = {hole.name for command in commands for hole in command.stage.template.holes}
    known = dict.fromkeys(name for sweep in sweeps for name in _values(sweep))
    return tuple(name for name in known if name not in used)


def _slots(resource: object) -> tuple[str, ...] | None:
    return resource if isinstance(resource, tuple) else None


def _waiting(fields: Sequence[Field], found: object, prefix: str) -> list[str]:
    """Settings present in the file that nothing acts on yet; a group that waits as a whole counts once."""
    if not isinstance(found, dict):
        return []
    names: list[str] = []
    for setting in fields:
        if setting.name not in found:
            continue
        if setting.later:
            names.append(prefix + setting.name)
        else:
            names += _waiting(setting.kind.fields, found[setting.name], f"{setting.name}.")
    return names


def _waiting_method(search: dict[str, object]) -> list[str]:
    return ["search.method tpe (values are drawn at random)"] if search.get("method") == "tpe" else []


def select(study: Study, titles: Sequence[str], stages: Sequence[str]) -> tuple[Sweep, ...]:
    """The sweeps with one of the titles, running only the stages asked for; everything if none are."""
    known_titles = list(dict.fromkeys(sweep.title for sweep in study.sweeps if sweep.title is not None))
    known_stages = [stage.name for stage in study.stages]
    for what, wanted, known in (("sweep titled", titles, known_titles), ("stage", stages, known_stages)):
        for word in wanted:
            if word not in known:
                hint = suggest(word, known) or (
                    f"there are: {listing(known)}" if known else "no sweep has a _title"
                )
                raise UsageError(f"there is no {what} '{word}'; {hint}")
    chosen = (sweep for sweep in study.sweeps if not titles or sweep.title in titles)
    asked = tuple(stage for stage in known_stages if stage in stages)
    return tuple(replace(sweep, stages=asked) if asked else sweep for sweep in chosen)
