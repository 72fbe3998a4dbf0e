"""Files that are not what was written: it is told, and the checkpoint before is used."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.manager import progress
from stoker.manager.manager import Manager
from stoker.manager.trial import Trial
from tests.manager.making import Make

Harm = Callable[[Path, random.Random], None]


def cut(path: Path, numbers: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: numbers.randrange(len(data))])


def flip(path: Path, numbers: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
    path.write_bytes(data)


def zero(path: Path, numbers: random.Random) -> None:
    """A block that never reached the disk."""
    data = path.read_bytes()
    begin = numbers.randrange(len(data) - 1)
    end = begin + numbers.randrange(1, len(data) - begin)
    path.write_bytes(data[:begin] + bytes(end - begin) + data[end:])


def replace(path: Path, numbers: random.Random) -> None:
    path.write_bytes(numbers.randbytes(numbers.randrange(1, 300)))


def empty(path: Path, numbers: random.Random) -> None:
    path.write_bytes(b"")


def remove(path: Path, numbers: random.Random) -> None:
    path.unlink()


HARMS: list[Harm] = [cut, flip, zero, replace, empty, remove]


@pytest.fixture
def written(tmp_path: Path, make: Make) -> Path:
    """A trial with two checkpoints of different parts."""
    trial = Trial({}, str(tmp_path / "trial"))
    manager = make(trial)
    manager.set_compare_goal("score", "max")
    weights = {"w": b"", "epoch": -1}
    manager.track(weights=weights)
    for epoch in range(4):
        weights.update(w=bytes([epoch]) * 3000, epoch=epoch)
        manager.add_progress("score", epoch + 0.25)
        manager.add_progress("epochs", epoch)
        manager.save_progress({"epoch": epoch, "x": "y" * 400}, {"best": epoch, "x": "z" * 400})
        manager._saver.wait()
    manager._close()
    return tmp_path / "trial"


def going_on(directory: Path, make: Make) -> tuple[Manager, dict[str, object]]:
    manager = make(Trial({}, str(directory), attempt=(1, 2)))
    weights: dict[str, object] = {"epoch": -1}
    manager.track(weights=weights)
    return manager, weights


@pytest.mark.parametrize("kind", ["state", "params", "best"])
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_a_damaged_checkpoint(
    written: Path, tmp_path: Path, make: Make, harm: Harm, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(1 if harm in (empty, remove) else 12):
        place = tmp_path / f"{seed}"
        shutil.copytree(written, place)
        harmed = sorted(place.glob(f"checkpoints/*.{kind}"))[-1]
        before = harmed.read_bytes()
        harm(harmed, random.Random(seed))
        is_told = not (harmed.exists() and harmed.read_bytes() == before)  # zeros may have been zeros
        manager, weights = going_on(place, make)
        is_missing = harm is remove and kind == "state"  # then it was never there
        assert weights["epoch"] == (2 if is_told else 3)
        assert manager.start_epoch() == (3 if is_told else 4)
        assert manager.get_progress()["score"] == [0.25, 1.25, 2.25, 3.25][: manager.start_epoch()]
        assert manager.load(manager.params_path or "")["epoch"] == weights["epoch"]
        assert manager.load(manager.best_params_path or "")["best"] == weights["epoch"]
        assert ("going on from the checkpoint before it" in capsys.readouterr().err) == (
            is_told and not is_missing
        )


def test_all_checkpoints_damaged(written: Path, make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    for path in written.glob("checkpoints/*.state"):
        path.write_bytes(b"STOKER1\n")
    manager = make(Trial({}, str(written), attempt=(1, 2)))
    assert not manager.is_resumed
    assert manager.start_epoch() == 0
    assert manager.get_progress() == {}
    assert capsys.readouterr().err.count("is cut off") == 2


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_damaged_progress(
    written: Path, tmp_path: Path, make: Make, harm: Harm, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is worth more than its progress: it goes on, with what can be read."""
    for seed in range(1 if harm in (empty, remove) else 12):
        place = tmp_path / f"{seed}"
        shutil.copytree(written, place)
        file = place / "progress.train.1-1.jsonl"
        harm(file, random.Random(seed))
        manager, weights = going_on(place, make)
        assert (manager.start_epoch(), weights["epoch"]) == (4, 3)
        scores = manager.get_progress().get("score", [])
        assert set(scores) <= {0.25, 1.25, 2.25, 3.25}  # nothing is made up
        is_lost = sum(len(values) for values in manager.get_progress().values()) < 8
        assert ("values of it are missing" in capsys.readouterr().err) == is_lost
        assert is_lost or scores == [0.25, 1.25, 2.25, 3.25]
        manager.add_progress("score", 9.0)
        manager._close()
        assert list(progress.read(str(place), "train")["score"].values) == [*scores, 9.0]


def test_files_of_others_are_no_checkpoints(written: Path, make: Make) -> None:
    for name in (
        "train.state",
        "train.9.state",
        "train.1-1.state.bak",
        "other.9-9.000001.state",
        ".train",
        "x.tmp",
    ):
        (written / "checkpoints" / name).write_bytes(b"something else")
    manager, weights = going_on(written, make)
    assert weights["epoch"] == 3
    manager.save_progress()
    manager._close()
    assert (written / "checkpoints" / "other.9-9.000001.state").exists()


def test_rounds_that_do_not_count_any_more(written: Path, make: Make) -> None:
    manager = make(Trial({}, str(written), attempt=(2, 1), since=2))
    assert not manager.is_resumed
    assert manager.get_progress() == {}
