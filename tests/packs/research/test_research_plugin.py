from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest
from support.research_project import PAGE, PROMPTS, REPLIES, ResearchProject, criteria, query, race_reply, report

SCRIPTED = "--agentbench-evaluation-profile=scripted"


@pytest.fixture
def project(bench):
    """Two reports of `gpt`, and an evaluation profile whose judge is scripted."""
    profile = {"schema_version": 1, "evaluation_profile_id": "scripted", "title": "Scripted", "judge_runs": []}
    profile["judges"] = [{"judge_id": "j", "type": "llm_probe", "model": "demo"}]
    bench.write("cases/evaluation_profiles/scripted.yaml", profile)
    project = bench.research = ResearchProject(bench.path / "cases")
    project.bench = bench
    return project


def evaluations(bench):
    """The stored evaluations by case id."""
    files = sorted((bench.path / "outputs" / "evaluations").rglob("final_result_1.json"))
    document = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return {each["case_id"]: each for each in document}


def test_every_score_of_a_stored_report_is_a_metric_and_a_user_property(project):
    bench = project.bench
    finished = bench.run(SCRIPTED, "--junit-xml=junit.xml")
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"}
    metrics = finished.runs["drb.1[gpt]"]["metrics"]
    efficiency = 0.4 * 0.75 + 0.3 * 0.98 + 0.3 * 0.5
    quality = 0.7 * 0.6 + 0.3
    assert metrics == pytest.approx(
        {
            **dict.fromkeys(
                ("race", "race_comprehensiveness", "race_insight", "race_instruction_following", "race_readability"),
                0.6,
            ),
            "race_weighted_dims": 0.6,
            "fact_accuracy": 1.0,
            "fact_citations": 1,
            "fact_valid_citations": 1,
            "fact_supported_per_1000_words": 100,
            "efficiency": efficiency,
            "time_saving": 0.75,
            "cost_saving_usd": 196.0,
            "automation": 0.5,
            "resource_efficiency": quality / 8,
            "strategic": 0.8,
            "complexity_adaptability": quality * 3 / 5,
            "knowledge_units": 1,
            "knowledge_creation_value": 0.75,
            "interaction_efficiency": None,
            "quality": quality,
            "poet": 0.3 * efficiency + 0.5 * quality + 0.2 * 0.8,
        }
    )
    case = next(
        case for case in ElementTree.parse(bench.path / "junit.xml").iter("testcase") if "drb.1" in case.get("name")
    )
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert float(properties["agentbench.metric.poet"]) == pytest.approx(metrics["poet"])
    assert "agentbench.metric.interaction_efficiency" not in properties
    reasons = {each["name"]: each["details"].get("reason") for each in evaluations(bench)["drb.1"]["metrics"]}
    assert "error_rate" in reasons["interaction_efficiency"]


def test_the_evidence_is_in_the_evaluation(project):
    project.bench.run(SCRIPTED)
    document = evaluations(project.bench)["drb.2"]["research"]
    assert (document["row_id"], document["model"], document["language"], document["domain"]) == (
        2,
        "gpt",
        "zh",
        "finance",
    )
    assert document["execution_metrics"]["token_usage"]["input_tokens"] == 2000
    assert {each["dimension"]: (each["target"], each["reference"]) for each in document["criteria"]} == dict.fromkeys(
        ("comprehensiveness", "insight", "instruction_following", "readability"), (6, 4)
    )
    assert document["statements"] == [{"url": PAGE, "fact": "Chips cost more.", "label": "supported"}]
    assert document["strategic"]["independence"] == [4, "Sound."]
    assert document["summary"]["task_id"] == 2


@pytest.mark.slow
def test_a_report_below_a_threshold_fails(project):
    project.reports(thresholds={"race": 0.5, "cost_saving_usd": 150})
    project.script({"2": {"race": race_reply(4, 6)}})
    finished = project.bench.run(SCRIPTED)
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "failed"}
    assert finished.runs["drb.2[gpt]"]["message"] == "metric race: expected at least 0.500, got 0.400"


