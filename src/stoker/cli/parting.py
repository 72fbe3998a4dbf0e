"""Where two runs of a trial part, and why: from their files and the script, for `stoker verify`."""

from __future__ import annotations

import ast
import json
import shlex
import zipfile
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from math import inf
from pathlib import Path
from typing import Any

from stoker.cli.told import many
from stoker.manager import tree
from stoker.manager.manager import EPOCHS
from stoker.manager.progress import Series
from stoker.manager.trial import files
from stoker.spec.problems import listing

All = Mapping[str, Series]
"""The series of a run, by name."""
MOST_FILES = 200
"""So many files of a program are read to see what it makes."""


# Where


@dataclass(frozen=True)
class Parting:
    """The first place at which a series is not the same in two runs; a value that is not there is None."""

    name: str
    place: int
    step: float
    values: tuple[float | None, float | None]
    when: float = inf  # in the first run


def partings(one: All, other: All, is_whole: bool = True, ignored: Container[str] = ()) -> list[Parting]:
    """Where the series of two runs part, the earliest first. Bits count; times do not.

    Unless the other run is whole, series that end too early are no difference.
    """
    found = []
    for name in dict.fromkeys((*one, *other)):
        if name not in ignored:
            parting = _parting(name, one.get(name, Series()), other.get(name, Series()), is_whole)
            found += [] if parting is None else [parting]
    return sorted(found, key=lambda parting: parting.when)


def _parting(name: str, one: Series, other: Series, is_whole: bool) -> Parting | None:
    rows, others = (list(zip(series.values, series.steps, strict=True)) for series in (one, other))
    for place, (row, another) in enumerate(zip_longest(rows, others)):
        if another is None and not is_whole:
            return None
        if repr(row) != repr(another):  # NaN is NaN, and -0.0 is not 0.0
            step = (row or another)[1]
            values = row[0] if row else None, another[0] if another else None
            return Parting(name, place, step, values, one.seconds[place] if row else inf)
    return None


def resumes(directory: Path, stage: str) -> list[Mapping[str, int]]:
    """How many values each series had where the last attempt and those before it went on, in order."""
    attempts = [file.attempt for file in files(str(directory), f"progress.{stage}", "jsonl")]
    last = attempts[-1] if attempts else None
    found: list[Mapping[str, int]] = []
    while last is not None:
        with (directory / f"progress.{stage}.{last[0]}-{last[1]}.jsonl").open(encoding="utf-8") as file:
            after = json.loads(file.readline())["after"]
        last = None if after is None else tuple(after["attempt"])
        found += [] if after is None else [after["counts"]]
    return found[::-1]


def where(parting: Parting, resumed: list[Mapping[str, int]]) -> str:
    """`loss parts at step 4: 0.25 straight, 0.5 interrupted; it is the first value after resuming`."""
    straight, interrupted = ("nothing" if value is None else repr(value) for value in parting.values)
    told = f"{parting.name} parts at step {parting.step:g}: {straight} straight, {interrupted} interrupted"
    before = [counts.get(parting.name, 0) for counts in resumed]
    passed = [count for count in before if count <= parting.place]
    if not passed:
        return f"{told}; that is before the first interruption"
    since = parting.place - passed[-1]
    place = "the first value" if since == 0 else many(since + 1, "value")
    return f"{told}; that is {place} after resuming"


# Why


@dataclass(frozen=True)
class Kept:
    """What a checkpoint has: names of tracked objects by their kind, and what was given to be saved."""

    kinds: Mapping[str, str]
    given: bytes | None  # None if nothing was

    def has(self, kind: str) -> bool:
        """Whether there is something of a kind in it."""
        marks = {"model": b"", "optimizer": b"param_groups", "scheduler": b"last_epoch"}
        is_given = self.given is not None and marks.get(kind, b"no such thing") in self.given
        return is_given or kind in self.kinds.values()


@dataclass(frozen=True)
class Call:
    """A call in a script: what is called by its whole name, and where."""

    name: str
    place: str
    keywords: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Evidence:
    """All that is known of an interrupted run that has ended."""

    straight: All
    interrupted: All
    resumed: list[Mapping[str, int]]
    kept: Kept
    calls: list[Call]  # none if the script was not found


