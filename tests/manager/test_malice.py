"""Whoever can write to a store may put anything into a checkpoint: none of it runs."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from stoker.manager import tree
from stoker.manager.trial import Trial
from tests.manager.making import Make

RANDOM = {"python": {"!tuple": [3, {"!tuple": [0] * 624 + [624]}, None]}, "tracked": {}}


class Bomb:
    """What a pickle of this loads is a file that is made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    (tmp_path / "trial" / "checkpoints").mkdir(parents=True)
    return Trial({}, str(tmp_path / "trial"), attempt=(1, 2))


def forge(path: Path, state: Any, data: bytes = b"", leaves: Any = (), **more: Any) -> None:
    """A file in our format, right in all that can be checked."""
    told = {"state": state, "leaves": list(leaves), "crc": zlib.crc32(data), "size": len(data), **more}
    write(path, json.dumps(told).encode(), data)


def write(path: Path, text: bytes, data: bytes = b"") -> None:
    text += b" " * (-(20 + len(text)) % 64)
    path.write_bytes(struct.pack("<8sQI", tree.MAGIC, len(text), zlib.crc32(text)) + text + data)


def forge_state(trial: Trial, objects: Any, data: bytes = b"", leaves: Any = (), **more: Any) -> None:
    state = {"objects": objects, "random": RANDOM, "data": None, "notes": {}}
    about = {"attempt": [1, 1], "counts": {}, "params": None, "best": None, **more}
    forge(Path(trial.checkpoints) / "train.1-1.000001.state", state, data, leaves, **about)


def test_what_is_forged_here_is_taken_if_it_is_harmless(trial: Trial, make: Make) -> None:
    leaf = {"is": "bytes", "at": 0, "bytes": 3}
    forge_state(trial, {"x": {"a": {"!leaf": 0}}}, b"abc", [leaf])
    x: dict[str, Any] = {}
    manager = make(trial)
    manager.track(x=x)
    assert x == {"a": b"abc"}


def test_a_pickle_in_a_state(trial: Trial, make: Make, tmp_path: Path) -> None:
    data = pickle.dumps(Bomb(tmp_path / "ran"))
    forge_state(trial, {"x": {"!leaf": 0}}, data, [{"is": "pickle", "at": 0, "bytes": len(data)}])
    with pytest.raises(
        TypeError, match=r"000001\.state is refused: it has a pickle in it, which may run anything"
    ):
        make(trial)
    assert not (tmp_path / "ran").exists()
    make(trial, allow_pickle=True)
    assert (tmp_path / "ran").exists()  # so it would have run


