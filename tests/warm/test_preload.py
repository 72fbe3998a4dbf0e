"""Stages that are forked from a parent: a script must not notice, and nothing of it may be left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.agent import guardian, preload
from stoker.agent.preload import call_of
from stoker.agent.processes import Spec, Stage, Why
from tests.agent.beats import wait_until
from tests.store.needs import need
from tests.warm.machine import ENVIRONMENT, Machine, machine, write

pytestmark = pytest.mark.skipif(not guardian.LINUX, reason="only Linux hands children over")


@pytest.fixture
def place(workplace: Path) -> Path:
    return workplace


@pytest.fixture
def log(workplace: Path) -> Path:
    return workplace / "log"


@pytest.fixture
def one(workplace: Path) -> Iterator[Machine]:
    """With a parent that has imported `decimal`, which no script imports by accident."""
    with machine("decimal") as made:
        yield made


# Which commands


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("python train.py", ("train.py",)),
        ("python3 -u ./a/train.py --lr 0.1 'a b'", ("./a/train.py", "--lr", "0.1", "a b")),
        ("python3.11 -m package.train -x", ("-m", "package.train", "-x")),
        ("/opt/env/bin/python -u -m train", ("-m", "train")),
    ],
)
def test_a_plain_call_of_python_is_seen(command: str, argv: tuple[str, ...]) -> None:
    call = call_of(command)
    assert call is not None
    assert call.argv == argv
    assert [*call.python, *call.argv] == [word.strip("'") for word in re.findall(r"'[^']*'|\S+", command)]


@pytest.mark.parametrize(
    "command",
    [
        "env X=1 python train.py",
        "X=1 python train.py",
        "torchrun train.py",
        "python train.py | tee log",
        "python train.py > log",
        "python train.py $HOME",
        "python -O train.py",
        "python -c pass",
        "python -m",
        "python -u",
        "python",
        "python train",
        "python - train.py",
        "ipython train.py",
        "python2 train.py",
        "bash train.py",
        "",
    ],
)
def test_everything_else_starts_cold_and_nothing_is_said(one: Machine, log: Path, command: str) -> None:
    assert call_of(command) is None
    assert one.fork(command, log) is None
    assert one.notes == []
    assert one.parent_pids() == []


def test_a_script_that_is_missing_starts_cold(one: Machine, log: Path) -> None:
    assert one.fork("python missing.py", log) is None
    assert one.notes == []


# How it ends


def test_a_child_is_measured(one: Machine, log: Path) -> None:
    write("script.py", "import time\nx = bytearray(80_000_000)\nwhile time.process_time() < .2: 1")
    ended = one.run("python script.py", log)
    assert 0.2 <= ended.cpu <= ended.wall + 0.1
    assert ended.memory > 80_000_000


def test_a_timeout_ends_a_child_that_ignores_it(one: Machine, log: Path) -> None:
    write("script.py", "import signal, time; signal.signal(15, signal.SIG_IGN); print(1); time.sleep(60)")
    ended = one.run("python script.py", log, timeout=0.5, grace=0.2)
    assert (ended.why, ended.signal) == (Why.TIMEOUT, signal.SIGKILL)
    assert log.read_text() == "1\n"


def test_a_handler_of_sigterm_is_called(one: Machine, log: Path) -> None:
    write("script.py", "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(6))\n"
          "print('ready')\ntime.sleep(60)")  # fmt: skip
    stage = one.forked("python script.py", log)
    assert wait_until(lambda: log.read_text() == "ready\n")
    one.processes.terminate(stage)
    ended = one.finish(stage)
    assert (ended.code, ended.why) == (6, Why.KILLED)


def test_a_child_that_is_ended_before_it_begins(one: Machine, log: Path) -> None:
    """Its group is there from the first moment."""
    write("script.py", "import time; time.sleep(60)")
    for _ in range(5):
        stage = one.forked("python script.py", log)
        one.processes.terminate(stage, grace=60)
        assert one.finish(stage, seconds=10).signal == signal.SIGTERM


def test_a_child_can_be_suspended(one: Machine, log: Path) -> None:
    write("script.py", "import time\nwhile True: print('.', flush=True); time.sleep(.02)")
    stage = one.forked("python script.py", log)
    assert wait_until(log.read_text)
    one.processes.suspend(stage)
    found = guardian.read(stage.pid)
    assert found is not None
    assert wait_until(lambda: getattr(guardian.read(stage.pid), "state", "") == "T")
    one.processes.resume(stage)
    size = len(log.read_text())
    assert wait_until(lambda: len(log.read_text()) > size)
    one.processes.kill(stage)
    assert one.finish(stage).signal == signal.SIGKILL


def test_a_child_is_no_leftover_before_it_is_adopted(
    one: Machine, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another stage ends, and orphans are looked for, while a forked child waits for its agent's word."""
    write("script.py", "print(7)")
    adopt = one.processes.adopt

    def adopt_late(spec: Spec, pid: int, tell: Callable[[str], None]) -> Stage:
        one.processes.start(Spec("true", log))
        while not one.processes.poll(1):
            pass
        one.processes._tidy = 0
        one.processes.poll(0)
        return adopt(spec, pid, tell)

    monkeypatch.setattr(one.processes, "adopt", adopt_late)
    assert one.run("python script.py", log).code == 0
    assert log.read_text() == "7\n"


