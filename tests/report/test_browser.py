"""The report in a real browser: it works, nothing in it runs that is not ours, and nothing leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from pathlib import Path

import pytest

from stoker.core.values import Spelled, Value
from stoker.report.rows import Numbers
from stoker.report.table import make
from stoker.store.records import TrialId
from stoker.study.opened import Objective
from tests.report.browser import Browser, need_browser
from tests.report.made import results, row, whole_page

OWNED = "document.title='owned'"
EVIL = f'</script><script>{OWNED}</script><img src=http://127.0.0.1:9/x onerror="{OWNED}">'
COLUMN = "[...document.querySelectorAll('.results tbody tr')].map(r => r.cells[{}].textContent)"
HEADS = "[...document.querySelectorAll('.results th')].map(h => h.textContent)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    need_browser()
    with Browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Browser:
    """A study of 300 trials with everything bad in it."""
    rows = [
        row(
            n,
            {"lr": n / 100, "evil": EVIL if n % 2 else "calm"},
            float("nan") if n == 7 else 300.0 - n,
            "__proto__",
        )
        for n in range(1, 300)
    ]
    rows.append(row(300, {"lr": 3.0, "evil": EVIL}, name=EVIL))
    said = {300: [EVIL, f"ValueError: {EVIL}"]}
    path = tmp_path / "report.html"
    path.write_text(whole_page(results(rows, "__proto__", said=said), EVIL), encoding="utf-8")
    browser.prefer("light")
    browser.resize(1200)
    browser.show(path)
    return browser


def test_nothing_of_the_study_runs_and_nothing_is_asked_for(shown: Browser) -> None:
    shown.run("document.querySelector('.results th:nth-child(4) button').click()")
    assert shown.run("document.title") == "digits – Stoker"
    assert shown.run("document.images.length") == 0
    urls = [told["request"]["url"] for told in shown.told("Network.requestWillBeSent")]
    assert len(urls) == 1, urls
    assert urls[0].startswith("file://")
    assert shown.told("Log.entryAdded") == []
    assert shown.told("Runtime.exceptionThrown") == []


def test_the_policy_would_stop_what_got_through(shown: Browser) -> None:
    shown.run(f"document.body.insertAdjacentHTML('beforeend', `{EVIL}`)")
    shown.run(
        f"{{const s = document.createElement('script'); s.textContent = `{OWNED}`; document.body.append(s)}}"
    )
    assert shown.run("document.title") == "digits – Stoker"
    blocked = {told["requestId"]: told.get("blockedReason") for told in shown.told("Network.loadingFailed")}
    for told in shown.told("Network.requestWillBeSent"):
        assert told["request"]["url"].startswith("file:") or blocked[told["requestId"]] == "csp"
    complaints = [told["entry"]["text"] for told in shown.told("Log.entryAdded")]
    assert any("Content Security Policy" in told for told in complaints), complaints


def test_columns_sort_by_value_and_what_is_unknown_comes_last(shown: Browser) -> None:
    place = shown.run(HEADS).index("__proto__")
    click = f"document.querySelectorAll('.results th button')[{place}].click()"
    shown.run(
        "document.querySelector('.results th button').click()"
    )  # by number, so that nan is among the first
    assert shown.run(COLUMN.format(place))[5:8] == ["294", "nan", "292"]
    shown.run(click)
    assert shown.run(COLUMN.format(place))[:3] == ["1", "2", "3"]
    shown.run(click)
    assert shown.run(COLUMN.format(place))[:3] == ["299", "298", "297"]
    shown.run("document.querySelector('.more').click()")
    assert shown.run(COLUMN.format(place))[-2:] in (["nan", "–"], ["–", "nan"])
    assert shown.run(f"document.querySelectorAll('.results th')[{place}].ariaSort") == "descending"


def test_the_table_is_filtered_by_words_and_conditions(shown: Browser) -> None:
    def wanted(words: str) -> str:
        shown.run(
            f"{{const i = document.querySelector('.controls input'); i.value = {words!r};"
            "i.dispatchEvent(new Event('input'))}"
        )
        told: str = shown.run("document.querySelector('.count').textContent")
        return told

    assert wanted("status=failed") == "1 of 300 trials"
    assert wanted("lr<=0.1") == "10 of 300 trials"
    assert wanted("status~^fail") == "1 of 300 trials"
    assert wanted("status~^(") == "300 trials"  # more is being written
    assert wanted("lr<=0.1 calm") == "5 of 300 trials"
    assert wanted("__proto__>=298") == "2 of 300 trials"
    assert wanted("no such thing") == "0 of 300 trials"
    assert wanted("") == "300 trials"
    assert shown.run("document.querySelectorAll('.results tbody tr').length") == 200


ODD: list[dict[str, Value]] = [
    {"pt": "a", "pb": True, "lr": Spelled("1e-2"), "n": 2**60 + 1},
    {"pt": "b", "pb": False, "lr": 0.01, "n": 2**60},
    {"lr": inf, "n": 100_000},
    {"pt": "inf", "lr": 5, "n": -7},
    {"pt": "x y", "pb": True, "lr": "none", "n": 3},
    {"pt": "it's", "lr": nan},
]
LOSSES = [0.49999999999, 0.5, nan, inf, -inf, 1.23456789012345e-7]


@pytest.fixture
def odd(browser: Browser, tmp_path: Path) -> Browser:
    rows = [
        row(n, ODD[n % 6], float(n % 3) or None)._replace(
            trial=trial, metrics={"loss": Numbers(LOSSES[n % 6 - n // 6])}
        )
        for n, trial in enumerate([TrialId(i, n) for i in (1, 2) for n in (1, 2, 5, 10, 11, 100)])
    ]
    path = tmp_path / "report.html"
    path.write_text(whole_page(results(rows)), encoding="utf-8")
    browser.resize(1200)
    browser.show(path)
    browser.rows = rows  # type: ignore[attr-defined]
    return browser


SAME = (
    "trial<10", "trial>=2.5", "trial=1.10", "trial=10", "trial!=2.10", "trial<=2.10", "pt!=a", "pt=a", "pt=",
    "pt!=", "pt>a", "pt=inf", "pt='x y'", "pt!=it's", "pb=True", "pb=true", "pb!=FALSE", "pb=", "loss<0.5",
    "loss<=0.5", "loss>0.49999999998", "loss=inf", "loss=nan", "loss!=nan", "loss<inf", "loss>-inf",
    "loss=-Infinity", "loss>=nan", "lr=0.01", "lr==1e-2", "lr=inf", "lr=nan", "lr>1", "lr=none", "lr!=none",
    "lr<z", "n=1152921504606846977", "n>1152921504606846976", "n=100000", "n=1e5", "n<0", "n=+3",
    "status=finished", "pt=a and loss<0.5",
)  # fmt: skip
CHOOSE = (
    "{{const i = document.querySelector('.controls input'); i.value = {!r};"
    "i.dispatchEvent(new Event('input'))}}"
)


@pytest.mark.parametrize("where", SAME)
def test_a_condition_means_the_same_in_the_page_and_in_a_table(odd: Browser, where: str) -> None:
    odd.run(CHOOSE.format(where))
    table = make(odd.rows, Objective("loss", "min"), ["trial"], where=where)  # type: ignore[attr-defined]
    assert sorted(odd.run(COLUMN.format(0))) == sorted(map(str, table.column("trial")))


@pytest.mark.parametrize("column", ["trial", "loss", "lr", "n", "pb", "status"])
def test_the_page_sorts_as_a_table_does(odd: Browser, column: str) -> None:
    odd.run(CHOOSE.format(""))
    heads = odd.run(HEADS)
    by_trial = f"document.querySelectorAll('.results th button')[{heads.index('trial')}].click()"
    odd.run(by_trial)
    if odd.run(COLUMN.format(0))[0] != "1":
        odd.run(by_trial)
    rows = sorted(odd.rows, key=lambda one: one.trial)  # type: ignore[attr-defined]
    for sort in (column, f"-{column}") if column != "trial" else ("-trial", "trial"):
        odd.run(f"document.querySelectorAll('.results th button')[{heads.index(column)}].click()")
        expected = make(rows, None, ["trial", column], sort)
        found = odd.run(COLUMN.format(0))
        known = len([cell for cell in expected.column(column) if cell is not None and cell == cell])  # noqa: PLR0124
        if sort.startswith("-") or column == "trial":  # what is alike may stand as it stood before
            cells = dict(zip(expected.column("trial"), map(str, expected.column(column)), strict=True))
            assert [cells[one] for one in found][:known] == list(map(str, expected.column(column)))[:known]
        else:
            assert found[:known] == expected.column("trial")[:known]


def test_numbers_are_shown_short(odd: Browser) -> None:
    odd.run(CHOOSE.format("loss<0.5 loss>0"))
    heads = odd.run(HEADS)
    assert set(odd.run(COLUMN.format(heads.index("loss")))) == {"0.5", "1.2346e-7"}
    odd.run(CHOOSE.format("trial=1 0.49999999999"))
    assert odd.run(COLUMN.format(heads.index("lr"))) == ["1e-2"]
    odd.run(CHOOSE.format("n=100000"))
    assert set(odd.run(COLUMN.format(heads.index("n")))) == {"100000"}


def test_paper_says_what_is_left_out(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(whole_page(results([row(n, {"a": n}, 1.0 + n) for n in range(1, 1500)])), "utf-8")
    browser.show(path)
    cut = "document.querySelector('.cut')"
    assert browser.run(f"getComputedStyle({cut}).display") == "none"
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('.results tbody tr').length") == 1000
    assert browser.run(f"{cut}.textContent") == "The first 1,000 of 1,499 trials."
    browser.prefer("light", media="print")
    assert browser.run(f"getComputedStyle({cut}).display") == "block"
    browser.prefer("light")
    browser.run(CHOOSE.format("a<=3"))
    assert browser.run(f"{cut}.textContent").strip() == "3 of 1,499 trials were chosen: a<=3"


def test_it_fits_narrow_windows_and_paper(shown: Browser) -> None:
    for width in (400, 800, 1600):
        shown.resize(width)
        assert shown.run("document.documentElement.scrollWidth") <= width
    shown.prefer("dark", media="print")
    assert shown.run("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert shown.run("getComputedStyle(document.querySelector('.controls')).display") == "none"


def test_the_dark_is_dark(shown: Browser) -> None:
    ink = "getComputedStyle(document.querySelector('.f-main')).fill"
    light = shown.run(ink)
    shown.prefer("dark")
    assert shown.run("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 24, 31)"
    assert shown.run(ink) != light


def test_a_mark_tells_what_it_is(shown: Browser) -> None:
    over = "new PointerEvent('pointerover', {bubbles: true})"
    shown.run(f"document.querySelector('circle').dispatchEvent({over})")
    assert "__proto__" in shown.run("document.querySelector('.tip').textContent")
    assert shown.run("document.querySelector('.tip').hidden") is False
