"""Stages as real processes: how they end, what they get, and that nothing of them is left."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.agent import guardian
from stoker.agent.processes import Ended, Processes, Spec, Stage, StageError, Why
from tests.agent.beats import WAYS, alive, daemon, hidden_daemon, hidden_in_session, wait_until

Way = Callable[[Path], str]
linux = pytest.mark.skipif(not guardian.LINUX, reason="only Linux finds all processes of a stage")


both_ways = pytest.mark.parametrize("processes", ["pidfds", "ticks"], indirect=True)


@pytest.fixture
def processes(request: pytest.FixtureRequest, workplace: Path) -> Iterator[Processes]:
    """In an empty directory; with pidfds or, in some tests, also as where there are none."""
    with Processes(pidfds=getattr(request, "param", "pidfds") == "pidfds") as made:
        yield made


@pytest.fixture
def log(workplace: Path) -> Path:
    return workplace / "log.train"


def finish(processes: Processes, stage: Stage, seconds: float = 10.0) -> Ended:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for ended in processes.poll(max(0.0, until - time.monotonic())):
            if ended.stage is stage:
                return ended
    raise AssertionError(f"still running: {stage.spec.command}")


def run(processes: Processes, spec: Spec) -> Ended:
    return finish(processes, processes.start(spec))


# How it ends


@both_ways
@pytest.mark.parametrize(
    ("command", "code", "number"),
    [
        ("true", 0, None),
        ("false", 1, None),
        ("bash -c 'exit 7'", 7, None),
        ("exit 255", 255, None),
        ("kill -9 $$", None, signal.SIGKILL),
        ("python3 -c 'import os; os.abort()'", None, signal.SIGABRT),
        ("", 0, None),
        ("-x", 127, None),
    ],
)
def test_exit_codes_and_signals(
    processes: Processes, log: Path, command: str, code: int | None, number: int | None
) -> None:
    ended = run(processes, Spec(command, log))
    assert (ended.code, ended.signal, ended.why) == (code, number, Why.EXITED)


def test_time_and_memory_are_told(processes: Processes, log: Path) -> None:
    text = "import time; x = bytearray(80_000_000)\nwhile time.process_time() < .2: 1"
    ended = run(processes, Spec(f"{sys.executable} -c '{text}'", log))
    assert 0.2 <= ended.cpu <= ended.wall + 0.1
    assert ended.memory > 80_000_000


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("no-such-program --x 1", 127, "no-such-program: command not found"),
        ("no-such-program | cat; exit ${PIPESTATUS[0]}", 127, "no-such-program: command not found"),
        ("./no-such-file", 127, "./no-such-file: No such file or directory"),
        ("./not-executable", 126, "./not-executable: Permission denied"),
        ("./directory", 126, "./directory: Is a directory"),
    ],
)
def test_a_wrong_command_is_told_as_bash_tells_it(
    processes: Processes, log: Path, command: str, code: int, said: str
) -> None:
    Path("not-executable").write_text("true\n", encoding="utf-8")
    Path("directory").mkdir()
    ended = run(processes, Spec(command, log))
    assert ended.code == code
    assert said in log.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["true", "true; true"])
def test_a_missing_directory_is_told_in_the_log(processes: Processes, log: Path, command: str) -> None:
    ended = run(processes, Spec(command, log, directory=Path("missing").absolute()))
    assert ended.code == 126
    assert "missing: No such file or directory" in log.read_text(encoding="utf-8")


def test_a_log_that_cannot_be_written_is_an_error(processes: Processes, workplace: Path) -> None:
    with pytest.raises(StageError, match="missing/log"):
        processes.start(Spec("true", workplace / "missing" / "log"))


@pytest.mark.parametrize(
    "spec", [Spec("run 'a\0b'", Path("log")), Spec("true", Path("log"), {"a=b": "c"})], ids=["nul", "name"]
)
def test_what_no_program_can_be_given_is_an_error(processes: Processes, workplace: Path, spec: Spec) -> None:
    with pytest.raises(StageError, match="cannot start"):
        processes.start(spec)


def test_a_script_without_a_first_line_runs_in_bash(processes: Processes, log: Path) -> None:
    Path("script").write_text("echo $((40 + 2))\n", encoding="utf-8")
    Path("script").chmod(0o755)
    assert run(processes, Spec("./script", log)).code == 0
    assert log.read_text(encoding="utf-8") == "42\n"


# What it gets

SHOW = """
import os, signal, sys
print(sys.argv[1:], os.environ.get("X"), os.environ.get("PWD") == os.getcwd(), os.getcwd() == sys.argv[1])
print(sorted(map(int, os.listdir("/proc/self/fd")))[:-1], repr(sys.stdin.read()))
print(os.getpid() == os.getpgid(0), signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN and n not in (13, 25)])
"""


@linux
@pytest.mark.parametrize("end", ["", ";"], ids=["direct", "bash"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_stage_gets_a_clean_start(log: Path, end: str, elsewhere: bool) -> None:
    """No descriptor but the log, empty input, its own group, default signals, its directory."""
    Path("show.py").write_text(SHOW, encoding="utf-8")
    other = Path("other one")
    other.mkdir()
    directory = (other if elsewhere else Path()).absolute()
    leaked = os.open("show.py", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        command = f'{sys.executable} "$PWD/{"../" * elsewhere}show.py" "$PWD" \'a b\'{end}'
        if not end:
            word = str(directory).replace("'", "'\"'\"'")
            script = str(Path("show.py").absolute()).replace("'", "'\"'\"'")
            command = f"{sys.executable} '{script}' '{word}' 'a b'"
        spec = Spec(command, log, {"X": "ü \n"}, directory=directory)
        assert spec.shell is bool(end)
        with Processes() as processes:
            ended = run(processes, spec)
    finally:
        signal.signal(signal.SIGUSR1, old)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        os.close(leaked)
    said = log.read_text(encoding="utf-8")
    assert ended.code == 0, said
    assert said.splitlines() == [
        f"{[str(directory), 'a b']} ü ",
        " True True",
        "[0, 1, 2] ''",
        "True set()",
        "[]",
    ]


def test_output_and_errors_are_appended_to_one_log(processes: Processes, log: Path) -> None:
    for _ in range(2):
        assert run(processes, Spec("echo out; echo err >&2", log)).code == 0
    assert log.read_text(encoding="utf-8") == "out\nerr\n" * 2


def test_an_exported_function_is_run_as_bash_would(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `module` and `which` on many clusters."""
    monkeypatch.setenv("BASH_FUNC_sleep%%", "() { echo my own; }")
    with Processes() as processes:
        assert run(processes, Spec("sleep 60", log)).code == 0
    assert log.read_text(encoding="utf-8") == "my own\n"


