"""Checks that compare the answer with a text, and checks that combine others."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pytest_agentbench.checks.base import Verdict
from pytest_agentbench.checks.run import BUILTIN_CHECKS
from pytest_agentbench.records.check_specs import MAX_NESTING, Check


@pytest.mark.parametrize(
    ("kind", "text", "outcome"),
    [
        ("contains", "x. (y", "passed"),
        ("contains", "X. (Y", "failed"),
        ("icontains", "X. (Y", "passed"),
        ("icontains", "STRASSE", "passed"),
        ("not_contains", "Straße", "failed"),
        ("not_contains", "strasse", "passed"),
        ("starts_with", "x. ", "passed"),
        ("starts_with", "Straße", "failed"),
        ("equals", "x. (y\nStraße", "passed"),
        ("equals", "x. (y", "failed"),
    ],
)
def test_a_text_is_compared_literally(check, kind, text, outcome):
    assert check(kind, text=text, output="x. (y\nStraße").outcome == outcome


def test_a_text_check_reads_a_file_and_needs_an_answer(check, workspace):
    workspace.write_text("a.txt", "Paris")
    result = check("equals", text="Paris", path="a.txt")
    assert (result.outcome, result.message) == ("passed", "a.txt in the workspace is the text")
    assert check("not_contains", text="Rome", path="b.txt").outcome == "failed"
    result = check("not_contains", text="Rome", output=None)
    assert (result.outcome, result.message) == ("failed", "there is no final output")


def test_a_failed_text_check_shows_the_expected_and_the_actual_text(check):
    long = "-" * 1000
    result = check("not_contains", text="Rome", output=f"{long} in Rome, {long}")
    assert (result.expected, "in Rome, ---" in result.actual) == ("not Rome", True)
    result = check("starts_with", text="Yes", output=f"No. {long}")
    assert (result.expected, result.actual[:6]) == ("Yes", "No. --")
    result = check("equals", text="a b", output="a  b\n")
    assert result.message == "the final output differs from the text in white space only"
    assert (result.expected, result.actual) == ("'a b'", "'a  b\\n'")


PARIS, ROME = {"kind": "contains", "text": "Paris"}, {"kind": "icontains", "text": "Rome"}
ERROR = {"kind": "json_path_equals", "json_path": "$.[", "value": 1}


@pytest.mark.parametrize(
    ("kind", "checks", "outcome"),
    [
        ("any_of", [ROME, PARIS], "passed"),
        ("any_of", [ROME, {"kind": "file_exists", "path": "x"}], "failed"),
        ("any_of", [ERROR, PARIS], "passed"),
        ("any_of", [ERROR, ROME], "error"),
        ("all_of", [PARIS, {"kind": "not", "check": ROME}], "passed"),
        ("all_of", [PARIS, ROME], "failed"),
        ("all_of", [ERROR, ROME], "failed"),
        ("all_of", [ERROR, PARIS], "error"),
        ("all_of", [PARIS, {"kind": "metric", "name": "exact_match", "reference": "Paris"}], "failed"),
    ],
)
def test_checks_are_combined(check, kind, checks, outcome):
    assert check(kind, checks=checks, output='{"city": "Paris"}').outcome == outcome


def test_not_turns_a_verdict_around_and_keeps_an_error(check):
    assert check("not", check=ROME).outcome == "passed"
    assert check("not", check={"kind": "file_exists", "path": "x"}).outcome == "passed"
    result = check("not", check=PARIS, output="In Paris.")
    assert (result.outcome, result.expected, result.actual) == ("failed", "not Paris", "In Paris.")
    assert check("not", check=ERROR, output="{}").outcome == "error"


def test_a_failed_combination_names_each_check_with_the_expected_texts(check):
    result = check("any_of", checks=[ROME, {"kind": "tool_called", "name": "look"}], output="Oslo")
    assert result.message == (
        "none of 2 checks passes: icontains: the final output does not contain the text in any letter case; "
        "tool_called: 0 calls of look as described, expected at least 1"
    )
    assert (result.expected, result.actual) == ("Rome or call of look", "Oslo; none")


def test_a_combination_counts_to_the_dimensions_of_its_checks(check):
    checks = [PARIS, {"kind": "max_turns", "count": 3}]
    assert check("any_of", checks=checks).dimensions == ("task", "efficiency")


def test_a_combination_takes_kinds_of_plugins(check):
    kinds = {**BUILTIN_CHECKS, "is_haiku": lambda spec, context: Verdict("passed", f"{spec.lines} lines")}
    inner = {"kind": "is_haiku", "lines": 3}
    assert check("all_of", checks=[inner, {"kind": "not", "check": ROME}], kinds=kinds).outcome == "passed"


def test_predictions_decide_the_checks_of_answers_in_a_combination(check):
    run = {"runner_type": "predictions"}
    called = {"kind": "tool_called", "name": "look"}
    assert check("any_of", checks=[called, PARIS], run=run, output="Paris").outcome == "passed"
    assert check("any_of", checks=[called, ROME], run=run, output="Paris").outcome == "error"


def test_the_levels_of_combinations_are_bounded():
    spec = PARIS
    for _ in range(MAX_NESTING - 1):
        spec = {"kind": "not", "check": spec}
    read = Check.model_validate({"check_id": "c", "declarative": spec})
    assert Check.model_validate(read.model_dump(mode="json")) == read
    with pytest.raises(ValidationError, match="on more than 10 levels"):
        Check.model_validate({"check_id": "c", "declarative": {"kind": "any_of", "checks": [spec]}})
    for _ in range(5000):
        spec = {"kind": "not", "check": spec}
    with pytest.raises(ValidationError, match="on more than 10 levels"):
        Check.model_validate({"check_id": "c", "declarative": spec})
