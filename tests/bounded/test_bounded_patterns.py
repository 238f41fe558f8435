"""Patterns and queries of others end, even if they would run for ever."""

from __future__ import annotations

import pytest
from support.cpu_seconds import at_most

from pytest_agentbench.bounded.patterns import compile_pattern, search_pattern, select_values

NESTED = "(" * 3_000 + "a" + ")" * 3_000


@pytest.mark.parametrize("pattern", [NESTED, "(?:" * 3_000, "(?=" * 60 + "a" + ")" * 60, "(?x)" + NESTED])
def test_a_pattern_that_nests_too_deep_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"groups inside of one another|more than 20,000 parts"):
        compile_pattern(pattern)


def test_patterns_that_people_write_are_compiled() -> None:
    verbose = "(?x) ^ ( \\d{4} ) - ( \\d{2} )  # year (and month"
    assert search_pattern(verbose, "2024-05", 1)
    assert search_pattern("straße", "STRASSE", 1, ignore_case=True) is None
    assert search_pattern("ANSWER", "the answer", 1, ignore_case=True)
    assert compile_pattern("(" * 50 + ")" * 50)
    with pytest.raises(ValueError, match="which is not a regular expression: missing \\)"):
        compile_pattern("(a")
    with pytest.raises(ValueError, match=r"more than 20,000 parts"):
        compile_pattern("(?x)((((a?){99}){99}){99}){99}#")


def test_a_search_ends_after_its_time() -> None:
    with pytest.raises(TimeoutError):
        search_pattern("^(a|aa)+$", "a" * 60 + "b", 0.1)


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"a": value, "b": [value]}
    return value


QUERIES = {
    "$..*..*..*..*..*": lambda: nested(14),
    "$[?search(@, '(a|aa)+$')]": lambda: ["a" * 60 + "b"] * 10,
    "$[?match(@, '(a|aa)+')]": lambda: ["a" * 60 + "b"] * 10,
    "$[?@..[5000]]": lambda: [[[1] * 100] * 100] * 1_000,
    "$" + "[?@" * 3_000: lambda: [1],
    f"$[?@.a == '{'x' * 20_000}']": lambda: [1],
    f"$[?search(@, '{NESTED}')]": lambda: ["a"],
}


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES, ids=["descents", "search", "match", "filter", "deep", "long", "pattern"])
def test_a_query_that_would_run_for_days_is_an_error(query: str) -> None:
    value = QUERIES[query]()
    with at_most(10), pytest.raises(ValueError, match=r"the query|groups inside"):
        select_values(query, value)


def test_a_query_selects_as_the_library_does() -> None:
    books = [{"title": "Sayings", "price": 8.95}, {"title": "Sword", "price": 12.99}]
    assert select_values("$.store[?@.price < 10].title", {"store": books}) == ["Sayings"]
    assert select_values("$..title", {"store": books}) == ["Sayings", "Sword"]
    assert select_values("$.store[?match(@.title, 'S.*s')].price", {"store": books}) == [8.95]
    assert select_values("$.store[?search(@.title, 'w')].price", {"store": books}) == [12.99]
