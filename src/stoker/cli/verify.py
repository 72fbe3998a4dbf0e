"""Check that a trial which is interrupted goes on exactly where it was.

One trial runs twice: once straight, and once killed again and again at random moments, without warning and
politely in turn. Each time it is resumed in another directory, as on another machine. Every value that its
manager records must be the same, bit for bit. If one is not, you see which, and what is likely forgotten.

Both runs save whenever the script asks for it, whatever it says of `save_every`. What they write is
removed in the end, and the study is not touched.
Exits with 0 if all values are the same, 1 if not, 2 for bad input and for a script that cannot be verified:
it fails, does not use the manager, or is too quick to be interrupted.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from stoker.cli.study_options import Chosen, add_study_options, check_commands, choose, is_bucket
from stoker.core.errors import UsageError
from stoker.plan.trials import Trial
from stoker.spec.problems import listing, suggest

USAGE = "[FILE]"
EXAMPLES = """\
  stoker verify                       the first trial of params.yaml
  stoker verify --trial 17 --kills 9  another one, interrupted more often
  stoker verify --ignore seconds      a series of times is never the same
"""

MOST_NAMES = 20_000
"""So many names of trials are looked through."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker verify`."""
    add_study_options(parser)
    parser.add_argument("--trial", metavar="TRIAL", help="its number or name (default: the first)")
    parser.add_argument(
        "--stage", metavar="STAGE", help="the stage to interrupt (default: the first that uses the manager)"
    )
    parser.add_argument(
        "--kills", metavar="N", type=int, default=5, help="interrupt it so often (default: 5)"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="choose the same moments again")
    parser.add_argument(
        "--ignore",
        metavar="SERIES",
        nargs="+",
        action="extend",
        default=[],
        help="do not compare these series",
    )


def run(options: argparse.Namespace) -> int:
    """Run the trial twice, and compare."""
    if options.kills < 1:
        raise UsageError(f"--kills {options.kills}: expected a number above 0")
    chosen = choose(options)
    check_commands(chosen)
    trial = _find(chosen, options.trial)
    if options.stage is not None and options.stage not in trial.stages:
        near = suggest(options.stage, trial.stages) or f"it has {listing(trial.stages, last='and')}"
        raise UsageError(f"--stage {options.stage}: the trial has no such stage; {near}")
    with _workplace(chosen) as place:
        from stoker.agent import guardian

        guard = guardian.enter()  # if this is killed, so is what it runs
        signal.signal(signal.SIGTERM, signal.default_int_handler)

        from stoker.agent.processes import Processes
        from stoker.cli.interrupting import Runs
        from stoker.cli.resuming import Asked, verify

        asked = Asked(options.stage, options.kills, options.seed, frozenset(options.ignore))
        with Processes(guard) as processes:
            return verify(Runs(chosen, trial, processes, place), asked)


def _find(chosen: Chosen, word: str | None) -> Trial:
    """The trial by its number, its name, or a part that only one name has."""
    if word is None:
        return next(chosen.trials)
    if word.isdecimal():
        index = chosen.plan.index_of(int(word))
        if index is None:
            raise UsageError(f"--trial {word}: there is no such trial; `stoker check` shows all")
        return chosen.plan.trial(index)
    trials = {trial.name: trial for trial in islice(chosen.trials, MOST_NAMES)}
    found = [word] if word in trials else [name for name in trials if word in name]
    if len(found) > 1:
        raise UsageError(f"--trial {word}: that is part of several names: {listing(found, 5, 'and')}")
    if not found:
        near = suggest(word, trials) or "`stoker check` shows all"
        raise UsageError(f"--trial {word}: there is no such trial; {near}")
    return trials[found[0]]


@contextmanager
def _workplace(chosen: Chosen) -> Iterator[Path]:
    """A directory where the trial's own would be, for as long as this runs."""
    from stoker.agent.local import scratch

    output = scratch(chosen.output) if is_bucket(chosen.output) else Path(chosen.output)
    is_new = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".verify.", dir=output))
    except OSError as error:
        raise UsageError(f"cannot write into {output}: {error.strerror}") from None
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if is_new:
            with suppress(OSError):
                output.rmdir()
