"""Print the completion script of your shell.

Commands, options, titles and stages complete with TAB, and the trials of a study in a directory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise

from stoker.cli import COMMANDS

USAGE = "SHELL"
EXAMPLES = """\
  bash:  echo 'eval "$(stoker completion bash)"' >> ~/.bashrc
  zsh:   echo 'eval "$(stoker completion zsh)"' >> ~/.zshrc
  fish:  stoker completion fish > ~/.config/fish/completions/stoker.fish
"""

MOST = 1000
"""So many trials are offered."""

SCRIPTS = {
    "bash": """\
_stoker() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    printf -v line %q "$line" && COMPREPLY+=("$line")
  done < <(stoker _complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _stoker stoker
""",
    "zsh": """\
_stoker() {
  local -a found
  found=(${(f)"$(stoker _complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _stoker stoker
""",
    "fish": """\
complete -c stoker -a '(stoker _complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker completion`."""
    parser.add_argument("shell", choices=list(SCRIPTS), help="your shell")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    sys.stdout.write(SCRIPTS[options.shell])
    return 0


def complete(words: Sequence[str]) -> int:
    """Print what may stand in place of the last word, one candidate per line. Never fails."""
    start = words[-1] if words else ""
    candidates = COMMANDS if len(words) < 2 else _for_command(words)
    for candidate in candidates:
        if candidate.startswith(start) and candidate.isprintable():
            sys.stdout.write(candidate + "\n")
    return 0


def _for_command(words: Sequence[str]) -> Iterable[str]:
    from stoker.cli.frame import parser

    if words[0] not in COMMANDS:
        return []
    actions = parser(words[0])._actions
    if words[-1].startswith("-"):
        return [flag for action in actions for flag in action.option_strings]
    flag = next((word for word in reversed(words[1:-1]) if word.startswith("-")), "")
    current = next((action for action in actions if flag in action.option_strings), None)
    if current is not None and current.dest in ("title", "command"):
        return _from_study(words, current.dest)
    if current is not None and flag == words[-2] and current.nargs != 0:
        return []  # its own word: a file, most often
    if any(action.dest in ("trial", "trials", "words") for action in actions):
        return _trials(words)
    positional = next((action for action in actions if not action.option_strings), None)
    return [str(choice) for choice in (positional.choices if positional else None) or ()]


def _trials(words: Sequence[str]) -> list[str]:
    """Names of trials of the study that the words name, unless it is in a bucket or has very many."""
    from stoker.cli.frame import environment
    from stoker.core.errors import StokerError
    from stoker.study.opened import open_study

    given = [after for word, after in pairwise(words) if word in ("-o", "--output")]
    place = [*given, environment("STOKER_OUTPUT", "output")][0]
    if "://" in place:
        return []
    try:
        opened = open_study(place)
        return [opened.trial(now.trial).name for now in islice(opened.state.trials(), MOST)]
    except StokerError:
        return []


def _from_study(words: Sequence[str], what: str) -> list[str]:
    """Titles or stages of the study that the words name, if it can be read."""
    from stoker.cli.frame import environment
    from stoker.core.errors import StokerError
    from stoker.spec.load import DEFAULT_FILE, load_file

    file = next((word for word in words if word.endswith((".yaml", ".yml"))), None)
    try:
        study = load_file(file or environment("STOKER_FILE", DEFAULT_FILE))
    except StokerError:
        return []
    if what == "title":
        return list(dict.fromkeys(sweep.title for sweep in study.sweeps if sweep.title))
    return [stage.name for stage in study.stages]
