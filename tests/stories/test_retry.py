"""A person asks for trials again."""

from __future__ import annotations

from pathlib import Path

from stoker import api
from tests.stories.command import stoker
from tests.stories.studies import Here, copy, make, refusal, running, until


def test_what_failed_is_tried_again(workplace: Path, here: Here) -> None:
    make(
        "template: {a: 'echo {n} >> a', b: 'test -e mended || [ {n} = 1 ]'}\nresource: [0]\n---\nn: [1, 2]\n"
    )
    retried = stoker("retry", "--failed")
    assert (retried.returncode, retried.stdout) == (0, "")
    assert retried.stderr == "1 trial to run again: `stoker run` does it\n"
    Path("mended").touch()
    assert stoker("run").returncode == 0
    assert sorted(Path("a").read_text().split()) == ["1", "2"], "a finished stage ran again"
    none = here("retry", "--failed")
    assert (none.returncode, none.stderr) == (0, "no trial has failed\n")
    assert here("retry", "N_*", "--fresh").stderr == "2 trials to run again: `stoker run` does it\n"
    assert api.open().run().counts.finished == 2
    assert sorted(Path("a").read_text().split()) == ["1", "1", "2", "2"]


def test_what_is_left_alone(study: Path, here: Here) -> None:
    done = here("retry", "1")
    told = "1 N_1 is finished: --fresh runs it again\nnothing to try again\n"
    assert (done.returncode, done.stderr) == (1, told)
    done = here("retry", "1", "2")
    assert done.returncode == 0
    assert done.stderr.endswith("1 trial to run again: `stoker run` does it\n")
    done = here("retry", "2")
    assert (done.returncode, done.stderr) == (1, "2 N_2 is waiting: left as it is\nnothing to try again\n")
    assert "which trials? name some, or say --failed" in refusal(here, "retry")
    assert "there is no trial 9" in refusal(here, "retry", "9")


def test_agents_at_work_pick_it_up(workplace: Path, here: Here) -> None:
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    command = f"touch {{_output}}/begun; [ {{n}} = 1 ] || test -e mended || exit 1; {wait}"
    with running(f"template: '{command}'\nresource: [0, 1]\n---\nn: [1, 2]\n") as process:
        until(lambda: "failed\n  2  N_2" in here("status").stdout)
        Path("mended").touch()
        retried = here("retry", "--failed")
        assert retried.stderr == "1 trial to run again: 1 agent at work will see\n"
        Path("go").touch()
        assert process.wait(timeout=30) == 0


def test_in_a_bucket(bucket: str, here: Here) -> None:
    copy(bucket, f"{bucket}/retried")
    done = here("retry", "-o", f"{bucket}/retried", "--failed", "3")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "3 N_3 is finished: --fresh runs it again",
        "1 trial to run again: `stoker run` does it",
    ]
    assert "2 of 3 finished, 1 left" in here("status", f"{bucket}/retried").stdout
