"""Which files are left behind, by the rules of `.gitignore`, which `.stokerignore` shares."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FILES = (".gitignore", ".stokerignore")
"""Where rules stand, in any directory; the later of two goes first."""
_NEVER = {".git", ".hg", ".svn", "__pycache__"}


@dataclass(frozen=True)
class Rule:
    """One line: whatever it matches is left behind, or kept after all."""

    pattern: re.Pattern[str]
    keeps: bool
    only_directories: bool

    def matches(self, path: str, is_directory: bool) -> bool:
        """Of a path that begins where the rule stands."""
        return (is_directory or not self.only_directories) and self.pattern.fullmatch(path) is not None


def rules(lines: Iterable[str]) -> list[Rule]:
    """What the lines of a file say; the last that matches counts."""
    return [found for line in lines if (found := rule(line)) is not None]


def rule(line: str) -> Rule | None:
    """What one line says; None if it is empty, a comment, or not to be understood."""
    line = _stripped(line.rstrip("\r\n"))
    if not line or line.startswith("#"):
        return None
    keeps = line.startswith("!")
    line = line[1:] if keeps else line
    only_directories = line.endswith("/")
    line = line.rstrip("/") if only_directories else line
    if not line:
        return None
    is_anchored = "/" in line
    try:
        pattern = re.compile(_expression(line.removeprefix("/"), is_anchored), re.DOTALL)
    except re.error:
        return None
    return Rule(pattern, keeps, only_directories)


def _stripped(line: str) -> str:
    """Without spaces at its end, but for one that a backslash holds."""
    end = line.rstrip(" ")
    escapes = len(end) - len(end.rstrip("\\"))
    return end + " " if escapes % 2 and len(end) < len(line) else end


_TOKEN = re.compile(
    r"\\(.)|(\*\*/)|(\*\*)|(\*)|(\?)|(\[[!^]?(?:\\.|\[:\w+:\]|[^\]\\])(?:\\.|\[:\w+:\]|[^\]\\])*\])|(.)",
    re.DOTALL,
)


def _expression(glob: str, is_anchored: bool) -> str:
    """A regular expression that matches whole paths."""
    found, place = [] if is_anchored else ["(?:.*/)?"], 0
    while place < len(glob):
        match = _TOKEN.match(glob, place)
        if match is None:  # a backslash at the end
            raise re.error("nothing is escaped")
        found.append(_translated(match, glob))
        place = match.end()
    return "".join(found)


def _translated(match: re.Match[str], glob: str) -> str:
    escaped, any_directories, two, star, question, choice, plain = match.groups()
    at_start = match.start() == 0 or glob[match.start() - 1] == "/"
    if any_directories is not None:
        return "(?:.*/)?" if at_start else "[^/]*/"
    if two is not None:
        return ".*" if at_start and match.end() == len(glob) else "[^/]*"
    if star is not None or question is not None:
        return "[^/]*" if star is not None else "[^/]"
    if choice is not None:
        return _choice(choice)
    return re.escape(escaped if escaped is not None else plain)


def _choice(word: str) -> str:
    inside = word[1:-1]
    is_negated = inside[0] in "!^"
    inside = inside[1:] if is_negated else inside
    for name, meaning in _CLASSES.items():
        inside = inside.replace(f"[:{name}:]", meaning)
    inside = (
        inside.replace("[", r"\[")
        .replace("&&", r"&\&")
        .replace("~~", r"~\~")
        .replace("||", r"|\|")
        .replace("--", r"-\-")
    )
    return f"(?!/)[{'^' if is_negated else ''}{inside}]"


_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "space": r"\s",
    "xdigit": "0-9a-fA-F",
    "punct": r"!-/:-@\[-`{-~",
}


def files_of(root: Path, more: Sequence[Rule] = ()) -> Iterator[str]:
    """All files below a directory that no rule leaves behind, in order; `more` are rules that go first.

    Directories that are links are not entered; links to files are files.
    """
    yield from _walk(root, "", [], more)


_Standing = list[tuple[str, list[Rule]]]


def _walk(root: Path, below: str, standing: _Standing, more: Sequence[Rule]) -> Iterator[str]:
    standing = [*standing, (below, _standing_in(root / below))]
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except PermissionError:
        return
    for entry in entries:
        path, is_directory = below + entry.name, entry.is_dir(follow_symlinks=False)
        if entry.name in _NEVER or _is_left(path, is_directory, standing, more):
            continue
        if is_directory:
            yield from _walk(root, f"{path}/", standing, more)
        elif entry.is_file():
            yield path


def _standing_in(directory: Path) -> list[Rule]:
    found: list[Rule] = []
    for name in FILES:
        path = directory / name
        if path.is_file():
            found += rules(path.read_text(encoding="utf-8", errors="surrogateescape").splitlines())
    return found


def _is_left(path: str, is_directory: bool, standing: _Standing, more: Sequence[Rule]) -> bool:
    for rule_ in reversed(more):
        if rule_.matches(path, is_directory):
            return not rule_.keeps
    for below, found in reversed(standing):
        for rule_ in reversed(found):
            if rule_.matches(path[len(below) :], is_directory):
                return not rule_.keeps
    return False
