"""Draw the pictures of the README from what the commands really print."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
STOKER = Path(sys.executable).parent / "stoker"
WIDTH = 108


def picture(name: str, study: str, *words: str) -> None:
    """Run `stoker WORDS` beside a study file and save what it shows as an SVG."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "params.yaml").write_text(study, encoding="utf-8")
        env = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
        shown = subprocess.run(
            [str(STOKER), *words], cwd=place, env=env, capture_output=True, text=True, check=False
        )
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ stoker {' '.join(words)}", "bold"))
    console.print(Text.from_ansi(shown.stdout + shown.stderr))
    svg = console.export_svg(title="stoker", unique_id="stoker")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (ROOT / "docs/images" / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```yaml\n(template:.*?)```", readme, re.DOTALL)
    assert found  # noqa: S101
    picture("check.svg", found[1], "check")
