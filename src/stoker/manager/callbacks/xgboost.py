"""XGBoost: `train` as XGBoost has it, which goes on where the trial was.

    booster = train(manager, params, matrix, 200, evals=[(valid, "valid")])

The whole script is in docs/recipes.md.
"""

from __future__ import annotations

import xgboost

from stoker.manager.callbacks import Rounds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.manager.manager import Manager


class StokerCallback(Rounds, xgboost.callback.TrainingCallback):
    """Progress and checkpoints after each round; `booster` and `done` tell what there is already."""

    @property
    def done(self) -> int:
        """How many rounds there are: so many less are to be trained."""
        return 0 if self.booster is None else int(self.booster.num_boosted_rounds())

    def _dump(self, booster: Any) -> bytes:
        return bytes(booster.save_raw("ubj"))

    def _load(self, model: Any) -> Any:
        return xgboost.Booster(model_file=bytearray(model))

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Progress is named as XGBoost prints it: valid-rmse."""
        self.booster = model
        for data, metrics in evals_log.items():
            for metric, values in metrics.items():
                value = values[-1]
                self._manager.add_progress(
                    f"{data}-{metric}", value[0] if isinstance(value, tuple) else value
                )
        self._manager.save_progress()
        return False


def train(manager: Manager, params: Any, dtrain: Any, num_boost_round: int = 10, **more: Any) -> Any:
    """`xgboost.train`, of which only the rounds that are left run."""
    callback = StokerCallback(manager)
    callbacks = [*(more.pop("callbacks", None) or []), callback]
    left = max(num_boost_round - callback.done, 0)
    return xgboost.train(params, dtrain, left, xgb_model=callback.booster, callbacks=callbacks, **more)
