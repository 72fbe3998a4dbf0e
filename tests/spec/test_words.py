"""Words that people write for others, and what they are told."""

from __future__ import annotations

import pytest

from stoker.spec.keys import SETTINGS, STAGE
from stoker.spec.load import load
from stoker.spec.problems import Source, StudyFileError, suggest

KEYS = ["template", "default", "alias", *(setting.name for setting in SETTINGS)]


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("retries", "retry"),
        ("retry_count", "retry"),
        ("defaults", "default"),
        ("templates", "template"),
        ("temp", "template"),
        ("tempalte", "template"),
        ("resources", "resource"),
        ("objectives", "objective"),
        ("metric", "metrics"),
        ("aliases", "alias"),
        ("environment", "env"),
        ("limit", "limits"),
        ("engines", "engine"),
        ("file", "files"),
        ("Serach", "search"),
        ("preloads", "preload"),
    ],
)
def test_the_nearest_key_is_meant(slip: str, meant: str) -> None:
    assert suggest(slip, KEYS) == f"did you mean '{meant}'?"


@pytest.mark.parametrize("word", ["", "x", "zzz", "nothing_like_it"])
def test_nothing_is_suggested_where_nothing_is_near(word: str) -> None:
    assert suggest(word, KEYS) == ""


def test_options_of_a_stage_and_values() -> None:
    assert suggest("timeouts", [option.name for option in STAGE]) == "did you mean 'timeout'?"
    assert suggest("maximise", ["max", "min"]) == "did you mean 'max'?"
    assert suggest("Lr_0.1-Net_smal1", ["Lr_0.1-Net_big", "Lr_0.1-Net_small"]).endswith("'Lr_0.1-Net_small'?")


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("commands: echo", "commands stand under template"),
        ("Script: echo", "commands stand under template"),
        ("parameter: {lr: 1}", "parameters stand under default, or in a sweep"),
        ("params: {lr: 1}", "parameters stand under default, or in a sweep"),
        ("sweep: {lr: [1, 2]}", "a sweep is a part of its own, below a line of ---"),
        ("timeouts: 3h", "it belongs to a stage"),
        ("gpus: 2", "did you mean 'resource'?"),
    ],
)
def test_things_that_have_another_name_or_place(key: str, remedy: str) -> None:
    with pytest.raises(StudyFileError) as raised:
        load(Source("params.yaml", f"template: run\n{key}\n"))
    (problem,) = raised.value.problems
    assert problem.message == f"unknown key '{key.partition(':')[0]}'"
    assert problem.remedy.startswith(remedy)


def test_one_mistake_is_told_once() -> None:
    with pytest.raises(StudyFileError) as raised:
        load(Source("params.yaml", "commands: python train.py\n"))
    assert [problem.message for problem in raised.value.problems] == ["unknown key 'commands'"]


def test_an_objective_that_is_misspelt_is_a_hint() -> None:
    text = "template: run\nmetrics: {val_lss: 'a (.)'}\nobjective: {metric: val_loss, goal: min}\n"
    (hint,) = load(Source("params.yaml", text)).hints
    assert (hint.line, hint.column, hint.text) == (3, 21, "val_loss")
    assert hint.message == "objective: no pattern under metrics gives 'val_loss'"
    assert hint.remedy == "did you mean 'val_lss'?"


@pytest.mark.parametrize("metrics", ["{}", "{test_loss: 'a (.)'}"])
def test_a_manager_may_give_any_other(metrics: str) -> None:
    text = f"template: run\nmetrics: {metrics}\nobjective: {{metric: val_loss, goal: min}}\n"
    assert load(Source("params.yaml", text)).hints == ()


def test_an_objective_that_a_pattern_gives_is_none() -> None:
    text = "template: run\nmetrics: {acc: 'a (.)'}\nobjective: {metric: acc, goal: max}\n"
    assert load(Source("params.yaml", text)).hints == ()
