"""Lightning: progress from what a module logs, checkpoints that the manager writes, and an exact resume.

    callback = StokerCallback(manager)
    trainer = Trainer(max_epochs=10, callbacks=[callback])
    trainer.fit(model, data, ckpt_path=callback.ckpt_path)
"""

from __future__ import annotations

import os
import sys

import fsspec  # Lightning needs it as well

from stoker.manager.callbacks import Lazy, add_numbers

if "pytorch_lightning" in sys.modules:  # two packages with the same classes, which do not mix
    from pytorch_lightning.callbacks import Checkpoint
else:
    from lightning.pytorch.callbacks import Checkpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.manager.manager import Manager

_MEMORY = "memory://stoker/last.ckpt"


class StokerCallback(Checkpoint):
    """Takes the place of ModelCheckpoint: Lightning's own checkpoint is saved by the manager, after each epoch.

    In memory first, so that training goes on while it is written. What Lightning cannot go on from exactly, the
    middle of an epoch, is not saved.
    """

    def __init__(self, manager: Manager) -> None:
        super().__init__()
        self._manager = manager
        self._trainer: Any = None
        self.ckpt_path: str | None = None
        """For `fit(ckpt_path=...)`: None on a fresh start."""
        manager.track(lightning=Lazy(self._tell, self._take))

    def _tell(self) -> dict[str, Any]:
        self._trainer.save_checkpoint(_MEMORY)
        files, path = fsspec.core.url_to_fs(_MEMORY)
        return {"checkpoint": files.cat_file(path) if files.exists(path) else b""}  # only rank 0 has it

    def _take(self, state: dict[str, Any]) -> None:
        os.makedirs(self._manager.directory, exist_ok=True)
        self.ckpt_path = os.path.join(self._manager.directory, "resume.ckpt")
        with open(self.ckpt_path, "wb") as file:
            file.write(state["checkpoint"])

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Random numbers go on where they were, too: before data is first asked for a batch."""
        self._trainer = trainer
        if hasattr(trainer.fit_loop, "is_resuming"):
            self._manager.start_epoch()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Before 2.6, Lightning asked a second time, after this."""
        self._manager.start_epoch()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """All that was logged in this epoch is known here: validation comes before."""
        add_numbers(self._manager, trainer.callback_metrics)
        self._manager.add_progress("epochs", trainer.current_epoch)
        has_goal = self._manager._goal is not None
        self._manager.save_progress(best_params=pl_module.state_dict() if has_goal else None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Lightning hears SIGTERM as well and exits with 0 between two batches: that would look like success."""
        self._manager._leave_if_asked()
