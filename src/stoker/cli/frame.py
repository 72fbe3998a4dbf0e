"""What all commands share: finding the command, reading its options, showing its errors."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from shutil import get_terminal_size
from typing import NoReturn, Protocol

from stoker.cli import COMMANDS
from stoker.core.errors import StokerError, UsageError
from stoker.spec.problems import StudyFileError, describe, printable, suggest


class Command(Protocol):
    """A module of this package: one command."""

    USAGE: str
    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...  # noqa: D102
    def run(self, options: argparse.Namespace) -> int: ...  # noqa: D102


def run(name: str, words: Sequence[str]) -> int:
    """Run a command with the words that follow its name."""
    if name == "_complete":
        from stoker.cli.completion import complete

        return complete(words)
    if name not in COMMANDS:
        if name.endswith((".yaml", ".yml")):
            raise UsageError(f"'{name}' is no command; did you mean `stoker check {name}`?")
        raise UsageError(f"there is no command '{name}'; {suggest(name, COMMANDS) or 'see stoker --help'}")
    return module(name).run(parser(name).parse_args(_joined(words)))


def _joined(words: Sequence[str]) -> list[str]:
    """`--sort -acc` is meant as `--sort=-acc`, though it looks like two options."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--sort" and word.startswith("-"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def module(name: str) -> Command:
    """The module of a command."""
    found: Command = import_module(f"stoker.cli.{name}")
    return found


def parser(name: str) -> argparse.ArgumentParser:
    """The parser of a command, with its help."""
    command = module(name)
    made = _Parser(
        prog=f"stoker {name}",
        usage=f"stoker {name} [OPTIONS] {command.USAGE}",
        description=(command.__doc__ or "").strip(),
        epilog=f"examples:\n{command.EXAMPLES.rstrip()}",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    command.add_arguments(made)
    return made


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(100, get_terminal_size().columns - 1))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Paragraphs are wrapped; lines that are indented, as examples are, stay lines."""
        filled = []
        for paragraph in text.split("\n\n"):
            if re.search(r"^ ", paragraph, re.MULTILINE):
                filled += ["\n".join(_folded(line, width) for line in paragraph.split("\n"))]
            else:
                filled += [textwrap.fill(" ".join(paragraph.split()), width, break_on_hyphens=False)]
        return "\n\n".join(filled)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`-t, --title TITLE…`, in every version of Python."""
        words = str(action.metavar or action.dest) if action.nargs != 0 else ""
        if action.choices is not None:
            words = "{" + ",".join(map(str, action.choices)) + "}"
        words += "…" if action.nargs == "+" else ""
        return f"{', '.join(action.option_strings)} {words}".strip()


def _folded(line: str, width: int) -> str:
    """A line as it is; if it is too wide, what is said of an example goes on below itself."""
    columns = re.match(r"(  \S.*?\s{2,})(\S.*)", line)
    if len(line) <= width or columns is None or len(columns[1]) > width - 20:
        return line
    example, told = columns.groups()
    return textwrap.fill(told, width, initial_indent=example, subsequent_indent=" " * len(example))


class _Parser(argparse.ArgumentParser):
    """Reports a wrong option in our own words, and as our own error."""

    def error(self, message: str) -> NoReturn:
        word = message.removeprefix("unrecognized arguments: ").split(" ")[0]
        near = ""
        if word != message.split(" ", maxsplit=1)[0]:
            near = suggest(word, [flag for action in self._actions for flag in action.option_strings])
        raise UsageError(f"{message}; {near or f'see {self.prog} --help'}")


def report(error: StokerError) -> int:
    """Show an error on stderr, and return the exit code that goes with it."""
    if isinstance(error, StudyFileError):
        count = f"{len(error.problems)} problem{'s' * (len(error.problems) > 1)}"
        told = (_coloured(describe(error.source, problem, _width())) for problem in error.problems)
        sys.stderr.write("\n\n".join(told))
        sys.stderr.write(f"\n\n{count} in {printable(error.source.name)}; nothing was started.\n")
    else:
        sys.stderr.write(f"stoker: {printable(str(error))}\n")
    return error.exit_code


def _width() -> int:
    return get_terminal_size((108, 24)).columns if sys.stderr.isatty() else 108


def _coloured(told: str) -> str:
    """The first line bold and the marks red, in a terminal that wants colour."""
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        return told
    first, *others = told.split("\n")
    marked = (re.sub(r"^( +\| +)(\^+)$", "\\1\x1b[31m\\2\x1b[0m", line) for line in others)
    return "\n".join([f"\x1b[1m{first}\x1b[0m", *marked])


def environment(variable: str, fallback: str) -> str:
    """The value of a STOKER_ variable, if it is set to something."""
    return os.environ.get(variable) or fallback
