"""`agentbench research efficiency` and `interaction`, on files as other stages leave them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.valued_reports import METRICS, annotated_rows, efficiency, read, stage_results, write_rows

from pytest_agentbench.cli import main


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.chdir(tmp_path)
    return annotated_rows(tmp_path)


def test_efficiency_by_hand(rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert efficiency(rows) == 0
    result = read("results/efficiency/gpt/efficiency_report.json")
    assert [result[name] for name in ("model", "n_total", "n_scored", "n_failed")] == ["gpt", 3, 3, 0]
    assert result["means"]["efficiency_score"]["mean"] == pytest.approx(0.4 * 0.8 + 0.3 * 0.99 + 0.3 * 0.9)
    first = result["results"][0]
    assert (first["time_saving"], first["cost_saving_usd"], first["automation_rate"]) == (0.8, 742.5, 0.9)
    assert first["resource_efficiency"] is None
    assert "raw_results.jsonl is not there" in first["reasons"]["resource_efficiency"]
    assert "efficiency_report.json" in capsys.readouterr().out


def test_missing_metrics_fail_only_their_row_and_leave_empty_values(
    rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    rows[0]["execution_metrics"] = {**METRICS, "automation_level": None}
    del rows[1]["execution_metrics"]
    assert efficiency(rows) == 1
    result = read("results/efficiency/gpt/efficiency_report.json")
    assert [result[name] for name in ("n_total", "n_scored", "n_failed")] == [3, 1, 2]
    one, two, three = result["results"]
    assert (one["efficiency_score"], one["time_saving"]) == (None, 0.8)
    assert one["efficiency_error"] == "execution_metrics.automation_level is missing"
    assert (two["time_saving"], two["cost_saving_usd"], two["automation_rate"]) == (None, None, None)
    assert three["efficiency_score"] == result["means"]["efficiency_score"]["mean"]
    assert "efficiency: 1: execution_metrics.automation_level is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"domain": "art"}, "domain_expert_data.json: unknown domain 'art'; there is finance"),
        ({"domain": None}, "domain: found neither a domain nor a topic"),
        ({"complexity_level": 7}, "complexity_level_data.json: unknown complexity level '7'; there is 4"),
        ({"complexity_level": None}, "complexity_level: missing"),
        (
            {"execution_metrics": {**METRICS, "token_usage": {"input_tokens": 1, "output_tokens": 1}}},
            "token_pricing_data.json: unknown model 'gpt'; did you mean 'gpt-4'?",
        ),
        ({"execution_metrics": {**METRICS, "automation_level": 1.2}}, "gpt.jsonl:2:"),
        ({"execution_metrics": {**METRICS, "total_duration_seconds": "long"}}, "total_duration_seconds"),
        ({"id": 1}, "id: found 1 again"),
    ],
)
def test_unknown_values_of_a_row_are_errors(rows: list[dict[str, Any]], change: dict[str, Any], said: str) -> None:
    rows[1] |= change
    assert efficiency(rows) == 1
    result = read("results/efficiency/gpt/efficiency_report.json")
    assert [result[name] for name in ("n_total", "n_scored", "n_failed")] == [3, 2, 1]
    assert said in result["results"][1]["efficiency_error"]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ('{"total_duration_seconds": 1e308}', "at most 1000000000000"),
        ('{"token_usage": {"total_cost_usd": 1e13}}', "at most 1000000000000"),
        ('{"token_usage": {"input_tokens": -1}}', "at least 0"),
        ('{"total_duration_seconds": NaN}', "NaN is no JSON value"),
        ('{"total_duration_seconds": -Infinity}', "-Infinity is no JSON value"),
        ('{"total_duration_seconds": 1e999}', "out of range"),
        ('{"token_usage": null}', "no total_cost_usd and no input_tokens or output_tokens"),
    ],
)
def test_a_number_that_cannot_be_fails_its_row_alone(rows: list[dict[str, Any]], metrics: str, said: str) -> None:
    rows[1]["execution_metrics"] = "HERE"
    write_rows(Path("gpt.jsonl"), rows)
    Path("gpt.jsonl").write_text(Path("gpt.jsonl").read_text().replace('"HERE"', metrics))
    for stage, folder in (("efficiency", "efficiency"), ("interaction", "web_interaction")):
        lost = stage == "efficiency" or "null" not in metrics
        assert main(["research", stage, "--input_file", "gpt.jsonl"]) == int(lost)
        result = read(f"results/{folder}/gpt/{folder}_report.json")
        assert [result[name] for name in ("n_total", "n_scored", "n_failed")] == [3, 3 - lost, int(lost)]
        assert not lost or said in result["results"][1][f"{stage}_error"]


RECORDED = {
    "total_duration_seconds": (["time_saving", "time_saving_hours"], ["time_efficiency"], []),
    "token_usage": (["cost_saving_usd", "resource_efficiency"], ["cost_efficiency"], []),
    "automation_level": (["automation_rate"], ["automation_efficiency"], ["independence_score"]),
    "tool_calls_count": ([], [], ["multi_step_reasoning_score"]),
    "sources_used": ([], [], ["domain_expertise_score", "created_knowledge_units"]),
    "citation_count": (
        [],
        [],
        ["domain_expertise_score", "knowledge_reuse_potential", "created_knowledge_units"],
    ),
    "word_count": ([], [], ["knowledge_organization_score"]),
    "thinking_time_seconds": ([], [], ["multi_step_reasoning_score"]),
    "error_rate": ([], ["quality_efficiency"], ["independence_score"]),
    "user_satisfaction_rating": ([], ["quality_efficiency"], ["knowledge_quality_score"]),
    "coverage_completeness": (
        [],
        [],
        ["synthesis_capability_score", "knowledge_organization_score", "knowledge_quality_score"],
    ),
    "search_queries_count": ([], [], ["knowledge_extraction_score"]),
    "successful_tool_rate": ([], [], ["knowledge_extraction_score"]),
}
"""What each recorded value is needed for: of efficiency, of the interaction's efficiency, of its proxies."""


