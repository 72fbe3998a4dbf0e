"""The report in a real browser: it works, nothing in it runs that is not ours, and nothing leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
    assert wanted("lr<=0.1 calm") == "5 of 300 trials"
    assert wanted("__proto__>=298") == "2 of 300 trials"
    assert wanted("no such thing") == "0 of 300 trials"
    assert wanted("") == "300 trials"
    assert shown.run("document.querySelectorAll('.results tbody tr').length") == 200


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
