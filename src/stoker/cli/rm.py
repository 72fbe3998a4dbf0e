"""Remove the files of trials, or with --all a study with everything that is recorded of it.

What became of a trial stays known when its files are removed: `stoker retry --fresh TRIAL` makes them anew.
Trials that run are left alone, and so is a study with agents at work. Nothing is removed that is not the
study's: links are not followed, and other files in the output directory stay.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from stoker.cli.placed import remove_all
from stoker.cli.store_options import add_store, add_trials, can_ask, confirm, open_at, say, store_of
from stoker.cli.told import called, many, number, size
from stoker.core.errors import UsageError
from stoker.core.values import digest
from stoker.engines.interface import State as Standing
from stoker.engines.sites import list_placed
from stoker.spec.outputs import owner_in
from stoker.store.records import TrialId
from stoker.study import files
from stoker.study.fleet import Life
from stoker.study.logs import Logs
from stoker.study.opened import Opened
from stoker.study.place import RECORDS
from stoker.study.ranges import State

USAGE = "[STORE] TRIAL… | --all"
EXAMPLES = """\
  stoker rm 17 Norm_old-*      the files of these trials
  stoker rm --all              the whole study, records and files
"""

AT_ONCE = 16
"""Objects of a bucket that are removed at the same time."""
_KINDS = ("files/", "trials/", "done/", "orders/", "beats/", "engines/", "plan/")
"""All that a study has in a bucket. Plans go last: without them nobody could remove the rest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker rm`."""
    add_trials(parser, "whose files")
    add_store(parser)
    parser.add_argument("--all", action="store_true", help="the whole study")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="also what runs, or seems to")


def run(options: argparse.Namespace) -> int:
    """Find out what would be removed, ask, and remove it."""
    if bool(options.trials) == options.all:
        raise UsageError("which trials? name some, or say --all for the whole study")
    opened = open_at(store_of(options))
    trials = _whole_study(opened, options) if options.all else _idle(opened, options)
    if not trials and not options.all:
        return 1
    doomed = _Bucket(opened, trials, options.all) if opened.place.is_remote else _Output(opened, trials)
    if options.all and isinstance(doomed, _Output):
        doomed.add_records()
    if not doomed:
        say("there is nothing to remove")
        return 0
    what = f"the study {opened.name}" if options.all else many(len(trials), "trial")
    if not _is_sure(f"remove {what} from {store_of(options)}: {doomed.told()}?", options.yes):
        say("nothing was removed")
        return 1
    if options.all:  # by force: what is left would find no study
        for _, told in remove_all(opened):
            say(told)
    problems = doomed.remove()
    for problem in problems:
        say(f"stoker: {problem}")
    say(f"removed {doomed.told()}")
    if not options.all:
        say("what became of the trials stays known; `stoker rm --all` removes the whole study")
    return 1 if problems else 0


def _is_sure(question: str, yes: bool) -> bool:
    if not yes and not can_ask():
        raise UsageError("rm asks before it removes anything, and there is nobody to ask: say --yes")
    return yes or confirm(question)


def _whole_study(opened: Opened, options: argparse.Namespace) -> list[TrialId]:
    at_work = sum(agent.life is Life.ALIVE for agent in opened.state.agents())
    if at_work and not options.force:
        raise UsageError(f"{many(at_work, 'agent')} at work on this study; `stoker stop` first, or --force")
    for name, found in () if options.force else list_placed(opened):
        if isinstance(found, str):
            raise UsageError(f"whether there are still jobs is not known: {found}; --force does not ask")
        standing = sum(placed.state is not Standing.ENDED for placed in found)
        if standing:
            told = f"{many(standing, 'job')} on {name} for this study"
            raise UsageError(f"{told}; `stoker stop` first, or --force, which cancels them")
    return [now.trial for now in opened.state.trials(*set(State) - {State.WAITING, State.SKIPPED})]


def _idle(opened: Opened, options: argparse.Namespace) -> list[TrialId]:
    """The trials that are named, without those that run."""
    found = opened.find(options.trials)
    running = [t for t in found if (now := opened.state.trial(t)) and now.state is State.RUNNING]
    if options.force:
        return found
    for trial in running:
        say(f"{called(opened, trial)} is running: left as it is (stoker stop {number(trial)}, or --force)")
    return [trial for trial in found if trial not in running]


class _Output:
    """What goes from an output directory."""

    def __init__(self, opened: Opened, trials: Iterable[TrialId]) -> None:
        assert opened.place.output is not None  # noqa: S101
        self._opened, self._output = opened, opened.place.output
        self._paths: list[Path] = list(dict.fromkeys(path for trial in trials for path in self._of(trial)))
        self._records: list[Path] = []
        self._count, self._bytes = _measure(self._paths)

    def __bool__(self) -> bool:
        return bool(self._paths or self._records)

    def _of(self, trial: TrialId) -> Iterator[Path]:
        """A trial's directory, if it is truly its own; of a study without directories, its logs."""
        if self._opened.work.planned(trial.iteration).is_flat:
            yield from (Path(log.path) for log in Logs(self._opened, [trial]).all())
            return
        described = self._opened.trial(trial)
        path = self._output / described.name
        if not os.path.lexists(path):
            return
        if path.is_symlink() or not path.is_dir():
            say(f"{path} is no directory: left as it is")
        elif owner_in(self._output)(described.name) != digest(described.params):
            say(f"{path} is not this trial's, as far as its `param` tells: left as it is")
        else:
            yield path

    def add_records(self) -> None:
        """The records, and the copy of the study file if nobody has changed it."""
        source = self._opened.study.source
        copy = self._output / Path(source.name).name
        with suppress(OSError, UnicodeDecodeError):
            if not copy.is_symlink() and copy.read_text(encoding="utf-8") == source.text:
                self._paths.append(copy)
        records = self._output / RECORDS
        if records.is_symlink():
            raise UsageError(f"{records} is a link, and those are not followed; remove it yourself")
        self._records = sorted(records.iterdir(), key=lambda path: path.name == "plan")  # plans go last
        self._records.append(records)
        self._count, self._bytes = _measure([*self._paths, records])

    def told(self) -> str:
        """How much it is."""
        return f"{many(self._count, 'file')}, {size(self._bytes)}"

    def remove(self) -> list[str]:
        """Remove it; returns what went wrong."""
        problems = []
        for path in [*self._paths, *self._records]:
            try:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            except OSError as error:
                problems.append(f"cannot remove {error.filename or path}: {error.strerror}")
        if self._records:
            with suppress(OSError):  # somebody else's files are there
                self._output.rmdir()
        return problems


def _measure(paths: Iterable[Path]) -> tuple[int, int]:
    """Files and bytes."""
    sizes = [bytes_ for path in paths for bytes_ in _sizes(path)]
    return len(sizes), sum(sizes)


def _sizes(path: Path) -> Iterator[int]:
    if not path.is_dir():
        yield path.lstat().st_size
        return
    for _, entry in files.walk(str(path), lambda path, entry: True):
        if not entry.is_dir(follow_symlinks=False):
            yield entry.stat(follow_symlinks=False).st_size


class _Bucket:
    """What goes from a bucket."""

    def __init__(self, opened: Opened, trials: Iterable[TrialId], everything: bool) -> None:
        self._store = opened.place.store
        prefixes = _KINDS if everything else [files.trial_prefix(trial) for trial in trials]
        self._keys = [entry.key for prefix in prefixes for entry in self._store.list(prefix)]

    def __bool__(self) -> bool:
        return bool(self._keys)

    def told(self) -> str:
        """A listing of a bucket tells no bytes."""
        return many(len(self._keys), "object")

    def remove(self) -> list[str]:
        """Remove it; a store that does not answer raises, and what is left can be removed later."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for is_last in (False, True):
                keys = [key for key in self._keys if key.startswith("plan/") is is_last]
                list(pool.map(self._store.delete, keys))
        return []
