"""How a file is read: types, settings, surprises, and problems all at once."""

from __future__ import annotations

import pytest

from stoker.core.values import Spelled
from stoker.spec.load import load
from stoker.spec.problems import Problem, Source, StudyFileError, describe
from stoker.spec.study import Study


def read(text: str) -> Study:
    return load(Source("params.yaml", text))


def problems(text: str) -> list[Problem]:
    with pytest.raises(StudyFileError) as caught:
        read(text)
    return list(caught.value.problems)


def default(text: str) -> object:
    return read(f"template: run\ndefault: {{p: {text}}}\n").sweeps[0].base["p"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("0x10", 16),
        ("1_000", 1000),
        ("0.10", 0.1),
        ("1.5e+3", 1500.0),
        ("'1'", "1"),
        ('"1e-3"', "1e-3"),
        ("text", "text"),
        ("''", ""),
        ("true", True),
        ("2024-01-02", "2024-01-02"),
        ("!!str 5", "5"),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        ("=", "="),
    ],
)
def test_values(text: str, value: object) -> None:
    found = default(text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("text", ["1e-3", "1E5", "1.5e3", "-2e+4"])
def test_a_number_in_scientific_notation_is_a_number_and_keeps_its_spelling(text: str) -> None:
    found = default(text)
    assert isinstance(found, Spelled)
    assert (found, found.spelling) == (float(text), text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("no", "no is read as false"),
        ("On", "On is read as true"),
        ("010", "octal number, 8"),
        ("1:30", "base 60, as 90"),
    ],
)
def test_surprises_get_a_hint(text: str, hint: str) -> None:
    study = read(f"template: run\ndefault: {{p: {text}}}\n")
    assert hint in study.hints[0].message
    assert (study.hints[0].line, study.hints[0].column) == (2, 14)


@pytest.mark.parametrize("text", ["false", "'no'", "0", "90", "12:x", "08x", "0o7", "note"])
def test_what_does_not_surprise_gets_none(text: str) -> None:
    assert read(f"template: run\ndefault: {{p: {text}}}\n").hints == ()


EVERYTHING = """\
template:
  train: python train.py [lr]
  avg: {command: python avg.py, slot: none, timeout: 1h30m}
default: {lr: 0.1}
resource: auto
objective: {metric: val_accuracy, goal: max}
metrics: {bleu: "BLEU4 = ([0-9.]+)"}
search: {method: random, trials: 60, seed: 7, stop: {method: asha, step: epochs, first: 1, factor: 3}}
retry: 2
limits: {hours: 12, cost: 40, trials: 500}
env: {OMP_NUM_THREADS: 4, DEBUG: on}
preload: [torch, torch.nn]
warm: true
files: {exclude: ["*.tmp"], every: 60s}
archive: 3
notify: [desktop]
engine:
  slurm: [{partition: gpu, time: 4:00:00, gpus: 1, agents: 4, setup: [module load cuda]}, {partition: cpu}]
  gce: {zones: [us-central1-a], machine: [n1-standard-8], gpu: {type: nvidia-tesla-t4}, spot: prefer}
  ray: {address: auto, gpus: 0.5}
  vertex: {region: us-central1, image: trainer}
---
lr: {uniform: [1, 3]}
"""


def test_every_setting_is_read() -> None:
    study = read(EVERYTHING)
    assert [stage.timeout for stage in study.stages] == [None, 5400]
    assert [stage.holds_slot for stage in study.stages] == [True, False]
    assert study.sweeps[0].size == 60
    assert study.settings["env"] == {"OMP_NUM_THREADS": "4", "DEBUG": "on"}
    assert study.settings["files"] == {"exclude": ("*.tmp",), "every": 60.0}
    assert study.settings["preload"] == ("torch", "torch.nn")
    engines = study.settings["engine"]
    assert isinstance(engines, dict)
    assert engines["slurm"][0]["time"] == "4:00:00"
    assert engines["gce"]["spot"] == "prefer"
    assert "search.stop" in study.waiting


@pytest.mark.parametrize(
    "text",
    [
        "template: run\n---\n_trials: 1\nx: {step: [0, 5]}\n",
        f"template: run\ndefault: {{x: 0x{'F' * 5000}}}\n",
        "template: run\ndefault: {x: !!bool maybe, y: !!int '', z: !!float ''}\n",
        "template: run\ndefault: {x: 1.0e+400}\n",
        "template: run\nmetrics: {a: '([[a])'}\n",
        "template: run\n---\n" + "a0: &a0 {uniform: [1, 2]}\n_trials: 3\n",
        f"template: python {'x' * 400_000} {{p}}\ndefault: {{p: 1}}\n",
        "\ufefftemplate: run\r\n---\r\na: 1\r\n",
    ],
)
def test_what_is_odd_but_fine_is_accepted(text: str) -> None:
    assert read(text.removeprefix("\ufeff")).sweeps[0].size >= 1


def test_the_place_is_that_of_the_guilty_token() -> None:
    text = "template: >\n  run {x} {{y}}\n  `run {x}` {y}\ndefault: {x: 1}\n"
    assert [(problem.line, problem.column) for problem in problems(text)] == [(3, 8), (3, 13)]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("template: |\n  conda activate x\n  python train.py\n", "joined into one command"),
        ("template: run {p}\ndefault: {p: 0.1, q: 0.1 0.01}\n", "is one text"),
        ("template: run {p}\ndefault: {p: ~/data}\n", "not expanded"),
        ("template: run {p}\ndefault: {p: $HOME/x}\n", "not expanded"),
    ],
)
def test_likely_mistakes_get_a_hint(text: str, hint: str) -> None:
    (found,) = read(text).hints
    assert hint in found.message


