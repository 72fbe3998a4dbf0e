"""Whatever ends a training while it saves: what was committed stays, and the next attempt goes on from it."""

from __future__ import annotations

import json
import random
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from stoker.manager import saver, tree
from stoker.manager.stopping import ECHO
from stoker.manager.trial import Trial as Told
from tests.local.mounts import mounted
from tests.manager.running import Trial

MIB = 1 << 20
LARGE = """\
from stoker import Manager

manager = Manager.create_manager()
big = {"data": b""}
manager.track(big=big)
begin = manager.start_epoch()
if begin:
    assert big["data"] == bytes([begin % 256]) * SIZE, "not what was saved"
print(begin, flush=True)
for epoch in manager.epochs(100000):
    big["data"] = bytes([(epoch + 1) % 256]) * SIZE
    manager.add_progress("square", epoch * epoch)
"""


def newest(trial: Trial) -> saver.Found | None:
    told = Told({}, str(trial.directory))
    return saver.newest(told, False, pytest.fail)


def epoch_of(found: saver.Found | None) -> int:
    return -1 if found is None else int(found.head["epoch"])


@pytest.mark.parametrize("grace", [None, 0.0, 0.01], ids=["kill", "no-grace", "short-grace"])
def test_killed_while_it_writes(tmp_path: Path, grace: float | None) -> None:
    trial, numbers = Trial(tmp_path / "trial", STOKER_SAVE_EVERY=1), random.Random(5)
    script = LARGE.replace("SIZE", str(24 * MIB))
    last = -1
    for _ in range(6):
        with trial.start(script) as process:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == last + 1
            while last < 0 and not trial.files(
                ".state"
            ):  # a disk may be slow, and the first one must be written
                time.sleep(0.01)
            time.sleep(numbers.uniform(0, 0.25))
            if grace is not None:
                process.terminate()
                time.sleep(grace)
            process.kill()
        now = epoch_of(newest(trial))
        assert now >= last
        last = now
    assert last >= 0
    assert trial.values()["square"][: last + 1] == [epoch * epoch for epoch in range(last + 1)]
    assert len(trial.files(".state")) <= 3  # the next save removes one, and what was torn
    trial.run(script.replace("100000", str(last + 2)))
    assert len(trial.files(".state")) == 2
    assert not trial.files(".tmp")


def test_asked_to_stop_it_saves_and_the_next_attempt_goes_on(tmp_path: Path) -> None:
    trial, numbers = Trial(tmp_path / "trial", STOKER_SAVE_EVERY="1h"), random.Random(6)
    last = 0
    for _ in range(4):
        with trial.start(LARGE.replace("SIZE", str(4 * MIB))) as process:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == last
            time.sleep(numbers.uniform(0.02, 0.1))
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 75, process.stderr and process.stderr.read()
        last = len(trial.values()["square"])
        assert epoch_of(newest(trial)) == last - 1  # nothing is lost
    assert trial.values()["square"] == [epoch * epoch for epoch in range(last)]


def test_a_second_request_ends_it_at_once(tmp_path: Path) -> None:
    script = """\
import time
from stoker import Manager

manager = Manager.create_manager()
print("ready", flush=True)
while not manager.should_stop():
    time.sleep(0.01)
print("asked", flush=True)
time.sleep(60)
"""
    with Trial(tmp_path / "trial").start(script) as process:
        assert process.stdout is not None
        for word in ("ready", "asked"):
            assert process.stdout.readline() == f"{word}\n"
            process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):  # so soon it is an echo
            process.wait(0.5 + ECHO)
        process.terminate()
        assert process.wait() == -signal.SIGTERM


FULL = """\
import os
from stoker import Manager

FULL, FREE, DEAD = TIMES
manager = Manager.create_manager()
os.chdir(manager.directory)
manager.set_compare_goal("score", "max")
big = {"data": b""}
manager.track(big=big)
for epoch in manager.epochs(7):
    if epoch == FULL:
        with open("ballast", "ab", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
    if epoch == FREE:
        os.unlink("ballast")
    if epoch == DEAD:
        os.kill(os.getpid(), 9)
    big["data"] = bytes([epoch]) * 400000
    manager.add_progress("score", [1, 2, 3, 9, 4, 5, 6][epoch])
    manager.save_progress({"epoch": epoch}, {"best": epoch, "data": "x" * 50000})
    manager._saver.wait()
"""


@pytest.mark.parametrize(
    ("times", "code"),
    [("2, 5, -1", 0), ("2, -1, 5", -signal.SIGKILL), ("2, -1, -1", 1)],
    ids=["for a while", "until it is killed", "to the end"],
)
def test_a_disk_that_is_full(tmp_path: Path, times: str, code: int) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    with mounted(f"mount -t tmpfs -o size=3m none {shlex.quote(str(place))}") as mounts:
        trial, seen = Trial(place, STOKER_SAVE_EVERY=1), Trial(mounts.path(place))
        _, errors = trial.run(FULL.replace("TIMES", times), *mounts.enter, code=code)
        assert "cannot save a checkpoint: No space left on device; the one before stays" in errors
        if code:
            assert epoch_of(newest(seen)) <= 2
            assert ("the trial is done, but its last checkpoint cannot be written" in errors) == (code == 1)
            (seen.directory / "ballast").unlink()
            trial.run(FULL.replace("TIMES", "-1, -1, -1"), *mounts.enter)
        assert seen.values()["score"] == [1, 2, 3, 9, 4, 5, 6]
        assert seen.told("finished.train.json")["best"]["place"] == 3
        assert not seen.files(".tmp")
        found = newest(seen)
        assert found is not None
        assert found.head["finished"]
        best = found.part("best")
        assert best is not None
        assert json.loads(Path(best).read_text())["best"] == 3  # even if the disk was full when it was made


def test_a_state_that_cannot_be_saved_is_told_where_it_is(tmp_path: Path) -> None:
    script = """\
from stoker import Manager
manager = Manager.create_manager()
manager.track(things={"a": {"b": [1, object()]}})
manager.save_progress()
"""
    _, errors = Trial(tmp_path / "trial").run(script, code=1)
    assert "things.a.b[1] is a builtins.object, which is no plain data" in errors
    assert tree.MAGIC not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.state"))
