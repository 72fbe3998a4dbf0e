"""Keras 3: variables of the model and of its optimizer, and an exact resume.

    callback = StokerCallback(manager)
    model.fit(x, y, epochs=10, initial_epoch=callback.initial_epoch, callbacks=[callback])

The whole script is in docs/recipes.md.
"""

from __future__ import annotations

import keras

from stoker.manager.callbacks import Lazy, add_numbers, leave_if_late
from stoker.manager.state import random_state, restore_random_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.manager.manager import Manager


class StokerCallback(keras.callbacks.Callback):
    """Saves after each epoch what a model consists of, the seeds of its layers and its optimizer included."""

    def __init__(self, manager: Manager) -> None:
        super().__init__()
        self._manager = manager
        self.initial_epoch = manager.start_epoch()
        """For `fit(initial_epoch=...)`."""
        self._random = random_state() if manager.is_resumed else None

    def on_train_begin(self, logs: Any = None) -> None:
        """Only now there is something to load into: a model may get its shape from the first batch."""
        model, optimizer = self.model, self.model.optimizer
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self._manager.track(model=_variables(model), optimizer=_variables(optimizer))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Building the model took random numbers: the first epoch gets those that came next."""
        if self._random is not None:
            restore_random_state(self._random)
            self._random = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """An epoch may take longer than there is time to stop."""
        leave_if_late(self._manager)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Progress, and a checkpoint if it is time."""
        add_numbers(self._manager, logs or {})
        self._manager.add_progress("epochs", epoch)
        self._manager.save_progress()


def _variables(owner: Any) -> Lazy:
    """A model or an optimizer as arrays, in its order: names of variables may differ from run to run."""

    def tell() -> list[Any]:
        return [keras.ops.convert_to_numpy(variable.value) for variable in owner.variables]

    def take(state: list[Any]) -> None:
        if len(state) != len(owner.variables):
            raise ValueError(
                f"the checkpoint has {len(state)} variables of the {type(owner).__name__}, and this one has "
                f"{len(owner.variables)}: was the script changed?"
            )
        for place, variable in enumerate(owner.variables):
            variable.assign(state[place])

    return Lazy(tell, take)