def test_a_large_log_streams_to_disk(processes: Processes, log: Path) -> None:
    assert run(processes, Spec("head -c 50000000 /dev/zero", log)).code == 0
    assert log.stat().st_size == 50_000_000
    log.unlink()


# Ending it


def test_a_timeout_asks_first(processes: Processes, log: Path) -> None:
    command = "trap 'echo saved; exit 3' TERM; echo ready; while :; do sleep 0.01; done"
    ended = run(processes, Spec(command, log, timeout=0.3, grace=20))
    assert (ended.code, ended.why) == (3, Why.TIMEOUT)
    assert log.read_text(encoding="utf-8").split()[-1] == "saved"


@both_ways
@linux
@pytest.mark.parametrize("way", WAYS)
def test_a_timeout_ends_what_ignores_it(processes: Processes, log: Path, way: Way) -> None:
    file = log.with_name("beat")
    ended = run(processes, Spec(way(file), log, timeout=0.15, grace=0.1))
    assert ended.why is Why.TIMEOUT
    assert ended.wall < 2
    assert not alive(file)


@both_ways
@linux
@pytest.mark.parametrize("way", WAYS)
def test_killing_ends_all_processes(processes: Processes, log: Path, way: Way) -> None:
    file = log.with_name("beat")
    stage = processes.start(Spec(way(file), log))
    assert wait_until(file.exists)
    processes.kill(stage)
    processes.kill(stage)
    ended = finish(processes, stage, 2)
    assert (ended.why, ended.signal) == (Why.KILLED, signal.SIGKILL)
    assert not alive(file)
    processes.kill(stage)  # it is over: nothing happens
    processes.terminate(stage)


FORKING = """
import os, sys
beat = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.write(beat, b".")
"""


@both_ways
@linux
def test_a_stage_that_forks_all_the_time_is_ended(processes: Processes, log: Path) -> None:
    file, script = log.with_name("beat"), log.with_name("fork.py")
    script.write_text(FORKING, encoding="utf-8")
    stage = processes.start(Spec("python3 fork.py beat & sleep 60", log))
    assert wait_until(lambda: file.exists() and file.stat().st_size > 100)
    processes.kill(stage)
    finish(processes, stage, 5)
    size = file.stat().st_size
    time.sleep(0.1)
    assert file.stat().st_size == size


