"""A trial's directory: `param`, `stat` and logs, as people read them."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from functools import lru_cache

from stoker.core.values import Value, text

_PLAIN = re.compile(r"[A-Za-z_/.][\w/.+-]*(?: [\w/.+-]+)*", re.ASCII)
_NOT_TEXT = re.compile(r"(?:y|n|yes|no|on|off|true|false|null|~|[-+]?\.(?:inf|nan)|\.)", re.IGNORECASE)


def yaml_value(value: Value) -> str:
    """A value as YAML that reads back as the same: plain where that is safe, quoted otherwise."""
    if isinstance(value, str):
        return _yaml_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return text(value)


@lru_cache(maxsize=4096)
def _yaml_text(value: str) -> str:
    plain = _PLAIN.fullmatch(value) and not _NOT_TEXT.fullmatch(value) and not value.startswith(".")
    return value if plain else json.dumps(value, ensure_ascii=False)


def yaml_mapping(values: Mapping[str, Value], indent: str = "") -> str:
    """Lines of `key: value`."""
    return "".join(f"{indent}{yaml_value(name)}: {yaml_value(value)}\n" for name, value in values.items())


def write_param(
    directory: str, params: Mapping[str, Value], about: Mapping[str, Value], scripts: Mapping[str, str]
) -> None:
    """`param`: all parameters, what is known about the trial, and its commands."""
    lines = yaml_mapping(params) + yaml_mapping(about) + "_scripts:\n" + yaml_mapping(scripts, "  ")
    _overwrite(f"{directory}/param", lines)


def write_stat(directory: str, stages: Mapping[str, str]) -> None:
    """`stat`: what became of each stage."""
    _overwrite(f"{directory}/stat", yaml_mapping(stages))


def _overwrite(path: str, content: str) -> None:
    """Write a small file in one go, in place.

    Neither renaming over a file nor emptying it first: on ext4 both force its data to disk, which costs
    forty times as much, and this runs for every trial.
    """
    data = content.encode()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(file, data)
        os.ftruncate(file, len(data))
    finally:
        os.close(file)
