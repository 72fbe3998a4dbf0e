"""The documentation cannot drift."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.cli import ENVIRONMENT
from stoker.spec.load import load
from stoker.spec.problems import Source

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/make_docs.py", "--check"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_there_are_at_least_twenty_mistakes() -> None:
    assert len(list((ROOT / "docs/mistakes").glob("*.yaml"))) >= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_study_files_in_the_pages_are_valid(page: Path) -> None:
    if page.name == "mistakes.md":
        return
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        if text.startswith("template:"):
            load(Source(page.name, text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_variable_of_the_environment_is_documented() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for_people = {name for name in ENVIRONMENT if name.startswith("STOKER_")}
    for_scripts = set(
        re.findall(r"^\| `(STOKER_[A-Z_]+)", (ROOT / "docs/manager.md").read_text("utf-8"), re.MULTILINE)
    )
    assert set(re.findall(r"\bSTOKER_[A-Z_]+\b", source)) == for_people | for_scripts
