"""Folders as files that are named after what is in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stoker.cargo.archive import Archive, pack
from stoker.cargo.ignore import files_of
from stoker.core.errors import UsageError


def make(root: Path) -> None:
    (root / "pkg").mkdir(parents=True)
    (root / "train.py").write_text("print('hello')\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o700)
    (root / "pkg" / "naïve name.py").write_text("")
    (root / "pkg" / "again.py").symlink_to("../train.py")


def packed(root: Path, into: Path) -> Archive:
    return pack(root, files_of(root), into)


def test_the_same_files_have_the_same_name_wherever_and_whenever(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    make(one)
    make(other)
    os.utime(other / "train.py", (1, 1))
    first, second = packed(one, tmp_path / "1"), packed(other, tmp_path / "2")
    assert first.name == second.name
    assert first.path.read_bytes() == second.path.read_bytes()
    assert (first.files, first.size) == (4, 25)


@pytest.mark.parametrize("change", ["contents", "name", "mode", "link"])
def test_any_change_gives_another_name(tmp_path: Path, change: str) -> None:
    root = tmp_path / "one"
    make(root)
    before = packed(root, tmp_path / "1")
    if change == "contents":
        (root / "train.py").write_text("print('jello')\n")
    elif change == "name":
        (root / "train.py").rename(root / "trane.py")
    elif change == "mode":
        (root / "run.sh").chmod(0o600)
    else:
        (root / "pkg" / "again.py").unlink()
        (root / "pkg" / "again.py").symlink_to("../run.sh")
    assert packed(root, tmp_path / "2").name != before.name


def test_what_comes_out_is_what_went_in(tmp_path: Path) -> None:
    make(tmp_path / "one")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "one" / "link").symlink_to("../secret")  # leads out: the file itself travels
    found = packed(tmp_path / "one", tmp_path / "1")
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["tar", "-xzf", str(found.path)], cwd=out, check=True)
    assert (out / "pkg" / "again.py").read_text() == "print('hello')\n"
    assert (out / "pkg" / "again.py").is_symlink()
    assert os.access(out / "run.sh", os.X_OK)
    assert (out / "link").read_text() == "outside"
    assert not (out / "link").is_symlink()
    assert (out / "pkg" / "naïve name.py").exists()


def test_what_cannot_be_packed_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe is no file"):
        pack(tmp_path, ["pipe"], tmp_path / "1")
