"""Agents in trouble: full disks, stages that misbehave, networks that fail, GPUs that others have."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stoker.store.records import TrialId
from stoker.study import files
from stoker.study.place import RECORDS
from tests.local import test_bucket
from tests.local.mounts import fill, mounted
from tests.local.test_agents import prepare, records, results, wait_until
from tests.local.test_bucket import server, url

__all__ = ["server", "url"]  # fixtures

MIB = 1024 * 1024
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guardian needs Linux")


class Agent:
    """An agent as a process, and what it told so far."""

    def __init__(self, process: subprocess.Popen[bytes], told: Path) -> None:
        self.process, self._told = process, told

    def events(self, kind: str) -> list[dict[str, Any]]:
        """All that it told of this kind; what it is just writing is not among it."""
        lines = self._told.read_bytes().split(b"\n")[:-1]
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, while the agent lives."""

        def check() -> bool:
            assert self.process.poll() is None
            return holds()

        wait_until(check)

    def wait(self) -> None:
        assert self.process.wait(timeout=60) == 0

    def leave(self) -> None:
        self.process.terminate()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()


Start = Callable[..., Agent]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts agents; whatever becomes of a test, none stays."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        place: Path | str, enter: Sequence[str] = (), env: Mapping[str, str] = NO_GPU, **options: Any
    ) -> Agent:
        program = str(Path(__file__).with_name("troubled_agent.py"))
        told = tmp_path / f"told.{len(started)}"
        with told.open("wb") as file:
            process = subprocess.Popen(
                [*enter, sys.executable, program, str(place), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=file,
                env={**os.environ, **env},
                start_new_session=True,
            )
        started.append(process)
        return Agent(process, told)

    yield start
    for process in started:
        with process:
            process.kill()


def ends(output: Path) -> Counter[str]:
    return Counter(key.rpartition(".")[2] for key in records(output))


def body(output: Path, record: str) -> dict[str, Any]:
    """The only record of a kind."""
    (found,) = output.glob(f"{RECORDS}/trials/*/*/*.{record}")
    told: dict[str, Any] = json.loads(found.read_text())
    return told


# Disks


@contextmanager
def small_disk(path: Path, options: str = "size=2m") -> Iterator[tuple[Path, list[str]]]:
    """A small disk at a path: the path for us, and what to put before commands that are to see it."""
    path.mkdir()
    with mounted(f"mount -t tmpfs -o {options} none {shlex.quote(str(path))}") as mounts:
        yield mounts.path(path), mounts.enter


def is_full(agent: Agent) -> bool:
    """Whether the agent has said so."""
    return any(event["away"] and "No space left" in event["why"] for event in agent.events("store"))


def test_a_full_disk_is_waited_for(tmp_path: Path, start: Start) -> None:
    command = f"echo x >> {tmp_path}/trace.{{n}}; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    with small_disk(tmp_path / "output") as (output, enter):
        prepare(output, f"template: '{command}'\n---\nn: [1, 2, 3, 4, 5, 6]\n")
        agent = start(tmp_path / "output", enter, slots=2)
        agent.until(lambda: len(list(tmp_path.glob("trace.*"))) == 2)
        agent.until(lambda: fill(output / "ballast") and is_full(agent))
        (tmp_path / "go").touch()
        agent.until(lambda: len(agent.events("end")) == 2)
        time.sleep(0.3)
        assert ends(output) == {"claim": 2}
        assert agent.process.poll() is None
        (output / "ballast").unlink()
        agent.wait()
        assert results(output) == dict.fromkeys(range(1, 7), "finished")
        assert ends(output) == {"claim": 6, "finished": 6, "result": 6}
    assert [path.read_text() for path in tmp_path.glob("trace.*")] == ["x\n"] * 6
    assert [event["away"] for event in agent.events("store")] == [True, False]


def test_who_is_to_end_at_once_does_so_although_the_disk_is_full(tmp_path: Path, start: Start) -> None:
    with small_disk(tmp_path / "output") as (output, enter):
        prepare(output, f"template: 'echo $$ >> {tmp_path}/pids; sleep 60'\n")
        agent = start(tmp_path / "output", enter, slots=1)
        agent.until((tmp_path / "pids").exists)
        agent.until(lambda: fill(output / "ballast") and is_full(agent))
        agent.tell("kill")
        agent.wait()
        assert ends(output) == {"claim": 1}
    assert not Path(f"/proc/{(tmp_path / 'pids').read_text().strip()}").exists()


def test_a_stage_that_fills_the_disk_has_failed_and_the_study_goes_on(tmp_path: Path, start: Start) -> None:
    script = tmp_path / "script"
    script.write_text("""
echo begun
[ $1 != 1 ] && exit
until rm "$2/stat"; do sleep 0.02; done  # which the agent writes again when the disk is full
cat /dev/zero > "$2/big"
""")
    with small_disk(tmp_path / "output") as (output, enter):
        prepare(output, f"template: 'bash {script} {{n}} {{_output}}'\n---\nn: [1, 2, 3]\n")
        agent = start(tmp_path / "output", enter, slots=1)
        agent.until(lambda: is_full(agent))
        assert results(output) == {}
        (output / "N_1" / "big").unlink()
        agent.wait()
        assert results(output) == {1: "failed", 2: "finished", 3: "finished"}
        assert body(output, "failed")["train"]["code"] == 1
        (log,) = output.glob("N_1/log.train.*")
        assert "No space left" in log.read_text()
    (note,) = agent.events("note")
    assert note["text"] == f"cannot write {tmp_path}/output/N_1/stat: No space left on device"


def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "output"
    prepare(output, "template: 'true'\n")
    there = shlex.quote(str(output))
    with mounted(f"mount --bind {there} {there}; mount -o remount,bind,ro {there}") as mounts:
        command = [*mounts.enter, sys.executable, "-m", "stoker", "agent", str(output), "-r", ""]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr == f"stoker: cannot write to {output}: not allowed, or the disk is read-only\n"
    assert records(output) == []


def test_a_full_scratch_disk_is_waited_for(url: str, tmp_path: Path, start: Start) -> None:
    """One machine without space must not fail all trials of a study."""
    store = test_bucket.prepare(url, "template: 'true'\n---\nn: [1, 2, 3]\n")
    with small_disk(tmp_path / "scratch", "nr_inodes=2") as (scratch, enter):
        (scratch / "ballast").touch()
        agent = start(url, enter, slots=1)
        agent.until(lambda: is_full(agent))
        assert test_bucket.marks(store) == {"claim": 1}
        more = ["mount", "-o", "remount,nr_inodes=100", str(tmp_path / "scratch")]
        subprocess.run([*enter, *more], check=True)
        agent.wait()
    assert test_bucket.marks(store) == {"claim": 3, "finished": 3, "result": 3}


# Much of something


def test_a_log_of_a_gigabyte(tmp_path: Path, start: Start) -> None:
    command = "truncate -s 1G /proc/self/fd/1; echo loss 3"
    prepare(tmp_path / "output", f"template: '{command}'\nmetrics: {{loss: 'loss (\\d+)'}}\n")
    agent = start(tmp_path / "output", slots=1)
    agent.wait()
    told = body(tmp_path / "output", "result")
    assert (told["status"], told["metrics"]) == ("finished", {"loss": 3})
    (log,) = tmp_path.glob("output/*/log.train.*")
    assert log.stat().st_size > 1024 * MIB
    assert agent.events("memory")[0]["peak"] < 150 * MIB


def test_a_large_log_on_its_way_to_a_bucket(url: str, start: Start) -> None:
    store = test_bucket.prepare(url, "template: 'truncate -s 384M /proc/self/fd/1; echo end'\n")
    agent = start(url, slots=1)
    agent.wait()
    manifest = files.newest(store, TrialId(1, 1))
    assert manifest is not None
    (log,) = (file for path, file in manifest.files.items() if path.startswith("log."))
    assert b"".join(files.read_file(store, log, 384 * MIB)) == b"end\n"
    assert agent.events("memory")[0]["peak"] < 200 * MIB, "more than a few parts at once"


def test_ten_thousand_files_go_with_their_trial(url: str, tmp_path: Path, start: Start) -> None:
    script = tmp_path / "script"
    script.write_text("""
cd "$1"
ls many 2> /dev/null | wc -l
[ -d many ] && exit
mkdir many
for i in $(seq 10000); do echo $i > many/$i; done
touch "$2"
sleep 60
""")
    store = test_bucket.prepare(url, f"template: 'bash {script} {{_output}} {tmp_path}/written'\n")
    first = start(url, slots=1)
    first.until((tmp_path / "written").exists)
    first.leave()
    first.wait()
    assert test_bucket.marks(store) == {"claim": 1, "released": 1}
    start(url, slots=1).wait()
    manifest = files.newest(store, TrialId(1, 1))
    assert manifest is not None
    assert sum(path.startswith("many/") for path in manifest.files) == 10_000
    assert b"".join(files.read_file(store, manifest.files["many/4711"])) == b"4711\n"
    logs = [file for path, file in manifest.files.items() if path.startswith("log.")]
    assert sorted(b"".join(files.read_file(store, log)) for log in logs)[-1] == b"10000\n"


@pytest.mark.timing
def test_finished_trials_take_no_memory(tmp_path: Path, start: Start) -> None:
    peaks = []
    for trials in (300, 1500):
        output = tmp_path / str(trials)
        prepare(output, f"template: 'true'\n---\nn: [{', '.join(map(str, range(trials)))}]\n")
        agent = start(output, slots=2)
        agent.wait()
        assert len(results(output)) == trials
        peaks.append(agent.events("memory")[0]["peak"])
    assert peaks[1] - peaks[0] < 6 * MIB, peaks


# Stages that do not go


def test_a_daemon_ends_with_its_stage(tmp_path: Path, start: Start) -> None:
    script = tmp_path / "script"
    script.write_text(f"""
for before in {tmp_path}/daemon.*; do
    [ -e $before ] && kill -0 $(cat $before) && exit 1
done
(setsid bash -c 'echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/daemon.'$1'; exec sleep 600' &)
until [ -e {tmp_path}/daemon.$1 ]; do sleep 0.02; done
""")
    prepare(tmp_path / "output", f"template: 'bash {script} {{n}}'\n---\nn: [1, 2, 3]\n")
    start(tmp_path / "output", slots=1).wait()
    assert results(tmp_path / "output") == {1: "finished", 2: "finished", 3: "finished"}
    daemons = [int(path.read_text()) for path in tmp_path.glob("daemon.*")]
    assert [pid for pid in daemons if Path(f"/proc/{pid}").exists()] == []
    assert len(daemons) == 3


def test_a_stage_that_does_not_listen_is_killed_after_its_grace(tmp_path: Path, start: Start) -> None:
    trap = f'trap "echo told >> {tmp_path}/trace" TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done'
    prepare(tmp_path / "output", f"template: '{trap}'\n")
    agent = start(tmp_path / "output", slots=1)
    agent.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
    agent.leave()
    agent.until((tmp_path / "trace").exists)
    agent.wait()
    assert ends(tmp_path / "output") == {"claim": 1, "released": 1}
    assert body(tmp_path / "output", "released")["train"]["signal"] == 9
    assert (tmp_path / "trace").read_text() == "told\n"
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


# Networks


def state_of(pid: int) -> str:
    """Running, sleeping, sTopped, …; empty if there is no such process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def ticking(directory: Path) -> str:
    """A stage that writes its process id in a line, again and again, until a file tells it to end."""
    return f"until [ -e {directory}/end ]; do echo $$ >> {directory}/ticks; sleep 0.05; done"


def ticks(directory: Path) -> list[int]:
    """All lines that are whole."""
    found = directory / "ticks"
    return [int(line) for line in found.read_text().split("\n")[:-1]] if found.exists() else []


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_who_is_cut_off_stands_still_and_goes_on_later(tmp_path: Path, start: Start, how: str) -> None:
    prepare(tmp_path / "output", f"template: '{ticking(tmp_path)}'\n")
    agent = start(tmp_path / "output", slots=1, lease=3, cut=str(tmp_path / "cut"))
    agent.until(lambda: bool(ticks(tmp_path)))
    pid = ticks(tmp_path)[0]
    (tmp_path / "cut").write_text(how)
    agent.until(lambda: state_of(pid) == "T")
    so_far = ticks(tmp_path)
    time.sleep(0.3)
    assert ticks(tmp_path) == so_far
    (tmp_path / "cut").unlink()
    agent.until(lambda: len(ticks(tmp_path)) > len(so_far))
    (tmp_path / "end").touch()
    agent.wait()
    assert set(ticks(tmp_path)) == {pid}
    assert ends(tmp_path / "output") == {"claim": 1, "finished": 1, "result": 1}


def test_who_is_cut_off_stands_still_before_another_takes_over(tmp_path: Path, start: Start) -> None:
    prepare(tmp_path / "output", f"template: '{ticking(tmp_path)}'\n")
    cut_off = start(tmp_path / "output", slots=1, lease=5, cut=str(tmp_path / "cut"))
    cut_off.until(lambda: bool(ticks(tmp_path)))
    other = start(tmp_path / "output", slots=1, lease=5, cut=str(tmp_path / "never"))
    cut_off.until(lambda: len(list((tmp_path / "output" / RECORDS / "beats").iterdir())) == 2)
    first = ticks(tmp_path)[0]
    (tmp_path / "cut").write_text("raises")
    cut_off.until(lambda: ticks(tmp_path)[-1] != first)
    (tmp_path / "cut").unlink()
    cut_off.until(lambda: state_of(first) == "")
    (tmp_path / "end").touch()
    other.wait()
    cut_off.wait()
    written = ticks(tmp_path)
    assert written == sorted(written, key=lambda pid: pid != first), "both wrote at the same time"
    assert results(tmp_path / "output") == {1: "finished"}


# GPUs


@pytest.mark.parametrize("studies", [1, 2])
def test_a_gpu_is_given_to_one_agent_and_then_to_the_next(tmp_path: Path, start: Start, studies: int) -> None:
    gpu = {"uuid": "GPU-1", "name": "X", "total": 24 << 30, "used": 0, "pids": []}
    fake = {
        "PYTHONPATH": f"{Path(__file__).parents[1]}/slots/fake_nvml:{os.environ.get('PYTHONPATH', '')}",
        "FAKE_NVML": json.dumps({"gpus": [gpu]}),
    }
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o1777)
    outputs = [tmp_path / "one", tmp_path / "two"][:studies]
    script = tmp_path / "script"
    script.write_text(f"""
mkdir {tmp_path}/busy || exit 1
trap 'rmdir {tmp_path}/busy' EXIT
trap 'exit 1' TERM
echo $CUDA_VISIBLE_DEVICES >> {tmp_path}/used
until [ -e {tmp_path}/end ]; do sleep 0.05; done
""")
    for output in outputs:
        prepare(output, f"template: 'bash {script}'\n")
    first = start(outputs[0], env=fake, locks=str(locks))
    first.until((tmp_path / "busy").exists)
    second = start(outputs[-1], env=fake, locks=str(locks))
    second.until(lambda: bool(holder(second)))
    assert f"study {outputs[0]}, process {first.events('slots')[0]['pid']}" in holder(second)
    first.leave()
    first.wait()
    second.until(lambda: not holder(second))
    (tmp_path / "end").touch()
    second.wait()
    assert results(outputs[-1]) == {1: "finished"}
    assert ends(outputs[0])["released"] == 1
    assert (tmp_path / "used").read_text() == "0\n0\n"


def holder(agent: Agent) -> str:
    """Who has the GPU that the agent waits for, as it told last."""
    (slot,) = agent.events("slots")[-1]["slots"] if agent.events("slots") else [{"holder": ""}]
    return str(slot["holder"])
