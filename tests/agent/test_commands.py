"""Which commands start without a shell, and that it makes no difference to them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.agent.processes import argv_of

BASH = shutil.which("bash") or "bash"
EXAMPLES = int(os.environ.get("STOKER_TEST_EXAMPLES", "150"))


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("true", ["true"]),
        ("python train.py --lr 0.1 --name=a:b", ["python", "train.py", "--lr", "0.1", "--name=a:b"]),
        (" ./run\t'two words'  \"it's\" ''\n", ["./run", "two words", "it's", ""]),
        ("a'b'\"c\"d", ["abcd"]),
        ("run 'größer $HOME `id` \\ !'", ["run", "größer $HOME `id` \\ !"]),
        ("run \"*?~#&|;<>(){}[]^! größer\"", ["run", "*?~#&|;<>(){}[]^! größer"]),
        ("run 'line\nline'", ["run", "line\nline"]),
        ("'my program' x", ["my program", "x"]),
    ],
)  # fmt: skip
def test_words_without_shell_syntax_are_taken_apart(command: str, argv: list[str]) -> None:
    assert argv_of(command) == argv


@pytest.mark.parametrize(
    "command",
    ["", " ", "''", "a; b", "a & b", "a | b", "a > b", "a\nb", "$a", "run $a", 'run "$a"', 'run "`a`"',
     "run `a`", "run \\a", 'run "\\a"', "run *", "run a?", "run [a]", "run {a,b}", "run ~", "run ~/x",
     "run a=~", "run #x", "a=1", "a=1 run", "run 'open", 'run "open', "run größer", "! run", "cd /",
     "exec run", "time run", "if", "'cd' x", "echo x", "printf x", "test x", "[ x", ". x", ": x", "kill 1",
     "true x", "false --help", "%1", "run\0", "run\r", "run 'a\0'"],
)  # fmt: skip
def test_all_else_is_left_to_bash(command: str) -> None:
    assert argv_of(command) is None


def test_every_name_that_bash_knows_is_left_to_it() -> None:
    """A newer bash may know more; then they belong into the list."""
    told = subprocess.run(
        ["bash", "-c", "compgen -b; compgen -k"], capture_output=True, text=True, check=True
    )
    for name in told.stdout.split():
        assert argv_of(f"{name} x") is None, name


PIECES = """
a b run true false cd if time . : [ - -- --k= = == % %1 , + @ / ./ 0 1 ' " '' "" \\ $ $a ` ( ) { } [[ ]] * ? ~
# ! & && | || ; < > 2> >& ^ é ß ␤ ␉ {a,b} $' $" [a] 'a␣b' "a␣b" 'a"b' "a'b" '$a' 'ß␤' x=y
"""
ALL = [piece.replace("␣", " ").replace("␤", "\n").replace("␉", "\t") for piece in PIECES.split()] + [" "] * 12
QUIET = [piece for piece in ALL if argv_of(f"run {piece}")] + [" "] * 6  # else few commands would get far
COMMANDS = st.one_of(
    st.lists(st.sampled_from(ALL), min_size=1, max_size=10).map("".join),
    st.lists(st.sampled_from(QUIET), min_size=1, max_size=10).map("".join),
)


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nowhere")


def run_in_bash(command: str, nowhere: Path) -> list[str]:
    """The words of the command that bash looked for in vain, since no program is in the PATH."""
    told = subprocess.run(
        [BASH, "-c", "--", command],
        cwd=nowhere,
        env={
            "PATH": str(nowhere),
            "HOME": "/",
            "BASH_FUNC_command_not_found_handle%%": "() { builtin printf '%s\\0' \"$@\"; }",
        },
        capture_output=True,
        check=False,
        timeout=20,
        stdin=subprocess.DEVNULL,
    )
    assert told.stderr == b""
    return told.stdout.decode().split("\0")[:-1]


@settings(max_examples=2 * EXAMPLES)
@given(command=COMMANDS)
def test_bash_would_run_the_same_words(command: str, nowhere: Path) -> None:
    argv = argv_of(command)
    if argv is None or "/" in argv[0] or argv in (["true"], ["false"]):
        return
    assert run_in_bash(command, nowhere) == argv


@settings(max_examples=EXAMPLES)
@given(words=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=4))
def test_any_text_can_be_quoted(words: list[str], nowhere: Path) -> None:
    command = " ".join(["run", *("'" + word.replace("'", "'\"'\"'") + "'" for word in words)])
    assert argv_of(command) == ["run", *words]
    assert run_in_bash(command, nowhere) == ["run", *words]
