"""The rules of .gitignore, as git itself has them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.cargo.ignore import files_of, rules

NAMES = ("a", "b", "ab", "data", "x.py", "[a]", "a b", ".env", "-")
WORDS = (
    "a",
    "b",
    "*",
    "**",
    "?",
    "[ab]",
    "[!a]",
    "data",
    "x.py",
    "*.py",
    "a*",
    r"\*",
    r"[\]a]",
    "a b",
    "[[:alpha:]]",
)
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
lines = st.builds(
    lambda bang, start, words, end: bang + start + "/".join(words) + end,
    st.sampled_from(("", "", "!")),
    st.sampled_from(("", "", "/")),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    st.sampled_from(("", "", "/", " ", r"\ ")),
)


def by_git(root: Path) -> list[str]:
    words = ["git", "-C", str(root), "-c", "core.excludesFile=", "ls-files", "-z", "-o", "--exclude-standard"]
    done = subprocess.run(words, capture_output=True, check=True)
    return sorted(path for path in done.stdout.decode().split("\0") if path)


@settings(deadline=None)
@given(
    tree=st.sets(paths, min_size=1, max_size=12),
    top=st.lists(lines, max_size=4),
    deeper=st.lists(lines, max_size=3),
)
def test_as_git_does_it(tree: set[str], top: list[str], deeper: list[str]) -> None:
    with TemporaryDirectory() as place:
        root = Path(place)
        for path in sorted(tree):
            file = root / path
            if any(parent.is_file() for parent in file.parents) or file.is_dir():
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        (root / ".gitignore").write_text("\n".join(top), encoding="utf-8")
        if (root / "a").is_dir():
            (root / "a" / ".gitignore").write_text("\n".join(deeper), encoding="utf-8")
        subprocess.run(["git", "init", "-q", place], check=True)
        assert sorted(files_of(root)) == by_git(root)


def test_stokerignore_goes_first_and_may_keep(tmp_path: Path) -> None:
    for name in ("keep.bin", "other.bin", "train.py", "notes.md"):
        (tmp_path / name).write_text("")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    (tmp_path / ".stokerignore").write_text("!keep.bin\n*.md\n")
    assert list(files_of(tmp_path)) == [".gitignore", ".stokerignore", "keep.bin", "train.py"]
    assert list(files_of(tmp_path, rules(["*", "!*.py"]))) == ["train.py"]


@pytest.mark.parametrize("line", ["", "   ", "# a comment", "/", "!", "[", "a\\"])
def test_lines_that_say_nothing_do_no_harm(tmp_path: Path, line: str) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / ".gitignore").write_text(line + "\n")
    assert "train.py" in list(files_of(tmp_path))