def proven(found: list[Parting], evidence: Evidence) -> list[str]:
    """Causes that the series and the checkpoint show, and what to do about them."""
    if any(_is_begun_again(parting.name, evidence) for parting in found):
        return [
            "epochs begin again after resuming, and are recorded twice: for epoch in manager.epochs(n), "
            "or range(manager.start_epoch(), n)"
        ]
    if EPOCHS not in evidence.straight and all(parting.values[1] is None for parting in found):
        return [
            "epochs are left out after resuming, since the next one was guessed from the longest series: "
            "for epoch in manager.epochs(n), or manager.add_progress('epochs', epoch)"
        ]
    return untracked(evidence)


def suspected(evidence: Evidence) -> list[str]:
    """Causes that the script suggests: nothing shows that they are not."""
    return [*_unordered(evidence), *_unused(evidence)]


def _is_begun_again(name: str, evidence: Evidence) -> bool:
    """Whether the last attempt recorded as much as a whole run has."""
    if not evidence.resumed or name not in evidence.straight or name not in evidence.interrupted:
        return False
    before = evidence.resumed[-1].get(name, 0)
    return 0 < before == len(evidence.interrupted[name].values) - len(evidence.straight[name].values)


def untracked(evidence: Evidence) -> list[str]:
    """What starts afresh: the script makes it, and the checkpoint is without it."""
    made: dict[str, Call | None] = {"model": None}
    if not evidence.calls:
        made["optimizer"] = None  # the script is somewhere else: most have one
    for call in evidence.calls:
        kind = _made_by(call)
        if kind in ("optimizer", "scheduler", "gradient scaler"):
            made.setdefault(kind, call)
    missing = {kind: call for kind, call in made.items() if not evidence.kept.has(kind)}
    if not missing:
        return []
    places = [f"{call.name} at {call.place}" for call in missing.values() if call is not None]
    shown = f" ({', '.join(places)})" if places else ""
    words = ", ".join(f"{kind.split()[-1]}=..." for kind in missing)
    afresh = f"start{'s' * (len(missing) == 1)} afresh after resuming"
    return [f"the {listing(list(missing), last='and the')} {afresh}{shown}: manager.track({words})"]


def _unordered(evidence: Evidence) -> Iterator[str]:
    """Random numbers that the manager cannot know of."""
    for call in evidence.calls:
        if _made_by(call) == "generator" and not evidence.kept.has("generator"):
            yield (
                f"the order of batches differs after resuming: {call.name} at {call.place} is not tracked; "
                "track the sampler or its generator: manager.track(generator=...)"
            )
            break
    for call in evidence.calls:
        if "persistent_workers" in call.keywords:
            yield (
                f"the order of batches differs after resuming: {call.place} keeps workers for all epochs, "
                "and new ones draw other random numbers; leave persistent_workers out"
            )
            break


def _unused(evidence: Evidence) -> Iterator[str]:
    """What the manager offers for it, and the script does not use."""
    used = {call.name.rpartition(".")[2] for call in evidence.calls}
    if used and not used & {"start_epoch", "start_epochs", "epochs"}:
        yield (
            "random numbers start afresh after resuming: for epoch in manager.epochs(n), "
            "or range(manager.start_epoch(), n), which restores them"
        )
    if "batches" in used and "notes" not in used:
        yield (
            "sums over an epoch start afresh in the middle of it: keep them in manager.notes, which is saved"
        )


# What is in a checkpoint


def kept(directory: Path, stage: str) -> Kept:
    """What the newest checkpoint of a stage has."""
    for file in reversed(list(files(str(directory / "checkpoints"), stage, "state"))):
        try:
            head = tree.read_head(file.path)
        except tree.Damaged:
            continue
        objects = _items(head["state"]).get("objects", {})
        given = head.get("params")
        return Kept(
            {name: _kind(node) for name, node in _items(objects).items()},
            None if given is None else _names_in(directory / "checkpoints" / given["file"]),
        )
    return Kept({}, None)


