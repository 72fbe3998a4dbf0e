"""The figures of a study: each a function of what was gathered once to a chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from operator import itemgetter
from typing import TypeVar

from stoker.core.errors import StokerError, UsageError
from stoker.core.values import key, text
from stoker.report import charts
from stoker.report.charts import Axis, Chart, Panel, Trace, many, part, sentences
from stoker.report.origin import Origin
from stoker.report.results import Results, Sweep, gather
from stoker.report.rows import Row
from stoker.spec.problems import listing, suggest
from stoker.study.metrics import EPOCHS

MOST_POINTS = 2_000
MOST_LINES = 300
MOST_PANELS = 12
MOST_SLOTS = 40
SHADES = 8
COLOURS = {"finished": "main", "failed": "bad", "stopped": "warn"}
_SOME_COLOURS = ("bad", "warn", "third", "second", "main", "faint")
Thing = TypeVar("Thing")


def sweeps(results: Results, yrange: tuple[float, float] | None = None) -> Chart:
    """How the objective went in each sweep, on common axes."""
    title = f"{results.metric or 'Results'} in each sweep"
    found = [sweep for sweep in results.sweeps if sweep.curves]
    curves = [curve for sweep in found for _, curve in sweep.curves]
    if not curves:
        over = f" over {results.x}" if results.x != "step" else ""
        return Chart(
            "sweeps", title, note=f"No trial has recorded how {results.metric or 'a metric'} went{over}."
        )
    x = charts.axis(_over(results), [value for curve in curves for value in curve.x], False)
    y = charts.axis(results.metric, [value for curve in curves for value in curve.y])
    y = charts.with_range(y, *yrange) if yrange else y
    shown = found[:MOST_PANELS]
    note = sentences(
        "The best trial of each sweep stands out." if results.objective else "",
        "Of many trials the best are drawn, and of the others every so many."
        if any(len(sweep.curves) < sweep.count for sweep in shown)
        else "",
        part(len(shown), len(found), "sweeps"),
        f"Of {max(curve.count for curve in curves):,} values, those that show all highs and lows are drawn."
        if any(len(curve.y) < curve.count for curve in curves)
        else "",
    )
    return Chart("sweeps", title, tuple(_sweep(sweep, results, x, y) for sweep in shown), note)


def _sweep(sweep: Sweep, results: Results, x: Axis, y: Axis) -> Panel:
    lines = [
        Trace("line", curve.x, curve.y, "faint" if place else "main", (_told(row, results),))
        for place, (row, curve) in enumerate(sweep.curves)
    ]
    drawn = len(sweep.curves)
    count = many(drawn, "trial") if drawn == sweep.count else f"{drawn:,} of {sweep.count:,} trials"
    return Panel(f"{sweep.title} · {count}", tuple(reversed(lines)), x, y)


def progress(results: Results) -> Chart:
    """All series of the best trial."""
    best = results.best
    if best is None or not any(curve.count > 1 for curve in results.progress.values()):
        return Chart("progress", "The best trial", note="There is none that recorded how its metrics went.")
    names = sorted(results.progress, key=lambda name: name != results.metric)
    names = [name for name in names if name != EPOCHS and results.progress[name].count > 1]
    panels = []
    for name in names[:MOST_PANELS]:
        curve = results.progress[name]
        line = Trace("line", curve.x, curve.y, "main" if name == results.metric else "second", (name,))
        panels.append(
            Panel(name, (line,), charts.axis(_over(results), curve.x, False), charts.axis("", curve.y))
        )
    note = sentences(f"Trial {best.number}, {best.name}.", part(len(panels), len(names), "metrics"))
    return Chart("progress", "The best trial", tuple(panels), note)


def parameters(results: Results) -> Chart:
    """The objective against each parameter that differs, those that matter most first."""
    title = f"{results.metric or 'Results'} against each parameter"
    ranked = results.ranked
    names = _varied(results)
    if not names:
        return Chart("parameters", title, note="There are no finished trials whose parameters differ.")
    shown = some(ranked, MOST_POINTS)
    y = charts.axis(results.metric, [value for value, _ in shown])
    panels = [_against(name, shown, results, y) for name in names[:MOST_PANELS]]
    note = sentences(
        part(len(panels), len(names), "parameters", "those that matter most"),
        part(len(shown), len(ranked), "trials"),
        _not_finite(results),
    )
    return Chart("parameters", title, tuple(panels), note)


def _against(name: str, shown: Sequence[tuple[float, Row]], results: Results, y: Axis) -> Panel:
    own = [(value, row) for value, row in shown if name in row.params]
    x, places = charts.scale("", [row.params[name] for _, row in own])
    values = [value for value, _ in own]
    told = [f"{_told(row, results)}\n{name} {text(row.params[name])}" for _, row in own]
    is_best = bool(own) and own[0][1] is results.best  # they come the best first
    traces = [Trace("points", places[is_best:], values[is_best:], "main", told[is_best:])]
    if is_best:
        traces.append(Trace("points", places[:1], values[:1], "good", [f"best: {told[0]}"]))
    return Panel(name, tuple(traces), x, y)


def parallel(results: Results) -> Chart:
    """Each trial a line through its parameters to what it came to."""
    title = "Parameters and results together"
    names = _varied(results)
    shown = names[: SHADES - 1][::-1]
    ranked = [one for one in results.ranked if all(name in one[1].params for name in shown)]
    if results.objective is None or not shown or not ranked:
        return Chart("parallel", title, note="It needs an objective, and finished trials that differ.")
    drawn = some(ranked, MOST_LINES)
    values = [value for value, _ in drawn]
    scales = [charts.scale(name, [row.params[name] for _, row in drawn]) for name in shown]
    scales.append((charts.axis(results.metric, values), values))
    columns = [charts.heights(*found) for found in scales]
    texts = [
        (float(place), height, told) for place, (_, ticks) in enumerate(columns) for height, told in ticks
    ]
    lines = [
        Trace(
            "line",
            range(len(columns)),
            [heights[place] for heights, _ in columns],
            f"shade{SHADES - 1 - place * SHADES // len(drawn)}",
            (_told(row, results),),
        )
        for place, (_, row) in enumerate(drawn)
    ]
    x = Axis(names=(*shown, results.metric), range=(-0.3, len(columns) - 0.7))
    panel = Panel("", tuple(reversed(lines)), x, Axis(range=(-0.07, 1.07), is_bare=True), tuple(texts))
    note = sentences(
        "The stronger a line, the better its result.",
        part(len(shown), len(names), "parameters", "those that matter most"),
        part(len(drawn), len(results.ranked), "trials"),
    )
    return Chart("parallel", title, (panel,), note, is_wide=True)


def importance(results: Results) -> Chart:
    """How much each parameter matters."""
    title = f"What {results.metric or 'the result'} depends on"
    shares = results.shares
    if not shares:
        return Chart("importance", title, note="It needs at least five finished trials that differ.")
    top = list(shares.items())[:MOST_PANELS][::-1]
    told = [f"{name}: {share:.0%}" for name, share in top]
    bars = Trace("bars", [100 * share for _, share in top], range(len(top)), "main", told)
    x = Axis("per cent", range=(0.0, 100.0))
    panel = Panel("", (bars,), x, Axis(names=tuple(name for name, _ in top)))
    note = sentences(
        "How much of the differences between results a parameter explains by itself, beyond chance.",
        "What parameters do only together is in none of the bars, and few trials prove little.",
        part(len(top), len(shares), "parameters", "the highest"),
    )
    return Chart("importance", title, (panel,), note, is_wide=True)


def best(results: Results) -> Chart:
    """The best so far, over trials and over time."""
    title = f"Best {results.metric} so far" if results.metric else "Best so far"
    if results.objective is None:
        return Chart("best", title, note="The study file has no `objective`, which says what is good.")
    timed = [(end, value, row) for value, row in results.ranked if (end := row.end) is not None]
    timed.sort(key=itemgetter(0))
    if not timed:
        note = "Nothing tells when trials finished." if results.ranked else "No trial has finished."
        return Chart("best", title, note=note)
    begin = min(row.began for _, _, row in timed if row.began is not None)
    unit, name = charts.unit_of(timed[-1][0] - begin)
    values = [value for _, value, _ in timed]
    y = charts.axis(results.metric, values)
    told = [_told(row, results) for _, _, row in timed]
    is_max = results.objective.goal == "max"
    over: dict[str, Sequence[float]] = {
        "finished trials": list(range(1, len(timed) + 1)),
        name: [(end - begin) / unit for end, _, _ in timed],
    }
    panels = tuple(
        Panel("", _records(x, values, told, is_max), charts.axis(title, x, False), y)
        for title, x in over.items()
    )
    return Chart(
        "best", title, panels, part(min(len(timed), MOST_POINTS), len(timed), "trials", "the line counts all")
    )


def _records(
    x: Sequence[float], values: Sequence[float], told: Sequence[str], is_max: bool
) -> tuple[Trace, ...]:
    """All values as points, and a line of steps where one was better than all before."""
    records: list[int] = []
    for place, value in enumerate(values):
        if not records or (value > values[records[-1]] if is_max else value < values[records[-1]]):
            records.append(place)
    kept = some(range(len(values)), MOST_POINTS)
    dots = Trace("points", [x[n] for n in kept], [values[n] for n in kept], "faint", [told[n] for n in kept])
    steps = [*(x[n] for n in records), x[-1]]
    heights = [values[n] for n in (*records, records[-1])]
    marks = Trace("points", steps[:-1], heights[:-1], "main", [told[n] for n in records])
    return dots, Trace("steps", steps, heights, "main", ("the best so far",)), marks


def slots(results: Results) -> Chart:
    """What each slot did when: where nothing is drawn, it was idle."""
    spans: dict[tuple[str, str], list[tuple[float, float, Row]]] = {}
    for row in results.rows:
        if row.began is not None and row.end is not None:
            spans.setdefault((row.agent, row.slot), []).append((row.began, row.end, row))
    if not spans:
        return Chart("slots", "Slots over time", note="No trial has run in a slot.")
    begin = min(began for own in spans.values() for began, _, _ in own)
    length = max(end for own in spans.values() for _, end, _ in own) - begin or 1.0
    unit, name = charts.unit_of(length)
    shown = sorted(spans)[:MOST_SLOTS][::-1]
    marks: dict[str, list[tuple[float, float, float, str]]] = {}
    for place, slot in enumerate(shown):
        for status, began, end, told in _merged(spans[slot], length / 1000, results):
            found = (began - begin) / unit, (end - begin) / unit, float(place), told
            marks.setdefault(status, []).append(found)
    traces = tuple(_spans(status, marks[status]) for status in sorted(marks, reverse=True))
    busy = sum(end - began for own in spans.values() for began, end, _ in own) / (length * len(spans))
    note = sentences(
        f"{many(len(spans), 'slot')}, {min(busy, 1.0):.0%} busy while there were trials.",
        "Failed trials are red." if "failed" in marks else "",
        "Of trials that were tried again, the last attempt is drawn."
        if any(row.attempts > 1 for row in results.rows)
        else "",
        part(len(shown), len(spans), "slots"),
    )
    x = Axis(name, range=(0.0, length / unit))
    panel = Panel("", traces, x, Axis(names=tuple(_slot_names(shown))))
    return Chart("slots", "Slots over time", (panel,), note, is_wide=True)


def _spans(status: str, marks: Sequence[tuple[float, float, float, str]]) -> Trace:
    begins, ends, places, told = zip(*marks, strict=True)
    return Trace("spans", begins, places, COLOURS.get(status, "faint"), told, ends, status)


def _merged(
    spans: list[tuple[float, float, Row]], least: float, results: Results
) -> list[tuple[str, float, float, str]]:
    """Spans of a slot in order; those too short to be seen as one with those like them right before."""
    found: list[tuple[str, float, float, str]] = []
    count = 1
    for began, end, row in sorted(spans, key=itemgetter(0)):
        last = found[-1] if found else None
        if last and last[0] == row.status and end - began < least and began - last[2] < least / 4:
            count += 1
            found[-1] = (row.status, last[1], end, f"{count:,} short trials, {row.status}")
        else:
            count = 1
            found.append((row.status, began, end, _told(row, results)))
    return found


def _slot_names(slots: Sequence[tuple[str, str]]) -> list[str]:
    """Names of slots; with the machine's where there are several agents."""
    several = len({agent for agent, _ in slots}) > 1
    return [f"{agent.split('-')[0]} {slot}".strip() if several else slot or "slot" for agent, slot in slots]


