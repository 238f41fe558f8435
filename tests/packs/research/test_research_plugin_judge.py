"""Research reports judged over HTTP: what is asked, kept, paid for, recorded."""

from __future__ import annotations

import json

import pytest
from support.fault_endpoint import FaultEndpoint
from support.research_project import METRICS, ResearchProject, criteria, is_judge, judge_answer, reference, report
from support.research_site import Site

JUDGED = ("--agentbench-evaluation-profile=judged", "--agentbench-run-profile=local")
PRICES = {"input_per_1m": 100_000, "output_per_1m": 0}
"""One USD for each request of 10 input tokens."""
ALL = ["extract", "knowledge", "race", "strategic", "validate"]
WHOLE = {"topic": "Business", "complexity_level": 3}


@pytest.fixture
def site():
    with Site({"/chips": "Chips cost more."}) as site:
        yield site


@pytest.fixture
def endpoint(site):
    def answer(body):
        if not is_judge(body):
            return {"role": "assistant", "content": f"Chips cost more [1].\n\n[1] {site.url}/chips"}
        said = judge_answer(body)
        if "research_extract" in json.dumps(body["response_format"]):
            citation = {"fact": "Chips cost more.", "ref_idx": "1", "url": f"{site.url}/chips"}
            said["content"] = json.dumps({"citations": [citation]})
        return said

    with FaultEndpoint(answer=answer) as endpoint:
        yield endpoint


@pytest.fixture
def project(bench, endpoint, site, monkeypatch):
    """One report of `gpt`, whose judge and cited page are on loopback."""
    monkeypatch.setenv("BENCH_KEY", "sk-a-key-that-nobody-may-see-0123456789")
    monkeypatch.delenv("JINA_API_KEY", raising=False)
    entry = {"base_url": endpoint.base_url, "api_key_env": "BENCH_KEY", "prices": PRICES}
    bench.models({"model_id": "writer", **entry}, {"model_id": "judge", **entry})
    profile = {"schema_version": 1, "evaluation_profile_id": "judged", "title": "Judged", "judge_runs": []}
    profile["judges"] = [{"judge_id": "j", "type": "llm_probe", "model": "judge"}]
    bench.write("cases/evaluation_profiles/judged.yaml", profile)
    bench.profile("local", network={"allow_private": ["127.0.0.1"]})
    project = ResearchProject(bench.path / "cases")
    project.bench = bench
    project.page = f"{site.url}/chips"
    project.rows("raw/gpt.jsonl", report(1, project.page, **WHOLE))
    project.reports(queries=None, parts=["race", "fact", "efficiency", "strategic", "poet"])
    return project


def asked(endpoint):
    """The stages that the judge was asked at since this was asked last."""
    bodies = [request.body for request in endpoint.requests if is_judge(request.body)]
    endpoint.requests.clear()
    return sorted(body["response_format"]["json_schema"]["name"].removeprefix("research_") for body in bodies)


@pytest.mark.slow
def test_a_judge_and_a_page_are_asked_once_and_paid_once(project, endpoint, site):
    first = project.bench.run(*JUDGED)
    assert first.outcomes == {"drb.1[gpt]": "passed"}
    row = first.runs["drb.1[gpt]"]
    assert row["metrics"]["fact_accuracy"] == 1
    assert row["cost_usd"] == {"run": None, "judge": 5.0}
    assert first.report["totals"]["spent_usd"]["judge"] == 5.0
    assert asked(endpoint) == ALL
    assert site.asked == {"/chips": 1}
    second = project.bench.run(*JUDGED)
    assert second.runs["drb.1[gpt]"]["evaluation_reused"]
    assert second.report["totals"]["spent_usd"]["judge"] == 0
    assert asked(endpoint) == []
    kept = project.bench.path / "outputs"
    assert len(list((kept / "judgements").rglob("*.json"))) == 5
    assert len(list((kept / "research" / "pages").rglob("*.json"))) == 1


