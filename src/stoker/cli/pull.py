"""Fetch the files of a study, from a bucket or a directory, into DEST/TRIAL/.

Of trials that run it gets what is saved so far. Only what is missing or has changed is fetched, so it can be
interrupted and repeated; other files in DEST stay. The study file comes along.

--include and --exclude take patterns: `*.pt` matches at any depth, `ckpt/*` from the trial's directory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stoker.cli.store_options import KINDS, open_at, say
from stoker.cli.told import many, size
from stoker.core.errors import StokerError, UsageError
from stoker.spec.problems import printable
from stoker.store.directory import whole_file
from stoker.store.records import TrialId
from stoker.study import files
from stoker.study.files import Select
from stoker.study.logs import Logs
from stoker.study.opened import Opened
from stoker.study.ranges import State

USAGE = "STORE DEST [TRIAL…]"
EXAMPLES = """\
  stoker pull gs://bucket/study results             everything
  stoker pull gs://bucket/study results --best 3 --include '*.pt'
  stoker pull s3://bucket/study . 17 --exclude 'ckpt/*'
"""

AT_ONCE = 8
"""Trials that are fetched at the same time: most time goes by waiting."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker pull`."""
    parser.add_argument("store", metavar="STORE", help="the study: its URL, or its output directory")
    parser.add_argument("dest", metavar="DEST", help="the directory to put it into")
    parser.add_argument(
        "trials", metavar="TRIAL", nargs="*", help=f"which (default: all that have begun): {KINDS}"
    )
    parser.add_argument("--best", metavar="N", type=int, help="the best N by the study's objective")
    for option, told in (("--include", "only files that match"), ("--exclude", "no files that match")):
        parser.add_argument(option, metavar="PATTERN", nargs="+", action="extend", default=[], help=told)


@dataclass(frozen=True)
class Got:
    """What became of one trial: how many files it has of those asked for, and their bytes."""

    files: int = 0
    bytes: int = 0
    problem: str = ""


def run(options: argparse.Namespace) -> int:
    """Choose the trials, and fetch each."""
    opened, dest = open_at(options.store), Path(options.dest)
    _check_apart(opened, dest)
    trials = _chosen(opened, options)
    select = Select(tuple(options.include), tuple(options.exclude))
    _write_study_file(opened, dest)

    by_name = _by_name(opened, trials)

    def fetch(name: str) -> Got:
        try:
            return _sum(_fetch(opened, trial, dest / name, select) for trial in by_name[name])
        except (OSError, StokerError) as error:
            return Got(problem=f"{name}: {error}")

    got = _fetch_all(list(by_name), fetch)
    for each in got:
        if each.problem:
            say(f"stoker: {each.problem}")
    count = sum(each.files > 0 for each in got)
    told = f"{many(count, 'trial')}, {many(sum(each.files for each in got), 'file')}"
    sys.stdout.write(f"{told}, {size(sum(each.bytes for each in got))} in {printable(options.dest)}\n")
    return 1 if any(each.problem for each in got) else 0


def _check_apart(opened: Opened, dest: Path) -> None:
    """A study must not be copied into itself."""
    output = opened.place.output
    if output is not None and dest.resolve().is_relative_to(output.resolve()):
        raise UsageError(f"{dest} is in the study itself; choose another place")
    if dest.exists() and not dest.is_dir():
        raise UsageError(f"{dest} is a file; files go into a directory")


def _chosen(opened: Opened, options: argparse.Namespace) -> list[TrialId]:
    if options.best is None:
        begun = set(State) - {State.WAITING, State.SKIPPED}
        return opened.find(options.trials) or [now.trial for now in opened.state.trials(*begun)]
    if options.trials:
        raise UsageError("give trials, or --best, not both")
    if options.best < 1:
        raise UsageError(f"--best {options.best}: expected a number above 0")
    if opened.objective is None:
        raise UsageError("--best needs to know what is good: the study file has no `objective`")
    return [trial for _, trial in opened.best(options.best)]


def _write_study_file(opened: Opened, dest: Path) -> None:
    source = opened.study.source
    try:
        dest.mkdir(parents=True, exist_ok=True)
        (dest / Path(source.name).name).write_text(source.text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write into {dest}: {error.strerror}") from None


def _by_name(opened: Opened, trials: Sequence[TrialId]) -> dict[str, list[TrialId]]:
    """Iterations of a trial have one directory; in a bucket, what each put there goes to the same place."""
    found: dict[str, list[TrialId]] = {}
    for trial in trials:
        same = found.setdefault(opened.trial(trial).name, [])
        if opened.place.is_remote or not same:
            same.append(trial)
    return found


def _fetch_all(names: Sequence[str], fetch: Callable[[str], Got]) -> list[Got]:
    """Several trials at a time."""
    got: list[Got] = []
    with _progress(len(names)) as tick, ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for each in pool.map(fetch, names):
                got.append(each)
                tick(each)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return got


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Got], None]]:
    """A bar in a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda got: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("trials, {task.fields[size]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task, done = progress.add_task("", total=total, size="0 B"), 0

        def tick(got: Got) -> None:
            nonlocal done
            done += got.bytes
            progress.update(task, advance=1, size=size(done))

        yield tick


# One trial


def _fetch(opened: Opened, trial: TrialId, dest: Path, select: Select) -> Got:
    directory = opened.directory(trial)
    if directory is None:
        manifest = files.pull(opened.place.store, trial, dest, select)
        wanted = manifest.only(select).files.values() if manifest else ()
        return Got(len(wanted), sum(file.size for file in wanted))
    if opened.work.planned(trial.iteration).is_flat:
        logs = [log for log in Logs(opened, [trial]).all() if select.takes(Path(log.path).name)]
        return _sum(_copy(log.path, dest / Path(log.path).name) for log in logs)
    return _copy_tree(directory, dest, select) if directory.is_dir() else Got()


def _copy_tree(source: Path, dest: Path, select: Select) -> Got:
    """Links stay links, and what they point to is not looked at."""
    found = [
        _copy(entry.path, dest / path)
        for path, entry in files.walk(str(source), lambda path, entry: select.enters(path))
        if not entry.is_dir(follow_symlinks=False) and select.takes(path)
    ]
    return _sum(found)


def _sum(found: Sequence[Got] | Iterator[Got]) -> Got:
    all_ = list(found)
    return Got(sum(got.files for got in all_), sum(got.bytes for got in all_))


def _copy(source: str, dest: Path) -> Got:
    """Copy a file that is not there, or has changed; of what is no file, only links are worth it."""
    path = Path(source)
    try:
        there = path.lstat()
        if path.is_symlink():
            if not (dest.is_symlink() and os.readlink(dest) == os.readlink(source)):  # noqa: PTH115
                with whole_file(dest) as temp:
                    os.symlink(os.readlink(source), temp)  # noqa: PTH115, PTH211
            return Got(1)
        if not path.is_file():
            return Got()
        if not _is_same(there, dest):
            with whole_file(dest) as temp:
                shutil.copy2(source, temp, follow_symlinks=False)
    except FileNotFoundError:  # a running trial has removed it meanwhile
        return Got()
    return Got(1, there.st_size)


def _is_same(there: os.stat_result, dest: Path) -> bool:
    try:
        here = dest.lstat()
    except FileNotFoundError:
        return False
    return (here.st_mode, here.st_size, here.st_mtime_ns) == (there.st_mode, there.st_size, there.st_mtime_ns)
