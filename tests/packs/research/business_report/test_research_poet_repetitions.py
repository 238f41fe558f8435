"""Several reports on one task are repetitions: they count as reports, and say no more of the next task than one."""

from __future__ import annotations

import pytest
from support.poet_rows import whole

from pytest_agentbench.packs.research.business_report.aggregates import Scored, comparison, poet_report
from pytest_agentbench.packs.research.business_report.figures import PoetRow
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.statistics.estimates import mean_interval

SCORES = (0.3, 0.5, 0.6, 0.7, 0.9)


def rows(times: int, scores: tuple[float, ...] = SCORES, **fields: object) -> list[PoetRow]:
    return [
        whole(f"{task}-r{repetition}", score, prompt_key=f"task {task}", **fields)
        for task, score in enumerate(scores)
        for repetition in range(times)
    ]


def test_repetitions_that_agree_do_not_make_an_interval_narrower() -> None:
    once, often = (poet_report(rows(times), "gpt", PoetConfig()) for times in (1, 20))
    one, other = once.means["overall_poet_score"], often.means["overall_poet_score"]
    assert (one.n, other.n) == (5, 100)
    assert other.mean == pytest.approx(one.mean)
    assert one.ci95 == mean_interval([[score] for score in SCORES])
    assert other.ci95 == pytest.approx(one.ci95)
    assert often.by_domain[0].scores["race_score"].ci95 == pytest.approx(one.ci95)
    assert often.race_dimensions["insight"].ci95 == pytest.approx(one.ci95)


def test_many_repetitions_of_few_tasks_have_no_interval_and_suggest_nothing() -> None:
    scored = rows(10, SCORES[:4], race_dimensions={"comprehensiveness": 0.9, "insight": 0.1, "readability": 0.9})
    unequal = [
        row.model_copy(update={"race_dimensions": {**row.race_dimensions, "instruction_following": 0.9}})
        for row in scored
    ]
    report = poet_report(unequal, "gpt", PoetConfig())
    assert report.means["overall_poet_score"].ci95 is None
    assert report.citations.ci95 is None
    assert (report.citations.n, report.citations.supported) == (40, 120)
    assert "weakest_dimension" not in {each.rule for each in report.recommendations}


def test_a_domain_is_weak_only_over_enough_tasks() -> None:
    weak = [whole(f"w{n}", 0.2 + n / 1000, domain="law", prompt_key=f"law {n % 2}") for n in range(10)]
    strong = [whole(f"s{n}", 0.8 + n / 1000, domain="art", prompt_key=f"art {n}") for n in range(10)]
    few = poet_report([*weak, *strong], "gpt", PoetConfig())
    assert "weak_domain" not in {each.rule for each in few.recommendations}
    enough = [row.model_copy(update={"prompt_key": f"law {n}"}) for n, row in enumerate(weak)]
    outcome = poet_report([*enough, *strong], "gpt", PoetConfig()).recommendations
    assert "weak_domain" in {each.rule for each in outcome}


def test_models_are_compared_by_the_mean_of_each_task() -> None:
    config = PoetConfig()
    best = [whole("1", 0.8, prompt_key="a"), whole("1-r2", 0.6, prompt_key="a"), whole("2", 0.9, prompt_key="b")]
    other = [whole("1", 0.4, prompt_key="a"), whole("2", 0.5, prompt_key="b"), whole("2-r2", 0.7, prompt_key="b")]
    outcome = comparison(
        [Scored(poet_report(scored, name, config), scored) for name, scored in {"x": other, "y": best}.items()]
    )
    assert outcome is not None
    (difference,) = outcome.differences
    assert (outcome.best, difference.model) == ("y", "x")
    assert (difference.difference.n, difference.difference.mean) == (2, pytest.approx(-0.3))
