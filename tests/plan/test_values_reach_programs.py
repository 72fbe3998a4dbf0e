"""Whatever a value contains, the program gets exactly that value, and nothing else happens."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.plan.template import parse

NASTY = [
    "$(touch pwned)",
    "`id`",
    "`touch pwned`",
    "'; rm -rf x; '",
    '"',
    "'",
    "\\",
    "a\\",
    "two\nlines\n",
    "größer ✓ 漢字",
    "x" * 5000,
    "../../x",
    "-n",
    "",
    " ",
    "~",
    "~root",
    "*",
    "{a,b}",
    "a=b",
    "if",
    "!!",
    "#x",
    "$HOME",
    "${HOME}",
    "1>pwned",
    "2",
    "& touch pwned",
    "\t;touch pwned",
    "{x}",
    "[x]",
]
# Each place, and what stands around the value in the word that the program gets.
PLACES = {
    "{x}": ("", ""),
    '"{x}"': ("", ""),
    "'{x}'": ("", ""),
    "--k={x}": ("--k=", ""),
    "--k='{x}'": ("--k=", ""),
    'a"b {x} c"d': ("ab ", " cd"),
    "{x}>&1": ("", ""),
    "{x}1>&1": ("", "1"),
    "$V{x}": ("v", ""),
    '"$V{x}$V"': ("v", "v"),
    '"$(printf %s {x}; printf .)"': ("", "."),
    "\"$(printf %s '{x}'; printf .)\"": ("", "."),
    '"$(printf %s "{x}"; printf .)"': ("", "."),
    '"{note: {x}}"': ("{note: ", "}"),
    "x~{x}": ("x~", ""),
    "[[x]]{x}": ("[x]", ""),
    "{{x}}{x}": ("{x}", ""),
    "'$(('\"{x}\"'))'": ("$((", "))"),
    '\\"{x}\\"': ('"', '"'),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory that must stay empty."""
    directory = tmp_path_factory.mktemp("empty")
    yield directory
    assert list(directory.iterdir()) == []


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


def heard(template: str, value: str, cwd: Path) -> list[str]:
    """What a program gets, one item a word, when the rendered command runs in bash."""
    parsed = parse(f"V=v; /usr/bin/printf '%s\\0' {template}")
    assert parsed.flaws == ()
    command = parsed.render({"x": value})
    done = subprocess.run(
        ["bash", "-c", command], cwd=cwd, capture_output=True, check=True, env={"PATH": "/bin"}
    )
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("template", PLACES)
@pytest.mark.parametrize("value", NASTY, ids=range(len(NASTY)))
def test_a_nasty_value_arrives_unchanged(template: str, value: str, place: Path) -> None:
    before, after = PLACES[template]
    assert heard(template, value, place) == [before + value + after]


TEXT = st.text(
    st.one_of(
        st.sampled_from("'\"\\$`(){}[]<>|&;#!~*?=, \t\nab1-"),
        st.characters(codec="utf-8", exclude_characters="\0"),
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=TEXT, template=st.sampled_from(list(PLACES)))
def test_any_value_arrives_unchanged(value: str, template: str, place: Path) -> None:
    before, after = PLACES[template]
    assert heard(template, value, place) == [before + value + after]


@given(value=TEXT)
def test_an_option_is_two_words(value: str, place: Path) -> None:
    assert heard("[x]", value, place) == ["--x", value]


# Templates put together at random: whatever the lexer accepts must be safe.

PIECES = """
{x} {x} {x} [x] ' " ` $( $(( (( ( ) ${V }
$ \\ # a $V echo ; && |cat <( << <<< esac $' $" [[ ]] ~ = { , > 2 case␣a␣in␣a)
"""
FRAGMENTS = st.sampled_from([piece.replace("␣", " ") for piece in PIECES.split()] + [" "] * 6)


@settings(max_examples=4 * int(os.environ.get("STOKER_TEST_EXAMPLES", "150")))
@given(template=st.lists(FRAGMENTS, max_size=12).map("".join))
def test_a_template_that_is_accepted_is_safe(template: str, scratch: Path) -> None:
    parsed = parse("true " + template)
    if parsed.flaws or not parsed.holes:
        return
    evil = "$(touch pwned)`touch pwned`'\";touch pwned;\"'\\"
    command = parsed.render({hole.name: evil for hole in parsed.holes})
    subprocess.run(
        ["bash", "-c", command],
        cwd=scratch,
        capture_output=True,
        check=False,
        timeout=20,
        stdin=subprocess.DEVNULL,
    )
    assert not (scratch / "pwned").exists(), command
