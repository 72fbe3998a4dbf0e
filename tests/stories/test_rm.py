"""A person cleans up, and nothing goes that should stay."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from stoker.cli import main
from stoker.store import open_store
from stoker.study.opened import open_study
from tests.stories.command import STOKER, stoker
from tests.stories.studies import Here, copy, make, refusal, running


def test_the_files_of_a_trial(study: Path, here: Here) -> None:
    removed = stoker("rm", "N_1", "--yes")
    assert (removed.returncode, removed.stdout) == (0, "")
    assert removed.stderr.startswith("removed 5 files, ")
    assert sorted(path.name for path in study.iterdir()) == [".stoker", "N_2", "N_3", "params.yaml"]
    assert open_study("output").state.counts().finished == 2, "what became of it is still known"
    assert here("rm", "N_1", "--yes").stderr == "there is nothing to remove\n"
    assert here("retry", "1", "--fresh").returncode == 0
    assert stoker("run").returncode == 1
    assert (study / "N_1/model.pt").read_text() == "1\n"


def test_the_whole_study_and_nothing_else(study: Path, here: Here) -> None:
    outside = study.parent / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (study / "mine").mkdir()
    (study / "mine/notes").touch()
    (study / "N_1/link").symlink_to(outside)
    (study / "N_2").rename(outside / "N_2")
    (study / "N_2").symlink_to(outside / "N_2")
    (study / "N_3/param").write_text("n: 7\n")  # somebody has put something else there
    removed = here("rm", "--all", "--yes")
    assert removed.returncode == 0
    assert "output/N_2 is no directory: left as it is\n" in removed.stderr
    assert sorted(path.name for path in study.iterdir()) == ["N_2", "N_3", "mine"]
    assert (outside / "precious").exists()
    assert (outside / "N_2/model.pt").exists()
    assert here("status").returncode == 2


def test_nothing_is_left_of_a_study_alone(study: Path) -> None:
    assert main(["rm", "--all", "--yes"]) == 0
    assert not study.exists()


def test_without_directories(workplace: Path) -> None:
    make("template: echo {n}\n---\nn: [1, 11]\n", "--no-subdir")
    assert main(["rm", "1", "--yes"]) == 0
    (log,) = Path("output").glob("log.*")
    assert log.read_text() == "11\n"


def test_what_runs_is_left_alone(workplace: Path, here: Here) -> None:
    with running():
        assert "1 agent at work on this study; `stoker stop` first" in refusal(here, "rm", "--all", "--yes")
        left = here("rm", "1", "--yes")
        assert left.returncode == 1
        assert "1 N_1 is running: left as it is" in left.stderr
        assert Path("output/N_1/begun").exists()


def test_what_cannot_be_meant(study: Path, here: Here) -> None:
    assert "which trials? name some, or say --all" in refusal(here, "rm")
    assert "which trials?" in refusal(here, "rm", "1", "--all")
    assert refusal(here, "rm", "1") == (
        "stoker: rm asks before it removes anything, and there is nobody to ask: say --yes\n"
    )
    (study / ".stoker").rename("elsewhere")
    (study / ".stoker").symlink_to(Path("elsewhere").absolute())
    assert ".stoker is a link" in refusal(here, "rm", "--all", "--yes")
    assert (study / "N_1/model.pt").exists()


@pytest.mark.parametrize(("answer", "is_there"), [("", True), ("y", False)])
def test_a_person_is_asked(study: Path, answer: str, is_there: bool) -> None:
    ours, theirs = pty.openpty()
    asked = subprocess.Popen([STOKER, "rm", "--all"], stdin=theirs, stderr=theirs)
    text = b""
    while b"[y/N]" not in text:
        text += os.read(ours, 4096)
    assert b"remove the study norms from output: " in text
    os.write(ours, f"{answer}\n".encode())
    assert asked.wait(timeout=20) == (1 if is_there else 0)
    os.close(ours)
    os.close(theirs)
    assert study.exists() is is_there


def test_in_a_bucket(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = f"{bucket}/removed"
    copy(bucket, place)
    store = open_store(place)
    store.write("mine/notes", b"precious")
    store.write("engines/nowhere", b"{}")
    assert main(["rm", "-o", place, "1", "--yes"]) == 0
    assert {entry.key.split("/")[2] for entry in store.list("files/")} == {"000000002", "000000003"}
    assert main(["rm", "-o", place, "--all", "--yes"]) == 2, "there may be jobs"
    assert "--force does not ask" in capsys.readouterr().err
    assert main(["rm", "-o", place, "--all", "--yes", "--force"]) == 0
    assert [entry.key for entry in store.list("")] == ["mine/notes"]