@pytest.mark.slow
def test_a_failed_report_shows_the_evidence_of_its_scores(project):
    scores = race_reply(5, 5)
    scores["insight"][0] |= {"article_1_score": 2, "article_2_score": 8, "analysis": "No \x1b[31mcause."}
    unsupported = {"results": [{"idx": 0, "reason": "It does not.", "result": "unsupported"}]}
    strategic = {**REPLIES["strategic"], "independence": {"reason": "Copied.", "score": 1}}
    project.script({"1": {"race": scores, "validate": unsupported, "strategic": strategic}})
    every = {"race": 0.5, "fact_accuracy": 0.5, "efficiency": 0.9, "strategic": 0.8, "poet": 0.7}
    project.reports(thresholds=every)
    text = project.bench.run(SCRIPTED, "-k", "drb.1").text
    for line in (
        "    made of: race 0.410, fact_accuracy 0.000, efficiency 0.744, strategic 0.710",
        "    insight: 2 against 8: insight of it (No \\x1b[31mcause.)",
        f"    unsupported: Chips cost more. <{PAGE}>",
        "    recorded: 1,800 seconds, 4 USD, 2,000 input tokens, 6,000 output tokens, automation 0.5",
        "    independence: 1 of 5 (Copied.)",
    ):
        assert line in text
    project.reports(thresholds={"efficiency": 0.9})
    text = project.bench.run(SCRIPTED, "-k", "drb.1").text
    assert "recorded: " in text
    assert "insight: 2" not in text


@pytest.mark.slow
def test_an_unmeasurable_metric_fails_only_its_threshold(project):
    project.rows("raw/gpt.jsonl", report(1, execution_metrics=None), report(2))
    project.reports(thresholds={"time_saving": 0.1}, parts=["efficiency"])
    finished = project.bench.run()
    assert finished.outcomes == {"drb.1[gpt]": "failed", "drb.2[gpt]": "passed"}
    assert "execution_metrics.total_duration_seconds" in finished.text
    project.reports(thresholds={})
    finished = project.bench.run()
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"}
    assert finished.runs["drb.1[gpt]"]["metrics"]["efficiency"] is None


@pytest.mark.slow
def test_files_are_models_and_the_option_filters(project):
    project.rows("raw/claude.jsonl", report(1), report(2))
    every = project.bench.run(SCRIPTED)
    assert set(every.runs) == {"drb.1[claude]", "drb.2[claude]", "drb.1[gpt]", "drb.2[gpt]"}
    assert set(project.bench.run(SCRIPTED, "--model=claude").runs) == {"drb.1[claude]", "drb.2[claude]"}
    assert set(project.bench.run(SCRIPTED, "-k", "zh and not claude").runs) == {"drb.2[gpt]"}
    assert set(project.bench.run(SCRIPTED, "-m", "en").runs) == {"drb.1[claude]", "drb.1[gpt]"}
    project.bench.questions(1, name="cases/others.jsonl")
    project.bench.agent()
    for names in (["--model=gemini"], ["--model=gemini", "--model=gpt", "-k", "drb"]):
        finished = project.bench.run(SCRIPTED, *names)
        assert set(finished.runs) == ({"others.q0[gemini]"} if len(names) == 1 else {"drb.1[gpt]", "drb.2[gpt]"})
        assert "reports.yaml: found no stored report of gemini; its files are of claude, gpt" in finished.text


@pytest.mark.slow
def test_a_model_without_any_report_is_wrong_usage(project):
    finished = project.bench.run(SCRIPTED, "--model=gemini")
    assert finished.exit == pytest.ExitCode.USAGE_ERROR
    assert "reports.yaml: found no stored report of gemini; its files are of gpt" in finished.text
    project.rows("raw/gpt.jsonl", "{")
    broken = project.bench.run(SCRIPTED, "--model=gemini", "--model=gpt")
    assert "gpt.jsonl:2:1: not valid JSON" in broken.text


@pytest.mark.slow
def test_an_unnamed_dataset_is_collected_and_named_files_are_not_datasets(project):
    project.rows("raw/gpt.jsonl", report(1, question="Is this a dataset?"), report(2))
    project.rows("other.jsonl", {"id": "q", "question": "Capital of France?", "answer": "Paris"})
    project.bench.agent()
    finished = project.bench.run(SCRIPTED)
    assert set(finished.runs) == {"drb.1[gpt]", "drb.2[gpt]", "other.q[agent]"}


@pytest.mark.slow
def test_without_a_judge_the_error_names_the_remedy(project, monkeypatch):
    monkeypatch.delenv("OPENAI_MODEL", raising=False)
    finished = project.bench.run()
    assert finished.exit != 0
    assert "reports.yaml:1:1: found no judge; name an evaluation profile that has one" in finished.text
    monkeypatch.setenv("OPENAI_MODEL", "demo")
    assert set(project.bench.run().outcomes.values()) == {"passed"}


