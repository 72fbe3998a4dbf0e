"""What a training is made of: objects that tell and take their state, and the random numbers to come."""

from __future__ import annotations

import random
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

_WAYS = (
    ("state_dict", "load_state_dict"),  # torch's modules, optimizers, schedulers; samplers that can
    ("get_state", "set_state"),  # torch.Generator, numpy.random.RandomState
    ("getstate", "setstate"),  # random.Random
    ("get_weights", "set_weights"),  # Keras
)


def is_trackable(thing: Any) -> bool:
    """Whether its state can be saved and loaded."""
    return _way(thing) is not None or hasattr(thing, "bit_generator") or isinstance(thing, dict)


def is_random(thing: Any) -> bool:
    """Whether it makes random numbers, and has nothing else for a state."""
    return hasattr(thing, "bit_generator") or _way(thing) in _WAYS[1:3]


def state_of(thing: Any) -> Any:
    """The state of an object, as plain data that may share memory with it."""
    if isinstance(thing, dict):
        return dict(thing)
    if hasattr(thing, "bit_generator"):  # numpy.random.Generator
        return thing.bit_generator.state
    tell, _ = _way(thing) or ("state_dict", "")
    return getattr(thing, tell)()


def load_into(thing: Any, state: Any) -> None:
    """Let an object be as it was."""
    if isinstance(thing, dict):
        thing.clear()
        thing.update(state)
    elif hasattr(thing, "bit_generator"):
        thing.bit_generator.state = state
    else:
        _, take = _way(thing) or ("", "load_state_dict")
        getattr(thing, take)(state)


def _way(thing: Any) -> tuple[str, str] | None:
    for tell, take in _WAYS:
        if callable(getattr(thing, tell, None)) and callable(getattr(thing, take, None)):
            return tell, take
    return None


def random_state() -> dict[str, Any]:
    """Of Python's, numpy's and torch's global random numbers, as far as they are in use."""
    found: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = _loaded("numpy.random"), _loaded("torch")
    if numpy is not None:
        found["numpy"] = numpy.get_state()
    if torch is not None:
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def restore_random_state(state: Mapping[str, Any]) -> None:
    """The same random numbers come again, of those libraries that are loaded."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    numpy, torch = _loaded("numpy.random"), _loaded("torch")
    if numpy is not None and "numpy" in state:
        numpy.set_state(state["numpy"])
    if torch is not None and "torch" in state:
        torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])


def _loaded(name: str) -> Any:
    """A library, if the script has imported it: importing it here would take seconds."""
    return sys.modules.get(name)
