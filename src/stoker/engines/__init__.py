"""Ways to place agents. An engine never schedules trials: agents pull them from the store."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from stoker.core.errors import UsageError

if TYPE_CHECKING:
    from stoker.engines.interface import Engine, Make, Site

GROUP = "stoker.engines"
_OWN = {
    "local": "stoker.engines.local:Local",
    "slurm": "stoker.engines.slurm:Slurm",
}


def engines() -> Mapping[str, EntryPoint]:
    """All engines by name: Stoker's, and what other packages offer."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    return {**found, **{name: EntryPoint(name, target, GROUP) for name, target in _OWN.items()}}


def make_engine(name: str, site: Site) -> Engine:
    """An engine for a study. Raises UsageError for one that is not known, or that cannot be used here."""
    known = engines()
    if name not in known:
        raise UsageError(f"--on {name}: there is no such engine; there are: {', '.join(sorted(known))}")
    make: Make = known[name].load()
    return make(site)
