"""A study in a notebook: cells run in a real kernel, and what they show is what a person would see."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.report.errors import Causes, failure_of, group
from tests.report.made import row
from tests.store.needs import need

PAGE = Path(__file__).parents[2] / "docs/tutorials/read-your-results.md"
EVIL = "<script>alert(1)</script>"
TEXT = f"""\
template: 'for n in 5 3 4; do echo loss=0.$n; done; echo "{EVIL}" [note]; [ {{lr}} != 2 ]'
metrics: {{loss: 'loss=(\\S+)'}}
objective: {{metric: loss, goal: min}}
resource: ["", ""]
---
lr: [0.1, 0.2, 2]
note: "{EVIL}"
"""


@pytest.fixture
def study(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> stoker.Study:
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(variable, str(workplace / "jupyter"))
    Path("params.yaml").write_text(TEXT, encoding="utf-8")
    return stoker.run()


def shown(cells: list[str]) -> list[dict[str, Any]]:
    """What each cell shows, by kind, in a kernel of this environment; a cell that raises fails the test."""
    need("nbclient", "nbformat", "ipykernel", "plotly", "pandas")
    import nbformat
    from nbclient import NotebookClient

    v4: Any = nbformat.v4  # it has no types
    book = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    NotebookClient(book, kernel_name="python3", timeout=120).execute()
    return [
        {kind: told for output in cell.outputs for kind, told in output.get("data", {}).items()}
        for cell in book.cells
    ]


def test_the_cells_of_the_tutorial_show_themselves(study: stoker.Study) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## In a notebook\n")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found
    cells = found[1].splitlines()
    made = dict(zip(cells, shown(cells), strict=True))
    by_call = {line.partition("  #")[0].partition("(")[0]: told for line, told in made.items()}
    assert "2 finished, 1 failed" in by_call["study"]["text/html"]
    assert "loss, the lower the better" in by_call["study"]["text/html"]
    assert "<table" in by_call["study.table"]["text/html"]
    figure = by_call["study.figure"]["application/vnd.plotly.v1+json"]
    assert len(figure["data"]) == 3
    assert figure["layout"]["yaxis"]["range"] == [0, 1]
    assert "1 × train: exit code 1" in by_call["study.errors"]["text/html"]
    assert all(EVIL not in str({**told, "text/plain": ""}) for told in made.values())
    assert "&lt;script&gt;" in by_call["study.errors"]["text/html"]
    assert EVIL in by_call["study.errors"]["text/plain"]


def test_failures_are_a_list_that_shows_itself(study: stoker.Study) -> None:
    causes = study.errors()
    assert [(one.count, one.common) for one in causes] == [(1, ("lr = 2",))]
    assert repr(causes).startswith(f"1 × train: exit code 1: {EVIL}")
    assert repr(causes[0]).startswith("<Group 1 × train: exit code 1")
    assert repr(Causes()) == "No trial failed."
    assert Causes()._repr_html_() == "<p>No trial failed.</p>"


def test_of_very_many_causes_some_are_shown() -> None:
    rows = [row(n, {}, stages={f"stage{n}": {"why": "exited", "code": 1}}) for n in range(1, 31)]
    told = group([failure_of(one, []) for one in rows], rows)._repr_html_()
    assert told.count("× stage") == 20
    assert "… and 10 other causes of 10 failures" in told


def test_figures_have_the_names_of_the_command(study: stoker.Study) -> None:
    need("plotly")
    assert len(study.figure("parameters").data) == 2
    with pytest.raises(stoker.StokerError, match="there is no figure 'sweps'; did you mean 'sweeps'"):
        study.figure("sweps")
    with pytest.raises(stoker.StokerError, match="for the figure 'sweeps', not for 'best'"):
        study.figure("best", yrange=(0, 1))
    with pytest.raises(stoker.StokerError, match="No trial has recorded how loss went over images"):
        study.figure("sweeps", x="images")


def test_a_study_tells_of_itself(study: stoker.Study) -> None:
    name = study.best()[0].name
    assert name.count("<") == 2  # as the parameter has it
    told = study._repr_html_()
    assert "1 Lr_0.1" in told
    assert "loss 0.4" in told
    assert "<script" not in told
