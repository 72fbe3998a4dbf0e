"""Lightning: progress from what a module logs, checkpoints that the manager writes, and an exact resume.

    callback = StokerCallback(manager)
    trainer = Trainer(max_epochs=10, callbacks=[callback])
    trainer.fit(model, data, ckpt_path=callback.ckpt_path)

The whole script is in docs/recipes.md.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import torch

from stoker.manager.callbacks import Lazy, add_numbers

if "pytorch_lightning" in sys.modules:  # two packages with the same classes, which do not mix
    from pytorch_lightning.callbacks import Checkpoint
else:
    from lightning.pytorch.callbacks import Checkpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.manager.manager import Manager

_SHARDED = ("DeepSpeed", "FSDP", "ModelParallel")


class StokerCallback(Checkpoint):
    """Takes the place of ModelCheckpoint: the manager saves Lightning's own checkpoint after each epoch.

    It is made in memory, so that training goes on while it is written. Nothing is saved in the middle of an
    epoch: Lightning could not go on from there exactly.
    """

    def __init__(self, manager: Manager) -> None:
        super().__init__()
        self._manager = manager
        self._trainer: Any = None
        self._place: Any = None  # a directory that has the checkpoint to go on from, until it is loaded
        self.ckpt_path: str | None = None
        """For `fit(ckpt_path=...)`: None on a fresh start."""
        manager.track(lightning=Lazy(self._tell, self._take))

    def _tell(self) -> dict[str, Any]:
        """As `trainer.save_checkpoint`, which would wait for processes that do not save."""
        file = io.BytesIO()
        torch.save(self._trainer._checkpoint_connector.dump_checkpoint(False), file)
        return {"checkpoint": file.getvalue()}

    def _take(self, state: dict[str, Any]) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="stoker-")
        path = Path(self._place.name, "resume.ckpt")
        path.write_bytes(state["checkpoint"])
        self.ckpt_path = str(path)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Random numbers go on where they were, too: before data is first asked for a batch."""
        strategy = type(trainer.strategy).__name__
        if strategy.startswith(_SHARDED):
            raise ValueError(f"{strategy} has parts of a model in each process: use ModelCheckpoint for it")
        self._trainer = trainer
        if hasattr(trainer.fit_loop, "is_resuming"):
            self._manager.start_epoch()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Before 2.6, Lightning asked a second time, after this."""
        self._manager.start_epoch()
        if self._place is not None:
            self._place.cleanup()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """All that was logged in this epoch is known here: validation comes before."""
        add_numbers(self._manager, trainer.callback_metrics)
        self._manager.add_progress("epochs", trainer.current_epoch)
        has_goal = self._manager._goal is not None
        self._manager.save_progress(best_params=pl_module.state_dict() if has_goal else None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Lightning hears SIGTERM, too, and exits with 0 after the batch: that would look like success."""
        self._manager._leave_if_asked()
