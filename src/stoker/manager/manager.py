"""The manager: what a training script holds."""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
import time
import weakref

from stoker.manager import saver as saving
from stoker.manager import tree
from stoker.manager.pace import Pace
from stoker.manager.progress import Progress
from stoker.manager.saver import Job, Saver
from stoker.manager.state import (
    is_random,
    is_trackable,
    load_into,
    random_state,
    restore_random_state,
    state_of,
)
from stoker.manager.stopping import GRACE, Stopped, signals
from stoker.manager.trial import OUTSIDE, Trial, files, from_environment, is_told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, Mapping

EPOCHS = "epochs"
"""The series that says which epochs are done."""


class Manager:
    """Parameters, progress and checkpoints of the trial that this process runs.

    Make it with `Manager.create_manager()`. All of it can be used in a study and outside of one.
    """

    def __init__(self, trial: Trial, save_every: int | str = "auto", allow_pickle: bool = False) -> None:
        self._own_goal: tuple[str, str] | None = None  # what the script says
        self._defaults: dict[str, Any] = {}  # of parameters
        self._set_up(trial, save_every, allow_pickle)
        if hasattr(os, "register_at_fork"):
            itself = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _in_child(itself))
        atexit.register(_at_exit, weakref.ref(self))

    def _set_up(self, trial: Trial, save_every: int | str, allow_pickle: bool) -> None:
        self._trial, self._save_every, self._allow_pickle = trial, save_every, allow_pickle
        signals.listen()
        self._lock = _lock(trial) if _is_first() else None
        self._writes = self._lock is not None
        if _is_first() and not self._writes:
            self._complain("another process records this trial already: this one only reads")
        self._progress = Progress(trial, self._writes)
        self._add = self._progress.add
        self._saver = Saver(trial, self._complain)
        self._pace = Pace(save_every)
        self._buffer, self._params_buffer, self._best_buffer = tree.Buffer(), tree.Buffer(), tree.Buffer()
        self._tracked: dict[str, Any] = {}
        self._goal = trial.objective or self._own_goal
        self._best: tuple[int, float] | None = None  # place in the series, and value
        self._looked = 0  # so much of the series was looked at
        self._new_best: Callable[[str], None] | None = None  # writes a best that is not in a checkpoint yet
        self._data: dict[str, Any] | None = None  # the position in the data, within an epoch
        self._begin: dict[str, Any] | None = None  # random numbers at the begin of the epoch
        self._epoch: int | None = None  # the last that is done, if `epochs` counts
        self._passes = 0  # loops over the data that are done
        self._is_past_data = False  # the epoch's loop over the data is over
        self._was_told = False  # that it is to stop
        self.notes: dict[str, Any] = {}
        self._is_finished = self._is_closed = False
        self._found = saving.newest(trial, allow_pickle, self._complain)
        self._state: dict[str, Any] = {}
        if self._found is not None:
            self._go_on(self._found)

    # Making

    @classmethod
    def create_manager(
        cls,
        hyparams: Mapping[str, Any] | None = None,
        save_every: int | str = "auto",
        allow_pickle: bool = False,
    ) -> Manager:
        """The manager of the trial that this process runs.

        `hyparams` are values for parameters that the study does not set, and outside a study all there are.
        `save_every` is "auto", a number of saves asked for, or a time such as "30s". With `allow_pickle`
        anything can be saved, and whoever can write to the store can run code here.
        """
        every = os.environ.get("STOKER_SAVE_EVERY") or save_every
        every = int(every) if isinstance(every, str) and every.isdigit() else every
        trial = from_environment(os.environ) if is_told(os.environ) else Trial({}, os.path.abspath(OUTSIDE))
        made = next((one for one in list(_made) if one._runs(trial)), None)
        if made is None and not trial.is_in_study:
            trial = _outside(trial)
        made = made or cls(trial, every, allow_pickle)
        made._defaults.update(hyparams or {})
        _made.add(made)
        return made

    def _runs(self, trial: Trial) -> bool:
        """Whether it has this trial already: two that write the same files would spoil them."""
        if self._is_closed or self._trial.directory != trial.directory:
            return False
        if trial.is_in_study:
            return (self._trial.stage, self._trial.attempt) == (trial.stage, trial.attempt)
        return not self._is_finished

    def _go_on(self, found: saving.Found) -> None:
        """From a checkpoint of this attempt or an earlier one."""
        self._state = found.state
        self._progress.go_on_after(found.attempt, found.head["counts"])
        self._data = self._state.get("data")
        if self._data is not None:
            self._data.setdefault("now", self._state["random"])
        self.notes.update(self._state.get("notes", {}))
        self._saver.take_over(found.head.get("best"), found.head.get("params"))
        self._passes = int(found.head.get("passes") or 0)

    # What a trial is

    def get_hyparams(self) -> dict[str, Any]:
        """The trial's parameters."""
        return Params({**self._defaults, **self._trial.params}, self._trial.is_in_study)

    def set_compare_goal(self, metric: str, goal: str = "max") -> None:
        """The best model has the highest (or lowest) value of a metric. A study's objective goes first."""
        if goal not in ("max", "min"):
            raise ValueError(f"the goal is 'max' or 'min', not {goal!r}")
        self._own_goal = metric, goal
        if not self._trial.objective:
            self._goal, self._best, self._looked = (metric, goal), None, 0

    @property
    def directory(self) -> str:
        """The trial's directory: what is written here follows the trial to its next machine."""
        return self._trial.directory

    @property
    def is_resumed(self) -> bool:
        """Whether it goes on from a checkpoint."""
        return self._found is not None

    @property
    def params_path(self) -> str | None:
        """The file of what was given to `save_progress` last; None on a fresh start. See `load`."""
        return self._found.part("params") if self._found is not None else None

    @property
    def best_params_path(self) -> str | None:
        """The file of the best parameters so far; None on a fresh start."""
        return self._found.part("best") if self._found is not None else None

    def load(self, path: str) -> Any:
        """What is in a file of parameters. Nothing in it can run code, unless pickles are allowed."""
        try:
            return saving.load_written(path, self._allow_pickle)
        except tree.Unsafe as error:
            raise tree.Unsafe(f"{path} is refused: {error}") from None
        except tree.Damaged as error:
            raise tree.Damaged(f"{path} is damaged: {error}") from None

    # Tracking

    def track(self, **things: Any) -> None:
        """Save and restore these: models, optimizers, schedulers, samplers, generators, dicts.

        What was saved is loaded into them at once.
        """
        for name, thing in things.items():
            if not is_trackable(thing):
                raise TypeError(
                    f"{name} is a {type(thing).__name__}, which has no state_dict; give track something that "
                    "has state_dict and load_state_dict, or a dict"
                )
            self._tracked[name] = thing
            states = self._state.get("objects", {})
            if name in states:
                load_into(thing, states.pop(name))
            elif self._found is not None:
                self._complain(f"the checkpoint has no {name}: it starts afresh")

    def track_model(self, model: Any) -> Any:
        """`track(model=model)`; returns the model."""
        self.track(model=model)
        return model

    # Epochs and data

    def start_epoch(self) -> int:
        """The epoch to begin with: the one after the last that is recorded as `epochs`, else a guess.

        From here on random numbers are those that came after the checkpoint.
        """
        if "random" in self._state:
            now = self._state.pop("random")
            self._restore_random((self._data or {}).get("epoch") or now)
        self._is_past_data = False
        if self._found is None:
            return 0
        head = self._found.head
        if head.get("epoch") is not None:
            return int(head["epoch"]) + 1
        if self._data is not None or self._passes:
            return self._passes
        return max(head["counts"].values(), default=0)

    start_epochs = start_epoch

    def epochs(self, count: int) -> Iterator[int]:
        """`for epoch in manager.epochs(90):` begins where the trial was, records, saves, and finishes it."""
        for epoch in range(self.start_epoch(), count):
            self._begin, self._epoch, self._is_past_data = self._random(), epoch - 1, False
            yield epoch
            self._data, self._epoch = None, epoch
            self._add(EPOCHS, float(epoch), None)
            self.save_progress()
        self.finished()

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """`for batch in manager.batches(loader):` can also stop and go on in the middle of an epoch.

        Sums that the loop keeps over an epoch belong into `manager.notes`, which is saved. A second loop in
        the same epoch, as over the test data, is not gone on from: what came before would be done twice.
        """
        if self._is_past_data:
            yield from self._passed(loader)
            return
        before, self._data = self._data, None
        if before is not None:
            self._restore_random(before["random"])
        data: dict[str, Any] = {"epoch": self._begin, "random": self._random(), "done": 0}
        now = data["random"]
        if before is not None and before["done"]:
            data["done"], now = before["done"], before["now"]
        self._data, is_ready = data, False
        try:
            batches = self._skip(loader, data["done"])
            if data["done"]:
                self._restore_random(now)
            is_ready = True
            while True:
                batch = signals.next(batches, self)
                if batch is self:
                    self._passes += 1
                    break
                data["done"] += 1
                yield batch
                self._save_batch()
        except Exception:
            if signals.asked:  # while it waited for data; workers that load them were asked as well
                if not is_ready:
                    self._restore_random(now)
                self._save_batch()
            raise
        finally:
            self._data, self._is_past_data = None, True

    def _skip(self, loader: Iterable[Any], count: int) -> Iterator[Any]:
        """The batches of a loader after so many, which a loader that is tracked knows by itself."""
        batches = iter(loader)
        if not any(thing is loader for thing in self._tracked.values()):
            for _ in range(count):
                signals.next(batches, None)
        return batches

    def _passed(self, loader: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from loader
        except Exception:
            self._leave_if_asked()  # and so were workers that load data
            raise

    def _save_batch(self) -> None:
        if signals.asked:
            signals.hush()
        if signals.asked or self._pace.is_due(time.monotonic()):
            self._save(None, None)
            self._leave_if_asked()

    def _random(self) -> dict[str, Any]:
        """The random numbers to come, those of generators that are tracked as well."""
        tracked = {name: state_of(thing) for name, thing in self._tracked.items() if is_random(thing)}
        return {**random_state(), "tracked": tracked}

    def _restore_random(self, state: Mapping[str, Any]) -> None:
        restore_random_state(state)
        for name, numbers in state["tracked"].items():
            if name in self._tracked:
                load_into(self._tracked[name], numbers)

    # Progress

    def add_progress(self, name: str, value: Any, step: float | None = None) -> None:
        """Add a value to a series. Cheap: use it freely."""
        if type(value) is not float:
            value = _number(name, value)
        if step is not None:
            step = _step(name, step)
        self._add(name, value, step)
        if signals.asked and self._should_leave_now():
            self._leave_if_asked()

    def get_progress(self) -> dict[str, list[float]]:
        """All series so far, those of earlier attempts included."""
        return {name: list(series.values) for name, series in list(self._progress.series.items())}

    # Saving

    def save_progress(self, params: Any = None, best_params: Any = None) -> None:
        """Save what is tracked, and what is given: anything made of plain data, tensors and arrays.

        Call it where training may go on from, as after an epoch. It saves as often as `save_every` says.
        """
        self._is_past_data = False
        if self._writes:
            self._look_for_best(best_params)
        is_due = self._pace.is_due(time.monotonic()) and not self._saver.is_busy
        if is_due or signals.asked:
            self._save(params, None)
        self._leave_if_asked()

    def _look_for_best(self, best_params: Any) -> None:
        """Copy the model if it is the best so far."""
        if self._goal is None:
            if best_params is not None:
                self._copy_best(best_params)
            return
        metric, goal = self._goal
        series = self._progress.series.get(metric)
        values = series.values if series is not None else ()
        found = self._best
        for place in range(self._looked, len(values)):
            value = values[place]
            is_better = found is None or (value > found[1] if goal == "max" else value < found[1])
            if is_better and not math.isnan(value):
                found = place, value
        self._looked = len(values)
        if found == self._best:
            return
        is_old = self._best is None and self.is_resumed and self._is_known(found)
        self._best = found
        if not is_old:
            self._copy_best(best_params)

    def _is_known(self, found: tuple[int, float] | None) -> bool:
        """Whether the checkpoint that we went on from has this best already."""
        looked = self._found.head.get("looked", {}) if self._found is not None else {}
        return found is not None and self._goal is not None and found[0] < looked.get(self._goal[0], 0)

    def _copy_best(self, best_params: Any) -> None:
        if self._saver.is_busy:  # it may be writing the one before, out of that memory
            self._best_buffer = tree.Buffer()
        if best_params is not None:
            self._new_best = saving.make_writer(best_params, self._best_buffer, self._allow_pickle)
        elif "model" in self._tracked:
            packed = tree.pack(state_of(self._tracked["model"]), self._best_buffer, self._allow_pickle)
            self._new_best = packed.write

    def _save(self, params: Any, final: dict[str, Any] | None) -> None:
        if not self._writes or self._is_closed:
            return
        self._saver.wait()
        began = time.monotonic()
        state = {
            "objects": {name: state_of(thing) for name, thing in self._tracked.items()},
            "random": self._random(),
            "data": self._data,
            "notes": self.notes,
        }
        try:
            packed = tree.pack(state, self._buffer, self._allow_pickle)
            writer = None
            if params is not None:
                writer = saving.make_writer(params, self._params_buffer, self._allow_pickle)
        except tree.Unsafe as error:
            raise TypeError(f"cannot save: {error}") from None
        looked = {self._goal[0]: self._looked} if self._goal is not None else {}
        about = {
            "counts": self._progress.counts(),
            "looked": looked,  # how much of the series was looked at for the best
            "epoch": self._last_epoch(),
            "passes": self._passes,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        best, self._new_best = self._new_best, None
        now = time.monotonic()
        self._pace.saved(now, now - began, self._saver.seconds)
        self._saver.submit(Job(packed, {**about, **(final or {})}, writer, best, self._progress.commit))

    def _last_epoch(self) -> int | None:
        if self._epoch is not None:
            return self._epoch
        series = self._progress.series.get(EPOCHS)
        last = series.values[-1] if series is not None and series.values else math.nan
        return int(last) if math.isfinite(last) else None

    def finished(self, params: Any = None) -> None:
        """The trial is done: commit the last checkpoint, the best model and the result."""
        if self._is_finished:
            return
        self._is_finished = True
        if not self._writes:
            return
        self._look_for_best(None)
        if self._best is None and self._new_best is None and self._goal is None:
            self._copy_best(params)  # the last one is the best that we know of
        self._save(params, {"finished": True})
        self._saver.wait()
        if self._saver.failed:
            why = self._saver.failed
            raise OSError(f"the trial is done, but its last checkpoint cannot be written: {why}")
        self._progress.flush()
        self._export_best()
        _write_json(os.path.join(self._trial.directory, f"finished.{self._trial.stage}.json"), self._result())
        signals.ignore()

    def _result(self) -> dict[str, Any]:
        last = self._last_values()
        best = None
        if self._goal is not None and self._best is not None:
            (metric, goal), (place, value) = self._goal, self._best
            best = {"metric": metric, "goal": goal, "value": value, "place": place}
        return {"attempt": list(self._trial.attempt), "best": best, "last": last}

    def _last_values(self) -> dict[str, float]:
        found = list(self._progress.series.items())
        return {name: series.values[-1] for name, series in found if series.values}

    def _export_best(self) -> None:
        """The best model as torch reads it, for people: `best.pt` in the trial's directory."""
        torch, found = sys.modules.get("torch"), self._saver.best
        if torch is None or found is None:
            return
        path = os.path.join(self._trial.checkpoints, found)
        try:
            state = saving.load_written(path, self._allow_pickle)
        except (OSError, ValueError, TypeError):
            return
        if not saving.has_tensor(state, torch):
            return
        target = os.path.join(self._trial.directory, "best.pt")
        torch.save(state, f"{target}.tmp")
        os.replace(f"{target}.tmp", target)

    # Stopping

    def should_stop(self) -> bool:
        """Whether the trial is to stop soon: it was stopped, or the machine is taken away."""
        self._was_told = bool(signals.asked)
        return self._was_told

    def _should_leave_now(self) -> bool:
        """Between two saves: only if nothing is ever saved, or little time is left."""
        passed = time.monotonic() - signals.asked
        is_never_saved = not (self._tracked or self._saver.has_saved or self._saver.is_busy)
        return is_never_saved or passed > GRACE / 2

    def _leave_if_asked(self) -> None:
        if signals.asked and not self._is_finished:
            self._close()
            raise Stopped()

    # Running

    def hyparam_search(self, run: Callable[[Manager, str | None, str | None], Any]) -> None:
        """Call `run(manager, params_path, best_params_path)` for this trial; for more if the study is `warm`.

        An exception is recorded with parameters and progress, and the trial fails.
        """
        if os.environ.get("STOKER_WARM"):
            from stoker.manager.warm import serve

            runs = iter(range(sys.maxsize))

            def run_next() -> None:
                if next(runs) > 0:  # this object has served a trial
                    self._close()
                    self._set_up(from_environment(os.environ), self._save_every, self._allow_pickle)
                self._run(run)

            serve(run_next)
        else:
            self._run(run)

    def _run(self, run: Callable[[Manager, str | None, str | None], Any]) -> None:
        try:
            run(self, self.params_path, self.best_params_path)
        except Exception as error:
            import traceback

            traceback.print_exc()
            self._leave_if_asked()  # it is no failure if workers, say, were asked to stop as well
            self._record(error, traceback.format_exc())
            self._close()
            raise SystemExit(1) from None
        if self._was_told:
            self._leave_if_asked()
        self.finished()
        self._close()

    def _record(self, error: Exception, trace: str) -> None:
        if not self._writes:
            return
        round_, attempt = self._trial.attempt
        path = os.path.join(self._trial.directory, f"error.{self._trial.stage}.{round_}-{attempt}.json")
        last = self._last_values()
        told = {"error": type(error).__name__, "message": str(error), "traceback": trace}
        try:
            _write_json(path, {**told, "hyparams": dict(self.get_hyparams()), "progress": last})
        except (OSError, TypeError, ValueError) as problem:
            self._complain(f"cannot record the error: {problem}")

    # Ending

    def _close(self) -> None:
        """Everything that was asked for is written."""
        if not self._is_closed:
            self._is_closed = True
            self._saver.close()
            self._progress.close()
            if self._lock is not None:
                self._lock.release()

    def _complain(self, text: str) -> None:
        sys.stderr.write(f"stoker: {text}\n")
        sys.stderr.flush()


class TestManager(Manager):
    """A manager for trying a script: nothing is kept, and no study or store is needed."""

    __test__ = False  # its name is no test's

    @classmethod
    def create_manager(
        cls,
        hyparams: Mapping[str, Any] | None = None,
        save_every: int | str = 1,
        allow_pickle: bool = False,
    ) -> Manager:
        """A manager with these parameters. Checkpoints go to a directory that is removed in the end."""
        import tempfile

        directory = tempfile.mkdtemp(prefix="stoker-test-")
        made = cls(Trial(hyparams or {}, directory), save_every, allow_pickle)
        removal = weakref.finalize(made, _remove_directory, directory, os.getpid())
        removal.atexit = False  # at the end of the process that comes after the last checkpoint, see _close
        return made

    def _close(self) -> None:
        is_last = not self._is_closed
        super()._close()
        if is_last:
            _remove_directory(self.directory, os.getpid())


class Params(dict):  # type: ignore[type-arg]  # 3.8 has no dict[str, Any] at run time
    """Parameters; one that is missing is told in a way that helps."""

    def __init__(self, values: Mapping[str, Any], is_in_study: bool) -> None:
        super().__init__(values)
        self._is_in_study = is_in_study

    def __missing__(self, name: str) -> Any:
        known = ", ".join(self) or "none"
        if self._is_in_study:
            raise KeyError(f"the study sets no parameter {name!r}; it has: {known}")
        remedy = f"give values to create_manager({{{name!r}: ...}})"
        raise KeyError(f"{name!r}: not in a study; {remedy}; it has: {known}")


_made: weakref.WeakSet[Manager] = weakref.WeakSet()
"""The managers of this process: at most one for a trial."""


def _number(name: str, value: Any) -> float:
    """A number, also of numpy or of torch: taken now, as it may change later."""
    try:
        number = value.item() if hasattr(value, "item") else value
        if isinstance(number, (str, bytes)):
            raise TypeError
        return float(number)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(f"progress is made of numbers; {name} is {value!r}") from None


def _step(name: str, step: Any) -> float:
    number = _number(f"the step of {name}", step)
    if not math.isfinite(number):
        raise ValueError(f"a step is a number that counts; that of {name} is {number}")
    return number


class _Lock:
    """Held by the one process of an attempt that writes. Where there are no locks, everybody has it."""

    def __init__(self, path: str, file: int) -> None:
        self._path, self._file = path, file

    def release(self) -> None:
        """Nobody needs its file any more: another attempt has another one."""
        try:
            os.unlink(self._path)
        except OSError:
            pass
        if self._file >= 0:
            os.close(self._file)


def _lock(trial: Trial) -> _Lock | None:
    """The lock of an attempt; None if another process has it."""
    path = os.path.join(trial.directory, f".{trial.stage}.{trial.attempt[0]}-{trial.attempt[1]}.lock")
    try:
        import fcntl

        os.makedirs(trial.directory, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except (ImportError, OSError):
        return _Lock(path, -1)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except OSError:
        pass  # a file system that has no locks
    return _Lock(path, file)


def _is_first() -> bool:
    """Of the processes that torchrun starts: only one writes."""
    return os.environ.get("RANK", "0") == "0"


def _outside(trial: Trial) -> Trial:
    """A trial of nobody's: goes on where it was interrupted, and starts afresh when it was finished."""
    known = [file.attempt[1] for file in files(trial.directory, "progress.train", "jsonl")]
    is_fresh = os.path.exists(os.path.join(trial.directory, "finished.train.json"))
    if is_fresh:
        known = []
        if _is_first():
            import shutil

            shutil.rmtree(trial.directory)
    sys.stderr.write(
        f"stoker: not in a study: progress and checkpoints go to {OUTSIDE}"
        f"{', and training goes on where it was' if known else ''}\n"
    )
    trial.attempt = 1, max(known, default=0) + 1
    trial.since = 2 if is_fresh else 1  # another process may not have removed it yet
    return trial


def _write_json(path: str, body: Mapping[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        json.dump(body, file, indent=1, default=str)
        file.write("\n")
    os.replace(f"{path}.tmp", path)


def _in_child(itself: Any) -> None:
    """A forked child, as a worker of a DataLoader is: it may read, but not write."""
    manager = itself()
    if manager is not None:
        manager._writes, manager._is_closed = False, True
        manager._progress.forget_thread()


def _at_exit(itself: Any) -> None:
    manager = itself()
    if manager is not None:
        manager._close()


def _remove_directory(path: str, process: int) -> None:
    if os.getpid() == process:  # a forked child that ends does not end its parent's
        import shutil

        shutil.rmtree(path, ignore_errors=True)
