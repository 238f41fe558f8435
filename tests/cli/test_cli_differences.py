from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.cli.output import ABSENT, find_differences, format_difference

LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4)
)


def lines(a, b):
    return [line for difference in find_differences(a, b) for line in format_difference(difference)]


@pytest.mark.slow
@given(VALUES, VALUES)
def test_equal_values_and_only_they_have_no_differences(a, b):
    assert list(find_differences(a, json.loads(json.dumps(a)))) == []
    if not list(find_differences(a, b)):
        assert a == b


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8))
def test_only_removed_or_added_elements_are_listed(common, added):
    found = list(find_differences(common, [*common, *added]))
    assert [each.b for each in found] == added
    assert all(each.a is ABSENT for each in found)


@given(st.text(), st.text())
def test_texts_that_differ_are_shown_on_lines_of_their_own(a, b):
    told = lines({"x": a}, {"x": b})
    assert bool(told) == (a != b)
    assert all(line.isprintable() for line in told)


def test_true_is_not_one():
    assert lines({"a": 1, "b": [0]}, {"a": True, "b": [False]}) == ["a: 1 -> true", "b[0]: 0 -> false"]


def test_fields_are_named_in_order():
    a = {"b": 1, "a": {"y": 1, "x": [1, {"k": 1}]}}
    b = {"b": 2, "a": {"y": 2, "x": [1, {"k": 2}]}, "c": None}
    assert [each.path for each in find_differences(a, b)] == ["a.x[1].k", "a.y", "b", "c"]


def test_lines_that_differ_are_shown_with_their_number():
    before = "".join(f"line {n} of a long text\n" for n in range(9))
    after = before.replace("line 3 of", "row 3 of").replace("line 7 of a long text\n", "")
    assert lines(before, after) == [
        ":",
        "  @ line 4",
        "  - line 3 of a long text",
        "  + row 3 of a long text",
        "  @ line 8",
        "  - line 7 of a long text",
    ]


def test_a_long_line_is_shown_from_where_it_differs():
    [_, _, old, new] = lines("a" * 500 + "b" * 500, "a" * 500 + "c" * 500)
    assert old == f"  - ...{'a' * 40}{'b' * 120}..."
    assert new == f"  + ...{'a' * 40}{'c' * 120}..."


def test_line_ends_count():
    assert lines("one\r\n" * 20, "one\n" * 20)[1:] != []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("a\n" * 200_000, "b\n" * 200_000),
        (["a"] * 200_000, ["b"] * 200_000),
        ("x" * 10_000_000, "y" * 10_000_000),
    ],
    ids=["many lines", "many elements", "one line"],
)
def test_big_values_take_no_time(a, b):
    found = next(find_differences({"x": a}, {"x": b}))
    told = list(format_difference(found))
    assert len(told) < 50
    assert all(len(line) < 250 for line in told)
