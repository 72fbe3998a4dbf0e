"""Studies on a real Slurm, and what can happen to them there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from stoker.manager import progress
from tests.slurm.conftest import Study, wait_until
from tests.stories.command import STOKER

SIXTY = f"""
template: "echo {{n}} >> runs; sleep 0.4; echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $WHO"
engine: {{slurm: {{agents: 3, gpus: 2, setup: ["export WHO=me"]}}}}
---
n: [{", ".join(map(str, range(60)))}]
"""


def check_all(study: Study, count: int = 60, again: int = 0) -> None:
    """Every trial has one result, and only what was interrupted began twice."""
    wait_until(lambda: study.done() == count, 60)
    told = json.loads(study("status", "--json").stdout)
    assert told["counts"]["finished"] == count
    results = Counter(path.name.split(".")[0] for path in Path("output/.stoker/trials").rglob("*.result"))
    assert set(results.values()) == {1}
    assert sorted(set(study.runs()), key=int) == [str(n) for n in range(count)]
    assert len(study.runs()) <= count + again, Counter(study.runs()).most_common(5)
    wait_until(lambda: not study.jobs())


def begin(study: Study, text: str = SIXTY, done: int = 6) -> None:
    study.write(text)
    placed = study("run", "--on", "slurm")
    assert placed.returncode == 0, placed.stderr
    assert "with 3 agents, each with gpus 2" in placed.stdout
    assert "stoker status" in placed.stdout
    wait_until(lambda: study.done() >= done)


def test_a_study_on_three_nodes(study: Study) -> None:
    begin(study)
    during = study("status").stdout
    assert "slurm: 3 running" in during
    check_all(study)
    said = "".join(path.read_text() for path in Path("output").glob("*/log.*"))
    assert Counter(said.split("\n")).keys() == {""} | {
        f"{n} {g} me" for n in ("n1", "n2", "n3") for g in "01"
    }
    assert "nothing is left to do" in study("run", "--on", "slurm").stderr
    assert "60 of 60 finished" in study("status").stdout


def test_a_job_that_the_administrator_requeues(study: Study) -> None:
    begin(study)
    job = min(study.jobs())
    assert study.cluster.ask("scontrol", "requeue", job) == ""
    check_all(study, again=2)


def test_a_node_that_loses_its_power(study: Study) -> None:
    begin(study)
    study.cluster.kill_all_on("n2")
    check_all_but_jobs(study, again=2)


def check_all_but_jobs(study: Study, again: int) -> None:
    """Slurm still waits for the node that died: the study does not."""
    wait_until(lambda: study.done() == 60, 60)
    assert sorted(set(study.runs()), key=int) == [str(n) for n in range(60)]
    assert len(study.runs()) <= 60 + again
    study.cluster.ask("scancel", "-u", "root")


def test_a_daemon_that_dies_while_its_job_lives_on(study: Study) -> None:
    begin(study)
    study.cluster.kill_node("n3")
    check_all_but_jobs(study, again=0)
    last = Counter(path.read_text().split()[0] for path in Path("output").glob("*/log.*"))
    assert last["n3"] > 6, "its agent went on"


def test_an_array_that_is_cancelled_goes_on_with_another(study: Study) -> None:
    begin(study)
    study.cluster.ask("scancel", "-u", "root")
    wait_until(lambda: not study.jobs())
    assert study.done() < 60
    assert "nobody is at work; `stoker run --on slurm` goes on" in study("status").stdout
    assert study("run", "--on", "slurm").returncode == 0
    check_all(study, again=6)


def test_stop_cancels_what_waits_and_what_runs(study: Study) -> None:
    begin(study, SIXTY.replace("sleep 0.4", "sleep 2"), done=1)
    again = study("run", "--on", "slurm")
    assert "slurm: 3 agents run or wait already" in again.stdout
    assert len(study.jobs()) == 3
    study.write(SIXTY.replace("sleep 0.4", "sleep 2").replace("agents: 3", "agents: 6"))
    more = study("run", "--on", "slurm").stdout  # for three of which there is no node
    assert "with 3 agents" in more
    wait_until(lambda: any("PENDING" in state for state in study.jobs().values()))
    stopped = study("stop", "-y")
    assert stopped.returncode == 0, stopped.stdout
    assert "slurm: 3 jobs cancelled" in stopped.stderr
    wait_until(lambda: not study.jobs())
    assert 0 < study.done() < 60
    assert "the study is stopped" in study("status").stdout


def test_a_partition_that_is_down(study: Study) -> None:
    study.write(SIXTY.replace("gpus: 2", "partition: closed"))
    assert (
        "slurm: partition closed is down: jobs wait until it is up\n" in study("run", "--on", "slurm").stdout
    )
    wait_until(lambda: "PartitionDown" in study("status").stdout)
    told = study("status").stdout
    assert "slurm: 3 waiting (PartitionDown)" in told
    assert "nobody is at work" not in told, "they come when the partition is up again"
    refused = study("rm", "--all", "-y")
    assert refused.returncode == 2
    assert "3 jobs on slurm for this study; `stoker stop` first" in refused.stderr
    assert "slurm: 3 jobs cancelled" in study("rm", "--all", "-y", "--force").stderr
    assert not Path("output").exists()
    assert not study.jobs()


def test_nodes_that_are_all_drained(study: Study) -> None:
    drained = ("scontrol", "update", "nodename=n[1-3]", "reason=test", "state=drain")
    assert study.cluster.ask(*drained) == ""
    try:
        study.write(SIXTY)
        placed = study("run", "--on", "slurm")
        assert "slurm: no node of partition main is up: jobs wait until one is back" in placed.stdout
        assert len(study.jobs()) == 3
        study.write(SIXTY.replace("gpus: 2", "gpus: 9"))
        assert "no node has that many gpus" in study("run", "--on", "slurm", "-o", "other").stderr
    finally:
        study.cluster.ask(*drained[:-1], "state=resume")


def test_a_job_whose_node_slurm_takes_for_another(study: Study) -> None:
    study.write("template: sleep 60\nengine: {slurm: {gpus: 2}}\n---\nn: [1, 2, 3]\n")
    assert study("run", "--on", "slurm").returncode == 0
    job = min(study.jobs())
    wait_until(lambda: len(list(Path("output").glob("*/log.*"))) == 2)
    study.cluster.ask(
        "sbatch", "-p", "urgent", "-w", study.jobs()[job].split()[1], "--gpus=2", "--wrap=sleep 5"
    )
    wait_until(lambda: study.jobs()[job].startswith("PENDING"))
    said = Path(f"output/.stoker/slurm/{job}.log").read_text(encoding="utf-8")
    assert "NOTE  Slurm takes this job's node for others: the job waits in the queue again" in said
    assert json.loads(study("status", "--json").stdout)["counts"]["released"] == 2


TRAIN = """
import time
from stoker import Manager

