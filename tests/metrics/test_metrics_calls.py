"""The metric `calls_match`: tool calls and calls in Python against accepted ones."""

from __future__ import annotations

import pytest
from support.cpu_seconds import at_most
from support.tool_use_runs import called, run, task

from pytest_agentbench.metrics.calls import calls_match, read_calls
from pytest_agentbench.metrics.registry import METRICS, measure_trace, takes_trace
from pytest_agentbench.records.case import MetricSpec

CASE = task()
AREA = {"geometry.area": {"base": [10, 12], "unit": ["cm", ""]}}


def score(calls, text):
    return calls_match(CASE, run(answer=text), calls=calls)


@pytest.mark.parametrize(
    ("calls", "text", "right"),
    [
        ([AREA], "[geometry.area(base=10)]", True),
        ([AREA], "geometry.area(base=12, unit='cm')", True),
        ([AREA], "geometry_area(base=10)", True),
        ([AREA], "```python\n[geometry.area(base=10.0)]\n```", True),
        ([AREA], "<think>area(base=3)</think>geometry.area(base=10)", True),
        (AREA, "[geometry.area(base=10)]", True),
        ([AREA], "[geometry.area(base=11)]", False),
        ([AREA], "[geometry.area(base='10')]", False),
        ([AREA], "[geometry.area(base=-10)]", False),
        ([AREA], "[geometry.area(base=True)]", False),
        ([AREA], "[geometry.area(unit='cm')]", False),
        ([AREA], "[geometry.area(base=10, unit='m')]", False),
        ([AREA], "[geometry.area(base=10, colour='red')]", False),
        ([AREA], "[geometry.area(10)]", False),
        ([AREA], "[geometry.area(**{'base': 10})]", False),
        ([AREA], "[geometry.volume(base=10)]", False),
        ([AREA], "[geometry.area(base=10), geometry.area(base=10)]", False),
        ([AREA], "The area is 10.", False),
        ([AREA], "", False),
        # any order, each expected call by a call of its own
        ([{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}], "[f(a=1), f(a=2)]", True),
        ([{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}], "[f(a=2), f(a=1)]", True),
        ([{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}], "f(a=2)\nf(a=2)", False),
        ([{"f": {}}, {"g": {}}], "g()\nf()", True),
        ([{"f": {}}, {"g": {}}], "f(), f()", False),
        # no call
        ([], "There is none.", True),
        (None, "There is none.", True),
        ([], "[f(a=1)]", False),
        # values
        ([{"f": {"a": ["New York"]}}], "f(a='new-york')", True),
        ([{"f": {"a": ["New York"]}}], "f(a='York')", False),
        ([{"f": {"a": [[1, 2]]}}], "f(a=[1, 2])", True),
        ([{"f": {"a": [[1, 2]]}}], "f(a=(1, 2))", True),
        ([{"f": {"a": [[1, 2]]}}], "f(a=[2, 1])", False),
        ([{"f": {"a": [[1, 2]]}}], "f(a=[1])", False),
        ([{"f": {"a": [True]}}], "f(a=true)", True),
        ([{"f": {"a": [True]}}], "f(a=1)", False),
        ([{"f": {"a": [None]}}], "f(a=None)", True),
        ([{"f": {"a": [{"x": [1, 2], "y": ["z", ""]}]}}], "f(a={'x': 2})", True),
        ([{"f": {"a": [{"x": [1, 2], "y": ["z", ""]}]}}], "f(a={'x': 2, 'y': 'z'})", True),
        ([{"f": {"a": [{"x": [1, 2], "y": ["z", ""]}]}}], "f(a={'y': 'z'})", False),
        ([{"f": {"a": [{"x": [1, 2]}]}}], "f(a={'x': 1, 'w': 1})", False),
        ([{"f": {"a": [[{"x": [1]}, {"x": [2]}]]}}], "f(a=[{'x': 1}, {'x': 2}])", True),
        ([{"f": {"a": ["x + y"]}}], "f(a=x + y)", True),
        ([{"f": {"a": [r"\d+"]}}], r"f(a='\d+')", True),
    ],
)
def test_calls_in_python_are_compared(calls, text, right):
    assert score(calls, text).score == float(right)


@pytest.mark.parametrize(("base", "right"), [(10, 1.0), (11, 0.0)])
def test_tool_calls_come_before_text(base, right):
    call = called("geometry.area").model_copy(update={"arguments": {"base": base}})
    measured = calls_match(CASE, run(call, answer="[geometry.area(base=12)]"), calls=[AREA])
    assert (measured.score, measured.details["found"]) == (right, 1)


@pytest.mark.parametrize(
    ("calls", "text", "problem"),
    [
        ([AREA], "f()\ng()", "found 2 calls, expected 1"),
        ([AREA], "f()", "found a call of 'f', expected 'geometry.area'"),
        ([AREA], "geometry.area(1)", "geometry.area: found arguments without names, or that are no JSON object"),
        ([AREA], "geometry.area(base=1)", "geometry.area: base: found '1', expected one of [10, 12]"),
        ([AREA], "geometry.area(b=1)", "geometry.area: found an argument 'b' that is not expected"),
        ([AREA], "geometry.area()", "geometry.area: found no argument 'base'"),
    ],
)
def test_the_details_name_the_first_problem(calls, text, problem):
    assert score(calls, text).details["reason"] == problem


@pytest.mark.parametrize("calls", ["f()", [1], ["f()"], [{"f": [1]}], [{}]])
def test_expected_calls_of_another_form_are_errors_and_no_zero(calls):
    found = measure_trace(MetricSpec(name="calls_match", args={"calls": calls}), CASE, run(answer="f()"), METRICS)
    assert found.score is None
    assert "calls_match: found the expected call" in found.error


@pytest.mark.parametrize(
    "text",
    [
        *("(" * 5000, "f(" * 5000, "-" * 15_000 + "1", "a." * 9000 + "b()", "not " * 4000 + "1", "[" * 90 + "]" * 90),
        *("f(a=" + "9" * 10_000 + ")", "import os", "x = f()", "f(a=1) if y else g()", "f'{f()}'", "f() + g()"),
        *("\0", "`" * 9000),
    ],
)
def test_hostile_texts_are_no_calls_and_take_no_time(text):
    with at_most(2):
        assert read_calls(text) == []


def test_a_text_that_is_too_long_is_not_read():
    assert read_calls("f(a='" + "x" * 30_000 + "')") == []


def test_it_looks_at_runs():
    assert takes_trace(METRICS["calls_match"])
