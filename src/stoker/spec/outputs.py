"""To whom an existing directory of a trial belongs."""

from __future__ import annotations

import os
from pathlib import Path

from stoker.core.errors import UsageError
from stoker.core.values import digest
from stoker.plan.trials import Owner
from stoker.spec.nodes import MappingNode, ScalarNode, documents, scalar
from stoker.spec.problems import Source, StudyFileError

NOBODY = ""
"""The owner of a directory that no trial can be told to own."""


def owner_in(output: Path) -> Owner:
    """Looks trials up in an output directory by the `param` files in their directories."""

    def owner(name: str) -> str | None:
        path = f"{output}/{name}"  # texts, not Paths: this is asked for every trial
        try:
            os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UsageError(f"cannot look into {output}: {error.strerror}") from None
        return _owner_of(Path(path) / "param")

    return owner


def _owner_of(param_file: Path) -> str:
    if not param_file.is_file():
        return NOBODY
    try:
        roots = documents(Source(str(param_file), param_file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, StudyFileError):
        return NOBODY
    if len(roots) != 1 or not isinstance(roots[0], MappingNode):
        return NOBODY
    pairs = [(str(name.value), node) for name, node in roots[0].value if isinstance(name, ScalarNode)]
    values = {
        name: scalar(node)
        for name, node in pairs
        if not name.startswith("_") and isinstance(node, ScalarNode)
    }
    return digest({name: value for name, value in values.items() if value is not None})