def _kind(node: Any) -> str:
    """What an object is, by what its state is made of."""
    keys = set(_items(node))
    if {"state", "param_groups"} <= keys:
        return "optimizer"
    if "last_epoch" in keys:
        return "scheduler"
    if "growth_factor" in keys or node == {}:  # of a scaler that is switched off
        return "gradient scaler"
    if keys & {"!leaf", "!tuple", "bit_generator"}:
        return "generator"
    return "early stopping" if keys == {"best", "waited"} else "model"


def _items(node: Any) -> dict[str, Any]:
    """What stands under which key, however a mapping was written."""
    if not isinstance(node, dict):
        return {}
    for way in ("!dict", "!ordered"):
        if way in node:
            return {str(key): value for key, value in node[way]}
    return node


def _names_in(path: Path) -> bytes:
    """All names in a file of parameters that torch wrote: its pickle, as bytes. Nothing of it is run."""
    try:
        with zipfile.ZipFile(path) as archive:
            return b"".join(archive.read(name) for name in archive.namelist() if name.endswith("data.pkl"))
    except (OSError, zipfile.BadZipFile):
        return b""


# What a script makes

_GENERATORS = {
    "torch.Generator",
    "numpy.random.default_rng",
    "numpy.random.Generator",
    "numpy.random.RandomState",
    "random.Random",
}


def _made_by(call: Call) -> str:
    """The kind of what a call makes, as far as it can be told by its name."""
    name = call.name.rpartition(".")[2]
    if call.name in _GENERATORS:
        return "generator"
    if ".lr_scheduler." in call.name or name.endswith(("LR", "LROnPlateau", "Scheduler", "_scheduler")):
        return "scheduler"
    if name == "GradScaler":
        return "gradient scaler"
    if call.name.startswith("torch.optim.") and name[:1].isupper() and ".swa_utils." not in call.name:
        return "optimizer"
    return "optimizer" if name == "zero_grad" else ""


def calls_of(command: str, directory: Path) -> list[Call]:
    """All calls in the Python files of a command, and in those beside them that they import."""
    left, seen = _scripts(command, directory), set[Path]()
    found: list[Call] = []
    while left and len(seen) < MOST_FILES:
        path = left.pop(0)
        if path in seen:
            continue
        seen.add(path)
        try:
            script = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        names = dict(_imported(script))
        found += _calls(script, names, path.name)
        places = {path.parent, directory}
        left += [file for place in places for name in names.values() for file in _module(name, place)]
    return found


def _scripts(command: str, directory: Path) -> list[Path]:
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    modules = [after for word, after in pairwise(words) if word == "-m"]
    found = [file for name in modules for file in _module(name, directory)]
    return found + [directory / word for word in words if word.endswith(".py")]


def _module(name: str, directory: Path) -> list[Path]:
    """The files that a dotted name may mean, of those that are there."""
    parts = name.split(".")
    ways = [directory.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    tried = [
        file for way in ways for file in (way.with_suffix(".py"), way / "__main__.py", way / "__init__.py")
    ]
    return [file for file in tried if file.is_file()]


def _imported(script: ast.Module) -> Iterator[tuple[str, str]]:
    """Names, and what they stand for: `np` is numpy."""
    for node in ast.walk(script):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield (name.asname, name.name) if name.asname else (name.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                yield name.asname or name.name, f"{node.module or ''}.{name.name}".lstrip(".")


def _calls(script: ast.Module, names: Mapping[str, str], file: str) -> Iterator[Call]:
    expressions = [node for node in ast.walk(script) if isinstance(node, (ast.Call, ast.Attribute))]
    for node in sorted(expressions, key=lambda node: node.lineno):
        if isinstance(node, ast.Call):
            on = (word.arg for word in node.keywords if not _is_off(word.value))
            name = _dotted(node.func, names)
            yield Call(name, f"{file}:{node.lineno}", frozenset(word for word in on if word))
        elif node.attr == "notes":
            yield Call("notes", f"{file}:{node.lineno}")


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    """`numpy.random.default_rng`, whatever it was imported as; of anything else the last name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return ""
