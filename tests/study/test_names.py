from __future__ import annotations

import pytest

from stoker.core.errors import UsageError
from stoker.core.values import digest
from stoker.study.names import find
from stoker.study.state import StudyState
from tests.study.written import Written

HEAD = "template: {train: 'echo {lr} {net}', test: 'true'}\n---\n"


@pytest.fixture(scope="module")
def state() -> StudyState:
    written = Written()
    written.plan(HEAD + "lr: [0.1, 0.2]\nnet: [big, 'b[i]g', /big]\n", stages=["train"])
    written.plan(HEAD + "lr: [0.1, 0.3]\nnet: [small, big]\n", stages=["train"])
    written.plan(HEAD + "lr: [0.1]\nnet: [small, big]\n", stages=["train", "test"])
    return written.state()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("5", "1.5"),
        ("1.2", "1.2"),
        ("2.1", "2.1"),
        ("Lr_0.2-Net_big", "1.4"),
        ("Lr_0.2-Net_b[i]g", "1.5"),
        ("Lr_0.1-Net_big", "1.1"),
        ("Lr_0.3-Net_small", "2.3"),
        ("0.3-net_SMALL", "2.3"),
        ("*small", "2.1 2.3"),
        ("Lr_0.3*", "2.3 2.4"),
        (f"Lr_0.2-Net_big-{digest({'lr': 0.2, 'net': '/big'})}", "1.6"),
    ],
)
def test_what_a_word_means(state: StudyState, word: str, expected: str) -> None:
    assert " ".join(map(str, find(state, word))) == expected


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("7", "there is no trial 7 to run; numbers go up to 6"),
        ("2.2", r"there is no trial '2\.2'"),
        ("Net_big", r"'Net_big' is part of several names: Lr_0\.1-Net_big, .*"),
        ("Lr_0.1-Net_smal1", r"there is no trial '.*'; did you mean 'Lr_0\.1-Net_small'\?"),
        ("X*", r"there is no trial 'X\*'"),
        ("", "is part of several names"),
    ],
)
def test_a_word_that_means_nothing_or_too_much(state: StudyState, word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find(state, word)


def test_names_of_a_large_plan_are_found_at_once() -> None:
    numbers = list(range(1000))
    state = Written(f"template: 'echo {{x}} {{y}}'\n---\nx: {numbers}\ny: {numbers}\n").state()
    assert [trial.number for trial in find(state, "X_998-Y_3")] == [998_004]
    with pytest.raises(UsageError, match="1,000,000 names are too many"):
        find(state, "998-Y")
