"""Scripts that serve many trials in one process: each trial is its own, and a process ends when it should."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.agent import guardian
from stoker.agent.processes import Ended, Why
from stoker.manager.trial import Trial, to_environment
from tests.agent.beats import wait_until
from tests.warm.machine import ENVIRONMENT, Machine, machine, write

pytestmark = pytest.mark.skipif(not guardian.LINUX, reason="only Linux names who is at the other end")

SCRIPT = """
import os, sys, time
from stoker.manager.warm import serve

def run():
    print(os.getpid(), os.environ["STOKER_TRIAL"], sys.argv[1:], "STOKER_WARM" in os.environ)
    sys.stderr.write("told\\n")
    {body}

serve(run)
print("after")
"""


@pytest.fixture
def one(workplace: Path) -> Iterator[Machine]:
    with machine() as made:
        yield made


def script(body: str = "pass", name: str = "train.py") -> None:
    write(name, SCRIPT.format(body=body.replace("\n", "\n    ")))


def serve(one: Machine, number: int, command: str = "python train.py", **more: Any) -> Ended:
    stage = one.serve(
        f"{command} {number}", Path(f"log.{number}").absolute(), about={"STOKER_TRIAL": str(number)}, **more
    )
    return one.finish(stage)


def lines(number: int) -> list[str]:
    return Path(f"log.{number}").read_text().splitlines()


def pids(*numbers: int) -> list[str]:
    return [lines(number)[0].split()[0] for number in numbers]


@pytest.mark.parametrize("command", ["python train.py", "python -m train"])
def test_one_process_serves_many_trials(one: Machine, command: str) -> None:
    script()
    ends = [serve(one, number, command) for number in range(20)]
    assert {(ended.code, ended.signal, ended.why) for ended in ends} == {(0, None, Why.EXITED)}
    assert len(set(pids(*range(20)))) == 1
    for number in range(20):
        assert lines(number) == [f"{pids(number)[0]} {number} ['{number}'] False", "told"]
    one.serving.close()
    assert lines(19)[-1] == "after"
    assert wait_until(lambda: not _lives(int(pids(19)[0])))


def test_a_command_of_the_shell_is_served_if_it_is_the_same(one: Machine) -> None:
    """What its arguments come to is the shell's affair."""
    script()
    for number, command in enumerate(("exec python train.py $((1));", "exec python train.py $((2));"), 1):
        for again in (0, 10):
            log = Path(f"log.{number + again}").absolute()
            stage = one.serve(command, log, about={"STOKER_TRIAL": "1"})
            assert one.finish(stage).code == 0
    assert pids(1) == pids(11) != pids(2) == pids(12)


def _lives(pid: int) -> bool:
    found = guardian.read(pid)
    return found is not None and found.state != "Z"


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no data')", 1, "no data"),
    ],
)
def test_a_trial_that_fails_is_told_and_the_next_goes_on(
    one: Machine, body: str, code: int, said: str
) -> None:
    script(f"if sys.argv[1] != '2':\n    {body}")
    ends = [serve(one, number).code for number in (1, 2, 3)]
    assert ends == [code, 0, code]
    assert len(set(pids(1, 2, 3))) == 1
    assert said in "\n".join(lines(1))
    assert len(lines(2)) == 2


@pytest.mark.parametrize(
    ("body", "code", "number"),
    [
        ("os._exit(7)", 7, None),
        ("os.kill(os.getpid(), 9)", None, 9),
        ("class Stopped(SystemExit): pass\nraise Stopped(75)", 75, None),
        ("raise KeyboardInterrupt", None, 2),
    ],
)
def test_a_process_that_ends_is_replaced(
    one: Machine, body: str, code: int | None, number: int | None
) -> None:
    script("if sys.argv[1] == '2':\n    " + body.replace("\n", "\n    "))
    ends = [serve(one, trial) for trial in (1, 2, 3)]
    assert [(ended.code, ended.signal) for ended in ends] == [(0, None), (code, number), (0, None)]
    first, second, third = pids(1, 2, 3)
    assert first == second != third


def test_a_process_that_dies_while_it_waits_is_replaced(one: Machine) -> None:
    script()
    serve(one, 1)
    pid = int(pids(1)[0])
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not _lives(pid))
    assert serve(one, 2).code == 0
    assert pids(2) != pids(1)
    assert wait_until(lambda: one.processes.poll(0) == [] and guardian.read(pid) is None, 5)


@pytest.mark.parametrize("how", ["terminated", "timed out"])
def test_a_process_whose_trial_was_ended_is_not_used_again(one: Machine, how: str) -> None:
    handler = "import signal\nsignal.signal(15, lambda *_: None)\nprint('ready')\n"
    script(handler + "if sys.argv[1] == '1': time.sleep(.5)")
    timeout = 0.3 if how == "timed out" else None
    log = Path("log.1").absolute()
    stage = one.serve("python train.py 1", log, about={"STOKER_TRIAL": "1"}, timeout=timeout)
    if how == "terminated":
        assert wait_until(lambda: log.exists() and lines(1)[-1:] == ["ready"])
        one.processes.terminate(stage)
    ended = one.finish(stage)
    assert (ended.code, ended.why) == (0, Why.KILLED if how == "terminated" else Why.TIMEOUT)
    assert lines(1)[-1] == "after"
    serve(one, 2)
    assert pids(1) != pids(2)


