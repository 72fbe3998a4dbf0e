"""The report: all there is to see in one file, whatever a study contains."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.store_options import open_at
from stoker.report.code import code_of
from stoker.report.rows import Numbers
from tests.report.made import results, row, whole_page
from tests.report.test_figures import STUDIES
from tests.stories.command import stoker

EVIL = "<!--<script></script></style></pre><script>alert(1)</script><img src=//x onerror=alert(2)>\" ' `"
VOID = {"meta", "input"}
SVG = {"svg", "path", "circle", "rect", "text", "g"}


class Tags(HTMLParser):
    """Checks that what is opened is closed, and remembers the elements."""

    def __init__(self, body: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(body)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(body: str) -> Tags:
    """Nothing but our own two scripts, no handlers, no styles beside ours, nothing from elsewhere."""
    tags = Tags(body)
    names = [name for name, _ in tags.seen]
    assert names.count("script") == 2
    assert not {"img", "iframe", "link", "object", "embed", "base", "form"} & set(names)
    for _, attributes in tags.seen:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src")]
        assert (attributes.get("href") or "#").startswith("#")
    assert "url(" not in body
    assert "@import" not in body
    return tags


def data(body: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', body, re.DOTALL)
    assert found
    assert not set("<>&") & set(found[1])  # nothing that means something to HTML
    return json.loads(found[1])


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_page(name: str) -> None:
    rows = STUDIES[name]
    body = whole_page(results(rows))
    check(body)
    assert len(data(body)["rows"]) == len(rows)
    assert len(data(body)["columns"]) <= 60


def test_what_a_study_contains_stays_text() -> None:
    rows = [
        row(n, {EVIL: EVIL, "x": n}, float(n), EVIL, name=EVIL, slot=EVIL, agent=EVIL) for n in range(1, 8)
    ]
    rows += [row(9, {EVIL: EVIL, "x": 1}, agent=EVIL)]
    found = results(rows, EVIL, said={9: [EVIL, f"ValueError: {EVIL}"]})
    body = whole_page(found, EVIL)
    check(body)
    assert "<script>alert" not in body
    assert data(body)["rows"][0][1] == EVIL


def test_numbers_that_are_none_and_names_that_mean_something_to_javascript() -> None:
    rows = [
        row(n, {"constructor": n}, value, "__proto__") for n, value in enumerate([nan, inf, -inf, 2.0], 1)
    ]
    body = whole_page(results(rows, "__proto__"))
    check(body)
    told = data(body)
    place = [column["name"] for column in told["columns"]].index("__proto__")
    assert [one[place] for one in told["rows"]] == [["-inf"] * 2, 2.0, ["inf"] * 2, ["nan"] * 2]


def test_the_best_trials_come_first_and_numbers_keep_their_digits() -> None:
    rows = [row(n, {"lr": 1 / n}, 0.123456789 + n) for n in range(1, 300)]
    body = whole_page(results(rows))
    told = data(body)
    assert [one[0] for one in told["rows"][:3]] == ["1", "2", "3"]
    place = [column["name"] for column in told["columns"]].index("loss")
    assert told["rows"][0][place] == 1.123456789
    assert body.count('<td class="good">finished') == 100  # for those who read it without scripts
    assert "299 trials" in body


def test_parameters_that_matter_least_are_left_out_of_very_many() -> None:
    rows = [
        row(n, {f"p{k}": (n * (k + 1)) % 11 for k in range(200)} | {"z": n}, float(n)) for n in range(1, 40)
    ]
    body = whole_page(results(rows))
    names = [column["name"] for column in data(body)["columns"]]
    assert "z" in names
    assert len(names) == 60
    assert re.search(r"60 of \d{3} columns; those that matter least are left out", body)


def test_metrics_of_the_best_trial_are_told() -> None:
    rows = [row(1, {"lr": 1}, 0.5), row(2, {"lr": 2}, 0.75)]
    rows[0] = rows[0]._replace(metrics={**rows[0].metrics, "acc": Numbers(0.875)})
    assert "<dt>acc</dt><dd>0.875</dd>" in whole_page(results(rows))


def git(*words: str) -> None:
    names = ["-c", "user.name=Me", "-c", "user.email=me@example.org"]
    subprocess.run(["git", *names, *words], check=True, capture_output=True)


def test_the_code_is_told_as_it_is_now(workplace: Path) -> None:
    assert code_of(str(workplace)) is None
    git("init", "-q")
    assert code_of(str(workplace)) is None  # nothing was committed
    Path("train.py").write_text("old = 1\n", encoding="utf-8")
    git("add", ".")
    git("commit", "-q", "-m", "Begin <b>")
    found = code_of(str(workplace))
    assert found
    assert (len(found.commit), found.diff, found.told[-9:]) == (40, "", "Begin <b>")
    Path("train.py").write_text("new = 2\n", encoding="utf-8")
    git("config", "diff.external", "touch owned")
    again = code_of(str(workplace))
    assert again
    assert "+new = 2" in again.diff
    assert not Path("owned").exists()
    assert code_of(str(workplace / "nowhere")) is None
    assert code_of("") is None


TEXT = """\
template: 'echo acc=0.{n}; [ {n} != 2 ]'
metrics: {acc: 'acc=(\\S+)'}
objective: {metric: acc, goal: max}
resource: [0]
---
n: [1, 2, 3]
"""


def test_a_person_writes_a_report(workplace: Path) -> None:
    Path("params.yaml").write_text(TEXT, encoding="utf-8")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "Begin")
    assert stoker("run").returncode == 1
    done = stoker("report", "output", "-o", "it.html")
    assert (done.returncode, done.stdout) == (0, "Wrote it.html, 0.0 MB.\n"), done.stderr
    body = Path("it.html").read_text(encoding="utf-8")
    check(body)
    for told in ("of 3 trials finished", "1 × ", "acc=0.2", "n: [1, 2, 3]", "<dt>commit</dt>", "left"):
        assert told in body, told
    assert stoker("report", "--no-code").returncode == 0
    assert "<dt>commit</dt>" not in Path("report.html").read_text(encoding="utf-8")
    assert stoker("report", "-o", "no/such/place.html").stderr == (
        "stoker: cannot write no/such/place.html: No such file or directory\n"
    )
    assert stoker("report", "nowhere").returncode == 2
    assert open_at("output").state.counts().failed == 1  # it only reads
