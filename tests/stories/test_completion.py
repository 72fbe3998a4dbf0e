"""TAB in a real bash."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.stories.command import STOKER, stoker


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("stoker ch", ["check"]),
        ("stoker check --li", ["--list"]),
        ("stoker check -t ", ["first one", "$(touch pwned)", "*"]),
        ("stoker check -c ", ["train", "test"]),
        ("stoker check -c train te", ["test"]),
        ("stoker completion z", ["zsh"]),
        ("stoker nonsense ", []),
    ],
)
def test_bash_offers_what_fits(workplace: Path, line: str, offered: list[str]) -> None:
    titles = ["first one", "$(touch pwned)", "'*'"]
    text = "template: {train: run, test: run}\n" + "".join(f"---\n_title: {title}\n" for title in titles)
    Path("params.yaml").write_text(text, encoding="utf-8")
    script = f"""
eval "$(stoker completion bash)"
COMP_LINE={line!r}
read -ra COMP_WORDS <<< "$COMP_LINE"
[[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_stoker
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    env = {**os.environ, "PATH": f"{Path(STOKER).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, check=True)
    assert [found.replace("\\", "") for found in done.stdout.splitlines() if found] == offered
    assert [path.name for path in workplace.iterdir()] == ["params.yaml"]


def test_trials_complete(study: Path) -> None:
    for words in ("logs N_", "rm --yes N_", "status -o output 1 N_"):
        assert stoker("_complete", *words.split(" ")).stdout == "N_1\nN_2\nN_3\n"
    for words in ("logs -o ", "stop -o nowhere ", "stop -o s3://nowhere "):
        assert stoker("_complete", *words.split(" ")).stdout == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_every_shell(shell: str) -> None:
    assert "stoker _complete" in stoker("completion", shell).stdout
