"""Slurm as an engine, before commands that only note how they are called and say what they are told to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stoker.cli import main
from stoker.cli.placed import came_to_nothing
from stoker.core.errors import UsageError
from stoker.engines.interface import Placed, Site, State
from stoker.engines.slurm.engine import Slurm, come_back

COMMAND = """\
#!/bin/bash
here=${0%/*}
echo "${0##*/} $*" >> "$here/calls"
env -0 > "$here/environment"
cat "$here/${0##*/}.says" 2> /dev/null
[ ! -e "$here/${0##*/}.refuses" ] || { cat "$here/${0##*/}.refuses" >&2; exit 1; }
"""
NO_NODE = "allocation failure: Requested node configuration is not available\n"


class Commands:
    """Slurm's commands, as a test wants them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo"):
            (place / name).write_text(COMMAND, encoding="utf-8")
            (place / name).chmod(0o755)

    def __setitem__(self, name: str, text: str) -> None:
        (self.place / name).write_text(text, encoding="utf-8")

    def calls(self, name: str) -> list[str]:
        path = self.place / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]

    def environment(self) -> dict[str, str]:
        """That of the last command."""
        entries = (self.place / "environment").read_text(encoding="utf-8").split("\0")
        return {name: value for name, _, value in (entry.partition("=") for entry in entries) if name}


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    made = Commands(place)
    made["sbatch.says"] = "7\n"
    return made


def engine(tmp_path: Path, **settings: Any) -> Slurm:
    return Slurm(Site("s", str(tmp_path / "output"), str(tmp_path), settings), sleep=lambda seconds: None)


def arrays_of(commands: Commands) -> list[str]:
    words = [word for call in commands.calls("sbatch") for word in call.split()]
    return [word.removeprefix("--array=") for word in words if word.startswith("--array=")]


def test_no_more_agents_than_trials_are_left(commands: Commands, tmp_path: Path) -> None:
    slurm = engine(tmp_path, agents=200)
    slurm.check()
    assert slurm.place(1) == [
        "slurm: job 7 with 1 agent",
        "slurm: 199 agents fewer than asked for, as no more trials are left",
    ]
    assert arrays_of(commands) == ["0-0", "0-0"]


def test_more_agents_than_an_array_may_have(commands: Commands, tmp_path: Path) -> None:
    commands["scontrol.says"] = "MaxArraySize            = 101\n"
    told = engine(tmp_path, agents=150, time="60").place(1000)
    assert told == [f"slurm: job 7 with {count} agents, each with time 60" for count in (101, 49)]
    assert arrays_of(commands) == ["0-100", "0-48"]


