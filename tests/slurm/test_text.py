"""What sbatch is given, and what squeue, sinfo, scontrol and sbatch answer: several versions of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from stoker.core.errors import UsageError
from stoker.engines.interface import Placed, Site, State
from stoker.engines.slurm import queue
from stoker.engines.slurm.partitions import obstacle, parse_partitions
from stoker.engines.slurm.script import arrays, described, notice, options, script, seconds, shapes

SITE = Site("norms", "/home/eva/norms/output", "/home/eva/norms", None)
SHAPE: dict[str, Any] = {
    "partition": "gpu",
    "account": "vision",
    "qos": "long",
    "time": "12:00:00",
    "gpus": "a100:2",
    "cpus": 8,
    "memory": "32G",
    "constraint": "ib",
    "exclude": "n7",
    "agents": 4,
    "setup": ["module load cuda/12", 'source "$HOME/venv/bin/activate"'],
    "extra": ["#SBATCH --mail-type=END", "--comment='a b' --nice=10"],
    "renew": True,
}


def test_options() -> None:
    assert options(SITE, SHAPE, "0-3") == [
        "--parsable",
        f"--job-name={SITE.mark}",
        "--array=0-3",
        "--requeue",
        "--open-mode=append",
        "--nodes=1",
        "--ntasks=1",
        "--signal=B:USR1@120",
        "--chdir=/home/eva/norms",
        "--output=/home/eva/norms/output/.stoker/slurm/%A_%a.log",
        "--partition=gpu",
        "--account=vision",
        "--qos=long",
        "--time=12:00:00",
        "--gpus=a100:2",
        "--cpus-per-task=8",
        "--mem=32G",
        "--constraint=ib",
        "--exclude=n7",
        "--mail-type=END",
        "--comment=a b",
        "--nice=10",
    ]
    with pytest.raises(UsageError, match=r"engine\.slurm\.extra: --comment='a: No closing quotation"):
        options(SITE, {"extra": ["--comment='a"]}, "0-0")


def test_script() -> None:
    assert script(SITE, 1, SHAPE, "/home/eva/stoker/bin/python") == (
        "#!/bin/bash\n"
        "# An agent of Stoker, for the study norms: /home/eva/norms\n"
        "trap '' USR1\n"
        "cd -- /home/eva/norms || "
        '{ echo "stoker: $(hostname) does not see "/home/eva/norms >&2; exit 72; }\n'
        "{\n"
        "module load cuda/12\n"
        "} || { echo stoker: setup failed: 'module load cuda/12' >&2; exit 73; }\n"
        "{\n"
        'source "$HOME/venv/bin/activate"\n'
        "} || { echo stoker: setup failed: 'source \"$HOME/venv/bin/activate\"' >&2; exit 73; }\n"
        "[ -x /home/eva/stoker/bin/python ] || "
        '{ echo "stoker: $(hostname) does not see "/home/eva/stoker/bin/python >&2; exit 72; }\n'
        'IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-}"\n'
        'if ((${#gpus[@]})); then slots=("${!gpus[@]}"); else slots=(auto); fi\n'
        "exec /home/eva/stoker/bin/python -E -m stoker agent /home/eva/norms/output --allotted --idle 300 "
        '--grace 105 --renew 1 -r "${slots[@]}" '
        '--placed "slurm:${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" '
        '--given 3 3<<< "$(base64 -w 0 "/proc/$$/environ")"\n'
    )


def program_that(tmp_path: Path, does: str) -> str:
    """A program to stand for Python in a script."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/bash\n{does}\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def test_a_job_that_is_renewed_is_told_the_environment_from_before_its_setup(tmp_path: Path) -> None:
    shape = {"setup": ["export PATH=/mine:$PATH", "export WHO=me"], "renew": True}
    text = script(
        Site("s", "/s", "/", None),
        0,
        shape,
        program_that(tmp_path, "echo $PATH; base64 -d <&3 | tr '\\0' '\\n'"),
    )
    environment = {"PATH": "/usr/bin:/bin", "SECRET": "a\tb = c"}
    ran = subprocess.run(
        ["bash", "-c", text], env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert ran[0] == "/mine:/usr/bin:/bin"
    assert {"PATH=/usr/bin:/bin", "SECRET=a\tb = c"} <= set(ran[1:])
    assert "WHO=me" not in ran


def test_a_path_with_a_backslash(tmp_path: Path) -> None:
    """Slurm would take the backslash away, and find no such directory."""
    place = tmp_path / "it's a\\b"
    (place / "output/.stoker/slurm").mkdir(parents=True)
    site = Site("s", str(place / "output"), str(place), None)
    assert "--output=/dev/null" in options(site, {}, "0-0")
    text = script(site, 0, {}, program_that(tmp_path, "pwd"))
    variables = {"PATH": "/usr/bin:/bin", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    ran = subprocess.run(["bash", "-c", text], env=variables, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")
    assert (place / "output/.stoker/slurm/7_1.log").read_text(encoding="utf-8") == f"{place}\n"


@pytest.mark.parametrize(
    "name", ["it's", 'a "b"', "$(touch hacked)", "`touch hacked`", "a\nb", "-n", "a;b", "*", "a b"]
)
def test_names_are_only_names(name: str, tmp_path: Path) -> None:
    """The script says the directory's name, and does nothing because of it."""
    place = tmp_path / name
    place.mkdir()
    program = tmp_path / "python"
    program.write_text('#!/bin/bash\npwd; printf "%s\\n" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    site = Site(name, str(place / "output"), str(place), None)
    text = script(site, 0, {"resource": ("0,1", "")}, str(program))
    ran = subprocess.run(["bash"], input=text, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.stderr == ""
    expected = [
        str(place),
        "-E",
        "-m",
        "stoker",
        "agent",
        str(place / "output"),
        "--allotted",
        "--idle",
        "300",
        "--grace",
        "105",
    ]
    assert ran.stdout == "\n".join([*expected, "-r", "0,1", "", "--placed", "slurm:_", ""])
    assert not (tmp_path / "hacked").exists()
    assert "\n" not in site.mark
    assert site.mark.isprintable()


@pytest.mark.parametrize(
    ("devices", "slots"),
    [("", ["auto"]), ("3", ["0"]), ("4,7", ["0", "1"]), ("MIG-1,MIG-2,MIG-3", ["0", "1", "2"])],
)
def test_a_slot_for_each_gpu_that_was_given(devices: str, slots: list[str], tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/bash\necho "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    text = script(Site("s", "/s", "/", None), 0, {}, str(program))
    environment = {"CUDA_VISIBLE_DEVICES": devices, "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(["bash"], input=text, env=environment, capture_output=True, text=True, check=True)
    assert f"-r {' '.join(slots)} --placed" in ran.stdout


def test_a_site_that_is_a_bucket_or_has_percents() -> None:
    assert "--output=stoker-%A_%a.log" in options(Site("s", "gs://bucket/study", "/", None), {}, "0-0")
    told = options(Site("s", "/home/100%", "/", None), {}, "0-0")
    assert "--output=/home/100%%/.stoker/slurm/%A_%a.log" in told


def test_shapes() -> None:
    assert shapes(None) == [{}]
    assert shapes(()) == [{}]
    assert shapes(({"gpus": "1"}, {"gpus": "4"})) == [{"gpus": "1"}, {"gpus": "4"}]


@pytest.mark.parametrize(
    ("limit", "known"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("1:30:00", 5400),
        ("1-12", 129_600),
        ("1-12:30", 131_400),
        ("1-12:30:05", 131_405),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_time_limits(limit: str, known: int | None) -> None:
    assert seconds(limit) == known


def test_a_short_job_has_time_to_work() -> None:
    limits = {None: 120, "8": 120, "4": 60, "1": 15, "0:20": 10, "infinite": 120}
    assert {limit: notice(limit) for limit in limits} == limits


SQUEUE = {
    "20.11": """\
4501_[3-9%2]|PENDING|JobArrayTaskLimit|N/A|
4501_0|RUNNING|None|2021-03-01T10:00:00|gpu[01-02]
4501_1|COMPLETING|None|2021-03-01T10:00:00|gpu03
""",
    "22.05": """\
6|PENDING|PartitionDown|N/A|
1_0|CANCELLED|None|2026-11-16T06:36:53|n1
9|FAILED|NonZeroExitCode|2026-11-16T06:36:58|n2
4|FAILED|BadConstraints|2026-11-16T06:36:57|
7|COMPLETED|None|2026-11-16T06:36:58|n1
""",
    "23.11": """\
88_2|PENDING|Priority|2024-02-01T12:30:00|(null)
88_1|TIMEOUT|TimeLimit|2024-02-01T09:00:00|a12
88_0|NODE_FAIL|None|2024-02-01T09:00:00|a11
87_0|OUT_OF_MEMORY|OutOfMemory|2024-02-01T09:00:00|a11
87_1|PREEMPTED|None|2024-02-01T09:00:00|a11
""",
    "24.05": """\
slurm_load_jobs error: Unexpected message received
123+1|SUSPENDED|None|2025-02-01T09:00:00|b1
123+0|EXPEDITING|None|N/A|b1
90_0|REQUEUED|BeginTime|2025-02-01T09:05:00|
""",
}
JOBS = {
    "20.11": [
        Placed("4501_[3-9%2]", State.WAITING, why="JobArrayTaskLimit"),
        Placed("4501_0", State.RUNNING, "gpu[01-02]"),
        Placed("4501_1", State.RUNNING, "gpu03"),
    ],
    "22.05": [
        Placed("6", State.WAITING, why="PartitionDown"),
        Placed("1_0", State.ENDED, "n1", "CANCELLED"),
        Placed("9", State.ENDED, "n2", "FAILED, NonZeroExitCode"),
        Placed("4", State.ENDED, "", "FAILED, BadConstraints"),
        Placed("7", State.ENDED, "n1", "COMPLETED"),
    ],
    "23.11": [
        Placed("88_2", State.WAITING, why="Priority", starts="2024-02-01T12:30:00"),
        Placed("88_1", State.ENDED, "a12", "TIMEOUT, TimeLimit"),
        Placed("88_0", State.ENDED, "a11", "NODE_FAIL"),
        Placed("87_0", State.ENDED, "a11", "OUT_OF_MEMORY, OutOfMemory"),
        Placed("87_1", State.ENDED, "a11", "PREEMPTED"),
    ],
    "24.05": [
        Placed("123+1", State.WAITING, "b1", "SUSPENDED"),
        Placed("123+0", State.ENDED, "b1", "EXPEDITING"),
        Placed("90_0", State.WAITING, why="BeginTime", starts="2025-02-01T09:05:00"),
    ],
}


@pytest.mark.parametrize("version", SQUEUE)
def test_jobs(version: str) -> None:
    assert queue.jobs(SQUEUE[version]) == JOBS[version]


@pytest.mark.parametrize(
    ("said", "job"),
    [
        ("4501\n", "4501"),
        ("4501;cluster1\n", "4501"),
        ("Welcome to the cluster!\n4501\n", "4501"),
        ("sbatch: lua: using default account\n\n 77 \n", "77"),
        ("nothing\n", ""),
    ],
)
def test_the_number_of_a_job(said: str, job: str) -> None:
    assert queue.job_id(said) == job


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "sbatch: error: invalid partition specified: x\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "invalid partition specified: x; Invalid partition name specified; "
            "engine.slurm.partition names one of this cluster's: main, long",
        ),
        (
            "sbatch: error: Batch job submission failed: "
            "Invalid account or account/partition combination specified\n",
            "Invalid account or account/partition combination specified; "
            "engine.slurm.account: `sacctmgr show assoc user=$USER` lists yours",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid qos specification\n",
            "Invalid qos specification; "
            "engine.slurm.qos: `sacctmgr show assoc user=$USER format=qos` lists yours",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid job array specification\n",
            "Invalid job array specification; engine.slurm.agents: one array may have 1001 tasks here",
        ),
        ("sbatch: error: Unable to contact slurm controller (connect failure)\n", "try again later"),
        ("sbatch: error: AssocMaxSubmitJobLimit\n", "AssocMaxSubmitJobLimit"),
        ("", "no reason was given"),
    ],
)
def test_what_sbatch_refuses(said: str, told: str) -> None:
    assert queue.explain(said, ["main", "long"], 1001).endswith(told)


SINFO = """\
main*|up|2|infinite|gpu:2|idle
main*|up|1|infinite|gpu:2|drain
closed|down|1|infinite|gpu:2|idle
broken|up|3|infinite|gpu:8|down*
old|drain|1|infinite|gpu:8|idle
"""


@pytest.mark.parametrize(
    ("asked", "is_refused", "told"),
    [
        (None, False, ""),
        (
            "main",
            True,
            "jobs wait for nodes of partition main that are down or drained; `sinfo -R` tells why",
        ),
        ("closed", False, "partition closed is down: jobs wait until it is up"),
        ("closed,main", False, ""),
        (
            "broken",
            True,
            "no node of partition broken is up: jobs wait until one is back; `sinfo -R` tells why",
        ),
        ("broken,closed", False, "no node of partition closed, broken is up: jobs wait until one is back"),
        ("none", True, ""),
    ],
)
def test_what_makes_jobs_wait(asked: str | None, is_refused: bool, told: str) -> None:
    found = obstacle(parse_partitions(SINFO), asked, is_refused)
    assert found.startswith(told)
    assert bool(found) == bool(told)


@pytest.mark.parametrize(
    ("said", "is_about_nodes"),
    [
        ("allocation failure: Requested node configuration is not available", True),
        ("allocation failure: Required node not available (down, drained or reserved)", True),
        ("allocation failure: Requested nodes are busy", True),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", False),
    ],
)
def test_what_may_only_wait_for_nodes(said: str, is_about_nodes: bool) -> None:
    assert queue.is_about_nodes(said) is is_about_nodes


@pytest.mark.parametrize(
    ("text", "is_preempted"),
    [
        ("   PreemptEligibleTime=2026-11-16T10:09:27 PreemptTime=2026-11-16T10:09:29\n", True),
        ("   PreemptEligibleTime=2026-11-16T10:09:27 PreemptTime=None\n", False),
        ("slurm_load_jobs error: Invalid job id specified\n", False),
    ],
)
def test_preempted_jobs(text: str, is_preempted: bool) -> None:
    assert queue.is_preempted(text) is is_preempted


def test_as_few_arrays_as_there_can_be() -> None:
    assert arrays(0, 101) == arrays(0, None) == []
    assert arrays(1, None) == ["0-0"]
    assert arrays(101, 101) == ["0-100"]
    assert arrays(250, 101) == ["0-100", "0-100", "0-47"]
    assert arrays(5, 0) == ["0-4"], "sbatch says that arrays are not allowed"


def test_shapes_in_words() -> None:
    assert described(SHAPE) == "partition gpu, gpus a100:2, cpus 8, memory 32G, time 12:00:00"
    assert described({}) == ""


def test_partitions_and_arrays() -> None:
    assert queue.partitions("main\nlong\nmain\n\n") == ["main", "long"]
    config = "MailProg                = /bin/mail\nMaxArraySize            = 1001\nMaxDBDMsgs = 20024\n"
    assert queue.largest_array(config) == 1001
    assert queue.largest_array("") is None


@pytest.mark.parametrize(
    ("said", "is_busy"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", True),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", True),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", True),
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", True),
        ("sbatch: error: invalid partition specified: x", False),
    ],
)
def test_what_is_worth_another_try(said: str, is_busy: bool) -> None:
    assert queue.is_busy(said) is is_busy


@pytest.mark.parametrize(
    "extra", ["--array=0-3%2", "-a 0-3", "--job-name=x", "-J x", "--wrap=true", "--test-only"]
)
def test_options_that_are_not_the_users(extra: str) -> None:
    with pytest.raises(UsageError, match=r"engine\.slurm\.extra: .* that is Stoker's"):
        options(SITE, {"extra": [extra]}, "0-0")


def test_the_same_store_has_the_same_mark_whatever_the_study_file_is_called() -> None:
    marks = {Site(name, "/home/eva/norms/output", "/home/eva/norms").mark for name in ("a", "b")}
    assert len(marks) == 1
    assert marks.pop().startswith("stoker-norms-")
