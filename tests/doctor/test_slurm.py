"""Slurm: what its commands say in several versions, and a real cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.checkup.finding import Answer, Verdict
from stoker.checkup.slurm import is_here as slurm_is_here
from stoker.checkup.slurm import (
    judge_accounting,
    judge_config,
    judge_missing,
    judge_partitions,
    judge_place,
    look,
    parse_config,
    parse_version,
)
from stoker.engines.slurm.partitions import Partition, parse_partitions
from tests.doctor.needs import give_up
from tests.slurm import cluster
from tests.stories.command import stoker

CONFIG_22 = """\
Configuration data as of 2026-01-31T23:59:59
AccountingStorageType   = accounting_storage/none
JobRequeue              = 1
MaxArraySize            = 101
MaxDBDMsgs              = 0
PowerPlugin             =
SchedulerParameters     = batch_sched_delay=0,sched_interval=1
SlurmctldHost[0]        = login(127.0.0.1)
SLURM_VERSION           = 22.05.8

Slurmctld(primary) at login is UP
"""
CONFIG_25 = """\
Configuration data as of 2026-01-31T23:59:59
AccountingStorageType   = accounting_storage/slurmdbd
InteractiveStepOptions  = --interactive --preserve-env --pty $SHELL
JobRequeue              = 0
MaxArraySize            = 100001
MaxBatchRequeue         = 5
MetricsType             = (null)
SLURM_VERSION           = 25.11.4
TLSType                 = tls/none

Cgroup Support Configuration:
AllowedRAMSpace         = 100.0%
MaxArraySize            = 7
SystemdTimeout          = 1000 ms

Slurmctld(primary) at ctl1 is UP
Slurmctld(backup) at ctl2 is DOWN
"""
SINFO_22 = """\
main*|up|3|infinite|gpu:2|idle
closed|down|1|infinite|gpu:2|idle
"""
SINFO_25 = """\
gpu*|up|2|2-00:00:00|gpu:h100:8(S:0-1)|mix-
gpu*|up|5|2-00:00:00|gpu:h100:8(S:0-1)|alloc
gpu*|up|1|2-00:00:00|gpu:h100:8(S:0-1)|drain*
gpu*|up|4|2-00:00:00|gpu:a100:4(S:0-1),shard:a100:16|idle~
gpu*|up|1|2-00:00:00|gpu:a100:4(S:0-1),shard:a100:16|plnd
cpu|up|200|infinite|(null)|idle
cpu|up|3|infinite|(null)|maint$
debug|up|0|30:00|(null)|n/a
old|drain|2|1:00:00|gpu:v100:4|drng@
old|drain|1|1:00:00|gpu:v100:4|idle*
"""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("slurm-wlm 22.05.8\n", "22.05.8"),
        ("slurm 24.05.2\n", "24.05.2"),
        ("slurm 25.11.0-0rc1\n", "25.11.0-0rc1"),
        ("something else\n", "something else"),
    ],
)
def test_versions(text: str, version: str) -> None:
    assert parse_version(text) == version


def test_configurations() -> None:
    old, new = parse_config(CONFIG_22), parse_config(CONFIG_25)
    assert (old["MaxArraySize"], old["JobRequeue"], old["PowerPlugin"]) == ("101", "1", "")
    assert old["SchedulerParameters"] == "batch_sched_delay=0,sched_interval=1"
    assert (new["MaxArraySize"], new["JobRequeue"]) == ("100001", "0")
    assert new["SLURM_VERSION"] == "25.11.4"
    assert parse_config("slurm_load_ctl_conf error: Unable to contact slurm controller\n") == {}


@pytest.mark.parametrize(
    ("text", "arrays", "requeue"),
    [
        (CONFIG_22, "of 101 agents at most (MaxArraySize = 101)", "on (JobRequeue)"),
        (CONFIG_25, "of 100,001 agents at most", "off, but for jobs that ask for it, as agents do"),
        ("", "MaxArraySize is not told", "not told"),
    ],
)
def test_what_a_configuration_allows(text: str, arrays: str, requeue: str) -> None:
    first, second = judge_config(parse_config(text))
    assert arrays in first.found
    assert requeue in second.found
    assert {first.verdict, second.verdict} == {Verdict.OK}


def test_arrays_that_are_not_allowed() -> None:
    assert next(judge_config({"MaxArraySize": "0"})).verdict is Verdict.WARNING


def test_partitions() -> None:
    assert parse_partitions(SINFO_22) == [
        Partition("main", True, True, "infinite", ("gpu:2",), {"idle": 3}),
        Partition("closed", False, False, "infinite", ("gpu:2",), {"idle": 1}),
    ]
    gpu, cpu, debug, old = parse_partitions(SINFO_25)
    assert gpu == Partition(
        "gpu",
        True,
        True,
        "2-00:00:00",
        ("gpu:h100:8", "gpu:a100:4", "shard:a100:16"),
        {"mix": 2, "alloc": 5, "down": 1, "idle": 4, "plnd": 1},
    )
    assert (cpu.gres, cpu.nodes) == ((), {"idle": 200, "maint": 3})
    assert [partition.usable for partition in (gpu, cpu, debug, old)] == [12, 203, 0, 0]
    assert old.nodes == {"drng": 2, "down": 1}


def test_partitions_in_words() -> None:
    told = {check.name: check.found for check in judge_partitions(parse_partitions(SINFO_25), Verdict.BAD)}
    assert told == {
        "partition gpu": (
            "up, 13 nodes (2 mix, 5 alloc, 1 down, 4 idle, 1 plnd), time limit 2-00:00:00, "
            "gpu:h100:8, gpu:a100:4, shard:a100:16; the default"
        ),
        "partition cpu": "up, 203 nodes (200 idle, 3 maint), time limit infinite, no GPUs",
        "partition debug": "up, 0 nodes, time limit 30:00, no GPUs",
        "partition old": "down, 3 nodes (2 drng, 1 down), time limit 1:00:00, gpu:v100:4",
    }


@pytest.mark.parametrize(
    "text", ["", "sinfo: error: Unable to contact\n", "main|up|3|infinite|(null)|down*\n"]
)
def test_no_partition_to_run_on(text: str) -> None:
    *_, last = judge_partitions(parse_partitions(text), Verdict.BAD)
    assert (last.name, last.verdict) == ("partitions", Verdict.BAD)


def test_many_partitions() -> None:
    text = "".join(f"p{number}|up|1|infinite|(null)|idle\n" for number in range(25))
    *some, last = judge_partitions(parse_partitions(text), Verdict.BAD)
    assert (len(some), last.found) == (20, "5 more")


def test_accounting_is_only_told() -> None:
    assert judge_accounting(Answer(0, "12\n13\n")).found == "sacct answers"
    refused = judge_accounting(Answer(1, "", "sacct: error: Sending PersistInit msg: Connection refused\n"))
    assert refused.verdict is Verdict.OK
    assert "Connection refused" in refused.found


def test_what_nodes_do_not_see() -> None:
    assert judge_place("directory", "/home/me", True).verdict is Verdict.OK
    check = judge_place("this Python", "/opt/venv", False)
    assert check.verdict is Verdict.WARNING
    assert check.remedy.startswith("install Stoker where all nodes see it")


# A real one


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The configuration of a cluster that runs."""
    if not cluster.is_here():
        give_up("needs root and Slurm: install slurm-wlm")
    running = cluster.Cluster(tmp_path_factory.mktemp("slurm") / "cluster")
    try:
        yield str(running.configuration)
    finally:
        running.stop()


