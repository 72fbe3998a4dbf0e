"""The manager's page has all its names, as they are in the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from stoker import EarlyStopping, Manager, TestManager
from tests.callbacks.conftest import ROOT

PAGE = (ROOT / "docs/manager.md").read_text("utf-8")


def call(name: str, function: Any) -> str:
    """`name(argument, argument=default)`, without types."""
    arguments = [
        argument.replace(annotation=inspect.Parameter.empty)
        for argument in inspect.signature(function).parameters.values()
        if argument.name != "self"
    ]
    return name + str(inspect.Signature(arguments))


def names() -> Iterator[str]:
    for name, member in inspect.getmembers(Manager):
        if name.startswith("_") or name == "create_manager":
            continue
        yield call(name, member) if callable(member) else name
    yield call("Manager.create_manager", Manager.create_manager)
    yield call("TestManager.create_manager", TestManager.create_manager)
    yield call("EarlyStopping", EarlyStopping)


@pytest.mark.parametrize("name", list(names()))
def test_every_name_is_there_with_its_arguments(name: str) -> None:
    assert f"`{name}`" in PAGE
