"""Charts as pictures: laid out as a few kinds of shapes, then written as SVG, or painted as PNG and PDF.

The SVG is our own, so that a report of ten thousand trials is small. Its colours are names of classes: a page
may give them other values in the dark. PNG and PDF are the same shapes, painted by matplotlib.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, inf, isfinite, log10
from pathlib import Path

from stoker.core.errors import StokerError
from stoker.report.charts import Axis, Chart, Panel, Trace
from stoker.spec.problems import printable

PALETTE = {
    "ink": "#1d2433",
    "muted": "#667085",
    "rule": "#e6e9ef",
    "paper": "#ffffff",
    "main": "#2b66b1",
    "second": "#c2701f",
    "third": "#7d4fa3",
    "faint": "#a9b8cb",
    "good": "#23855a",
    "bad": "#c13f36",
    "warn": "#b8860b",
    **{
        f"shade{n}": colour
        for n, colour in enumerate(
            ("#dfe6ef", "#cddaea", "#b6cbe3", "#98b7da", "#769fcd", "#5284bd", "#2f66a8", "#12427c")
        )
    },
}
NARROW, WIDE, HEIGHT = 300.0, 900.0, 210.0
_FONT = 11.0
_LETTER = 0.56  # of its height, on average


@dataclass(frozen=True)
class Shape:
    """A line, a filled box, dots, or a text, in pixels from the left and the top."""

    kind: str  # line, box, dot, text
    points: Sequence[tuple[float, float]]  # of a box, two corners
    colour: str = "ink"
    told: str = ""  # in a text, the text; else what is said when somebody points at it
    width: float = 1.0  # of a line; of a dot, its radius
    anchor: str = "start"


# Laying out


@dataclass(frozen=True)
class _Scale:
    """From values of an axis to pixels."""

    axis: Axis
    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        moved = log10(value) if self.axis.is_log else value
        way = self.high / 2 - self.low / 2  # halves, as the whole may be beyond the largest float
        return self.begin + (moved / 2 - self.low / 2) / way * (self.end - self.begin)

    def ticks(self) -> list[tuple[float, str]]:
        """Where something is written at the axis, and what."""
        if self.axis.is_bare:
            return []
        if self.axis.names:
            room = abs(self.end - self.begin) / len(self.axis.names)
            step = max(1, ceil(15 / room))
            return [(float(n), name) for n, name in enumerate(self.axis.names) if n % step == 0]
        if self.axis.at:
            return [(value, _short(value)) for value in self.axis.at]
        if self.axis.is_log:
            found = [10.0**power for power in range(ceil(self.low), floor(self.high) + 1)]
            step = max(1, ceil(len(found) / 6))
            return [(value, _short(value)) for value in found[::step]] if len(found) > 1 else self._halves()
        return [(value, _short(value)) for value in nice(self.low, self.high)]

    def _halves(self) -> list[tuple[float, str]]:
        """For less than two powers of ten."""
        tens = range(max(-323, floor(self.low)), min(308, ceil(self.high)) + 1)
        found = [n * 10.0**power for power in tens for n in (1, 2, 5)]
        return [(v, _short(v)) for v in found if self.low <= log10(v) <= self.high]


def nice(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers between two, about so many."""
    raw = high / about - low / about
    if not 1e-300 <= raw < inf:
        return [low]
    power = 10.0 ** floor(log10(raw))
    sizes = (1, 2, 2.5, 5, 10) if power != 1 else (1, 2, 5, 10)  # counts have no halves
    step = next(n * power for n in sizes if n * power >= raw * 0.999)
    places = range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
    return [float(f"{n * step:.15g}") for n in places]  # what floats add at the end is no part of it


def _short(value: float) -> str:
    told = f"{value:.6g}"
    return told if len(told) <= 7 else f"{value:.2g}"


def _scale(axis: Axis, begin: float, end: float) -> _Scale:
    low, high = axis.range or ((-0.5, len(axis.names) - 0.5) if axis.names else (0.0, 1.0))
    if axis.is_log:
        low, high = log10(low), log10(high)
    return _Scale(axis, low, high if high / 2 > low / 2 else low + max(1.0, abs(low) / 1e6), begin, end)