def test_jobs_that_wait_for_nodes_are_submitted(commands: Commands, tmp_path: Path) -> None:
    commands["sinfo.says"] = "main*|up|3|infinite|gpu:2|drain\n"
    commands["sbatch.refuses"] = NO_NODE
    slurm = engine(tmp_path)
    slurm.check()
    (commands.place / "sbatch.refuses").unlink()
    assert slurm.place(1) == [
        "slurm: job 7 with 1 agent",
        "slurm: no node of partition main is up: jobs wait until one is back; `sinfo -R` tells why",
    ]
    commands["sinfo.says"] = "main*|up|3|infinite|gpu:2|idle\n"
    commands["sbatch.refuses"] = NO_NODE
    with pytest.raises(UsageError, match="no node has that many gpus"):
        engine(tmp_path, gpus="9").check()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last job of an array has the number of the array itself."""
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")


@pytest.mark.usefixtures("job")
def test_the_next_job_has_the_environment_from_before_the_setup(commands: Commands, tmp_path: Path) -> None:
    commands["squeue.says"] = "RUNNING\n"
    given = {"PATH": "/usr/bin:/bin", "WHO": "me", "SLURM_JOB_ID": "7", "SLURM_CONF": "/etc/slurm.conf"}
    assert engine(tmp_path, renew=True).renew(0, given) == "7"
    assert commands.calls("squeue") == ["-h -j 7_1 -o %T"]
    had = commands.environment()
    assert {name: had[name] for name in ("PATH", "WHO", "SLURM_CONF")} == {
        "PATH": "/usr/bin:/bin",
        "WHO": "me",
        "SLURM_CONF": "/etc/slurm.conf",
    }
    assert "SLURM_JOB_ID" not in had


@pytest.mark.usefixtures("job")
def test_a_job_comes_back_only_if_its_node_is_taken_for_others(commands: Commands) -> None:
    commands["scontrol.says"] = "   PreemptTime=None\n"
    assert not come_back()
    assert commands.calls("scontrol") == ["show job 7_1"]
    commands["scontrol.says"] = "   PreemptTime=2026-01-31T10:00:00\n"
    assert come_back()
    assert commands.calls("scontrol")[1:] == ["show job 7_1", "requeue 7_1"]


def test_jobs_that_slurm_has_forgotten_are_known_by_their_logs(commands: Commands, tmp_path: Path) -> None:
    logs = tmp_path / "output/.stoker/slurm"
    logs.mkdir(parents=True)
    for name in ("5_0", "7_1"):
        (logs / f"{name}.log").touch()
    commands["squeue.says"] = "7_1|FAILED|NonZeroExitCode|2026-01-31T10:00:00|n1\n"
    slurm = engine(tmp_path)
    assert slurm.list() == [
        Placed("7_1", State.ENDED, "n1", "FAILED, NonZeroExitCode", log=str(logs / "7_1.log")),
        Placed("5_0", State.ENDED, log=str(logs / "5_0.log")),
    ]
    commands["squeue.says"] = "8_0|PENDING|Priority|N/A|\n"
    assert [placed.id for placed in slurm.list()] == ["8_0"], "others come: what was before matters no more"


def test_what_is_forgotten_counts_if_nobody_was_seen_since() -> None:
    found = [Placed(job, State.ENDED, why=why) for job, why in (("5_0", ""), ("6_0", "FAILED"), ("10_0", ""))]

    def lost(*seen: str) -> list[str]:
        return [placed.id for placed in came_to_nothing("slurm", found, seen)]

    assert lost() == ["5_0", "6_0", "10_0"]
    assert lost("slurm:9_1", "local:11_1", "") == ["6_0", "10_0"]
    assert lost("slurm:10_1") == ["6_0", "10_0"], "others of the same array may have been luckier"
    assert lost("slurm:11_0") == ["6_0"]


SHAPES = """\
template: 'true'
engine:
  slurm:
    - {gpus: 2, agents: 2, time: 12:00:00, renew: true}
    - {cpus: 4, agents: 6}
---
n: [1, 2]
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SHAPES, "on slurm   2 arrays: 2 agents with gpus 2, time 12:00:00, renewed; 6 agents with cpus 4\n"),
        ("template: 'true'\nengine: {slurm: {partition: gpu}}\n", "on slurm   1 agent with partition gpu\n"),
        ("template: 'true'\nengine: {slurm: {}}\n", "on slurm   1 agent\n"),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_check_tells_what_would_be_placed(text: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("params.yaml").write_text(text, encoding="utf-8")
    assert main(["check"]) == 0
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limit", "is_right"),
    [
        *((limit, True) for limit in ("90", "90:30", "12:00:00", "2-12", "1-12:30:00", "UNLIMITED")),
        *((limit, False) for limit in ("-5", "tomorrow", "2h", "1:2:3:4")),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_time_limits_are_checked(limit: str, is_right: bool, capsys: pytest.CaptureFixture[str]) -> None:
    Path("params.yaml").write_text(
        f"template: 'true'\nengine: {{slurm: {{time: {limit}}}}}\n", encoding="utf-8"
    )
    assert main(["check"]) == (0 if is_right else 2)
    told = f"engine.slurm.time: expected minutes, hours:minutes:seconds or days-hours, got '{limit}'"
    assert (told in capsys.readouterr().err) is not is_right


@pytest.mark.usefixtures("workplace", "commands")
def test_slots_of_this_machine_are_not_those_of_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("params.yaml").write_text("template: 'true'\n", encoding="utf-8")
    assert main(["run", "--on", "slurm", "-r", "0", "1"]) == 2
    assert "under engine.slurm: gpus, cpus, resource" in capsys.readouterr().err
    assert not Path("output").exists()
