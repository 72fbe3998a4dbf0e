"""What a machine has, and who uses it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from stoker.agent.gpus import Gpu, Inventory
from stoker.agent.locks import Locks, Owner
from stoker.checkup.finding import Verdict
from stoker.checkup.machine import judge_gpus, judge_now, judge_python, memory_limit, parse_memory
from tests.slots.test_gpus import FAKE
from tests.stories.command import stoker

A, B = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-11111111-2222-3333-4444-555555555555"
GB = 10**9
MEMINFO = (
    "MemTotal:       24682416 kB\nMemFree:        1 kB\nMemAvailable:   20000000 kB\nHugepagesize: 2048 kB\n"
)


@pytest.mark.parametrize(
    ("version", "verdict"),
    [((3, 9, 18), Verdict.BAD), ((3, 10, 0), Verdict.OK), ((3, 14, 1), Verdict.OK)],
)
def test_python(version: tuple[int, ...], verdict: Verdict) -> None:
    assert judge_python(version, "/usr/bin/python3").verdict is verdict


def test_the_time() -> None:
    assert judge_now(time.time()).verdict is Verdict.OK
    assert judge_now(0.0).verdict is Verdict.WARNING
    assert judge_now(5e9).verdict is Verdict.WARNING


def test_memory() -> None:
    assert parse_memory(MEMINFO) == (24682416 * 1024, 20000000 * 1024)
    assert parse_memory("MemTotal: 5 kB\n") is None


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/job/step\n", {"job/memory.max": "8000", "job/step/memory.max": "max"}, 8000),
        ("0::/job\n", {"memory.max": "100", "job/memory.max": "500"}, 100),
        ("4:memory:/job\n3:cpu:/x\n", {"memory/job/memory.limit_in_bytes": "7000"}, 7000),
        ("0::/job\n", {}, None),
        ("", {}, None),
    ],
)
def test_limits_of_memory(tmp_path: Path, groups: str, files: dict[str, str], limit: int | None) -> None:
    for name, text in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{n}": t for n, t in files.items()},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_limit(tmp_path) == limit


def test_gpus_and_who_holds_them(tmp_path: Path) -> None:
    locks = Locks(tmp_path)
    two = Gpu(0, A, "A100", 40 * GB, GB), Gpu(1, B, "A100", 40 * GB, 30 * GB, (4242, 4243))
    divided = Gpu(2, "MIG-7", "A100 MIG 1g.5gb", None, None, (), 3)
    owner = Owner("/home/you/x", "you", 77, time.mktime((2026, 1, 31, 12, 0, 0, 0, 0, -1)))
    with locks.try_acquire((A,), owner):  # type: ignore[union-attr]  # nobody else holds it
        told = {check.name: check.found for check in judge_gpus(Inventory((*two, divided)), locks)}
    assert told == {
        "GPU 0": (
            "A100, 39 GB free of 40 GB, held by you, study /home/you/x, process 77, since 2026-01-31 12:00"
        ),
        "GPU 1": "A100, 10 GB free of 40 GB, in use by process 4242, 4243",
        "GPU 2:3": "A100 MIG 1g.5gb, free",
    }


@pytest.mark.parametrize(
    ("inventory", "verdicts"),
    [
        (Inventory((), "there is no nvidia-smi"), [Verdict.OK]),
        (Inventory(None, "NVML: Driver/library version mismatch"), [Verdict.WARNING]),
        (Inventory((Gpu(0, A, "A100", 1, 0),), "GPU 1: GPU is lost"), [Verdict.OK, Verdict.WARNING]),
    ],
)
def test_gpus_that_are_not_there(tmp_path: Path, inventory: Inventory, verdicts: list[Verdict]) -> None:
    checks = list(judge_gpus(inventory, Locks(tmp_path)))
    assert [check.verdict for check in checks] == verdicts
    assert inventory.reason in checks[-1].found


def test_gpus_of_a_driver(workplace: Path) -> None:
    gpu = {"uuid": A, "name": "A100 \x1b[2J", "total": 40 * GB, "used": GB, "pids": []}
    path = os.pathsep.join(filter(None, (str(FAKE), os.environ.get("PYTHONPATH"))))
    shown = stoker("doctor", "nowhere", PYTHONPATH=path, FAKE_NVML=json.dumps({"gpus": [gpu]})).stdout
    assert "✔ GPU 0" in shown
    assert "A100 ·[2J, 39 GB free of 40 GB, free" in shown