def size_of(panel: Panel, is_wide: bool) -> tuple[float, float]:
    """Width and height of a panel in pixels."""
    if not is_wide:
        return NARROW, HEIGHT
    if panel.y.names:
        return WIDE, max(110.0, 26.0 * len(panel.y.names) + 50)
    return WIDE, 260.0 if panel.texts else 180.0


def shapes(panel: Panel, width: float, height: float) -> Iterator[Shape]:
    """All that a panel is drawn of, what is below first."""
    names = [name for _, name in _scale(panel.y, 0, height).ticks()]
    widest = max((len(_cut(name, 28)) for name in names), default=0)
    left = 12.0 + widest * _FONT * _LETTER
    top = 26.0 if panel.title else 12.0
    top += 14.0 if panel.y.title and not panel.y.names else 0.0
    x, y = _scale(panel.x, left, width - 12), _scale(panel.y, height - (36 if panel.x.title else 24), top)
    if panel.title:
        yield Shape("text", [(0, 13)], "ink", _cut(panel.title, int(width / (_FONT * _LETTER * 1.05))))
    if panel.y.title and not panel.y.names:
        yield Shape("text", [(0, top - 9)], "muted", _cut(panel.y.title, 40))
    yield from _frame(panel, x, y)
    for trace in panel.traces:
        yield from _DRAW[trace.kind](trace, x, y)
    for at, height_at, told in panel.texts:
        yield Shape("text", [(x(at) + 5, y(height_at) + 4)], "note", _cut(told, 16))
    yield from _legend(panel, x, top)


def _frame(panel: Panel, x: _Scale, y: _Scale) -> Iterator[Shape]:
    for value, told in y.ticks():
        if not y.axis.names:
            yield Shape("line", [(x.begin, y(value)), (x.end, y(value))], "rule")
        yield Shape("text", [(x.begin - 6, y(value) + 4)], "muted", _cut(told, 28), anchor="end")
    room = (x.end - x.begin) / max(1, len(x.axis.names)) / (_FONT * _LETTER)
    last = -1e9
    for value, told in x.ticks():
        if y.axis.is_bare or y.axis.names:
            yield Shape("line", [(x(value), y.begin), (x(value), y.end)], "rule")
        word = _cut(told, max(4, int(room))) if x.axis.names else told
        half = len(word) * _FONT * _LETTER / 2
        if x(value) - half > last + 4:
            place = min(max(x(value), half), x.end + 12 - half)
            yield Shape("text", [(place, y.begin + 15)], "muted", word, anchor="middle")
            last = x(value) + half
    yield Shape("line", [(x.begin, y.begin), (x.end, y.begin)], "muted", width=0.6)
    if panel.x.title:
        yield Shape("text", [((x.begin + x.end) / 2, y.begin + 30)], "muted", panel.x.title, anchor="middle")


def _line(trace: Trace, x: _Scale, y: _Scale) -> Iterator[Shape]:
    """Its parts between values that are not finite."""
    width = {"faint": 1.0, "main": 2.0}.get(trace.colour, 1.4)
    told = "".join(trace.told[:1])
    part: list[tuple[float, float]] = []
    for one, other in zip(trace.x, trace.y, strict=True):
        if isfinite(one) and isfinite(other) and not (y.axis.is_log and other <= 0):
            if trace.kind == "steps" and part:
                part.append((x(one), part[-1][1]))
            part.append((x(one), min(max(y(other), y.end - 1), y.begin + 1) if y.axis.range else y(other)))
            continue
        yield from _part(part, trace.colour, told, width)
        part = []
    yield from _part(part, trace.colour, told, width)


def _part(points: list[tuple[float, float]], colour: str, told: str, width: float) -> Iterator[Shape]:
    """A line; a dot where there is only one value."""
    if points:
        yield Shape("line" if len(points) > 1 else "dot", points, colour, told, max(width, 1.0))


