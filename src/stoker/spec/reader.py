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
        self.flags: set[str] = set()  # parameters that stand as [p] in a command, where `no` means false
        self._mappings: dict[int, Entries] = {}  # by the id of their node, so that a merge is read once

    def problem(self, node: Node, message: str, remedy: str = "") -> None:
        """Something that must be mended."""
        self.problems.append(self._at(node, message, remedy))

    def problem_at_token(self, node: Node, token: str, nth: int, message: str, remedy: str = "") -> None:
        """The same, at the nth occurrence of `token` in the text of the node, from 0; -1 is the last."""
        places = list(self._places(node, token))
        if not places:
            self.problem(node, message, remedy)
            return
        number, place = places[min(nth, len(places) - 1)]
        self.problems.append(Problem(number + 1, place + 1, message, remedy, token))

    def hint_at_token(self, node: Node, token: str, message: str, remedy: str) -> None:
        """Something that may surprise, at the first occurrence of `token` in the text of the node."""
        number, place = next(self._places(node, token), (node.start_mark.line, node.start_mark.column))
        self.hints.append(Problem(number + 1, place + 1, message, remedy, token))

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
            remedy = "write one `key: value` per line, or {key: value, key: value}"
            self.problem(node, f"{what}: expected `key: value` pairs, got {describe_node(node)}", remedy)
            return {}
        return self._entries(node, what)

    def _entries(self, node: MappingNode, what: str) -> Entries:
        if id(node) in self._mappings:
            return self._mappings[id(node)]
        own: Entries = {}
        merged: Entries = {}
        self._mappings[id(node)] = own  # for a merge that leads back here
        for key_node, value_node in node.value:
            if tag(key_node) == "merge":
                for base in self._bases(value_node):
                    merged = {**self._entries(base, what), **merged}
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
        self._mappings[id(node)] = {**merged, **own}
        return self._mappings[id(node)]

    def _bases(self, node: Node) -> list[MappingNode]:
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        bases = [base for base in nodes if isinstance(base, MappingNode)]
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
                node, f"{what}: expected one value, got {describe_node(node)}", _one_value_remedy(what)
            )
            return None
        if tag(node) not in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge"):
            self.problem(node, f"{what}: the tag !{tag(node).lstrip('!')} is not supported", "delete the tag")
            return None
        found = scalar(node)
        if found is None:
            self.problem(node, f"{what} has no value", "write one, or '' for an empty text")
        elif isinstance(found, str) and not _passable(found):
            self.problem(
                node, f"{what}: no command line can carry this text", "take out \\0 and lone surrogates"
            )
            return None
        elif not (isinstance(found, bool) and what.rpartition(".")[2] in self.flags):
            told = hint_of(node)
            self.hints += [self._at(node, f"{what}: {told[0]}", told[1])] if told else []
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
                node, f"{what} '{name}': a name has only letters, digits, _ and -", _name_remedy(name)
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


def _name_remedy(name: str) -> str:
    if re.fullmatch(r"[\d.eE+-]+", name):
        return "a list needs brackets: [0.1, 0.2]"
    last = re.sub(r"[^\w-]+", "-", name.rpartition(".")[2]).strip("-_") or "x"
    return (
        f"name it `{last}`, and write `{name}={{{last}}}` in the command" if "." in name else f"write {last}"
    )


def _one_value_remedy(what: str) -> str:
    if what.startswith("default."):
        return "lists and ranges belong in a sweep, below a line of ---"
    return "quote it to pass it as one text: '0.9 0.98'"


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
    example: str = ""
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


def simple(expects: str, example: str, convert: Callable[[Value, str], T | None]) -> Kind[T]:
    """A kind for one scalar; `convert` gets the value and its text, and returns None if it is wrong."""

    def read(reader: Reader, node: Node, what: str) -> T | None:
        found = scalar(node) if isinstance(node, ScalarNode) else None
        converted = None if found is None else convert(found, str(node.value))
        if converted is None:
            remedy = f"for example `{what.rpartition('.')[2]}: {example}`"
            reader.problem(node, f"{what}: expected {expects}, got {describe_node(node)}", remedy)
        return converted

    return Kind(expects, read, example)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


TEXT: Kind[str] = simple("text", "a text", lambda value, raw: raw if raw and _passable(raw) else None)
ANY_TEXT: Kind[str] = simple("one value", "a text", lambda value, raw: raw if _passable(raw) else None)
FLAG: Kind[bool] = simple(
    "true or false", "true", lambda value, raw: value if isinstance(value, bool) else None
)


def whole(least: int, most: int = 10**12) -> Kind[int]:
    """An integer."""

    def convert(value: Value, raw: str) -> int | None:
        if isinstance(value, Spelled) and value.is_integer():
            value = int(value)
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return int(value) if fits else None

    upper = f"{least} or more" if most == 10**12 else f"{least} to {most:,}"
    return simple(f"a whole number, {upper}", str(max(least, 3)), convert)


def number(above: float) -> Kind[float]:
    """A number greater than `above`."""
    return simple(
        f"a number above {above:g}",
        "2.5",
        lambda value, raw: float(value) if _is_number(value) and float(value) > above else None,
    )


def one_of(*words: str) -> Kind[str]:
    """One of a few words; `true` and `false` may be among them."""

    def read(reader: Reader, node: Node, what: str) -> str | None:
        raw = str(node.value) if isinstance(node, ScalarNode) else ""
        raw = raw.lower() if isinstance(node, ScalarNode) and tag(node) == "bool" else raw
        if raw not in words:
            remedy = suggest(raw, words) or f"for example `{what.rpartition('.')[2]}: {words[0]}`"
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


DURATION: Kind[float] = simple(
    "a time such as 90s, 20m or 1h30m", "20m", lambda value, raw: parse_duration(raw)
)


def list_of(kind: Kind[T], may_be_empty: bool = True) -> Kind[tuple[T, ...]]:
    """A list; brackets may be left out for one value."""

    def read(reader: Reader, node: Node, what: str) -> tuple[T, ...] | None:
        if not may_be_empty and not reader.items(node):
            reader.problem(node, f"{what}: the list is empty", f"it takes {kind.expects}; or delete the line")
        found = [kind.read(reader, item, what) for item in reader.items(node)]
        return tuple(item for item in found if item is not None)

    return Kind(f"{kind.expects}, or a list", read, kind.example, kind.fields)


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
        unknown = [key for key in entries if key not in by_name]
        for key in unknown:
            reader.unknown(entries[key][0], f"key in {what}:", by_name)
        if isinstance(node, MappingNode):
            for field in fields:
                if field.required and field.name not in entries and not suggest(field.name, unknown):
                    remedy = f"add `{field.name}: …`, which is {field.kind.expects}"
                    reader.problem(node, f"{what}: '{field.name}' is missing", remedy)
        return {key: value for key, value in found.items() if value is not None}

    return Kind("a mapping", read, fields=fields)


def either(first: Kind[object], word: str) -> Kind[object]:
    """`word`, or what the kind expects."""

    def read(reader: Reader, node: Node, what: str) -> object | None:
        if isinstance(node, ScalarNode) and node.value == word:
            return word
        return first.read(reader, node, what)

    return Kind(f"{word}, or {first.expects}", read)
