"""Checkpoints: what is in them, which are kept, and which is the best."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import pytest

from stoker.manager import EarlyStopping, tree
from stoker.manager.manager import Manager
from stoker.manager.pace import Pace
from stoker.manager.trial import Trial
from tests.manager.making import Make


def again(manager: Manager, make: Make) -> Manager:
    """The next attempt at the same trial."""
    manager._close()
    before = manager._trial
    round_, attempt = before.attempt
    return make(Trial({}, before.directory, attempt=(round_, attempt + 1), objective=before.objective))


def step(manager: Manager, score: float, params: Any = None, best: Any = None) -> None:
    manager.add_progress("score", score)
    manager.save_progress(params, best)
    manager._saver.wait()


# The best


@pytest.mark.parametrize(
    ("goal", "scores", "best"),
    [
        ("max", [1, 3, 2], 1),
        ("min", [2, 1, 3], 1),
        ("max", [1, 3, 3], 1),  # of equal ones, the first
        ("min", [3, 1, 1], 1),
        ("max", [math.nan, 1, math.nan], 1),
        ("min", [math.nan, math.inf, math.nan], 1),
        ("max", [-1, math.inf, 5], 1),
        ("max", [5, 4, 3], 0),
    ],
)
@pytest.mark.parametrize("is_resumed", [False, True])
def test_the_best(
    tmp_path: Path, make: Make, goal: str, scores: list[float], best: int, is_resumed: bool
) -> None:
    manager = make(Trial({}, str(tmp_path)))
    manager.set_compare_goal("score", goal)
    for place, score in enumerate(scores):
        if is_resumed:
            manager = again(manager, make)
            manager.set_compare_goal("score", goal)
        step(manager, score, {"place": place}, {"place": place})
    manager = again(manager, make)
    assert manager.load(manager.best_params_path or "") == {"place": best}
    assert manager.load(manager.params_path or "") == {"place": len(scores) - 1}
    manager.set_compare_goal("score", goal)
    manager.finished()
    assert f'"place": {best}' in (tmp_path / "finished.train.json").read_text()


def test_the_objective_of_a_study_goes_first(tmp_path: Path, make: Make) -> None:
    manager = make(Trial({}, str(tmp_path), objective=("score", "min")))
    manager.set_compare_goal("score", "max")
    for score in (2, 1, 3):
        step(manager, score, None, {"score": score})
    manager = again(manager, make)
    assert manager.load(manager.best_params_path or "") == {"score": 1}


def test_a_best_between_two_checkpoints_is_not_lost(tmp_path: Path, make: Make) -> None:
    manager = make(Trial({}, str(tmp_path), objective=("score", "max")), save_every=3)
    for score in (1, 9, 2, 3):  # the first and the fourth are saved
        step(manager, score, None, {"score": score})
    manager = again(manager, make)
    assert manager.load(manager.best_params_path or "") == {"score": 9}


def test_a_score_in_a_checkpoint_amid_an_epoch_can_be_the_best_yet(tmp_path: Path, make: Make) -> None:
    """It was not looked at before the checkpoint was made."""
    manager = make(Trial({}, str(tmp_path), objective=("score", "max")))
    step(manager, 1, None, {"score": 1})
    manager.add_progress("score", 9)
    for _ in zip(manager.batches(range(5)), range(2), strict=False):
        pass
    manager = again(manager, make)
    assert manager.get_progress()["score"] == [1, 9]
    manager.save_progress(None, {"score": 9})
    manager = again(manager, make)
    assert manager.load(manager.best_params_path or "") == {"score": 9}


def test_the_last_is_the_best_if_nobody_says_what_good_is(tmp_path: Path, make: Make) -> None:
    manager = make(Trial({}, str(tmp_path)))
    manager.track_model(_Model({"w": 5}))
    manager.finished()
    manager = again(manager, make)
    assert manager.load(manager.best_params_path or "") == {"w": 5}


class _Model:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def test_the_best_model_is_a_copy(tmp_path: Path, make: Make) -> None:
    torch = pytest.importorskip("torch")
    manager = make(Trial({}, str(tmp_path), objective=("score", "max")), save_every=2)
    model = manager.track_model(torch.nn.Linear(2, 1))
    for score in (1, 5, 2, 3):
        with torch.no_grad():
            model.weight.fill_(score)
        step(manager, score)
    manager.finished()
    best = torch.load(tmp_path / "best.pt", weights_only=True)
    assert best["weight"].tolist() == [[5.0, 5.0]]


# What is kept


def test_two_states_are_kept_and_what_they_name(tmp_path: Path, make: Make) -> None:
    manager = make(Trial({}, str(tmp_path), objective=("score", "max")))
    for score in (1, 9, 2, 3, 4):
        step(manager, score, {"score": score}, {"score": score})
    names = sorted(path.name for path in tmp_path.glob("checkpoints/*"))
    assert names == [
        "train.1-1.000002.best",
        "train.1-1.000004.params",
        "train.1-1.000004.state",
        "train.1-1.000005.params",
        "train.1-1.000005.state",
    ]
    manager = again(manager, make)
    step(manager, 5)
    step(manager, 6)
    names = sorted(path.name for path in tmp_path.glob("checkpoints/*"))
    assert names == [
        "train.1-1.000002.best",
        "train.1-1.000005.params",
        "train.1-2.000001.state",
        "train.1-2.000002.state",
    ]


# What can be saved

Pair = namedtuple("Pair", "left right")

PLAIN: list[Any] = [
    None,
    {"a": [1, 2.5, None, True, "x"]},
    [],
    [1, [2, [3]]],
    "text",
    "\udcff",
    b"",
    b"bytes",
    b"[1, 2]",  # as JSON
    b"PK\3\4 a zip",
    b"STOKER1\n ours",
    (1, (2, 3)),
    {1: "one", (2, 3): "two"},
    {"!leaf": 0},
    {"!tuple": [1]},
    {1, 2, 3},
    OrderedDict(b=1, a=2),
    Counter("aab"),
    {"deep": {"bytes": b"\0\1", "inf": math.inf, "large": 2**200}},
    -0.0,
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_data_comes_back(tmp_path: Path, make: Make, value: Any) -> None:
    manager = make(Trial({}, str(tmp_path)))
    tracked = {"value": value}
    manager.track(thing=tracked)
    manager.save_progress(value, value)
    manager = again(manager, make)
    loaded: dict[str, Any] = {}
    manager.track(thing=loaded)
    assert loaded["value"] == value
    assert repr(loaded["value"]) == repr(value)
    for path in (manager.params_path, manager.best_params_path):
        assert (path is None) == (value is None)
        if path is not None:
            assert manager.load(path) == value
            assert isinstance(value, type(manager.load(path)))  # any dict may become a plain one


def test_tensors_come_back(tmp_path: Path, make: Make) -> None:
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    tensors = {
        str(kind): torch.arange(6).to(kind).reshape(2, 3)
        for kind in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool)
    }
    tensors["complex"] = torch.tensor([1 + 2j]).conj()
    tensors["turned"] = torch.arange(6.0).reshape(2, 3).t()
    tensors["none"] = torch.zeros(0, 3)
    tensors["one"] = torch.tensor(2.5, requires_grad=True)
    mixed = {
        "tensor": torch.ones(2),
        "array": numpy.arange(4.0),
        "empty": numpy.zeros((0, 2)),
        "number": numpy.float32(0.5),
        "swapped": numpy.arange(3, dtype=">i4"),
        "turned": numpy.arange(6).reshape(2, 3).T,
        "when": numpy.array(["2026-01-31"], dtype="M8[D]"),
        "pair": Pair(torch.zeros(1), 2),
    }
    manager = make(Trial({}, str(tmp_path)))
    manager.track(tensors=tensors, mixed=mixed)
    manager.save_progress(tensors, mixed)
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.zero_()  # what is saved is a copy
    mixed["array"][:] = 7
    mixed["tensor"][:] = 7
    manager = again(manager, make)
    loaded: dict[str, Any] = {}
    others: dict[str, Any] = {}
    manager.track(tensors=loaded, mixed=others)
    for found in (loaded, manager.load(manager.params_path or "")):
        assert found["torch.bfloat16"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert {name: one.dtype for name, one in found.items()} == {n: t.dtype for n, t in tensors.items()}
        assert {name: one.shape for name, one in found.items()} == {n: t.shape for n, t in tensors.items()}
        assert found["complex"].tolist() == [1 - 2j]
        assert found["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
        assert found["one"].item() == 2.5
    for found in (others, manager.load(manager.best_params_path or "")):
        assert found["tensor"].tolist() == [1, 1]
        assert found["array"].tolist() == [0, 1, 2, 3]
        assert found["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
        assert (found["number"], type(found["number"])) == (0.5, numpy.float32)
        assert found["swapped"].tolist() == [0, 1, 2]
        assert found["empty"].shape == (0, 2)
        assert str(found["when"][0]) == "2026-01-31"
        assert found["pair"][1] == 2


def track_and_save(manager: Manager, value: Any) -> None:
    manager.track(thing={"value": value})
    manager.save_progress()


def test_what_is_no_plain_data(tmp_path: Path, make: Make) -> None:
    torch = pytest.importorskip("torch")
    manager = make(Trial({}, str(tmp_path)))
    for value in (object(), {"a": [print]}, {"w": torch.ones(1), "f": print}, torch.ones(2).to_sparse()):
        with pytest.raises(TypeError, match=r"which is no plain data|is sparse"):
            track_and_save(manager, value)
    with pytest.raises(TypeError, match=r"lr is a float, which has no state_dict"):
        manager.track(lr=0.1)


def test_pickles_if_they_are_allowed(tmp_path: Path, make: Make) -> None:
    manager = make(Trial({}, str(tmp_path)), allow_pickle=True)
    manager.track(thing={"value": 1j})
    manager.save_progress({"value": 2j})
    manager._close()
    manager = make(Trial({}, str(tmp_path), attempt=(1, 2)), allow_pickle=True)
    loaded: dict[str, Any] = {}
    manager.track(thing=loaded)
    assert loaded == {"value": 1j}
    assert manager.load(manager.params_path or "") == {"value": 2j}
    with pytest.raises(tree.Unsafe, match=r"\.state is refused: it has a pickle in it"):
        make(Trial({}, str(tmp_path), attempt=(1, 3)))


def test_loaders_that_know_where_they_are(tmp_path: Path, make: Make) -> None:
    class Loader:
        place = 0

        def __iter__(self) -> Any:
            while self.place < 6:
                self.place += 1
                yield self.place

        def state_dict(self) -> dict[str, int]:
            return {"place": self.place}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.place = state["place"]

    seen = []
    manager = make(Trial({}, str(tmp_path)))
    loader = Loader()
    manager.track(loader=loader)
    for _, batch in zip(range(3), manager.batches(loader), strict=False):  # saved when the next is asked for
        seen.append(batch)
    manager = again(manager, make)
    loader = Loader()
    manager.track(loader=loader)
    seen += manager.batches(loader)
    assert seen == [1, 2, 3, 3, 4, 5, 6]


def test_early_stopping_goes_on_counting(tmp_path: Path, make: Make) -> None:
    manager, told = make(Trial({}, str(tmp_path))), []
    for score in (3, 2, 2, math.nan, 2, 1):
        early = EarlyStopping(patience=3)
        manager = again(manager, make)
        manager.track(early=early)
        told.append(early.stop(score))
        manager.save_progress()
    assert told == [False, False, False, False, True, False]


# How often


def due(pace: Pace, times: list[float]) -> list[bool]:
    found = []
    for now in times:
        found.append(pace.is_due(now))
        if found[-1]:
            pace.saved(now, stall=0.01, writing=2.0)
    return found


def test_every_so_many() -> None:
    assert due(Pace(3), [0.0] * 7) == [True, False, False, True, False, False, True]
    assert all(due(Pace(1), [0.0] * 5))


@pytest.mark.parametrize(("every", "seconds"), [("30s", 30), ("0.5min", 30), ("2 h", 7200)])
def test_every_so_often(every: str, seconds: float) -> None:
    assert due(Pace(every), [0, seconds - 1, seconds, seconds + 1, 2 * seconds]) == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_auto_costs_little_and_loses_little() -> None:
    pace = Pace("auto")
    assert due(pace, [0, 2, 8, 9]) == [True, False, False, True]  # the root of 2 · 0.01 s · 3,600 s is 8.5 s
    pace.saved(10, stall=1000, writing=0)
    assert not pace.is_due(10 + 1000 / 0.035 - 1)
    assert pace.is_due(10 + 1000 / 0.035 + 1)
    pace.saved(0, stall=0, writing=50)
    assert (pace.is_due(49), pace.is_due(51)) == (False, True)


@pytest.mark.parametrize("every", [0, -1, "", "often", "5", "s", "-3s", "1 d", 2.5, None])
def test_what_is_no_pace(every: Any) -> None:
    with pytest.raises(ValueError, match="save_every is 'auto', a count such as 5 or a time such as '30s'"):
        Pace(every)
