"""Figures show what is there, say what they leave out, and can be drawn in every form."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from math import inf, isfinite, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.store_options import open_at
from stoker.report import figures, images
from stoker.report.charts import Chart, Panel, Trace, axis, scale
from stoker.report.curves import thinned
from stoker.report.figures import FIGURES
from stoker.report.importance import explained, importance, ranks
from stoker.report.recorded import Recorded
from stoker.report.results import Results, gather, spread
from stoker.report.rows import Row
from tests.report.made import BEGAN, results, row
from tests.report.test_rows import Fact, Try, study
from tests.store.needs import need
from tests.stories.command import stoker

EVIL = "<script>alert(1)</script>"
STUDIES: dict[str, list[Row]] = {
    "none": [],
    "one": [row(1, {"lr": 0.1}, 0.5)],
    "all failed": [row(n, {"lr": 0.1 * n}) for n in range(1, 5)],
    "nan and inf": [
        row(n, {"lr": 10.0**n, "norm": EVIL if n % 2 else "b"}, value)
        for n, value in enumerate([nan, inf, -inf, 0.5, 0.25, 1.0, 2.0], 1)
    ],
    "many": [
        row(n, {f"p{k}": (n * k) % 7 for k in range(300)} | {"flag": n % 2 == 0}, float(n))
        for n in range(1, 30)
    ],
    "extremes": [
        row(n, {"huge": 10**400 if n % 2 else 1, "wide": value, "tiny": n * 5e-324}, value)
        for n, value in enumerate([1.7e308, -1.7e308, 1e300, 0.0, 5e-324], 1)
    ],
    "far apart": [row(n, {"x": value}, value) for n, value in enumerate([5e-324, 1e-300, 1.7e308], 1)],
    "equal": [row(n, {"x": n, "y": "same"}, 1.0) for n in range(1, 9)],
}


def charts(name: str) -> list[Chart]:
    found = results(STUDIES[name])
    return [draw(found) for draw in FIGURES.values()]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_can_be_drawn(name: str) -> None:
    for chart in charts(name):
        assert chart.panels or chart.note, chart.name
        tree = ET.fromstring(images.svg(chart))  # noqa: S314  (our own)
        numbers = [value for one in tree.iter() for name, value in one.attrib.items() if name != "class"]
        assert not [value for value in numbers if "nan" in value or "inf" in value]
        assert not [one for one in tree.iter() if one.tag.endswith("script")]
        for panel in chart.panels:
            ET.fromstring(images.panel_svg(panel, chart.is_wide))  # noqa: S314


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_pictures_need_no_browser(kind: str, tmp_path: Path) -> None:
    need("matplotlib")
    found = results([row(n, {"cost": f"${n}$ {EVIL}"}, n / 7) for n in range(1, 6)])
    path = tmp_path / f"figure.{kind}"
    images.save(figures.parameters(found), path)
    assert path.read_bytes()[:4] in (b"\x89PNG", b"%PDF", b"<svg")


def test_plotly_has_the_same_data() -> None:
    need("plotly")
    from stoker.report.interactive import figure

    for name in STUDIES:
        for chart in charts(name):
            drawn = figure(chart)
            assert len(drawn.data) == sum(len(panel.traces) for panel in chart.panels)
            assert EVIL not in str(drawn.to_dict())
    chart = figures.best(results(STUDIES["equal"]))
    assert list(figure(chart).data[0].y) == list(chart.panels[0].traces[0].y)


def test_the_best_so_far_only_gets_better() -> None:
    values = [5.0, 7.0, 3.0, 4.0, 1.0, 2.0]
    rows = [row(n, {"n": n}, value) for n, value in enumerate(values, 1)]
    for goal, expected in (("min", [5.0, 3.0, 1.0, 1.0]), ("max", [5.0, 7.0, 7.0])):
        over_trials, over_time = figures.best(results(rows, goal=goal)).panels
        assert list(over_trials.traces[1].y) == list(over_time.traces[1].y) == expected
        assert [*over_trials.traces[1].x][-1] == 6
        assert over_time.x.title == "seconds"


def test_slots_show_idle_time_and_failures() -> None:
    rows = [
        row(n, {"n": n}, None if n == 2 else 1.0, slot="gpu 0", began=BEGAN + 20 * n, seconds=10.0)
        for n in range(4)
    ]
    chart = figures.slots(results(rows))
    (panel,) = chart.panels
    assert {trace.label: len(trace.x) for trace in panel.traces} == {"finished": 3, "failed": 1}
    assert chart.note.startswith("1 slot, 57% busy")
    finished = next(trace for trace in panel.traces if trace.label == "finished")
    assert list(zip(finished.x, finished.ends, strict=True)) == [(0, 10), (20, 30), (60, 70)]


def test_short_trials_in_a_row_are_one_mark() -> None:
    rows = [row(n, {}, 1.0, slot="0", began=BEGAN + n, seconds=1.0) for n in range(5000)]
    (panel,) = figures.slots(results(rows)).panels
    assert sum(len(trace.x) for trace in panel.traces) < 10


def test_what_is_left_out_is_said() -> None:
    rows = [row(n, {f"p{k}": (n + k) % 5 for k in range(20)}, float(n % 97)) for n in range(1, 2501)]
    found = results(rows)
    note = figures.parameters(found).note
    assert "12 of 20 parameters are drawn, those that matter most." in note
    assert "2,000 of 2,500 trials are drawn." in note
    assert "8 of" not in figures.parameters(results(STUDIES["equal"])).note
    assert "3 results that are no finite numbers" in figures.parameters(results(STUDIES["nan and inf"])).note


def test_sweeps_have_common_axes_or_those_asked_for() -> None:
    found = results([row(n, {"n": n}, n / 10) for n in range(1, 5)])
    assert figures.sweeps(found, (0.5, 2.0)).panels[0].y.range == (0.5, 2.0)
    assert [trace.colour for trace in figures.sweeps(found).panels[0].traces] == ["faint"] * 3 + ["main"]
    assert "1" in figures.sweeps(found).panels[0].traces[-1].told[0]  # the best is above the others


def test_a_study_without_an_objective() -> None:
    found = Results("x", [row(n, {"n": n}, float(n)) for n in range(1, 9)])
    assert found.metric == "loss"
    assert figures.parameters(found).panels
    assert found.best is None
    assert "objective" in figures.best(found).note


@given(st.lists(st.floats(), min_size=1, max_size=3000), st.integers(4, 200))
def test_a_curve_that_is_thinned_keeps_its_highs_and_lows(values: list[float], most: int) -> None:
    found = thinned(range(len(values)), values, most)
    assert len(found.y) <= max(most, 4)
    assert found.count == len(values)
    assert list(found.x) == sorted(set(found.x))
    numbers, kept = [v for v in values if isfinite(v)], [v for v in found.y if isfinite(v)]
    if numbers:
        assert (min(kept), max(kept)) == (min(numbers), max(numbers))


@given(st.lists(st.floats(allow_nan=False), max_size=40))
def test_ranks_are_those_of_a_slow_count(values: list[float]) -> None:
    slow = [sum(o < v for o in values) + (sum(o == v for o in values) - 1) / 2 for v in values]
    assert ranks(values) == slow


def test_importance_finds_what_matters() -> None:
    params = [
        {"lr": a, "noise": b, "norm": c, "same": 1} for a in range(12) for b in range(4) for c in ("x", "y")
    ]
    scores = [(p["lr"] - 5) ** 2 + (3.0 if p["norm"] == "x" else 0.0) for p in params]  # type: ignore[operator]
    found = importance(params, scores)
    assert list(found) == ["lr", "norm", "noise"]
    assert found["lr"] > 0.6
    assert found["noise"] == 0.0
    huge = [1e300 if n == 0 else score for n, score in enumerate(scores)]
    assert abs(importance(params, huge)["lr"] - found["lr"]) < 0.1
    assert importance(params[:4], scores[:4]) == {}
    assert explained([0, 0, 1, 1], [0.0, 0.0, 1.0, 1.0]) == 1.0


def test_what_chance_would_explain_does_not_count() -> None:
    scores = [(n * 7919 % 101) / 101 for n in range(100)]
    groups = [n * 104729 % 25 for n in range(100)]  # as many as four trials each
    found = importance([{"junk": f"g{group}"} for group in groups], scores)
    assert found["junk"] < 0.1


def test_axes_fit_what_they_are_about() -> None:
    assert axis("lr", [1e-5, 1e-1]).is_log
    assert not axis("step", [1, 1000], may_be_log=False).is_log
    assert not axis("x", [0, 1e9]).is_log
    assert axis("x", [nan]).range is None
    names, places = scale("norm", ["b", "a", True, "b"])
    assert (names.names, places) == (("a", "b", "true"), [1.0, 0.0, 2.0, 1.0])
    assert scale("n", [8, 64, 8])[0].at == (8.0, 64.0)
    assert images.nice(0, 9) == [0, 5]
    assert images.nice(0, 1) == [0, 0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("size", [1e-290, 1e-14, 1e-5, 1.0, 1e9, 1e300])
def test_ticks_of_any_size(size: float) -> None:
    assert images.nice(0, 3 * size) == pytest.approx([0, size, 2 * size, 3 * size], rel=1e-9, abs=0)
    assert images.nice(inf, inf) == [inf]


def test_a_value_alone_is_a_dot() -> None:
    line = Trace("line", range(6), [1.0, nan, 2.0, nan, 1.0, 2.0], "main", ("a",))
    panel = Panel("", (line,), axis("x", range(6)), axis("y", [1.0, 2.0]))
    kinds = [one.kind for one in images.shapes(panel, 300, 200) if one.colour == "main"]
    assert kinds == ["dot", "dot", "line"]


def test_names_of_anything_are_valid_xml() -> None:
    names = ["a\x00b\x1b[31m", "\udcff", "\ufffe<&>", "two\nlines"]
    found = results(
        [row(n, {names[0]: n, "b": n % 2}, 1.0 + n, name=name) for n, name in enumerate(names, 1)]
    )
    for chart in (draw(found) for draw in FIGURES.values()):
        told = images.svg(chart)
        told.encode()
        ET.fromstring(told)  # noqa: S314
        for panel in chart.panels:
            ET.fromstring(images.panel_svg(panel, chart.is_wide))  # noqa: S314


def test_trials_without_a_finite_value_are_not_counted_as_left_out() -> None:
    facts = [
        Fact("finished", (Try(1.0, {"loss": [value], "other": [1.0]}),)) for value in (nan, inf, 1.0, -inf)
    ]
    with study([{"a": [1, 2, 3, 4]}], facts, ("loss", "min")) as written:
        chart = figures.sweeps(gather(Recorded(written.opened)))
    assert [panel.title for panel in chart.panels] == ["sweep 1 · 1 trial"]
    assert "Of many trials" not in chart.note


def test_some_curves_stand_for_many() -> None:
    rows = [row(n, {}, 1.0) for n in range(1, 1001)]
    chosen = [one.trial.number for one in spread(rows, 40)]
    assert chosen[:10] == list(range(1, 11))
    assert (len(set(chosen)), chosen) == (40, sorted(chosen))
    assert chosen[-1] > 950
    assert spread(rows[:3], 40) == rows[:3]


TEXT = """\
template: 'python train.py [n]'
metrics: {acc: 'acc=(\\S+)'}
objective: {metric: acc, goal: max}
resource: [0]
---
_title: some
n: [1, 2, 3]
"""
SCRIPT = """\
import sys
from stoker import Manager
manager = Manager.create_manager()
for epoch in range(1, 6):
    print(f"epoch {epoch} acc={epoch * int(sys.argv[2]) / 100}")
    manager.add_progress("images", 64 * epoch)
    manager.add_progress("loss", 1 / epoch)
