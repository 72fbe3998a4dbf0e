"""YAML text to nodes that know their place, and nodes to plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from stoker.core.values import Spelled, Value
from stoker.spec.problems import Problem, Source, StudyFileError

__all__ = ["MappingNode", "Node", "ScalarNode", "SequenceNode", "documents", "hint_of", "scalar", "tag"]

DEEPEST = 100

_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCIENTIFIC = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
_CONSTRUCTORS: dict[str, Callable[[SafeConstructor, ScalarNode], Any]] = {
    "int": SafeConstructor.construct_yaml_int,
    "float": SafeConstructor.construct_yaml_float,
    "bool": SafeConstructor.construct_yaml_bool,
}
_SWITCH = re.compile(r"yes|no|on|off", re.IGNORECASE)
_BEGINS_WITH_BRACKET = re.compile(r"\s*[\w.-]+:\s+([{\[])[\w-]+[}\]]")
_NUMBERS = re.compile(r"[-+]?\.?\d[\d.eE+-]*(?:(?:,\s*|\s+)[-+]?\.?\d[\d.eE+-]*)+")
_EXPANDABLE = re.compile(r"~/|\$[A-Za-z_{]")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")


def documents(source: Source) -> list[Node]:
    """The root node of each document that is not empty. Raises StudyFileError where the text is no YAML."""
    try:
        _check_depth(source)
        return [node for node in yaml.compose_all(source.text, Loader=_FAST) if not _is_empty(node)]
    except yaml.YAMLError as error:
        raise StudyFileError(source, [_syntax_problem(source, _explained(source, error))]) from None


def _check_depth(source: Source) -> None:
    """Refuse what would exhaust the stack of the composer, which calls itself at every level."""
    depth = 0
    for event in yaml.parse(source.text, Loader=_FAST):
        opens = isinstance(event, yaml.CollectionStartEvent)
        depth += opens - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            mark = event.start_mark
            message = f"more than {DEEPEST} brackets or levels inside one another"
            raise StudyFileError(source, [Problem(mark.line + 1, mark.column + 1, message)])


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and tag(node) == "null"


def tag(node: Node) -> str:
    """`int`, `str`, `map` …: the YAML type without its namespace."""
    return str(node.tag).removeprefix("tag:yaml.org,2002:")


def scalar(node: ScalarNode) -> Value | None:
    """The node's value; None for null. Dates stay text, and so do numbers too long to be meant as such."""
    raw, kind = str(node.value), tag(node)
    if kind == "null":
        return None
    if kind in _CONSTRUCTORS:
        try:
            value: Value = _CONSTRUCTORS[kind](SafeConstructor(), node)
        except (ValueError, KeyError, IndexError):  # too many digits, or a tag that does not fit
            return raw
        return value if _is_sane(value, raw) else raw
    number = is_plain(node) and _SCIENTIFIC.fullmatch(raw)
    return Spelled(raw) if number and math.isfinite(float(raw)) else raw


def _is_sane(value: Value, raw: str) -> bool:
    """Not an integer too long to print, and not infinite unless it is written so."""
    if isinstance(value, int):
        return value.bit_length() < 10_000
    return not (isinstance(value, float) and math.isinf(value)) or "inf" in raw.lower()


def is_plain(node: ScalarNode) -> bool:
    """Whether the text stands without quotes, and not in a block."""
    return not node.style  # None or "", as the two parsers have it


