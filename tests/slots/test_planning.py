"""Which slots come of what is asked for and what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.agent.gpus import Gpu
from stoker.agent.slots import (
    Slot,
    SlotPlan,
    child_environment,
    identity,
    plan_slots,
    usable_cores,
    used_by_others,
)
from stoker.core.errors import UsageError

GB = 1 << 30


def _gpu(index: int, used: int = 0, processes: tuple[int, ...] = (), total: int = 24 * GB) -> Gpu:
    return Gpu(index, f"GPU-{'abcdefgh'[index] * 8}", "X", total, used, processes)


FOUR = tuple(map(_gpu, range(4)))
DIVIDED = (
    Gpu(0, "MIG-one", "X MIG", 5 * GB, 0, (), 0),
    Gpu(0, "MIG-two", "X MIG", 5 * GB, 0, (), 2),
    _gpu(1),
)


def _brief(plan: SlotPlan) -> list[tuple[int, str, str, str]]:
    """Number, label, devices and identities of each slot, the latter shortened."""
    return [
        (
            slot.number,
            slot.label,
            slot.devices,
            " ".join(name.replace("GPU-", "")[:1] + name.partition("#")[2] for name in slot.identities),
        )
        for slot in plan.slots
    ]


@pytest.mark.parametrize(
    ("resource", "inherited", "expected"),
    [
        # As the machine has.
        (None, None, [(number, f"gpu {number}", str(number), "abcd"[number]) for number in range(4)]),
        # As the scheduler allots, in its order and spelling; CUDA stops at what is no GPU.
        (None, "2,1", [(0, "gpu 2", "2", "c"), (1, "gpu 1", "1", "b")]),
        (None, "GPU-dd, GPU-aaaaaaaa", [(0, "gpu 3", "GPU-dd", "d"), (1, "gpu 0", "GPU-aaaaaaaa", "a")]),
        (None, "0,2,-1,1", [(0, "gpu 0", "0", "a"), (1, "gpu 2", "2", "c")]),
        (None, "1,9,2", [(0, "gpu 1", "1", "b")]),
        (None, "1,1", [(0, "gpu 1", "1", "b")]),
        # As the study says: indices of the machine.
        (("0", "2,3"), None, [(0, "gpu 0", "0", "a"), (1, "gpus 2,3", "2,3", "c d")]),
        (("3", "GPU-bbbbbbbb"), None, [(0, "gpu 3", "3", "d"), (1, "gpu 1", "1", "b")]),
        (("", "-1"), None, [(0, "cpu 0", "", ""), (1, "cpu 1", "", "")]),
        # Repeats take further shares of a GPU.
        (("0", "0"), None, [(0, "gpu 0", "0", "a"), (1, "gpu 0 (2)", "0", "a1")]),
        (
            ("0,1", "1,2", "0", "1"),
            None,
            [
                (0, "gpus 0,1", "0,1", "a b"),
                (1, "gpus 1,2 (2)", "1,2", "b1 c"),
                (2, "gpu 0 (2)", "0", "a1"),
                (3, "gpu 1 (3)", "1", "b2"),
            ],
        ),
        (("0", "GPU-aaaaaaaa"), None, [(0, "gpu 0", "0", "a"), (1, "gpu 0 (2)", "0", "a1")]),
        # As the study says, within an allotment: indices of that.
        (("0", "1"), "2,3", [(0, "gpu 2", "2", "c"), (1, "gpu 3", "3", "d")]),
        (("0,1", ""), "GPU-dd,GPU-bb", [(0, "gpus 3,1", "GPU-dd,GPU-bb", "d b"), (1, "cpu 1", "", "")]),
        (("GPU-cccccccc",), "2,3", [(0, "gpu 2", "2", "c")]),
    ],
)
def test_slots_on_four_gpus(
    resource: tuple[str, ...] | None, inherited: str | None, expected: list[tuple[int, str, str, str]]
) -> None:
    plan = plan_slots(resource, FOUR, inherited, cores=32)
    assert _brief(plan) == expected
    assert (plan.busy, plan.notes) == ((), ())


@pytest.mark.parametrize(
    ("resource", "inherited", "message"),
    [
        (
            "4",
            None,
            "resource 4: this machine has no such GPU; it has 0, 1, 2, 3 (4 is a number, not how many;",
        ),
        ("GPU-nobody", None, "resource GPU-nobody: this machine has no such GPU"),
        (
            "2",
            "2,3",
            "resource 2: not among the GPUs that CUDA_VISIBLE_DEVICES=2,3 shows; say 0 to 1, counted",
        ),
        ("1", "2", "say 0, counted"),
        ("0", "", "which are none; unset the variable"),
        ("GPU-aaaaaaaa", "2,3", "not among the GPUs that CUDA_VISIBLE_DEVICES=2,3 shows"),
    ],
)
def test_what_is_not_there(resource: str, inherited: str | None, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        plan_slots(("", resource), FOUR, inherited, cores=8)
    assert message in str(raised.value)


def test_one_gpu_too_often() -> None:
    with pytest.raises(UsageError, match="resource 0,1: one GPU can have 64 slots at most"):
        plan_slots(("",) * 9 + ("1",) * 64 + ("0,1",), FOUR, None, cores=8)


@pytest.mark.parametrize("inherited", ["", "-1", "NoDevFiles", "7"])
def test_hidden_gpus_are_not_used_and_that_is_told(inherited: str) -> None:
    plan = plan_slots(None, FOUR, inherited, cores=4)
    assert [slot.label for slot in plan.slots] == ["cpu 0", "cpu 1"]
    assert plan.notes == (
        f"CUDA_VISIBLE_DEVICES={inherited} leaves no GPU to use: the slots are shares of the CPU",
    )


def test_instances_are_named_by_uuid_and_so_is_what_stands_beside_them() -> None:
    plan = plan_slots(None, DIVIDED, None, cores=8)
    assert [(slot.label, slot.devices) for slot in plan.slots] == [
        ("gpu 0:0", "MIG-one"),
        ("gpu 0:2", "MIG-two"),
        ("gpu 1", "GPU-bbbbbbbb"),
    ]
    explicit = plan_slots(("0", "MIG-two"), DIVIDED, None, cores=8)
    assert [slot.devices for slot in explicit.slots] == ["MIG-one", "MIG-two"]


# What others use


@pytest.mark.parametrize(
    ("gpu", "used"),
    [
        (_gpu(0), False),
        (_gpu(0, used=900 << 20), False),  # a desktop
        (_gpu(0, used=1100 << 20), True),
        (_gpu(0, used=600 << 20, total=8 * GB), True),
        (_gpu(0, used=500 << 20, total=8 * GB), False),
        (_gpu(0, used=2 * GB, total=80 * GB), True),
        (_gpu(0, processes=(7,)), True),
        (Gpu(0, "GPU-a", "X", None, None), False),
    ],
)
def test_who_computes_is_told_from_a_desktop(gpu: Gpu, used: bool) -> None:
    assert used_by_others([gpu]) == (frozenset({identity(gpu)}) if used else frozenset())
    assert not used_by_others([gpu], held=frozenset({identity(gpu)}))


def test_busy_gpus_are_left_out_and_the_others_keep_their_numbers() -> None:
    gpus = (_gpu(0, 9 * GB, (4242,)), _gpu(1), _gpu(2, 3 * GB), _gpu(3))
    plan = plan_slots(None, gpus, None, 32, used_by_others(gpus))
    assert [(slot.number, slot.label) for slot in plan.slots] == [(1, "gpu 1"), (3, "gpu 3")]
    assert [(busy.label, busy.reason) for busy in plan.busy] == [
        ("gpu 0", "9.7 GB in use, process 4242"),
        ("gpu 2", "3.2 GB in use"),
    ]
    # What was busy comes back under the number it would have had.
    assert {slot.number: slot for slot in plan_slots(None, gpus, None, 32).slots}[1] == plan.slots[0]


def test_with_all_gpus_busy_there_is_nothing_to_run_on() -> None:
    plan = plan_slots(None, FOUR, "1", 32, frozenset({"GPU-bbbbbbbb"}))
    assert (plan.slots, [busy.reason for busy in plan.busy]) == ((), ["in use"])


def test_a_gpu_that_is_named_is_used_though_others_do_and_that_is_told() -> None:
    gpus = (_gpu(0, 9 * GB, (1, 2, 3, 4)),)
    plan = plan_slots(("0", "0"), gpus, None, 8, used_by_others(gpus))
    assert len(plan.slots) == 2
    assert plan.notes == ("gpu 0: others use it too (9.7 GB in use, processes 1, 2, 3, …)",)


# GPUs that are not there, or cannot be read


def test_a_list_stands_where_there_are_no_gpus() -> None:
    plan = plan_slots(("0", "2,3", "GPU-12345678-9"), (), "5", cores=8)
    assert [(slot.label, slot.devices, slot.identities) for slot in plan.slots] == [
        ("gpu 0", "0", ("gpu-index:0",)),
        ("gpus 2,3", "2,3", ("gpu-index:2", "gpu-index:3")),
        ("gpu GPU-12345678", "GPU-12345678-9", ("GPU-12345678-9",)),
    ]
    assert plan.notes == ("no GPU is found here; the slots are those of `resource` all the same",)
    assert plan_slots(("", ""), (), None, cores=8).notes == ()


def test_a_number_that_may_be_meant_as_how_many() -> None:
    (note,) = plan_slots(("4",), (), None, cores=8).notes
    assert note == (
        "no GPU is found here, and `resource: 4` is one slot, on the GPU of that number; "
        "two slots without a GPU are resource: ['', '']"
    )
    assert "that number" not in plan_slots(("0",), (), None, cores=8).notes[0]
    assert plan_slots(("-1",), (), None, cores=8).notes == ()


def test_a_scheduler_is_believed_where_gpus_cannot_be_read() -> None:
    plan = plan_slots(None, None, "2,GPU-abc", cores=8)
    assert [(slot.label, slot.devices, slot.identities) for slot in plan.slots] == [
        ("gpu 2", "2", ("gpu-index:2",)),
        ("gpu GPU-abc", "GPU-abc", ("GPU-abc",)),
    ]
    assert plan_slots(("1",), None, "2,4", cores=8).slots[0].devices == "4"
    assert plan_slots(("1",), None, None, cores=8).slots[0].devices == "1"


def test_nothing_is_guessed_where_gpus_cannot_be_read() -> None:
    with pytest.raises(UsageError, match="name them"):
        plan_slots(None, None, None, cores=8)


# CPU shares and threads


@pytest.mark.parametrize(
    ("cores", "slots", "threads"),
    [(1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 2, 2), (9, 4, 2), (16, 8, 2), (96, 8, 12)],
)
def test_shares_of_the_cpu(cores: int, slots: int, threads: int) -> None:
    plan = plan_slots(None, (), None, cores)
    assert [slot.label for slot in plan.slots] == [f"cpu {number}" for number in range(slots)]
    assert {value for slot in plan.slots for value in slot.defaults.values()} == {str(threads)}
    assert all(not slot.identities and not slot.environment for slot in plan.slots)


@pytest.mark.parametrize(
    ("resource", "threads"),
    [(None, "8"), (("0", "1"), "16"), (("0,1", "2,3"), "8"), (("0",), None), (("0",) * 64, "1")],
)
def test_gpu_slots_share_the_cores(resource: tuple[str, ...] | None, threads: str | None) -> None:
    assert plan_slots(resource, FOUR, None, 32).slots[0].defaults.get("OMP_NUM_THREADS") == threads


def test_gpus_are_set_and_threads_only_where_the_user_did_not() -> None:
    slot = plan_slots(("3", "0"), FOUR, None, cores=8).slots[0]
    shell = {"HOME": "/h", "MKL_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "0", "RAYON_NUM_THREADS": "5"}
    assert child_environment(slot, shell, {"RAYON_NUM_THREADS": "6"}) == {
        "HOME": "/h",
        "CUDA_VISIBLE_DEVICES": "3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": "4",
        "PYTHONUNBUFFERED": "1",
        "MKL_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": "4",
        "NUMEXPR_NUM_THREADS": "4",
        "VECLIB_MAXIMUM_THREADS": "4",
        "RAYON_NUM_THREADS": "6",
        "TF_NUM_INTRAOP_THREADS": "4",
    }


def test_who_sets_omp_has_set_those_that_follow_it() -> None:
    slot = plan_slots(None, (), None, cores=8).slots[0]
    assert child_environment(slot, {}, {"OMP_NUM_THREADS": "7"}) == {
        "OMP_NUM_THREADS": "7",
        "PYTHONUNBUFFERED": "1",
        "VECLIB_MAXIMUM_THREADS": "2",
        "RAYON_NUM_THREADS": "2",
        "TF_NUM_INTRAOP_THREADS": "2",
    }


@pytest.mark.parametrize("entry", ["", "-1"])
def test_a_slot_without_gpus_hides_those_of_the_machine(entry: str) -> None:
    slot: Slot = plan_slots((entry,), FOUR, None, cores=8).slots[0]
    assert child_environment(slot, {}, {})["CUDA_VISIBLE_DEVICES"] == entry


# Cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "150000 100000"}, 1),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "100000 100000"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        (
            {
                "proc/self/cgroup": "3:cpuset:/x\n2:cpu,cpuacct:/docker/1234\n0::/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            1,
        ),
        (
            {
                "proc/self/cgroup": "2:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000000 100000"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "what is this"}, None),
    ],
)
def test_cores_within_the_quota(tmp_path: Path, files: dict[str, str], cores: int | None) -> None:
    unlimited = usable_cores(tmp_path / "nothing")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == (cores or unlimited)
