"""What sinfo tells of partitions, and what of it makes jobs wait. Nothing here asks anybody."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FORMAT = "%P|%a|%D|%l|%G|%t"
"""For `sinfo -o`: partition, up or down, nodes, time limit, GPUs, state. The same in every version."""
_MARKS = "*~#!%$@^+-"  # what sinfo puts behind a state; a star is a node that does not respond
_GONE = frozenset({"down", "drain", "drained", "drng", "fail", "failg", "unk", "unknown", "futr", "inval"})


@dataclass(frozen=True)
class Partition:
    """A partition, as sinfo tells it."""

    name: str
    is_default: bool
    is_up: bool
    limit: str
    gres: tuple[str, ...]
    nodes: Mapping[str, int]  # by state

    @property
    def usable(self) -> int:
        """Nodes on which a job could run, now or later."""
        return sum(count for state, count in self.nodes.items() if state not in _GONE) if self.is_up else 0


def parse_partitions(text: str) -> list[Partition]:
    """What sinfo lists in FORMAT: a line for each kind of node. Lines of another form are passed over."""
    rows: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        name, *words = (word.strip() for word in line.split("|"))
        if len(words) == 5 and words[1].isdecimal():
            rows.setdefault(name, []).append(words)
    return [_partition(name, words) for name, words in rows.items()]


def _partition(name: str, rows: Sequence[Sequence[str]]) -> Partition:
    up, _, limit, _, _ = rows[0]
    nodes: Counter[str] = Counter()
    for _, count, _, _, state in rows:
        nodes[_state(state)] += int(count)
    gres = dict.fromkeys(part for row in rows for part in _gres(row[3]))
    return Partition(name.rstrip("*"), name.endswith("*"), up == "up", limit, tuple(gres), nodes)


def _state(word: str) -> str:
    plain = word.rstrip(_MARKS).lower()
    return "down" if "*" in word else plain


def _gres(word: str) -> list[str]:
    """`gpu:a100:4` of `gpu:a100:4(S:0-1)`; none of `(null)`."""
    plain = re.sub(r"\([^)]*\)", "", word)
    return [part for part in plain.split(",") if part and part != "N/A"]


def obstacle(partitions: Sequence[Partition], asked: str | None, is_refused: bool) -> str:
    """Why jobs of a partition, or of the default one, would wait for a person to act; empty if they do not.

    `is_refused`: no node that is up has what a job asks for, as `sbatch --test-only` says. It says the same
    of jobs that no node could ever run: these, sbatch itself refuses.
    """
    names = (
        asked.split(",") if asked else [partition.name for partition in partitions if partition.is_default]
    )
    mine = [partition for partition in partitions if partition.name in names]
    called = f"partition {', '.join(partition.name for partition in mine)}"
    nodes = sum(sum(partition.nodes.values()) for partition in mine if partition.is_up)
    gone = nodes - sum(partition.usable for partition in mine)
    if not mine:
        return ""
    if not any(partition.is_up for partition in mine):
        return f"{called} is down: jobs wait until it is up"
    if gone == nodes:
        return f"no node of {called} is up: jobs wait until one is back; `sinfo -R` tells why"
    if gone and is_refused:
        return f"jobs wait for nodes of {called} that are down or drained; `sinfo -R` tells why"
    return ""
