"""A made-up study, told to a screen: a process for the tests of terminals and pipes, and to look at.

Usage: python -m tests.display.actor [--plain] [--slots N] [--seconds S] [--speed X] [--raise]

It writes what it is asked for (pause, quit, …) to the file that the variable WISHES names. Asked to finish or
to quit, it goes on until what runs is over; by a kill it ends at once.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stoker.cli.board import Counts, Peer, Wish
from stoker.cli.display import console
from stoker.cli.lines import final_words, make_screen

STAGES = ("train", "avg", "test")
STAGE_SECONDS = 2.0


class MadeUp:
    """A state as the caller of a screen keeps it."""

    def __init__(self, total: int) -> None:
        self.counts = Counts(total, waiting=total)
        self.others: Sequence[Peer] = ()
        self.metrics: dict[str, str] = {}

    def last_metric(self, trial: str) -> str:
        return self.metrics.get(trial, "")


def start(trial: int, time: float, slot: int | None = 0, stage: str = "train", **more: Any) -> dict[str, Any]:
    name = more.pop("name", f"Norm_new-Moment_0.{trial}")
    log = f"output/{name}/log.{stage}.20260131.235959"
    event = {"event": "start", "time": time, "slot": slot, "trial": f"1.{trial}", "name": name}
    return {**event, "stage": stage, "round": 1, "attempt": 1, "log": log, **more}


def end(started: dict[str, Any], time: float, outcome: str = "finished", **more: Any) -> dict[str, Any]:
    told = {"event": "end", "time": time, "outcome": outcome, "seconds": time - started["time"]}
    return {**started, **told, "code": 0, "signal": None, "why": "exited", **more}


def result(
    started: dict[str, Any], time: float, status: str = "finished", **metrics: float
) -> dict[str, Any]:
    named = {key: started[key] for key in ("trial", "name")}
    return {"event": "trial", "time": time, **named, "status": status, "metrics": metrics}


def slots(*labels: str, held: dict[str, str] | None = None, notes: Sequence[str] = ()) -> dict[str, Any]:
    told = [{"label": label, "holder": (held or {}).get(label, "")} for label in labels]
    return {"event": "slots", "slots": told, "notes": list(notes)}


class Study:
    """Trials of three stages; every seventh fails."""

    def __init__(self, count: int, speed: float, total: int) -> None:
        self.state = MadeUp(total)
        self._speed = speed
        self._slots: list[tuple[dict[str, Any], int] | None] = [None] * count
        self._next = self._finished = self._failed = 0
        self.claims = True

    def step(self, now: float) -> Iterator[dict[str, Any]]:
        for slot, running in enumerate(self._slots):
            if running is None:
                yield from self._claim(slot, now)
            elif now - running[0]["time"] > STAGE_SECONDS / self._speed * (1 + slot / 10):
                yield from self._go_on(slot, *running, now)
        running_now = sum(running is not None for running in self._slots)
        left = self.state.counts.total - self._finished - self._failed
        self.state.counts = Counts(
            self.state.counts.total, self._finished, self._failed, 0, running_now, left - running_now
        )

    def _claim(self, slot: int, now: float) -> Iterator[dict[str, Any]]:
        if self.claims and self._next < self.state.counts.total:
            self._next += 1
            yield self._begin(slot, self._next, 0, now)

    def _begin(self, slot: int, trial: int, stage: int, now: float) -> dict[str, Any]:
        event = start(trial, now, slot, STAGES[stage], step=stage + 1, steps=len(STAGES))
        self._slots[slot] = event, stage
        self.state.metrics[event["trial"]] = f"val_accuracy {0.9 + trial / 1000:.3f}"
        return event

    def _go_on(self, slot: int, event: dict[str, Any], stage: int, now: float) -> Iterator[dict[str, Any]]:
        trial = int(event["trial"].partition(".")[2])
        self._slots[slot] = None
        if trial % 7 == 3:
            self._failed += 1
            yield end(event, now, "failed", code=1)
            yield result(event, now, "failed")
        elif stage + 1 < len(STAGES):
            yield end(event, now)
            yield self._begin(slot, trial, stage + 1, now)
        else:
            self._finished += 1
            yield end(event, now)
            yield result(event, now, val_accuracy=0.9 + trial / 1000)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--total", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--speed", type=float, default=1)
    parser.add_argument("--raise", dest="raises", action="store_true")
    options = parser.parse_args()
    return play(options)


def play(options: argparse.Namespace) -> int:
    asked: list[Wish] = []
    wishes = os.environ.get("WISHES")

    def ask(wish: Wish) -> None:
        asked.append(wish)
        study.claims = wish is Wish.RESUME
        if wishes:
            with Path(wishes).open("a", encoding="utf-8") as file:
                file.write(f"{wish.value}\n")

    study = Study(options.slots, options.speed, options.total)
    screen = make_screen("norms", "output", options.total, options.plain, ask)
    stop, looked = time.time() + options.seconds, 0.0
    try:
        screen.feed(slots(*(f"gpu {number}" for number in range(options.slots))))
        while (now := time.time()) < stop and Wish.KILL not in asked and study.state.counts.left:
            if now - looked > 0.2:
                looked = now
                for event in study.step(now):
                    screen.feed(event)
            if asked[-1:] in ([Wish.FINISH], [Wish.QUIT]) and not study.state.counts.running:
                break
            screen.tick(study.state, now)
            if options.raises and now > stop - options.seconds + 0.5:
                raise RuntimeError("on purpose")
            if select.select(screen.descriptors(), [], [], 0.1)[0]:
                screen.ready()
    finally:
        screen.close()
    shown = console()
    for line in final_words(screen.board, shown.width):
        shown.print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