@pytest.mark.parametrize(
    "text",
    [
        "template: |\n  run {p} &&\n  more |\n  less\n  -x\n  [p]\ndefault: {p: 1}\n",
        "template: run [p]\ndefault: {p: no}\n",
        "template: run {p}\ndefault: {p: '1, 2'}\n",
    ],
)
def test_what_is_meant_gets_none(text: str) -> None:
    assert read(text.replace("{p} ", "")).hints == ()


def test_one_stage_needs_no_name() -> None:
    assert [stage.name for stage in read("template: python train.py\n").stages] == ["train"]


def test_merges_and_anchors() -> None:
    study = read("template: run {a} {b}\ndefault: &d {a: 1, b: 2}\n---\n<<: {a: [3, 4], b: 5}\nb: 6\n")
    assert [axis.ladder.size for axis in study.sweeps[0].axes] == [2, 1]
    assert study.sweeps[0].params(1) == {"a": 4, "b": 6}


def test_defaults_may_use_an_alias() -> None:
    study = read(
        "template: run {layers} {dim}\n"
        "alias: {size: {small: {layers: 2, dim: 64}, big: {layers: 8, dim: 512}}}\n"
        "default: {size: small}\n---\nlayers: [3, 4]\n---\nsize: big\n"
    )
    assert [sweep.params(0) for sweep in study.sweeps] == [
        {"layers": 3, "dim": 64},
        {"layers": 8, "dim": 512},
    ]


def test_empty_documents_are_no_sweeps() -> None:
    assert read("template: run\n---\n# all commented out\n---\n").sweeps[0].size == 1


def test_all_problems_come_at_once_in_order() -> None:
    found = problems("template: run {x}\nretri: 1\nretry: no\n---\nlr: {uniform: [3, 1]}\n_trials: 0\n")
    assert [(problem.line, problem.column) for problem in found] == [
        (1, 15),
        (2, 1),
        (3, 8),
        (5, 15),
        (6, 10),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "- a list\n",
        "just text\n",
        "template: [a, b]\n",
        "template: {}\n",
        "template: {train: }\n",
        "template: ''\n",
        "template: {train: {slot: none}}\n",
        "template: {'a/b': run}\n",
        "template: run\n---\n- 1\n",
        "template: run\n---\ntext\n",
        "template: run\ndefault: [1]\n",
        "template: run\nalias: {a: {}}\n---\na: x\n",
        "template: run\nalias: {a: 5}\n---\na: x\n",
        "template: run\nalias: {a: {x: {b: 1}}, b: {y: {c: 1}}}\n---\na: x\nb: y\n",
        "template: run\ndefault: &a {b: *a}\n",
        "template: run\n---\n&a <<: *a\n",
        "template: run\n---\n<<: 5\n",
        "template: run\ndefault: {p: !!python/object:os.system x}\n",
        "template: run\ndefault: {p: !custom x}\n",
        "template: run\ndefault: {p: !!binary aGk=}\n",
        'template: run\ndefault: {p: "a\\0b"}\n',
        'template: run\ndefault: {p: "\\ud800"}\n',
        "template: run\n---\n? [a]\n: 1\n",
        "template: run\n---\n_trials: 1000000000\nlr: {multiple: [1, 10]}\n",
        "template: run\n---\n_trials: 5\nlr: {uniform: [.inf, .nan]}\n",
        "template: run\n---\n_trials: 5\nlr: {uniform: 3}\n",
        "template: run\n---\n_trials: 5\nlr: {choice: []}\n",
        "template: run\n---\n_trials: 5\nlr: {}\n",
        "template: run\n---\n_trials: 5\nlr: [1, 2]\n",
        "template: run [_output]\n",
        "template: run\ntemplate: run\n",
        "template: run\nresource: {a: 1}\n",
        "template: run\nresource: []\n",
        "template: run\nengine: slurm\n",
        "template: run\nmetrics: {a: '('}\n",
        "template: run\npreload: os; rm\n",
        "template: run\nenv: {a-b: 1}\n",
        "template: \x00\n",
        "template: run \x07\n",
        "a: b: c\n",
        "a: 'x\n",
        "a: *b\n",
        "a: @b\n",
        'a: "\\q"\n',
        "template: run\n---\n_trials: 1e300\nx: {uniform: [1, 2]}\n",
        f"template: run\n---\n_trials: {'9' * 400}\nx: {{step: [1, 2]}}\n",
        f"template: run\nlimits: {{hours: {'9' * 400}}}\n",
        "template: run\nwarm: !!bool maybe\n",
        "template: run\n---\n_trials: 3\nx: {normal: [1.0e+300, 1.0e-300]}\n",
        "template: run\n---\n_trials: 3\nx: {normal: [0, 1.7e+308]}\n",
        "template: run\n---\n_trials: 3\nx: {uniform: [-1.7e+308, 1.7e+308]}\n",
        "template: run\nmetrics: {a: '(x{99999999999999})'}\n",
        f"template: run\nmetrics: {{a: '{'(' * 3000}{')' * 3000}'}}\n",
        "template: {a: ~, b: null}\n",
        "template: {x}\n",
        "template: run\n---\na0: &a0 {}\n"
        + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 60)),
        "[" * 200_000,
        "- " * 200_000,
    ],
)
def test_a_bad_file_is_refused_with_a_place(text: str) -> None:
    for problem in problems(text):
        assert problem.line >= 1
        assert problem.column >= 1
        assert problem.message
        assert describe(Source("params.yaml", text), problem).startswith("params.yaml:")
