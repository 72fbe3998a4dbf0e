"""How long training waits for a checkpoint of 500 MB: against torch.save and against copying it.

A model as tensors of a few sizes. `torch.save` writes to the same disk, with and without fsync; the copy goes
into tensors that are there already. Rounds take turns. The first checkpoint stands alone: its memory is new.
`python benchmarks/checkpoints.py DIRECTORY` writes to the file system of that directory.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker.manager.manager import Manager
from stoker.manager.trial import Trial

MEGABYTES, ROUNDS = 500, 5


class Model:
    """Tensors of a network: few large ones and many small ones."""

    def __init__(self) -> None:
        import torch

        sizes = [1000 * 1000 * 4] * 20 + [250 * 1000] * 160 + [1000] * 400
        whole = MEGABYTES * 1000 * 1000 // 4
        sizes.append(whole - sum(sizes))
        self.state = {f"layers.{place}.weight": torch.rand(size) for place, size in enumerate(sizes)}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def timed(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def main() -> None:
    import torch

    around = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())
    with tempfile.TemporaryDirectory(dir=around, prefix=".bench-") as scratch:
        place = Path(scratch)
        model = Model()
        manager = Manager(Trial({}, str(place / "trial")), save_every=1)
        manager.track(model=model)
        threads = torch.get_num_threads()
        copy = {name: torch.empty_like(tensor) for name, tensor in model.state.items()}

        def copy_all() -> None:
            torch.set_num_threads(1)  # where others have the cores too, more of them take longer
            for name, tensor in model.state.items():
                copy[name].copy_(tensor)
            torch.set_num_threads(threads)

        def save() -> None:
            torch.save(model.state, place / "model.pt")

        def save_surely() -> None:
            save()
            file = os.open(place / "model.pt", os.O_RDONLY)
            os.fsync(file)
            os.close(file)

        work: dict[str, Callable[[], None]] = {
            "copy into a buffer that is there": copy_all,
            "save_progress, tracked": manager.save_progress,
            "save_progress(params)": lambda: manager.save_progress(model.state),
            "torch.save": save,
            "torch.save and fsync": save_surely,
        }
        first = timed(manager.save_progress)
        manager._saver.wait()
        taken: dict[str, list[float]] = {name: [] for name in work}
        written: list[float] = []
        for _ in range(ROUNDS):
            for name, act in work.items():
                taken[name].append(timed(act))
                if "progress" in name:
                    written.append(timed(manager._saver.wait))
        manager._close()
    base = statistics.median(taken["save_progress, tracked"])
    print(f"{MEGABYTES} MB of tensors, saved in {around}; how long training waits")
    for name, seconds in taken.items():
        middle = statistics.median(seconds)
        print(f"  {middle / base:6.2f} ×  {middle:7.3f} s  {name}")
    print(f"  {first / base:6.2f} ×  {first:7.3f} s  the first save_progress")
    print(f"  {statistics.median(written):7.3f} s more until it is written, while training goes on")


if __name__ == "__main__":
    main()
