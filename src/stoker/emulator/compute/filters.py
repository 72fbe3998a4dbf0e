"""The language of `filter=`: `name = vm-1`, `(status = RUNNING) AND labels.owner:*`, `name eq "vm-.*"`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stoker.emulator.errors import invalid

Test = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<sign>!=|<=|>=|=|<|>|:|\(|\))|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'"""
    r"""|(?P<word>[^\s()"'=<>!:]+))"""
)
_SIGNS = ("=", "!=", "<", "<=", ">", ">=", ":", "eq", "ne")


def parse(text: str) -> Test:
    """A test of one resource. Raises ApiError for what is no filter."""
    if not text.strip():
        return lambda resource: True
    tokens = _tokens(text)
    try:
        test = _any_of(tokens)
    except IndexError:
        raise invalid(
            f"Invalid value for field 'filter': '{text}'. Invalid list filter expression."
        ) from None
    if tokens:
        raise invalid(f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.")
    return test


Token = tuple[str, str]  # what it is, its text


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise invalid(f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.")
        kind = str(match.lastgroup)
        word = match.group(kind)
        found.append((kind, re.sub(r"\\([\"'])", r"\1", word)))  # patterns keep their backslashes
        at = match.end()
    return found


def _any_of(tokens: list[Token]) -> Test:
    tests = [_all_of(tokens)]
    while tokens and tokens[0] == ("word", "OR"):
        tokens.pop(0)
        tests.append(_all_of(tokens))
    return lambda resource: any(test(resource) for test in tests)


def _all_of(tokens: list[Token]) -> Test:
    tests = [_one(tokens)]
    while tokens and tokens[0] not in (("word", "OR"), ("sign", ")")):
        if tokens[0] == ("word", "AND"):
            tokens.pop(0)
        tests.append(_one(tokens))
    return lambda resource: all(test(resource) for test in tests)


def _one(tokens: list[Token]) -> Test:
    kind, word = tokens.pop(0)
    if (kind, word) == ("word", "NOT"):
        test = _one(tokens)
        return lambda resource: not test(resource)
    if (kind, word) == ("sign", "("):
        inner = _any_of(tokens)
        if tokens.pop(0) != ("sign", ")"):
            raise IndexError
        return inner
    sign = tokens.pop(0)[1]
    if kind == "sign" or sign not in _SIGNS:
        raise IndexError
    return _comparison(word, sign, tokens.pop(0)[1])


def _comparison(field: str, sign: str, wanted: str) -> Test:
    if sign in ("!=", "ne"):
        equal = _comparison(field, "=" if sign == "!=" else "eq", wanted)
        return lambda resource: not equal(resource)

    if sign == "eq":
        _check_pattern(wanted)

    def test(resource: Mapping[str, Any]) -> bool:
        return any(_holds(value, sign, wanted) for value in _values(resource, field.split(".")))

    return test


def _check_pattern(text: str) -> None:
    try:
        re.compile(text)
    except re.error:
        raise invalid(f"Invalid value for field 'filter': '{text}' is no regular expression.") from None


def _values(data: Any, path: list[str]) -> Iterator[Any]:
    """All values at a path; each of a list counts."""
    if isinstance(data, list):
        for one in data:
            yield from _values(one, path)
    elif not path:
        yield data
    elif isinstance(data, Mapping) and path[0] in data:
        yield from _values(data[path[0]], path[1:])


def _holds(value: Any, sign: str, wanted: str) -> bool:
    if isinstance(value, bool):
        value = str(value).lower()
        wanted = wanted.lower()
    text = str(value)
    if sign == "eq":
        return re.fullmatch(wanted, text) is not None
    if sign == "=":
        return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), text) is not None
    if sign == ":":
        return wanted == "*" or wanted.strip("*").lower() in text.lower()
    return _is_in_order(value, sign, wanted)


def _is_in_order(value: Any, sign: str, wanted: str) -> bool:
    try:
        left, right = float(value), float(wanted)
    except ValueError:
        return _ordered(str(value), sign, wanted)
    return _ordered(left, sign, right)


def _ordered(left: Any, sign: str, right: Any) -> bool:
    return bool(
        (left == right and sign in ("<=", ">="))
        or (left < right and sign in ("<", "<="))
        or (left > right and sign in (">", ">="))
    )
