"""Write one HTML page with all there is to see of a study: failures, figures, trials, code, machines.

The page needs no network and no other file, so it can be sent around. It only reads, while the study runs and
after. The code is told as it is now: the commit of the directory that commands run in, and the changes since.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stoker import __version__
from stoker.cli.store_options import add_place, add_study_file, origin_of
from stoker.core.errors import StokerError
from stoker.spec.problems import printable
from stoker.study.opened import Opened

USAGE = "[STORE]"
EXAMPLES = """\
  stoker report                        # report.html of the study in output
  stoker report gs://bucket/study -o study.html --open
  stoker report --no-code              # to show it to others than those who see the code
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments."""
    add_place(parser, has_file=True)
    parser.add_argument(
        "-o", dest="file", metavar="FILE", default="report.html", help="where to (report.html)"
    )
    add_study_file(parser)
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    parser.add_argument("--no-code", action="store_true", help="leave out commit and changes of the code")


def run(options: argparse.Namespace) -> int:
    """Write it, and show it if asked to."""
    from stoker.report.page import report

    path = save(report(origin_of(options), __version__, not options.no_code), options.file)
    if options.open:
        import webbrowser

        webbrowser.open(path.absolute().as_uri())
    return 0


def write(opened: Opened, file: str, with_code: bool = True) -> Path:
    """Write the report of a study, and say where it is."""
    from stoker.report.page import report
    from stoker.report.recorded import Recorded

    return save(report(Recorded(opened), __version__, with_code), file)


def save(page: str, file: str) -> Path:
    """Write a page, and say where it is."""
    path = Path(file)
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise StokerError(f"cannot write {file}: {error.strerror}") from None
    sys.stdout.write(printable(f"Wrote {file}, {path.stat().st_size / 1e6:.1f} MB.") + "\n")
    return path
