"""Failures grouped by cause: similar tracebacks, exit codes, signals, timeouts, and trials lost too often.

Of each cause it shows how many trials it had, the last lines of one of them, and the parameters that they
have in common and finished trials do not. It only reads, while the study runs and after.
"""

from __future__ import annotations

import argparse
import sys

from stoker.cli.store_options import add_place, origin_of
from stoker.core.errors import UsageError

USAGE = "[STORE]"
EXAMPLES = """\
  stoker errors                  # all causes, the most frequent first
  stoker errors --limit 3        # the three most frequent
  stoker errors gs://bucket/study
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments."""
    add_place(parser)
    parser.add_argument("--limit", metavar="N", type=int, help="so many causes (all)")


def run(options: argparse.Namespace) -> int:
    """Read the logs of what failed, and tell what they have in common."""
    if options.limit is not None and options.limit < 1:
        raise UsageError("--limit needs a number from 1 on")
    from stoker.report.errors import errors, told

    origin = origin_of(options)
    sys.stdout.write(told(errors(origin, list(origin.rows())), options.limit))
    return 0