def test_a_child_has_a_session_where_stages_have_one(one: Machine, log: Path) -> None:
    """So that it cannot read from the terminal of an agent that has one."""
    one.processes.has_sessions = True
    write("script.py", "import os; print(os.getsid(0) == os.getpid() == os.getpgrp())")
    assert one.run("python script.py", log).code == 0
    assert log.read_text() == "True\n"


# What it starts


def test_what_a_child_leaves_behind_is_found(one: Machine, place: Path, log: Path) -> None:
    """Forked twice, in a session of its own, while another stage runs: only the mark tells whose it is."""
    write("script.py", """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        while True:
            open("beats", "a").write(".")
            time.sleep(.02)
    os._exit(0)
os.wait()
while not os.path.exists("beats"): time.sleep(.01)
""")  # fmt: skip
    write("long.py", "import time; time.sleep(60)")
    other = one.forked("python long.py", place / "other", slot="cpu 1")
    assert one.run("python script.py", log).code == 0
    size = Path("beats").stat().st_size
    assert not wait_until(lambda: Path("beats").stat().st_size > size, 0.2)
    assert guardian.read(other.pid) is not None
    assert one.processes.usage(other).processes == 1


MULTI = """
import multiprocessing, pickle, sys

class Point:
    def __init__(self, x): self.x = x

def double(point): return Point(2 * point.x)

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print([point.x for point in pool.map(double, [Point(1), Point(2)])])
    print(pickle.loads(pickle.dumps(Point(7))).x, Point.__module__, multiprocessing.current_process().name)
"""


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_multiprocessing_works(one: Machine, log: Path, how: str) -> None:
    write("script.py", MULTI)
    assert one.run(f"python script.py {how}", log).code == 0, log.read_text()
    assert log.read_text() == "[2, 4]\n7 __main__ MainProcess\n"


def test_multiprocessing_works_in_a_module(one: Machine, log: Path) -> None:
    Path("package").mkdir()
    write("package/train.py", MULTI)
    assert one.run("python -m package.train spawn", log).code == 0, log.read_text()
    assert log.read_text() == "[2, 4]\n7 __main__ MainProcess\n"


# Parents


def test_one_parent_serves_a_slot(one: Machine, place: Path, log: Path) -> None:
    write("script.py", "import sys; print('decimal' in sys.modules)")
    write("other.py", "print(7)")
    for number in range(50):
        assert one.run(f"python script.py {number}", log).code == 0
    assert one.run("python other.py", log).code == 0
    assert log.read_text() == "True\n" * 50 + "7\n"
    (first,) = one.parent_pids()
    assert one.run("python script.py", log, slot="cpu 1").code == 0
    assert len(one.parent_pids()) == 2
    assert first in one.parent_pids()
    assert one.processes.usage(one.forked("python script.py", log)).processes <= 1
    one.close()
    assert wait_until(lambda: not guardian.read(first) or guardian.read(first).state == "Z")  # type: ignore[union-attr]
    assert one.notes == []


def test_what_modules_read_at_import_is_the_same(one: Machine, log: Path) -> None:
    write("script.py", "import os; print(os.environ['OMP_NUM_THREADS'])")
    for threads in ("1", "2", "1"):
        one.run("python script.py", log, environment={**ENVIRONMENT, "OMP_NUM_THREADS": threads})
    assert log.read_text() == "1\n2\n1\n"
    assert len(one.parent_pids()) == 2


