"""Charts as Plotly figures, for notebooks and pages that zoom. Needs plotly, of the extra `report`."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import log10
from typing import Any

from stoker.core.errors import StokerError
from stoker.report.charts import Axis, Chart, Panel, Trace
from stoker.report.images import PALETTE
from stoker.spec.problems import printable

try:
    from plotly.graph_objects import Figure  # type: ignore[import-untyped]  # it has no types
except ImportError:
    raise StokerError("figures that move need plotly: pip install 'stoker[report]'") from None

_FONT = {"family": "system-ui, sans-serif", "color": PALETTE["ink"], "size": 12}


def figure(chart: Chart) -> Figure:
    """The chart as Plotly has it; it shows itself in a notebook."""
    columns = 1 if chart.is_wide else min(3, max(1, len(chart.panels)))
    lines = -(-len(chart.panels) // columns) or 1
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "title": {"text": _safe(chart.title)},
        "font": _FONT,
        "plot_bgcolor": PALETTE["paper"],
        "showlegend": any(trace.label for panel in chart.panels for trace in panel.traces),
        "height": 130 + 300 * lines,
        "hovermode": "closest",
        "annotations": [{"text": _safe(chart.note), "showarrow": False, **_BELOW}] if chart.note else [],
    }
    for place, panel in enumerate(chart.panels):
        tag = "" if place == 0 else str(place + 1)
        row, column = divmod(place, columns)
        across = (column / columns + 0.03, (column + 1) / columns - 0.03)
        up = (1 - (row + 1) / lines + 0.14 / lines, 1 - row / lines - 0.1 / lines)
        layout[f"xaxis{tag}"] = {**_axis(panel.x), "domain": across, "anchor": f"y{tag}"}
        layout[f"yaxis{tag}"] = {**_axis(panel.y), "domain": up, "anchor": f"x{tag}"}
        layout["annotations"] += list(_texts(panel, tag, across[0], up[1]))
        data += [{**_trace(trace), "xaxis": f"x{tag}", "yaxis": f"y{tag}"} for trace in panel.traces]
    return Figure({"data": data, "layout": layout})


_BELOW = {"xref": "paper", "yref": "paper", "x": 0, "y": -0.08, "yanchor": "top", "align": "left"}


def _texts(panel: Panel, tag: str, left: float, top: float) -> Iterator[dict[str, Any]]:
    if panel.title:
        place = {
            "xref": "paper",
            "yref": "paper",
            "x": left,
            "y": top,
            "xanchor": "left",
            "yanchor": "bottom",
        }
        yield {"text": f"<b>{_safe(panel.title)}</b>", "showarrow": False, **place}
    for x, y, told in panel.texts:
        place = {"xref": f"x{tag}", "yref": f"y{tag}", "x": x, "y": y, "xanchor": "left"}
        yield {"text": _safe(told), "showarrow": False, **place}


def _axis(axis: Axis) -> dict[str, Any]:
    told: dict[str, Any] = {
        "title": {"text": _safe(axis.title)},
        "gridcolor": PALETTE["rule"],
        "zeroline": False,
    }
    if axis.names:
        told.update(tickvals=list(range(len(axis.names))), ticktext=[_safe(name) for name in axis.names])
    if axis.at:
        told["tickvals"] = list(axis.at)
    if axis.is_log:
        told["type"] = "log"
    if axis.range is not None:
        told["range"] = [log10(end) if axis.is_log else end for end in axis.range]
    return {**told, "showticklabels": not axis.is_bare}


def _trace(trace: Trace) -> dict[str, Any]:
    colour = PALETTE[trace.colour]
    told = [_safe(one).replace("\n", "<br>") for one in trace.told]
    base: dict[str, Any] = {"name": _safe(trace.label), "hoverinfo": "text", "showlegend": bool(trace.label)}
    if trace.kind in ("bars", "spans"):
        begins = [0.0] * len(trace.x) if trace.kind == "bars" else list(trace.x)
        ends = trace.x if trace.kind == "bars" else trace.ends
        lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
        bar = {"type": "bar", "orientation": "h", "base": begins, "x": lengths, "y": list(trace.y)}
        return {**base, **bar, "hovertext": told, "marker": {"color": colour}}
    spot = {"type": "scatter", "x": list(trace.x), "y": list(trace.y)}
    if trace.kind == "points":
        return {**base, **spot, "mode": "markers", "hovertext": told, "marker": {"color": colour, "size": 7}}
    shape = "hv" if trace.kind == "steps" else "linear"
    width = 1 if trace.colour == "faint" else 2
    line = {"color": colour, "width": width, "shape": shape}
    return {**base, **spot, "mode": "lines", "hovertext": "".join(told[:1]), "line": line}


def _safe(told: str) -> str:
    """Plotly takes some HTML for what it is."""
    return "\n".join(escape(printable(line), quote=False) for line in told.split("\n"))