def test_parts_that_ask_nobody_need_no_judge(project, monkeypatch):
    monkeypatch.delenv("OPENAI_MODEL", raising=False)
    project.reports(parts=["efficiency", "interaction"])
    finished = project.bench.run()
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"}
    assert finished.runs["drb.1[gpt]"]["cost_usd"]["judge"] == 0


@pytest.mark.slow
def test_a_language_that_is_not_supported_is_skipped_by_name(project):
    project.json("config.json", {"evaluation_settings": {"language_support": ["en"]}})
    project.reports(config="config.json")
    finished = project.bench.run(SCRIPTED)
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "skipped"}
    assert "language_support is en, which lacks zh" in finished.runs["drb.2[gpt]"]["message"]


@pytest.mark.slow
def test_weights_of_the_configuration_are_honoured(project):
    weights = {"efficiency_value": 1.0, "quality_value": 0.0, "strategic_value": 0.0}
    project.json("config.json", {"poet_weights": weights, "query_selection": {"enable_dynamic_weighting": False}})
    project.reports(config="config.json")
    uneven = race_reply()
    uneven["insight"][0] |= {"article_1_score": 10, "article_2_score": 0}
    project.script({"1": {"race": uneven}})
    metrics = project.bench.run(SCRIPTED).runs["drb.1[gpt]"]["metrics"]
    assert metrics["poet"] == pytest.approx(metrics["efficiency"])
    target, other = 6 * 0.65 + 10 * 0.35, 4 * 0.65
    assert metrics["race"] == pytest.approx(target / (target + other))


@pytest.mark.slow
def test_items_know_nothing_of_one_anothers_knowledge(project):
    every = project.bench.run(SCRIPTED)
    units = {name: row["metrics"]["knowledge_units"] for name, row in every.runs.items()}
    assert units == {"drb.1[gpt]": 1, "drb.2[gpt]": 1}
    (project.bench.path / "outputs/research/knowledge_base.jsonl").unlink()
    for name in ("drb.2", "drb.1"):
        [(item, row)] = project.bench.run(SCRIPTED, "-k", name, "--agentbench-rejudge").runs.items()
        assert row["metrics"]["knowledge_units"] == units[item]
    project.rows("raw/gpt.jsonl", report(1), report(2, article="Chips cost more, as is known."))
    later = project.bench.run(SCRIPTED).runs
    assert {name: row["metrics"]["knowledge_units"] for name, row in later.items()} == {**units, "drb.2[gpt]": 0}


def test_without_references_reports_are_judged_alone(project):
    single = {
        name: [{"criterion": f"{name} of it", "analysis": "", "target_score": 7}]
        for name in ("comprehensiveness", "insight", "instruction_following", "readability")
    }
    project.script(research={"race": single})
    project.reports(references=None, parts=["race"])
    assert project.bench.run(SCRIPTED).runs["drb.1[gpt]"]["metrics"]["race"] == pytest.approx(0.7)


def test_samples_have_a_standard_deviation(project):
    project.reports(parts=["race"], samples=2)
    project.script(research={"race": [race_reply(6, 4), race_reply(4, 6)]})
    metrics = project.bench.run(SCRIPTED).runs["drb.1[gpt]"]["metrics"]
    assert metrics["race"] == pytest.approx(0.5)
    assert metrics["race_sd"] == pytest.approx(0.1 * 2**0.5)


