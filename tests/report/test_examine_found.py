"""Names of parsers that are no texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker import Examiner
from stoker.report.examine import Experiment


def add_odd(path: Path, experiment: Experiment, caches: dict[Any, Any]) -> None:
    found: dict[Any, Any] = experiment.metric
    found[1] = found[(2, "a")] = found[None] = 0.5
    params: dict[Any, Any] = experiment.param
    params[3] = path.name


def test_names_that_are_no_texts(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("A", "B"):
        Path("output", name).mkdir(parents=True)
        Path("output", name, "param").write_text("1: 2\ntrue: 3\n", encoding="utf-8")
    examiner = Examiner()
    examiner.add(add_odd)
    examiner.exam()
    assert not examiner.errors
    table = examiner.table(print_tsv=True)
    assert capsys.readouterr().out == "3\t1\t(2, 'a')\tNone\nA\t0.5\t0.5\t0.5\nB\t0.5\t0.5\t0.5\n"
    assert table.shape == (2, 4)
    examiner.table(concise=False, print_tsv=True)
