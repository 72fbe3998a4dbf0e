"""A person fetches what trials have written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stoker.cli import main
from tests.stories.command import stoker
from tests.stories.studies import TEXT, Here, make, refusal, running, write


def tree(place: Path) -> list[str]:
    """All files, without the time in the names of logs."""
    names = (str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir())
    return sorted(name.split(".2")[0] for name in names)


def of_trial(name: str, *stages: str) -> list[str]:
    return sorted([f"{name}/{file}" for file in ("model.pt", "param", "stat", *(f"log.{s}" for s in stages))])


EVERYTHING = sorted(
    [
        "params.yaml",
        *of_trial("N_1", "train", "test"),
        *of_trial("N_2", "train"),
        *of_trial("N_3", "train", "test"),
    ]
)


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest) -> str:
    """The small study, in both kinds of stores."""
    if request.param == "bucket":
        request.getfixturevalue("workplace")
        return str(request.getfixturevalue("bucket"))
    return str(request.getfixturevalue("study"))


def test_everything(store: str) -> None:
    got = stoker("pull", store, "got")
    assert (got.returncode, got.stderr) == (0, "")
    assert got.stdout.startswith("3 trials, 14 files, ")
    assert tree(Path("got")) == EVERYTHING
    assert Path("got/N_3/model.pt").read_text() == "3\n"
    assert Path("got/params.yaml").read_text(encoding="utf-8") == TEXT


def test_parts(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", store, "got", "N_1", "2", "--include", "log.*", "--exclude", "log.test.*"]) == 0
    assert tree(Path("got")) == ["N_1/log.train", "N_2/log.train", "params.yaml"]
    assert main(["pull", store, "best", "--best", "1", "--include", "*.pt"]) == 0
    assert tree(Path("best")) == ["N_3/model.pt", "params.yaml"]
    assert capsys.readouterr().err == ""


def test_again_gets_only_what_is_missing(store: str) -> None:
    assert main(["pull", store, "got"]) == 0
    kept, changed, lost = Path("got/N_1/model.pt"), Path("got/N_2/model.pt"), Path("got/N_3/model.pt")
    before = kept.stat()
    changed.write_text("something else")
    lost.unlink()
    Path("got/N_1/notes").write_text("mine")
    assert main(["pull", store, "got"]) == 0
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (changed.read_text(), lost.read_text()) == ("2\n", "3\n")
    assert Path("got/N_1/notes").read_text() == "mine"


def test_links_stay_links(study: Path) -> None:
    Path("secret").write_text("secret")
    (study / "N_1/away").symlink_to(study.parent / "secret")
    (study / "N_1/model.pt").unlink()
    (study / "N_1/model.pt").symlink_to("param")
    assert main(["pull", "output", "got", "1"]) == 0
    assert main(["pull", "output", "got", "1"]) == 0
    assert Path("got/N_1/model.pt").readlink() == Path("param")
    assert Path("got/N_1/away").is_symlink()


def test_while_it_runs(workplace: Path) -> None:
    with running():
        assert main(["pull", "output", "got"]) == 0
        assert next(Path("got/N_1").glob("log.*")).read_text() == "begun 1\n"
        assert not Path("got/N_2").exists()


def test_a_second_iteration(study: Path) -> None:
    write(TEXT.replace("tested {n}'", "tested {n}'\n  more: 'echo more'"))
    assert stoker("run", "-c", "more").returncode == 1  # one trial fails before it comes to that stage
    got = stoker("pull", "output", "got", "N_1", "--include", "log.*")
    assert got.stdout.startswith("1 trial, 3 files, ")
    assert stoker("logs", "N_1").stdout == "more\n"


def test_without_directories(workplace: Path) -> None:
    make("template: echo {n}\n---\nn: [1, 11]\n", "--no-subdir")
    assert main(["pull", "output", "got", "1"]) == 0
    (log,) = Path("got").rglob("log.*")
    assert (log.parent.name, log.read_text()) == ("N_1", "1\n")


def test_what_cannot_be_meant(study: Path, here: Here) -> None:
    Path("file").touch()
    for words, told in {
        ("output",): "required: DEST",
        ("nowhere", "got"): "there is no study in nowhere",
        ("output", "output/got"): "output/got is in the study itself",
        ("output", "file"): "file is a file",
        ("output", "file/deeper"): "cannot write into file/deeper",
        ("output", "got", "N_1", "--best", "2"): "give trials, or --best, not both",
        ("output", "got", "--best", "0"): "--best 0: expected a number above 0",
    }.items():
        assert told in refusal(here, "pull", *words)
    shutil.rmtree("output")
    make("template: echo\n")
    assert "the study file has no `objective`" in refusal(here, "pull", "output", "got", "--best", "1")
