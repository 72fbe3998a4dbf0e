"""A person changes the study file, and runs it again into the same output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from stoker.cli.store_options import open_at
from stoker.store.records import TrialId
from stoker.study.logs import read_again
from stoker.study.opened import Opened
from tests.stories.command import stoker
from tests.stories.studies import TEXT, Here, make, refusal, write

FLAT = "template: {train: 'echo {n} > {_output}/n', test: 'echo {n}'}\nresource: ['']\n---\nn: [1, 2]\n"


def run_again(text: str, here: Here) -> str:
    """What is told before anything runs, where nothing is left to run."""
    write(text)
    done = here("run")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr


def metrics_of(opened: Opened) -> dict[int, dict[str, float]]:
    return {
        result.trial.number: opened.metrics(result.trial, result.body) for result in opened.state.results()
    }


# Patterns that come later

PRINTS = """\
template:
  train: 'echo loss=1{n}; echo acc=0.{n}; echo loss=0.{n}'
  test: 'echo acc=0.{n}5'
metrics: {loss: 'loss=(\\S+)'}
---
n: [1, 2]
"""


def test_a_new_pattern_is_read_from_logs_that_are_there(workplace: Path, here: Here) -> None:
    make(PRINTS)
    assert metrics_of(open_at("output")) == {1: {"loss": 0.1}, 2: {"loss": 0.2}}
    new = PRINTS.replace("}\n---", ", acc: 'acc=(\\S+)', never: 'never=(\\S+)'}\n---")
    told = run_again(new.replace("---", "objective: {metric: acc, goal: max}\n---"), here)
    assert "metrics.acc is new" in told
    opened = open_at("output")
    assert opened.best(1) == [(0.25, TrialId(1, 2))], "what a later stage says goes before"
    assert metrics_of(opened) == {1: {"loss": 0.1, "acc": 0.15}, 2: {"loss": 0.2, "acc": 0.25}}
    pulled = here("pull", "output", "there", "--best", "1", "--include", "param")
    assert (pulled.returncode, sorted(path.name for path in Path("there").iterdir())) == (
        0,
        ["N_2", "params.yaml"],
    )


def test_a_mended_pattern_goes_before_what_was_recorded(workplace: Path, here: Here) -> None:
    make(PRINTS.replace("'loss=", "'acc="))
    assert metrics_of(open_at("output")) == {1: {"loss": 0.15}, 2: {"loss": 0.25}}
    run_again(PRINTS, here)
    assert metrics_of(open_at("output")) == {1: {"loss": 0.1}, 2: {"loss": 0.2}}
    for log in Path("output").glob("N_1/log.*"):
        log.unlink()
    assert metrics_of(open_at("output")) == {1: {"loss": 0.15}, 2: {"loss": 0.2}}


def test_logs_are_read_once_and_only_for_what_is_missing(study: Path) -> None:
    asked: list[tuple[int, list[str]]] = []

    def read(opened: Opened, trial: TrialId, patterns: Mapping[str, str]) -> Mapping[str, float]:
        asked.append((trial.number, list(patterns)))
        return read_again(opened, trial, patterns)

    opened = Opened(open_at("output").place, read_logs=read)
    opened.refresh()
    assert [trial.number for _, trial in opened.best(3)] == [3, 1]
    assert asked == [], "nothing is missing"
    write(TEXT.replace("metrics: {", "metrics: {epoch: 'epoch (\\d)', "))
    assert stoker("run").returncode == 1  # one fails again
    opened.refresh()
    for _ in range(3):
        assert metrics_of(opened)[1] == {"epoch": 1.0, "acc": 0.1}
        assert len(opened.best(3)) == 2
    assert asked == [(1, ["epoch"]), (3, ["epoch"])], "each once, and no failed one"


def test_what_is_far_from_the_end_of_a_log_is_found(workplace: Path, here: Here) -> None:
    command = "echo loss=1; seq 60000; echo acc=2; echo acc=3"
    make(f"template: '{command}'\n")
    run_again(f"template: '{command}'\nmetrics: {{loss: 'loss=(.)', acc: 'acc=(.)'}}\n", here)
    assert metrics_of(open_at("output")) == {1: {"loss": 1.0, "acc": 3.0}}


def test_a_pattern_that_never_matched_is_not_looked_for_again(workplace: Path) -> None:
    make(PRINTS.replace("}\n---", ", never: 'never=(\\S+)'}\n---"))

    def read(opened: Opened, trial: TrialId, patterns: Mapping[str, str]) -> Mapping[str, float]:
        raise AssertionError("the agent has looked, with the same pattern")

    opened = Opened(open_at("output").place, read_logs=read)
    opened.refresh()
    assert metrics_of(opened) == {1: {"loss": 0.1}, 2: {"loss": 0.2}}


def test_a_bucket_is_not_searched(bucket: str) -> None:
    assert read_again(open_at(bucket), TrialId(1, 1), {"epoch": r"epoch (\d)"}) == {}


# What changed


def test_check_and_run_tell_what_changed(study: Path, here: Here) -> None:
    write(TEXT.replace("tested", "tried").replace("[1, 2, 3]", "[1, 3, 4]"))
    checked = " ".join(here("check").stdout.split())
    command = (
        "since the last run: the command of stage test changed (finished trials are kept; -f runs them again)"
    )
    sweep = "since the last run: the sweep of line 8 changed (n): 1 new trial"
    assert f"changed {command} changed {sweep}" in checked
    assert "numbers new trials have their iteration before them: 3 will be 2.3" in checked
    assert json.loads(here("check", "--json").stdout)["changes"] == [command, sweep]
    first = stoker("run")
    assert first.stderr.splitlines()[:2] == [command, sweep]
    again = stoker("run")
    assert "since the last run" not in again.stderr, "it was run just so"
    assert "changed" not in here("check").stdout
    assert here("check", "-o", "elsewhere", "--json").stdout.count("since the last run") == 0
    assert not Path("elsewhere").exists()


def test_numbers_of_later_iterations_are_explained(workplace: Path, here: Here) -> None:
    make("template: echo {n}\n---\nn: [1, 2]\n")
    make("template: echo {n}\n---\nn: [3, 1, 4]\n")
    assert here("logs", "1").stdout == "1\n", "as tables call it"
    assert "it is 1.1 (N_1), which iteration 1 asked for before" in refusal(here, "retry", "2.2")
    assert "iteration 2 goes up to 2.3" in refusal(here, "logs", "2.7")
    assert "iterations go up to 2" in refusal(here, "logs", "3.1")
    assert "there is no trial 7 to run; numbers go up to 3; 2.7 is trial 7 of iteration 2" in refusal(
        here, "logs", "7"
    )
    assert here("logs", "2.3").stdout == "4\n"
    for command in ("logs", "retry"):
        assert "2.7" in stoker("help", command).stdout


# How it is asked for


def test_hints_of_the_file_are_told_by_run_in_a_line(workplace: Path) -> None:
    write("template: echo\nresource: ['']\nmetrics: {los: '(.)'}\nobjective: {metric: loss, goal: min}\n")
    done = stoker("run")
    assert done.returncode == 0
    told = "hint: params.yaml:4: objective: no pattern under metrics gives 'loss'; did you mean 'los'?\n"
    assert done.stderr == told


def test_trials_that_share_a_directory(workplace: Path, here: Here) -> None:
    write(FLAT)
    told = "--no-subdir: {_output} of stage train is output for all trials, which may overwrite each other's"
    checked = here("check", "--no-subdir").stdout
    assert f"hint: {told}" in " ".join(checked.split())
    assert "echo 1 > output/n" in checked
    assert told not in " ".join(here("check").stdout.split())
    assert stoker("run", "--no-subdir").stderr == f"hint: {told} files\n"
    write(FLAT.replace("n: [1, 2]", "n: 1"))
    assert here("check", "--no-subdir", "--json").stdout.count("overwrite") == 0, "nobody to share it with"
    refused = refusal(here, "run", "--no-subdir", "-o", "s3://bucket/study")
    assert "--no-subdir is for a directory: in a bucket each trial has its own files" in refused


@pytest.mark.parametrize("words", [("auto", "0"), ("0", "auto")])
def test_auto_stands_alone(workplace: Path, here: Here, words: tuple[str, str]) -> None:
    write("template: echo\nresource: ['', '']\n")
    assert json.loads(here("check", "--json").stdout)["slots"] == ["", ""]
    assert json.loads(here("check", "--json", "-r", "auto").stdout)["slots"] == "auto"
    assert "-r 'auto': expected GPU indices like 0 or 0,1, or auto; auto stands alone" in refusal(
        here, "check", "-r", *words
    )


def test_the_study_may_stand_before_its_trials(study: Path, here: Here) -> None:
    study.rename("runs")
    assert here("logs", "runs", "3").stdout == "tested 3\n"
    assert here("logs", "./runs", "N_3").stdout == "tested 3\n"
    assert here("retry", "runs", "2").stderr == "1 trial to run again: `stoker run` does it\n"
    assert here("stop", "runs", "2").stderr.startswith("2 N_2 will not run")
    assert "given twice, as runs and as -o runs" in refusal(here, "logs", "-o", "runs", "runs", "3")
    assert "there is no study in no/where" in refusal(here, "logs", "no/where", "1")
    Path("3").mkdir()
    assert here("logs", "-o", "runs", "3").stdout == "tested 3\n", "a directory is no study by being one"


def test_a_url_may_stand_before_the_trials(bucket: str, here: Here) -> None:
    assert here("logs", bucket, "3").stdout == "tested 3\n"
