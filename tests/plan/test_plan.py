"""What a person relies on when a study file changes."""

from __future__ import annotations

from stoker.core.values import digest
from stoker.plan.trials import Plan, Trial
from stoker.spec.load import load
from stoker.spec.problems import Source


def plan_of(text: str, existing: dict[str, str] | None = None) -> Plan:
    study = load(Source("params.yaml", text))
    return Plan(study.sweeps, [stage.name for stage in study.stages], (existing or {}).get)


def names(plan: Plan) -> list[str]:
    return [trial.name for trial in plan]


def directories(trials: Plan | list[Trial]) -> dict[str, str]:
    """Names of the directories of trials that ran, and whose they are."""
    return {trial.name: digest(trial.params) for trial in trials}


HEAD = """\
template: {train: 'run [lr] [norm] [seed]', test: 'test [lr]'}
default: {lr: 1, norm: x, seed: 0}
---
"""


def test_growing_a_list_renames_nothing() -> None:
    before = directories(plan_of(HEAD + "norm: [a/b]\n"))
    after = plan_of(HEAD + "norm: [a_b, a/b]\n", before)
    fresh = after.trial(0)
    assert names(after) == [f"Norm_a_b-{digest(fresh.params)}", "Norm_a_b"]


def test_shrinking_a_list_renames_nothing() -> None:
    both = plan_of(HEAD + "norm: [a/b, a_b]\n")
    second = both.trial(1)
    assert second.name == f"Norm_a_b-{digest(second.params)}"
    assert names(plan_of(HEAD + "norm: [a_b]\n", directories([second]))) == [second.name]


def test_a_changed_default_gets_a_directory_of_its_own() -> None:
    before = directories(plan_of(HEAD + "norm: a\n"))
    after = plan_of(HEAD.replace("seed: 0", "seed: 5") + "norm: a\n", before)
    assert names(after) == [f"Norm_a-{digest(after.trial(0).params)}"]


def test_more_draws_and_more_of_a_list_keep_the_trials_that_were() -> None:
    small = plan_of(HEAD + "_trials: 3\nlr: {uniform: [1, 3]}\nseed: [1, 2]\n")
    large = plan_of(HEAD + "_trials: 7\nlr: {uniform: [1, 3]}\nseed: [3, 2, 1]\n")
    assert set(names(small)) < set(names(large))
    assert len(set(names(large))) == large.size == 21


def test_every_grid_point_gets_the_same_draws() -> None:
    plan = plan_of(HEAD + "_trials: 4\nnorm: [a, b]\nlr: {log_uniform: [1e-4, 1e-1]}\n")
    rates = [trial.params["lr"] for trial in plan]
    assert rates[:4] == rates[4:]
    assert len(set(rates)) == 4


def test_another_seed_draws_other_values() -> None:
    text = HEAD + "_trials: 4\nlr: {uniform: [1, 3]}\n"
    assert set(names(plan_of(text))).isdisjoint(names(plan_of("search: {seed: 1}\n" + text)))


def test_the_union_of_stages_in_one_directory() -> None:
    plan = plan_of(HEAD + "_cmd: train\nnorm: [a, b]\n---\n_cmd: [test]\nnorm: b\n")
    assert [trial.stages for trial in plan] == [("train",), ("train", "test"), ("train", "test")]
    assert [trial.same_as for trial in plan] == [None, None, 2]


def test_one_trial_without_sweeps() -> None:
    plan = plan_of("template: run [lr]\ndefault: {lr: 1}\n")
    assert names(plan) == ["default"]


def test_a_trial_far_into_a_grid_beyond_counting() -> None:
    axes = "\n".join(f"p{axis}: [{', '.join(map(str, range(10)))}]" for axis in range(30))
    plan = plan_of(f"template: run [p0]\n---\n{axes}\n")
    assert plan.size == 10**30
    last = plan.trial(10**30 - 1)
    assert set(last.params.values()) == {9}
    assert plan.duplicates() == [0]
    assert len(plan.sample(5, seed=0)) == 5


def test_a_larger_sample_keeps_a_smaller_one() -> None:
    plan = plan_of(HEAD + "lr: [1, 2, 3, 4, 5]\nseed: [1, 2, 3, 4, 5]\n")
    assert set(plan.sample(4, seed=0)) < set(plan.sample(9, seed=0)) < set(range(25))
    assert plan.sample(99, seed=0) == list(range(25))


def test_counting_overlaps_of_an_alias_with_a_grid() -> None:
    text = """\
template: run [layers] [dim] [seed]
alias: {size: {small: {layers: 2, dim: 64}, big: {layers: 8, dim: 512}, odd: {layers: 3, dim: 7}}}
---
layers: [2, 4, 8]
dim: [64, 128, 512]
seed: [1, 2]
---
size: [small, big, odd]
seed: [2, 3]
---
_trials: 5
layers: {list: [8, 9]}
dim: {list: [512, 512, 512]}
seed: [1, 2, 3]
"""
    plan = plan_of(text)
    wanted = [
        sum(trial.same_as is not None for trial in plan if trial.sweep.place == sweep) for sweep in range(3)
    ]
    assert plan.duplicates() == wanted == [0, 2, 12]
