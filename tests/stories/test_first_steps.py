"""A person writes a study file, checks it, breaks it, and mends it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
import yaml

from stoker import __version__
from stoker.core.values import digest
from tests.stories.command import STOKER, stoker


def write(text: str, name: str = "params.yaml") -> None:
    Path(name).write_text(text, encoding="utf-8")


GOOD = """\
template:
  train: python train.py [lr] [norm] --save {_output} --trial {_trial} --study {_study}
  test: python test.py {_output}
default: {lr: 0.1, seed: 0}
resource: [0, "1,2"]
archive: 2
---
_title: norms
norm: [new, batch]
lr: [0.1, 1e-3]
---
_title: again
_cmd: train
norm: new
"""


def test_init_then_check(workplace: Path) -> None:
    made = stoker("init")
    assert (made.returncode, made.stdout.splitlines()[0]) == (0, "wrote params.yaml")
    checked = stoker("check")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "params.yaml is valid" in checked.stdout
    assert "python train.py --lr 0.01 --batch-size 64 --dropout 0.1 --augment" in checked.stdout
    assert [path.name for path in workplace.iterdir()] == ["params.yaml"]


def test_init_overwrites_nothing(workplace: Path) -> None:
    write("mine")
    refused = stoker("init")
    assert refused.returncode == 2
    assert "params.yaml exists already" in refused.stderr
    assert Path("params.yaml").read_text(encoding="utf-8") == "mine"
    assert stoker("init", "--force").returncode == 0
    assert stoker("init", "no/such/place.yaml").returncode == 2


def test_what_check_tells(workplace: Path) -> None:
    write(GOOD)
    output = stoker("check").stdout
    for expected in (
        "norms",
        "trials     4 (5 asked for, 1 of them repeats)",
        "slots      2: GPU 0 · GPUs 1,2",
        "orphans    seed",
        "not yet    archive",
        "first trial  output/Norm_new-Lr_0.1",
        "python train.py --lr 0.1 --norm new --save output/Norm_new-Lr_0.1 --trial 1 --study",
    ):
        assert expected in output


def test_check_lists_every_trial(workplace: Path) -> None:
    write(GOOD)
    lines = stoker("check", "--list").stdout.splitlines()
    assert lines == [
        "1  output/Norm_new-Lr_0.1     train test",
        "2  output/Norm_new-Lr_1e-3    train test",
        "3  output/Norm_batch-Lr_0.1   train test",
        "4  output/Norm_batch-Lr_1e-3  train test",
        "5  output/Norm_new-Lr_0.1     same as 1",
    ]
    assert (
        stoker("check", "--list", "-o", "runs", "-t", "again", "-c", "test").stdout
        == "5  runs/Norm_new  test\n"
    )


def test_check_for_programs(workplace: Path) -> None:
    write(GOOD)
    summary = json.loads(stoker("check", "--json").stdout)
    assert (summary["valid"], summary["trials"], summary["duplicates"]) == (True, 5, 1)
    assert [sweep["trials"] for sweep in summary["sweeps"]] == [4, 1]
    assert summary["first"]["params"] == {"norm": "new", "lr": 0.1, "seed": 0}
    trials = [json.loads(line) for line in stoker("check", "--json", "--list").stdout.splitlines()]
    assert [trial["same_as"] for trial in trials] == [None, None, None, None, 1]


def test_problems_for_people_and_for_programs(workplace: Path) -> None:
    write("templat: x\n")
    told = stoker("check")
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == (
        "params.yaml:1:1: unknown key 'templat'\n"
        "    1 | templat: x\n"
        "      | ^^^^^^^\n"
        "    did you mean 'template'?\n\n"
        "1 problem in params.yaml; nothing was started.\n"
    )
    told = stoker("check", "--json")
    problem = json.loads(told.stdout)["problems"][0]
    assert told.returncode == 2
    assert (problem["line"], problem["column"], problem["text"]) == (1, 1, "templat")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["check", "none.yaml"],
            "there is no file none.yaml; `stoker init` writes one",
        ),
        (["check", "."], "cannot read .: Is a directory"),
        (["check", "params.yaml", "-y", "params.yaml"], "given twice"),
        (["check", "-t", "norm"], "no sweep titled 'norm'; did you mean 'norms'?"),
        (["check", "-c", "tset"], "no stage 'tset'; did you mean 'test'?"),
        (["check", "-r", "gpu"], "-r 'gpu': expected GPU indices"),
        (["check", "--sample", "0"], "expected a number above 0"),
        (["check", "--lsit"], "--lsit; did you mean '--list'?"),
        (["check", "parms.yaml"], "there is no file parms.yaml; did you mean 'params.yaml'?"),
        (["check", "-t", "norms", "params.yaml"], "put the file before -t"),
        (["params.yaml"], "did you mean `stoker check params.yaml`?"),
        (["check", ""], "the name of the study file is empty"),
        (["chekc"], "there is no command 'chekc'; did you mean 'check'?"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_wrong_words_get_one_line_and_exit_code_2(workplace: Path, words: list[str], message: str) -> None:
    write(GOOD)
    done = stoker(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("stoker: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_that_belongs_to_others_is_not_taken(workplace: Path) -> None:
    write(GOOD)
    mine, other = Path("output/Norm_new-Lr_0.1"), Path("output/Norm_batch-Lr_0.1")
    for directory, params in (
        (mine, {"norm": "new", "lr": 0.1, "seed": 0, "_name": "x"}),
        (other, {"norm": "batch", "lr": 0.1, "seed": 7}),
    ):
        directory.mkdir(parents=True)
        (directory / "param").write_text(yaml.safe_dump(params), encoding="utf-8")
    names = [line.split()[1] for line in stoker("check", "--list").stdout.splitlines()]
    assert names[0] == str(mine)
    assert names[2] == f"{other}-{digest({'norm': 'batch', 'lr': 0.1, 'seed': 0})}"


def test_a_command_that_bash_cannot_read(workplace: Path) -> None:
    write("template:\n  train: for i in 1 2; do python train.py\n")
    done = stoker("check")
    assert done.returncode == 2
    assert done.stderr.startswith("stoker: params.yaml:2: template.train: bash cannot read it: syntax error")


@pytest.mark.parametrize("target", ["/dev/full", "&-"])
def test_an_output_that_cannot_be_written(workplace: Path, target: str) -> None:
    write(GOOD)
    done = subprocess.run(
        ["bash", "-c", f"'{STOKER}' check --list >{target}"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    if target == "/dev/full":
        assert (done.returncode, done.stderr) == (1, "stoker: No space left on device\n")


def test_a_terminal_that_knows_only_ascii(workplace: Path) -> None:
    write(GOOD)
    done = stoker("check", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_output_directory_that_cannot_be_used(workplace: Path) -> None:
    write(GOOD)
    done = stoker("check", "-o", "x" * 300)
    assert done.returncode == 2
    assert "File name too long" in done.stderr
    os.mkfifo("fifo")
    Path("output/Norm_new-Lr_0.1").mkdir(parents=True)
    os.mkfifo("output/Norm_new-Lr_0.1/param")
    assert "Norm_new-Lr_0.1-" in stoker("check", "--list").stdout


def test_more_trials_than_can_be_counted(workplace: Path) -> None:
    write(
        "template: run\n---\n" + "".join(f"p{axis}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for axis in range(30))
    )
    assert f"trials     {10**30:,}" in stoker("check").stdout
    assert len(stoker("check", "--list", "--sample", "2").stdout.splitlines()) == 2


def test_help_and_version() -> None:
    assert stoker("--version").stdout == f"stoker {__version__}\n"
    assert stoker().stdout == stoker("--help").stdout == stoker("help").stdout
    assert "examples:" in stoker("help", "check").stdout
    for variable in ("STOKER_FILE", "STOKER_OUTPUT", "STOKER_DEBUG", "NO_COLOR"):
        assert variable in stoker("--help").stdout


def test_the_environment_names_file_and_output(workplace: Path) -> None:
    write(GOOD, "other.yaml")
    done = stoker("check", "--list", STOKER_FILE="other.yaml", STOKER_OUTPUT="there")
    assert done.stdout.startswith("1  there/Norm_new-Lr_0.1")


def test_a_reader_that_leaves_is_no_error(workplace: Path) -> None:
    write(
        "template: run\n---\na: [1, 2, 3, 4, 5, 6, 7, 8, 9]\nb: [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
        + "c: [1, 2, 3, 4, 5]\n"
    )
    done = subprocess.run(
        ["bash", "-c", f"'{STOKER}' check --list | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["  1  output/A_1-B_1-C_1  train"]


def in_a_terminal(words: list[str], **environment: str) -> str:
    """What a person sees in a terminal."""
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "60", **environment}
    subprocess.run([STOKER, *words], stdout=slave, stderr=slave, env=env, check=False)
    os.close(slave)
    shown = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:  # how a terminal without writers ends
            break
        if not block:
            break
        shown += block
    os.close(master)
    return shown.decode()


def test_colour_in_a_terminal_unless_asked_not_to(workplace: Path) -> None:
    write(GOOD)
    assert "\x1b[" in in_a_terminal(["check"])
    plain = in_a_terminal(["check"], NO_COLOR="1")
    assert "\x1b[3" not in plain
    assert "--study" in plain.replace("\r\n", "")


def test_nothing_in_a_file_can_speak_to_the_terminal(workplace: Path) -> None:
    write('template: run {p}\n---\n_title: "a\\e[2J[red]"\np: ["\\e[2Jx", "[bold]y", "\\u202ez"]\n')
    for words in (["check"], ["check", "--list"], ["check", "-t", "none"]):
        shown = in_a_terminal(words, NO_COLOR="1")
        assert "\x1b[2J" not in shown
        assert "\u202e" not in shown
    assert "[bold]y" in stoker("check", "--list").stdout
    assert "a·[2J[red]" in stoker("check").stdout


def test_an_unexpected_error_shows_no_traceback(workplace: Path) -> None:
    write(GOOD)
    program = (
        "import sys, stoker.cli.frame as f\n"
        "def run(*a): raise RuntimeError('boom')\n"
        "f.run = run\n"
        "from stoker.cli import main\nsys.exit(main(['check']))"
    )
    env = {name: value for name, value in os.environ.items() if name != "STOKER_DEBUG"}
    python = str(Path(STOKER).parent / "python")
    quiet = subprocess.run([python, "-c", program], capture_output=True, text=True, env=env, check=False)
    assert quiet.returncode == 70
    assert "this is a bug in Stoker: RuntimeError: boom" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    env["STOKER_DEBUG"] = "1"
    assert (
        "Traceback"
        in subprocess.run(
            [python, "-c", program], capture_output=True, text=True, env=env, check=False
        ).stderr
    )
