from __future__ import annotations

import random
import re

import pytest
from support.poet_rows import whole, without_facts

from pytest_agentbench.packs.research.business_report.figures import read_thresholds
from pytest_agentbench.packs.research.business_report.recommendations import RULES, recommendations
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS

THRESHOLDS = read_thresholds(PoetConfig())


def found(rows, language="en"):
    return {each.rule: each for each in recommendations(rows, THRESHOLDS, language)}


def cited(task_id, supported, unsupported, unknown=0):
    counts = {"citations_supported": supported, "citations_unsupported": unsupported, "citations_unknown": unknown}
    if not supported + unsupported:
        return without_facts(task_id, reason="it has no citations", **counts)
    return whole(task_id, fact_accuracy=supported / (supported + unsupported), **counts)


def dimensions(task_id, insight, others=0.5):
    return whole(task_id, race_dimensions={**dict.fromkeys(RACE_DIMENSIONS, others), "insight": insight})


INSIGHTS = (0.30, 0.32, 0.34, 0.36, 0.38)
MARKETING = [whole(n, 0.42 + n / 100, domain="marketing") for n in range(5)]
OUTLIER = [*(whole(n, 0.41 + n / 100, domain="tax") for n in range(10, 14)), whole(99, 1.0, domain="tax")]
ELSEWHERE = [whole(n, 0.7 + n / 100) for n in range(10, 15)]

EXAMPLES = {
    "incomplete": [whole(1), without_facts(2)],
    "unfit": [whole(1, 0.39), whole(2, 0.4)],
    "inaccurate_citations": [cited(1, 5, 4), cited(2, 0, 1)],
    "unreadable_citations": [cited(1, 7, 0, 1), cited(2, 5, 0, 4)],
    "uncited": [cited(1, 1, 0), cited(2, 0, 0)],
    "slower": [whole(1), whole(2, time_saving_hours=-1.5), whole(3, time_saving_hours=-2)],
    "dearer": [whole(1), whole(2, cost_saving_usd=-0.25)],
    "attended": [whole(1), whole(2, automation_rate=0.5)],
    "weakest_dimension": [dimensions(n, insight) for n, insight in enumerate(INSIGHTS)],
    "weak_domain": MARKETING + ELSEWHERE,
    "unused_knowledge": [whole(n, knowledge_units_reused=0) for n in range(5)],
}


def test_reports_without_a_fault_get_no_recommendation():
    assert not found([whole(n, 0.9) for n in range(30)])


def test_no_report_gets_none_either():
    assert not found([])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_rule_has_its_numbers_and_tasks(rule, language):
    advice = found(EXAMPLES[rule], language)[rule]
    assert re.search(r"\d", advice.text)
    assert advice.numbers
    assert set(advice.task_ids) <= {row.task_id for row in EXAMPLES[rule]}
    assert advice.task_ids


@pytest.mark.parametrize(
    ("rule", "numbers", "tasks"),
    [
        ("incomplete", {"n": 1, "of": 2}, (2,)),
        ("unfit", {"n": 1, "of": 2, "threshold": 0.4}, (1,)),
        ("inaccurate_citations", {"supported": 5, "known": 10, "accuracy": 0.5, "threshold": 0.6}, (2, 1)),
        ("unreadable_citations", {"unknown": 5, "cited": 17, "share": 5 / 17}, (2, 1)),
        ("uncited", {"n": 1, "of": 2}, (2,)),
        ("slower", {"n": 2, "of": 3, "hours": 3.5}, (3, 2)),
        ("dearer", {"n": 1, "of": 2, "usd": 0.25}, (2,)),
        ("attended", {"n": 1, "of": 2, "threshold": 0.6}, (2,)),
        ("unused_knowledge", {"units": 10, "n": 5}, (0, 1, 2, 3, 4)),
    ],
)
def test_numbers_and_tasks_are_those_of_the_rows_the_worst_first(rule, numbers, tasks):
    advice = found(EXAMPLES[rule])[rule]
    assert advice.numbers == pytest.approx(numbers)
    assert advice.task_ids == tasks


