from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.browser import NEEDS_BROWSER, browser, contrast, new_page
from support.poet_rows import whole, without_facts

from pytest_agentbench.packs.research.business_report.aggregates import Scored, poet_report
from pytest_agentbench.packs.research.business_report.page import MOST_DOMAINS, Tick, page, place_ticks, place_web
from pytest_agentbench.packs.research.config import PoetConfig

MADE = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
VOID = {"meta", "path", "circle", "line", "polygon", "rect"}
EVIL = "</title></style></script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">'"


class Parsed(HTMLParser):
    """A page's elements as (tag, attributes), the texts by the tag they stand in; every element must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, *tags):
        return " ".join(" ".join(text for tag, text in self.texts if not tags or tag in tags).split())


def scored(rows, model="gpt", **options):
    return Scored(poet_report(rows, model, PoetConfig(), **options), rows)


def html_of(rows, **options):
    return page([scored(rows, **options)], MADE)


def many(n=40):
    domains = ("finance", "law", "health", None)
    return [
        whole(k, 0.3 + (k * 7 % 60) / 100, domain=domains[k % 4], ai_cost_usd=k / 10) if k % 9 else without_facts(k)
        for k in range(n)
    ]


PAGES = {
    "no row": lambda: html_of([]),
    "one row": lambda: html_of([whole(1)]),
    "no score": lambda: html_of([without_facts(1)]),
    "many": lambda: html_of(many()),
    "two models": lambda: page([scored(many()), scored(many(20), "claude")], MADE),
    "nine models": lambda: page([scored(many(5), f"m{k}") for k in range(9)], MADE),
}


@pytest.mark.parametrize("kind", PAGES)
def test_the_page_is_whole_and_asks_nothing_of_elsewhere(kind):
    html = PAGES[kind]()
    parsed = Parsed(html)
    policy = next(meta["content"] for meta in parsed.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert f"{tag}-src 'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    attributes = [(name, value) for _, each in parsed.elements for name, value in each.items()]
    assert not [name for name, _ in attributes if name in ("src", "srcset", "style", "action") or name.startswith("on")]
    assert all(value.startswith("#") for name, value in attributes if name == "href")
    assert "url(" not in html
    assert "@import" not in html


@pytest.mark.parametrize("kind", PAGES)
def test_the_page_can_be_read_without_seeing_it(kind):
    parsed = Parsed(PAGES[kind]())
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for svg in parsed.all("svg"):
        assert svg.get("aria-hidden") == "true" or set(svg["aria-labelledby"].split()) <= set(ids)
    assert all(header.get("scope") in ("col", "row") for header in parsed.all("th"))
    assert all(link["href"].removeprefix("#") in ids for link in parsed.all("a"))
    assert len(parsed.all("h1")) == len(parsed.all("main")) == 1
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_report_is_in_the_table_and_recommendations_lead_to_it():
    parsed = Parsed(html_of(many()))
    rows = [row["id"] for row in parsed.all("tr") if "id" in row]
    assert rows == [f"r{number}" for number in range(40)]
    assert "Complete what is missing: 5 of 40 reports that could be read have no POET score" in parsed.text()
    assert "#r9" in [link["href"] for link in parsed.all("a")]


@pytest.mark.slow
def test_the_page_has_2000_reports_and_stays_small():
    html = html_of(many(2000))
    assert len(Parsed(html).all("circle")) == 4
    assert html.count("<tr id=") == 2000
    assert len(html) < 2_000_000


def test_missing_parts_are_named_and_drawn_as_nothing():
    parsed = Parsed(html_of([without_facts(1, reason="scrape: the site refused")]))
    assert "scrape: the site refused" in parsed.text("td")
    assert "Quality –, Strategic value 0.60" in parsed.text("desc")
    assert "No report has the figures for this chart." in parsed.text("figcaption")


def test_a_part_without_score_breaks_the_web():
    drawn = place_web([0.5, None, 0.5, 1.0])
    assert not drawn.closed
    assert len(drawn.points) == 3
    assert len(drawn.lines) == 2
    assert place_web([1.0, 1.0, 1.0, 1.0]).points == ((0.0, -150.0), (150.0, 0.0), (0.0, 150.0), (-150.0, 0.0))


@pytest.mark.parametrize("highest", [0.0, 5e-324, 1e-12])
def test_an_axis_of_nothing_goes_to_one(highest):
    assert place_ticks(highest, 520.0) == (Tick(0.0, 0.0), Tick(1.0, 520.0))


@given(st.floats(1e-9, 1e9))
def test_ticks_reach_the_highest_value_in_few_round_steps(highest):
    found = place_ticks(highest, 520.0)
    assert found[0] == Tick(0.0, 0.0)
    assert found[-1].at == 520.0
    assert highest <= found[-1].value * (1 + 1e-6) <= highest * 2.6
    assert 2 <= len(found) <= 7


def test_only_the_domains_with_most_reports_are_drawn_and_the_page_says_so():
    rows = [whole(k, domain=f"d{k % 50}") for k in range(120)]
    parsed = Parsed(html_of(rows))
    assert len(parsed.all("rect")) == MOST_DOMAINS
    assert "The 30 domains with most reports of 50." in parsed.text("figcaption")


def test_models_are_compared_on_the_tasks_that_both_have():
    best = scored([whole(k, 0.5 + k / 10) for k in range(5)], "best")
    other = scored([whole(k, 0.4 + k / 20) for k in range(2, 7)], "other")
    text = Parsed(page([other, best], MADE)).text("td", "th")
    assert "other 3 -0.25 –" in text  # tasks 2, 3, 4: -0.2, -0.25, -0.3


hostile = st.one_of(
    st.sampled_from([EVIL, "{{ 7 * 7 }}", "{% raw %}", "&lt;b&gt;", "\x00\x1b[2J", "\u202egnp", "\ud800", "a\nb", ""]),
    st.text(max_size=30),
)


@pytest.mark.slow
@settings(max_examples=25)
@given(task=hostile, domain=hostile, model=hostile, reason=hostile, lost=hostile)
def test_text_of_rows_adds_no_elements_to_the_page(task, domain, model, reason, lost):
    rows = [
        whole(task, domain=domain, evidence={"race": [reason]}),
        without_facts(f"2{task}", reason=reason, domain=domain),
    ]
    plain = [whole("a", domain="b", evidence={"race": ["c"]}), without_facts("2a", reason="c", domain="b")]
    expected = Parsed(page([scored(plain, "d", lost=["e"])], MADE))
    found = Parsed(page([scored(rows, model, lost=[lost])], MADE))
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in expected.elements]
    assert [set(each) for _, each in found.elements] == [set(each) for _, each in expected.elements]
    assert not {"\x00", "\x1b", "\u202e", "\ud800"} & set(found.text())


@NEEDS_BROWSER
@pytest.mark.slow
def test_a_browser_shows_the_page_sorts_it_by_keyboard_and_runs_nothing_of_others(tmp_path):
    rows = [*many(12), whole(EVIL, 0.99, domain=EVIL, evidence={"race": [EVIL]}), without_facts("x", reason=EVIL)]
    path = tmp_path / "report.html"
    path.write_text(html_of(rows, model=f"gpt {EVIL}"), encoding="utf-8")
    first = "document.querySelector('tr[id] th').textContent"
    with browser() as program, new_page(program) as shown:
        shown.open(path)
        assert shown.page.title().startswith("POET report: gpt </title>")
        assert shown.value("getComputedStyle(document.querySelector('.area')).fillOpacity") == "0.12"
        assert shown.value(first) == "0"
        titles = "Array.from(document.querySelector('tr[id]').closest('table').tHead.rows[0].cells)"
        shown.value(f"{titles}.find((cell) => cell.textContent === 'POET score').firstChild.focus()")
        shown.page.keyboard.press("Enter")
        assert shown.value(first) == EVIL
        assert shown.value("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "descending"
        shown.page.keyboard.press("Enter")
        assert shown.value(first) == "1"
        last = "Array.from(document.querySelectorAll('tr[id]')).at(-1).cells[3].textContent"
        assert shown.value(last) == "–"
        assert shown.value("document.querySelectorAll('script').length") == 1
        assert shown.complaints == []
        assert shown.requests == [path.as_uri()]


@NEEDS_BROWSER
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_texts_have_sufficient_contrast_and_the_page_never_scrolls_sideways(tmp_path, scheme, width):
    path = tmp_path / "report.html"
    path.write_text(html_of([*many(), whole("w" * 300, domain="x" * 300)], model="m" * 300), encoding="utf-8")
    with browser() as program, new_page(program, width=width, color_scheme=scheme) as shown:
        shown.open(path)
        assert not shown.scrolls_sideways()
        for selector in ("body", ".note", "td", "thead th", "svg text", "svg .tick", "main a", ".card dt"):
            assert contrast(shown, selector) >= 4.5, selector