@pytest.mark.slow
@pytest.mark.parametrize("dist", ["load", "loadscope", "worksteal"])
def test_workers_share_the_work_and_the_knowledge_base(project, dist):
    project.reports(knowledge_base="kept/knowledge.jsonl")
    finished = project.bench.spawn(SCRIPTED, "-n2", f"--dist={dist}")
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"}
    assert [row["metrics"]["knowledge_units"] for row in finished.runs.values()] == [1, 1]
    lines = (project.folder / "kept" / "knowledge.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["task_id"] for line in lines) == [1, 2]


@pytest.mark.slow
def test_collection_imports_no_scorer(project):
    check = """
import sys
def pytest_collection_finish(session):
    scorers = ("arithmetic", "race", "fact", "grading", "strategic", "interaction", "asking", "knowledge")
    prefix = "pytest_agentbench.packs.research."
    print("LOADED", [name for name in sys.modules if name.startswith(tuple(prefix + each for each in scorers))])
"""
    project.bench.write("conftest.py", check)
    result = project.bench.pytester.runpytest_subprocess("--collect-only", "-q", "-s", SCRIPTED)
    assert "drb.1[gpt]" in result.stdout.str()
    assert "LOADED []" in result.stdout.str()


def test_a_written_report_is_measured(project):
    project.rows("query.jsonl", query(1), query(2))
    project.reports(reports=None)
    project.script(answers={"1": "Chips cost more [1], much more [2] [1]."}, default="Nothing changed.")
    finished = project.bench.run("--model=demo")
    assert finished.outcomes == {"drb.1[demo]": "passed", "drb.2[demo]": "passed"}
    row = finished.runs["drb.1[demo]"]
    document = evaluations(project.bench)["drb.1"]["research"]
    measured = document["execution_metrics"]
    assert measured["total_duration_seconds"] == pytest.approx(row["duration_seconds"])
    assert measured["token_usage"]["input_tokens"] == row["usage"]["input_tokens"] > 0
    assert (measured["citation_count"], measured["sources_used"], measured["word_count"]) == (3, 2, 5)
    assert (measured["automation_level"], measured["tool_calls_count"]) == (1.0, 0)
    assert row["metrics"]["automation"] == 1.0
    assert row["metrics"]["time_saving"] == pytest.approx(1, abs=1e-2)


def test_an_agent_of_ones_own_writes_reports(project):
    project.reports(reports=None, parts=["efficiency", "interaction"])
    project.bench.agent(
        """
import pytest
from pytest_agentbench import RunOutput, Usage

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: RunOutput(output="All of it [1].", usage=Usage(input_tokens=9, output_tokens=1, cost_usd=20.0))
"""
    )
    finished = project.bench.run()
    assert finished.outcomes == {"drb.1[agent]": "passed", "drb.2[agent]": "passed"}
    assert finished.runs["drb.1[agent]"]["metrics"]["cost_saving_usd"] == pytest.approx(180)


@pytest.mark.parametrize("written", ["None", "' \\n'"])
@pytest.mark.parametrize("parts", [["efficiency"], ["race", "fact"]])
def test_an_agent_that_writes_no_report_has_failed(project, written, parts):
    project.reports(reports=None, parts=parts)
    project.bench.agent(
        f"""
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: {written}
"""
    )
    finished = project.bench.run(SCRIPTED)
    assert finished.outcomes == {"drb.1[agent]": "failed", "drb.2[agent]": "failed"}
    row = finished.runs["drb.1[agent]"]
    assert (row["status"], row["metrics"], row["cost_usd"]["judge"]) == ("success", {}, 0)
    assert "the run wrote no report: its final answer is empty" in row["message"]


def test_a_prediction_has_no_measured_run(project):
    project.reports(reports=None, parts=["efficiency", "fact"])
    project.bench.write("mine.json", json.dumps(dict.fromkeys(("drb.1", "drb.2"), f"Chips [1] {PAGE}.")))
    finished = project.bench.run(SCRIPTED, "--agentbench-predictions=mine.json")
    assert finished.outcomes == {"drb.1[mine]": "passed", "drb.2[mine]": "passed"}
    metrics = finished.runs["drb.1[mine]"]["metrics"]
    assert metrics["time_saving"] is None
    assert metrics["automation"] is None
    assert metrics["fact_accuracy"] == 1


def test_a_dry_run_judges_nothing(project):
    finished = project.bench.run(SCRIPTED, "--agentbench-dry-run")
    assert not (project.bench.path / "outputs" / "evaluations").exists()
    assert "2" in finished.text


def test_prompts_that_differ_in_blanks_are_the_same(project):
    project.rows("criteria.jsonl", criteria(1, prompt=f"  {PROMPTS[1]}\n"), criteria(2))
    assert project.bench.run(SCRIPTED).outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"}


def test_a_suite_selects_reports(project):
    suite = {"schema_version": 1, "suite_id": "zh", "title": "Chinese"}
    project.bench.write("cases/suites/zh.yaml", {**suite, "case_selection": {"include_tags": ["zh"]}})
    assert project.bench.run(SCRIPTED, "--agentbench-suite=zh").outcomes == {"drb.2[gpt]": "passed"}