def test_a_cluster(workplace: Path, slurm: str) -> None:
    done = stoker("doctor", "--on", "slurm", SLURM_CONF=slurm)
    assert done.returncode == 0, done.stdout
    text = done.stdout.partition("\nSlurm\n")[2]
    assert re.search(r"✔ version +\d+\.\d+", text)
    assert re.search(r"✔ arrays +of 101 agents at most \(MaxArraySize = 101\)", text)
    assert re.search(r"✔ requeue +on \(JobRequeue\)", text)
    assert re.search(
        r"✔ partition main +up, 3 nodes \(3 \w+\), time limit infinite, gpu:2; the default", text
    )
    assert re.search(r"✔ partition closed +down, 1 node ", text)
    assert re.search(r"✔ accounting +none \(Slurm accounting storage is disabled\); not needed", text)
    assert re.search(r"! directory .*place\" is on a disk of this machine\n +→ put the study where all", text)
    node = text.partition("this host and a node\n")[2]
    assert re.search(r"✔ race by link +200 names, each with one winner", node)
    assert re.search(r"✔ new contents +seen in replaced files within 0\.\d\d s", node)
    assert list(workplace.iterdir()) == []


def test_a_cluster_whose_controller_is_gone(
    tmp_path: Path, slurm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=1", Path(slurm).read_text(encoding="utf-8"))
    gone = tmp_path / "slurm.conf"
    gone.write_text(f"{text}MessageTimeout=2\n", encoding="utf-8")
    monkeypatch.setenv("SLURM_CONF", str(gone))
    for is_asked, verdict in ((False, Verdict.WARNING), (True, Verdict.BAD)):
        version, controller = look(tmp_path, is_asked)
        assert version.verdict is Verdict.OK
        assert (controller.name, controller.verdict) == ("controller", verdict)


def test_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    if slurm_is_here():
        (check,) = look(tmp_path, False)
        assert (check.name, check.verdict) == ("version", Verdict.WARNING)
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = look(tmp_path, True)
    assert (check.verdict, check.found) == (Verdict.BAD, "none of Slurm's is on the PATH")


@pytest.mark.parametrize(
    ("missing", "verdict", "told"),
    [
        (["sinfo"], Verdict.WARNING, "sinfo is not on the PATH: jobs can be placed, but not all is told"),
        (["squeue", "sinfo"], Verdict.BAD, "squeue, sinfo are not on the PATH, though others of Slurm's are"),
        (["sbatch", "squeue", "scancel", "scontrol", "sinfo"], Verdict.BAD, "none of Slurm's is on the PATH"),
    ],
)
def test_commands_that_are_missing(missing: list[str], verdict: Verdict, told: str) -> None:
    check = judge_missing(missing, Verdict.BAD)
    assert (check.name, check.verdict) == ("commands", verdict)
    assert check.found.startswith(told)
    assert check.remedy.startswith("use Slurm from a login node")


def test_a_machine_with_sbatch_but_without_sinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sbatch", "squeue", "scancel"):
        (tmp_path / name).write_text("#!/bin/sh\necho slurm 24.05.2\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {check.name: check for check in look(tmp_path, True)}
    assert found["commands"].found.startswith("scontrol, sinfo are not on the PATH: jobs can be placed")
    assert Verdict.BAD not in {check.verdict for check in found.values()}
