"""scikit-learn: estimators that learn piece by piece, with `partial_fit`.

    manager.track(model=Fitted(model))
    for epoch in manager.epochs(10):
        model.partial_fit(x, y, classes=classes)

The whole script is in docs/recipes.md.
"""

from __future__ import annotations

import sys

import numpy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MADE_ANEW = ("_loss_function_", "loss_function_")
"""What `partial_fit` of linear models makes by itself, each time."""


class Fitted:
    """What an estimator has learned, as plain data: coefficients, counts, steps, generators, optimizers."""

    def __init__(self, estimator: Any) -> None:
        if not hasattr(estimator, "partial_fit"):
            raise TypeError(
                f"{type(estimator).__name__} has no partial_fit: it learns in one go, and cannot go on"
            )
        self._estimator = estimator

    def state_dict(self) -> dict[str, Any]:
        """Everything but its parameters, which the script sets; of those only a generator, which goes on."""
        left_out = {*self._estimator.get_params(deep=False), *_MADE_ANEW}
        try:
            return {
                name: _plain(value)
                for name, value in vars(self._estimator).items()
                if name not in left_out or isinstance(value, numpy.random.RandomState)
            }
        except RecursionError:
            kind = type(self._estimator).__name__
            raise TypeError(f"{kind} keeps things that lead back to themselves: it cannot be saved") from None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As it was."""
        own = vars(self._estimator)
        for name, value in state.items():
            found = _restored(value)
            if isinstance(own.get(name), numpy.random.RandomState):  # others may draw from it, too
                own[name].set_state(found.get_state())
            else:
                own[name] = found


def _plain(value: Any) -> Any:
    if isinstance(value, numpy.random.RandomState):
        return {"random": value.get_state()}
    if isinstance(value, numpy.ndarray) and value.dtype.hasobject:  # names of features
        return {"objects": value.tolist()}
    if _is_of_sklearn(type(value)) and hasattr(value, "__dict__"):  # an optimizer, an encoder of labels
        kind = type(value)
        own = {name: _plain(one) for name, one in vars(value).items()}
        return {"class": [kind.__module__, kind.__qualname__], "own": own}
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"random"}:
        generator = numpy.random.RandomState()
        generator.set_state(value["random"])
        return generator
    if isinstance(value, dict) and set(value) == {"objects"}:
        return numpy.array(value["objects"], dtype=object)
    if isinstance(value, dict) and set(value) == {"class", "own"}:
        module, name = value["class"]
        kind = getattr(sys.modules.get(module), name, None)  # nothing is imported because a file says so
        if not isinstance(kind, type) or not _is_of_sklearn(kind):
            raise TypeError(f"{module}.{name} is no class of scikit-learn that this script uses")
        made: Any = object.__new__(kind)
        vars(made).update((name, _restored(one)) for name, one in value["own"].items())
        return made
    return value


def _is_of_sklearn(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "sklearn"
