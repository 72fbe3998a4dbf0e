from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from stoker.store import records
from stoker.store.records import TrialId
from stoker.study import summaries
from stoker.study.summaries import Head, Result, decode_head, decode_results, encode

BODIES: dict[int, tuple[int, dict[str, Any] | None]] = {
    1001: (1, {"v": 1, "status": "finished", "train": {"seconds": 2.5}, "trial": "é\u2028 is no line"}),
    1002: (3, {"v": 1, "status": "failed", "why": "lost"}),
    1004: (1, {"v": 1, "status": "stopped"}),
    1005: (1, None),
}


def test_what_is_encoded_is_decoded() -> None:
    data = encode(2, 1, 5, BODIES)
    head = json.loads(data.split(b"\n")[0])
    assert head == {"v": 1, "iteration": 2, "range": 1, "status": "fx-sx", "rounds": {"1002": 3}}
    assert decode_head(data) == Head(2, 1, "fx-sx", {1002: 3})
    assert decode_results(data) == [
        Result(TrialId(2, number), round_, body or {}) for number, (round_, body) in BODIES.items()
    ]


def test_a_range_in_which_nothing_is_to_be_run() -> None:
    data = encode(1, 0, 3, {})
    assert decode_head(data) == Head(1, 0, "---", {})
    assert decode_results(data) == []


def test_a_torn_summary_is_none() -> None:
    data = encode(2, 1, 5, BODIES)
    for end in range(len(data) - 1):
        assert decode_results(data[:end]) is None
        head = decode_head(data[:end])
        assert head is None if end < data.index(b"\n") else head == decode_head(data)


def test_damage_never_raises() -> None:
    data, random = encode(2, 1, 5, BODIES), Random(1)
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(len(damaged))] = random.choice(b'\0\n"{}[]0-x,\xff')
        decode_head(bytes(damaged))
        decode_results(bytes(damaged))


@pytest.mark.parametrize(
    "head",
    [
        {"iteration": 1, "range": 0, "status": "f?"},
        {"iteration": 1, "range": 0, "status": "f", "rounds": []},
        {"iteration": 1, "range": 0, "status": "f" * 1001, "rounds": {}},
        {"iteration": "one", "range": 0, "status": "f", "rounds": {}},
        {"iteration": 1, "range": 0, "status": "f", "rounds": {"1": "many"}},
        {"status": "f"},
    ],
)
def test_a_foreign_object_is_none(head: dict[str, Any]) -> None:
    assert decode_head(records.encode(head)) is None
    assert decode_results(records.encode(head)) is None


def test_other_versions_are_none() -> None:
    data = encode(1, 0, 1, {1: (1, {"status": "finished"})})
    assert decode_head(data.replace(b'"v": 1', b'"v": 2', 1)) is None
    assert decode_head(None) is None
    assert decode_results(b"") is None


def test_an_unreadable_result_has_failed() -> None:
    for body in (None, {}, {"status": "splendid"}):
        assert summaries.status_of(body) is records.Status.FAILED