@pytest.mark.parametrize("lacks", RECORDED)
def test_only_scores_that_need_a_value_are_null_without_it(rows: list[dict[str, Any]], lacks: str) -> None:
    stage_results(rows)
    more = dict.fromkeys(("error_rate", "coverage_completeness", "successful_tool_rate"), 0.5)
    counts = dict.fromkeys(("thinking_time_seconds", "search_queries_count", "user_satisfaction_rating"), 1)
    rows[0]["execution_metrics"] = {name: v for name, v in (METRICS | more | counts).items() if name != lacks}
    of_work, of_interaction, proxies = RECORDED[lacks]
    efficiency(rows[:1])
    assert main(["research", "interaction", "--input_file", "gpt.jsonl"]) == 0
    [work] = read("results/efficiency/gpt/efficiency_report.json")["results"]
    [interaction] = read("results/web_interaction/gpt/web_interaction_report.json")["results"]
    parts = ("time_saving", "time_saving_hours", "cost_saving_usd", "automation_rate", "resource_efficiency")
    assert [name for name in parts if work[name] is None] == of_work
    assert (work["efficiency_score"] is None) == bool(of_work)
    assert set(of_work) - {"time_saving_hours"} <= work["reasons"].keys()
    overall = ["overall_efficiency"] * bool(of_interaction)
    assert [name for name, value in interaction["efficiency"].items() if value is None] == of_interaction + overall
    assert [name for name, value in interaction["strategic"].items() if value is None] == proxies


