"""A person asks the doctor."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doctor.needs import give_up
from tests.local.mounts import mounted
from tests.stories.command import STOKER, stoker

SIGN = re.compile(r"  [✔!✘] (.+?)  +\S")


def run_on_a_terminal(*words: str, **environment: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen([STOKER, *words], stdout=theirs, env={**os.environ, **environment}) as process:
        os.close(theirs)
        text = b""
        try:
            while more := os.read(ours, 4096):
                text += more
        except OSError:  # it has ended
            pass
        process.wait(timeout=30)
    os.close(ours)
    return text.decode()


def test_all_is_well_here(workplace: Path) -> None:
    done = stoker("doctor")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "this machine"
    assert "two processes in it" in lines
    assert re.search(r"✔ directory +.*it's a \"place\" is there and can be written to", done.stdout)
    assert re.search(r"✔ race by link +200 names, each with one winner \(\d+ here, \d+ there\)", done.stdout)
    assert re.search(r"✔ race by O_EXCL +200 names, each with one winner", done.stdout)
    assert lines[-1].startswith(("all is well", "nothing is bad; "))
    assert "\x1b" not in done.stdout
    assert list(workplace.iterdir()) == []


def test_lines_are_aligned_and_remedies_stand_below(workplace: Path) -> None:
    done = stoker("doctor", "nowhere", "--on", "slurm", PATH=os.path.dirname(sys.executable))  # noqa: PTH120
    assert done.returncode == 1
    sections = re.split(r"^(?=\S)", done.stdout, flags=re.MULTILINE)
    for section in sections:
        checks = [line for line in section.splitlines() if SIGN.match(line)]
        columns = {len(match[0]) for line in checks if (match := re.match(r"  \S .{14,}?  (?=\S)", line))}
        assert len(columns) <= 1, section
    text = done.stdout
    assert re.search(r"✘ directory +.*/nowhere is not there\n +→ make it with mkdir -p", text)
    assert re.search(r"✘ bash +not found on the PATH\n +→ install bash", text)
    assert re.search(r"! git +not found on the PATH\n +→ install git", text)
    assert re.search(r"✘ commands +none of Slurm's is on the PATH\n +→ use Slurm from a login node", text)
    assert "two processes" not in text
    assert text.splitlines()[-1] == "3 bad, 1 warning"


def test_for_programs(workplace: Path) -> None:
    Path("file").touch()
    done = stoker("doctor", "file", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["ok"] is False
    (check,) = [check for check in told["checks"] if check["about"] == "the directory"]
    assert check["verdict"] == "bad"
    assert check["found"].endswith("file is a file")
    assert check["remedy"]
    assert {check["verdict"] for check in told["checks"]} <= {"ok", "warning", "bad"}
    assert all(bool(check["remedy"]) == (check["verdict"] != "ok") for check in told["checks"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["s3://bucket/study"], "only directories are checked"),
        (["--with", "-oProxyCommand=touch pwned"], "expected a host"),
        (["--with=-oProxyCommand=touch pwned"], "expected a host that ssh knows"),
        (["--with", ""], "expected a host that ssh knows"),
        (["--on", "abacus"], "slurm"),
    ],
)
def test_what_cannot_be_meant(workplace: Path, words: list[str], told: str) -> None:
    done = stoker("doctor", *words)
    assert done.returncode == 2
    assert told in done.stderr or "expected one argument" in done.stderr
    assert list(workplace.iterdir()) == []


def test_colour_is_for_terminals_that_want_it(workplace: Path) -> None:
    shown = run_on_a_terminal("doctor", "nowhere")
    assert "\x1b[31m✘\x1b[0m directory" in shown
    assert "\x1b[32m✔\x1b[0m Python" in shown
    assert "\x1b" not in run_on_a_terminal("doctor", "nowhere", NO_COLOR="1")


def test_signs_that_any_terminal_has(workplace: Path) -> None:
    shown = stoker("doctor", "nowhere", PYTHONIOENCODING="ascii").stdout
    assert re.search(r"^  \+ Python", shown, re.MULTILINE)
    assert re.search(r"^  x directory", shown, re.MULTILINE)


def test_a_name_cannot_move_the_cursor(workplace: Path) -> None:
    shown = stoker("doctor", "\x1b[2J\x9b31m").stdout
    assert "\x1b" not in shown
    assert "\x9b" not in shown


def _on_a_mount(path: Path, options: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """What the doctor says of a file system of its own, in which a script has run."""
    place = shlex.quote(str(path))
    with mounted(f"mount -t tmpfs -o {options} none {place}; cd {place}\n{script}") as mounts:
        words = [*mounts.enter, STOKER, "doctor", str(path)]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_a_disk_that_is_full(workplace: Path) -> None:
    done = _on_a_mount(workplace, "size=64k", "! head -c 100000 /dev/zero > file 2>/dev/null")
    assert done.returncode == 1
    assert re.search(r"✔ file system +tmpfs at .*, this machine's own", done.stdout)
    assert re.search(r"✘ space +0 B free of .*\n +→ the disk is full", done.stdout)


def test_a_disk_on_which_no_file_can_be_made(workplace: Path) -> None:
    done = _on_a_mount(workplace, "nr_inodes=3", "touch 1 2")
    assert done.returncode == 1
    assert re.search(r"✘ inodes +0 free of 3 \(0%\)\n +→ remove files", done.stdout)


def test_a_disk_that_cannot_be_written_to(workplace: Path) -> None:
    done = _on_a_mount(workplace, "ro")
    assert done.returncode == 1
    assert re.search(r"✘ directory +.* cannot be written to\n +→ take another", done.stdout)


def test_a_directory_of_somebody_else(workplace: Path) -> None:
    if os.geteuid() != 0:
        give_up("only root can be somebody else")
    Path("theirs").mkdir(mode=0o700)
    workplace.chmod(0o755)
    code = "import os, sys; from pathlib import Path; from stoker.checkup.directory import look; "
    code += "os.setuid(65534); print([check.verdict.value for check in look(Path(sys.argv[1]))])"
    done = subprocess.run(
        [sys.executable, "-c", code, "theirs"], capture_output=True, text=True, check=False, cwd=workplace
    )
    assert done.stdout == "['bad']\n", done.stderr
