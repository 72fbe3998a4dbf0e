"""Failures grouped by cause: similar tracebacks, exit codes, signals, timeouts, and trials lost too often.

Of each cause it shows how many trials it had, the last lines of one of them, and the parameters that they
have in common and finished trials do not. It only reads, while the study runs and after.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from stoker.cli.store_options import add_place, open_at, store_of
from stoker.core.errors import UsageError
from stoker.spec.problems import printable

if TYPE_CHECKING:
    from stoker.report.errors import Group

USAGE = "[STORE]"
EXAMPLES = """\
  stoker errors                  # all causes, the most frequent first
  stoker errors --limit 3        # the three most frequent
  stoker errors gs://bucket/study
"""
_NAMED = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments."""
    add_place(parser)
    parser.add_argument("--limit", metavar="N", type=int, help="so many causes (all)")


def run(options: argparse.Namespace) -> int:
    """Read the logs of what failed, and tell what they have in common."""
    if options.limit is not None and options.limit < 1:
        raise UsageError("--limit needs a number from 1 on")
    from stoker.report.errors import errors
    from stoker.report.rows import rows

    opened = open_at(store_of(options))
    sys.stdout.write(told(errors(opened, list(rows(opened))), options.limit))
    return 0


def told(groups: list[Group], limit: int | None = None) -> str:
    """All causes, or the most frequent ones, as text."""
    if not groups:
        return "No trial failed.\n"
    shown = groups[:limit]
    parts = [_told(one) for one in shown]
    if len(groups) > len(shown):
        rest = sum(one.count for one in groups[len(shown) :])
        parts.append(f"… and {_many(len(groups) - len(shown), 'other cause')} of {_many(rest, 'failure')}\n")
    return "\n".join(parts)


def _told(one: Group) -> str:
    example = one.example
    numbers = [str(failure.row.trial).removeprefix("1.") for failure in one.failures]
    more = ", …" if len(numbers) > _NAMED else ""
    lines = [f"{one.count:,} × {one.title}"]
    lines += [f"  trials   {', '.join(numbers[:_NAMED])}{more}"]
    lines += [f"  common   {', '.join(one.common)}"] if one.common else []
    lines += [f"  example  {numbers[one.failures.index(example)]} {example.row.name}"]
    lines += [f"  note     {one.note}"] if one.note else []
    lines += [f"  │ {line}" for line in example.lines]
    return "".join(f"{printable(line)}\n" for line in lines)


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' * (count != 1)}"
