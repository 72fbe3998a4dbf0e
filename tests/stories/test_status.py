"""A person looks at a study: while it runs, when it is over, from elsewhere."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from stoker.cli.status_page import Page
from stoker.cli.store_options import open_at
from stoker.core.times import stamp
from stoker.store.records import encode
from tests.display.emulator import Emulator
from tests.display.test_terminal import FRAME_END, Terminal
from tests.stories.command import STOKER, stoker
from tests.stories.studies import Here, make, refusal, running


def test_a_study_that_is_over(study: Path, here: Here) -> None:
    shown = stoker("status")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "2 of 3 finished, 1 failed, 0 left\nlast at work" in shown.stdout
    assert re.search(
        r"failed\n  2  N_2  train: exit code 1\n     output/N_2/log\.train\.\d{8}\.\d{6}", shown.stdout
    )
    assert shown.stdout.endswith("best by acc, max\n  3  N_3  0.3\n  1  N_1  0.1\n")
    assert "agents" not in shown.stdout
    assert "\x1b" not in shown.stdout
    assert here("status", "output").stdout.splitlines()[1:2] == shown.stdout.splitlines()[1:2]
    assert here("status", "-o", str(study)).stdout.splitlines()[1:2] == shown.stdout.splitlines()[1:2]


def test_parts_of_it(study: Path, here: Here) -> None:
    failed = here("status", "--failed").stdout
    assert "N_2" in failed
    assert "N_3" not in failed
    assert "N_" not in here("status", "--running").stdout
    listed = here("status", "--all").stdout
    assert "agents\n" in listed
    assert listed.endswith(
        "trials\n  1  N_1  finished  acc 0.1\n  2  N_2  failed    acc 0.2\n  3  N_3  finished  acc 0.3\n"
    )


def test_the_history_of_a_trial(study: Path, here: Here) -> None:
    assert here("retry", "2").returncode == 0
    assert stoker("run").returncode == 1
    shown = here("status", "output", "2").stdout
    assert shown.startswith("2  N_2  failed\n")
    assert "params       n: 2\n" in shown
    assert len(re.findall(r"attempt      1  .*failed, train: exit code 1\n", shown)) == 1
    assert len(re.findall(r"attempt      2 \(round 2\)  .*failed, train: exit code 1\n", shown)) == 1
    assert "metrics      acc 0.2" in shown


def test_as_data(study: Path, here: Here) -> None:
    told = json.loads(here("status", "--json").stdout)
    assert (told["study"], told["store"]) == ("norms", str(study))
    assert {name: told["counts"][name] for name in ("total", "finished", "failed", "waiting")} == {
        "total": 3,
        "finished": 2,
        "failed": 1,
        "waiting": 0,
    }
    assert [(agent["life"], agent["slots"], agent["running"]) for agent in told["agents"]] == [("left", 2, 0)]
    (failed,) = told["trials"]
    assert (failed["number"], failed["status"], failed["params"]) == (2, "failed", {"n": 2})
    assert failed["result"]["train"]["code"] == 1
    everything = json.loads(here("status", "--all", "--json").stdout)["trials"]
    assert [trial["metrics"] for trial in everything] == [{"acc": 0.1}, {"acc": 0.2}, {"acc": 0.3}]
    (named,) = json.loads(here("status", "--json", "N_3").stdout)["trials"]
    assert [attempt["end"] for attempt in named["attempts"]] == ["finished"]
    assert [Path(log).name.split(".")[1] for log in named["logs"]] == ["train", "test"]


def test_while_it_runs(workplace: Path, here: Here) -> None:
    with running():
        shown = here("status").stdout
        assert "0 of 2 finished, 1 running, 2 left\n" in shown
        assert re.search(r"agents\n  \S+ +1 slot  1 running  beat ", shown)
        assert re.search(r"running\n  1  N_1  train  0:\d\d  \S+\n", shown)
        with subprocess.Popen([STOKER, "status", "--watch"], stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            assert watch.stdout.readline().endswith("0 of 2 finished, 1 running, 2 left\n")
            Path("go").touch()
            assert watch.stdout.read().splitlines()[-1].endswith("2 of 2 finished, 0 left")
        assert watch.returncode == 0


LEARNING = """\
template: 'echo acc 0.{n}; touch {_output}/begun; while [ {n} != 1 -a ! -e go ]; do sleep 0.05; done'
metrics: {acc: 'acc ([\\d.]+)'}
resource: [""]
---
n: [1, 2, 3]
"""
"""Trial 1 is over at once; the others wait for `go`."""


def test_what_trials_say_while_they_run_and_when_it_may_end(workplace: Path, here: Here) -> None:
    with running(LEARNING, begun="output/N_2/begun"):
        shown = here("status").stdout
        assert "1 of 3 finished, 1 running, 2 left\nends ≈ " in shown
        assert "(in less than a minute)" in shown
        assert re.search(r"running\n  2  N_2  train  0:\d\d  acc 0\.2  \S+\n", shown)
        assert "  2  N_2  running   acc 0.2\n  3  N_3  waiting\n" in here("status", "--all").stdout
    assert "ends ≈" not in here("status").stdout


def test_nothing_is_promised_before_a_trial_has_finished(workplace: Path, here: Here) -> None:
    with running():
        assert "ends" not in here("status").stdout


def test_files_that_were_removed(study: Path, here: Here) -> None:
    assert "gone" not in here("status").stdout
    removed = here("rm", "N_1", "N_2", "N_3", "--yes")
    assert (
        "what became of the trials stays known; `stoker rm --all` removes the whole study" in removed.stderr
    )
    shown = here("status").stdout
    assert "2 of 3 finished, 1 failed, 0 left\n" in shown
    assert "the files of 2 finished trials are gone\n" in shown
    assert re.search(r"directory    \S+/N_1 \(removed\)\n", here("status", "1").stdout)


def test_beats_that_others_wrote(study: Path, here: Here) -> None:
    now = stamp()
    bodies: list[dict[str, Any]] = [
        {"host": "h" * 4000, "slots": -3, "pid": 1},
        {"host": "evil\x1b[2J-0", "slots": 10**12, "pid": "me"},
        {"host": "gpu7-1f60e296", "slots": 2, "pid": 7},
        {"host": "gpu7-1f60e296", "slots": True, "pid": 10**3000},
    ]
    for number, body in enumerate(bodies):
        data = encode({**body, "time": now, "running": [], "beat": 1, "left": False})
        (study / ".stoker/beats" / f"foreign-{number}").write_bytes(data)
    (study / ".stoker/beats/torn").write_bytes(b'{"v": 1, "host": ')
    shown = here("status").stdout
    agents = shown[shown.index("agents\n") : shown.index("\nfailed\n")].splitlines()[1:]
    assert [re.split(r"  +", line.strip())[:2] for line in agents if line] == [
        ["h" * 39 + "…", "slots unknown"],
        ["evil·[2J", "slots unknown"],
        ["gpu7 7", "2 slots"],
        ["gpu7 ?", "1 slot"],
    ]
    told = json.loads(here("status", "--json").stdout)["agents"]
    assert sorted(agent["slots"] for agent in told) == [0, 0, 1, 2, 2]


def test_watching_in_a_terminal_that_is_resized(workplace: Path) -> None:
    with running():
        command = 'cd "$1"; echo before; "$2" status --watch'
        words = "bash", "-c", command, "bash", str(workplace), STOKER
        screen = Terminal(*words, columns=100, wishes=workplace / "wishes")
        shown = Emulator(100, 24)
        screen.expect(FRAME_END)
        for columns, lines in ((50, 24), (120, 12)):
            screen.resize(columns, lines)
            shown.feed(screen.seen)
            shown.resize(columns, lines)
            screen.seen = ""
            screen.expect(FRAME_END)
        screen.send("\x03")
        screen.wait()
        screen.close()
    shown.feed(screen.seen.replace("^C", ""))
    page = shown.everything()
    assert page[0] == "before"
    assert [line for line in page if "0 of 2 finished" in line] == page[2:3]
    assert page[-1] == "left as it was"


def test_a_study_that_was_interrupted(workplace: Path, here: Here) -> None:
    with running() as process:
        process.send_signal(2)
        assert process.wait(timeout=20) == 130
        shown = here("status").stdout
    assert "0 of 2 finished, 2 left\nnobody is at work; `stoker run` goes on\n" in shown


def test_in_a_terminal(study: Path) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}
    subprocess.run([STOKER, "status", "--failed"], stdout=theirs, stderr=theirs, env=env, check=True)
    os.close(theirs)
    text = ""
    while "/log." not in text or not text.endswith("\n"):
        text += os.read(ours, 65536).decode()
    os.close(ours)
    lines = re.sub(r"\x1b\[\d*m", "", text).replace("\r", "").splitlines()
    assert lines[1:3] == ["━" * 79, "2 of 3 finished · 1 failed · 0 left"]


def test_long_names_give_way(workplace: Path) -> None:
    value = "a-value-that-is-rather-long-" * 4
    make(
        f"template: 'echo acc 1; [ {{n}} = {value} ]'\nresource: [0]\nmetrics: {{acc: 'acc (.*)'}}\n"
        f"objective: {{metric: acc, goal: min}}\n---\nn: [{value}, {value}2]\n"
    )
    page = Page(open_at("output"), "output", Namespace(failed=False, running=False, all=False))
    for width in (60, 80, 120):
        lines = [line.plain for line in page.lines(time.time(), width) if "/log." not in line.plain]
        assert max(map(len, lines)) <= width
        assert any(line.endswith("train: exit code 1") and "…" in line for line in lines)
        assert lines[-1].endswith("  1")


def test_what_cannot_be_meant(study: Path, here: Here) -> None:
    for words, told in {
        ("N_9",): "there is no trial 'N_9'; did you mean 'N_",
        ("N_",): "'N_' is part of several names: N_1, N_2 and N_3",
        ("99",): "there is no trial 99 to run; numbers go up to 3",
        ("nowhere/",): "there is no study in nowhere/; `stoker run` makes one",
        ("-o", ""): "-o needs the name of a directory",
        ("--watch", "1"): "--watch shows the whole study; leave out TRIAL",
        ("--failed", "--all"): "not allowed with argument",
    }.items():
        assert told in refusal(here, "status", *words)


def test_a_reader_that_leaves(study: Path) -> None:
    script = f"'{STOKER}' status --all | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_in_a_bucket(bucket: str, workplace: Path, here: Here) -> None:
    shown = here("status", bucket).stdout
    assert "2 of 3 finished, 1 failed, 0 left\n" in shown
    assert f"failed\n  2  N_2  train: exit code 1\n     stoker logs -o {bucket} 2\n" in shown
    assert "best by acc, max\n  3  N_3  0.3\n" in shown
    (named,) = json.loads(here("status", bucket, "1", "--json").stdout)["trials"]
    assert (named["directory"], [log.split(".")[1] for log in named["logs"]]) == (None, ["train", "test"])