def _points(trace: Trace, x: _Scale, y: _Scale) -> Iterator[Shape]:
    radius = 3.2 if len(trace.x) <= 300 else 2.2
    radius += 1.0 if trace.colour == "good" else 0.0
    for place, (one, other) in enumerate(zip(trace.x, trace.y, strict=True)):
        told = trace.told[place] if place < len(trace.told) else ""
        yield Shape("dot", [(x(one), y(other))], trace.colour, told, radius)


def _bars(trace: Trace, x: _Scale, y: _Scale) -> Iterator[Shape]:
    for one, other, told in zip(trace.x, trace.y, trace.told, strict=True):
        yield Shape("box", [(x(0), y(other) - 7), (max(x(one), x(0) + 1), y(other) + 7)], trace.colour, told)
        yield Shape("text", [(x(one) + 6, y(other) + 4)], "muted", told.rpartition(": ")[2])


def _spans(trace: Trace, x: _Scale, y: _Scale) -> Iterator[Shape]:
    for one, end, other, told in zip(trace.x, trace.ends, trace.y, trace.told, strict=True):
        corner = max(x(end) - 1, x(one) + 1)  # a gap to the next, unless it would be all of it
        yield Shape("box", [(x(one), y(other) - 7), (corner, y(other) + 7)], trace.colour, told)


_DRAW: dict[str, Callable[[Trace, _Scale, _Scale], Iterator[Shape]]] = {
    "line": _line,
    "steps": _line,
    "points": _points,
    "bars": _bars,
    "spans": _spans,
}


def _legend(panel: Panel, x: _Scale, top: float) -> Iterator[Shape]:
    """Only where traces differ in what they are."""
    labelled = [trace for trace in panel.traces if trace.label]
    at = x.begin + 8
    for place, trace in enumerate(labelled if len(labelled) > 1 and not panel.y.names else ()):
        line = top + 6 + 15 * place
        yield Shape("box", [(at, line - 4), (at + 10, line + 4)], trace.colour)
        yield Shape("text", [(at + 16, line + 4)], "ink", _cut(trace.label, 90))


def _cut(told: str, most: int) -> str:
    told = _clean(told)
    return told if len(told) <= most else f"{told[: most - 1]}…"


# SVG


_FOREIGN = re.compile(r"[\ud800-\udfff\ufffe\uffff]")


def _clean(told: str) -> str:
    """Without what XML and fonts have no sign for."""
    return _FOREIGN.sub("\ufffd", printable(told))


def _lines(told: str) -> str:
    return "\n".join(map(_clean, told.split("\n")))


def panel_svg(panel: Panel, is_wide: bool = False) -> str:
    """A panel for a page, which has colours for the classes."""
    width, height = size_of(panel, is_wide)
    body = "".join(map(_element, shapes(panel, width, height)))
    name = escape(_clean(panel.title or panel.x.title), quote=True)
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{name}">{body}</svg>'


def _element(shape: Shape) -> str:
    told = f"<title>{escape(_lines(shape.told))}</title>" if shape.told and shape.kind != "text" else ""
    (x, y), *others = shape.points
    if shape.kind == "text":
        anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
        word = escape(_clean(shape.told))
        return f'<text class="f-{shape.colour}" x="{x:.1f}" y="{y:.1f}"{anchor}>{word}</text>'
    if shape.kind == "dot":
        circle = f'<circle class="f-{shape.colour}" cx="{x:.1f}" cy="{y:.1f}" r="{shape.width:g}"'
        return f"{circle}>{told}</circle>"
    if shape.kind == "box":
        size = f'width="{others[0][0] - x:.1f}" height="{others[0][1] - y:.1f}"'
        return f'<rect class="f-{shape.colour}" x="{x:.1f}" y="{y:.1f}" {size}>{told}</rect>'
    path = f"M{x:.1f} {y:.1f}L" + " ".join(f"{a:.1f} {b:.1f}" for a, b in others)
    return f'<path class="s-{shape.colour}" stroke-width="{shape.width:g}" d="{path}">{told}</path>'


