"""Real agents on a real directory: a study runs, plugs are pulled, several join in."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from stoker.core.values import digest
from stoker.spec.load import load
from stoker.spec.problems import Source
from stoker.store.records import parse_key
from stoker.study.place import RECORDS, open_place
from stoker.study.work import add_plan, plan_body

KILLS = int(os.environ.get("STOKER_TEST_KILLS", "12"))
TRIALS = 500 if KILLS > 100 else 60

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guardian needs Linux")


def prepare(output: Path, text: str) -> None:
    output.mkdir(exist_ok=True)
    add_plan(
        open_place(str(output)).store, plan_body(load(Source("params.yaml", text)), {}, "20260131.235959")
    )


def start(output: Path | str, slots: int = 2) -> subprocess.Popen[bytes]:
    program = str(Path(__file__).with_name("agent_process.py"))
    return subprocess.Popen(
        [sys.executable, program, str(output), str(slots)],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )


def records(output: Path) -> list[str]:
    root = output / RECORDS
    return sorted(str(path.relative_to(root)) for path in (root / "trials").rglob("*") if path.is_file())


def results(output: Path) -> dict[int, str]:
    """Number of each trial that has a result → its status."""
    found = {}
    for key in records(output):
        mark = parse_key(key)
        if mark is not None and mark.kind == "result":
            found[mark.trial.number] = json.loads((output / RECORDS / key).read_text())["status"]
    return found


def leftovers(token: str) -> list[str]:
    """Command lines of processes that have the token in them."""
    found = []
    for path in [one / "cmdline" for one in Path("/proc").glob("[0-9]*")]:
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if token in line:
            found.append(line)
    return found


def test_a_study_runs(tmp_path: Path) -> None:
    output = tmp_path / "out put"
    stages = "{train: 'echo {x}; echo $WHO {_trial} {_time}', test: 'test {x} != b'}"
    text = f"template: {stages}\nenv: {{WHO: me}}\n---\nx: [a, b, c d]\n"
    prepare(output, text)
    assert start(output).wait(timeout=60) == 0
    assert results(output) == {1: "finished", 2: "failed", 3: "finished"}
    trial = output / "X_c d"
    assert yaml.safe_load((trial / "stat").read_text()) == {"train": "finished", "test": "finished"}
    assert yaml.safe_load((output / "X_b" / "stat").read_text()) == {"train": "finished", "test": "failed"}
    param = yaml.safe_load((trial / "param").read_text())
    assert param["x"] == "c d"
    assert param["_output"] == str(trial)
    assert param["_scripts"]["test"] == "test 'c d' != b"
    (log,) = trial.glob("log.train.*")
    assert log.read_text() == "c d\nme 3 20260131.235959\n"


def test_a_trial_whose_directory_cannot_be_made_has_failed(tmp_path: Path) -> None:
    prepare(tmp_path, "template: 'true'\n---\nx: [1, 2]\n")
    (tmp_path / "X_1").write_text("in the way")
    (tmp_path / f"X_1-{digest({'x': 1})}").write_text("in the way, too")
    assert start(tmp_path).wait(timeout=60) == 0
    assert results(tmp_path) == {1: "failed", 2: "finished"}
    (result,) = tmp_path.glob(f"{RECORDS}/trials/*/*/000000001.001.result")
    assert "File exists" in json.loads(result.read_text())["train"]["error"]


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("exit 3", 3), ("kill -9 $$", None)])
def test_what_failed_is_told(tmp_path: Path, command: str, code: int | None) -> None:
    prepare(tmp_path, f"template: '{command}'\n")
    assert start(tmp_path).wait(timeout=60) == 0
    (result,) = tmp_path.glob(f"{RECORDS}/trials/*/*/*.result")
    told = json.loads(result.read_text())
    assert (told["status"], told["train"]["code"]) == ("failed", code)


def test_a_timeout_ends_a_stage_that_ignores_it(tmp_path: Path) -> None:
    stage = "{command: 'trap \"\" TERM; sleep 60 & sleep 60', timeout: 1s}"
    prepare(tmp_path, f"template: {{train: {stage}}}\n")
    assert start(tmp_path).wait(timeout=60) == 0
    (result,) = tmp_path.glob(f"{RECORDS}/trials/*/*/*.result")
    assert json.loads(result.read_text())["train"]["why"] == "timeout"


def test_a_finished_study_is_left_alone(tmp_path: Path) -> None:
    prepare(
        tmp_path,
        "template: 'echo x >> trace.{_name}'\n---\nx: [1, 2]\n".replace("trace.", f"{tmp_path}/trace."),
    )
    for _ in range(2):
        assert start(tmp_path).wait(timeout=60) == 0
    assert [path.read_text() for path in tmp_path.glob("trace.*")] == ["x\n", "x\n"]


@pytest.mark.parametrize("count", [2, 8])
def test_several_agents_share_the_work(tmp_path: Path, count: int) -> None:
    text = f"template: 'echo $$ >> {tmp_path}/trace.{{n}}'\n---\nn: [{', '.join(map(str, range(200)))}]\n"
    prepare(tmp_path, text)
    agents = [start(tmp_path, slots=1) for _ in range(count)]
    assert [agent.wait(timeout=120) for agent in agents] == [0] * count
    assert len(results(tmp_path)) == 200
    assert all(len(path.read_text().split()) == 1 for path in tmp_path.glob("trace.*"))
    kinds = Counter(key.rpartition(".")[2] for key in records(tmp_path))
    assert kinds == {"claim": 200, "result": 200, "finished": 200}


def test_a_stage_without_a_slot_lets_the_next_trial_begin(tmp_path: Path) -> None:
    trace = f"{tmp_path}/trace"
    average = f"{{command: 'sleep 1; echo avg {{n}} >> {trace}', slot: none}}"
    stages = f"{{train: 'echo train {{n}} >> {trace}', avg: {average}}}"
    prepare(tmp_path, f"template: {stages}\n---\nn: [1, 2, 3]\n")
    assert start(tmp_path, slots=1).wait(timeout=60) == 0
    lines = (tmp_path / "trace").read_text().splitlines()
    assert lines[:3] == ["train 1", "train 2", "train 3"]
    assert sorted(lines[3:]) == ["avg 1", "avg 2", "avg 3"]


def test_leaving_politely_gives_everything_back(tmp_path: Path) -> None:
    prepare(tmp_path, "template: sleep 30\n---\nn: [1, 2]\n")
    agent = start(tmp_path)
    wait_until(lambda: len(records(tmp_path)) == 2)
    began = time.monotonic()
    agent.terminate()
    assert agent.wait(timeout=20) == 0
    assert time.monotonic() - began < 10
    assert Counter(key.rpartition(".")[2] for key in records(tmp_path)) == {"claim": 2, "released": 2}


def test_a_stage_that_hears_the_end_before_its_agent_does_not_fail(tmp_path: Path) -> None:
    """Whoever takes a machine away tells all of its processes, in any order."""
    prepare(tmp_path, f"template: 'echo $$ > {tmp_path}/pid.{{n}}; exec sleep 30'\n---\nn: [1, 2]\n")
    agent = start(tmp_path)
    wait_until(
        lambda: all(pid.read_text().strip() for pid in tmp_path.glob("pid.*")) and _begun(tmp_path) == 2
    )
    for path in tmp_path.glob("pid.*"):
        os.kill(int(path.read_text()), signal.SIGTERM)
    time.sleep(0.2)
    agent.terminate()
    assert agent.wait(timeout=20) == 0
    assert Counter(key.rpartition(".")[2] for key in records(tmp_path)) == {"claim": 2, "released": 2}


def _begun(tmp_path: Path) -> int:
    return len(list(tmp_path.glob("pid.*")))


def test_pulling_plugs(tmp_path: Path) -> None:
    """kill -9 of whatever, at random moments: every trial ends in one result, nothing finished runs again."""
    token = f"token-{os.getpid()}-{random.getrandbits(40):x}"
    trace = f"{tmp_path}/trace.{{n}}"
    command = f'sh -c "echo begin >> {trace}; sleep 0.05; : {token}; echo end >> {trace}"'
    prepare(tmp_path, f"template: '{command}'\n---\nn: [{', '.join(map(str, range(TRIALS)))}]\n")
    chance = random.Random(1)
    for _ in range(KILLS):
        agent = start(tmp_path)
        time.sleep(chance.uniform(0.1, 0.7))
        _pull(agent, tmp_path, chance.choice(["agent", "launcher", "guardian", "group", "all"]))
        agent.wait(timeout=30)
    began = time.monotonic()
    assert start(tmp_path).wait(timeout=300) == 0
    assert time.monotonic() - began < 20 + TRIALS * 0.2, (
        "it waited for a lease instead of taking over at once"
    )
    assert results(tmp_path) == dict.fromkeys(range(1, TRIALS + 1), "finished")
    assert leftovers(token) == []
    _check_nothing_ran_after_its_result(tmp_path)


def _pull(agent: subprocess.Popen[bytes], output: Path, what: str) -> None:
    family = {"launcher": agent.pid}
    for beat in sorted((output / RECORDS / "beats").glob("*"), key=lambda path: path.stat().st_mtime)[-1:]:
        family["agent"] = json.loads(beat.read_text())["pid"]
    for path in [one / "status" for one in Path("/proc").glob("[0-9]*")]:
        try:
            status = path.read_text()
        except OSError:  # it has ended
            continue
        if re.search(rf"^PPid:\t{agent.pid}$", status, re.MULTILINE):
            family["guardian"] = int(path.parent.name)
    targets = list(family.values()) if what == "all" else [family[what]] if what in family else []
    for pid in targets:
        with_kill(os.kill, pid)
    if what == "group":
        with_kill(os.killpg, agent.pid)


def with_kill(kill: Callable[[int, int], None], pid: int) -> None:
    with suppress(ProcessLookupError):
        kill(pid, signal.SIGKILL)


def _check_nothing_ran_after_its_result(output: Path) -> None:
    root = output / RECORDS
    done = {}
    for key in records(output):
        mark = parse_key(key)
        if mark is not None and mark.kind == "result":
            done[mark.trial] = (root / key).stat().st_mtime_ns
    for key in records(output):
        mark = parse_key(key)
        if mark is not None and mark.kind == "claim":
            assert (root / key).stat().st_mtime_ns <= done[mark.trial], key


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
