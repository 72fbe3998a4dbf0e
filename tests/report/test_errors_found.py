"""Lines that would take a pattern very long."""

from __future__ import annotations

import time

import pytest

from stoker.report.errors import failure_of, usual
from tests.report import made

LONG = 100_000


@pytest.mark.parametrize("line", ["/" * LONG, "a/" * LONG + "!", "a" * LONG, "a." * LONG + "!", "0x" * LONG])
def test_long_lines_take_no_time(line: str) -> None:
    begin = time.perf_counter()
    usual(line)
    for last in (line, f"Error: {line}", f"{line}: x"):
        failure_of(made.row(1, {}), ["Traceback (most recent call last):", f'  File "{line}', last])
        failure_of(made.row(1, {}), [last])
    assert time.perf_counter() - begin < 1
