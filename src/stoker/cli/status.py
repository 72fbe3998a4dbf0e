"""Show how far a study is: counts, agents, what runs, what failed, and the best trials.

With trials, all that is known about them; with --all, a table of all trials and their metrics. It only reads,
from any machine, while the study runs and after. The end is estimated from trials that finished lately.
--watch looks again every second until nothing is left, and then exits with 1 if trials failed.

--json prints one object with study, store, is_stopped, counts, agents, placed (jobs of engines) and trials:
those that run and failed, or that are asked for. A trial has number, iteration, name, status, round, attempt,
agent, since, params and directory; one that is done also metrics and result; one that is named also attempts,
results and logs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from math import isfinite
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from stoker.cli.placed import Places
from stoker.cli.store_options import add_store, open_at, store_of
from stoker.cli.told import slots_of
from stoker.core.errors import UsageError
from stoker.core.values import Value, text
from stoker.store.interface import StoreError
from stoker.store.records import TrialId
from stoker.study.logs import Logs
from stoker.study.opened import Opened
from stoker.study.ranges import DONE, State
from stoker.study.state import TrialNow

if TYPE_CHECKING:  # rich takes a while to import, and JSON does not need it
    from rich.text import Text

    from stoker.cli.display import Canvas
    from stoker.cli.status_page import Page

USAGE = "[STORE] [TRIAL…]"
EXAMPLES = """\
  stoker status                       the study in output/
  stoker status gs://bucket/study     one in a bucket
  stoker status --watch               until nothing is left
  stoker status --failed              all that failed, and why
  stoker status --all                 a table of all trials
  stoker status 17                    everything about trial 17
  stoker status --all --json | jq '.trials[] | [.name, .metrics.acc]'
"""

EVERY = 1.0
"""Seconds between two looks; more for a study that takes long to look at."""


READABLE = 100
"""Of more trials, JSON is written without indentation: nobody reads it, and it takes twice as long."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker status`."""
    parser.add_argument(
        "words",
        metavar="STORE, TRIAL",
        nargs="*",
        help="where the study is (default: output); and trials, by number, name, part of one, or pattern",
    )
    add_store(parser)
    parser.add_argument("-w", "--watch", action="store_true", help="look again every second")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--failed", action="store_true", help="only what failed, all of it")
    which.add_argument("--running", action="store_true", help="only what runs, all of it")
    which.add_argument("--all", action="store_true", help="all trials, and agents that are gone")


def run(options: argparse.Namespace) -> int:
    """Look, and show."""
    store, words = _store_and_trials(options)
    if options.watch and (options.json or words):
        raise UsageError(f"--watch shows the whole study; leave out {'--json' if options.json else 'TRIAL'}")
    opened = open_at(store)
    trials = opened.find(words)
    if options.json:
        told = as_json(opened, trials, options)
        indent = 2 if len(told["trials"]) <= READABLE else None
        sys.stdout.write(json.dumps(told, ensure_ascii=False, indent=indent) + "\n")
        return 0
    if options.watch:
        return _watch(opened, store, options)

    from stoker.cli.status_page import Page, history_page

    if trials:
        for place, trial in enumerate(trials):
            sys.stdout.write("\n" if place else "")
            _print(history_page(opened, trial))
    else:
        _print(Page(opened, store, options).lines(time.time(), _width()))
    return 0


def _store_and_trials(options: argparse.Namespace) -> tuple[str, list[str]]:
    """The first word may be the store: if it is a URL, a path, or a directory."""
    words: list[str] = list(options.words)
    if words and options.output is None and ("/" in words[0] or Path(words[0]).is_dir()):
        return words[0], words[1:]
    return store_of(options), words


