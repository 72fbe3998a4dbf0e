"""Faults: how often they strike, when, and whom. Decided by numbers alone, so nothing here needs a cloud."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.errors import UsageError
from stoker.emulator.errors import ApiError
from stoker.emulator.fault_file import faults_from
from stoker.emulator.faults import BOOTS, KINDS, PREEMPTIONS, REPLIES, ZONES, Fault, Faults, fault_of

ZONE = "us-central1-a"


def faults(*added: Fault, seed: int = 1) -> Faults:
    found = Faults(Random(seed))
    for one in added:
        found.add(one, 0.0)
    return found


def strikes(found: Faults, requests: int, now: float = 1.0) -> list[bool]:
    return [found.of_request("storage", "GET", "/x", now) is not None for _ in range(requests)]


# Reading


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "error"},
        {
            "kind": "error",
            "api": "storage",
            "method": "PUT",
            "path": "^/b",
            "status": 429,
            "rate": 0.5,
            "times": 3,
        },
        {"kind": "preempt", "moments": [3, 1.5], "zone": ZONE, "name": "worker-"},
        {"kind": "slow", "seconds": 2, "lasts": 60},
    ],
)
def test_a_fault_from_json(data: dict[str, Any]) -> None:
    made = fault_of(data)
    for name, value in data.items():
        kept = getattr(made, name)
        assert sorted(value) == list(kept) if name == "moments" else kept == value


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        None,
        {"kind": "flood"},
        {"kind": ["error"]},
        {"kind": "error", "colour": "red"},
        {"kind": "error", "times": "3"},
        {"kind": "error", "times": 1.5},
        {"kind": "error", "times": True},
        {"kind": "error", "status": "503"},
        {"kind": "error", "status": 503.5},
        {"kind": "error", "status": 200},
        {"kind": "error", "status": 600},
        {"kind": "error", "rate": -0.1},
        {"kind": "error", "rate": "often"},
        {"kind": "error", "rate": float("nan")},
        {"kind": "error", "lasts": float("inf")},
        {"kind": "error", "after": -1},
        {"kind": "error", "path": "("},
        {"kind": "error", "path": None},
        {"kind": "error", "name": "["},
        {"kind": "error", "id": 5},
        {"kind": "error", "api": "stroage"},
        {"kind": "error", "moments": [1]},
        {"kind": "preempt", "moments": "123"},
        {"kind": "preempt", "moments": 5},
        {"kind": "preempt", "moments": [1, "2"]},
        {"kind": "preempt", "moments": [-1]},
        {"kind": "preempt", "after": 2},
    ],
)
def test_what_makes_no_sense_is_refused(data: Any) -> None:
    with pytest.raises(ApiError, match="fault: ") as raised:
        fault_of(data)
    assert raised.value.code == 400


def test_a_status_has_its_usual_reason() -> None:
    assert fault_of({"kind": "error"}).reason == "backendError"
    assert fault_of({"kind": "error", "status": 429}).reason == "rateLimitExceeded"
    assert fault_of({"kind": "error", "status": 403, "reason": "quotaExceeded"}).reason == "quotaExceeded"


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.floats()), st.just("(")
)


@given(
    kind=st.sampled_from(KINDS),
    rest=st.dictionaries(st.sampled_from([*Fault.__dataclass_fields__, "x"]), _VALUES),
)
def test_whatever_comes_is_refused_or_works(kind: str, rest: dict[str, Any]) -> None:
    try:
        made = fault_of({**rest, "kind": kind})
    except ApiError:
        return
    found = faults(made)
    for now in (0.0, 1.0, 1e9):
        found.of_request("storage", "GET", "/x", now)
        found.of_vm((*ZONES, *BOOTS), ZONE, "vm", now)
        found.preemptions({"vm": ZONE}, 1.0, now)


# Requests


@pytest.mark.parametrize("kind", REPLIES)
def test_where(kind: str) -> None:
    found = faults(Fault(kind, api="storage", method="put", path="/b/.*x$"))
    assert found.of_request("storage", "PUT", "/b/ax", 1) is not None
    assert found.of_request("compute", "PUT", "/b/ax", 1) is None
    assert found.of_request("storage", "GET", "/b/ax", 1) is None
    assert found.of_request("storage", "PUT", "/b/ay", 1) is None
    assert found.of_vm((*ZONES, *BOOTS), ZONE, "vm", 1) is None
    assert found.preemptions({"vm": ZONE}, 1e9, 1) == []


@given(times=st.integers(1, 20), after=st.integers(0, 20), requests=st.integers(0, 60))
def test_after_and_times_are_exact(times: int, after: int, requests: int) -> None:
    met = strikes(faults(Fault("error", times=times, after=after)), requests)
    assert met == ([False] * after + [True] * times + [False] * requests)[:requests]


@given(rate=st.floats(0, 1), seed=st.integers(0, 1000))
def test_a_rate_is_kept(rate: float, seed: int) -> None:
    met = sum(strikes(faults(Fault("error", rate=rate), seed=seed), 2000)) / 2000
    assert abs(met - rate) <= 6 * (rate * (1 - rate) / 2000) ** 0.5 + 1e-9


def test_the_same_seed_gives_the_same() -> None:
    one, two, three = (strikes(faults(Fault("error", rate=0.5), seed=seed), 200) for seed in (1, 1, 2))
    assert one == two != three


@given(lasts=st.floats(0.1, 1e6), began=st.floats(0, 1e6))
def test_it_lasts_as_long_as_it_says(lasts: float, began: float) -> None:
    found = Faults(Random(1))
    found.add(Fault("error", lasts=lasts), began)
    assert strikes(found, 1, began) == strikes(found, 1, began + 0.99 * lasts) == [True]
    assert strikes(found, 1, began + 1.01 * lasts) == [False]


def test_the_first_that_is_met_counts_alone() -> None:
    found = faults(Fault("error", times=1), Fault("slow", times=1), Fault("drop", api="compute"))
    kinds = [fault and fault.kind for fault in (found.of_request("storage", "GET", "/", 1) for _ in range(3))]
    assert kinds == ["error", "slow", None]
    assert found.counts() == {"1": 1, "2": 1, "3": 0}


def test_many_threads_get_no_more_than_there_is() -> None:
    found, met = faults(Fault("error", times=100, after=50)), []

    def ask() -> None:
        met.extend(strikes(found, 200))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(met) == 100


# Ids


def test_a_fault_is_removed_by_its_id() -> None:
    found = Faults(Random(1))
    one, mine = found.add(Fault("error"), 0.0), found.add(Fault("slow", id="mine"), 0.0)
    assert mine.id == "mine"
    assert found.remove(one.id) is True
    assert found.remove(one.id) is False
    assert found.all() == [mine]
    found.remove()
    assert found.all() == []


def test_ids_of_ours_do_not_replace_given_ones() -> None:
    found = Faults(Random(1))
    for fault in (Fault("error", id="1"), Fault("drop", id="2"), Fault("slow"), Fault("quota")):
        found.add(fault, 0.0)
    assert [fault.kind for fault in found.all()] == ["error", "drop", "slow", "quota"]


def test_the_same_id_replaces() -> None:
    found = Faults(Random(1))
    found.add(Fault("error", id="mine", times=1), 0.0)
    assert strikes(found, 2) == [True, False]
    found.add(Fault("error", id="mine", times=1), 0.0)
    assert strikes(found, 2) == [True, False]
    assert len(found.all()) == 1


# VMs


def test_zones_and_regions() -> None:
    for zone in ("", ZONE, "us-central1"):
        assert faults(Fault("exhausted", zone=zone)).of_vm(ZONES, ZONE, "vm", 1) is not None
    for zone in ("us-central1-b", "us", "us-east1", "us-central1-"):
        assert faults(Fault("exhausted", zone=zone)).of_vm(ZONES, ZONE, "vm", 1) is None
    assert faults(Fault("exhausted")).of_vm(BOOTS, ZONE, "vm", 1) is None
    assert faults(Fault("boot-failure", name="^a")).of_vm(BOOTS, ZONE, "ab", 1) is not None
    assert faults(Fault("boot-failure", name="^a")).of_vm(BOOTS, ZONE, "ba", 1) is None


def test_kinds_may_be_given_in_any_way() -> None:
    found = faults(Fault("quota"), Fault("slow-boot"))
    assert found.of_vm(iter(["slow-boot"]), ZONE, "vm", 1) == found.all()[1]


# Preemptions


_MOMENTS = st.lists(st.floats(0, 100), min_size=1, max_size=12)
_FLEETS = st.lists(st.integers(0, 4), min_size=1, max_size=40)


@given(several=st.lists(_MOMENTS, min_size=1, max_size=3), fleets=_FLEETS, seed=st.integers(0, 99))
def test_no_moment_is_lost_or_doubled(several: list[list[float]], fleets: list[int], seed: int) -> None:
    """Whatever number of VMs runs when they are due: those that find none wait."""
    found = faults(*(fault_of({"kind": "preempt", "moments": moments}) for moments in several), seed=seed)
    every, gone, now = [moment for moments in several for moment in moments], 0, 0.0
    for fleet in [*fleets, *([4] * len(every))]:
        now += 100 / len(fleets)
        running = {f"vm-{number}": ZONE for number in range(fleet)}
        taken = found.preemptions(running, 100 / len(fleets), now)
        assert len(set(taken)) == len(taken)
        assert set(taken) <= set(running)
        due = sum(1 for moment in every if moment <= now) - gone
        assert len(taken) == min(fleet, due)
        gone += len(taken)
    assert gone == len(every)


def test_moments_of_one_zone_take_nobody_elsewhere() -> None:
    found = faults(Fault("preempt", moments=(1.0, 2.0), zone="us-east1"))
    running = {"here": ZONE, "there": "us-east1-b"}
    assert found.preemptions(running, 5, 5) == ["there"]
    assert found.preemptions({"here": ZONE}, 5, 10) == []
    assert found.preemptions(running, 5, 15) == ["there"]
    assert found.preemptions(running, 5, 20) == []


def test_moments_count_from_when_the_fault_was_added() -> None:
    found = Faults(Random(1))
    found.add(Fault("preempt", moments=(10.0,)), 1000.0)
    assert found.preemptions({"vm": ZONE}, 1, 1009.9) == []
    assert found.preemptions({"vm": ZONE}, 1, 1010.1) == ["vm"]


@given(rate=st.floats(0, 100), step=st.floats(0.1, 3600), seed=st.integers(0, 999))
def test_a_rate_of_preemptions_does_not_depend_on_how_often_one_asks(
    rate: float, step: float, seed: int
) -> None:
    """What survives an hour is e^-rate of them, whatever the steps."""
    found, running, passed = (
        faults(Fault("preempt", rate=rate), seed=seed),
        {str(n): ZONE for n in range(300)},
        0.0,
    )
    step = max(step, 60.0)
    while passed < 600:
        passed += step
        for name in found.preemptions(running, step, passed):
            del running[name]
    expected = 2.718281828 ** (-rate * passed / 3600)
    assert abs(len(running) / 300 - expected) <= 6 * (expected * (1 - expected) / 300) ** 0.5 + 0.004


def test_times_limits_preemptions_of_both_kinds() -> None:
    running = {f"vm-{number}": ZONE for number in range(10)}
    assert len(faults(Fault("preempt", rate=1e9, times=3)).preemptions(running, 10, 10)) == 3
    found = faults(Fault("preempt", moments=(1.0,) * 8, times=3))
    assert [len(found.preemptions(running, 10, now)) for now in (10, 20, 30)] == [3, 0, 0]


def test_two_faults_take_two_vms() -> None:
    found = faults(Fault("preempt", moments=(1.0,)), Fault("preempt", moments=(1.0,)))
    assert sorted(found.preemptions({"a": ZONE, "b": ZONE}, 5, 5)) == ["a", "b"]
    found = faults(Fault("preempt", moments=(1.0,)), Fault("preempt", moments=(1.0,)))
    assert [found.preemptions({"a": ZONE}, 5, now) for now in (5, 6, 7)] == [["a"], ["a"], []]


def test_preemptions_are_no_answers_to_requests() -> None:
    assert strikes(faults(Fault("preempt", rate=1e9)), 3) == [False] * 3
    assert faults(Fault("preempt")).of_vm((*ZONES, *BOOTS), ZONE, "vm", 1) is None
    assert PREEMPTIONS[0] in KINDS


# Files


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_list_in_yaml(tmp_path: Path) -> None:
    path = write(
        tmp_path, "faults.yaml", "- {kind: preempt, rate: 6}\n- kind: error\n  api: storage\n  status: 429\n"
    )
    assert faults_from(path) == [
        Fault("preempt", rate=6),
        Fault("error", api="storage", status=429, reason="rateLimitExceeded"),
    ]


def test_a_list_in_json(tmp_path: Path) -> None:
    path = write(tmp_path, "faults.json", json.dumps([{"kind": "quota", "times": 2}]))
    assert faults_from(path) == [Fault("quota", times=2)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trace.csv", "seconds,zone\n3.5,us-central1-a\n1\n2,us-central1-a\n"),
        ("trace.csv", "# from last week\n3.5, us-central1-a\n1,\n\n2,us-central1-a"),
        (
            "trace.json",
            '[{"seconds": 3.5, "zone": "us-central1-a"}, 1, {"seconds": 2, "zone": "us-central1-a"}]',
        ),
    ],
)
def test_a_trace(name: str, text: str, tmp_path: Path) -> None:
    wanted = [Fault("preempt", zone=ZONE, moments=(2.0, 3.5)), Fault("preempt", moments=(1.0,))]
    assert faults_from(write(tmp_path, name, text)) == wanted
    among = write(
        tmp_path, "faults.yaml", f"- {{kind: slow}}\n- {{kind: preempt, name: worker, trace: {name}}}\n"
    )
    slow, *traced = faults_from(among)
    assert slow == Fault("slow")
    assert [(fault.zone, fault.moments, fault.name) for fault in traced] == [
        (fault.zone, fault.moments, "worker") for fault in wanted
    ]


@given(moments=st.lists(st.floats(0, 1e6), min_size=1))
def test_a_trace_keeps_every_moment(moments: list[float], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = write(tmp_path_factory.mktemp("trace"), "trace.csv", "\n".join(map(repr, moments)))
    (fault,) = faults_from(path)
    assert list(fault.moments) == sorted(moments)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yaml", "- {kind: error, colour: red}", "a.yaml: number 1: fault: unknown key 'colour'"),
        ("a.yaml", "- {kind: error}\n- {kind: flood}", "a.yaml: number 2: fault: kind is one of"),
        ("a.yaml", "kind: error", "expected a list of faults"),
        ("a.yaml", "", "expected a list of faults"),
        ("a.yaml", "- [", "a.yaml: "),
        ("a.yaml", "- {kind: preempt, trace: none.csv}", "none.csv: No such file"),
        ("a.json", "{", "a.json: "),
        ("a.json", '["soon"]', "moment 1: expected seconds, not 'soon'"),
        ("a.json", "[-1]", "not negative"),
        ("a.csv", "", "a.csv: it has no moments"),
        ("a.csv", "seconds\n", "a.csv: it has no moments"),
        ("a.csv", "1\nlater\n", "moment 2: expected seconds, not 'later'"),
    ],
)
def test_a_wrong_file_is_told(name: str, text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        faults_from(write(tmp_path, name, text))
    assert told in str(raised.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        faults_from(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="Is a directory"):
        faults_from(tmp_path)
