"""Judges that are scripted: what a script says of a case is a verdict like any other's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from judging_samples import make_artifact, make_case, make_profile
from packs.mcp_bench.tool_use_samples import make_run, make_task

from pytest_agentbench.config.profiles import ModelsFile
from pytest_agentbench.judging.asking import Judgement, NoVerdictError, judge
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.routes import resolve_model
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.packs.mcp_bench.judge import make_assessment
from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS, McpTask
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.secrets.redaction import Redactor

SIX = "{task_fulfillment: 4, grounding: 5, tool_appropriateness: 6, parameter_accuracy: 7, dependency_awareness: 8, "
SIX += "parallelism_and_efficiency: {score: 9, evidence: [Both at once., No call too many.]}}"


def judged(folder: Path, script: str, case: Case, run: RunArtifact, **profile) -> Judgement:
    (folder / "demo.yaml").write_text(f"schema_version: 1\n{script}\n")
    case = case.model_copy(update={"path": folder / "test.yaml"})

    async def asked() -> Judgement:
        scripts = Scripts()
        scripts.load_beside(case)
        endpoints = Endpoints(scripts=scripts)
        client = endpoints.client(resolve_model("demo", models=ModelsFile(schema_version=1)))
        try:
            used = make_profile(**profile)
            own = make_assessment(case, run, used, Redactor({}).value) if case.part(McpTask) else None
            return await judge(
                case, run, [], used, lambda config: client, redactor=Redactor({}), asked=own, backoff_seconds=0
            )
        finally:
            await endpoints.close()

    return asyncio.run(asked())


def test_the_six_dimensions_by_name(tmp_path):
    result = judged(tmp_path, f"judge: {{dimensions: {SIX}}}", make_task(), make_run()).result
    assert result.dimensions == dict(zip(TOOL_USE_DIMENSIONS, (4, 5, 6, 7, 8, 9), strict=True))
    assert (result.overall, result.sampled, result.cv_percent) == (6.5, 5, 0)
    evidence = result.iterations[0].verdict.dimensions["parallelism_and_efficiency"].evidence
    assert evidence == ("Both at once.; No call too many.",)


def test_dimensions_that_are_left_out_get_the_overall_score(tmp_path):
    result = judged(tmp_path, "judge: {overall: 3, dimensions: {grounding: 9}}", make_task(), make_run()).result
    assert result.dimensions == {**dict.fromkeys(TOOL_USE_DIMENSIONS, 3), "grounding": 9}


def test_a_list_has_a_verdict_for_each_iteration(tmp_path):
    script = "judge: [{overall: 4}, {overall: 5}, {overall: 6}, {overall: 5}, {overall: 5}]"
    result = judged(tmp_path, script, make_task(), make_run()).result
    assert [each.verdict.overall.score for each in result.iterations] == [4, 5, 6, 5, 5]
    assert result.spread["grounding"] == pytest.approx(0.4**0.5)
    assert result.cv_percent == pytest.approx(100 * 0.4**0.5 / 5)


def test_a_list_serves_other_cases_too(tmp_path):
    runs = ({"judge_run_id": "main", "judge_id": "strict", "repetitions": 2},)
    result = judged(
        tmp_path, "judge: [{overall: 4}, {overall: 8}]", make_case(), make_artifact(), judge_runs=runs
    ).result
    assert (result.overall, result.dimensions["task"]) == (6, 6)


def test_a_list_that_is_too_short_fails_the_iterations_beyond_it(tmp_path):
    result = judged(tmp_path, "judge: [{overall: 4}, {overall: 8}]", make_task(), make_run()).result
    assert (result.sampled, result.overall) == (2, 6)
    assert "the judge has 2 verdicts and this is iteration 5; add one to" in result.iterations[4].error


def test_a_script_that_breaks_the_contract_is_no_verdict(tmp_path):
    with pytest.raises(NoVerdictError, match="task_fulfillment: found 0"):
        judged(tmp_path, "judge: {overall: 0}", make_task(), make_run())
