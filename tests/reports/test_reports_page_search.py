"""The search of the page: which texts it finds, and how many it looks through in time."""

from __future__ import annotations

import re

import pytest
from support.browser import NEEDS_BROWSER, new_page
from support.cpu_seconds import slowness

from pytest_agentbench.reports.html.page import read_static

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

SUBJECT = {
    "texts": [
        "Where is my refund? The investigation of order 88213\nis over.",
        "Größe İstanbul: 30 °C",
        "返品はできますか",
        "find_order timed out",
    ],
    "tags": ["returns", "late-orders"],
    "tools": ["shop__find_order"],
    "ids": ["cases/support.jsonl::refund-7[gpt4o]"],
}


@pytest.fixture(scope="module")
def search(program):
    """A page with the module's functions as `module`."""
    source = re.sub(r"^export ", "", read_static("search.js"), flags=re.MULTILINE)
    names = ", ".join(re.findall(r"^function (\w+)", source, re.MULTILINE))
    with new_page(program) as shown:
        shown.page.evaluate(f"() => {{ {source}; globalThis.module = {{ {names} }}; }}")
        yield shown.page


@pytest.mark.parametrize(
    ("query", "finds"),
    [
        ("", True),
        ("REFUND order", True),
        ("refund parcel", False),
        ("at", False),
        ("*gation", True),
        ('"order 88213 is over"', True),
        ('"refund order"', False),
        ('"my refund', True),
        ("order -parcel", True),
        ("-order", False),
        ('-"my refund"', False),
        ("größe istanbul 30", True),
        ("でき", True),
        ("(", False),
        ("tag:returns tag:late", True),
        ("tag:refund", False),
        ("-tag:returns", False),
        ("tool:find_order", True),
        ("order tool:shop id:refund", True),
        ("id:order", False),
        ("- * tag:", False),
    ],
)
def test_the_search_finds_words_phrases_and_parts(search, query, finds):
    found = search.evaluate(
        "([query, subject]) => module.found(module.parseSearch(query), module.subjectOf(subject))", [query, SUBJECT]
    )
    assert found is finds


@pytest.mark.parametrize(
    ("text", "query", "matches"),
    [
        ("Refunds of refund-7: prefund", "refund", ["Refund", "refund"]),
        ("Refunds of refund-7: prefund", "*fund", ["fund", "fund", "fund"]),
        ("İİ Größe\nGROSS größe", "größe", ["Größe", "größe"]),
        ("a b", "tag:a -b", []),
        ('say "a  b" or "a b"', '"a b"', ["a b"]),
    ],
)
def test_the_words_of_a_search_are_marked(search, text, query, matches):
    parts = search.evaluate(
        "([text, query]) => module.splitMatches(text, module.wordsOf(module.parseSearch(query)))", [text, query]
    )
    assert "".join(part for part, _ in parts) == text
    assert [part for part, matched in parts if matched] == matches


def test_a_long_text_is_shown_from_shortly_before_its_match(search):
    text = "word " * 100 + "needle " + "word " * 100
    start = search.evaluate("(text) => module.fromMatch(text, ['needle'], 100)", text)
    assert re.match(r"…(word ){8,9}needle word", start)
    assert search.evaluate("(text) => module.fromMatch(text, ['needle'], 1000)", text) == text
    assert search.evaluate("(text) => module.fromMatch(text, ['nothing'], 10)", text) == text


def test_ten_thousand_runs_are_searched_in_a_tenth_of_a_second(search):
    milliseconds = search.evaluate(
        """() => {
          const texts = Array.from({ length: 20 }, (_, at) => `text ${at} ` + "says a word or two. ".repeat(30));
          const rest = { tags: ["a"], tools: [], ids: [] };
          const subjects = Array.from({ length: 834 }, () => module.subjectOf({ texts, ...rest }));
          const terms = module.parseSearch('"word or two" says *wor -missing tag:a');
          const begun = performance.now();
          const many = subjects.filter((each) => module.found(terms, each)).length;
          return many === 834 ? performance.now() - begun : null;
        }"""
    )
    assert milliseconds < 100 * slowness()
