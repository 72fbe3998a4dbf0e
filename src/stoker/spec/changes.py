"""What is different between two versions of a study file, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stoker.spec.nodes import MappingNode, Node, SequenceNode, documents
from stoker.spec.problems import Source, listing
from stoker.spec.reader import Reader

Place = tuple[str, ...]
"""Where a value stands: `("default", "lr")`."""

_SHOWN = 3
_SHORT = 24
_MAKE_TRIALS = ("default", "alias", "search", "the sweep")
_UNSHOWN = "env."  # some of its values are nobody else's business


@dataclass(frozen=True)
class _Sweep:
    values: Mapping[Place, str]
    line: int = field(compare=False)

    @property
    def title(self) -> str | None:
        return self.values.get(("_title",))

    @property
    def name(self) -> str:
        return f"the sweep {self.title or f'of line {self.line}'}"


def since_last_run(old: Source, new: Source, added: int | None) -> list[str]:
    """One or two lines on what changed since a study was run last, and what follows; none if nothing did.

    `added` is how many trials nobody has asked for before, if it is known.
    """
    trials = "" if added is None else f": {f'{added:,}' if added else 'no'} new trial{'s' * (added != 1)}"
    if Path(old.name).name != Path(new.name).name:
        return [f"the last run in this output was of {old.name}; this file adds to it{trials}"]
    (old_values, old_sweeps), (values, sweeps) = _read(old), _read(new)
    stages = list(_stages_told(_commands(old_values), _commands(values)))
    others = [*_values_told(old_values, values), *_sweeps_told(old_sweeps, sweeps)]
    others.sort(key=lambda told: not told.startswith(_MAKE_TRIALS))
    lines = []
    if stages:
        kept = " (finished trials are kept; -f runs them again)"
        lines.append(_line(stages) + kept * stages[0].startswith("the command"))
    if others:
        lines.append(_line(others) + trials * others[0].startswith(_MAKE_TRIALS))
    return lines


def _line(changes: list[str]) -> str:
    more = f", and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return f"since the last run: {', '.join(changes[:_SHOWN])}{more}"


# Reading


def _read(source: Source) -> tuple[dict[Place, str], list[_Sweep]]:
    """All values of the study, and those of each sweep."""
    reader, (root, *sweeps) = Reader(source), documents(source)
    read = [_Sweep(dict(_values(reader, node, ())), node.start_mark.line + 1) for node in sweeps]
    return dict(_values(reader, root, ())), read


def _values(reader: Reader, node: Node, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(node, MappingNode):
        for name, (_, value) in reader.entries(node, "").items():
            yield from _values(reader, value, (*place, name))
    else:
        yield place, _text(node)


def _text(node: Node) -> str:
    if isinstance(node, SequenceNode):
        return f"[{', '.join(map(_text, node.value))}]"
    if isinstance(node, MappingNode):
        return f"{{{', '.join(f'{_text(name)}: {_text(value)}' for name, value in node.value)}}}"
    return " ".join(str(node.value).split())  # line breaks in a command do not matter


def _commands(values: Mapping[Place, str]) -> dict[str, str]:
    found = ((_stage_at(place), command) for place, command in values.items())
    return {stage: command for stage, command in found if stage is not None}


def _stage_at(place: Place) -> str | None:
    """The stage whose command stands here, in its long form or its short one."""
    is_command = place[0] == "template" and place[2:] in ((), ("command",))
    return (*place[1:], "train")[0] if is_command else None


# Telling


def _stages_told(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    changed = [stage for stage in new if stage in old and old[stage] != new[stage]]
    if changed:
        several = "s" * (len(changed) > 1)
        yield f"the command{several} of stage{several} {listing(changed, last='and')} changed"
    yield from (f"stage {stage} is new" for stage in new if stage not in old)
    yield from (f"stage {stage} is gone" for stage in old if stage not in new)


def _values_told(old: Mapping[Place, str], new: Mapping[Place, str]) -> Iterator[str]:
    told = {"template", *(_commands(old).keys() ^ _commands(new).keys())}  # stages that are new or gone
    for place in dict.fromkeys((*old, *new)):
        is_told = _stage_at(place) is not None or told.issuperset(place[:2])
        if not is_told and old.get(place) != new.get(place):
            yield _value_told(".".join(place), old.get(place), new.get(place))


def _value_told(name: str, old: str | None, new: str | None) -> str:
    if old is None or new is None:
        return f"{name} is {'new' if old is None else 'gone'}"
    is_shown = max(len(old), len(new)) <= _SHORT and not name.startswith(_UNSHOWN)
    return f"{name} changed{f' {old} → {new}' if is_shown else ''}"


def _sweeps_told(old: list[_Sweep], new: list[_Sweep]) -> Iterator[str]:
    """A sweep that was not there before has changed if one with its title is missing; else it is new."""
    gone = [sweep for sweep in old if sweep not in new]
    for sweep in new:
        if sweep in old:
            continue
        earlier = next((other for other in gone if other.title == sweep.title), None)
        if earlier is None:
            yield f"{sweep.name} is new"
        else:
            gone.remove(earlier)
            yield f"{sweep.name} changed ({_keys_told(earlier, sweep)})"
    yield from (f"{sweep.name} is gone" for sweep in gone)


def _keys_told(old: _Sweep, new: _Sweep) -> str:
    places = dict.fromkeys((*old.values, *new.values))
    changed = dict.fromkeys(place[0] for place in places if old.values.get(place) != new.values.get(place))
    return listing(list(changed), _SHOWN, "and")