def hint_of(node: ScalarNode) -> tuple[str, str] | None:
    """What may surprise about the way a value is read, and what to write instead; mostly nothing."""
    raw, kind = str(node.value), tag(node)
    if not is_plain(node):
        return None
    as_text = f"write '{raw}' for the text"
    if kind == "bool" and _SWITCH.fullmatch(raw):
        return f"{raw} is read as {'true' if scalar(node) else 'false'}", as_text
    if kind in ("int", "float") and ":" in raw:
        return f"{raw} is read in base 60, as {scalar(node)}", as_text
    if kind == "int" and _OCTAL.fullmatch(raw) and raw.strip("+-0_"):
        return f"{raw} is read as an octal number, {scalar(node)}", as_text
    if _NUMBERS.fullmatch(raw):
        items = ", ".join(re.findall(r"[^,\s]+", raw))
        return f"{raw} is one text", f"write [{items}] for a list, '{raw}' for the text"
    if _EXPANDABLE.match(raw):
        return (
            f"values are not expanded: programs get {raw} as it is",
            "write ~ and $NAME in the command instead",
        )
    return None


def _explained(source: Source, error: yaml.YAMLError) -> yaml.YAMLError:
    """The error as the parser written in Python tells it, so that messages do not depend on the build."""
    try:
        for _ in yaml.compose_all(source.text, Loader=yaml.SafeLoader):
            pass
    except yaml.YAMLError as other:
        return other
    return error


def _syntax_problem(source: Source, error: yaml.YAMLError) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        return _bad_character(source, error)
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(1, 1, f"not a YAML file: {error}")
    mark = error.problem_mark
    text = source.lines[mark.line] if mark.line < len(source.lines) else ""
    begins = _BEGINS_WITH_BRACKET.match(text)
    if begins and mark.column > begins.start(1) and str(error.problem).startswith("expected"):
        message = f"a value that begins with {begins[1]} is read as YAML, not as a command"
        return Problem(mark.line + 1, begins.start(1) + 1, message, _IN_A_BLOCK, begins[1])
    message, remedy = _explanation(error)
    opened = error.context_mark
    if opened and opened.line != mark.line and "flow" in str(error.context):
        message += f" (the bracket was opened in line {opened.line + 1})"
    return Problem(mark.line + 1, mark.column + 1, message, remedy, text[mark.column : mark.column + 1])


def _bad_character(source: Source, error: yaml.reader.ReaderError) -> Problem:
    before = source.text[: error.position]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    message = f"the character U+{int(error.character):04X} cannot stand in a YAML file"
    return Problem(line, column, message, "delete it")


_IN_A_BLOCK = "put the command into a block: `train: >` on one line, the command on the next, indented"

_EXPLANATIONS: list[tuple[str, Callable[[str], str], str]] = [
    (r"found character '\\t'", lambda _: "a tab cannot indent YAML", "indent with spaces"),
    (
        r"found character '(.*)' that",
        lambda c: f"a value cannot begin with {c}",
        "quote it: '…'",
    ),
    (
        r"mapping values are not allowed",
        lambda _: "this line is indented unlike the one above, or has a second ': '",
        f"quote the text, or {_IN_A_BLOCK}",
    ),
    (
        r"expected ',' or '([\]}])'",
        lambda c: f"a comma or {c} is missing",
        f"close the bracket; if it is a command, {_IN_A_BLOCK}",
    ),
    (r"unexpected end of stream", lambda _: "a quote is never closed", "close it"),
    (
        r"expected <block end>",
        lambda _: "this line does not fit the ones above it",
        f"check the indentation; if it is a command, {_IN_A_BLOCK}",
    ),
    (
        r"could not find expected ':'",
        lambda _: "a ':' is missing",
        "write `key: value`, with a space behind the colon",
    ),
    (
        r"undefined alias '?([^']*)'?",
        lambda c: f"*{c} refers to nothing",
        f"quote a text that begins with *: '*{'…'}'",
    ),
    (
        r"unknown escape character '(.*)'",
        lambda c: f'\\{c} means nothing inside "…"',
        "use '…' instead, where a backslash is a backslash",
    ),
]


def _explanation(error: yaml.MarkedYAMLError) -> tuple[str, str]:
    told = str(error.problem)
    for pattern, message, remedy in _EXPLANATIONS:
        match = re.search(pattern, told)
        if match:
            return message(match[1] if match.groups() else ""), remedy
    return f"not YAML: {told}", ""
