from __future__ import annotations

import pytest
from support.research_project import REPLIES, ResearchProject, criteria, query, race_reply, reference, report

SCRIPTED = "--agentbench-evaluation-profile=scripted"


@pytest.fixture
def project(bench):
    profile = {"schema_version": 1, "evaluation_profile_id": "scripted", "title": "Scripted", "judge_runs": []}
    profile["judges"] = [{"judge_id": "j", "type": "llm_probe", "model": "demo"}]
    bench.write("cases/evaluation_profiles/scripted.yaml", profile)
    project = ResearchProject(bench.path / "cases")
    project.bench = bench
    return project


ROWS = {
    "a broken line": (
        ("raw/gpt.jsonl", '{"id": 1, "prompt": ', report(2)),
        {"drb.2[gpt]": "passed"},
        ["gpt.jsonl:1:20: not valid JSON", "gpt.jsonl line 1"],
    ),
    "a duplicate id": (
        ("raw/gpt.jsonl", report(1), report(2, id=1)),
        {"drb.1[gpt]": "passed"},
        ["gpt.jsonl:2:1: id: found 1 again, first on line 1", "gpt.jsonl line 2"],
    ),
    "a duplicate prompt": (
        ("raw/gpt.jsonl", report(1), report(2), report(1, id=3)),
        {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"},
        ["gpt.jsonl:3:1: prompt: repeats line 1"],
    ),
    "no article": (
        ("raw/gpt.jsonl", report(1, article=None), report(2)),
        {"drb.2[gpt]": "passed"},
        ["gpt.jsonl:1:1: article: missing; add it"],
    ),
    "metrics of a wrong kind": (
        ("raw/gpt.jsonl", report(1, execution_metrics={"automation_level": 95}), report(2)),
        {"drb.2[gpt]": "passed"},
        ["gpt.jsonl:1:", "execution_metrics.automation_level: found 95, expected at most 1"],
    ),
    "no criteria of one": (
        ("criteria.jsonl", criteria(2)),
        {"drb.2[gpt]": "passed"},
        ["gpt.jsonl:1:1: ", "criteria.jsonl: found no row with the prompt of 1"],
    ),
    "a duplicate row of criteria": (
        ("criteria.jsonl", criteria(1), criteria(2), criteria(2)),
        {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"},
        ["criteria.jsonl:3:1: prompt: repeats line 2"],
    ),
    "a reference with another id": (
        ("reference.jsonl", reference(1, id=7), reference(2)),
        {"drb.2[gpt]": "passed"},
        ["reference.jsonl:1:1: id: found 7 for the prompt that has the id 1 elsewhere"],
    ),
    "a query without a report": (
        ("raw/gpt.jsonl", report(2)),
        {"drb.2[gpt]": "passed"},
        ["query.jsonl:1:1: found no report on 1", "gpt.jsonl, query 1"],
    ),
    "a report on no query": (
        ("query.jsonl", query(1)),
        {"drb.1[gpt]": "passed"},
        ["gpt.jsonl:2:1: ", "query.jsonl: found no row with the prompt of 2"],
    ),
    "an unknown domain": (
        ("query.jsonl", query(1, topic="Music"), query(2)),
        {"drb.2[gpt]": "passed"},
        ["unknown domain 'Music'", "reports.yaml may map it: domain_map: {'Music': ...}"],
    ),
    "no level": (
        ("query.jsonl", query(1, complexity_level=None), query(2)),
        {"drb.2[gpt]": "passed"},
        ["gpt.jsonl:1:1: found no complexity_level"],
    ),
}


@pytest.mark.parametrize("what", ROWS)
def test_a_row_that_cannot_be_scored_is_a_separate_error(project, what):
    (name, *rows), outcomes, said = ROWS[what]
    project.rows(name, *rows)
    finished = project.bench.run(SCRIPTED, "--continue-on-collection-errors")
    assert finished.outcomes == outcomes
    assert finished.exit == 1
    assert finished.result.parseoutcomes()["errors"] == 1
    for text in said:
        assert text in finished.text


def test_queries_without_a_report_are_reported_next_to_unreadable_lines(project):
    project.rows("raw/gpt.jsonl", '{"id": 1, "prompt": ')
    finished = project.bench.run(SCRIPTED)
    assert finished.result.parseoutcomes()["errors"] == 3
    assert "found no report on 1" in finished.text
    assert "found no report on 2" in finished.text


def test_every_bad_row_is_counted(project):
    project.rows("raw/gpt.jsonl", *['{"id": '] * 150)
    project.reports(queries=None, parts=["fact"])
    finished = project.bench.run(SCRIPTED)
    assert "gpt.jsonl, 50 more" in finished.text
    assert finished.result.parseoutcomes()["errors"] == 101


def test_an_empty_article_fails_and_nobody_judges_it(project):
    project.rows("raw/gpt.jsonl", report(1, article=" \n"), report(2))
    finished = project.bench.run(SCRIPTED)
    assert finished.outcomes == {"drb.1[gpt]": "failed", "drb.2[gpt]": "passed"}
    row = finished.runs["drb.1[gpt]"]
    assert (row["status"], row["metrics"]) == ("failed", {})
    assert "gpt.jsonl:1: article: found an empty text, expected a report" in row["message"]


def test_metrics_that_are_missing_in_part_leave_their_scores_out(project):
    usage = {"input_tokens": 2000, "output_tokens": 6000}
    project.rows("raw/gpt.jsonl", report(1, execution_metrics={"token_usage": usage}), report(2))
    finished = project.bench.run(SCRIPTED)
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"}
    metrics = finished.runs["drb.1[gpt]"]["metrics"]
    assert metrics["cost_saving_usd"] == pytest.approx(196)
    assert [metrics[name] for name in ("efficiency", "time_saving", "automation", "poet")] == [None] * 4
    assert metrics["race"] == pytest.approx(0.6)


def test_an_article_without_citations_has_no_accuracy(project):
    project.script({"1": {"extract": {"citations": []}}})
    metrics = project.bench.run(SCRIPTED).runs["drb.1[gpt]"]["metrics"]
    assert metrics["fact_accuracy"] is None
    assert (metrics["fact_citations"], metrics["fact_valid_citations"]) == (0, 0)
    assert metrics["poet"] is None


def test_citations_without_an_address_are_unknown(project):
    project.script({"1": {"extract": {"citations": [{"fact": "Chips cost more.", "ref_idx": "9", "url": ""}]}}})
    metrics = project.bench.run(SCRIPTED).runs["drb.1[gpt]"]["metrics"]
    assert (metrics["fact_accuracy"], metrics["fact_citations"]) == (None, 0)


renamed = race_reply()
renamed["insight"][0]["criterion"] = "something else"
texts = race_reply()
texts["insight"][0]["article_1_score"] = "8"
lacking = race_reply()
lacking["readability"] = []
BAD_REPLIES = {
    "cut": ("race", '{"comprehensiveness": [{"criterion": "compre', "no verdict in 3 replies"),
    "scores as texts": ("race", texts, "insight.0.article_1_score"),
    "a criterion renamed": ("race", renamed, "not asked for: 'something else'"),
    "a criterion missing": ("race", lacking, "not scored: 'readability of it'"),
    "an unknown label": ("validate", {"results": [{"idx": 0, "reason": "", "result": "maybe"}]}, "results.0.result"),
    "a score out of range": (
        "strategic",
        {**REPLIES["strategic"], "independence": {"reason": "", "score": 9}},
        "independence",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD_REPLIES)
def test_a_reply_that_breaks_its_form_is_an_error_and_no_score(project, what):
    stage, reply, said = BAD_REPLIES[what]
    project.script({"1": {stage: reply}})
    finished = project.bench.run(SCRIPTED)
    assert finished.outcomes == {"drb.1[gpt]": "error", "drb.2[gpt]": "passed"}
    row = finished.runs["drb.1[gpt]"]
    main = {"race": "race", "validate": "fact_accuracy", "strategic": "strategic"}[stage]
    assert said in finished.text
    assert row["metrics"][main] is None
    assert row["metrics"]["poet"] is None
    assert row["metrics"]["efficiency"] is not None


def test_criteria_that_lack_a_dimension_are_an_error(project):
    weights = {"comprehensiveness": 0.5, "insight": 0.5}
    project.rows("criteria.jsonl", criteria(1, dimension_weight=weights), criteria(2))
    finished = project.bench.run(SCRIPTED)
    assert finished.outcomes == {"drb.1[gpt]": "error", "drb.2[gpt]": "passed"}
    assert "criteria.jsonl:1:1: " in finished.text


def test_a_file_that_changes_under_the_session_is_an_error(project):
    change = f"""
from pathlib import Path
def pytest_collection_finish(session):
    path = Path({str(project.folder / "criteria.jsonl")!r})
    path.write_text(path.read_text().replace("insight of it", "another of it"))
"""
    project.bench.write("conftest.py", change)
    finished = project.bench.run(SCRIPTED)
    assert set(finished.outcomes.values()) == {"error"}
    assert "criteria.jsonl:1:1: the file was changed while the session ran; run again" in finished.text


def test_all_problems_of_the_file_are_reported_once(project):
    project.reports(thresholds={"rase": 0.5, "race": 80}, samples=0, criteria="gone.jsonl")
    finished = project.bench.run(SCRIPTED)
    text = finished.text
    assert finished.exit == 1
    assert "thresholds.rase: found no score of that name, expected one of race, " in text
    assert "thresholds.race: found 80, expected a number from 0 to 1" in text
    assert "samples: found 0, expected at least 1" in text
    assert "criteria: found 'gone.jsonl', expected an existing file" in text


def test_two_files_may_not_have_the_same_name(project):
    project.bench.write(
        "cases/more/reports.yaml",
        {**project.settings, "reports": ["../raw/gpt.jsonl"]}
        | {name: f"../{project.settings[name]}" for name in ("queries", "criteria", "references", "annotations")},
    )
    finished = project.bench.run(SCRIPTED, "--continue-on-collection-errors")
    assert "name: found 'drb', which" in finished.text
    assert len(finished.runs) == 2