CHANGES = {
    "the criteria": (lambda p: p.rows("criteria.jsonl", criteria(1, dimension_weight=EVEN), criteria(2)), []),
    "a criterion's text": (lambda p: p.rows("criteria.jsonl", criteria(1, criterions=EXPLAINED)), ["race"]),
    "the reference": (lambda p: p.rows("reference.jsonl", reference(1, article="Other.")), ["race"]),
    "the annotations": (
        lambda p: p.json(
            "annotation/domain_expert_data.json", {"finance": {"avg_task_time_hours": 4, "avg_hourly_rate_usd": 100}}
        ),
        [],
    ),
    "the weights": (lambda p: p.reports(config=p.json("c.json", {}).name), None),
    "other weights": (lambda p: p.reports(config=p.json("c.json", WEIGHTS).name), []),
    "a prompt": (lambda p: p.write("texts/race_pairwise.en.txt", OWN_PROMPT) and p.reports(prompts="texts"), ["race"]),
    "a threshold": (lambda p: p.reports(thresholds={"race": 0.1}), []),
    "the metrics": (
        lambda p: p.rows(
            "raw/gpt.jsonl", report(1, p.page, **WHOLE, execution_metrics={**METRICS, "automation_level": 1.0})
        ),
        [],
    ),
    "the article": (lambda p: p.rows("raw/gpt.jsonl", report(1, **WHOLE, article="Other [1].")), None),
    "a field of no use": (lambda p: p.rows("raw/gpt.jsonl", report(1, p.page, **WHOLE, note="x")), None),
    "rows of others": (lambda p: p.rows("reference.jsonl", reference(2), reference(1)), None),
}
OWN_PROMPT = "{query} {article_1} {article_2} {criteria}"
EVEN = dict.fromkeys(("comprehensiveness", "insight", "instruction_following", "readability"), 0.25)
EXPLAINED = {name: [{"criterion": f"{name} of it", "explanation": "More of it.", "weight": 1.0}] for name in EVEN}
WEIGHTS = {"poet_weights": {"efficiency_value": 0.5, "quality_value": 0.5, "strategic_value": 0.0}}
UNCHANGED = ("the weights", "a field of no use", "rows of others")


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
def test_only_changes_that_affect_a_score_repeat_the_scoring(project, endpoint, what):
    change, stages = CHANGES[what]
    project.bench.run(*JUDGED)
    asked(endpoint)
    change(project)
    row = project.bench.run(*JUDGED).runs["drb.1[gpt]"]
    assert row["outcome"] == "passed"
    assert row["evaluation_reused"] == (what in UNCHANGED)
    if what == "the article":
        stages = [stage for stage in ALL if stage != "validate"]
    assert asked(endpoint) == (stages or [])


def test_a_judge_that_favours_the_first_article_is_detected_by_both_orders(project):
    project.reports(parts=["race"], position_swap=True)
    finished = project.bench.run(*JUDGED, "cases")
    [judge] = finished.report["judges"]
    assert (judge["judge"], judge["model"], judge["scripted"]) == ("race", "judge", False)
    swap = judge["order_swap"]
    assert (swap["order"], swap["pairs"], swap["changed"]) == ("swapped", 1, 1)
    assert swap["mean_difference"] == pytest.approx(0.6 - 0.4)


@pytest.mark.slow
def test_reports_are_judged_side_by_side(project, endpoint):
    endpoint.latency = 0.1
    project.rows("raw/gpt.jsonl", report(1), report(2))
    project.reports(parts=["race"])
    finished = project.bench.run(*JUDGED, "--agentbench-concurrency=2")
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"}
    assert endpoint.peak == 2


