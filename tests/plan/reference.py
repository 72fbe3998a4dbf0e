"""The rules of a study file, implemented the obvious, slow way: list everything, compare with everything.

Works on plain data, not on YAML, and shares with the real code only what defines the values of a
range (the ladders and the shuffle).
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from typing import Any

from stoker.plan import options
from stoker.plan.shuffle import Shuffle

SIZES = {"uniform": options.uniform, "log_uniform": options.log_uniform, "normal": options.normal}


@dataclass
class Number:
    """A number spelt in a way that YAML 1.1 takes for text: 1e-3."""

    spelling: str


@dataclass
class Series:
    kind: str
    args: list[Any]


@dataclass
class SweepData:
    keys: dict[str, list[Any] | Series]  # a list of one stands for a bare value too
    stages: list[str] | None = None
    trials: int = 1


@dataclass
class StudyData:
    templates: dict[str, list[tuple[str, str]]]  # stage → words: (how it is written, parameter or text)
    default: dict[str, Any]
    alias: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    sweeps: list[SweepData] = field(default_factory=list)
    seed: int = 0


@dataclass
class TrialData:
    params: dict[str, Any]
    base_name: str
    stages: list[str]
    name: str = ""
    same_as: int | None = None
    identity: str = ""


def text(value: Any) -> str:
    return value.spelling if isinstance(value, Number) else str(value)


def identity(params: dict[str, Any]) -> str:
    pieces = []
    for name in sorted(params):
        value = params[name]
        letter = {bool: "b", int: "i", str: "s"}.get(type(value), "f")
        shown = str(value).lower() if isinstance(value, bool) else text(value)
        pieces += [name, letter + shown]
    return hashlib.blake2b("\0".join(pieces).encode(), digest_size=6).hexdigest()


def draw(name: str, series: Series, count: int, seed: int) -> list[Any]:
    """The first `count` values of a series."""
    kind, args = series.kind, series.args
    if kind == "step":
        return [options.step(name, args[0], args[1], count).number(turn) for turn in range(count)]
    if kind == "multiple":
        return [options.multiple(name, args[0], args[1], count).number(turn) for turn in range(count)]
    if kind == "list":
        return [args[turn % len(args)] for turn in range(count)]
    if kind == "int_uniform":
        values: Any = range(args[0], args[1] + 1)
    elif kind == "choice":
        values = args
    else:
        ladder = SIZES[kind](name, *args)
        values = _Lazy(ladder)
    size = len(values)
    return [values[Shuffle(size, f"{seed}/{name}/{turn // size}")[turn % size]] for turn in range(count)]


class _Lazy:
    def __init__(self, ladder: options.Climb) -> None:
        self._ladder = ladder

    def __len__(self) -> int:
        return self._ladder.size

    def __getitem__(self, level: int) -> float:
        return self._ladder.number(level)


def label(name: str) -> str:
    separator = "-" if "-" in name else "_"
    *inner, last = name.split(separator)
    out = ""
    for word in inner:
        out += word[0].upper() + word[1].lower() if len(word) > 2 else word
    return out + last.title()


def part(value: Any) -> str:
    if value is True or value is False:
        return "FT"[value]
    if isinstance(value, Number):
        return value.spelling
    if isinstance(value, (int, float)):
        return f"{value:g}"
    while value[:1] in ("/", ".") and value:
        value = value[1:]
    return str(value.replace("/", "_")[-100:].replace("\n", "_"))


def trials(study: StudyData, taken: dict[str, str]) -> list[TrialData]:
    """Every mention of a trial, in order. `taken` has the existing directories and whose they are."""
    mentions = [trial for sweep in study.sweeps or [SweepData({})] for trial in _sweep(study, sweep)]
    for trial in mentions:
        trial.identity = identity(trial.params)
    for place, trial in enumerate(mentions):
        first = next(other for other in mentions if other.identity == trial.identity)
        if first is not trial:
            trial.same_as = mentions.index(first) + 1
        else:
            trial.name = _name(trial, mentions[: place + 1], taken)
        trial.name = trial.name or first.name
    stages_of: dict[str, set[str]] = {}
    for trial in mentions:
        stages_of.setdefault(trial.identity, set()).update(trial.stages)
    for trial in mentions:
        trial.stages = [stage for stage in study.templates if stage in stages_of[trial.identity]]
    return mentions


def _sweep(study: StudyData, sweep: SweepData) -> list[TrialData]:
    grid = {name: values for name, values in sweep.keys.items() if isinstance(values, list)}
    drawn = {
        name: draw(name, series, sweep.trials, study.seed)
        for name, series in sweep.keys.items()
        if isinstance(series, Series)
    }
    found = []
    for combination in itertools.product(*grid.values()):
        for turn in range(sweep.trials if drawn else 1):
            chosen = dict(zip(grid, combination, strict=True))
            chosen.update({name: values[turn] for name, values in drawn.items()})
            names = [f"{label(name)}_{part(chosen[name])}" for name in sweep.keys]
            params = dict(study.default)
            for name, value in chosen.items():
                params.update(study.alias[name][value] if name in study.alias else {name: value})
            stages = list(sweep.stages if sweep.stages is not None else study.templates)
            found.append(TrialData(params, "-".join(names) or "default", stages))
    return found


def _name(trial: TrialData, so_far: list[TrialData], taken: dict[str, str]) -> str:
    name = trial.base_name
    short = name
    while len(short.encode()) > 187:
        short = short[:-1]
    hashed = f"{short}-{trial.identity}"
    if len(name.encode()) > 200:
        return hashed
    if name in taken:
        return name if taken[name] == trial.identity else hashed
    first = next(other for other in so_far if other.base_name == name)
    return hashed if hashed in taken or identity(first.params) != trial.identity else name


def words(study: StudyData, stage: str, params: dict[str, Any]) -> list[str]:
    """The words that the program of a stage must get."""
    out = []
    for how, name in study.templates[stage]:
        if how == "text":
            out.append(name)
        elif how == "option" and isinstance(params[name], bool):
            out += [f"--{name}"] * params[name]
        elif how == "option":
            out += [f"--{name}", text(params[name])]
        elif how == "glued":
            out.append(f"--{name}={text(params[name])}")
        else:
            out.append(text(params[name]))
    return out
