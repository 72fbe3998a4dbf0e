"""A person tries the demo. The whole of it takes half a minute, so most of these run a part of its study."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.cli.demo import FILES, conclude, remove, rows_of, write
from stoker.core.errors import UsageError
from stoker.study.opened import open_study
from tests.stories.command import STOKER, stoker

QUICK = """\
import sys
from stoker import Manager
lr = float(sys.argv[sys.argv.index("--lr") + 1])
Manager.create_manager().add_progress("val_accuracy", 1 - lr)
sys.exit("too high" if lr >= LIMIT else 0)
"""
"""In place of train.py where the networks do not matter."""


@pytest.fixture
def study(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The study of the demo, not yet run; the current directory is in it."""
    write(Path("stoker-demo"))
    monkeypatch.chdir("stoker-demo")
    return workplace / "stoker-demo"


def make_quick(limit: float) -> None:
    Path("train.py").write_text(QUICK.replace("LIMIT", str(limit)), encoding="utf-8")
    Path("test.py").write_text("print('test_accuracy=0.5')\n", encoding="utf-8")


def test_the_study_uses_the_python_that_runs_stoker(study: Path) -> None:
    assert sorted(path.name for path in study.iterdir()) == sorted(FILES)
    summary = json.loads(stoker("check", "--json").stdout)
    assert (summary["trials"], summary["duplicates"]) == (12, 0)
    assert summary["first"]["commands"]["train"].startswith(
        f"{shlex.quote(sys.executable)} train.py --hidden 8"
    )


def test_networks_learn_and_one_fails(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = Path("params.yaml").read_text(encoding="utf-8")
    Path("params.yaml").write_text(re.sub(r"epochs: \d+", "epochs: 8", params), encoding="utf-8")
    done = stoker("run", "--sample", "1")
    assert "│ epoch 0: the loss is" in done.stdout
    assert "lr 100 is too high" in done.stdout
    first, second, last = rows_of(open_study("output"))
    assert last.is_meant_to_fail
    assert (first.status, second.status, last.status) == ("finished", "finished", "failed")
    assert first.metrics["val_accuracy"] > 0.5
    assert first.metrics["test_accuracy"] > 0.5
    assert conclude(open_study("output"), "cd x") == 0
    said = capsys.readouterr().out
    assert "Trial 9 failed on purpose" in said
    assert "report.html" in said
    assert "val_accuracy" in Path("report.html").read_text(encoding="utf-8")


def test_training_can_stop_anywhere(study: Path) -> None:
    done = stoker("verify", "--kills", "2")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_has_the_best_trial_first(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_quick(limit=100)
    assert stoker("run").returncode == 1
    assert conclude(open_study("output"), "cd x") == 0
    lines = capsys.readouterr().out.splitlines()
    heading = next(place for place, line in enumerate(lines) if "hidden" in line)
    table = [line.split() for line in lines[heading + 1 : heading + 13]]
    assert lines[heading].split()[:4] == ["#", "hidden", "lr", "seed"]
    assert [float(row[2]) for row in table] == sorted(float(row[2]) for row in table)
    assert [row[-1] for row in table] == ["finished"] * 11 + ["failed"]


def test_a_failure_that_is_not_meant_is_an_error(study: Path) -> None:
    make_quick(limit=0.1)
    stoker("run")
    assert conclude(open_study("output"), "cd x") == 1


def test_an_interrupted_demo_goes_on_with_run(workplace: Path) -> None:
    demo = subprocess.Popen(
        [STOKER, "demo", "here"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert demo.stdout
    told = ""
    while "START" not in told:
        told = demo.stdout.readline()
        assert told, demo.communicate()
    demo.send_signal(signal.SIGINT)
    out, err = demo.communicate(timeout=30)
    assert (demo.returncode, err) == (130, "")
    assert "Interrupted. `stoker run` in here goes on where it stopped." in out
    assert "All trials" not in out


def test_nothing_is_overwritten(workplace: Path) -> None:
    Path("stoker-demo").mkdir()
    done = stoker("demo")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stoker: stoker-demo exists already; name another: stoker demo DIRECTORY\n"
    assert list(Path("stoker-demo").iterdir()) == []
    Path("file").touch()
    assert "cannot write file/x: Not a directory" in stoker("demo", "file/x").stderr


def test_an_earlier_demo_is_removed_if_asked_for_and_nothing_else(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(Path("here"))
    Path("here/output/.stoker").mkdir(parents=True)
    Path("here/params.yaml").write_text("mine", encoding="utf-8")
    remove(Path("here"))
    assert capsys.readouterr().out == "Removing the earlier demo in here.\n"
    assert not Path("here").exists()

    write(Path("here"))
    Path("here/thesis.tex").touch()
    with pytest.raises(UsageError, match="here is not just an earlier demo: it has thesis"):
        remove(Path("here"))
    Path("link").symlink_to("here")
    Path("project").mkdir()
    Path("project/train.py").write_text("mine", encoding="utf-8")
    Path("file").touch()
    for other in ("link", "project", "file"):
        with pytest.raises(UsageError, match=f"{other} is not just an earlier demo"):
            remove(Path(other))
    assert sorted(path.name for path in Path("here").iterdir()) == sorted([*FILES, "thesis.tex"])
    assert Path("project/train.py").exists()


def test_make_demo_removes_nothing_itself() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("\ndemo:")[2].partition("\n\n")[0]
    assert "stoker demo --again .demo" in recipe
    assert "rm " not in recipe


def test_without_scikit_learn(workplace: Path) -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from stoker.cli import main; sys.exit(main(['demo']))"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stoker: the demo needs scikit-learn: pip install 'stoker[demo]'\n"
    assert list(workplace.iterdir()) == []
