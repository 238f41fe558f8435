"""`agentbench research poet`, on files as other stages leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.valued_reports import METRICS, annotated_rows, efficiency, read, stage_results, write_rows

from pytest_agentbench.cli import main
from pytest_agentbench.packs.research.records import article_digest


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.chdir(tmp_path)
    return annotated_rows(tmp_path)


def poet(rows: list[dict[str, Any]], *options: str) -> int:
    write_rows(Path("data/test_data/raw_data/gpt.jsonl"), rows)
    return main(["research", "poet", *options])


@pytest.mark.slow
def test_poet_over_the_results_of_other_stages(rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    stage_results(rows)
    assert poet(rows, "gpt") == 1
    detailed = read("results/poet/gpt/gpt_poet_detailed.json")
    assert [detailed[name] for name in ("n_total", "n_scored", "n_failed")] == [3, 1, 2]
    one, two, three = detailed["results"]
    quality = 0.7 * 0.5 + 0.3 * 3 / 4
    assert one["quality_score"] == pytest.approx(quality)
    assert one["overall_poet_score"] == pytest.approx(0.3 * 0.887 + 0.5 * quality + 0.2 * 0.7)
    assert one["resource_efficiency"] == pytest.approx(quality / 3)
    assert one["complexity_adaptability"] == pytest.approx(quality * 4 / 5)
    assert (one["knowledge_units_created"], one["citations_unknown"]) == (1, 1)
    assert one["evidence"]["fact"] == ["Fact 1. (https://x.example/)"]
    assert one["evidence"]["race"][:2] == ["insight: C0: 0 (reference: 7): A0.", "insight: C1: 1 (reference: 7): A1."]
    assert (two["overall_poet_score"], two["race_score"], two["strategic_score"]) == (None, 0.5, 0.7)
    assert two["reasons"] == {"fact": "it has no citations"}
    assert three["reasons"].keys() == {"race", "fact", "strategic"}
    assert "judge is away" in three["reasons"]["race"]
    assert "the reply was cut" in three["reasons"]["fact"]
    assert "not JSON" in three["reasons"]["strategic"]
    assert three["efficiency_score"] == pytest.approx(0.887)
    printed = capsys.readouterr()
    assert "poet: 2: no composite: fact: it has no citations" in printed.err
    assert {path.name for path in Path("results/poet/gpt").iterdir()} == {
        f"gpt_poet_{name}" for name in ("detailed.json", "summary.json", "report.json", "report.txt")
    }


def test_poet_takes_nothing_from_a_row_of_another_query(rows: list[dict[str, Any]]) -> None:
    stage_results(rows)
    rows[0], rows[1] = {**rows[0], "id": 2}, {**rows[1], "prompt": "Another?", "id": 1}
    assert poet(rows, "gpt") == 1
    one, two, _ = read("results/poet/gpt/gpt_poet_detailed.json")["results"]
    assert "raw_results.jsonl:1:1: id: found 1 for the prompt that has the id 2 elsewhere" in one["reasons"]["race"]
    assert "strategic_report.json:1:1: id: found 1" in one["reasons"]["strategic"]
    assert "found no row with the prompt of 1" in two["reasons"]["fact"]


def test_poet_without_other_results_names_the_missing_files(rows: list[dict[str, Any]]) -> None:
    rows[1]["domain"] = "art"
    assert poet(rows, "gpt") == 1
    one, two, _ = read("results/poet/gpt/gpt_poet_detailed.json")["results"]
    assert one["efficiency_score"] == pytest.approx(0.887)
    assert one["reasons"]["race"] == "results/race/gpt/raw_results.jsonl is not there; run agentbench research race"
    assert "unknown domain 'art'" in two["reasons"]["efficiency"]


def test_poet_without_a_model_scores_every_file(rows: list[dict[str, Any]]) -> None:
    stage_results(rows[:3])
    write_rows(Path("data/test_data/raw_data/claude.jsonl"), rows[:1])
    assert poet(rows) == 1
    assert read("results/poet/claude/claude_poet_detailed.json")["n_total"] == 1
    assert read("results/poet/gpt/gpt_poet_detailed.json")["n_total"] == 3
    assert [each["model"] for each in read("results/poet/poet_comparison.json")["models"]] == ["claude", "gpt"]


def test_poet_without_any_file_is_an_error(rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["research", "poet", "--raw_data_dir", "nowhere"]) != 0
    assert "nowhere: found no file of reports" in capsys.readouterr().err


def test_poet_takes_the_stored_efficiency_where_there_are_no_annotations(rows: list[dict[str, Any]]) -> None:
    rows[1]["execution_metrics"] = {**METRICS, "automation_level": None}
    stage_results(rows)
    efficiency(rows)
    Path("data/annotation").rename("data/elsewhere")
    assert poet(rows, "gpt") == 1
    one, two, _ = read("results/poet/gpt/gpt_poet_detailed.json")["results"]
    assert one["efficiency_score"] == pytest.approx(0.887)
    assert one["overall_poet_score"] is not None
    assert (two["efficiency_score"], two["cost_saving_usd"]) == (None, 742.5)
    assert two["reasons"]["efficiency"] == "execution_metrics.automation_level is missing"


def test_every_section_of_the_config_is_heeded(rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    stage_results(rows)
    config = {
        "poet_weights": {"efficiency_value": 0, "quality_value": 1, "strategic_value": 0},
        "quality_value_weights": {"race_score": 1, "fact_score": 0},
        "evaluation_parameters": {"race_score_max": 2.0},
        "evaluation_settings": {"language_support": ["zh", "en"], "enable_parallel_processing": False},
        "performance_thresholds": {"excellent_threshold": 0.5, "good_threshold": 0.45},
        "reporting_settings": {"generate_text_report": False, "generate_summary_report": False},
        "default_expert_time": 2.0,
    }
    Path("config.json").write_text(json.dumps(config))
    assert poet(rows, "gpt", "--config", "config.json", "--output-dir", "plain") == 1
    assert read("plain/gpt_poet_detailed.json")["results"][0]["overall_poet_score"] == 0.5
    assert not Path("plain/gpt_poet_summary.json").exists()
    errors = capsys.readouterr().err
    assert "config.json: ignored: default_expert_time: " in errors
    assert "config.json: ignored: evaluation_parameters.race_score_max: " in errors
    assert poet(rows, "gpt", "--config", "config.json", "--output-dir", "compat", "--compat") == 1
    assert read("compat/gpt_poet_detailed.json")["results"][0]["overall_poet_score"] == 0.25


@pytest.mark.parametrize(
    ("score", "race", "shown"),
    [(4.2, 4.2 / 5, 4.2 / 5), (7, 1.0, 1.0), (5, 1.0, 1.0), ("1.5", 0.3, 0.3), (1, 0.2, 1), (0.5, 0.1, 0.5)],
)
def test_compat_takes_race_scores_above_1_as_the_originals_scale_of_5(
    rows: list[dict[str, Any]], score: Any, race: float, shown: float
) -> None:
    stage_results(rows)
    path = Path("results/race/gpt/raw_results.jsonl")
    first, *others = (json.loads(line) for line in path.read_text().splitlines())
    write_rows(path, [{**first, "overall_score": score}, *others])
    assert poet(rows, "gpt", "--compat") == 1
    [one, *_] = read("results/poet/gpt/gpt_poet_detailed.json")["results"]
    assert one["quality_score"] == pytest.approx(0.7 * race + 0.3 * 3 / 4)
    assert one["race_score"] == pytest.approx(shown)
    assert one["race_dimensions"]["insight"] == pytest.approx(0.4 / 5 if float(score) > 1 else 0.4)
    if float(score) > 1:
        assert poet(rows, "gpt") == 1
        assert read("results/poet/gpt/gpt_poet_detailed.json")["results"][0]["quality_score"] is None


def test_compat_scores_the_citations_that_could_be_compared(rows: list[dict[str, Any]]) -> None:
    stage_results(rows)
    path = Path("results/fact/gpt/validated.jsonl")
    first, *others = (json.loads(line) for line in path.read_text().splitlines())
    first["citations_deduped"]["https://y.example/"] = {"facts": ["F"], "validate_error": "no reply"}
    write_rows(path, [{**first, "validate_error": "1 of 2 pages could not be compared"}, *others])
    assert poet(rows, "gpt", "--compat") == 1
    [one, *_] = read("results/poet/gpt/gpt_poet_detailed.json")["results"]
    assert (one["fact_accuracy"], one["citations_unknown"]) == (0.75, 1)
    assert poet(rows, "gpt") == 1
    [one, *_] = read("results/poet/gpt/gpt_poet_detailed.json")["results"]
    assert one["fact_accuracy"] is None


def test_poet_skips_languages_that_the_config_does_not_support(
    rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    rows[2] |= {"prompt": "为什么？"}
    Path("config.json").write_text(json.dumps({"evaluation_settings": {"language_support": ["en"]}}))
    poet(rows, "gpt", "--config", "config.json")
    assert read("results/poet/gpt/gpt_poet_detailed.json")["n_total"] == 2
    assert "language_support lacks their language: 3 (zh)" in capsys.readouterr().err


def test_rows_that_cannot_be_read_are_counted(rows: list[dict[str, Any]]) -> None:
    del rows[1]["article"]
    poet(rows, "gpt")
    detailed = read("results/poet/gpt/gpt_poet_detailed.json")
    assert [detailed[name] for name in ("n_total", "n_scored", "n_failed")] == [3, 0, 3]
    assert len(detailed["results"]) == 2


def test_poet_takes_nothing_of_another_article_or_of_other_metrics(rows: list[dict[str, Any]]) -> None:
    stage_results(rows)
    efficiency(rows)
    Path("data/annotation").rename("data/elsewhere")
    for part, name in (("race", "raw_results.jsonl"), ("strategic", "strategic_report.json")):
        path = Path("results", part, "gpt", name)
        digest = article_digest(rows[0]["article"])
        path.write_text(path.read_text().replace('{"id": 1,', f'{{"id": 1, "article_digest": "{digest}",', 1))
    poet(rows, "gpt")
    assert read("results/poet/gpt/gpt_poet_detailed.json")["results"][0]["overall_poet_score"] is not None
    rows[0] |= {"article": "Written anew.", "execution_metrics": {**METRICS, "automation_level": 0.5}}
    assert poet(rows, "gpt") == 1
    one = read("results/poet/gpt/gpt_poet_detailed.json")["results"][0]
    assert (one["race_score"], one["fact_accuracy"], one["strategic_score"], one["efficiency_score"]) == (None,) * 4
    said = "results/race/gpt/raw_results.jsonl: is of another article than the report has now; run agentbench research"
    assert one["reasons"]["race"] == f"{said} race again"
    assert "validated.jsonl: is of another article" in one["reasons"]["fact"]
    assert "strategic_report.json: is of another article" in one["reasons"]["strategic"]
    assert "efficiency_report.json: is of another execution_metrics" in one["reasons"]["efficiency"]


def test_a_report_that_other_stages_could_not_read_takes_nothing_from_the_others(rows: list[dict[str, Any]]) -> None:
    stage_results(rows)
    path = Path("results/strategic/gpt/strategic_report.json")
    document = read(str(path))
    document["results"].insert(0, {"id": 4, "strategic_error": "prompt: found nothing"})
    path.write_text(json.dumps(document))
    poet(rows, "gpt")
    assert read("results/poet/gpt/gpt_poet_detailed.json")["results"][0]["strategic_score"] == 0.7
