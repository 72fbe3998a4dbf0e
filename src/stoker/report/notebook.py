"""What a study and its failures look like in a notebook: a little HTML, with all of theirs escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from stoker.report.charts import many
from stoker.report.errors import Group
from stoker.spec.problems import printable
from stoker.study.opened import Objective

MOST = 20
"""So many causes are shown; more are counted."""


def causes(groups: Sequence[Group]) -> str:
    """Failures by cause."""
    if not groups:
        return "<p>No trial failed.</p>"
    rest = groups[MOST:]
    failed = many(sum(one.count for one in rest), "failure")
    more = f"<p>… and {many(len(rest), 'other cause')} of {failed}</p>" if rest else ""
    return "".join(map(_cause, groups[:MOST])) + more


def _cause(one: Group) -> str:
    example = one.example
    facts = [("trials", one.trials(12))]
    facts += [("only these have", ", ".join(one.common))] if one.common else []
    facts += [("example", f"{example.row.number} {example.row.name}")]
    facts += [("note", one.note)] if one.note else []
    said = "\n".join(example.lines)
    lines = f"<pre>{escape(said)}</pre>" if said else ""
    return f"<p><b>{one.count:,} × {_safe(one.title)}</b></p>{table(facts)}{lines}"


def summary(
    title: str, counts: Mapping[str, int], objective: Objective | None, best: tuple[str, float] | None
) -> str:
    """A study in a few lines: how many trials became what, what is good, and the best with its value."""
    states = [f"{count:,} {state}" for state, count in counts.items() if count]
    facts = [("trials", ", ".join(states) or "none")]
    if objective is not None:
        better = {"min": "the lower the better", "max": "the higher the better"}
        facts.append(("objective", f"{objective.metric}, {better[objective.goal]}"))
    if objective is not None and best is not None:
        facts.append(("best", f"{best[0]}, {objective.metric} {best[1]:.5g}"))
    return f"<p><b>{_safe(title)}</b></p>{table(facts)}"


def table(facts: Iterable[tuple[str, str]]) -> str:
    """Names and what is known of them."""
    rows = (f"<tr><th>{_safe(name)}</th><td>{_safe(told)}</td></tr>" for name, told in facts)
    return f"<table>{''.join(rows)}</table>"


def _safe(told: str) -> str:
    return escape(printable(told))
