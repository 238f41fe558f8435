from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging_samples import EXPECTATIONS, reply

from pytest_agentbench.judging.verdicts import aggregate, bar_of, combine, parse_verdict
from pytest_agentbench.records.case import Expectations
from pytest_agentbench.records.evaluation import JudgeIteration, Scored
from pytest_agentbench.records.run import Usage

METHODS = ("median", "mean", "majority_vote", "all_pass")
scores = st.floats(0, 10)
methods = st.sampled_from(METHODS)


def iteration(score: float, number: int = 1, run: str = "main", **fields) -> JudgeIteration:
    verdict = parse_verdict(_json(reply(score, **fields.pop("dimensions", {}))), Expectations())
    given = {"judge_run_id": run, "judge_id": "j", "model": "m", "repetition": number, "status": "success"}
    return JudgeIteration(**given, verdict=fields.pop("verdict", verdict), **fields)


def failed(number: int = 1, run: str = "main", status: str = "invalid_output", **fields) -> JudgeIteration:
    given = {"judge_run_id": run, "judge_id": "j", "model": "m", "repetition": number}
    return JudgeIteration(**given, status=status, error="no JSON", **fields)


def iterations(*values: float, run: str = "main") -> list[JudgeIteration]:
    return [iteration(value, number, run) for number, value in enumerate(values, start=1)]


def _json(value: object) -> str:
    import json

    return json.dumps(value)


@given(methods, st.lists(scores, min_size=1), scores, st.randoms())
def test_the_order_of_scores_does_not_matter(method, values, bar, shuffler):
    shuffled = list(values)
    shuffler.shuffle(shuffled)
    assert combine(method, shuffled, bar) == combine(method, values, bar)


@given(methods, st.lists(scores, min_size=1), scores)
def test_the_result_is_between_the_lowest_and_the_highest_score(method, values, bar):
    assert min(values) <= combine(method, values, bar) <= max(values)


@given(methods, scores, st.integers(1, 9), scores)
def test_equal_scores_are_unchanged(method, value, count, bar):
    assert combine(method, [value] * count, bar) == value


@given(st.lists(scores, min_size=1), scores)
def test_median_mean_and_all_pass_are_what_they_are_called(values, bar):
    assert combine("all_pass", values, bar) == min(values)
    assert combine("median", values, bar) == pytest.approx(statistics.median(values))
    assert combine("mean", values, bar) == pytest.approx(statistics.mean(values))


@given(st.lists(scores, min_size=1), scores)
def test_the_majority_decides_and_ties_fail(values, bar):
    passing = sum(value >= bar for value in values)
    assert (combine("majority_vote", values, bar) >= bar) == (passing > len(values) - passing)


def test_the_majority_scores_alone():
    assert combine("majority_vote", [8, 9, 1], 5) == 8.5
    assert combine("majority_vote", [9, 2, 1], 5) == 1.5
    assert combine("majority_vote", [9, 1], 5) == 1
    assert combine("majority_vote", [5, 5, 0], 5) == 5


@pytest.mark.parametrize(("threshold", "bar"), [(0.07, 0.7), (0.57, 5.7), (0.8, 8), (0.29, 2.9), (0, 0), (1, 10)])
def test_a_threshold_is_a_fraction_of_the_scale(threshold, bar):
    assert bar_of(threshold) == bar
    assert aggregate(iterations(bar), pass_threshold=threshold).passed
    assert bar == 0 or not aggregate(iterations(bar - 0.001), pass_threshold=threshold).passed


def test_half_the_scale_is_the_bar_where_none_is_named():
    assert aggregate(iterations(5)).passed
    assert not aggregate(iterations(4.99)).passed
    assert aggregate(iterations(6, 6, 1), method="majority_vote").overall == 6


def test_each_judge_run_is_aggregated_alone_first():
    many, one = iterations(2, 2, 2, run="many"), iterations(8, run="one")
    assert aggregate(many + one, method="mean").overall == 5
    assert aggregate(many + one, method="median").overall == 5
    assert aggregate(many + one, method="all_pass").overall == 2
    assert aggregate(many + one, method="majority_vote").overall == 2