@pytest.mark.slow
def test_the_judges_own_options_are_in_every_request_and_a_new_one_asks_anew(project, endpoint):
    profile = {"schema_version": 1, "evaluation_profile_id": "judged", "title": "Judged", "judge_runs": []}
    for temperature in (0.1, 0.7):
        judges = [{"judge_id": "j", "type": "llm_probe", "model": "judge", "temperature": temperature}]
        project.bench.write("cases/evaluation_profiles/judged.yaml", {**profile, "judges": judges})
        assert project.bench.run(*JUDGED).outcomes == {"drb.1[gpt]": "passed"}
        assert {request.body["temperature"] for request in endpoint.requests} == {temperature}
        assert asked(endpoint) == ALL


@pytest.mark.slow
def test_rejudging_asks_everything_again(project, endpoint):
    project.bench.run(*JUDGED)
    asked(endpoint)
    project.bench.run(*JUDGED, "--agentbench-rejudge")
    assert asked(endpoint) == ALL


@pytest.mark.slow
def test_the_budget_ends_judging_of_a_report(project, endpoint):
    finished = project.bench.run(*JUDGED, "--agentbench-max-cost=2")
    row = finished.runs["drb.1[gpt]"]
    assert row["outcome"] == "error"
    assert "the budget is used up" in row["message"]
    assert len(asked(endpoint)) < len(ALL)
    again = project.bench.run(*JUDGED)
    assert again.outcomes == {"drb.1[gpt]": "passed"}
    assert again.report["totals"]["spent_usd"]["judge"] < 5


@pytest.mark.slow
def test_judge_and_pages_are_recorded_and_replayed(project, endpoint, site):
    recorded = project.bench.run(*JUDGED, "--agentbench-cassettes=record")
    assert recorded.outcomes == {"drb.1[gpt]": "passed"}
    assert asked(endpoint) == ALL
    replayed = project.bench.run(*JUDGED, "--agentbench-cassettes=replay", "--agentbench-output=elsewhere")
    assert asked(endpoint) == []
    assert site.asked == {"/chips": 1}
    report_file = project.bench.path / "elsewhere" / "report.json"
    [row] = json.loads(report_file.read_text(encoding="utf-8"))["runs"]
    assert (row["outcome"], row["cassette"]) == ("passed", "replayed")
    assert row["metrics"] == recorded.runs["drb.1[gpt]"]["metrics"]
    assert replayed.exit == 0
    project.rows("reference.jsonl", reference(1, article="Other."))
    missing = project.bench.run(*JUDGED, "--agentbench-cassettes=replay", "--agentbench-output=elsewhere")
    assert missing.exit == 1
    assert "replay" in missing.text
    assert asked(endpoint) == []


@pytest.mark.slow
def test_a_report_is_written_judged_and_measured_over_http(project, endpoint):
    project.rows("query.jsonl", {"id": 1, "prompt": report(1)["prompt"], **WHOLE})
    project.reports(reports=None, queries="query.jsonl")
    finished = project.bench.run(*JUDGED, "--model=writer")
    assert finished.outcomes == {"drb.1[writer]": "passed"}
    row = finished.runs["drb.1[writer]"]
    assert row["cost_usd"] == {"run": 1.0, "judge": 5.0}
    metrics = row["metrics"]
    assert metrics["cost_saving_usd"] == pytest.approx(199)
    assert metrics["automation"] == 1
    assert metrics["resource_efficiency"] == pytest.approx(metrics["quality"] / 15 * 1000)
    assert len([1 for request in endpoint.requests if not is_judge(request.body)]) == 1


@pytest.mark.slow
def test_an_outage_of_the_judge_is_an_error_and_the_next_session_goes_on(project, endpoint):
    endpoint.choose = lambda message, nth: "401"
    finished = project.bench.run(*JUDGED)
    assert finished.outcomes == {"drb.1[gpt]": "error"}
    assert "Incorrect API key" in finished.text
    endpoint.choose = lambda message, nth: "ok"
    assert project.bench.run(*JUDGED).outcomes == {"drb.1[gpt]": "passed"}
