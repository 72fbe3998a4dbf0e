"""Reading the stages of a study, and checking that every place in their commands gets a value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from stoker.core.values import Value
from stoker.plan.sweep import Sweep
from stoker.plan.template import RESERVED, Hole, Template, parse
from stoker.spec.keys import STAGE
from stoker.spec.nodes import MappingNode, Node, ScalarNode, SequenceNode, tag
from stoker.spec.parameters import Parameters
from stoker.spec.problems import listing, suggest
from stoker.spec.reader import Reader, describe_node, group
from stoker.spec.study import Stage

_NAME = re.compile(r"\w[\w.+-]{0,49}")
_OPTIONS = group(*STAGE)
_CONTINUES = re.compile(r"(&&|\|\|?|;|\\|[({]|\b(do|then|else))$")
_CONTINUED = re.compile(r"[-\[{|&<>)}]")


class Command(NamedTuple):
    """A stage, and where its command stands."""

    stage: Stage
    node: ScalarNode


def read_stages(reader: Reader, node: Node) -> list[Command]:
    """`template: {train: …, test: …}`, or one command."""
    if not isinstance(node, MappingNode):
        return list(filter(None, [_read_stage(reader, "train", node, node)]))
    entries = reader.entries(node, "template")
    if not entries:
        reader.problem(node, "template: there is no stage", "`train: python train.py --lr {lr}`")
    return list(filter(None, (_read_stage(reader, name, *found) for name, found in entries.items())))


def _read_stage(reader: Reader, name: str, key_node: Node, node: Node) -> Command | None:
    if not _NAME.fullmatch(name):
        reader.problem(key_node, f"'{name}' cannot name a stage", "use a short word, such as train")
    options: dict[str, object] = {}
    command: Node | None = node
    if isinstance(node, MappingNode):
        options = _OPTIONS.read(reader, node, f"template.{name}") or {}
        command = reader.entries(node, name).get("command", (None, None))[1]
    if not isinstance(command, ScalarNode) or tag(command) != "str":
        if command is not None:
            _reject(reader, name, command)
        return None
    template = parse(str(command.value))
    _check_template(reader, name, command, template)
    _hint_at_joined_lines(reader, name, command)
    timeout = options.get("timeout")
    seconds = timeout if isinstance(timeout, float) else None
    return Command(
        Stage(name, template, command.start_mark.line + 1, seconds, "slot" not in options), command
    )


def _reject(reader: Reader, name: str, node: Node) -> None:
    remedy = (
        f"a command that begins with {{ or [ needs a block: `{name}: >`, and the command on the next line"
    )
    if isinstance(node, SequenceNode):
        remedy = f"join commands with &&, or make each a stage; {remedy}"
    reader.problem(node, f"template.{name}: expected a command, got {describe_node(node)}", remedy)


def _check_template(reader: Reader, name: str, node: ScalarNode, template: Template) -> None:
    if not template.pieces:
        reader.problem(node, f"template.{name}: the command is empty", "write one behind the colon")
    for flaw in template.flaws:
        reader.problem_at_token(node, flaw.token, flaw.nth, f"template.{name}: {flaw.message}", flaw.remedy)
    lines = reader.source.lines[node.start_mark.line : node.end_mark.line]
    if node.style != "|" and any(line.rstrip().endswith("\\") for line in lines):
        message = f"template.{name}: a backslash ends a line, where it would escape the next space"
        reader.problem_at_token(node, "\\", 0, message, "delete it: line breaks are joined by themselves")


def _hint_at_joined_lines(reader: Reader, name: str, node: ScalarNode) -> None:
    """`|` keeps lines apart in YAML; here they are joined, which may not be what was meant."""
    if node.style != "|":
        return
    lines = [line.strip() for line in str(node.value).split("\n") if line.strip()]
    for line, following in pairwise(lines):
        if not _CONTINUES.search(line) and not _CONTINUED.match(following):
            message = f"template.{name}: the lines of this block are joined into one command"
            reader.hint_at_token(node, line, message, "end a line with && to run the next one after it")
            return


def check_values(
    reader: Reader,
    commands: Sequence[Command],
    sweeps: Sequence[Sweep],
    params: Parameters,
    asked: Sequence[str],
) -> None:
    """Every hole has a value, of the right type, in every sweep that runs its stage."""
    for stage, node in commands:
        running = [sweep for sweep in sweeps if stage.name in (asked or sweep.stages)]
        for hole in dict.fromkeys(stage.template.holes):
            flaw = _flaw_of(hole, running, params)
            if flaw:
                message, remedy = flaw
                reader.problem_at_token(
                    node, hole.written, hole.nth, f"template.{stage.name}: {message}", remedy
                )


def _flaw_of(hole: Hole, sweeps: Sequence[Sweep], params: Parameters) -> tuple[str, str] | None:
    name = hole.name
    if name in params.alias:
        sets = " ".join(
            f"[{param}]" if hole.option else f"{{{param}}}" for param in params.alias_params(name)
        )
        return f"{hole.written} is an alias, which has no value of its own", f"write what it sets: {sets}"
    if name in RESERVED:
        return (f"{hole.written} would become --{name}", f"write {{{name}}}") if hole.option else None
    if name.startswith("_"):
        there = f"there are {listing(RESERVED, last='and')}"
        return f"{hole.written} does not exist", suggest(name, RESERVED) or there
    return _missing(hole, sweeps, params) or _boolean(hole, sweeps)


def _missing(hole: Hole, sweeps: Sequence[Sweep], params: Parameters) -> tuple[str, str] | None:
    name = hole.name
    lacking = [sweep for sweep in sweeps if name not in possible_values(sweep)]
    if not lacking or name in params.flawed:
        return None
    known = {param for sweep in sweeps for param in possible_values(sweep)}
    where = "" if len(lacking) == len(sweeps) else f" in the sweep of line {lacking[0].line}"
    near = suggest(name, known - {name})
    escaped = f"[[{name}]]" if hole.option else f"{{{{{name}}}}}"
    remedy = f"set it under default or in the sweep, or write {escaped} for the text itself"
    told = f"{hole.written} stands for `--{name} value`, but it" if hole.option else hole.written
    return f"{told} has no value{where}", f"{near} Else {remedy}" if near else remedy


def _boolean(hole: Hole, sweeps: Sequence[Sweep]) -> tuple[str, str] | None:
    values = [value for sweep in sweeps for value in possible_values(sweep).get(hole.name, ())]
    if hole.option or not any(isinstance(value, bool) for value in values):
        return None
    remedy = f"write [{hole.name}] for --{hole.name} or nothing, or quote the value ('true') to pass the word"
    return f"{hole.written} has a value that is true or false", remedy


def possible_values(sweep: Sweep) -> dict[str, list[Value]]:
    """Values each parameter can take in a sweep, as far as they are written out."""
    values: dict[str, list[Value]] = {name: [value] for name, value in sweep.base.items()}
    for axis in sweep.axes:
        choices = getattr(axis.ladder, "choices", None) or (axis.ladder.choice(0),)
        for choice in choices:
            for name, value in choice.sets:
                values.setdefault(name, []).append(value)
    return values