"""


def test_a_person_plots_what_scripts_printed(workplace: Path) -> None:
    Path("params.yaml").write_text(TEXT, encoding="utf-8")
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    assert stoker("run").returncode == 0
    done = stoker("plot", "sweeps", "--yrange", "0,0.2")
    assert done.stdout.startswith("Wrote sweeps.svg. "), done.stderr
    drawn = Path("sweeps.svg").read_text(encoding="utf-8")
    assert "some · 3 trials" in drawn
    assert drawn.count('class="s-faint"') == 2
    assert "3 N_3\nacc 0.15" in drawn
    progress = gather(Recorded(open_at("output"))).progress
    assert list(progress["acc"].y) == [0.03, 0.06, 0.09, 0.12, 0.15]
    assert list(progress["loss"].x) == [0, 1, 2, 3, 4]
    assert list(gather(Recorded(open_at("output")), "images").progress["loss"].x) == [64, 128, 192, 256, 320]
    seconds = list(gather(Recorded(open_at("output")), "time").progress["loss"].x)
    assert seconds == sorted(seconds)
    assert seconds[0] == 0
    assert stoker("plot", "errors").stderr == "stoker: there is nothing to draw. No trial failed.\n"
    assert "a figure is .svg, .png, .pdf or .html" in stoker("plot", "best", "-o", "x.gif").stderr
    assert "the first number must be the lower one" in stoker("plot", "sweeps", "--yrange", "2,1").stderr
    assert not Path("x.gif").exists()
    assert "there is no figure 'sweep'; did you mean" in stoker("plot", "sweep").stderr

    told = stoker("analyze").stdout
    assert "No trial failed." in told
    assert "best acc" in told
    assert "▁" in told
    assert Path("report.html").exists()
