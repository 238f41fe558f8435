from __future__ import annotations

import pytest
from support.bench import check

from pytest_agentbench.metrics.registry import METRICS, V1_METRICS, metric

PROFILE = {"schema_version": 1, "evaluation_profile_id": "old", "title": "As the original", "compat": "v1"}


@pytest.fixture
def project(bench):
    """A metric whose original gives 0.25 where the default gives 0.75, and cases that use it in every way."""

    @metric("halves")
    def default(ground_truth, prediction):
        return 0.75

    @metric("halves", compat="v1")
    def original(ground_truth, prediction):
        return 0.25

    halves = {"name": "halves", "threshold": 0.5}
    bench.agent()
    bench.case("plain", deterministic_checks=None, metrics=[halves], reference="Paris")
    bench.case("own", deterministic_checks=None, metrics=[{**halves, "compat": "v1"}], reference="Paris")
    bench.case("checked", deterministic_checks=[check("it", kind="metric", **halves, reference="Paris")])
    evaluator = {"func": "halves", "args": {"threshold": 0.5}}
    bench.rows("cases/facts.jsonl", {"id": "fr", "question": "France?", "answer": "Paris", "evaluator": evaluator})
    bench.write("cases/evaluation_profiles/old.yaml", PROFILE)
    bench.write("cases/evaluation_profiles/new.yaml", {**PROFILE, "evaluation_profile_id": "new", "compat": None})
    yield bench
    del METRICS["halves"], V1_METRICS["halves"]


@pytest.mark.slow
def test_the_profile_decides_the_definition_of_every_metric(project):
    new = project.run("--agentbench-evaluation-profile", "new")
    assert new.outcomes == {
        "checked[agent]": "passed",
        "facts.fr[agent]": "passed",
        "own[agent]": "failed",
        "plain[agent]": "passed",
    }
    old = project.run("--agentbench-evaluation-profile", "old")
    assert set(old.outcomes.values()) == {"failed"}
    assert [old.runs[f"{name}[agent]"]["metrics"] for name in ("plain", "facts.fr")] == [{"halves": 0.25}] * 2
    assert "halves is 0.25" in old.runs["checked[agent]"]["message"]


def test_metrics_of_the_profile_itself_are_the_original_ones_too(project):
    further = {**PROFILE, "evaluation_profile_id": "more", "metrics": [{"name": "halves"}]}
    project.write("cases/evaluation_profiles/more.yaml", further)
    project.rows("cases/plain.jsonl", {"id": "it", "question": "Italy?", "answer": "Paris"})
    row = project.run("--agentbench-evaluation-profile", "more", "cases/plain.jsonl").runs["plain.it[agent]"]
    assert row["metrics"] == {"exact_match": 1.0, "halves": 0.25}


def test_another_definition_is_another_evaluation(project):
    outputs = project.path / "outputs" / "evaluations"
    for profile in ("new", "old"):
        project.run("--agentbench-evaluation-profile", profile, "cases/plain")
    folders = {path.parents[2].name for path in outputs.rglob("final_result_1.json")}
    assert len(folders) == 2