def test_a_model_may_be_priced_as_another(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["execution_metrics"] = {**METRICS, "token_usage": {"input_tokens": 2000, "output_tokens": 1000}}
    assert efficiency(rows, "--model-pricing", "gpt-4") == 0
    [first, *_] = read("results/efficiency/gpt/efficiency_report.json")["results"]
    assert (first["ai_cost_usd"], first["ai_cost"]) == (pytest.approx(0.05), "priced")


def test_queries_tell_the_domain_and_level_of_rows_without(rows: list[dict[str, Any]]) -> None:
    queries = [
        {"id": row["id"], "prompt": f"  {row['prompt']} ", "topic": "Money & More", "complexity_level": 4}
        for row in rows
    ]
    queries[1]["id"] = 9
    del queries[2]
    write_rows(Path("q.jsonl"), queries)
    for row in rows:
        del row["domain"], row["complexity_level"]
    assert efficiency(rows, "--query_file", "q.jsonl", "--domain_map", "Money & More=finance") == 1
    one, two, three = read("results/efficiency/gpt/efficiency_report.json")["results"]
    assert (one["domain"], one["complexity_level"]) == ("finance", 4)
    assert "q.jsonl:2:1: id: found 9 for the prompt that has the id 2 elsewhere" in two["efficiency_error"]
    assert "q.jsonl: found no row with the prompt of 3" in three["efficiency_error"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--annotation_dir", "elsewhere"], "elsewhere/domain_expert_data.json: is missing"),
        (["--config", "config.json"], "config.json"),
        (["--query_file", "none.jsonl"], "none.jsonl"),
    ],
)
def test_invalid_files_are_errors(
    rows: list[dict[str, Any]], options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("config.json").write_text('{"efficiency_weights": {"time_weight": 0.9}}')
    assert efficiency(rows, *options) != 0
    assert said in capsys.readouterr().err
    assert not Path("results").exists()


@pytest.mark.parametrize("stage", ["efficiency", "strategic", "interaction", "poet"])
@pytest.mark.parametrize("spell", [str, lambda name: name.replace("_", "-")], ids=["seed", "dashes"])
def test_options_of_the_seed_and_a_file_that_is_missing(
    rows: list[dict[str, Any]], stage: str, spell: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(Path("there.jsonl"), rows)
    Path("config.json").write_text("{}")
    named = {"--input_file": "none.jsonl", "--output_dir": "out", "--config": "config.json", "--max_workers": "2"}
    options = [word for name, value in named.items() for word in (spell(name), value)]
    assert main(["research", stage, *options]) == 1
    assert capsys.readouterr().err == "none.jsonl: cannot be read: No such file or directory\n"
    assert not Path("out").exists()


def test_a_missing_folder_of_annotations_is_reported_once(
    rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("data").rename("elsewhere")
    assert efficiency(rows) == 1
    assert capsys.readouterr().err == (
        "data/annotation: there is no such folder; name the folder of annotations: --annotation-dir\n"
    )


def test_wrong_usage(rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        efficiency(rows, "--domain_map", "finance")
    assert error.value.code == 2
    assert "expected TOPIC=DOMAIN" in capsys.readouterr().err


def test_interaction_has_null_for_unrecorded_values(rows: list[dict[str, Any]]) -> None:
    rows[1]["execution_metrics"] = {
        **METRICS,
        "error_rate": 0.1,
        "user_satisfaction_rating": 4.0,
        "coverage_completeness": 0.5,
        "thinking_time_seconds": 30,
        "search_queries_count": 3,
        "successful_tool_rate": 0.9,
    }
    rows[2]["interaction_metrics"] = {"timing": {"thinking_time_seconds": "long"}}
    write_rows(Path("gpt.jsonl"), rows)
    assert main(["research", "interaction", "--input_file", "gpt.jsonl"]) == 1
    result = read("results/web_interaction/gpt/web_interaction_report.json")
    assert [result[name] for name in ("n_total", "n_scored", "n_failed")] == [3, 2, 1]
    one, two, three = result["results"]
    assert one["efficiency"] == {
        "time_efficiency": 1.0,
        "cost_efficiency": pytest.approx(0.99),
        "automation_efficiency": 0.9,
        "quality_efficiency": None,
        "overall_efficiency": None,
    }
    assert one["strategic"]["domain_expertise_score"] == 5.0
    assert one["strategic"]["synthesis_capability_score"] is None
    assert one["metrics"]["error_rate"] is None
    assert "error_rate" in one["missing"]
    assert two["efficiency"]["quality_efficiency"] == pytest.approx(0.9 * 4 / 5)
    assert two["strategic"] == {
        "multi_step_reasoning_score": pytest.approx(8 / 5 * 2 + 30 / 60 * 3),
        "domain_expertise_score": 5.0,
        "synthesis_capability_score": 2.5,
        "independence_score": pytest.approx(0.9 * 0.9 * 5),
        "knowledge_extraction_score": pytest.approx(3 / 2 + 0.9 * 3),
        "knowledge_organization_score": 5.0,
        "knowledge_reuse_potential": 5.0,
        "knowledge_quality_score": 2.0,
        "created_knowledge_units": 37,
    }
    assert two["summary"]["basic_info"] == {
        "task_id": "2",
        "model_name": "gpt",
        "duration_minutes": 45.0,
        "total_tokens": 3000,
    }
    assert "interaction_metrics.timing.thinking_time_seconds: " in three["interaction_error"]
