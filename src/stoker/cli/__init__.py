"""The `stoker` command. This module stays light: a command's own module is imported only to run it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from stoker import __version__

COMMANDS = {
    "demo": "run a small, real study here, to see what Stoker does",
    "init": "write a commented study file to start from",
    "check": "show exactly what a study would run, or what is wrong with it",
    "run": "run a study on this machine, and go on where it stopped",
    "agent": "let this machine join a study until nothing is left",
    "status": "show how far a study is: what runs, what failed, what is best",
    "logs": "show what a trial says, and follow it",
    "stop": "stop trials, or a whole study; `stoker run` goes on later",
    "retry": "ask again for trials that failed, or for any",
    "table": "one table of all trials: parameters, status, metrics",
    "errors": "group failures by cause, with what they have in common",
    "plot": "draw a figure of the results, to look at or to save",
    "report": "write one HTML page with all there is to see of a study",
    "analyze": "failures, sweeps, the best trial and the report, at once",
    "export": "give a study to other tools: CSV, Parquet, MLflow, W&B",
    "tensorboard": "look at a study in TensorBoard, with trial names and HPARAMS",
    "log": "record progress from a command of a study",
    "verify": "interrupt a trial, and check that it goes on exactly as it was",
    "pull": "fetch the files of trials from a bucket or a directory",
    "rm": "remove the files of trials, or a whole study",
    "doctor": "check that this machine and a directory are what Stoker needs",
    "emulate": "start a Google Cloud at home, to try out what would cost money",
    "completion": "print the completion script of your shell",
}

ENVIRONMENT = {
    "STOKER_FILE": "the study file, where no FILE is given (else params.yaml)",
    "STOKER_OUTPUT": "the output directory, where no -o is given (else output)",
    "STOKER_SCRATCH": "where trials of a study in a bucket run (else ~/.cache/stoker)",
    "STOKER_DEBUG": "set to 1 to see the traceback of an unexpected error",
    "STOKER_CLOUD": "a cloud instead of Google's, as `stoker emulate` prints it",
    "NO_COLOR": "set to anything for output without colour",
}

BUG = 70  # EX_SOFTWARE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 something failed, 2 bad input, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    _prepare_output()
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output left: nothing more to say
        _forget_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as asked:  # argparse, after --help
        return int(asked.code or 0)
    except Exception as error:  # the edge of the program: no user sees a traceback
        return _report(error)
    return code


def _prepare_output() -> None:
    """Never fail for a character that the terminal cannot show, nor for an output that is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  (pathlib is slow to import)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _forget_output() -> None:
    """Let Python not try again, and complain, to write what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) > 1 and words[0] == "help":
            return _run(words[1], ["--help"])
        sys.stdout.write(overview())
        return 0
    if words[0] in ("-V", "--version"):
        sys.stdout.write(f"stoker {__version__}\n")
        return 0
    return _run(words[0], words[1:])


def _run(command: str, words: list[str]) -> int:
    from stoker.cli.frame import run

    return run(command, words)


def _report(error: Exception) -> int:
    from stoker.core.errors import StokerError

    if os.environ.get("STOKER_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    if isinstance(error, StokerError):
        from stoker.cli.frame import report

        return report(error)
    if isinstance(error, OSError):
        _forget_output()
        sys.stderr.write(f"stoker: {error.strerror}{f': {error.filename}' if error.filename else ''}\n")
        return 1
    sys.stderr.write(f"stoker: this is a bug in Stoker: {type(error).__name__}: {error}\n")
    sys.stderr.write("stoker: run it again with STOKER_DEBUG=1 and report what you see\n")
    return BUG


def overview() -> str:
    """What `stoker --help` prints."""
    return f"""\
usage: stoker COMMAND [OPTIONS]

Stoker keeps your engines fed: one YAML file describes a study of training runs.

Commands:
{_columns(COMMANDS)}

Start here:
  stoker init                  write params.yaml, with comments that explain it
  stoker check                 see what would run, before anything does
  stoker run                   run all of it, and go on where it stopped
  stoker COMMAND --help        options and examples of a command

Environment:
{_columns(ENVIRONMENT)}

Options: -h, --help    -V, --version
"""


def _columns(rows: dict[str, str]) -> str:
    return "\n".join(f"  {name:<16}{text}" for name, text in rows.items())
