"""Results of studies that never ran, for figures and pages: plain data needs no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from stoker.core.values import Value
from stoker.report.curves import Curve, thinned
from stoker.report.errors import failure_of, group
from stoker.report.origin import About
from stoker.report.page import page
from stoker.report.results import Results, Sweep
from stoker.report.rows import Numbers, Row
from stoker.store.records import TrialId
from stoker.study.opened import Objective

BEGAN = 1_760_000_000.0


def row(
    number: int, params: Mapping[str, Value], value: float | None = None, metric: str = "loss", **more: Any
) -> Row:
    """A trial that ran; finished if it has a value, else failed."""
    made: dict[str, Any] = {
        "trial": TrialId(1, number),
        "name": f"N_{number}",
        "title": "",
        "params": params,
        "status": "failed" if value is None else "finished",
        "metrics": {} if value is None else {metric: Numbers(value, value, value)},
        "attempts": 1,
        "began": BEGAN + 10 * number,
        "seconds": 9.0,
        "slot": f"cpu {number % 2}",
        "agent": "machine-1",
        "stages": {} if value is not None else failed(),
        "why": "" if value is not None else "failed",
    }
    return Row(**{**made, **more})


def failed(code: int | None = 1, signal: int | None = None, why: str = "exited") -> dict[str, Any]:
    """The figures of a trial whose stage failed."""
    return {"train": {"seconds": 9.0, "code": code, "signal": signal, "why": why}}


def results(
    rows: Sequence[Row],
    metric: str = "loss",
    goal: str = "min",
    said: Mapping[int, Sequence[str]] | None = None,
) -> Results:
    """What is gathered of these trials; each that finished has a curve that ends in its value."""
    objective = Objective(metric, goal)
    plain = Results("digits", rows, objective)
    curves = tuple((one, curve(one.metrics[metric].last)) for _, one in plain.ranked)
    failures = [
        failure_of(one, (said or {}).get(one.trial.number, [])) for one in rows if one.status == "failed"
    ]
    sweeps = (Sweep("first", tuple(rows), curves),) if rows else ()
    progress = {metric: curves[0][1]} if curves else {}
    return Results("digits", rows, objective, sweeps, progress, tuple(group(failures, rows)))


def curve(end: float, count: int = 20) -> Curve:
    return thinned(range(count), [end + 1 / (n + 1) if n != 3 else nan for n in range(count)])


def whole_page(found: Results, text: str = "template: x\n") -> str:
    """A page of these results."""
    told = About(
        "digits", "/study/output", found.objective, file="params.yaml", text=text, directory="/study"
    )
    return page(found, told, "1.2.3", BEGAN)
