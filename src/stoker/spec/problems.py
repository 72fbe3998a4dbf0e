"""What is wrong with a study file: where, what, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from stoker.core.errors import StokerError

WIDTH = 108
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake, or one surprise worth a hint. Lines and columns count from 1."""

    line: int
    column: int
    message: str
    remedy: str = ""
    text: str = ""  # the offending text, as it stands in the file


@dataclass(frozen=True)
class Source:
    """A study file as text."""

    name: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, as YAML counts them."""
        return re.split(r"\r\n|[\r\n\x85\u2028\u2029]", self.text)


class StudyFileError(StokerError):
    """The study file has problems; nothing was started or changed."""

    exit_code = 2

    def __init__(self, source: Source, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n\n".join(describe(source, problem) for problem in self.problems))


def describe(source: Source, problem: Problem, width: int = WIDTH) -> str:
    """The problem in full: position and message, the line with the place marked, the remedy."""
    head = f"{printable(source.name)}:{problem.line}:{problem.column}: {printable(problem.message)}"
    return "\n".join(
        [
            head,
            *_excerpt(source, problem, width - 8),
            *([f"    {printable(problem.remedy)}"] if problem.remedy else []),
        ]
    )


def _excerpt(source: Source, problem: Problem, width: int) -> list[str]:
    lines = source.lines
    if not 1 <= problem.line <= len(lines) or not lines[problem.line - 1].strip():
        return []
    line, column = lines[problem.line - 1].rstrip(), problem.column - 1
    start = max(0, column - width // 2) if len(line) > width else 0
    shown = line[start : start + width]
    marks = max(1, min(len(problem.text.split("\n")[0]), len(shown) - column + start))
    number = f"{problem.line:5} | "
    return [f"{number}{printable(shown)}", f"{' ' * 6}| {' ' * (column - start)}{'^' * marks}"]


def printable(text: str) -> str:
    """The text without anything that could move the cursor or hide itself in a terminal."""
    return _UNPRINTABLE.sub("·", text)


def is_misspelt(word: str, known: Iterable[str]) -> bool:
    """Whether a word is so near to a known one that it can hardly mean anything else."""
    from difflib import get_close_matches

    return bool(get_close_matches(word.lower(), [name.lower() for name in known], cutoff=0.85))


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean 'template'?`, or nothing if no known word is near.

    Slips are mostly at the end of a word, so a common beginning counts as much as the letters: `retries` has
    more letters in common with `metrics`, but means `retry`.
    """
    from difflib import SequenceMatcher, get_close_matches

    asked, lowered = word.lower(), {name.lower(): name for name in known}
    near = get_close_matches(asked, list(lowered), n=5, cutoff=0.6)
    near += [name for name in lowered if _extends(asked, name)]

    def nearness(name: str) -> float:
        beginning = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(asked, name, strict=False)))
        return beginning / len(asked) + SequenceMatcher(None, asked, name).ratio()

    return f"did you mean '{lowered[max(near, key=nearness)]}'?" if near else ""


def _extends(one: str, other: str) -> bool:
    """Whether one begins with the other, and that is more than chance."""
    short, long = sorted((one, other), key=len)
    return len(short) > 2 and long.startswith(short)


def listing(words: Sequence[str], most: int = 12, last: str = "or") -> str:
    """`a, b or c`, cut where it would get long."""
    if len(words) > most:
        return ", ".join(words[:most]) + " …"
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""
