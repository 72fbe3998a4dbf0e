"""Faults from a file: a list in YAML or JSON; and traces, the moments at which VMs were once taken away."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stoker.core.errors import UsageError
from stoker.emulator.errors import ApiError
from stoker.emulator.faults import Fault, fault_of


def faults_from(path: Path) -> list[Fault]:
    """All that a file asks for. Raises UsageError for what makes no sense in it.

    A list of faults (`- {kind: preempt, rate: 6}`), each with the names of Fault. Instead of its moments, a
    preemption may name a trace, found from where this file is: `- {kind: preempt, trace: spot.csv}`. A trace
    may be given alone, too.
    """
    if path.suffix == ".csv":
        return list(_of_trace({}, path))
    found = _read(path)
    if not isinstance(found, list) or not found:
        raise UsageError(f"{path}: expected a list of faults, such as `- {{kind: preempt, rate: 6}}`")
    if all(not isinstance(one, Mapping) or "kind" not in one for one in found):
        return list(_of_moments({}, path, map(_of_json, found)))
    return [fault for number, one in enumerate(found, 1) for fault in _faults(one, path, number)]


def _faults(one: object, path: Path, number: int) -> Iterator[Fault]:
    if isinstance(one, Mapping) and "trace" in one:
        rest = {name: value for name, value in one.items() if name != "trace"}
        yield from _of_trace(rest, path.parent / str(one["trace"]))
        return
    try:
        yield fault_of(one)
    except ApiError as error:
        raise UsageError(f"{path}: number {number}: {error.message}") from None


# Traces


def _of_trace(rest: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    """Seconds in the first column, zones in the second, if there is one."""
    if path.suffix == ".csv":
        rows = [row for row in csv.reader(_text(path).splitlines()) if row and not row[0].startswith("#")]
        is_head = bool(rows) and rows[0][0].strip().lower() == "seconds"
        yield from _of_moments(rest, path, ((row[0], "".join(row[1:2]).strip()) for row in rows[is_head:]))
        return
    found = _read(path)
    if not isinstance(found, list):
        raise UsageError(f"{path}: expected a list of moments")
    yield from _of_moments(rest, path, map(_of_json, found))


def _of_json(one: object) -> tuple[object, str]:
    """`12.5`, or `{"seconds": 12.5, "zone": "us-central1-a"}`."""
    if isinstance(one, Mapping) and set(one) <= {"seconds", "zone"}:
        return one.get("seconds"), str(one.get("zone") or "")
    return one, ""


def _of_moments(
    rest: Mapping[str, Any], path: Path, moments: Iterable[tuple[object, str]]
) -> Iterator[Fault]:
    """One fault for each zone."""
    zones: dict[str, list[float]] = {}
    for number, (given, zone) in enumerate(moments, 1):
        zones.setdefault(zone, []).append(_seconds(path, number, given))
    if not zones:
        raise UsageError(f"{path}: it has no moments")
    for zone, found in zones.items():
        try:
            yield fault_of({"kind": "preempt", **rest, **({"zone": zone} if zone else {}), "moments": found})
        except ApiError as error:
            raise UsageError(f"{path}: {error.message}") from None


def _seconds(path: Path, number: int, given: object) -> float:
    try:
        if isinstance(given, bool) or not isinstance(given, (str, int, float)):
            raise ValueError
        return float(given)
    except ValueError:
        raise UsageError(f"{path}: moment {number}: expected seconds, not {given!r}") from None


# Files


def _read(path: Path) -> object:
    text = _text(path)
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text") from None
