"""Files written for simple sweep runners keep working: same commands, same directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.plan.trials import Plan
from stoker.spec.load import load, load_file, select
from stoker.spec.problems import Source

FILE = """\
# Comments before the first document, and dashes.
---
template:
  train: >
    python train.py data-bin/{data} --save-dir {_output} --norm {norm} [moment]

    [early-stop] --meta "{note: {data}}" '{{kept}}'
  test: |
    python generate.py data-bin/{data}
    --path {_output}/model.pt [arch] [wide] > {_output}/out.txt
alias:
  model:
    small: { arch: tiny, wide: False }
    big: { arch: huge, wide: True }
default:
  data: iwslt14
  norm: batch
  moment: 0.10
  early-stop: False
  arch: tiny
  wide: no
resource: [ 0, 1, "2,3", 3 ]
---
_title: norms
norm: [new, batch]
moment: [0.1, 0.05]
---
{_title: one-line, _cmd: [train], norm: new, early-stop: [True, False]}
---
{_title: model, _cmd: test, model: [small, big], data: ./data-bin/wmt, moment: 1e-3}
"""

EXPECTED = [
    ("Norm_new-Moment_0.1", "new", "0.1", ""),
    ("Norm_new-Moment_0.05", "new", "0.05", ""),
    ("Norm_batch-Moment_0.1", "batch", "0.1", ""),
    ("Norm_batch-Moment_0.05", "batch", "0.05", ""),
    ("Norm_new-EaStop_T", "new", "0.1", " --early-stop"),
    ("Norm_new-Moment_0.1", "new", "0.1", ""),
]


def plan() -> tuple[Plan, list[dict[str, str]]]:
    study = load(Source("params.yaml", FILE))
    made = Plan(study.sweeps, [stage.name for stage in study.stages])
    return made, [study.commands(trial, {"_output": f"output/{trial.name}"}) for trial in made]


def test_directories_and_training_commands() -> None:
    trials, commands = plan()
    for trial, command, (name, norm, moment, flag) in zip(trials, commands, EXPECTED, strict=False):
        assert trial.name == name
        assert command["train"] == (
            f"python train.py data-bin/iwslt14 --save-dir output/{name} --norm {norm} --moment {moment}{flag}"
            " "
            f"--meta \"{{note: iwslt14}}\" '{{kept}}'"
        )


def test_aliases_titles_and_stages() -> None:
    trials, commands = plan()
    assert [trial.name for trial in trials][6:] == [
        "Model_small-Data_data-bin_wmt-Moment_1e-3",
        "Model_big-Data_data-bin_wmt-Moment_1e-3",
    ]
    for case, options in (("small", "--arch tiny"), ("big", "--arch huge --wide")):
        output = f"output/Model_{case}-Data_data-bin_wmt-Moment_1e-3"
        files = f"--path {output}/model.pt {options} > {output}/out.txt"
        assert {"test": f"python generate.py data-bin/./data-bin/wmt {files}"} in commands[6:]


def test_a_trial_asked_for_twice_is_one_trial() -> None:
    trials, _ = plan()
    assert [trial.same_as for trial in trials] == [None] * 5 + [1] + [None] * 2
    assert trials.trial(5).stages == ("train", "test")


def test_slots_and_selection() -> None:
    study = load(Source("params.yaml", FILE))
    assert study.slots == ("0", "1", "2,3", "3")
    (sweep,) = select(study, ["one-line"], ["test"])
    assert (sweep.size, sweep.stages) == (2, ("test",))


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("lr: 0.10", "Lr_0.1"),
        ("lr: 1e-3", "Lr_1e-3"),
        ("lr: 100000.0", "Lr_100000"),
        ("lr: 1234567", "Lr_1.23457e+06"),
        ("learning-rate: 1", "LeRate_1"),
        ("learning_rate: 1", "LeRate_1"),
        ("a-very-long_name: 1", "aVeLong_Name_1"),
        ("flag: True", "Flag_T"),
        ("path: ../../a/b", "Path_a_b"),
        ("path: .hidden", "Path_hidden"),
        ("path: /abs/olute/", "Path_abs_olute_"),
        ("text: two words", "Text_two words"),
        ("text: ''", "Text_"),
        ('text: "a\\nb\\e[31m"', "Text_a_b_[31m"),
        (f"text: {'x' * 99}{'y' * 99}", f"Text_x{'y' * 99}"),
        ("lrX: 1", "Lrx_1"),
        ("date: 2024-01-02", "Date_2024-01-02"),
    ],
)
def test_names(line: str, name: str) -> None:
    study = load(Source("params.yaml", f"template: run\n---\n{line}\n"))
    assert Plan(study.sweeps, ["train"]).trial(0).name == name


def test_an_existing_path_gives_its_last_part(workplace: Path) -> None:
    (workplace / "data" / "wmt").mkdir(parents=True)
    Path("params.yaml").write_text(
        "template: run\n---\ndata: [data/wmt, data/wmt/, ./data/none]\n", encoding="utf-8"
    )
    study = load_file("params.yaml")
    names = [trial.name for trial in Plan(study.sweeps, ["train"])]
    assert names[0] == "Data_wmt"
    assert names[1].startswith("Data_wmt-")  # another text, so another trial, with the same name
    assert names[2] == "Data_data_none"


def test_a_long_name_ends_in_a_hash() -> None:
    text = "template: run\n---\n" + "".join(f"parameter{i}: {'é' * 30}\n" for i in range(5))
    study = load(Source("params.yaml", text))
    name = Plan(study.sweeps, ["train"]).trial(0).name
    assert len(name.encode()) <= 200
    assert name.startswith("Parameter0_ééé")
    assert len(name.rpartition("-")[2]) == 12
