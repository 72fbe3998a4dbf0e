"""Give a study to another tool: all trials with their parameters, metrics and series.

csv and parquet write two files into a directory, `trials` and `progress`. mlflow writes a run for each trial
to a tracking URL or into a SQLite file, wandb into a project. What is exported is what is there now; done
again, mlflow gets only what is new.
"""

from __future__ import annotations

import argparse
import sys

from stoker.cli.store_options import add_store, add_study_file, origin_of
from stoker.spec.problems import printable

USAGE = "KIND DEST"
EXAMPLES = """\
  stoker export csv results                      # results/trials.csv, results/progress.csv
  stoker export parquet results -o gs://bucket/study
  stoker export mlflow mlflow.db                 # then: mlflow ui --backend-store-uri sqlite:///mlflow.db
  stoker export mlflow http://localhost:5000
  stoker export wandb my-project
"""
KINDS = ("csv", "parquet", "mlflow", "wandb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker export`."""
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help="csv, parquet, mlflow or wandb")
    parser.add_argument(
        "dest", metavar="DEST", help="a directory; for mlflow a file or URL, for wandb a project"
    )
    add_store(parser)
    add_study_file(parser)


def run(options: argparse.Namespace) -> int:
    """Write it."""
    from stoker.report.export import KINDS as WRITERS

    told = WRITERS[options.kind](origin_of(options), options.dest)
    sys.stdout.write(f"{printable(told)}\n")
    return 0