def test_pickles_as_parameters(trial: Trial, make: Make, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    manager = make(trial)
    torch.save({"w": torch.zeros(2), "x": Bomb(tmp_path / "ran")}, tmp_path / "bomb.pt")
    with pytest.raises(TypeError, match=r"bomb\.pt is refused: it is torch's, with more than tensors in it"):
        manager.load(str(tmp_path / "bomb.pt"))
    torch.save(Bomb(tmp_path / "ran"), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "plain.pickle").write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    for name in ("old.pt", "plain.pickle"):
        assert manager.load(str(tmp_path / name)) == (tmp_path / name).read_bytes()
    data = pickle.dumps(Bomb(tmp_path / "ran"))
    forge(tmp_path / "ours", {"!leaf": 0}, data, [{"is": "pickle", "at": 0, "bytes": len(data)}])
    with pytest.raises(TypeError, match="ours is refused: it has a pickle"):
        manager.load(str(tmp_path / "ours"))
    (tmp_path / "broken.pt").write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(ValueError, match=r"broken\.pt is damaged: torch cannot read it"):
        manager.load(str(tmp_path / "broken.pt"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..", "", 7, None, ["x"]])
@pytest.mark.parametrize("kind", ["params", "best"])
def test_a_part_that_is_somewhere_else(
    trial: Trial, make: Make, tmp_path: Path, name: object, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_bytes(b"secret")
    more: dict[str, Any] = {kind: {"file": name, "crc": zlib.crc32(b"secret")}}
    forge_state(trial, {}, **more)
    manager = make(trial)
    assert not manager.is_resumed
    assert "which is no file of a checkpoint; going on" in capsys.readouterr().err


LIES: dict[str, dict[str, Any]] = {
    "more bytes than there are": {"is": "bytes", "at": 0, "bytes": 999},
    "bytes before the first": {"is": "bytes", "at": -4, "bytes": 4},
    "no number of bytes": {"is": "bytes", "at": 0, "bytes": "16"},
    "a tensor larger than its bytes": {
        "is": "tensor",
        "dtype": "float32",
        "shape": [10**12],
        "at": 0,
        "bytes": 16,
    },
    "a tensor of no bytes": {"is": "tensor", "dtype": "float32", "shape": [10**12], "at": 0, "bytes": 0},
    "a negative shape": {"is": "tensor", "dtype": "float32", "shape": [-2, -2], "at": 0, "bytes": 16},
    "a shape of words": {"is": "tensor", "dtype": "float32", "shape": ["4"], "at": 0, "bytes": 16},
    "no type": {"is": "tensor", "dtype": "load", "shape": [4], "at": 0, "bytes": 16},
    "no such type": {"is": "tensor", "dtype": "float33", "shape": [4], "at": 0, "bytes": 16},
    "an array of objects": {"is": "array", "dtype": "|O", "shape": [2], "at": 0, "bytes": 16},
    "an array of nothing": {"is": "array", "dtype": "|S0", "shape": [10**12], "at": 0, "bytes": 0},
    "an array larger than its bytes": {
        "is": "array",
        "dtype": "<f8",
        "shape": [10**12],
        "at": 0,
        "bytes": 16,
    },
    "a scalar of none": {"is": "scalar", "dtype": "<f8", "shape": [0], "at": 0, "bytes": 0},
    "nothing at all": {},
}


@pytest.mark.parametrize("leaf", LIES.values(), ids=LIES.keys())
def test_sizes_and_shapes_that_lie(
    trial: Trial, make: Make, leaf: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch" if leaf.get("is") == "tensor" else "numpy")
    forge_state(trial, {"x": {"!leaf": 0}}, bytes(16), [leaf])
    assert not make(trial).is_resumed
    assert "train.1-1.000001.state is damaged" in capsys.readouterr().err


HEADS: dict[str, dict[str, Any]] = {
    "a size that lies": {"size": 10**15},
    "a size below zero": {"size": -1},
    "a size in words": {"size": "16"},
    "leaves that are none": {"leaves": 3},
    "a leaf that is not there": {"state": {"!leaf": 9}},
    "a key that is no key": {"state": {"!dict": [[[1], 2]]}},
    "an odd pair": {"state": {"!ordered": [[1, 2, 3]]}},
    "no state": {"state": [1, 2]},
    "an attempt elsewhere": {"attempt": ["../../x", 1]},
    "an attempt of no kind": {"attempt": None},
    "counts in words": {"counts": {"loss": "many"}},
    "counts below zero": {"counts": {"loss": -1}},
    "a part in words": {"best": "best"},
    "an epoch in words": {"epoch": "last"},
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_beginnings_that_lie(
    trial: Trial, make: Make, head: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(trial.checkpoints) / "train.1-1.000001.state"
    state = {"objects": {}, "random": RANDOM, "data": None, "notes": {}}
    whole = {"state": state, "leaves": [], "crc": 0, "size": 0, "attempt": [1, 1], "counts": {}}
    write(path, json.dumps(whole).encode())
    assert make(trial).is_resumed
    write(path, json.dumps({**whole, **head}).encode())
    assert not make(trial).is_resumed
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", [b"[" * 10**5, b'{"state":' + b"[" * 10**5 + b"]" * 10**5 + b"}", b"\xff\xfe{", b"7", b"{} {}"]
)
def test_json_that_is_none(
    trial: Trial, make: Make, text: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(Path(trial.checkpoints) / "train.1-1.000001.state", text)
    manager = make(trial)
    assert not manager.is_resumed
    assert "train.1-1.000001.state is no checkpoint of Stoker" in capsys.readouterr().err


def test_lists_in_lists(trial: Trial, make: Make, tmp_path: Path) -> None:
    (tmp_path / "deep").write_bytes(b"[" * 10**5 + b"]" * 10**5)
    with pytest.raises(ValueError, match="deep is damaged: it is nested too deeply"):
        make(trial).load(str(tmp_path / "deep"))


def test_progress_that_is_none(trial: Trial, make: Make) -> None:
    forge_state(trial, {}, counts={"loss": 3})
    lines = [
        '{"v": 1, "stage": "train", "attempt": [1, 1], "after": {"attempt": ["../x", 0], "counts": []}}',
        "[" * 10**5,
        '{"name": "loss", "values": [1, "x"]}',
        '{"name": "loss", "values": [1], "steps": [1, 2]}',
        '{"name": ["loss"], "values": [1]}',
        '{"name": "loss", "values": {"a": 1}}',
        '{"name": "loss", "values": [' + "9" * 400 + "]}",
        '{"name": "loss", "values": [1.5], "times": [null]}',
        '{"name": "loss", "values": [7]}',
    ]
    Path(trial.directory, "progress.train.1-1.jsonl").write_text("\n".join(lines))
    assert make(trial).get_progress() == {"loss": [7.0]}
