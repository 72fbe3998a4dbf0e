"""Draw the pictures of the README from what the commands really show. Takes as long as the demo.

The picture of the report needs chromium.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
STOKER = Path(sys.executable).parent / "stoker"
WIDTH, HEIGHT = 108, 30


def draw(name: str, command: str, shown: str) -> None:
    """Save what a command shows, colours and all, as an SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ {command}", "bold"))
    console.print(Text.from_ansi(shown))
    svg = console.export_svg(title="stoker", unique_id="stoker")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (ROOT / "docs/images" / name).write_text(svg, encoding="utf-8")


def check(study: str) -> str:
    """What `stoker check` shows of a study file."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "params.yaml").write_text(study, encoding="utf-8")
        env = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
        done = subprocess.run(
            [STOKER, "check"], cwd=place, env=env, capture_output=True, text=True, check=True
        )
    return done.stdout


def demo(report: Path) -> str:
    """All that `stoker demo` writes to a terminal of its own; its report is kept."""
    with tempfile.TemporaryDirectory() as place:
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(place)
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
            os.execv(STOKER, [str(STOKER), "demo"])  # noqa: S606
        shown = b"".join(iter(lambda: _read(terminal), b""))
        os.waitpid(child, 0)
        shutil.copy(Path(place, "stoker-demo", "report.html"), report)
    return shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how a terminal without writers ends
        return b""


def telling_frame(shown: str) -> str:
    """Of all frames of the live display, the one that shows a failure and the most figures."""
    frames = re.findall(r"\x1b\[\?2026h(.*?)\x1b\[\?2026l", shown, re.DOTALL)
    best = max((frame for frame in frames if "✘" in frame), key=lambda frame: frame.count("val_accuracy"))
    return re.sub(r"\x1b\[[0-9;?]*[A-Zhl]|\r", "", best)  # colours stay; moves of the cursor go


def photograph(name: str, page: Path) -> None:
    """Save what a browser shows of a page, from its top."""
    with tempfile.TemporaryDirectory() as profile:
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1100,1440",
        ]
        image = ROOT / "docs/images" / name
        words = [*options, f"--user-data-dir={profile}", f"--screenshot={image}", page.as_uri()]
        subprocess.run(["chromium", *words], capture_output=True, timeout=120, check=True)


if __name__ == "__main__":
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```yaml\n(template:.*?)```", readme, re.DOTALL)
    assert found  # noqa: S101
    draw("check.svg", "stoker check", check(found[1]))
    with tempfile.TemporaryDirectory() as place:
        report = Path(place, "report.html")
        draw("run.svg", "stoker run", telling_frame(demo(report)))
        photograph("report.png", report)
