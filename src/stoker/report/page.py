"""The report: one HTML page with all there is to see of a study, which asks for nothing from anywhere.

Whatever comes from the study is escaped where it is put in. Should something get through all the same, the
page's policy lets no script run but its own, by its digest, and lets nothing be fetched or sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from math import isfinite

from stoker.core.times import stamp
from stoker.core.values import text
from stoker.report import table
from stoker.report.charts import Chart, many
from stoker.report.code import Code, code_of
from stoker.report.errors import Group, clean
from stoker.report.figures import FIGURES
from stoker.report.formats import is_right, shown
from stoker.report.images import panel_svg
from stoker.report.origin import About, Origin
from stoker.report.results import Results, gather
from stoker.report.table import Cell, Table
from stoker.spec.problems import printable
from stoker.study.fleet import Agent

CAUSES = 20
"""So many causes of failures are told; more are counted."""
FIRST = 100
"""So many trials stand in the page itself, for those who read it without scripts."""
MOST_COLUMNS = 60
_COLOURS = {"finished": "good", "failed": "bad", "stopped": "warn", "running": "main"}


def report(origin: Origin, version: str, with_code: bool = True, results: Results | None = None) -> str:
    """The whole page; of results that were gathered before, if there are."""
    code = code_of(origin.about.directory) if with_code else None
    return page(results or gather(origin), origin.about, version, time.time(), code)


def page(results: Results, about: About, version: str, written: float, code: Code | None = None) -> str:
    """The page from plain data."""
    made, columns = _table_of(results)
    right = [is_right(made.column(name), name) for name in made.columns]
    charts = [chart for draw in FIGURES.values() if (chart := draw(results)).panels]
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = {
        "failures": _failures(results.groups),
        "figures": _figures(charts),
        "trials": _trials(made, columns, right),
        "study": _study(about),
        "code": _code(code),
        "machines": _machines(results, about, version),
    }
    drawn = [chart.name for chart in charts]
    contents = [name for name in _CONTENTS if name in drawn or sections.get(name)]
    return _PAGE.format(
        policy=policy,
        title=_safe(results.name),
        style=style,
        body="\n".join(filter(None, [_summary(results, written, contents), *sections.values()])),
        version=version,
        time=stamp(written),
        data=_data(made, right),
        script=script,
    )


_CONTENTS = {
    "failures": "Failures",
    "sweeps": "Sweeps",
    "parameters": "Parameters",
    "slots": "Slots",
    "trials": "All trials",
    "study": "Study file",
    "code": "Code",
    "machines": "Machines",
}
_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title} – Stoker</title>
<style>{style}</style></head>
<body>
{body}
<footer>Written by Stoker {version} at {time}.</footer>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body></html>
"""


def _asset(name: str) -> str:
    return files("stoker.report").joinpath(f"assets/{name}").read_text(encoding="utf-8")


def _digest(body: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}"


def _safe(told: object) -> str:
    return escape(printable(str(told)), quote=True)


def _lines(told: str) -> str:
    return escape("\n".join(clean(told)), quote=True)


# Summary


def _summary(results: Results, written: float, contents: Sequence[str]) -> str:
    counts = Counter(row.status for row in results.rows)
    links = "".join(f'<a href="#{name}">{_CONTENTS[name]}</a>' for name in contents)
    parts = [
        f'<header><h1>{_safe(results.name)}</h1><div class="muted">{_safe(_aim(results, written))}</div>',
        _bar(counts),
        f'<div class="cards">{"".join(_card(*one) for one in _cards(results, counts))}</div>',
        _best(results),
        f"<nav>{links}</nav></header>",
    ]
    return "\n".join(filter(None, parts))


def _aim(results: Results, written: float) -> str:
    better = {"min": "the lower the better", "max": "the higher the better"}
    aim = f"{results.metric}, {better[results.objective.goal]} · " if results.objective is not None else ""
    return f"{aim}as of {stamp(written).replace('T', ' ').removesuffix('Z')} UTC"


def _bar(counts: Counter[str]) -> str:
    """All trials as a line in the colours of what became of them."""
    left, boxes = 0.0, ""
    for state, colour in _COLOURS.items():
        width = 1000 * counts[state] / max(1, counts.total())
        boxes += (
            f'<rect class="f-{colour}" x="{left:.1f}" width="{width:.1f}" height="6"></rect>' if width else ""
        )
        left += width
    return f'<div class="bar"><svg viewBox="0 0 1000 6" preserveAspectRatio="none">{boxes}</svg></div>'


