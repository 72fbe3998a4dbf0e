"""Write a commented study file to start from.

The file explains itself: change the command to yours, keep the parameters you want to vary, delete
the rest, and look at the plan with `stoker check`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from importlib.resources import files
from pathlib import Path

from stoker.cli.frame import environment
from stoker.core.errors import UsageError
from stoker.spec.load import DEFAULT_FILE
from stoker.spec.problems import printable

USAGE = "[FILE]"
EXAMPLES = """\
  stoker init                 write params.yaml here
  stoker init norms.yaml      write it under another name
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker init`."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file to write (default: params.yaml)")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite a file that exists")


def run(options: argparse.Namespace) -> int:
    """Write the starter file."""
    path = Path(options.file or environment("STOKER_FILE", DEFAULT_FILE))
    text = files("stoker.spec").joinpath("starter.yaml").read_text(encoding="utf-8")
    try:
        with path.open("w" if options.force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{path} exists already; choose another name, or overwrite it with --force"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    shown = "" if str(path) == DEFAULT_FILE else f" {shlex.quote(str(path))}"
    told = f"wrote {path}", f"next: put your command into it, then run `stoker check{shown}`"
    sys.stdout.write("".join(printable(line) + "\n" for line in told))
    return 0