def test_what_saves_its_work_may_outlive_its_shell_by_the_grace(processes: Processes, log: Path) -> None:
    """A shell dies of SIGTERM at once; the program that it runs may take its time."""
    saver = 'trap "sleep 0.6; echo saved; exit" TERM; echo ready; while :; do sleep 0.01; done'
    stage = processes.start(Spec(f"bash -c '{saver}' & wait", log))
    assert wait_until(lambda: log.exists() and "ready" in log.read_text(encoding="utf-8"))
    processes.terminate(stage, grace=20)
    ended = finish(processes, stage)
    assert (ended.why, ended.signal) == (Why.KILLED, signal.SIGTERM)
    assert "saved" in log.read_text(encoding="utf-8")


def test_what_takes_a_group_of_its_own_is_asked_too(processes: Processes, log: Path) -> None:
    saver = 'trap "echo saved; exit" TERM; echo ready; while :; do sleep 0.01; done'
    stage = processes.start(Spec(f"timeout 60 bash -c '{saver}'; true", log))
    assert wait_until(lambda: log.exists() and "ready" in log.read_text(encoding="utf-8"))
    processes.terminate(stage, grace=20)
    finish(processes, stage)
    assert "saved" in log.read_text(encoding="utf-8")


def test_a_second_request_can_shorten_the_grace(processes: Processes, log: Path) -> None:
    stage = processes.start(Spec("trap '' TERM; echo ready; while :; do sleep 0.01; done", log))
    assert wait_until(lambda: log.exists() and "ready" in log.read_text(encoding="utf-8"))
    processes.terminate(stage, grace=60)
    assert processes.poll(0.1) == []
    processes.terminate(stage, grace=0)
    assert finish(processes, stage, 2).signal == signal.SIGKILL


# What it leaves behind


@linux
@pytest.mark.parametrize("way", [daemon, hidden_daemon])
def test_a_daemon_ends_with_its_stage(processes: Processes, log: Path, way: Way) -> None:
    file = log.with_name("beat")
    command = way(file).replace("sleep 60", f"while [ ! -e '{file.name}' ]; do sleep 0.01; done")
    ended = run(processes, Spec(command, log))
    assert (ended.code, ended.why) == (0, Why.EXITED)
    assert not alive(file)


@linux
@pytest.mark.parametrize("way", [daemon, hidden_in_session])
def test_a_daemon_does_not_wait_for_other_stages(processes: Processes, log: Path, way: Way) -> None:
    file = log.with_name("beat")
    other = processes.start(Spec("sleep 60", log))
    time.sleep(0.03)  # more than the clock tick by which ages are told
    stage = processes.start(Spec(way(file), log))
    assert wait_until(file.exists)
    os.kill(stage.pid, signal.SIGKILL)
    finish(processes, stage)
    assert not alive(file)
    processes.kill(other)


@linux
@pytest.mark.parametrize("way", [daemon, hidden_daemon])
def test_a_daemon_lives_as_long_as_its_stage(processes: Processes, log: Path, way: Way) -> None:
    """Stages that end meanwhile do not take it along, not even if it cannot be told whose it is."""
    file = log.with_name("beat")
    first = processes.start(Spec("sleep 0.2; true", log))
    stage = processes.start(Spec(way(file), log))
    assert wait_until(file.exists)
    for _ in range(5):
        assert run(processes, Spec("true", log)).code == 0
    finish(processes, first)
    assert alive(file)
    processes.kill(stage)
    finish(processes, stage)
    assert not alive(file)


def test_what_is_still_writing_may_finish(processes: Processes, log: Path) -> None:
    """The shell does not wait for a process substitution."""
    assert run(processes, Spec("exec > >(sleep 0.1; cat); echo last line", log)).code == 0
    assert log.read_text(encoding="utf-8") == "last line\n"