def test_dimensions_are_aggregated_like_the_overall_score():
    result = aggregate(
        [iteration(8, 1, dimensions={"task": 2, "spark": 9}), iteration(8, 2, dimensions={"task": 4, "spark": 9})],
        method="mean",
        pass_threshold=0.5,
    )
    assert result.dimensions["task"] == 3
    assert result.dimensions["spark"] == 9
    assert result.failed_dimensions == ("task",)
    assert result.passed


def test_failures_are_kept_and_count_for_nothing():
    result = aggregate([failed(1), *iterations(8), failed(2, "other", "provider_error")], method="all_pass")
    assert (result.overall, result.sampled, len(result.iterations)) == (8, 1, 3)


def test_nothing_is_made_of_nothing():
    with pytest.raises(ValueError, match="no iteration succeeded"):
        aggregate([failed()])


@given(st.lists(scores, min_size=1, max_size=8), st.integers(1, 8), st.text())
def test_a_sample_is_the_same_every_time_and_as_large_as_it_can_be(values, size, seed):
    made = iterations(*values)
    first = aggregate(made, method="mean", sample_sizes={"main": size}, seed=seed)
    again = aggregate(made[::-1], method="mean", sample_sizes={"main": size}, seed=seed)
    assert first.overall == again.overall
    assert first.sampled == min(size, len(values))
    assert min(values) <= first.overall <= max(values)


def test_samples_are_of_the_successful_iterations_and_depend_on_the_seed():
    made = [failed(9), *iterations(1, 2, 3, 4, 5, 6)]
    found = {aggregate(made, sample_sizes={"main": 1}, seed=str(seed)).overall for seed in range(60)}
    assert found == {1, 2, 3, 4, 5, 6}


def expecting(first: float, second: float, soft: float, number: int = 1) -> JudgeIteration:
    answer = reply(8, EXPECTATIONS)
    for verdict, met in zip(answer["expectations"], (first, second, soft), strict=True):
        verdict["met"] = met
    return iteration(8, number, verdict=parse_verdict(_json(answer), EXPECTATIONS))


def test_expectations_are_a_weighted_mean_and_never_change_the_score():
    result = aggregate([expecting(1, 0.5, 0)], expectations=EXPECTATIONS)
    assert result.expectations == pytest.approx((1 + 3 * 0.5 + 0) / 4.5)
    assert result.unmet_hard == ("Says why.",)
    assert (result.overall, result.passed) == (8, True)


def test_expectations_are_aggregated_over_iterations():
    made = [expecting(1, 1, 0, 1), expecting(1, 1, 1, 2), expecting(0, 1, 1, 3)]
    assert aggregate(made, expectations=EXPECTATIONS).unmet_hard == ()
    assert aggregate(made, method="all_pass", expectations=EXPECTATIONS).unmet_hard == ("Says 4.",)


def test_no_expectations_no_share_of_them():
    assert aggregate(iterations(8)).expectations is None
    weightless = Expectations.model_validate({"soft_expectations": [{"text": "x", "weight": 0}]})
    verdict = parse_verdict(_json(reply(8, weightless)), weightless)
    assert aggregate([iteration(8, verdict=verdict)], expectations=weightless).expectations is None


def test_the_summary_is_of_the_verdict_nearest_to_the_result():
    assert aggregate(iterations(1, 7, 9)).summary == "Overall 7."


def test_usage_adds_up_over_all_replies_and_unknown_stays_unknown():
    known = Usage(input_tokens=10, output_tokens=2, total_tokens=12, cost_usd=0.5)
    made = [iteration(8, 1, usage=known), failed(2, usage=known), failed(3, status="provider_error")]
    usage = aggregate(made).usage
    assert (usage.input_tokens, usage.cost_usd) == (20, 1.0)
    assert aggregate([*made, iteration(8, 4)]).usage.cost_usd is None


def test_criteria_are_aggregated_with_the_evidence_of_the_nearest_verdict_that_has_them():
    votes = [iteration(8, number) for number in (1, 2, 3, 4)]
    scores = [Scored(score=score, evidence=(f"because of {score}",)) for score in (2, 7, 9)]
    judged = [
        vote.model_copy(update={"verdict": vote.verdict.model_copy(update={"criteria": {"Truth": score}})})
        for vote, score in zip(votes, scores, strict=False)
    ]
    assert aggregate([*judged, votes[3]]).criteria == {"Truth": Scored(score=7, evidence=("because of 7",))}
    assert aggregate(votes).criteria == {}
