"""A reader follows the tutorials: writes their files, runs their commands, and sees what they show.

A block that begins with `# NAME` is a file. In a console block, `$` begins a command; every line below it
must be among those that the command prints, but for times, slots, and `…`, which stands for more lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.conftest import cluster, running_cluster

__all__ = ["cluster", "running_cluster"]
TUTORIALS = Path(__file__).parent.parent.parent / "docs/tutorials"
PAGES = sorted(path for path in TUTORIALS.glob("*.md") if path.name != "README.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
VARYING = {
    r"\d{8}\.\d{6}": "TIME",
    r"\b[\d.]+ s\b": "N s",
    r"\b[cg]pu \d": "SLOT",
    r"\bjob \d+": "job N",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_tutorial_shows_is_what_happens(
    workplace: Path, page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.stem == "slurm":
        monkeypatch.setenv("SLURM_CONF", str(request.getfixturevalue("cluster").configuration))
    ran = 0
    for language, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        named = re.match(r"# ([\w.]+)\n", body)
        if named:
            Path(named[1]).write_text(body, encoding="utf-8")
        elif language == "console":
            for command, *expected in map(str.splitlines, re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]):
                follow(command, expected)
                ran += 1
    assert ran > 3


def follow(command: str, expected: list[str]) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": path, "COLUMNS": "120", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}"
    printed = {usual(line) for line in done.stdout.splitlines()}
    missing = [line for line in expected if line != "…" and usual(line) not in printed]
    assert not missing, f"$ {command}\n{done.stdout}"


def usual(line: str) -> str:
    """The line without what differs from one run to the next."""
    for pattern, word in VARYING.items():
        line = re.sub(pattern, word, line)
    return line.replace("\xa0", " ").rstrip()
