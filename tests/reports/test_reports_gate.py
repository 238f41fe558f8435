from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_samples import make_row

from pytest_agentbench.reports.gate import Counts, apply_gate, case_failures, count_gated
from pytest_agentbench.reports.report import build_report

small = st.integers(0, 50)


@given(small, small, small, small, st.floats(0, 1), st.floats(0, 1))
def test_passes_exactly_where_rate_and_completion_reach_what_is_wanted(passed, failed, errors, skipped, under, least):
    verdict = apply_gate(Counts(passed, failed, errors, skipped), under, least)
    if passed + failed == 0:
        assert verdict.passed is False
    else:
        rate, completion = passed / (passed + failed), (passed + failed) / (passed + failed + errors)
        assert (verdict.pass_rate, verdict.completion) == (rate, completion)
        assert verdict.passed is (rate >= under and completion >= least)
    assert verdict.passed is not bool(verdict.reasons)


def test_without_a_threshold_there_is_no_verdict():
    verdict = apply_gate(Counts(passed=1, failed=3), None, other_failures=["tests/test_x.py failed."])
    assert (verdict.passed, verdict.pass_rate, verdict.reasons) == (None, 0.25, ())


def test_reasons_of_a_failed_gate_are_sentences():
    verdict = apply_gate(
        Counts(passed=6, failed=2, errors=4), 0.8, other_failures=["cases/bad/test.yaml was not collected."]
    )
    assert verdict.reasons == (
        "Pass rate 0.750 is below 0.800: 6 of 8 judged runs passed.",
        "Completion 0.667 is below 0.950: 4 of 12 runs ended in infrastructure errors and were not judged.",
        "cases/bad/test.yaml was not collected.",
    )


def test_an_outage_fails_the_gate_instead_of_passing_it():
    verdict = apply_gate(Counts(errors=12, skipped=1), 0.0)
    assert verdict.passed is False
    assert "12 ended in infrastructure errors, 1 were skipped" in verdict.reasons[0]


def test_near_misses_are_printed_with_enough_digits():
    verdict = apply_gate(Counts(passed=79999, failed=20001), 0.8)
    assert verdict.reasons[0].startswith("Pass rate 0.79999 is below 0.80000:")


def test_exact_fractions_reach_the_gate():
    assert all(apply_gate(Counts(passed=n, failed=100 - n), float(f"0.{n:02d}")).passed for n in range(100))


def cases(*rows):
    return build_report(rows, {})["cases"]


def test_failed_must_pass_cases_and_thresholds_are_reported():
    limits = {"pass_rate": 0.9, "pass_hat_k": 1.0}
    rows = [make_row("failed" if n == 3 else "passed", "flaky", repetition=n, thresholds=limits) for n in (1, 2, 3)]
    rows += [make_row("error", "vital", must_pass=True), make_row("skipped", "absent", must_pass=True)]
    rows += [make_row("error", "dark", thresholds={"pass_rate": 0.5})]
    assert case_failures(cases(*rows)) == [
        "flaky [gpt4o] has a pass rate of 0.667, below its threshold 0.900.",
        "flaky [gpt4o] has a pass^k of 0.000, below its threshold 1.000.",
        "vital [gpt4o] must pass: 0 of 1 runs passed.",
        "dark [gpt4o] has no pass rate (0.500 is wanted): no verdict on any of 1 runs.",
    ]


@pytest.mark.parametrize("fields", [{}, {"must_pass": True}, {"thresholds": {"pass_rate": 0.5}}])
def test_a_case_that_meets_its_limits_is_not_reported(fields):
    assert case_failures(cases(make_row(**fields))) == []


def test_a_threshold_of_its_own_replaces_passing_every_time():
    rows = [
        make_row(o, repetition=n, must_pass=True, thresholds={"pass_rate": 0.5})
        for n, o in ((1, "passed"), (2, "failed"))
    ]
    assert case_failures(cases(*rows)) == []


def test_quarantined_cases_have_no_limits_and_blocking_ones_must_pass():
    quarantined = make_row("failed", "moody", thresholds={"pass_rate": 0.5})
    rows = [{**quarantined, "policy": "quarantined"}, {**make_row("failed", "sure"), "policy": "blocking"}]
    assert case_failures(cases(*rows)) == ["sure [gpt4o] is blocking: 0 of 1 runs passed."]
    assert count_gated(rows) == Counts(failed=1)