def test_a_slot_has_few_parents(one: Machine, place: Path, log: Path) -> None:
    for number in range(6):
        Path(f"d{number}").mkdir()
        write(f"d{number}/script.py", f"print({number})")
        assert one.run(f"python d{number}/script.py", log).code == 0
    assert wait_until(lambda: len(one.parent_pids()) <= 3)
    assert log.read_text() == "".join(f"{number}\n" for number in range(6))


def test_a_module_that_changed_is_imported_anew(workplace: Path, log: Path) -> None:
    write("mine.py", "import part; VALUE = 1")
    write("part.py", "VALUE = 1")
    write("script.py", "import mine, part; print(mine.VALUE, part.VALUE)")
    with machine("mine") as one:
        one.run("python script.py", log)
        (pid,) = one.parent_pids()
        one.run("python script.py", log)
        assert one.parent_pids() == [pid]
        write("part.py", "VALUE = 2  # longer: within a second Python tells files apart by their size")
        one.run("python script.py", log)
        assert pid not in one.parent_pids()
        write("script.py", "import mine, part; print('new', mine.VALUE, part.VALUE)")
        one.run("python script.py", log)
    assert log.read_text() == "1 1\n1 1\n1 2\nnew 1 2\n"


@pytest.mark.parametrize("where", [".", "lib"])
def test_a_module_that_was_not_there_before_is_found(
    one: Machine, place: Path, log: Path, where: str
) -> None:
    """Beside the script, or in a place of the path that is new itself."""
    environment = {**ENVIRONMENT, "PYTHONPATH": str(place / "lib")}
    write("script.py", "try:\n    import later; print('there')\nexcept ImportError: print('not there')")
    one.run("python script.py", log, environment=environment)
    Path(where).mkdir(exist_ok=True)
    write(f"{where}/later.py", "")
    one.run("python script.py", log, environment=environment)
    assert log.read_text() == "not there\nthere\n"
    assert len(one.parent_pids()) == 1


UNSAFE = {
    "threading_at_import": ("import threading as t; t.Thread(target=t.Event().wait, daemon=True).start()",
                            "start threads"),
    "processes_at_import": ("import subprocess; p = subprocess.Popen(['sleep', '60'])", "start processes"),
    "broken_at_import": ("1 / 0", "cannot import broken_at_import: ZeroDivisionError: division by zero"),
    "exits_at_import": ("raise SystemExit(3)", "cannot import exits_at_import: SystemExit: 3"),
    "torch": ("class cuda:\n    @staticmethod\n    def is_initialized(): return True", "use a GPU"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*UNSAFE, "missing_module"])
def test_an_unsafe_parent_is_not_used(workplace: Path, log: Path, name: str) -> None:
    text, reason = UNSAFE.get(name, ("", "cannot import missing_module: ModuleNotFoundError"))
    if text:
        write(f"{name}.py", text)
    write("script.py", "print(7)")
    with machine(name) as one:
        for slot in ("cpu 0", "cpu 0", "cpu 1"):
            assert one.fork("python script.py", log, slot=slot) is None
        assert len(one.notes) == 2
        assert all(reason in note for note in one.notes), one.notes
        assert one.notes[0].startswith("cpu 0: ")
        assert wait_until(lambda: not one.parent_pids())


def test_a_file_that_hides_a_module_of_python_is_noticed(one: Machine, log: Path) -> None:
    write("json.py", "VALUE = 7")
    write("script.py", "import json; print(json.VALUE)")
    assert one.fork("python script.py", log) is None
    assert "json.py hides a module of Python" in one.notes[0]


def test_another_interpreter_is_told_by_its_silence(one: Machine, place: Path, log: Path) -> None:
    write("python3", "#!/bin/sh\nexit 1\n")
    Path("python3").chmod(0o755)
    write("script.py", "print(7)")
    for _ in range(5):
        assert one.fork("./python3 script.py", log) is None
    assert one.notes == [
        "cpu 0: trials start without `preload`: "
        "the process that has imported the modules ended while importing modules"
    ]


# Deaths


