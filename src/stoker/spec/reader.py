"""Reading nodes as what they should be, collecting every problem on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from stoker.core.values import Spelled, Value
from stoker.spec.nodes import MappingNode, Node, ScalarNode, SequenceNode, hint_of, scalar, tag
from stoker.spec.problems import Problem, Source, listing, suggest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Entries = dict[str, tuple[ScalarNode, Node]]
"""Key → its node and its value's node, in the order of the file."""

_PARAM = re.compile(r"[\w-]+")
_DURATION = re.compile(r"(?=.)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


class Reader:
    """One file being read. Methods return None for what is wrong, and have reported it then."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.hints: list[Problem] = []

    def problem(self, node: Node, message: str, remedy: str = "") -> None:
        """Something that must be mended."""
        self.problems.append(self._at(node, message, remedy))

    def problem_at_token(
        self, node: Node, token: str, message: str, remedy: str = "", last: bool = False
    ) -> None:
        """The same, at the first or last occurrence of `token` in the text of the node."""
        places = list(self._places(node, token)) if token else []
        if not places:
            self.problem(node, message, remedy)
            return
        number, place = places[-1 if last else 0]
        self.problems.append(Problem(number + 1, place + 1, message, remedy, token))

    def _places(self, node: Node, token: str) -> Iterator[tuple[int, int]]:
        start, end = node.start_mark, node.end_mark
        for number in range(start.line, min(end.line + 1, len(self.source.lines))):
            stop = end.column if number == end.line else None
            for match in re.finditer(re.escape(token), self.source.lines[number][:stop]):
                if number > start.line or match.start() >= start.column:
                    yield number, match.start()

    def entries(self, node: Node, what: str) -> Entries:
        """The entries of a mapping, merges (`<<`) included; a key given twice is a problem."""
        if not isinstance(node, MappingNode):
            self.problem(node, f"{what}: expected `key: value` pairs, got {describe_node(node)}")
            return {}
        return self._entries(node, what, ())

    def _entries(self, node: MappingNode, what: str, outer: tuple[MappingNode, ...]) -> Entries:
        own: Entries = {}
        merged: Entries = {}
        for key_node, value_node in node.value:
            if tag(key_node) == "merge":
                for base in self._bases(value_node, (*outer, node)):
                    merged = {**self._entries(base, what, (*outer, node)), **merged}
            elif not isinstance(key_node, ScalarNode):
                self.problem(
                    key_node, f"{what}: a key must be a word", "quote a command that begins with { or ["
                )
            elif key_node.value in own:
                first = own[key_node.value][0].start_mark.line + 1
                self.problem(
                    key_node, f"'{key_node.value}' is given twice (first in line {first})", "delete one"
                )
            else:
                own[str(key_node.value)] = (key_node, value_node)
        return {**merged, **own}

    def _bases(self, node: Node, outer: tuple[MappingNode, ...]) -> list[MappingNode]:
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        bases = [base for base in nodes if isinstance(base, MappingNode) and base not in outer]
        if len(bases) != len(nodes):
            self.problem(node, "<< takes a mapping, or a list of mappings", "refer to one with *name")
        return bases

    def items(self, node: Node) -> list[Node]:
        """The nodes of a list; a single value stands for a list of one."""
        return list(node.value) if isinstance(node, SequenceNode) else [node]

    def value(self, node: Node, what: str) -> Value | None:
        """A parameter's value: text, number or boolean."""
        if not isinstance(node, ScalarNode):
            self.problem(
                node, f"{what}: expected one value, got {describe_node(node)}", "quote it to pass it as text"
            )
            return None
        if tag(node) not in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge"):
            self.problem(node, f"{what}: the tag !{tag(node).lstrip('!')} is not supported", "delete the tag")
            return None
        found = scalar(node)
        if found is None:
            self.problem(node, f"{what} has no value", "write one behind the colon, or '' for an empty text")
        elif isinstance(found, str) and not _passable(found):
            self.problem(
                node, f"{what}: no command line can carry this text", "take out \\0 and lone surrogates"
            )
            return None
        elif hint_of(node):
            self.hints.append(
                self._at(node, f"{what}: {hint_of(node)}", f"write '{node.value}' for the text")
            )
        return found

    def param_name(self, node: ScalarNode, what: str) -> str | None:
        """The name of a parameter."""
        name = str(node.value)
        if name.startswith("_"):
            self.problem(
                node,
                f"{what}: a parameter's name may not begin with _",
                f"rename it, e.g. {name.lstrip('_') or 'x'}",
            )
        elif not _PARAM.fullmatch(name):
            self.problem(
                node, f"{what} '{name}': a name has only letters, digits, _ and -", f"write {_named(name)}"
            )
        else:
            return name
        return None

    def unknown(self, node: ScalarNode, what: str, known: Iterable[str]) -> None:
        """A key that does not exist."""
        known = list(known)
        remedy = suggest(str(node.value), known) or f"known here: {listing(known, most=40)}"
        self.problem(node, f"unknown {what} '{node.value}'", remedy)

    def _at(self, node: Node, message: str, remedy: str) -> Problem:
        start, end = node.start_mark, node.end_mark
        line = self.source.lines[start.line] if start.line < len(self.source.lines) else ""
        stop = end.column if end.line == start.line else len(line)
        return Problem(start.line + 1, start.column + 1, message, remedy, line[start.column : stop])


def _named(name: str) -> str:
    """A name as near as possible to what was written."""
    return re.sub(r"[^\w-]+", "-", name).strip("-_") or "another name"


def describe_node(node: Node) -> str:
    """A node in words."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if tag(node) == "null":
        return "nothing"
    shown = str(node.value)
    return f"'{shown if len(shown) <= 40 else shown[:39] + '…'}'"


def _passable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True)
class Kind(Generic[T_co]):
    """What a setting must be: in words, and as a function that returns None where it is not so."""

    expects: str
    read: Callable[[Reader, Node, str], T_co | None]
    fields: tuple[Field, ...] = ()  # of a mapping with fixed keys, or of a list of such


@dataclass(frozen=True)
class Field:
    """One setting: its name, what it must be, and what it does."""

    name: str
    kind: Kind[object]
    doc: str
    default: str = ""  # in words, for the documentation
    required: bool = False
    later: bool = False  # read and checked, but nothing acts on it yet


def simple(expects: str, convert: Callable[[Value, str], T | None]) -> Kind[T]:
    """A kind for one scalar; `convert` gets the value and its text, and returns None if it is wrong."""

    def read(reader: Reader, node: Node, what: str) -> T | None:
        found = scalar(node) if isinstance(node, ScalarNode) else None
        converted = None if found is None else convert(found, str(node.value))
        if converted is None:
            reader.problem(node, f"{what}: expected {expects}, got {describe_node(node)}")
        return converted

    return Kind(expects, read)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


TEXT: Kind[str] = simple("text", lambda value, raw: raw if raw and _passable(raw) else None)
ANY_TEXT: Kind[str] = simple("one value", lambda value, raw: raw if _passable(raw) else None)
FLAG: Kind[bool] = simple("true or false", lambda value, raw: value if isinstance(value, bool) else None)


def whole(least: int) -> Kind[int]:
    """An integer."""

    def convert(value: Value, raw: str) -> int | None:
        if isinstance(value, Spelled) and value.is_integer():
            value = int(value)
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return int(value) if fits else None

    return simple(f"a whole number, {least} or more", convert)


def number(above: float) -> Kind[float]:
    """A number greater than `above`."""
    return simple(
        f"a number above {above:g}",
        lambda value, raw: float(value) if _is_number(value) and float(value) > above else None,
    )


def one_of(*words: str) -> Kind[str]:
    """One of a few words; `true` and `false` may be among them."""

    def read(reader: Reader, node: Node, what: str) -> str | None:
        raw = str(node.value) if isinstance(node, ScalarNode) else ""
        raw = raw.lower() if isinstance(node, ScalarNode) and tag(node) == "bool" else raw
        if raw not in words:
            remedy = suggest(raw, words)
            reader.problem(node, f"{what}: expected {listing(words)}, got {describe_node(node)}", remedy)
            return None
        return raw

    return Kind(listing(words), read)


def parse_duration(raw: str) -> float | None:
    """Seconds in `90`, `90s`, `20m`, `2h`, `1d12h`; None if it is no duration."""
    match = _DURATION.fullmatch(raw)
    if not match:
        return None
    days, hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return (days * 24 + hours) * 3600 + minutes * 60 + seconds or None


DURATION: Kind[float] = simple("a time such as 90s, 20m or 1h30m", lambda value, raw: parse_duration(raw))


def list_of(kind: Kind[T], may_be_empty: bool = True) -> Kind[tuple[T, ...]]:
    """A list; brackets may be left out for one value."""

    def read(reader: Reader, node: Node, what: str) -> tuple[T, ...] | None:
        if not may_be_empty and not reader.items(node):
            reader.problem(node, f"{what}: the list is empty", f"it takes {kind.expects}; or delete the line")
        found = [kind.read(reader, item, what) for item in reader.items(node)]
        return tuple(item for item in found if item is not None)

    return Kind(f"{kind.expects}, or a list", read, kind.fields)


def map_of(kind: Kind[T], names: str, example: str) -> Kind[dict[str, T]]:
    """A mapping whose keys match the pattern `names`."""

    def read(reader: Reader, node: Node, what: str) -> dict[str, T] | None:
        result = {}
        for key, (key_node, value_node) in reader.entries(node, what).items():
            found = kind.read(reader, value_node, f"{what}.{key}")
            if not re.fullmatch(names, key):
                reader.problem(key_node, f"{what}: '{key}' cannot be a name here", f"write it like {example}")
            elif found is not None:
                result[key] = found
        return result

    return Kind(f"a mapping of names to {kind.expects}", read)


def group(*fields: Field) -> Kind[dict[str, object]]:
    """A mapping with fixed keys. Only those that are present come back."""
    by_name = {field.name: field for field in fields}

    def read(reader: Reader, node: Node, what: str) -> dict[str, object] | None:
        entries = reader.entries(node, what)
        found: Mapping[str, object] = {
            key: by_name[key].kind.read(reader, value_node, f"{what}.{key}")
            for key, (_, value_node) in entries.items()
            if key in by_name
        }
        for key, (key_node, _) in entries.items():
            if key not in by_name:
                reader.unknown(key_node, f"key in {what}:", by_name)
        if isinstance(node, MappingNode):
            for field in fields:
                if field.required and field.name not in entries:
                    reader.problem(node, f"{what}: '{field.name}' is missing", f"it is {field.kind.expects}")
        return {key: value for key, value in found.items() if value is not None}

    return Kind("a mapping", read, fields)


def either(first: Kind[object], word: str) -> Kind[object]:
    """`word`, or what the kind expects."""

    def read(reader: Reader, node: Node, what: str) -> object | None:
        if isinstance(node, ScalarNode) and node.value == word:
            return word
        return first.read(reader, node, what)

    return Kind(f"{word}, or {first.expects}", read)