def test_what_a_trial_leaves_behind_is_ended_before_the_next(one: Machine) -> None:
    beat = "while :; do echo >> beats; sleep 0.02; done"
    script(
        f"import subprocess\nif sys.argv[1] == '1':\n    subprocess.Popen(['bash', '-c', '{beat}'])\n"
        f"    subprocess.Popen('(setsid bash -c \"{beat}\" &)', shell=True).wait()\n"
        "    while not os.path.exists('beats'): time.sleep(.01)"
    )
    assert serve(one, 1).code == 0
    size = Path("beats").stat().st_size
    assert serve(one, 2).code == 0
    assert pids(1) == pids(2)
    assert not wait_until(lambda: Path("beats").stat().st_size > size, 0.2)


def test_a_process_that_has_grown_ends_with_its_trial(one: Machine) -> None:
    less = "import stoker.manager.warm as warm\nwarm._MORE = 1 << 24\n"
    script(less + "if sys.argv[1] == '2': global kept; kept = b'x' * (1 << 26)")
    assert [serve(one, number).code for number in (1, 2, 3)] == [0, 0, 0]
    first, second, third = pids(1, 2, 3)
    assert first == second != third
    assert lines(2)[-1] == "after"


def test_other_slots_stages_and_environments_have_other_processes(one: Machine) -> None:
    script()
    script(name="test.py")
    serve(one, 1)
    serve(one, 2, slot="cpu 1")
    serve(one, 3, "python test.py", name="test")
    serve(one, 4, environment={**ENVIRONMENT, "X": "1"})  # as after a change of the study file
    serve(one, 5, environment={**ENVIRONMENT, "X": "1"})
    serve(one, 6, slot="cpu 1")
    serve(one, 7, "python test.py", name="test")
    found = pids(*range(1, 8))
    assert len(set(found[:4])) == 4
    assert found[4:] == [found[3], found[1], found[2]]
    assert wait_until(lambda: not _lives(int(found[0])))


def test_only_the_first_process_of_a_stage_counts(one: Machine) -> None:
    """A script below another program, as with torchrun, ends like every other one."""
    script()
    ends = [serve(one, number, "python train.py; true") for number in (1, 2)]
    assert [ended.code for ended in ends] == [0, 0]
    assert lines(1)[-1] == "after"
    assert pids(1) != pids(2)


def test_cpu_is_that_of_the_trial(one: Machine) -> None:
    script("if sys.argv[1] == '1':\n    while time.process_time() < .3: pass")
    first, second = serve(one, 1), serve(one, 2)
    assert first.cpu > 0.2 > second.cpu
    assert second.memory > 1_000_000


def test_preloaded_processes_serve_too(workplace: Path) -> None:
    script("print('decimal' in sys.modules)")
    with machine("decimal") as one:
        for number in (1, 2):
            assert serve(one, number).code == 0
        assert pids(1) == pids(2)
        assert lines(2)[-1] == "True"


def test_without_an_agent_it_runs_once(one: Machine, workplace: Path) -> None:
    script()
    for address in ("", "@nobody-listens-here", "/no/such/path"):
        ended = one.run_cold(
            "python train.py", workplace / "log.1", about={"STOKER_TRIAL": "1", "STOKER_WARM": address}
        )
        assert ended.code == 0
    assert [line for line in lines(1) if line == "after"] == ["after"] * 3


def test_a_manager_is_itself_in_every_trial(one: Machine) -> None:
    """Defaults, goal and signals hold in later trials as in the first; one that fails spoils nothing."""
    write("train.py", MANAGED)
    for number in (1, 2, 3, 4):
        stage = one.serve("python train.py", Path(f"log.{number}").absolute(), about=managed(number))
        if number == 4:
            assert wait_until(lambda: "ready" in "".join(lines(4)) if Path("log.4").exists() else False)
            one.processes.terminate(stage)
        assert one.finish(stage).code == {2: 1, 4: 75}.get(number, 0), lines(number)
    assert len(set(pids(1, 2, 3, 4))) == 1
    assert [
        json.loads(Path(f"{number}/finished.train.json").read_text())["best"]["value"] for number in (1, 3)
    ] == [7, 7]
    assert list(Path("4/checkpoints").glob("*.state")), "it was asked to stop, and did not save"


MANAGED = """
import os, time
from stoker import Manager

manager = Manager.create_manager({"extra": 7}, save_every="1h")
manager.set_compare_goal("value", "max")

def run(manager, params_path, best_params_path):
    print(os.getpid(), flush=True)
    number = manager.get_hyparams()["number"]
    if number == 2:
        raise ValueError("this one fails")
    for value in (3, manager.get_hyparams()["extra"], 5):
        manager.add_progress("value", value)
    manager.save_progress()
    if number == 4:
        print("ready", flush=True)
        for _ in range(1000):
            time.sleep(0.02)
            manager.save_progress()

manager.hyparam_search(run)
"""


def managed(number: int) -> dict[str, str]:
    trial = Trial({"number": number}, str(Path(str(number)).absolute()))
    return to_environment(trial, f"1.{number}")
