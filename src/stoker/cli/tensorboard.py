"""Look at a study in TensorBoard: its series by the names of trials, and its parameters under HPARAMS.

It writes event files of all trials that have begun, as they are now, and then starts TensorBoard on them, if
it is installed, until Ctrl-C. Scripts that write event files themselves need none of this: give TensorBoard
the output directory.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
from pathlib import Path
from shutil import which

from stoker.cli.store_options import add_place, add_study_file, origin_of, say, store_of
from stoker.cli.told import many
from stoker.spec.problems import printable

USAGE = "[STORE]"
EXAMPLES = """\
  stoker tensorboard                             # http://localhost:6006
  stoker tensorboard gs://bucket/study --port 7000
  stoker tensorboard --to events --write         # only the files
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker tensorboard`."""
    add_place(parser)
    add_study_file(parser)
    parser.add_argument(
        "--to", metavar="DIR", help="where event files go (default: .tensorboard in the output)"
    )
    parser.add_argument("--write", action="store_true", help="write the files, and start nothing")
    parser.add_argument("--port", metavar="N", default="6006", help="the port that it listens at (6006)")
    parser.add_argument("--host", metavar="NAME", default="localhost", help="the address (localhost)")


def run(options: argparse.Namespace) -> int:
    """Write the files, and start it."""
    from stoker.report.export import to_tensorboard

    origin, store = origin_of(options), store_of(options)
    dest = options.to or _default(origin.about.where if "://" in store else store)
    count = to_tensorboard(origin, dest)
    sys.stdout.write(f"{many(count, 'trial')} in {printable(dest)}\n")
    sys.stdout.flush()
    if options.write:
        return 0
    program = _program()
    if program is not None:  # from here on, this process is TensorBoard
        words = ["--logdir", dest, "--port", options.port, "--host", options.host]
        os.execv(program, [program, *words])  # noqa: S606
    say(f"TensorBoard is not installed: pip install tensorboard, then tensorboard --logdir {dest}")
    return 1


def _default(where: str) -> str:
    """Beside the trials; for a bucket, here."""
    return ".tensorboard" if "://" in where else str(Path(where, ".tensorboard"))


def _program() -> str | None:
    """The one of this environment first, whether it is on the path or not."""
    own = Path(sysconfig.get_path("scripts"), "tensorboard")
    return str(own) if own.is_file() else which("tensorboard")
