from __future__ import annotations

from math import isnan
from pathlib import Path

import pytest

from stoker.study.metrics import read_metrics


@pytest.mark.parametrize("pattern", [r"loss=(\S+)", r"loss=([-0-9.nai]+)"])
@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), ("2.1e-05", 2.1e-05), ("-3.5", -3.5), ("0.25, next", 0.25), ("1e3;", 1000.0), (".5", 0.5)],
)
def test_the_last_number_counts_all_of_it(tmp_path: Path, pattern: str, text: str, value: float) -> None:
    log = tmp_path / "log"
    log.write_text(f"loss=7\nother loss={text}\n")
    assert read_metrics(str(log), {"loss": pattern, "none": "none=(.*)"}) == {"loss": value}


def test_a_diverged_run_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("loss=0.5\nloss=nan\n")
    assert isnan(read_metrics(str(log), {"loss": r"loss=(\S+)"})["loss"])


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"loss=1\n" + b"x" * 5000)
    assert read_metrics(str(log), {"loss": r"loss=(\S+)"}, most=1000) == {}
    assert read_metrics(str(tmp_path / "absent"), {"loss": "(.)"}) == {}
