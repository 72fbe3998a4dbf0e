"""Draw a figure of the results and save it: as .svg, .png or .pdf, or as an .html page that zooms.

  sweeps        how the objective went in each sweep, on common axes
  progress      all series of the best trial
  parameters    the objective against each parameter
  importance    how much each parameter matters by itself
  parallel      each trial a line through its parameters
  best          the best so far, over trials and over time
  slots         what each slot did when
  errors        failures over time, by cause

No browser is needed. PNG and PDF need matplotlib, HTML needs plotly.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.cli.store_options import add_place, add_study_file, origin_of
from stoker.core.errors import StokerError, UsageError
from stoker.spec.problems import printable

if TYPE_CHECKING:
    from stoker.report.charts import Chart

USAGE = "NAME [STORE]"
EXAMPLES = """\
  stoker plot sweeps                             # sweeps.svg
  stoker plot sweeps --x time --yrange 0.9,1 -o sweeps.pdf
  stoker plot parallel -o parallel.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments."""
    parser.add_argument("name", metavar="NAME", help="which of those above")
    add_place(parser, has_file=True)
    parser.add_argument("-o", dest="file", metavar="FILE", help="where to: .svg .png .pdf .html (NAME.svg)")
    parser.add_argument(
        "--x",
        metavar="WHAT",
        default="step",
        help="of sweeps and progress: over step, time, or another series (step)",
    )
    add_study_file(parser)
    parser.add_argument("--yrange", metavar="LOW,HIGH", type=_range, help="of sweeps: the ends of the y axis")


def _range(word: str) -> tuple[float, float]:
    try:
        low, high = map(float, word.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError("two numbers with a comma, such as 0.9,1") from None
    return low, high


def run(options: argparse.Namespace) -> int:
    """Gather, draw, save."""
    from stoker.report.figures import draw

    chart = draw(origin_of(options), options.name, options.x, options.yrange)
    path = Path(options.file or f"{options.name}.svg")
    try:
        _save(chart, path)
    except OSError as error:
        raise StokerError(f"cannot write {path}: {error.strerror}") from None
    sys.stdout.write(printable(f"Wrote {path}. {chart.note}".strip()) + "\n")
    return 0


def _save(chart: Chart, path: Path) -> None:
    if path.suffix.lower() in (".html", ".htm"):
        from stoker.report.interactive import figure

        figure(chart).write_html(path)
        return
    from stoker.report.images import KINDS, save

    if path.suffix.lower() not in KINDS:
        raise UsageError(f"{path}: a figure is {', '.join(KINDS)} or .html")
    save(chart, path)
