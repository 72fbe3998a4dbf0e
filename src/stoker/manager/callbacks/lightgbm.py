"""LightGBM: `train` as LightGBM has it, which goes on where the trial was.

    booster = train(manager, params, data, 200, valid_sets=[valid], valid_names=["valid"])

The whole script is in docs/recipes.md.
"""

from __future__ import annotations

import lightgbm

from stoker.manager.callbacks import Rounds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.manager.manager import Manager


class StokerCallback(Rounds):
    """Progress and checkpoints after each round; `booster` and `done` tell what there is already."""

    order = 25  # after those that log, before the one that stops early

    @property
    def done(self) -> int:
        """How many rounds there are: so many less are to be trained."""
        return 0 if self.booster is None else int(self.booster.current_iteration())

    def _dump(self, booster: Any) -> str:
        return str(booster.model_to_string(num_iteration=-1))

    def _load(self, model: Any) -> Any:
        return lightgbm.Booster(model_str=model)

    def __call__(self, env: Any) -> None:
        """Progress is named by data and metric: valid-l2."""
        self.booster = env.model
        for data, metric, value, *_ in env.evaluation_result_list or ():
            self._manager.add_progress(f"{data}-{metric}", value)
        self._manager.save_progress()


def train(manager: Manager, params: Any, train_set: Any, num_boost_round: int = 100, **more: Any) -> Any:
    """`lightgbm.train`, of which only the rounds that are left run."""
    callback = StokerCallback(manager)
    callbacks = [*(more.pop("callbacks", None) or []), callback]
    left = num_boost_round - callback.done
    if left <= 0:
        return callback.booster
    return lightgbm.train(params, train_set, left, init_model=callback.booster, callbacks=callbacks, **more)