def failures(results: Results) -> Chart:
    """How many trials had failed by when, by cause."""
    title = "Failures over time"
    begin = min((row.began for row in results.rows if row.began is not None), default=0.0)
    timed = {
        group.title: sorted(end - begin for one in group.failures if (end := one.row.end) is not None)
        for group in results.groups
    }
    known = {title: ends for title, ends in timed.items() if ends}
    if not known:
        note = "Nothing tells when trials failed." if results.groups else "No trial failed."
        return Chart("errors", title, note=note)
    last = max(end for row in results.rows if (end := row.end) is not None) - begin
    unit, name = charts.unit_of(last)
    shown = list(known.items())[: len(_SOME_COLOURS)]
    traces = []
    for (cause, ends), colour in zip(shown, _SOME_COLOURS, strict=False):
        x = [0.0, *(end / unit for end in ends), last / unit]
        y = [*range(len(ends) + 1), len(ends)]
        traces.append(Trace("steps", x, y, colour, (f"{len(ends):,} × {cause}",), label=cause))
    most = max(len(ends) for _, ends in shown)
    panel = Panel(
        "",
        tuple(traces),
        Axis(name, range=(0.0, last / unit or 1.0)),
        Axis("failed", range=(0.0, most * 1.1), at=tuple(range(0, most + 1, -(-most // 4)))),
    )
    return Chart(
        "errors", title, (panel,), part(len(shown), len(known), "causes", "the most frequent"), is_wide=True
    )


FIGURES: Mapping[str, Callable[[Results], Chart]] = {
    "sweeps": sweeps,
    "progress": progress,
    "parameters": parameters,
    "importance": importance,
    "parallel": parallel,
    "best": best,
    "slots": slots,
    "errors": failures,
}
"""All of them, in the order in which they are read."""
OVER = ["sweeps", "progress"]
"""Those whose x axis can be chosen."""


def draw(origin: Origin, name: str, x: str = "step", yrange: tuple[float, float] | None = None) -> Chart:
    """One figure by its name; raises StokerError if there is no such one, or nothing to draw."""
    if name not in FIGURES:
        near = suggest(name, FIGURES) or f"there are {listing(list(FIGURES), len(FIGURES), 'and')}"
        raise UsageError(f"there is no figure '{name}'; {near}")
    if yrange is not None and name != "sweeps":
        raise UsageError(f"a range for the y axis is for the figure 'sweeps', not for '{name}'")
    if x != "step" and name not in OVER:
        raise UsageError(
            f"the figure '{name}' has an x axis of its own; `{x}` is for {listing(OVER, 9, 'and')}"
        )
    if yrange is not None and not (all(map(isfinite, yrange)) and yrange[0] < yrange[1]):
        raise UsageError("the ends of the y axis: the first number must be the lower one")
    results = gather(origin, x, name)
    chart = sweeps(results, yrange) if name == "sweeps" else FIGURES[name](results)
    if not chart.panels:
        raise StokerError(f"there is nothing to draw. {chart.note}")
    return chart


def some(things: Sequence[Thing], most: int) -> list[Thing]:
    """All of them, or every so many; the first is among them."""
    return list(things) if len(things) <= most else [things[n * len(things) // most] for n in range(most)]


def _told(row: Row, results: Results) -> str:
    value = results.value(row)
    result = f"{results.metric} {value:.5g}" if value is not None else row.status
    return f"{row.number} {row.name}\n{result}"


def _over(results: Results) -> str:
    return {"time": "seconds"}.get(results.x, results.x)


def _varied(results: Results) -> list[str]:
    """Parameters that finished trials differ in, those that matter most first."""
    found: dict[str, set[str]] = {}
    for _, row in results.ranked:
        for name, value in row.params.items():
            found.setdefault(name, set()).add(key(value))
    names = [name for name, values in found.items() if len(values) > 1]
    return sorted(names, key=lambda name: -results.shares.get(name, 0.0))


def _not_finite(results: Results) -> str:
    odd = [row for row in results.rows if (v := results.value(row)) is not None and not isfinite(v)]
    return f"{many(len(odd), 'result')} that are no finite numbers are left out." if odd else ""
