"""A script that is forked from a parent sees, does and leaves what it would in a fresh process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.agent import guardian
from stoker.agent.processes import Ended
from tests.warm.machine import ENVIRONMENT, Machine, machine, write
from tests.warm.scripts import ENDS, SHOW

pytestmark = pytest.mark.skipif(not guardian.LINUX, reason="only Linux hands children over")


@pytest.fixture
def one(workplace: Path) -> Iterator[Machine]:
    with machine("decimal") as made:
        yield made


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ("python show.py --x 1", "1"),
        ("python show.py", ""),
        ("python -u ./show.py 'a b' ''", ""),
        ("python -u {place}/inner/show.py", "1"),
        ("python linked.py", "1"),
        ("python -m inner.show --x", "1"),
        ("python -u -m inner", ""),
    ],
)
def test_a_script_sees_what_it_sees_in_a_fresh_process(
    one: Machine, workplace: Path, command: str, unbuffered: str
) -> None:
    Path("inner").mkdir()
    for name in ("show.py", "inner/show.py", "inner/__main__.py"):
        write(name, SHOW)
    Path("linked.py").symlink_to("inner/show.py")
    command = command.replace("{place}", _quoted(workplace))
    environment = {**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered, "X": "a \udcff b"}
    about = {"STOKER_TRIAL": "1.5", "STOKER_PARAMS": '{"x": "ä"}'}
    for way, log in ((one.run_cold, workplace / "cold"), (one.run, workplace / "warm")):
        assert way(command, log, environment=environment, about=about).code == 0, log.read_text()
    assert (workplace / "warm").read_text() == (workplace / "cold").read_text()


def _quoted(path: Path) -> str:
    """A path with a space and both quotes, as a command that needs no shell may have it."""
    return "".join(f'"{c}"' if c == "'" else f"'{c}'" if c in ' "' else c for c in str(path))


def test_it_runs_where_its_commands_run(one: Machine, workplace: Path) -> None:
    (workplace / "below").mkdir()
    write("below/where.py", "import os, sys; print(os.getcwd(), sys.path[0], os.environ.get('PWD'))")
    texts, log = [], workplace / "log"
    for way in (one.run_cold, one.run):
        way("python where.py", log, directory=workplace / "below")
        texts.append(log.read_text())
        log.unlink()
    assert texts[0] == texts[1]
    assert texts[0].startswith(str(workplace / "below"))


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Path]]:
    """One parent for all of them, in a directory that they share."""
    place = tmp_path_factory.mktemp("ends")
    with machine("decimal") as made:
        yield made, place


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_as_a_fresh_process_does(ends: tuple[Machine, Path], name: str) -> None:
    one, place = ends
    write(str(place / "script.py"), ENDS[name])
    cold = _left(one.run_cold, place)
    assert _left(one.run, place) == cold


def _left(way: Callable[..., Ended], place: Path) -> dict[str, object]:
    """How it ended, and what is in its log and in its directory."""
    environment = {**ENVIRONMENT, "PYTHONUNBUFFERED": ""}  # what is not flushed is lost
    ended = way("python script.py --x 1", place / "log", directory=place, environment=environment)
    found = {path.name: path.read_text() for path in place.iterdir() if path.name != "script.py"}
    for name in found:
        (place / name).unlink()
    found["log"] = re.sub(r"0x[0-9a-f]+", "…", found["log"])
    return {**found, "": (ended.code, ended.signal, ended.why)}


@pytest.mark.parametrize("name", ["missing", "broken", "package"])
def test_a_module_that_cannot_run_is_told_as_python_tells_it(
    one: Machine, workplace: Path, name: str
) -> None:
    write("broken.py", "import missing_too")
    Path("package").mkdir()
    for way, log in ((one.run_cold, workplace / "cold"), (one.run, workplace / "warm")):
        assert way(f"python -m {name}", log).code == 1
    assert (workplace / "warm").read_text() == (workplace / "cold").read_text()
