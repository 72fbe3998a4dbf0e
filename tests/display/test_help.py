"""Help in terminals of any width."""

from __future__ import annotations

import pytest

from stoker.cli import COMMANDS, overview
from stoker.cli.frame import parser


def help_of(command: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    return parser(command).format_help().splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_wider_than_the_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(map(len, help_of(command, 80, monkeypatch))) < 80
    narrow = help_of(command, 60, monkeypatch)
    assert max(map(len, narrow[: narrow.index("examples:")])) < 60


def test_the_overview_fits_the_usual_terminal() -> None:
    assert max(map(len, overview().splitlines())) <= 80


def test_paragraphs_are_wrapped_and_examples_stay_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = (help_of("status", columns, monkeypatch) for columns in (101, 80))
    assert wide[2] == f"{narrow[2]} {narrow[3]}"
    assert wide[wide.index("examples:") :] == narrow[narrow.index("examples:") :]


def test_what_is_said_of_an_example_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = help_of("logs", 80, monkeypatch)
    place = next(number for number, line in enumerate(shown) if line.startswith("  stoker logs 17 -f  "))
    column = shown[place].index("and what it says")
    assert shown[place + 1][:column].isspace()
    told = f"{shown[place][column:]} {shown[place + 1][column:]}"
    assert told == "and what it says from now on, stage after stage"
