"""The one rule by which commands find the run that a user names."""

from __future__ import annotations

import pytest

from pytest_agentbench.reports.run_names import describe_mismatch, match_runs

RUNS = {
    "cases/one/test.yaml::one[gpt]": "one",
    "cases/one/test.yaml::one[claude]": "one",
    "cases/one_more/test.yaml::one_more[gpt]": "one_more",
    "test_agent.py::test_capital[gpt-paris]": "capital",
}


@pytest.mark.parametrize(
    ("name", "matches"),
    [
        ("cases/one/test.yaml::one[gpt]", [0]),
        ("cases/one/test.yaml::one", [0, 1]),
        ("one[claude]", [1]),
        ("one", [0, 1]),
        ("one_more", [2]),
        ("capital", [3]),
        ("more", [2]),
        ("gpt", [0, 2, 3]),
        ("two", []),
    ],
)
def test_the_most_exact_rule_with_a_match_decides(name, matches):
    assert match_runs(name, RUNS) == [list(RUNS)[index] for index in matches]


def test_the_error_lists_the_matches_or_else_all_runs():
    several = describe_mismatch("one", [*RUNS][:2], [*RUNS])
    assert several == "\n  ".join(["found 2 runs 'one', expected one; give its node id:", *[*RUNS][:2]])
    assert describe_mismatch("x", [], [f"case{i}" for i in range(30)]).splitlines()[-2:] == [
        "  case19",
        "  ... and 10 more",
    ]
    assert describe_mismatch("x", [], []) == "found no run 'x', and no other one"
