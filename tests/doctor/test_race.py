"""Two halves in one directory: real ones, one that lies, and what is made of what they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stoker import __version__
from stoker.checkup.finding import Check, Verdict, judge_clock
from stoker.checkup.half import NAMES
from stoker.checkup.other import Way, by_srun, by_ssh, here
from stoker.checkup.race import Contest, judge_contest, judge_delay, judge_host, look
from tests.local.mounts import mounted

HALF = [sys.executable, "-m", "stoker", "doctor", "--half"]
LIAR = """
import json, sys, time
def say(**said): print(json.dumps({"stoker": "half", **said}), flush=True)
print("Welcome to this cluster!"); print("[1, 2]"); print("{}")
say(answer={"host": "far-1234", "version": "9.9.9", "sees": True})
answers = {"time": time.time() + 100, "create": [True] * 200, "read": ["there"] * 200}
for line in sys.stdin:
    asked = json.loads(line)["do"]
    if asked == "watch":
        say(seen="name")
        say(seen="listing")
    say(answer=answers.get(asked))
"""


def found(directory: Path, way: Way) -> dict[str, Check]:
    return {check.name: check for check in look(directory, way)}


def test_two_processes(tmp_path: Path) -> None:
    checks = found(tmp_path, here())
    assert list(checks) == ["race by link", "race by O_EXCL", "new names", "listings", "new contents"]
    assert {check.verdict for check in checks.values()} == {Verdict.OK}
    assert list(tmp_path.iterdir()) == []
    won = [re.findall(r"(\d+) (?:here|there)", checks[f"race by {way}"].found) for way in ("link", "O_EXCL")]
    assert [sum(map(int, counts)) for counts in won] == [NAMES, NAMES]
    here_won, there_won = (sum(map(int, counts)) for counts in zip(*won, strict=True))
    assert here_won > 0 < there_won, "else it was no race"


def test_a_directory_that_the_other_does_not_see(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    with mounted(f"mount -t tmpfs none '{place}'") as mounts:
        (check,) = look(place, Way(mounts.enter, "gpu7", "fix it"))
    assert (check.verdict, check.found) == (Verdict.BAD, f"gpu7 does not see {place}")
    assert list(place.iterdir()) == []


def test_a_half_that_lies(tmp_path: Path) -> None:
    script = tmp_path / "liar.py"
    script.write_text(LIAR, encoding="utf-8")
    place = tmp_path / "place"
    place.mkdir()
    way = Way((sys.executable, str(script)), "far", "fix it", latest=0.3)
    checks = found(place, way)
    assert checks["host"].found == f"far, with Stoker 9.9.9 (here: {__version__})"
    assert checks["clocks"].found == "that of far is 100.0 s ahead of ours"
    assert checks["race by link"].found == "200 of 200 names were won by both"
    assert checks["listings"].found == "not seen in listings within 0 s"  # of what it did not write
    bad = {name for name, check in checks.items() if check.verdict is Verdict.BAD}
    assert bad == {"race by link", "race by O_EXCL", "new names", "listings", "new contents"}
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no-such-program"], "no-such-program: No such file or directory"),
        (
            ["sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255"],
            "Permission denied (publickey).",
        ),
        (["sh", "-c", "exit 7"], "it ended with exit code 7"),
        (["sh", "-c", "exec sleep 60"], "no answer in 1 s"),
    ],
)
def test_a_half_that_is_silent(tmp_path: Path, words: list[str], told: str) -> None:
    began = time.monotonic()
    (check,) = look(tmp_path, Way(words, "gpu7", "fix it", patience=1.0))
    assert (check.name, check.verdict, check.remedy) == ("gpu7", Verdict.BAD, "fix it")
    assert check.found.startswith("does not answer: ")
    assert told in check.found
    assert list(tmp_path.iterdir()) == []
    assert time.monotonic() - began < 10


def test_a_half_leaves_with_whoever_started_it(tmp_path: Path) -> None:
    with subprocess.Popen([*HALF, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as half:
        assert half.stdin is not None
        assert half.stdout is not None
        assert json.loads(half.stdout.readline())["answer"]["sees"] is True
        half.stdin.close()
        assert half.wait(timeout=10) == 0


def test_a_half_makes_no_directory(tmp_path: Path) -> None:
    """One that was removed is not wanted back."""
    asked = json.dumps({"do": "publish", "with": [1]}) + "\n"
    place = tmp_path / "place"
    place.mkdir()
    with subprocess.Popen([*HALF, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as half:
        assert half.stdin is not None
        assert half.stdout is not None
        half.stdout.readline()
        place.rmdir()
        half.stdin.write(asked.encode())
        half.stdin.flush()
        assert "the directory of the study is gone" in json.loads(half.stdout.readline())["error"]
        half.stdin.close()
    assert not place.exists()


def test_what_is_started() -> None:
    python, place = sys.executable, Path("/it's/here")
    assert here().command(place) == [python, "-m", "stoker", "doctor", "--half", str(place)]
    ssh = by_ssh("gpu7").command(place)
    assert ssh[:-1] == ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "gpu7"]
    assert ssh[-1] == f"{python} -m stoker doctor --half '/it'\"'\"'s/here'"
    srun = by_srun().command(place)
    assert srun[:4] == ["srun", "-N1", "-n1", "--time=2"]
    assert srun[-6:] == here().command(place)


# What follows

HERE, THERE = [True, False], [False, True]
READ = ["here", "there"]
GOOD = Contest("link", HERE, THERE, READ, READ)


@pytest.mark.parametrize(
    ("contest", "verdict", "told"),
    [
        (GOOD, Verdict.OK, "2 names, each with one winner (1 here, 1 there)"),
        (replace(GOOD, ours=[True, True]), Verdict.BAD, "1 of 2 names were won by both"),
        (replace(GOOD, ours=[False, False]), Verdict.OK, "2 names"),  # it was told otherwise, and reads it
        (replace(GOOD, ours=[False, False], we_read=["", "there"]), Verdict.BAD, "1 of 2 names are not read"),
        (replace(GOOD, they_read=["there", "there"]), Verdict.BAD, "1 of 2 names are not read"),
        (replace(GOOD, we_read=["there"] * 2, they_read=["there"] * 2), Verdict.BAD, "1 of 2 names are not"),
        (replace(GOOD, we_read=["torn"] * 2, they_read=["torn"] * 2), Verdict.BAD, "2 of 2 names are not"),
        (replace(GOOD, they_read=["here"]), Verdict.BAD, "1 of 2 names are not read"),
    ],
)
def test_contests(contest: Contest, verdict: Verdict, told: str) -> None:
    check = judge_contest(contest)
    assert check.verdict is verdict
    assert told in check.found


@pytest.mark.parametrize(
    ("kind", "delays", "verdict", "told"),
    [
        ("name", [0.01, 0.2], Verdict.OK, "seen by name within 0.20 s"),
        ("listing", [4.9], Verdict.OK, "seen in listings within 5 s"),
        ("listing", [0.1, 31.2, 2.0], Verdict.WARNING, "seen in listings within 31 s"),
        ("name", [31.2], Verdict.WARNING, "seen by name within 31 s"),
        ("contents", [0.1, None], Verdict.BAD, "not seen in replaced files within 75 s"),
    ],
)
def test_news_that_is_late(kind: str, delays: list[float | None], verdict: Verdict, told: str) -> None:
    check = judge_delay(kind, delays, 75.0)
    assert (check.verdict, check.found) == (verdict, told)


@pytest.mark.parametrize(
    ("ahead", "unsure", "verdict", "told"),
    [
        (0.2, 0.01, Verdict.OK, "it is as ours"),
        (-3.0, 0.01, Verdict.OK, "it is 3.0 s behind ours"),
        (-5.2, 0.01, Verdict.WARNING, "it is 5.2 s behind ours"),
        (7200.0, 0.01, Verdict.WARNING, "it is 7200.0 s ahead of ours"),
        (6.0, 2.0, Verdict.OK, "it is 6.0 s ahead of ours"),  # the question took long
    ],
)
def test_clocks(ahead: float, unsure: float, verdict: Verdict, told: str) -> None:
    check = judge_clock("clocks", "it", ahead, unsure)
    assert (check.verdict, check.found) == (verdict, told)


def test_hosts() -> None:
    assert judge_host("gpu7-1f60e296", __version__, "login-00000000").found == "gpu7"
    assert judge_host("gpu7-1f60e296", __version__, "gpu7-1f60e296").found == "this host itself"
    assert judge_host("gpu7-1f60e296", "0.0.1", "login-0").verdict is Verdict.WARNING
