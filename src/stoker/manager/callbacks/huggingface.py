"""Hugging Face's Trainer: progress from its logs, and its own checkpoints, paired with the manager's.

    callback = StokerCallback(manager)
    arguments = TrainingArguments(output_dir=manager.directory, save_strategy="epoch", ...)
    trainer = Trainer(model, arguments, callbacks=[callback], ...)
    trainer.train(resume_from_checkpoint=callback.checkpoint)

The whole script is in docs/recipes.md.
"""

from __future__ import annotations

import os
from pathlib import Path

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from stoker.manager.callbacks import add_numbers, save_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.manager.manager import Manager


class StokerCallback(TrainerCallback):
    """When to save is said in TrainingArguments; a trial that is asked to stop also saves after that step."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._saved: dict[str, Any] = {}
        manager.track(huggingface=self._saved)

    @property
    def checkpoint(self) -> str | None:
        """For `train(resume_from_checkpoint=...)`: None on a fresh start."""
        if not self._saved:
            return None
        path = Path(self._manager.directory, self._saved["checkpoint"])
        if not path.is_dir():
            raise FileNotFoundError(
                f"{path} is gone; the Trainer's last two checkpoints must stay where they are"
            )
        return str(path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Mistakes that would show only after a preemption."""
        if Path(self._manager.directory).resolve() not in (Path(args.output_dir) / "x").resolve().parents:
            raise ValueError(
                f"output_dir is {args.output_dir}, which does not follow the trial to another machine: "
                "make it manager.directory, or a directory in it"
            )
        if args.save_total_limit == 1:
            raise ValueError(
                "save_total_limit is 1: a machine that is lost while checkpoints are exchanged leaves none; "
                "make it 2 or more"
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """What is logged is progress, but for times, which differ from run to run."""
        if "train_runtime" in logs:
            return  # the summary, which counts only what ran since the last start
        found = {
            name: value for name, value in logs.items() if not name.endswith(("_runtime", "_per_second"))
        }
        add_numbers(self._manager, found, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
        """A trial that is to stop saves now, which ends it: see `on_save`."""
        if self._manager.should_stop():
            control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The Trainer's checkpoint is on the disk: from now on it is the one to go on from."""
        path = Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        self._saved["checkpoint"] = os.path.relpath(path, self._manager.directory)
        save_now(self._manager)