manager = Manager.create_manager(save_every=1)
for epoch in manager.epochs(130):  # Slurm looks at time limits every half minute
    time.sleep(0.3)
    manager.add_progress("value", epoch * 2)
"""


def test_a_time_limit_in_the_middle_of_a_trial(study: Study) -> None:
    Path("train.py").write_text(TRAIN, encoding="utf-8")
    study.write(
        """
template: "echo $GROWN; python3 train.py"
engine: {slurm: {time: 1, renew: true, setup: ["export GROWN=x$GROWN"], extra: ["--signal=B:USR1@55"]}}
"""
    )
    assert study("run", "--on", "slurm").returncode == 0
    wait_until(lambda: study.done() == 1, 90)
    (trial,) = (path for path in Path("output").iterdir() if path.is_dir() and not path.name.startswith("."))
    series = progress.read(str(trial), "train")
    assert list(series["value"].values) == [epoch * 2 for epoch in range(130)]
    told = json.loads(study("status", "--json").stdout)
    jobs = {agent["placed"] for agent in told["agents"]}
    assert len(jobs) > 1, "it was not interrupted"
    said = [path.read_text(encoding="utf-8").split()[0] for path in trial.glob("log.train.*")]
    assert len(said) > 1
    assert set(said) == {"x"}, "what setup makes is made once"


def test_a_job_that_is_cancelled_saves_what_it_did(study: Study) -> None:
    """Slurm tells every process of a job that it ends, and so does the agent: one of them is an echo."""
    script = TRAIN.replace("130", "60").replace("save_every=1", "save_every='60s'").replace("0.3", "0.1")
    script += "    print(epoch, file=open('epochs', 'a'), flush=True)\n"
    Path("train.py").write_text(script, encoding="utf-8")
    study.write("template: python3 train.py\nengine: {slurm: {agents: 1}}\n")
    for epochs in (5, 25):
        assert study("run", "--on", "slurm").returncode == 0
        wait_until(lambda least=epochs: _epochs() > least)  # type: ignore[misc]
        study.cluster.ask("scancel", "-u", "root")
        wait_until(lambda: not study.jobs())
    assert study("run", "--on", "slurm").returncode == 0
    wait_until(lambda: study.done() == 1, 60)
    assert Path("epochs").read_text().split() == [str(epoch) for epoch in range(60)]


def _epochs() -> int:
    return len(Path("epochs").read_text().split()) if Path("epochs").exists() else 0


def test_several_at_once_place_as_many_as_one(study: Study) -> None:
    study.write('template: "sleep 30"\nengine: {slurm: {agents: 2}}\n---\nn: [1, 2, 3, 4, 5, 6]\n')
    running = [
        subprocess.Popen([STOKER, "run", "--on", "slurm"], env=study.cluster.environment) for _ in range(4)
    ]
    assert [one.wait(60) for one in running] == [0] * 4
    assert len(study.jobs()) == 2


def test_a_job_that_gets_nowhere_has_no_successor(study: Study) -> None:
    study.write(
        "template: sleep 300\nengine: {slurm: {time: 1, renew: true, extra: ['--signal=B:USR1@55']}}\n"
    )
    assert study("run", "--on", "slurm").returncode == 0
    wait_until(lambda: bool(study.jobs()))
    wait_until(lambda: not study.jobs(), 60)
    (log,) = Path("output/.stoker/slurm").iterdir()
    assert "finished no trial and saved nothing to go on from" in log.read_text(encoding="utf-8")
    told = study("status").stdout
    assert "nobody is at work" in told
    assert " has left: this job finished no trial and saved nothing" in " ".join(told.split())


def test_here_and_there(study: Study) -> None:
    study.write(SIXTY.replace("engine: {slurm: {agents: 3", "resource: ['', '']\nengine: {slurm: {agents: 1"))
    done = study("run", "--on", "local,slurm", "--plain")
    assert done.returncode == 0, done.stderr
    check_all(study)
    where = Counter(path.read_text().strip() for path in Path("output").glob("*/log.*"))
    assert where.keys() == {"", "n1 0 me", "n1 1 me"}, "the environment here has nothing of these"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("partition: gpu-long", "invalid partition specified: gpu-long; "),
        ("partition: gpu-long", "engine.slurm.partition names one of this cluster's: main, closed"),
        ("gpus: 9", "no node has that many gpus, cpus or memory"),
        ("extra: [--time=x]", "Invalid --time specification; engine.slurm.time is like 90 (minutes)"),
        ("exclude: n77", "engine.slurm.exclude: `sinfo -N` lists nodes"),
        ("constraint: fast", "engine.slurm.constraint: `sinfo -o '%P %f'` lists features"),
        ("extra: [--nonsense]", "engine.slurm.extra: `sbatch --help` lists options"),
    ],
)
def test_what_slurm_refuses_is_told_before_anything_is_made(study: Study, settings: str, told: str) -> None:
    study.write(f"template: 'true'\nengine: {{slurm: {{{settings}}}}}\n")
    refused = study("run", "--on", "slurm")
    assert refused.returncode == 2
    assert told in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert not Path("output").exists()


def test_setup_that_fails(study: Study, tmp_path: Path) -> None:
    study.write("template: 'true'\nengine: {slurm: {setup: ['module load cuda/99']}}\n")
    assert study("run", "--on", "slurm").returncode == 0
    wait_until(lambda: "its agent was never seen" in study("status").stdout)
    told = study("status").stdout
    assert "ended on n1 (FAILED, NonZeroExitCode), and its agent was never seen" in told
    assert "stoker: setup failed: module load cuda/99" in told
    (tmp_path / "squeue").write_text("#!/bin/sh\n", encoding="utf-8")  # Slurm has forgotten its jobs
    (tmp_path / "squeue").chmod(0o755)
    study.variables["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    told = study("status").stdout
    assert "0 ended, and its agent was never seen" in told
    assert "stoker: setup failed: module load cuda/99" in told


def test_a_node_that_does_not_see_the_directory(study: Study) -> None:
    study.cluster.kill_node("n2")
    study.cluster.start_node("n2", hidden=study.place)
    wait_until(lambda: study.cluster.idle_nodes() == 3)
    study.write("template: 'true'\nengine: {slurm: {extra: [--nodelist=n2]}}\n")
    assert study("run", "--on", "slurm").returncode == 0
    wait_until(lambda: "its agent was never seen" in study("status").stdout)
    told = study("status").stdout
    assert "it has no log: does n2 see" in told


def test_jobs_of_several_shapes(study: Study) -> None:
    text = SIXTY.replace("{agents: 3, gpus: 2, setup:", "[{gpus: 2}, {cpus: 4, agents: 2, setup:")
    study.write(text.replace('["export WHO=me"]}}', '["export WHO=me"]}]}'))
    placed = study("run", "--on", "slurm").stdout
    assert "with 1 agent, each with gpus 2\n" in placed
    assert "with 2 agents, each with cpus 4\n" in placed
    check_all(study)
    said = {path.read_text().partition(" ")[2].strip() for path in Path("output").glob("*/log.*")}
    assert said == {"0", "1", "me"}, "two with a GPU each, and others without"


def test_a_full_disk(study: Study) -> None:
    Path("output").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", "output"], check=True)
    try:
        with suppress(OSError):
            Path("output/ballast").write_bytes(bytes(1 << 20))
        study.write("template: 'true'\n")
        refused = study("run", "--on", "slurm")
        assert refused.returncode == 1, refused.stderr
        assert "No space left on device" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert not study.jobs()
    finally:
        subprocess.run(["umount", "output"], check=True)


def test_where_there_is_no_slurm(study: Study, tmp_path: Path) -> None:
    study.write("template: 'true'\n")
    study.variables["PATH"] = str(tmp_path)
    refused = study("run", "--on", "slurm")
    assert refused.returncode == 2
    assert refused.stderr == "stoker: there is no sbatch here: use Slurm from a login node of its cluster\n"
    assert not Path("output").exists()


def test_a_controller_that_answers_late_does_not_double_jobs(study: Study, tmp_path: Path) -> None:
    """A submission that was accepted, though sbatch says that it timed out, is not made again."""
    late = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    real = shutil.which("sbatch")
    is_test = '[[ " $* " == *" --test-only "* ]]'
    script = f'#!/bin/bash\n{real} "$@" || exit\n{is_test} && exit\necho {late!r} >&2; exit 1\n'
    (tmp_path / "sbatch").write_text(script, encoding="utf-8")
    (tmp_path / "sbatch").chmod(0o755)
    study.variables["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    study.write("template: sleep 30\nengine: {slurm: {agents: 2}}\n---\nn: [1, 2, 3, 4]\n")
    refused = study("run", "--on", "slurm")
    assert refused.returncode == 2
    assert "`stoker status` tells whether the job is there" in refused.stderr
    assert len(study.jobs()) == 2
    assert "slurm: 2" in study("status").stdout
