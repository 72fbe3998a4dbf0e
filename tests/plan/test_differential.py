"""Random study files: the lazy plan against the obvious, slow implementation of the rules."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from stoker.core.values import Spelled, Value
from stoker.plan.trials import Plan
from stoker.spec.load import load
from stoker.spec.problems import Source
from tests.plan import reference
from tests.plan.reference import Number, Series, StudyData, SweepData

# Few names and values, chosen so that labels, parts and whole names collide often.
NAMES = ["a", "b", "a-b", "early-stop", "early_stop", "lr", "layers"]
TEXTS = [
    "x",
    "./x",
    "a/b",
    "a_b",
    "T",
    "1",
    "y-B_x",
    "x-B_y",
    "B_1",
    "",
    "é t",
    "$(id)",
    "it's",
    "\n",
    "w" * 120,
    "/",
]
NUMBERS: list[Any] = [
    1,
    1.0,
    0.1234567,
    0.12345671,
    1000000,
    1000001,
    -3,
    Number("1e-3"),
    0.001,
    Number("1E6"),
]
plain = st.sampled_from([*TEXTS, *NUMBERS])
any_value = st.one_of(plain, st.booleans())
ALIAS_GROUP = ["layers", "dim"]
CASES = ["small", "big", "1"]
PROGRAM = "say"


@st.composite
def series(draw: st.DrawFn, alias: bool) -> Series:
    options = ["list", "choice"]
    if not alias:
        options += ["uniform", "log_uniform", "int_uniform", "normal", "step", "multiple"]
    kind = draw(st.sampled_from(options))
    if kind in ("list", "choice"):
        return Series(
            kind, draw(st.lists(st.sampled_from(CASES) if alias else plain, min_size=1, max_size=4))
        )
    if kind == "int_uniform":
        low = draw(st.integers(-3, 3))
        return Series(kind, [low, low + draw(st.integers(0, 5))])
    start = draw(st.sampled_from([1, 2, 0.1, 1000000]))
    other = {"uniform": start + 2, "log_uniform": start * 100, "normal": 0.5, "step": 0.1, "multiple": 2}[
        kind
    ]
    return Series(kind, [start, draw(st.sampled_from([other, start + 1]))])


@st.composite
def sweeps(draw: st.DrawFn, with_alias: bool, stages: list[str]) -> SweepData:
    names = draw(
        st.lists(st.sampled_from([*NAMES, "size"] if with_alias else NAMES), unique=True, max_size=4)
    )
    if "size" in names:
        names = [name for name in names if name not in ALIAS_GROUP]
    keys: dict[str, Any] = {}
    for name in names:
        is_alias = name == "size"
        values = st.lists(st.sampled_from(CASES) if is_alias else any_value, min_size=1, max_size=3)
        keys[name] = draw(st.one_of(values, series(is_alias)))
    asked = draw(st.none() | st.lists(st.sampled_from(stages), min_size=1, max_size=2, unique=True))
    return SweepData(keys, asked, draw(st.integers(1, 8)))


@st.composite
def studies(draw: st.DrawFn) -> StudyData:
    stages = ["train", "avg", "test"][: draw(st.integers(1, 3))]
    used = draw(st.lists(st.sampled_from([*NAMES, "dim"]), unique=True, max_size=4))
    default = {name: draw(plain) for name in [*used, *draw(st.lists(st.sampled_from(NAMES), max_size=2))]}
    with_alias = draw(st.booleans())
    some = [draw(sweeps(with_alias, stages)) for _ in range(draw(st.integers(0, 4)))]
    alias = {}
    if any("size" in sweep.keys for sweep in some):
        alias["size"] = {case: {name: draw(plain) for name in ALIAS_GROUP} for case in CASES}
        for name in ALIAS_GROUP:  # set everywhere, whether by the alias or not
            default.setdefault(name, "d")
    templates = {stage: _template(draw, used, some) for stage in stages}
    return StudyData(templates, default, alias, some, seed=draw(st.integers(0, 3)))


def _template(draw: st.DrawFn, used: list[str], some: list[SweepData]) -> list[tuple[str, str]]:
    words = [("text", PROGRAM)]
    for name in used:
        values = [value for sweep in some for value in _written(sweep.keys.get(name, []))]
        boolean = any(isinstance(value, bool) for value in values)
        how = "option" if boolean else draw(st.sampled_from(["option", "bare", "single", "double", "glued"]))
        words.append((how, name))
    return words


def _written(values: list[Any] | Series) -> list[Any]:
    return values if isinstance(values, list) else values.args


def yaml_of(value: Any) -> str:
    if isinstance(value, Number):
        return value.spelling
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def to_yaml(study: StudyData) -> str:
    shapes = {
        "bare": "{%s}",
        "single": "'{%s}'",
        "double": '"{%s}"',
        "option": "[%s]",
        "glued": "--%s={%s}",
        "text": "%s",
    }

    def word(how: str, name: str) -> str:
        return shapes[how] % ((name, name) if how == "glued" else name)

    lines = [f"search: {{seed: {study.seed}}}", "template:"]
    for stage, words in study.templates.items():
        lines += [f"  {stage}: >", "    " + " ".join(word(*pair) for pair in words)]
    lines += ["default:" if study.default else "default: {}"]
    lines += [f"  {name}: {yaml_of(value)}" for name, value in study.default.items()]
    if study.alias:
        lines.append("alias:")
    for name, cases in study.alias.items():
        lines.append(f"  {name}:")
        for case, group in cases.items():
            inside = ", ".join(f"{param}: {yaml_of(value)}" for param, value in group.items())
            lines.append(f"    {case}: {{{inside}}}")
    for sweep in study.sweeps:
        lines += ["---", *_sweep_lines(sweep)]
    return "\n".join(lines) + "\n"


def _sweep_lines(sweep: SweepData) -> list[str]:
    lines = ["_title: any"]
    if sweep.stages is not None:
        lines.append(f"_cmd: [{', '.join(sweep.stages)}]")
    if any(isinstance(values, Series) for values in sweep.keys.values()):
        lines.append(f"_trials: {sweep.trials}")
    for name, values in sweep.keys.items():
        listed = "[" + ", ".join(yaml_of(value) for value in _written(values)) + "]"
        if isinstance(values, Series):
            lines.append(f"{name}: {{{values.kind}: {listed}}}")
        else:
            lines.append(f"{name}: {yaml_of(values[0]) if len(values) == 1 else listed}")
    return lines


def real(value: Any) -> Value:
    found: Value = Spelled(value.spelling) if isinstance(value, Number) else value
    return found


@given(studies(), st.data())
def test_the_plan_is_what_the_rules_say(study: StudyData, data: st.DataObject) -> None:
    fresh = reference.trials(study, {})
    taken = _some_directories(data, fresh)
    wanted = reference.trials(study, taken)
    loaded = load(Source("params.yaml", to_yaml(study)))
    plan = Plan(loaded.sweeps, [stage.name for stage in loaded.stages], taken.get)

    assert plan.size == len(wanted)
    commands, words = [], []
    for index, expected in enumerate(wanted):
        trial = plan.trial(index)
        assert trial.number == index + 1
        assert trial.name == expected.name
        assert trial.same_as == expected.same_as
        assert list(trial.stages) == expected.stages
        assert {name: repr(value) for name, value in trial.params.items()} == {
            name: repr(real(value)) for name, value in expected.params.items()
        }
        for stage, command in loaded.commands(trial, {}).items():
            commands.append(command)
            words.append(reference.words(study, stage, expected.params))
    assert heard_by_programs(commands) == words
    doubled = sum(trial.same_as is not None for trial in wanted)
    assert sum(count or 0 for count in plan.duplicates()) == doubled
    event(f"duplicates: {doubled > 0}")
    event(f"collisions: {any(trial.name != trial.base_name for trial in wanted if not trial.same_as)}")
    event(f"existing directories: {bool(taken)}")


def heard_by_programs(commands: list[str]) -> list[list[str]]:
    """Run the commands in a real bash, where PROGRAM writes down the words it gets."""
    say = PROGRAM + "() { printf '%s\\0' " + PROGRAM + ' "$@"; printf "%s\\0" END; }\n'
    done = subprocess.run(["bash", "-c", say + "\n".join(commands)], check=True, capture_output=True)
    heard: list[list[str]] = [[]]
    for word in done.stdout.decode().split("\0")[:-1]:
        heard[-1:] = [heard[-1], []] if word == "END" else [[*heard[-1], word]]
    return heard[:-1]


def _some_directories(data: st.DataObject, trials: list[reference.TrialData]) -> dict[str, str]:
    """Directories that an earlier run left: of these trials, of others, or of nobody."""
    taken = {}
    for trial in data.draw(st.lists(st.sampled_from(trials), max_size=3), label="existing"):
        name = data.draw(
            st.sampled_from([trial.base_name, trial.name, f"{trial.base_name}-{trial.identity}"])
        )
        hashed = name.endswith(f"-{trial.identity}")
        taken[name] = trial.identity if hashed else data.draw(st.sampled_from([trial.identity, "other", ""]))
    return taken