def test_another_child_of_the_agent_is_left_alone(processes: Processes, log: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        assert run(processes, Spec("sleep 0.01 & true", log)).code == 0
        assert other.poll() is None
        other.kill()
        assert other.wait() == -signal.SIGKILL


def zombies() -> list[int]:
    return [
        process.pid
        for process in guardian.table().values()
        if process.parent == os.getpid() and process.state == "Z"
    ]


@both_ways
@linux
def test_hundreds_of_stages_leave_nothing(processes: Processes, log: Path) -> None:
    run(processes, Spec("true", log))
    before = os.listdir("/dev/fd")  # noqa: PTH208
    waiting, running = 300, 0
    while waiting or running:
        while waiting and running < 8:
            processes.start(Spec("true" if waiting % 3 else "(setsid true &)", log))
            waiting, running = waiting - 1, running + 1
        for ended in processes.poll(10):
            assert ended.code == 0
            running -= 1
    assert os.listdir("/dev/fd") == before  # noqa: PTH208
    run(processes, Spec("true", log))
    assert zombies() == []


def test_closing_ends_everything(workplace: Path) -> None:
    before = os.listdir("/dev/fd")  # noqa: PTH208
    with Processes() as processes:
        for way in WAYS:
            processes.start(Spec(way(workplace / way.__name__), workplace / "log"))
        assert wait_until(lambda: all((workplace / way.__name__).exists() for way in WAYS))
    assert not alive(workplace)
    assert os.listdir("/dev/fd") == before  # noqa: PTH208
    processes.close()


# Meanwhile


@linux
@pytest.mark.parametrize("way", WAYS)
def test_a_suspended_stage_stands_still(processes: Processes, log: Path, way: Way) -> None:
    file = log.with_name("beat")
    stage = processes.start(Spec(way(file), log))
    assert wait_until(file.exists)
    processes.suspend(stage)
    processes.suspend(stage)
    time.sleep(0.05)
    size = file.stat().st_size
    assert processes.poll(0.15) == []
    assert file.stat().st_size == size
    processes.resume(stage)
    assert wait_until(lambda: file.stat().st_size > size)


@linux
def test_a_timeout_does_not_run_while_suspended(processes: Processes, log: Path) -> None:
    stage = processes.start(Spec("sleep 60", log, timeout=0.3, grace=0))
    processes.suspend(stage)
    assert processes.poll(0.5) == []
    processes.resume(stage)
    ended = finish(processes, stage, 2)
    assert (ended.why, ended.signal) == (Why.TIMEOUT, signal.SIGTERM)
    assert ended.wall > 0.7


@linux
@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_a_suspended_stage_can_be_ended(processes: Processes, log: Path, end: str) -> None:
    stage = processes.start(Spec("sleep 60", log))
    processes.suspend(stage)
    getattr(processes, end)(stage)
    assert finish(processes, stage, 2).why is Why.KILLED


@linux
def test_usage_counts_all_processes(processes: Processes, log: Path) -> None:
    hog = "x = bytearray(50_000_000)\nprint(1, flush=True)\nwhile True: pass"
    stage = processes.start(Spec(f"python3 -c '{hog}' & setsid python3 -c '{hog}' & sleep 60", log))
    assert wait_until(lambda: log.exists() and log.read_bytes().count(b"1") == 2)
    time.sleep(0.2)
    usage = processes.usage(stage)
    assert usage.processes == 4
    assert usage.memory > 100_000_000
    time.sleep(0.3)
    assert processes.usage(stage).cpu > usage.cpu > 0
    processes.kill(stage)
    finish(processes, stage)
    assert processes.usage(stage).processes == 0


@both_ways
def test_another_thread_can_wake_it(processes: Processes, log: Path) -> None:
    processes.start(Spec("sleep 60", log))
    threading.Timer(0.1, processes.wakeup).start()
    start = time.monotonic()
    assert processes.poll(20) == []
    assert time.monotonic() - start < 5


@both_ways
def test_a_signal_handler_can_wake_it(processes: Processes) -> None:
    old = signal.signal(signal.SIGALRM, lambda *_: processes.wakeup())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        start = time.monotonic()
        assert processes.poll() == []
        assert time.monotonic() - start < 5
    finally:
        signal.signal(signal.SIGALRM, old)


@both_ways
def test_polling_without_patience_tells_what_has_ended(processes: Processes, log: Path) -> None:
    processes.start(Spec("true", log))
    assert wait_until(lambda: processes.poll(0))
    assert processes.poll(0) == []


@linux
def test_its_descriptor_is_readable_when_there_is_news(log: Path) -> None:
    with Processes() as processes:
        assert select.select([processes], [], [], 0)[0] == []
        processes.start(Spec("true", log))
        assert select.select([processes], [], [], 5)[0] == [processes]
        assert len(processes.poll(0)) == 1
        assert select.select([processes], [], [], 0)[0] == []
