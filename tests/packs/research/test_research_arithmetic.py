"""The formulas of POET and RACE over whatever numbers they may be given."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.packs.research.arithmetic import (
    STRATEGIC_SCORES,
    Expert,
    Interaction,
    clamped,
    complexity_adaptability,
    composite_value,
    cost_saving,
    efficiency,
    interaction_efficiency,
    interaction_strategy,
    quality_value,
    strategic_value,
    time_saving_hours,
    versus_expert,
)
from pytest_agentbench.packs.research.lint import FEWEST, outliers
from pytest_agentbench.packs.research.race_judging import Scored, UnmatchedCriteria, race
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, RaceCriteria
from pytest_agentbench.packs.research.select_queries import QUERY_DIMENSIONS, LackingScores, query_value

scores = st.floats(0, 10)
shares = st.floats(0, 1)
amounts = st.floats(0, 1e6)
maybe = st.none() | shares
NAMES = ("a", "b", "c")


@st.composite
def weights(draw: st.DrawFn, count: int) -> list[float]:
    drawn = draw(st.lists(st.floats(0.01, 1), min_size=count, max_size=count))
    return [each / sum(drawn) for each in drawn]


@st.composite
def judged(draw: st.DrawFn, *, pairwise: bool = True) -> tuple[RaceCriteria, dict[str, list[Scored]]]:
    listed = {
        name: [{"criterion": f"{name} {each}", "weight": w} for each, w in zip(NAMES, draw(weights(3)), strict=True)]
        for name in RACE_DIMENSIONS
    }
    dimension_weight = dict(zip(RACE_DIMENSIONS, draw(weights(4)), strict=True))
    criteria = RaceCriteria(id=1, prompt="p", dimension_weight=dimension_weight, criterions=listed)
    scored = {
        name: [Scored(f"{name} {each}", draw(scores), draw(scores) if pairwise else None) for each in NAMES]
        for name in RACE_DIMENSIONS
    }
    return criteria, scored


@given(judged())
def test_race_is_a_share_and_the_two_reports_shares_sum_to_1(case) -> None:
    criteria, scored = case
    result = race(criteria, scored)
    swapped = {
        name: [replace(each, target=each.reference, reference=each.target) for each in listed]
        for name, listed in scored.items()
    }
    other = race(criteria, swapped)
    pairs = [(result.overall, other.overall)]
    pairs += [(result.dimensions[name], other.dimensions[name]) for name in RACE_DIMENSIONS]
    for mine, theirs in pairs:
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert 0 <= mine <= 1
            assert mine + theirs == pytest.approx(1)


@given(judged(pairwise=False))
def test_pointwise_race_is_the_weighted_mean_of_the_scores_over_10(case) -> None:
    criteria, scored = case
    result = race(criteria, scored)
    expected = sum(
        criteria.dimension_weight[name]
        * sum(c.weight * s.target for c, s in zip(criteria.criterions[name], scored[name], strict=True))
        for name in RACE_DIMENSIONS
    )
    assert result.overall == pytest.approx(expected / 10, abs=1e-9)
    assert result.reference is None
    assert result.weighted_dimensions == pytest.approx(result.overall)


@pytest.mark.slow
@given(judged(), st.randoms(use_true_random=False))
def test_the_order_case_and_blanks_of_a_reply_change_nothing(case, random) -> None:
    criteria, scored = case
    shuffled = {}
    for name, listed in scored.items():
        shuffled[name] = [
            replace(each, criterion=f"  {each.criterion.upper().replace(' ', '   ')} ") for each in listed
        ]
        random.shuffle(shuffled[name])
    result, expected = race(criteria, shuffled), race(criteria, scored)
    assert result.overall == pytest.approx(expected.overall)
    assert result.dimensions == pytest.approx(expected.dimensions)


@given(judged(), st.sampled_from(["drop", "rename", "repeat"]), st.sampled_from(RACE_DIMENSIONS))
def test_a_criterion_that_is_missing_renamed_or_repeated_gives_no_score(case, fault, name) -> None:
    criteria, scored = case
    listed = scored[name]
    changed = {
        "drop": listed[1:],
        "rename": [replace(listed[0], criterion=f"{name} A or so"), *listed[1:]],
        "repeat": [*listed, listed[0]],
    }[fault]
    with pytest.raises(UnmatchedCriteria, match=f"{name} [aA]"):
        race(criteria, {**scored, name: changed})


@given(st.lists(st.integers(0, 100), min_size=4, max_size=4).filter(any), st.lists(st.integers(1, 100), min_size=5))
def test_full_marks_score_at_most_1_for_any_sum_of_weights(dimensions, weights) -> None:
    entries = [{"criterion": str(n), "weight": weight / 100} for n, weight in enumerate(weights)]
    listed = dict.fromkeys(RACE_DIMENSIONS, entries)
    dimension_weight = dict(zip(RACE_DIMENSIONS, (each / 100 for each in dimensions), strict=True))
    criteria = RaceCriteria(id=1, prompt="p", dimension_weight=dimension_weight, criterions=listed)
    for reference in (None, 0.0):
        full = {name: [Scored(str(n), 10.0, reference) for n in range(len(weights))] for name in RACE_DIMENSIONS}
        result = race(criteria, full)
        for score in (result.overall, result.weighted_dimensions, *result.dimensions.values()):
            assert score <= 1
            assert score == pytest.approx(1)


def test_two_reports_without_any_points_have_no_share() -> None:
    listed = {name: [{"criterion": "a", "weight": 1}] for name in RACE_DIMENSIONS}
    criteria = RaceCriteria(id=1, prompt="p", dimension_weight=dict.fromkeys(RACE_DIMENSIONS, 0.25), criterions=listed)
    result = race(criteria, {name: [Scored("a", 0, 0)] for name in RACE_DIMENSIONS})
    assert (result.overall, result.weighted_dimensions, set(result.dimensions.values())) == (None, None, {None})


@given(st.floats(0, 100), amounts, st.none() | st.floats(0, 1000), st.none() | amounts, maybe)
def test_efficiency_is_a_share_or_names_the_missing_data(hours, rate, agent_hours, cost, automation) -> None:
    outcome = efficiency(Expert(hours, rate), hours=agent_hours, cost_usd=cost, automation=automation)
    lacking = [agent_hours, cost, automation].count(None)
    nothing_to_save = (not hours) + (not hours * rate)
    assert len(outcome.missing) == lacking + nothing_to_save
    assert (outcome.score is None) == bool(outcome.missing)
    assert (outcome.time_saving is None) == (agent_hours is None or not hours)
    if outcome.score is not None:
        assert 0 <= outcome.score <= 1
    if agent_hours is not None:
        assert outcome.time_saving_hours == pytest.approx(hours - agent_hours)
    if cost is not None:
        assert outcome.cost_saving_usd == pytest.approx(hours * rate - cost)


@given(st.floats(0.1, 100), st.floats(1, 1e4), st.floats(0, 100), amounts, shares, st.floats(0, 10))
def test_slower_or_dearer_is_never_more_efficient(hours, rate, taken, cost, automation, more) -> None:
    expert = Expert(hours, rate)
    base = efficiency(expert, hours=taken, cost_usd=cost, automation=automation).score
    slower = efficiency(expert, hours=taken + more, cost_usd=cost, automation=automation).score
    dearer = efficiency(expert, hours=taken, cost_usd=cost + more, automation=automation).score
    assert slower <= base + 1e-12
    assert dearer <= base + 1e-12


def test_slower_than_the_expert_saves_no_time_and_takes_nothing_away() -> None:
    """3 hours in place of 2, 50 of 200 USD: 0.4 * 0 + 0.3 * 0.75 + 0.3 * 0.5."""
    outcome = efficiency(Expert(2, 100), hours=3, cost_usd=50, automation=0.5)
    assert (outcome.time_saving, outcome.time_saving_hours, outcome.cost_saving_usd) == (-0.5, -1, 150)
    assert outcome.score == pytest.approx(0.375)
    dearer = efficiency(Expert(2, 100), hours=1, cost_usd=300, automation=0.5)
    assert (dearer.time_saving, dearer.cost_saving_usd) == (0.5, -100)
    assert dearer.score == pytest.approx(0.4 * 0.5 + 0.3 * 0.5)
    assert efficiency(Expert(2, 100), hours=0, cost_usd=0, automation=1).score == pytest.approx(1)
    paid = efficiency(Expert(2, 100), hours=0, cost_usd=-1000, automation=1)  # nobody saves more than all of it
    assert paid.score == 1


def test_a_slower_or_dearer_run_than_the_expert_saves_nothing() -> None:
    task = Interaction(
        expert_time_hours=1, expert_hourly_rate_usd=60, total_duration_seconds=7200, estimated_cost_usd=90
    )
    assert (time_saving_hours(task), cost_saving(task), versus_expert(task)) == (0, 0, 0.5)
    assert interaction_efficiency(task).cost_efficiency == 0
    task = replace(task, total_duration_seconds=900, estimated_cost_usd=15)
    assert (time_saving_hours(task), cost_saving(task), versus_expert(task)) == (0.75, 45, 1)
    assert interaction_efficiency(task).cost_efficiency == pytest.approx(0.75)
    assert versus_expert(replace(task, total_duration_seconds=0)) == 1


def test_a_duration_that_rounds_to_zero_hours_is_not_slower_than_an_expert() -> None:
    """5e-324 seconds are 0 hours to a float."""
    assert versus_expert(Interaction(expert_time_hours=1, total_duration_seconds=5e-324)) == 1
    assert versus_expert(Interaction(expert_time_hours=1, total_duration_seconds=1e-300)) == 1


def test_equal_scores_are_their_own_weighted_mean_despite_rounding() -> None:
    """Of 6, 6, 6 under weights that make 5.999... or 6.000...1 of it."""
    for shares_of in (
        (0.1, 0.2, 0.3, 0.4),
        (0.7, 0.1, 0.1, 0.1),
        (1 / 3, 1 / 3, 1 / 6, 1 / 6),
        (0.15, 0.35, 0.05, 0.45),
    ):
        for number in (0.7, 2.3, 6.1, 9.9, 10):
            listed = {
                name: [{"criterion": each, "weight": w} for each, w in zip("abc", (0.7, 0.2, 0.1), strict=True)]
                for name in RACE_DIMENSIONS
            }
            weighing = dict(zip(RACE_DIMENSIONS, shares_of, strict=True))
            criteria = RaceCriteria(id=1, prompt="p", dimension_weight=weighing, criterions=listed)
            result = race(criteria, {name: [Scored(each, number) for each in "abc"] for name in RACE_DIMENSIONS})
            assert result.overall == number / 10
            assert set(result.dimensions.values()) == {number / 10}


@given(maybe, maybe, maybe, maybe)
def test_the_composite_has_a_value_if_no_part_is_missing(eff, race_score, fact, strategic) -> None:
    score = composite_value(eff, quality_value(race_score, fact), strategic)
    assert (score is None) == (None in (eff, race_score, fact, strategic))
    if score is not None:
        assert score == pytest.approx(0.3 * eff + 0.5 * (0.7 * race_score + 0.3 * fact) + 0.2 * strategic)
        assert 0 <= score <= 1 + 1e-12


def test_quality_needs_both_of_its_parts() -> None:
    assert quality_value(None, 1.0) is None
    assert quality_value(0.5, None) is None
    assert quality_value(0.0, 0.0) == 0


@given(st.fixed_dictionaries(dict.fromkeys(STRATEGIC_SCORES, st.floats(1, 5))))
def test_the_strategic_value_is_between_a_fifth_and_1(given_scores) -> None:
    assert 0.2 - 1e-12 <= strategic_value(given_scores) <= 1 + 1e-12


@given(maybe, st.floats(1, 5), st.floats(0, 10))
def test_tasks_of_less_than_half_an_hour_are_not_complex(quality, difficulty, hours) -> None:
    value = complexity_adaptability(quality, difficulty, hours)
    if quality is None or hours < 0.5:
        assert value is None
    else:
        assert value == pytest.approx(quality * difficulty / 5)


RATES = ("automation_rate", "error_rate", "successful_tool_rate", "coverage_completeness")
COUNTS = [
    each.name for each in fields(Interaction) if each.name not in {*RATES, "model_name", "user_satisfaction_rating"}
]
recorded = {
    **dict.fromkeys(COUNTS, st.none() | st.floats(0, 1e6)),
    **dict.fromkeys(RATES, maybe),
    "user_satisfaction_rating": st.none() | st.floats(1, 5),
}


@given(st.builds(Interaction, **recorded))
def test_interaction_scores_stay_on_their_scales(task: Interaction) -> None:
    parts = interaction_efficiency(task)
    for value in (
        parts.time_efficiency,
        parts.automation_efficiency,
        parts.quality_efficiency,
        parts.cost_efficiency,
    ):
        assert value is None or 0 <= value <= 1
    strategy = interaction_strategy(task)
    for name in strategy.__slots__:
        value = getattr(strategy, name)
        assert value is None or 0 <= value <= (2e6 if name == "created_knowledge_units" else 5)


def test_nothing_recorded_gives_nothing() -> None:
    strategy, parts = interaction_strategy(Interaction()), interaction_efficiency(Interaction())
    assert {getattr(strategy, name) for name in strategy.__slots__} == {None}
    assert {getattr(parts, name) for name in parts.__slots__} == {None}
    assert parts.overall_efficiency is None


@given(st.fixed_dictionaries({each.key: st.integers(1, 5) for each in QUERY_DIMENSIONS}))
def test_the_value_of_a_query_is_between_1_and_5(given_scores) -> None:
    assert 1 <= query_value(given_scores) <= 5
    weighted = sum(given_scores[each.key] * each.weight for each in QUERY_DIMENSIONS)
    assert query_value(given_scores) == pytest.approx(weighted, abs=0.0051)


@given(st.fixed_dictionaries({each.key: st.integers(1, 5) for each in QUERY_DIMENSIONS}), st.integers(0, 6))
def test_a_query_without_one_of_the_seven_has_no_value(given_scores, at) -> None:
    missing = QUERY_DIMENSIONS[at].key
    with pytest.raises(LackingScores, match=missing.replace(".", r"\.")):
        query_value({key: value for key, value in given_scores.items() if key != missing})


@given(st.floats())
def test_clamping(value) -> None:
    assert 0 <= clamped(value) <= 1


@given(st.lists(st.integers(300, 500), min_size=FEWEST, max_size=60))
def test_outliers_do_not_depend_on_the_scores_scale(values) -> None:
    assert outliers([value * 4.0 + 16 for value in values]) == pytest.approx(outliers(values))


def test_one_score_among_equal_ones_is_an_outlier_and_equal_ones_are_none() -> None:
    assert set(outliers([0.4] * 19 + [0.9])) == {19}
    assert outliers([0.4] * 20) == {}
    assert outliers([0.4] * (FEWEST - 2) + [0.9]) == {}
