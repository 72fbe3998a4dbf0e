"""Looking at the code of a study runs nothing that its repository is set up with."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shlex import quote

import pytest

from stoker.report.code import code_of


def git(*words: str) -> None:
    names = ["-c", "user.name=Me", "-c", "user.email=me@example.org"]
    subprocess.run(["git", *names, *words], check=True, capture_output=True)


def begin(attributes: str = "* filter=mine\n") -> None:
    git("init", "-q", "-b", "main")
    Path(".gitattributes").write_text(attributes, encoding="utf-8")
    Path("train.py").write_text("old = 1\n", encoding="utf-8")
    git("add", ".")
    git("commit", "-q", "-m", "Begin")
    Path("train.py").write_text("new = 2\n", encoding="utf-8")


@pytest.mark.parametrize("kind", ["clean", "smudge", "process"])
def test_filters_do_not_run(workplace: Path, kind: str) -> None:
    begin()
    git("config", f"filter.mine.{kind}", "touch owned; cat")
    git("config", "filter.mine.required", "true")
    found = code_of(str(workplace))
    assert found
    assert "+new = 2" in found.diff
    assert not Path("owned").exists()


def test_a_filter_that_no_option_can_name_does_not_run(workplace: Path) -> None:
    begin("* filter=a=b\n")
    git("config", "filter.a=b.clean", "touch owned; cat")
    found = code_of(str(workplace))
    assert found
    assert found.diff == ""
    assert not Path("owned").exists()


def test_filters_of_submodules_do_not_run(workplace: Path) -> None:
    Path("inner").mkdir()
    begin()
    git("init", "-q", "inner")
    git("-C", "inner", "commit", "-q", "--allow-empty", "-m", "x")
    Path("inner/.gitattributes").write_text("* filter=mine\n", encoding="utf-8")
    Path("inner/f").write_text("1\n", encoding="utf-8")
    git("-C", "inner", "add", ".")
    git("-C", "inner", "commit", "-q", "-m", "y")
    git("add", "inner")
    git("commit", "-q", "-m", "Inner")
    git("-C", "inner", "config", "filter.mine.clean", f"touch {quote(str(workplace))}/owned; cat")
    git("config", "diff.submodule", "diff")
    Path("inner/f").write_text("2\n", encoding="utf-8")
    assert code_of(str(workplace))
    assert not Path("owned").exists()


def test_nothing_is_fetched(workplace: Path) -> None:
    Path("from").mkdir()
    git("init", "-q", "from")
    Path("from/train.py").write_text("old = 1\n", encoding="utf-8")
    git("-C", "from", "add", ".")
    git("-C", "from", "commit", "-q", "-m", "Begin")
    git("-C", "from", "config", "uploadpack.allowFilter", "true")
    git("clone", "-q", "--filter=blob:none", "--no-checkout", (workplace / "from").as_uri(), "to")
    git("-C", "to", "read-tree", "HEAD")
    Path("to/train.py").write_text("new = 2\n", encoding="utf-8")
    git("-C", "to", "config", "protocol.file.allow", "always")
    git(
        "-C",
        "to",
        "config",
        "remote.origin.uploadpack",
        f"touch {quote(str(workplace))}/owned; git-upload-pack",
    )
    found = code_of(str(workplace / "to"))
    assert found
    assert found.told.endswith("Begin")
    assert not Path("owned").exists()
