"""Watching an agent of this machine: its events on the screen, wishes of the person back to it."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Any

from stoker.agent.host import host
from stoker.cli.begin import Begun, ask_for_missing_stages, counts_of, wanted_by
from stoker.cli.board import Counts, Peer, Screen, Wish
from stoker.cli.lines import final_words, make_screen
from stoker.cli.told import host_of, last_metrics, many, slots_of
from stoker.engines.local import LocalAgent
from stoker.store.interface import StoreError
from stoker.study.fleet import Life
from stoker.study.ranges import State

EVERY = 1.0
"""Seconds between two looks at the store."""
SOON = 0.1
"""The same, when a trial has ended: its count and its line shall come together."""
_WORDS = {
    Wish.PAUSE: "pause",
    Wish.RESUME: "resume",
    Wish.FINISH: "pause",  # and `leave`, when nothing runs any more
    Wish.QUIT: "leave",
    Wish.KILL: "kill",
}


class Seen:
    """What the store says, looked at now and then; see `board.State`."""

    def __init__(self, begun: Begun) -> None:
        self._begun = begun
        self._looked = 0.0
        self._has_news = False
        self._took = 0.0
        self._logs: dict[str, str] = {}
        self._metrics: dict[str, tuple[float, str]] = {}
        self.counts = self._counts()
        self.others: Sequence[Peer] = ()

    def look(self, now: float, at_once: bool = False) -> None:
        """Look again, if it is time: a large study is looked at less often."""
        pause = max(SOON if self._has_news else EVERY, 20 * self._took)
        if not at_once and now - self._looked < pause:
            return
        self._looked, self._has_news = now, False
        began = time.monotonic()
        try:
            self._begun.opened.refresh()
        except StoreError:
            return  # the agent tells it
        if self._begun.wanted is None:  # somebody may have asked for something else meanwhile
            self._begun.wanted = wanted_by(self._begun.opened, self._begun.iteration)
        self.counts = self._counts()
        self.others = [
            Peer(agent.name, host_of(agent), len(agent.claims), agent.silence)
            for agent in self._begun.opened.state.agents()
            if agent.life is Life.ALIVE and agent.pid != self._pid
        ]
        self._took = time.monotonic() - began

    _pid = 0

    def note(self, event: dict[str, Any]) -> None:
        """Remember which log belongs to a trial, and who our own agent is."""
        if event.get("event") == "start":
            self._logs[event["trial"]] = event["log"]
        elif event.get("event") == "trial":
            self._has_news = True
        elif event.get("event") == "slots":
            self._pid = int(event.get("pid", 0))

    def last_metric(self, trial: str) -> str:
        """What the running trial said last."""
        if trial not in self._logs:
            return ""
        now, (looked, told) = time.monotonic(), self._metrics.get(trial, (0.0, ""))
        if now - looked > 0.7:
            told = last_metrics(self._logs[trial], self._begun.chosen.study.settings)
            self._metrics[trial] = (now, told)
        return told

    def _counts(self) -> Counts:
        known = counts_of(self._begun)
        return Counts(
            known["total"],
            known[State.FINISHED],
            known[State.FAILED],
            known[State.STOPPED],
            known[State.RUNNING],
            max(0, known["left"] - known[State.RUNNING]),
        )


def watch(begun: Begun, plain: bool) -> int:
    """Start an agent, show what it does, and return the exit code."""
    seen = Seen(begun)
    _tell_of_slots_here(begun)
    agents = [LocalAgent(begun.agent_words)]
    wishes: list[Wish] = []

    def ask(wish: Wish) -> None:
        wishes.append(wish)
        agents[-1].tell(_WORDS[wish])

    name, where = begun.chosen.study.name, begun.chosen.output
    screen = make_screen(name, where, seen.counts.total, plain, ask)
    try:
        _follow(agents[-1], screen, seen)
        code = agents[-1].wait()
        seen.look(time.time(), at_once=True)
        if code == 0 and not wishes and ask_for_missing_stages(begun):  # others ran them by an older plan
            agents.append(LocalAgent(begun.agent_words))
            _follow(agents[-1], screen, seen)
            code = agents[-1].wait()
        seen.look(time.time(), at_once=True)
        screen.tick(seen, time.time())
    finally:
        screen.close()
    try:
        _say_farewell(begun, screen)
    except BrokenPipeError:  # nobody reads any more, which is why it stops
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code != 0 and not wishes:
        sys.stderr.write("stoker: the agent was killed, or failed; `stoker run` goes on where it was\n")
    if Wish.QUIT in wishes or Wish.KILL in wishes or (screen.board.finishing and seen.counts.left):
        return 130
    if code != 0:
        return code if code > 0 else 1
    return 1 if seen.counts.failed or seen.counts.stopped or seen.counts.left else 0


def _tell_of_slots_here(begun: Begun) -> None:
    """Cores are not locked as GPUs are: another run of the same study adds slots to those at work."""
    agents = [agent for agent in begun.opened.state.agents() if agent.life is Life.ALIVE]
    slots = sum(slots_of(agent) for agent in agents if agent.host == host())
    if slots:
        are = "are" if slots > 1 else "is"
        sys.stderr.write(f"{many(slots, 'slot')} of this machine {are} already at work here\n")
        sys.stderr.flush()


def _follow(agent: LocalAgent, screen: Screen, seen: Seen) -> None:
    board = screen.board
    while True:
        ours = agent.fileno()
        ready, _, _ = select.select([ours, *screen.descriptors()], [], [], 0.1)
        if any(descriptor != ours for descriptor in ready):
            screen.ready()
        if ours in ready:
            try:
                for event in agent.events():
                    seen.note(event)
                    screen.feed(event)
            except EOFError:
                return
        if board.finishing and not board.begun and not board.quitting:
            board.quitting = True
            agent.tell("leave")
        now = time.time()
        seen.look(now)
        screen.tick(seen, now)


def _say_farewell(begun: Begun, screen: Screen) -> None:
    from stoker.cli.display import console as make_console

    console = make_console()
    if sys.stdout.isatty():
        console.print()
    width = console.width if sys.stdout.isatty() else 1000
    for line in final_words(screen.board, width, best_lines(begun)):
        console.print(line)
    sys.stdout.flush()


def best_lines(begun: Begun, most: int = 3) -> list[str]:
    """The best trials by the study's objective, a line each."""
    objective = begun.opened.objective
    if objective is None:
        return []
    found = [(f"{value:.6g}", trial) for value, trial in begun.opened.best(most)]
    if not found and begun.opened.state.counts().finished:
        return [
            f"no trial told its {objective.metric}: record it by a manager or `stoker log`, "
            "or read it by a pattern under `metrics`"
        ]
    width = max((len(value) for value, _ in found), default=0)
    return [
        f"{objective.metric} {value:<{width}}  {begun.opened.trial(trial).name}" for value, trial in found
    ]
