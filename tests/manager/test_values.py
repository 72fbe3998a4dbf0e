"""What `add_progress` takes, and what becomes of it."""

from __future__ import annotations

import json
import math
import sys
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stoker.manager import progress
from stoker.manager.manager import Manager
from stoker.manager.trial import Trial
from tests.manager.making import Make


@pytest.fixture
def manager(tmp_path: Path, make: Make) -> Manager:
    return make(Trial({}, str(tmp_path)))


def read(manager: Manager) -> dict[str, progress.Series]:
    """As it stands in the file."""
    manager._progress.flush()
    return progress.read(manager.directory, "train")


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 1.0, -3.0, 0.1, 1e15, 1e16, 2**53 + 1.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf],
)
def test_floats_come_back_as_they_are(manager: Manager, value: float) -> None:
    manager.add_progress("x", value)
    assert manager.get_progress()["x"][0].hex() == value.hex()
    assert read(manager)["x"].values[0].hex() == value.hex()


def test_nan(manager: Manager) -> None:
    manager.add_progress("x", math.nan)
    assert math.isnan(read(manager)["x"].values[0])


def test_other_numbers(manager: Manager) -> None:
    for value in (3, True, False, Decimal("0.5"), Fraction(1, 4), 10**20):
        manager.add_progress("x", value)
    assert list(read(manager)["x"].values) == [3.0, 1.0, 0.0, 0.5, 0.25, 1e20]


def test_numbers_of_numpy(manager: Manager) -> None:
    numpy = pytest.importorskip("numpy")
    kinds = (numpy.float64, numpy.float32, numpy.float16, numpy.int64, numpy.uint8, numpy.bool_)
    for kind in kinds:
        manager.add_progress("x", kind(1))
    for shape in ((), (1,), (1, 1)):
        manager.add_progress("x", numpy.full(shape, 2.5))
    assert list(read(manager)["x"].values) == [1.0] * len(kinds) + [2.5] * 3
    with pytest.raises(TypeError, match="progress is made of numbers; x is array"):
        manager.add_progress("x", numpy.zeros(2))


def test_numbers_of_torch(manager: Manager) -> None:
    torch = pytest.importorskip("torch")
    kinds = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)
    for kind in kinds:
        manager.add_progress("x", torch.ones((), dtype=kind))
    manager.add_progress("x", torch.full((1,), 2.5))
    changing = torch.full((), 4.0, requires_grad=True)
    manager.add_progress("x", changing * 2)
    manager.add_progress("x", changing)
    with torch.no_grad():
        changing.fill_(7.0)
    assert list(read(manager)["x"].values) == [1.0] * len(kinds) + [2.5, 8.0, 4.0]
    with pytest.raises(TypeError, match="progress is made of numbers; x is tensor"):
        manager.add_progress("x", torch.zeros(2))


@pytest.mark.parametrize("value", ["0.5", b"1", None, [1.0], {}, 1j, object(), 10**400, print])
def test_what_is_no_number_is_told_and_changes_nothing(manager: Manager, value: Any) -> None:
    manager.add_progress("x", 1.0)
    with pytest.raises(TypeError, match="progress is made of numbers; x is"):
        manager.add_progress("x", value)
    manager.add_progress("x", 2.0)
    assert list(read(manager)["x"].values) == [1.0, 2.0]
    assert list(read(manager)["x"].steps) == [0.0, 1.0]


@pytest.mark.parametrize("step", [math.nan, math.inf, "1", [], 10**400])
def test_what_is_no_step(manager: Manager, step: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="step"):
        manager.add_progress("x", 1.0, step)
    manager.add_progress("x", 2.0)
    series = read(manager)["x"]
    assert (list(series.values), list(series.steps), len(series.seconds)) == ([2.0], [0.0], 1)


@pytest.mark.parametrize("name", [3, None, b"x", ("a",)])
def test_what_is_no_name(manager: Manager, name: Any) -> None:
    with pytest.raises(TypeError, match="a series has a text for its name"):
        manager.add_progress(name, 1.0)
    assert manager.get_progress() == {}


@pytest.mark.parametrize("name", ["a/b c", "ü ✓", "", "x\ny", '", "crc": 1}', "\udcff", "loss" * 100])
def test_any_text_is_a_name(manager: Manager, name: str) -> None:
    manager.add_progress(name, 1.5)
    assert list(read(manager)[name].values) == [1.5]


def test_steps(manager: Manager) -> None:
    for step in (None, 7, 7.5, -3, None):
        manager.add_progress("x", 1.0, step)
    assert list(read(manager)["x"].steps) == [0.0, 7.0, 7.5, -3.0, 4.0]


def test_times_only_grow(manager: Manager) -> None:
    for _ in range(100):
        manager.add_progress("x", 1.0)
    seconds = list(read(manager)["x"].seconds)
    assert seconds == sorted(seconds)
    assert seconds[0] > 1e9


def test_threads_that_add_at_once(manager: Manager) -> None:
    """Nothing is lost or doubled, and a value stays with its step."""
    each, threads = 2000, 10
    go = threading.Barrier(threads)

    def add(number: int) -> None:
        go.wait()
        for i in range(each):
            manager.add_progress("own", number * each + i, number * each + i)
            manager.add_progress("counted", i)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        started = [threading.Thread(target=add, args=(number,)) for number in range(threads)]
        for thread in started:
            thread.start()
        while any(thread.is_alive() for thread in started):
            manager._progress.flush()
        for thread in started:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    series = read(manager)
    assert list(series["own"].values) == list(series["own"].steps)
    assert sorted(series["own"].values) == list(range(each * threads))
    assert list(series["counted"].steps) == list(range(each * threads))
    assert sorted(series["counted"].values) == sorted(list(range(each)) * threads)


def test_attempts_go_on_without_gap_or_double(tmp_path: Path, make: Make) -> None:
    for attempt in range(1, 5):
        manager = make(Trial({}, str(tmp_path), attempt=(1, attempt)))
        begin = len(manager.get_progress().get("x", []))
        for value in range(begin, begin + 3):
            manager.add_progress("x", value)
        manager.save_progress()
        manager._saver.wait()
        manager.add_progress("x", 99.0)  # after the checkpoint: it will be done again
        manager.add_progress("lost", 1.0)
        manager._close()
        last = progress.read(str(tmp_path), "train")
        assert list(last["x"].values) == [*range(begin + 3), 99.0]
    series = progress.read(str(tmp_path), "train")["x"]
    assert list(series.values) == [*range(12), 99.0]
    assert list(series.steps) == list(range(13))
    assert list(series.seconds) == sorted(series.seconds)


def test_the_file_is_lines_of_json(manager: Manager, tmp_path: Path) -> None:
    manager.add_progress("loss", 0.5)
    manager.add_progress("loss", math.nan)
    manager._progress.flush()
    head, line = map(json.loads, (tmp_path / "progress.train.1-1.jsonl").read_text().splitlines())
    assert head["after"] is None
    assert (line["name"], line["values"][0], len(line["times"])) == ("loss", 0.5, 2)
