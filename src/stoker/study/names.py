"""Finding trials by what a user types: a number, a name, a part of one, or a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from stoker.core.errors import UsageError
from stoker.plan.trials import Plan, Trial
from stoker.spec.problems import listing, suggest
from stoker.store.records import TrialId
from stoker.study.ranges import State
from stoker.study.state import StudyState

MOST_NAMES = 20_000
"""So many names are looked through for a part of one."""
_SHOWN = 5
_NUMBER = re.compile(r"(?:(\d{1,4})\.)?(\d{1,9})", re.ASCII)


def find(state: StudyState, word: str) -> list[TrialId]:
    """The trials that a word means; raises UsageError if it means none, or may mean several.

    `17` is a trial by its number, that of the first iteration if several have it, as tables show them; `2.17`
    is one of iteration 2. A name or a part that only one name has is
    that trial, in each iteration that runs some stages of it. A pattern such as `Lr_*` is all that match.
    """
    found = _by_number(state, word) or _by_name(state, word)
    if found:
        return found
    names = _names(state, word)
    if any(sign in word for sign in "*?["):
        matching = [name for name in names if fnmatchcase(name, word)]
    else:
        matching = [name for name in names if word.lower() in name.lower()]
        if len(matching) > 1:
            raise UsageError(f"'{word}' is part of several names: {listing(matching, _SHOWN, 'and')}")
    if not matching:
        near = _elsewhere(state, word) or suggest(word, names) or "see stoker status"
        raise UsageError(f"there is no trial '{word}'; {near}")
    return [trial for name in matching for trial in names[name]]


def _by_number(state: StudyState, word: str) -> list[TrialId]:
    match = _NUMBER.fullmatch(word)
    if not match:
        return []
    iterations = [int(match[1])] if match[1] else state.iterations
    wanted = [TrialId(iteration, int(match[2])) for iteration in iterations]
    found = [trial for trial in wanted if _is_run(state, trial)]
    if len(found) > 1 and found[0].iteration == 1:
        return found[:1]
    if len(found) > 1:
        shown = [f"{trial} ({_name(state, trial)})" for trial in found]
        say = listing([str(trial) for trial in found], _SHOWN)
        raise UsageError(
            f"several iterations have a trial {word}: {listing(shown, _SHOWN, 'and')}; say {say}"
        )
    if not found and match[1] is None:
        last = max((state.size(iteration) for iteration in state.iterations), default=0)
        told = f"there is no trial {word} to run; numbers go up to {last}"
        raise UsageError(f"{told}{'; 2.7 is trial 7 of iteration 2' * (len(state.iterations) > 1)}")
    return found


def _elsewhere(state: StudyState, word: str) -> str:
    """Why there is no `2.7`: iterations go less far, or an earlier one has asked for that trial."""
    match = _NUMBER.fullmatch(word)
    if not match or not match[1]:
        return ""
    wanted = TrialId(int(match[1]), int(match[2]))
    if wanted.iteration not in state.iterations:
        return f"iterations go up to {len(state.iterations)}"
    found = state.describe(wanted)
    owner = None if found is None else state.work.owner(found)
    if owner is not None and owner != wanted:
        return f"it is {owner} ({_name(state, owner)}), which iteration {owner.iteration} asked for before"
    return f"iteration {wanted.iteration} goes up to {wanted.iteration}.{state.size(wanted.iteration)}"


def _by_name(state: StudyState, name: str) -> list[TrialId]:
    """Trials with exactly this name, found without looking through all of them."""
    found = []
    for iteration in state.iterations:
        trial = _named(state.work.planned(iteration).plan, name)
        if trial is not None and _is_run(state, TrialId(iteration, trial.number)):
            found.append(TrialId(iteration, trial.number))
    return found


def _named(plan: Plan, name: str) -> Trial | None:
    index = plan.named(name)
    trial = None if index is None else plan.trial(index)
    return trial if trial is not None and trial.name == name else None


def _names(state: StudyState, word: str) -> dict[str, list[TrialId]]:
    """All names, and the trials that have them: the same in several iterations, if each runs stages of it."""
    size = sum(state.work.planned(iteration).plan.size for iteration in state.iterations)
    if size > MOST_NAMES:
        raise UsageError(
            f"no trial has the name '{word}', and {size:,} names are too many to look through; "
            "give a number or a whole name"
        )
    names: dict[str, list[TrialId]] = {}
    for trial in _all(state):
        names.setdefault(_name(state, trial), []).append(trial)
    return names


def _all(state: StudyState) -> Iterator[TrialId]:
    for now in state.trials():
        yield now.trial


def _is_run(state: StudyState, trial: TrialId) -> bool:
    now = state.trial(trial)
    return now is not None and now.state is not State.SKIPPED


def _name(state: StudyState, trial: TrialId) -> str:
    found = state.describe(trial)
    return found.name if found is not None else str(trial)
