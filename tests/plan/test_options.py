"""Ladders, and the order in which draws visit them."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.values import key
from stoker.plan import options
from stoker.plan.options import Climb
from stoker.plan.shuffle import Shuffle


@given(st.integers(1, 3000), st.text(max_size=5))
def test_a_shuffle_is_a_permutation_with_an_inverse(size: int, seed: str) -> None:
    shuffle = Shuffle(size, seed)
    values = [shuffle[place] for place in range(size)]
    assert sorted(values) == list(range(size))
    assert [shuffle.index(value) for value in values] == list(range(size))


def test_a_shuffle_looks_random() -> None:
    """Neighbours are as far apart as in a random order, and each place gets each value about as often."""
    size = 10_000
    values = [Shuffle(size, "seed")[place] for place in range(size)]
    gaps = statistics.mean(abs(a - b) for a, b in pairwise(values))
    assert gaps == pytest.approx(size / 3, rel=0.05)
    firsts = [Shuffle(10, f"{seed}")[0] for seed in range(5000)]
    assert all(firsts.count(value) == pytest.approx(500, rel=0.25) for value in range(10))


LADDERS = [
    options.uniform("p", 1, 3),
    options.uniform("p", -0.5, 0.25),
    options.uniform("p", 1000000, 1000001),
    options.uniform("p", 0, 1e-12),
    options.log_uniform("p", 1e-5, 0.1),
    options.log_uniform("p", 1, 1.0001),
    options.int_uniform("p", -5, 12),
    options.int_uniform("p", 2**60, 2**60 + 5000),
    options.normal("p", 0, 1),
    options.normal("p", 1000, 0.01),
    options.step("p", 1000, 500, 400),
    options.step("p", 0.3, -0.1, 400),
    options.step("p", 1000000, 1, 400),
    options.multiple("p", 1e-4, 10, 12),
    options.multiple("p", 3, 2, 40),
    options.multiple("p", -8, 0.5, 40),
]


@pytest.mark.parametrize("ladder", LADDERS, ids=range(len(LADDERS)))
def test_a_ladder_is_found_again_by_value_and_by_name(ladder: Climb) -> None:
    some = sorted({int(ladder.size * k / 97) for k in range(97)})
    for level in some:
        choice = ladder.choice(level)
        same = (
            [other for other in range(ladder.size) if key(ladder.number(other)) == choice.keys[0]]
            if ladder.size < 1000
            else None
        )
        found = list(ladder.levels({"p": choice.keys[0]}))
        assert level in found
        assert same is None or found == same
        assert level in ladder.named(choice.part)
    assert list(ladder.levels({"p": "sx"})) == list(ladder.levels({})) == list(ladder.named("x")) == []


@pytest.mark.parametrize(
    ("low", "high"), [(1, 3), (0, 1), (-2, 5), (0.1, 0.3), (1e-9, 2e-9), (999999, 1000001)]
)
def test_uniform_stays_within_its_bounds_and_is_even(low: float, high: float) -> None:
    ladder = options.uniform("p", low, high)
    numbers = [ladder.number(level) for level in range(0, ladder.size, max(1, ladder.size // 1000))]
    assert ladder.size >= 10_000
    assert min(numbers) >= low
    assert ladder.number(ladder.size - 1) <= high
    assert statistics.mean(numbers) == pytest.approx((low + high) / 2, rel=0.01, abs=(high - low) / 100)


def test_numbers_have_six_digits_so_that_names_tell_them_apart() -> None:
    ladder = options.uniform("p", 1, 3)
    assert all(
        float(ladder.choice(level).part) == ladder.number(level) for level in range(0, ladder.size, 1234)
    )


def test_log_uniform_is_even_on_a_logarithmic_scale() -> None:
    ladder = options.log_uniform("p", 1e-4, 1)
    numbers = [math.log10(ladder.number(level)) for level in range(ladder.size)]
    assert statistics.mean(numbers) == pytest.approx(-2, abs=0.01)
    assert (ladder.number(0), ladder.number(ladder.size - 1)) == (1e-4, 1)


def test_normal_has_its_mean_and_deviation() -> None:
    ladder = options.normal("p", 5, 2)
    numbers = [ladder.number(level) for level in range(ladder.size)]
    assert statistics.mean(numbers) == pytest.approx(5, abs=0.001)
    assert statistics.stdev(numbers) == pytest.approx(2, abs=0.001)


def test_sequences_have_no_binary_dust() -> None:
    assert [options.step("p", 0.1, 0.1, 9).number(level) for level in range(3)] == [0.1, 0.2, 0.3]
    assert [options.multiple("p", 1e-4, 10, 9).number(level) for level in range(4)] == [1e-4, 1e-3, 0.01, 0.1]
    assert options.multiple("p", 2, 3, 9).number(2) == 18