def colours(palette: dict[str, str]) -> str:
    """The classes of these colours, as a style sheet."""
    return "".join(f".f-{name}{{fill:{c}}}.s-{name}{{stroke:{c}}}" for name, c in palette.items()) + (
        f"path{{fill:none;stroke-linejoin:round;stroke-linecap:round}}.f-note{{fill:{palette['ink']};"
        f"stroke:{palette['paper']};stroke-width:3px;paint-order:stroke}}"
    )


def _placed(chart: Chart) -> tuple[float, float, list[tuple[float, float, Panel]]]:
    """The size of a whole chart, and where its panels stand."""
    columns = 1 if chart.is_wide else min(3, max(1, len(chart.panels)))
    found, top = [], 44.0
    for row in range(0, len(chart.panels), columns):
        line = chart.panels[row : row + columns]
        found += [(16 + n * (NARROW + 20), top, panel) for n, panel in enumerate(line)]
        top += max(size_of(panel, chart.is_wide)[1] for panel in line) + 14
    width = WIDE if chart.is_wide else columns * (NARROW + 20) - 20
    return width + 32, top + 8, found


def svg(chart: Chart) -> str:
    """A whole chart as a file of its own."""
    width, height, placed = _placed(chart)
    body = ""
    for x, y, panel in placed:
        inner = "".join(map(_element, shapes(panel, *size_of(panel, chart.is_wide))))
        body += f'<g transform="translate({x:g} {y:g})">{inner}</g>'
    style = f"text{{font:{_FONT:g}px system-ui,sans-serif}}.t{{font-size:15px;font-weight:600}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}"><style>{style}{colours(PALETTE)}</style>'
        f'<rect class="f-paper" width="100%" height="100%"/>'
        f'<text class="f-ink t" x="16" y="26">{escape(_clean(chart.title))}</text>{body}</svg>\n'
    )


# Files

KINDS = (".svg", ".png", ".pdf")


def save(chart: Chart, path: Path) -> None:
    """Write a chart in the form that the file's name tells: .svg, .png or .pdf. Needs no browser."""
    kind = path.suffix.lower()
    if kind == ".svg":
        path.write_text(svg(chart), encoding="utf-8")
    else:
        _paint(chart, path)


def _paint(chart: Chart, path: Path) -> None:
    """The same shapes on one pair of axes without any frame, a pixel to the unit."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise StokerError(
            f"{path.suffix} needs matplotlib: pip install matplotlib; .svg needs nothing"
        ) from None
    width, height, placed = _placed(chart)
    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    axes.text(16, 26, _plain(chart.title), fontsize=14, fontweight="bold", color=PALETTE["ink"])
    for left, top, panel in placed:
        for shape in shapes(panel, *size_of(panel, chart.is_wide)):
            colour = PALETTE.get(shape.colour, PALETTE["ink"])
            xs, ys = [left + x for x, _ in shape.points], [top + y for _, y in shape.points]
            if shape.kind == "text":
                side = {"start": "left", "middle": "center", "end": "right"}[shape.anchor]
                axes.text(xs[0], ys[0], _plain(shape.told), fontsize=9.5, color=colour, ha=side)
            elif shape.kind == "dot":
                axes.plot(xs, ys, "o", color=colour, markersize=2 * shape.width, markeredgewidth=0)
            elif shape.kind == "box":
                axes.fill(
                    [xs[0], xs[1], xs[1], xs[0]], [ys[0], ys[0], ys[1], ys[1]], color=colour, linewidth=0
                )
            else:
                axes.plot(xs, ys, color=colour, linewidth=shape.width)
    for order, artist in enumerate(axes.get_children()):  # as they were drawn, whatever they are
        artist.set_zorder(order)
    figure.savefig(path, dpi=144)


def _plain(told: str) -> str:
    """Dollars would begin a formula."""
    return _clean(told).replace("$", r"\$")