def test_a_parent_that_is_killed_is_replaced(one: Machine, log: Path) -> None:
    write("script.py", "import sys, time; print('ready'); time.sleep(float(sys.argv[1]))")
    running = one.forked("python script.py 1", log)
    (pid,) = one.parent_pids()
    assert wait_until(lambda: log.read_text() == "ready\n")
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: getattr(guardian.read(pid), "state", "Z") == "Z")
    assert one.fork("python script.py 0", log) is None
    assert one.run("python script.py 0", log).code == 0
    assert one.finish(running).code == 0
    assert len(one.notes) == 1
    assert "is gone" in one.notes[0]
    assert pid not in one.parent_pids()
    assert wait_until(lambda: one.processes.poll(0) == [] and guardian.read(pid) is None, 5)


@pytest.mark.parametrize("when", ["forking", "importing modules"])
def test_a_parent_that_does_not_answer_is_replaced(
    workplace: Path, log: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("slow.py", "import os, time; time.sleep(60 if os.path.exists('slow') else 0)")
    write("script.py", "print(7)")
    with machine("slow") as one:
        if when == "forking":
            one.run("python script.py", log)
            os.kill(one.parent_pids()[0], signal.SIGSTOP)
        else:
            Path("slow").touch()
        with monkeypatch.context() as patience:
            patience.setattr(preload, "_FORK" if when == "forking" else "_IMPORTS", 0.3)
            assert one.fork("python script.py", log) is None
        Path("slow").unlink(missing_ok=True)
        assert one.run("python script.py", log).code == 0
        assert len(one.notes) == 1
        assert f"{when} took longer than" in one.notes[0]
        assert wait_until(lambda: len(one.parent_pids()) == 1)


def test_a_parent_that_dies_while_it_imports_is_not_tried_for_ever(workplace: Path, log: Path) -> None:
    write("deadly.py", "import os; os.kill(os.getpid(), 9)")
    write("script.py", "print(7)")
    with machine("deadly") as one:
        for _ in range(5):
            assert one.fork("python script.py", log) is None
        assert len(one.notes) == 1
        assert one.processes._count <= 5


def test_a_log_that_cannot_be_written_is_an_error(one: Machine, place: Path) -> None:
    write("script.py", "print(7)")
    with pytest.raises(OSError, match="missing"):
        one.fork("python script.py", place / "missing" / "log")
    assert one.run("python script.py", place / "log").code == 0


# With real libraries

NUMPY = "import numpy as np; x = np.ones((300, 300)); print(np.random.random(), float((x @ x).sum()))"


def test_threads_of_a_library_that_knows_of_forks_are_no_obstacle(workplace: Path, log: Path) -> None:
    """OpenBLAS has threads from its import on, ends them before a fork and starts them when it needs them."""
    need("numpy")
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    count = "import os, numpy; print(len(os.listdir('/proc/self/task')))"
    told = subprocess.run(
        [sys.executable, "-c", count],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    if told.stdout.strip() == "1":
        pytest.skip("this numpy, or this machine, has no threads at import")
    write("script.py", NUMPY)
    with machine("numpy") as one:
        for _ in range(2):
            assert one.run("python script.py", log, environment=environment).code == 0, log.read_text()
    first, second = log.read_text().splitlines()
    assert first.split()[0] != second.split()[0]
    assert first.split()[1] == second.split()[1]


TORCH = """
import random, os, sys, torch
print(random.random(), torch.initial_seed(), torch.rand(1).item(), torch.cuda.is_initialized())
torch.manual_seed(0)
random.seed(0)
model = torch.nn.Linear(20, 20)
loss = model(torch.ones(64, 20)).square().mean()
loss.backward()
print(random.random(), loss.item(), float(model.weight.grad.sum()))
if len(sys.argv) > 1:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    with_workers = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
    print([float(batch[0].sum()) for batch in with_workers])
"""


def test_torch_is_as_in_a_fresh_process(workplace: Path) -> None:
    need("torch")
    write("script.py", TORCH)
    log = workplace / "log"
    with machine("torch") as one:
        for extra in ("", "", " workers"):
            ended = one.run(f"python script.py{extra}", log)
            assert ended.code == 0, log.read_text()
        assert one.notes == []
    one_, first, two, second, three, third, workers = log.read_text().splitlines()
    drawn = [set(line.split()) - {"False"} for line in (one_, two, three)]
    assert not (drawn[0] & drawn[1] | drawn[1] & drawn[2] | drawn[0] & drawn[2])
    assert first == second == third
    assert workers == "[6.0, 22.0]"
