"""The numbers that real files of RACE, FACT and POET must give; no model is asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from pytest_agentbench.packs.research.arithmetic import (
    COMPAT_RACE_MAX,
    STRATEGIC_SCORES,
    Expert,
    Interaction,
    PoetWeights,
    compat_efficiency,
    cost_saving,
    efficiency,
    interaction_efficiency,
    interaction_strategy,
    overall_strategic_score,
    quality_value,
    strategic_value,
    time_saving_hours,
    versus_expert,
)
from pytest_agentbench.packs.research.articles import clean_by_rules
from pytest_agentbench.packs.research.fact.citations import (
    Citation,
    Counts,
    canonical_url,
    compute_statistics,
    group_by_page,
    list_references,
)
from pytest_agentbench.packs.research.query_files import markdown_queries
from pytest_agentbench.packs.research.race_judging import Scored, UnmatchedCriteria, race
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, ArticleCounts, RaceCriteria, count_article
from pytest_agentbench.packs.research.rows import GoodRow, read_research_rows
from pytest_agentbench.packs.research.select_queries import query_value

DATA = Path(__file__).parents[3] / "shared" / "data" / "research"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data: {DATA} is not there")


def lines(name: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in (DATA / name).read_text().splitlines())


def criteria(name: str) -> dict[int | str, RaceCriteria]:
    rows = list(read_research_rows(DATA / name, RaceCriteria))
    return {row.value.id: row.value for row in rows if isinstance(row, GoodRow)}


def test_the_means_of_a_published_race_result() -> None:
    rows = list(lines("drb_claude37/race/raw_results.jsonl"))
    means = {name: f"{fmean(row[name] for row in rows):.4f}" for name in (*RACE_DIMENSIONS, "overall_score")}
    assert list(means.values()) == ["0.4110", "0.4051", "0.4621", "0.4172", "0.4218"]


def test_pairwise_rows_as_the_original_computes_them() -> None:
    known = criteria("drb_criteria_20.jsonl")
    assert len(known) == 20
    for row in lines("golden_examples/race_pairwise_synthetic.jsonl"):
        scored = {
            name: [Scored(each["criterion"], each["article_1_score"], each["article_2_score"]) for each in entries]
            for name, entries in row["judge"].items()
        }
        found, expected = race(known[row["criteria_id"]], scored, compat=True), row["as_coded"]
        assert found.target == pytest.approx(expected["target_total"], rel=1e-12)
        assert found.reference == pytest.approx(expected["reference_total"], rel=1e-12)
        assert found.overall == pytest.approx(expected["overall_score"], rel=1e-12)
        assert found.dimensions == pytest.approx({name: expected[name] for name in RACE_DIMENSIONS}, rel=1e-12)
        if row["kind"] == "plain":
            assert race(known[row["criteria_id"]], scored) == found
        else:
            with pytest.raises(UnmatchedCriteria):
                race(known[row["criteria_id"]], scored)


def test_pointwise_rows() -> None:
    known = criteria("tickr_pointwise/criteria.jsonl")
    expected = {row["id"]: row for row in lines("tickr_pointwise/expected_gpt5-tickr-0917.jsonl")}
    for row in lines("tickr_pointwise/gpt5-tickr-0917.jsonl"):
        scored = {
            name: [Scored(each["criterion"], each["target_score"]) for each in entries]
            for name, entries in row["judge_details"].items()
        }
        found = race(known[row["id"]], scored)
        assert found.overall == pytest.approx(expected[row["id"]]["overall_0_1"], rel=1e-12)
        assert found.dimensions == pytest.approx(expected[row["id"]]["dims_0_1"], rel=1e-12)
    assert len(expected) == 10


def test_the_statistics_of_a_validated_report() -> None:
    [row] = lines("poet_gpt/fact/validated.jsonl")
    labels = Counter(each["result"] for page in row["citations_deduped"].values() for each in page["validate_res"])
    assert labels == {"supported": 12, "unsupported": 6, "unknown": 2}
    found = compute_statistics([Counts(**labels)], n_failed=1)
    said = [found.total_citations, found.total_valid_citations, found.valid_rate]
    file = [float(line.split(": ")[1]) for line in (DATA / "poet_gpt/fact/fact_result.txt").read_text().splitlines()]
    assert said == file == [18.0, 12.0, 12 / 18]
    assert (found.n_with_citations, found.n_total) == (1, 2)


def test_the_pages_of_extracted_citations() -> None:
    [row] = lines("poet_gpt/fact/deduplicated.jsonl")
    pages = group_by_page(Citation(each["fact"], each["ref_idx"] or "", each["url"] or "") for each in row["citations"])
    expected = {canonical_url(url) if url else "": page["facts"] for url, page in row["citations_deduped"].items()}
    assert pages == expected


def test_reports_lists_of_references_and_what_is_left_without_them() -> None:
    first, second = (row["article"] for row in lines("poet_gpt/raw_data/gpt.jsonl"))
    assert [len(list_references(first)), len(list_references(second))] == [22, 43]
    for article in (first, second):
        assert count_article(clean_by_rules(article)).citations == 0
        assert "http" not in clean_by_rules(article)


def test_query_scores() -> None:
    rows = json.loads((DATA / "poet_query/query_scores.json").read_text())
    results = [row["scoring_result"] for row in rows]
    values = [query_value({key: each["score"] for key, each in result["scores"].items()}) for result in results]
    assert values == [result["overall_score"] for result in results]
    assert [len(values), sum(v >= 4 for v in values), sum(v >= 4.5 for v in values)] == [42, 35, 10]


def test_raw_queries() -> None:
    found = {query.number: query for query in markdown_queries((DATA / "poet_query/raw_query.md").read_text())}
    assert len(found) == 44
    for row in json.loads((DATA / "poet_query/query_scores.json").read_text()):
        query = found.pop(row["query_number"])
        assert (query.title, query.content) == (row["query_title"], row["query_content"])
    assert sorted(found) == [5, 7]  # these the original does not find


@pytest.mark.parametrize(("name", "expected"), [("1-gpt", (82, 22, 3819)), ("2-gpt", (113, 43, 4263))])
def test_words_and_citations_of_a_report_are_counted(name: str, expected: tuple[int, int, int]) -> None:
    assert count_article((DATA / f"poet_md_to_jsonl/{name}.md").read_text()) == ArticleCounts(*expected)


def test_composites_as_the_original_computes_them() -> None:
    for row in lines("golden_examples/poet_composite.jsonl"):
        given, expected = row["in"], row["as_coded"]
        race_score, accuracy = given["race_score"], given["fact_accuracy"]
        scores = {name: given.get(f"{name}_score", given.get(name)) for name in STRATEGIC_SCORES}
        assert strategic_value(scores) == pytest.approx(expected["strategic"], rel=1e-12)
        assert quality_value(race_score, accuracy) == pytest.approx(row["fixed_race_max_1"]["quality"], rel=1e-12)
        compat = quality_value(race_score, accuracy, PoetWeights(race_max=COMPAT_RACE_MAX))
        assert compat == pytest.approx(expected["quality"], rel=1e-12)
        assert overall_strategic_score(scores) == pytest.approx(expected["overall_strategic_score"], rel=1e-12)
        expert = Expert(given["expert_time_hours"], given["expert_hourly_rate_usd"])
        hours, saving, automation = (
            given["completion_time_seconds"] / 3600,
            given["cost_saving_usd"],
            given["automation_rate"],
        )
        value = compat_efficiency(expert, hours=hours, cost_saving_usd=saving, automation=automation)
        assert value == pytest.approx(expected["efficiency"], rel=1e-12)
        assert 0.3 * value + 0.5 * compat + 0.2 * strategic_value(scores) == pytest.approx(expected["poet"], rel=1e-12)
        own = efficiency(expert, hours=hours, cost_usd=expert.cost_usd - saving, automation=automation)
        if automation is None:
            assert (own.score, own.missing) == (None, ("automation_level",))
        elif expert.hours:
            assert own.score == pytest.approx(value, rel=1e-12)


def test_interactions() -> None:
    names = {each.name for each in fields(Interaction)}
    for row in lines("golden_examples/web_interaction.jsonl"):
        task = Interaction(**{name: value for name, value in row["metrics"].items() if name in names})
        found = interaction_efficiency(task)
        assert asdict(found) | {"overall_efficiency": found.overall_efficiency} == pytest.approx(row["efficiency"])
        assert asdict(interaction_strategy(task)) == pytest.approx(row["strategic"])
        assert time_saving_hours(task) == pytest.approx(row["metrics"]["time_savings_hours"])
        assert cost_saving(task) == pytest.approx(row["metrics"]["cost_saving_usd"])
        assert versus_expert(task) == pytest.approx(row["metrics"]["efficiency_vs_expert"])