def test_the_weakest_dimension_comes_with_the_interval_of_its_distance():
    advice = found(EXAMPLES["weakest_dimension"])["weakest_dimension"]
    half = 4.314700 * (0.001 / 5) ** 0.5  # t with 4 degrees of freedom at 1 - 0.025 / 4, variance 0.001
    expected = {"mean": 0.34, "distance": -0.16, "low": -0.16 - half, "high": -0.16 + half, "n": 5}
    assert {name: advice.numbers[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert advice.numbers["dimension"] == "insight"
    assert advice.task_ids == (0, 1, 2, 3, 4)


def test_a_weak_domain_is_compared_with_all_other_reports():
    advice = found(EXAMPLES["weak_domain"])["weak_domain"]
    assert (advice.numbers["domain"], advice.numbers["n"], advice.numbers["n_rest"]) == ("marketing", 5, 5)
    assert advice.numbers["rest"] == pytest.approx(0.82)
    assert "elsewhere 0.82 (n = 5)" in advice.text
    half = 2.751524 * (2 * 0.00025 / 5) ** 0.5  # t with 8 degrees of freedom at 1 - 0.025 / 2, variances 0.00025
    assert (advice.numbers["low"], advice.numbers["high"]) == pytest.approx((-0.38 - half, -0.38 + half), abs=1e-5)


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("inaccurate_citations", [cited(1, 4, 5)]),
        ("unreadable_citations", [cited(1, 4, 0, 5)]),
        ("weakest_dimension", EXAMPLES["weakest_dimension"][:4]),
        ("weakest_dimension", [dimensions(n, value) for n, value in enumerate((0.1, 0.9, 0.2, 0.8, 0.4))]),
        ("weak_domain", MARKETING + ELSEWHERE[:4]),
        ("weak_domain", MARKETING[:4] + ELSEWHERE),
        ("unused_knowledge", EXAMPLES["unused_knowledge"][:4]),
        ("uncited", [without_facts(1)]),
        ("uncited", [cited(1, 0, 0).model_copy(update={"citations_unknown": None})]),
        ("weak_domain", MARKETING[:4] + [whole(9, 0.43)] + [whole(n, 0.43 + n / 1000) for n in range(10, 14)]),
        ("weak_domain", [whole(n, 0.5 + n / 1000, domain="law" if n % 2 else "tax") for n in range(200)]),
        ("weak_domain", [whole(n, 0.50 + n / 100, domain="law") for n in range(5)] + OUTLIER),
        ("weak_domain", [whole(n, 0.5 + n % 5 / 1000 - (n >= 900) / 100, domain=f"{n >= 900}") for n in range(1800)]),
        ("weakest_dimension", [dimensions(n, 0.49 + n % 2 / 100) for n in range(500)]),
    ],
)
def test_a_rule_is_silent_where_too_little_bears_on_it(rule, rows):
    assert rule not in found(rows)


def test_the_name_of_a_domain_is_only_a_name():
    rows = [row.model_copy(update={"domain": "{n} {0} %s"}) for row in MARKETING]
    assert "Review reports on {n} {0} %s: mean" in found(rows + ELSEWHERE)["weak_domain"].text


@pytest.mark.slow
def test_domains_and_dimensions_that_differ_by_chance_alone_are_seldom_called_weak():
    random.seed(8)
    called = {"weak_domain": 0, "weakest_dimension": 0}
    for _ in range(40):
        rows = [
            whole(
                n,
                random.uniform(0.4, 0.8),
                domain=f"d{n % 20}",
                race_dimensions={name: random.uniform(0.3, 0.7) for name in RACE_DIMENSIONS},
            )
            for n in range(120)
        ]
        for rule in called:
            called[rule] += rule in found(rows)
    assert called["weak_domain"] <= 5
    assert called["weakest_dimension"] <= 5


def test_a_threshold_that_is_not_reached_is_not_shown_as_reached():
    advice = found([cited(1, 5996, 4004)])["inaccurate_citations"]
    assert "support 5996 of 10000 that could be checked (59.96%), below 60.00% (good)" in advice.text


def test_small_losses_are_not_rounded_to_nothing():
    advice = found([whole(1, cost_saving_usd=-0.001, time_saving_hours=-0.01)])
    assert "1 of 1 reports took longer than the expert, 0.6 min in all" in advice["slower"].text
    assert "1 of 1 reports cost more than the expert, $0.00100 in all" in advice["dearer"].text