def _cards(results: Results, counts: Counter[str]) -> Iterable[tuple[str, str, str]]:
    total = counts.total()
    yield f"{counts['finished']:,}", f"of {many(total, 'trial')} finished", ""
    if counts["failed"]:
        yield f"{counts['failed']:,}", "failed", "bad"
    if counts["stopped"]:
        yield f"{counts['stopped']:,}", "stopped", "warn"
    if left := total - counts["finished"] - counts["failed"] - counts["stopped"]:
        yield f"{left:,}", f"left, {counts['running']:,} of them running", "main"
    if results.best is not None:
        told = f"best {results.metric}, trial {results.best.number}"
        yield shown(results.value(results.best)), told, "good"
    spent = sum(row.seconds or 0.0 for row in results.rows)
    if spent:
        yield _duration(spent), "in trials, together", ""
    ends = [row.end for row in results.rows if row.end is not None]
    if ends:
        passed = max(ends) - min(row.began for row in results.rows if row.began is not None)
        yield _duration(passed), "from the first to the last", ""


def _card(figure: str, told: str, colour: str) -> str:
    return f'<div class="card"><b class="{colour}">{_safe(figure)}</b><span>{_safe(told)}</span></div>'


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:,.1f} days"


def _best(results: Results) -> str:
    best = results.best
    if best is None:
        return ""
    names = [name for name in best.params if table.differs(row.params.get(name) for row in results.rows)][:24]
    metrics = [(n, shown(numbers.last)) for n, numbers in best.metrics.items() if n != results.metric]
    facts = [(name, text(best.params[name])) for name in names] + metrics[:12]
    return f"<h3>The best: trial {best.number}, {_safe(best.name)}</h3>{_facts(facts)}" if facts else ""


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    told = "".join(f"<dt>{_safe(name)}</dt><dd>{_safe(value)}</dd>" for name, value in facts)
    return f'<dl class="facts">{told}</dl>'


# Failures and figures


def _failures(groups: Sequence[Group]) -> str:
    if not groups:
        return ""
    causes = "".join(map(_cause, groups[:CAUSES]))
    rest = groups[CAUSES:]
    failed = many(sum(group.count for group in rest), "trial")
    more = f'<p class="note">… and {len(rest):,} other causes, of {failed}</p>' if rest else ""
    return f'<h2 id="failures">Failures by cause</h2>{causes}{more}'


def _cause(group: Group) -> str:
    example = group.example
    facts = [("trials", group.trials(12)), ("example", f"{example.row.number} {example.row.name}")]
    facts += [("only these have", ", ".join(group.common))] if group.common else []
    facts += [("note", group.note)] if group.note else []
    lines = escape("\n".join(example.lines), quote=True)
    said = f"<pre>{lines}</pre>" if lines else ""
    return f'<div class="cause"><h3>{group.count:,} × {_safe(group.title)}</h3>{_facts(facts)}{said}</div>'


def _figures(charts: Sequence[Chart]) -> str:
    """Narrow ones share a line."""
    drawn = "\n".join(map(_figure, charts))
    return f'<div class="figures">\n{drawn}\n</div>' if drawn else ""


def _figure(chart: Chart) -> str:
    drawn = [panel_svg(panel, chart.is_wide) for panel in chart.panels]
    if chart.is_wide:
        panels = "".join(f'<div class="scroll">{one.replace("<svg", _WIDE, 1)}</div>' for one in drawn)
    else:
        panels = f'<div class="panels">{"".join(drawn)}</div>'
    note = f'<p class="note">{_safe(chart.note)}</p>' if chart.note else ""
    span = 3 if chart.is_wide else min(3, len(chart.panels))
    return (
        f'<section class="span{span}"><h2 id="{chart.name}">{_safe(chart.title)}</h2>{note}{panels}</section>'
    )


_WIDE = '<svg class="wide"'


# Trials


