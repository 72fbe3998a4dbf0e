"""Which engines a study has used, and what each of them has to know of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker.core.errors import StokerError
from stoker.core.times import stamp
from stoker.engines import make_engine
from stoker.engines.interface import Engine, Placed, Site
from stoker.spec.study import Study
from stoker.store import records
from stoker.study.opened import Opened


def site_of(study: Study, store: str, directory: str, name: str, engine: str) -> Site:
    """A study, with the settings that its file has for an engine."""
    settings: Any = study.settings.get("engine")
    section = settings.get(engine) if isinstance(settings, dict) else None
    path = store if "://" in store else str(Path(store).absolute())
    return Site(name, path, directory, section)


def engine_of(opened: Opened, engine: str) -> Engine:
    """An engine for a study that has been planned. Raises UsageError if it cannot be used here."""
    planned = opened.work.planned(opened.state.iterations[-1])
    directory = planned.directory or os.getcwd()  # noqa: PTH109  (as it is called there)
    return make_engine(engine, site_of(opened.study, opened.place.url, directory, opened.name, engine))


def note_engine(opened: Opened, engine: str) -> None:
    """Keep that an engine was used, so that others know whom to ask, and what to remove."""
    body = records.encode({"engine": engine, "time": stamp()})
    opened.place.store.create(records.engine_key(engine), body)


def used_engines(opened: Opened) -> Iterator[str]:
    """The engines that were used beyond this machine."""
    for entry in opened.place.store.list(records.ENGINES):
        yield entry.key.removeprefix(records.ENGINES)


def list_placed(opened: Opened) -> Iterator[tuple[str, list[Placed] | str]]:
    """What each engine has placed, or why it cannot tell."""
    for name in used_engines(opened):
        try:
            yield name, list(engine_of(opened, name).list())
        except StokerError as error:
            yield name, str(error)