def _width() -> int | None:
    """Cells of a line; None in a pipe, where nothing is cut."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def _print(lines: Iterable[Text]) -> None:
    from stoker.cli.display import console as make_console

    console = make_console()
    for line in lines:
        console.print(line)


# Watching


def _watch(opened: Opened, store: str, options: argparse.Namespace) -> int:
    from stoker.cli.display import Canvas
    from stoker.cli.status_page import Page

    page, said = Page(opened, store, options), ""
    canvas = Canvas(sys.stdout.fileno()) if sys.stdout.isatty() else None
    try:
        while True:
            began, counts = time.monotonic(), opened.state.counts()
            if canvas is not None:
                _draw(canvas, page)
            elif said != (said := page.summary()):
                sys.stdout.write(f"{time.strftime('%H:%M:%S')} {said}\n")
                sys.stdout.flush()
            if not counts.running and not counts.waiting:
                return 1 if counts.failed or counts.stopped else 0
            with suppress(StoreError):  # what is known goes on being shown, with the age of the beats
                opened.refresh()
            time.sleep(max(EVERY, 10 * (time.monotonic() - began)))
    finally:
        if canvas is not None:
            canvas.leave()


def _draw(canvas: Canvas, page: Page) -> None:
    """As much of the page as the terminal has room for."""
    from stoker.cli.display import size_of

    width, height = size_of(sys.stdout.fileno())
    lines = list(islice(page.lines(time.time(), width), max(1, height - 1)))
    for line in lines:
        line.truncate(max(1, width - 1), overflow="ellipsis")
    canvas.draw(lines)


# As data


def as_json(opened: Opened, trials: Sequence[TrialId], options: argparse.Namespace) -> dict[str, Any]:
    """Everything that can be said, as plain data."""
    counts, running = opened.state.counts(), Counter(now.agent for now in opened.state.trials(State.RUNNING))
    told: dict[str, Any] = {
        "study": opened.name,
        "store": opened.place.url,
        "is_stopped": opened.state.is_stopped,
        "counts": {**asdict(counts), "waiting": counts.waiting},
        "agents": [
            {**{k: v for k, v in asdict(agent).items() if k != "claims"}, "life": agent.life.value}
            | {"running": running[agent.name], "silence": round(agent.silence, 1), "slots": slots_of(agent)}
            for agent in opened.state.agents()
        ],
        "placed": Places(opened).as_json(),
    }
    if trials:
        found = [now for trial in trials if (now := opened.state.trial(trial)) is not None]
        told["trials"] = [{**_trial_json(opened, now), **_history_json(opened, now)} for now in found]
        return told
    bodies = {result.trial: result.body for result in opened.state.results()} if options.all else {}
    told["trials"] = [
        _trial_json(opened, now, bodies.get(now.trial)) for now in opened.state.trials(*selected(options))
    ]
    return told


def selected(options: argparse.Namespace) -> tuple[State, ...]:
    """The states of the trials that are asked for; none for all."""
    if options.all:
        return ()
    if options.failed or options.running:
        return (State.FAILED,) if options.failed else (State.RUNNING,)
    return State.RUNNING, State.FAILED


def _trial_json(opened: Opened, now: TrialNow, body: Any = None) -> dict[str, Any]:
    trial, directory = opened.trial(now.trial), opened.directory(now.trial)
    told = {
        "number": now.trial.number,
        "iteration": now.trial.iteration,
        "name": trial.name,
        "status": now.state.value,
        "round": now.round,
        "attempt": now.attempt,
        "agent": now.agent,
        "since": now.since,
        "params": {name: _json_value(value) for name, value in trial.params.items()},
        "directory": None if directory is None else str(directory),
    }
    if now.state in DONE:
        result = opened.state.result(now) if body is None else body
        told.update(metrics=_finite(opened.metrics(now.trial, result)), result=_finite(result))
    return told


def _finite(found: Any) -> Any:
    """The same without numbers that JSON does not have: they are null."""
    if isinstance(found, Mapping):
        return {name: _finite(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_finite(value) for value in found]
    return None if isinstance(found, float) and not isfinite(found) else found


def _json_value(value: Value) -> Value:
    """JSON has no numbers for infinity and the like."""
    return text(value) if isinstance(value, float) and not isfinite(value) else value


def _history_json(opened: Opened, now: TrialNow) -> dict[str, Any]:
    history = opened.state.history(now.trial)
    return {
        "attempts": [
            {
                "round": attempt.round,
                "attempt": attempt.number,
                "agent": attempt.agent,
                "claimed": attempt.claim.get("time", ""),
                "end": attempt.end.value if attempt.end else None,
                "record": attempt.figures,
            }
            for attempt in history.attempts
        ],
        "finished_stages": [{"round": round_, "stage": stage} for round_, stage in history.stages],
        "results": {str(round_): body for round_, body in history.results.items()},
        "logs": [log.path for log in Logs(opened, [now.trial]).all()],
    }