def _table_of(results: Results) -> tuple[Table, int]:
    """The table with the best first, and how many columns it should have: of very many, some are left out.

    What is left out are parameters that matter least.
    """
    made = table.make(results.rows, results.objective)
    count = len(made.columns)
    if count <= MOST_COLUMNS:
        return made, count
    params = {name for row in results.rows for name in row.params}
    others = [name for name in made.columns if name not in params][: MOST_COLUMNS // 2]
    matter = sorted(params & {*made.columns}, key=lambda name: -results.shares.get(name, 0.0))
    kept = {*others, *matter[: MOST_COLUMNS - len(others)]}
    return made.only([name for name in made.columns if name in kept]), count


def _trials(made: Table, columns: int, right: Sequence[bool]) -> str:
    head = '<h2 id="trials">All trials</h2>'
    if not made.rows:
        return f'{head}<p class="note">There are none.</p>'
    heads = "".join(
        f"<th{side}><button>{_safe(name)}</button></th>"
        for name, side in zip(made.columns, map(_side, right), strict=True)
    )
    rows = "".join(f"<tr>{_cells(row, made.columns, right)}</tr>" for row in made.rows[:FIRST])
    cut = f"{len(made.columns):,} of {columns:,} columns; those that matter least are left out."
    note = f'<p class="note">{cut}</p>' if len(made.columns) < columns else ""
    return (
        f'{head}{note}<div class="controls"><input type="search" aria-label="filter" '
        'placeholder="filter: lr&gt;0.01 status=finished word">'
        f'<span class="muted count">{many(len(made.rows), "trial")}</span></div>'
        f'<div class="results"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<button class="more" hidden>Show more</button><p class="note cut">{_cut_short(len(made.rows))}</p>'
    )


def _cut_short(count: int) -> str:
    """What somebody must know who has it on paper, or no scripts."""
    return f"The first {FIRST:,} of {many(count, 'trial')}." if count > FIRST else ""


def _side(is_right: bool) -> str:
    return ' class="right"' if is_right else ""


def _cells(row: Sequence[Cell], columns: Sequence[str], right: Sequence[bool]) -> str:
    made = ""
    for cell, name, side in zip(row, columns, map(_side, right), strict=True):
        colour = _COLOURS.get(str(cell)) if name == "status" else None
        kind = f' class="{colour}"' if colour else side
        made += f"<td{kind}>{escape(shown(cell, name))}</td>"
    return made


def _data(made: Table, right: Sequence[bool]) -> str:
    """All trials for the page's script. Nothing in it can end the element that it stands in."""
    told = {
        "columns": [
            {"name": printable(name), "right": numbers}
            for name, numbers in zip(made.columns, right, strict=True)
        ],
        "rows": [
            [_plain(cell, name) for cell, name in zip(row, made.columns, strict=True)] for row in made.rows
        ],
        "trial": made.columns.index("trial") if "trial" in made.columns else -1,
        "status": made.columns.index("status") if "status" in made.columns else -1,
        "names": list(_COLOURS),
        "colours": list(_COLOURS.values()),
    }
    body = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return body.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plain(cell: Cell, name: str) -> str | float | list[str | float] | None:
    """What is compared: all digits of a number; with how it is shown, where a script could not tell."""
    if cell is None or isinstance(cell, bool):
        return cell
    if isinstance(cell, str):
        return printable(cell)
    if type(cell) is float and isfinite(cell):
        return cell
    if type(cell) is int and abs(cell) < 100_000 and name != "memory":
        return cell
    return [shown(cell, name), _number(cell)]


def _number(number: float) -> str | float:
    """As a script can read it: as a text what JSON has no number for, or too few digits."""
    if isinstance(number, int):
        return number if abs(number) < 2**53 else str(number)
    return float(number) if isfinite(number) else str(float(number))


# Where it comes from


def _study(about: About) -> str:
    if not about.file:
        return ""
    return (
        f'<h2 id="study">Study file</h2><p class="note">{_safe(about.file)}, as it was run last.</p>'
        f"<pre>{_lines(about.text)}</pre>"
    )


def _code(code: Code | None) -> str:
    head = '<h2 id="code">Code</h2>'
    if code is None:
        why = "No repository was found where the study's commands run, or it was not to be told."
        return f'{head}<p class="note">{why}</p>'
    changed = f"{code.diff.count(chr(10)):,} lines of changes" if code.diff else "nothing changed since"
    cut = ", of which the beginning is shown" if code.is_cut else ""
    diff = f"<details><summary>{changed}{cut}</summary><pre>{_lines(code.diff)}</pre></details>"
    return (
        f'{head}<p class="note">The repository as it was when this report was written.</p>'
        f"{_facts([('commit', code.commit), ('', code.told)])}{diff if code.diff else f'<p>{changed}</p>'}"
    )


def _machines(results: Results, about: About, version: str) -> str:
    busy: dict[str, list[float]] = {}
    for row in results.rows:
        if row.agent:
            busy.setdefault(row.agent, []).append(row.seconds or 0.0)
    known = {agent.name: agent for agent in about.agents}
    lines = "".join(_machine(name, known.get(name), busy.get(name, [])) for name in sorted({*known, *busy}))
    heads = "".join(f"<th{_side(n > 1)}>{name}</th>" for n, name in enumerate(_MACHINE))
    made = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>" if lines else ""
    written = f"{platform.system()}, Python {platform.python_version()}, Stoker {version}"
    facts = [("report written on", written), ("study in", about.where)]
    facts += [("commands run in", about.directory)] if about.directory else []
    return f'<h2 id="machines">Machines</h2><div class="scroll">{made}</div>{_facts(facts)}'


_MACHINE = ("agent", "state", "slots", "trials", "time in trials")


def _machine(name: str, agent: Agent | None, seconds: Sequence[float]) -> str:
    state, slots = (agent.life.value, f"{agent.slots:,}") if agent is not None else ("–", "–")
    cells = (name, state, slots, f"{len(seconds):,}", _duration(sum(seconds)))
    return "<tr>" + "".join(f"<td{_side(n > 1)}>{_safe(cell)}</td>" for n, cell in enumerate(cells)) + "</tr>"
