"""`agentbench research poet --session`: the business report on a pytest session, as the stages' commands make it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.research_project import METRICS, PAGE, REPLIES, ResearchProject, query, race_reply, report
from support.stored import find_stored

from pytest_agentbench.cli import main

SCRIPTED = "--agentbench-evaluation-profile=scripted"
COUNTS = ("n_total", "n_scored", "n_failed", "n_not_reached")


@pytest.fixture
def project(bench, monkeypatch):
    """Two reports of `gpt` and two of `claude`, of which one does not say how automated it was."""
    for name in ("OPENAI_MODEL", "TARGET_MODELS", "LIMIT", "ONLY_ZH", "ONLY_EN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(bench.path)
    profile = {"schema_version": 1, "evaluation_profile_id": "scripted", "title": "Scripted", "judge_runs": []}
    profile["judges"] = [{"judge_id": "j", "type": "llm_probe", "model": "demo"}]
    bench.write("cases/evaluation_profiles/scripted.yaml", profile)
    project = ResearchProject(bench.path / "cases")
    other = report(2, article=f"Nothing new [1].\n\n[1] {PAGE}")
    project.rows("raw/gpt.jsonl", report(1), other)
    project.rows("raw/claude.jsonl", report(1), {**other, "execution_metrics": {**METRICS, "automation_level": None}})
    script(project, {})
    project.bench = bench
    return project


def script(project, second, **fields):
    """What the judge says; `second` of the second report."""
    knowledge = {"units": [{"text": "Nothing is new.", "quality": 0.5}]}
    project.script({"2": {"knowledge": knowledge, **second}}, **fields)


def session(project, *options, spawn=False):
    """Runs one whose report.json stays."""
    finished = (project.bench.spawn if spawn else project.bench.run)(SCRIPTED, *options)
    (project.bench.path / "outputs" / "report.json").write_text(json.dumps(finished.report))
    return finished


def poet(*options):
    return main(["research", "poet", "--session", "outputs", *options])


def stages(*options):
    """The same by commands, from the project's files."""
    data = ["--raw-data-dir", "cases/raw", "--criteria-file", "cases/criteria.jsonl", "--query-file"]
    data += ["cases/query.jsonl", "--reference-file", "cases/reference.jsonl", "--annotation-dir", "cases/annotation"]
    judge = ["--judge", "demo", "--script", "cases/reports.demo.yaml", "--kept", "kept"]
    more = ["--domain-map", "Business=finance", "--output-dir", "by_stages", *options]
    return main(["research", "run", *data, *judge, *more])


def read(path):
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    document.pop("made", None)
    return document


def files(model, folder="results/poet"):
    return {name: read(f"{folder}/{model}/{model}_poet_{name}.json") for name in ("detailed", "summary", "report")}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["one process", "xdist"])
def test_the_files_are_those_of_the_commands_over_the_same_inputs(project, capsys, workers):
    no_knowledge = {"knowledge_base_settings": {"min_knowledge_quality_threshold": 1.0}}  # it comes in any order
    weights = {"efficiency_value": 0.5, "quality_value": 0.25, "strategic_value": 0.25}
    project.json("config.json", {**no_knowledge, "poet_weights": weights})
    project.reports(config="config.json")
    session(project, *workers, spawn=bool(workers))
    assert poet() == 1
    printed = capsys.readouterr()
    assert "poet claude: 2: no composite: efficiency: execution_metrics.automation_level is missing" in printed.err
    assert stages("--config", "cases/config.json") == 1
    for model, scored in (("gpt", 2), ("claude", 1)):
        own, other = files(model), files(model, "by_stages/poet")
        assert own == other
        assert [own["summary"][name] for name in COUNTS] == [2, scored, 2 - scored, 0]
        assert Path(f"results/poet/{model}/{model}_poet_report.txt").is_file()
    compared = read("results/poet/poet_comparison.json")
    assert compared == read("by_stages/poet/poet_comparison.json")
    assert compared["comparison"]["best"] in ("gpt", "claude")


@pytest.mark.slow
def test_scores_and_judge_costs_equal_those_computed_by_hand(project):
    session(project)
    poet("gpt")
    document = files("gpt")
    efficiency, quality = 0.4 * 0.75 + 0.3 * 0.98 + 0.3 * 0.5, 0.7 * 0.6 + 0.3
    composite = 0.3 * efficiency + 0.5 * quality + 0.2 * 0.8
    rows = document["summary"]["results"]
    assert [(row["task_id"], row["model_name"], row["domain"]) for row in rows] == [
        (1, "gpt", "finance"),
        (2, "gpt", "finance"),
    ]
    assert [row["overall_poet_score"] for row in rows] == pytest.approx([composite, composite])
    judge = document["report"]["costs"]["judge"]
    asked = ("race", "extract", "validate", "strategic", "knowledge")
    assert {stage: judge[stage]["requests"] for stage in asked} == dict.fromkeys(asked, 2)
    assert judge["race"]["input_tokens"] > 0


@pytest.mark.slow
def test_items_that_errored_count_as_failed_with_their_reason(project, capsys):
    script(project, {"race": {"insight": []}})
    finished = session(project, "--model=gpt")
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "error"}
    assert poet("--output-dir", "out", "gpt") == 1
    report = read("out/gpt_poet_report.json")
    assert [report[name] for name in COUNTS] == [2, 1, 1, 0]
    (lack,) = report["missing"]["race"]
    assert lack["task_id"] == 2
    assert lack["reason"] in finished.runs["drb.2[gpt]"]["message"]
    failed = read("out/gpt_poet_summary.json")["results"][1]
    assert (failed["strategic_score"], failed["fact_accuracy"], failed["race_score"]) == (0.8, 1.0, None)
    assert "poet: 2: no composite: race:" in capsys.readouterr().err


@pytest.mark.slow
def test_a_report_that_was_never_written_is_lost_with_its_reason(project, capsys):
    project.reports(reports=None)
    project.bench.agent(
        """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        if case.case_id == "drb.2":
            raise RuntimeError("no network")
        return "Chips cost more [1]."
    return agent
"""
    )
    session(project)
    assert poet() == 1
    report = read("results/poet/agent/agent_poet_report.json")
    assert report["n_total"] == 2
    (lost,) = report["lost"]
    assert lost == "cases/reports.yaml::drb.2[agent]: RuntimeError: no network"
    assert f"poet: 2: {lost}" in capsys.readouterr().err


@pytest.mark.slow
def test_weights_and_thresholds_are_those_that_items_were_scored_with(project):
    weights = {"efficiency_value": 1.0, "quality_value": 0.0, "strategic_value": 0.0}
    project.json("config.json", {"poet_weights": weights, "performance_thresholds": {"excellent_threshold": 0.7}})
    project.reports(config="config.json", compat=True)
    session(project, "--model=gpt")
    (project.folder / "config.json").unlink()
    assert poet() == 0
    report = files("gpt")["report"]
    assert report["weights"]["efficiency_value"] == 1.0
    assert report["weights"]["race_score_max"] == 5.0
    assert report["performance_class"] == "excellent"
    assert report["means"]["overall_poet_score"]["mean"] == pytest.approx(0.744)


@pytest.mark.slow
def test_reports_that_were_scored_differently_are_not_put_together(project, capsys):
    project.json("config.json", {"performance_thresholds": {"excellent_threshold": 0.7}})
    other = ResearchProject(project.bench.path / "cases" / "other")
    other.reports(name="other", config="../config.json")
    session(project)
    assert poet() == 1
    assert "report.json: found reports that were scored with different configurations" in capsys.readouterr().err
    assert not (project.bench.path / "results").exists()


@pytest.mark.slow
def test_ids_of_several_files_of_reports_are_distinguished(project):
    ResearchProject(project.bench.path / "cases" / "other").reports(name="other")
    session(project, "--model=gpt")
    assert poet() == 0
    tasks = [row["task_id"] for row in files("gpt")["summary"]["results"]]
    assert sorted(tasks) == ["drb.1", "drb.2", "other.1", "other.2"]


@pytest.mark.slow
def test_repetitions_are_reports_of_their_own_and_no_tasks_of_their_own(project):
    project.rows("query.jsonl", query(1), query(2))
    project.reports(reports=None)
    answers = {"1": f"Chips cost more [1].\n\n[1] {PAGE}", "2": f"Nothing new [1].\n\n[1] {PAGE}"}
    script(project, {"race": race_reply(2, 8)}, answers=answers)
    session(project, "--model=demo", "--agentbench-repetitions=3")
    assert poet() == 0
    document = files("demo")
    tasks = [row["task_id"] for row in document["summary"]["results"]]
    assert sorted(map(str, tasks)) == ["1", "1-r2", "1-r3", "2", "2-r2", "2-r3"]
    means = document["report"]["means"]["race_score"]
    assert (means["n"], means["mean"]) == (6, pytest.approx(0.4))
    assert means["ci95"] is None  # six reports, but two tasks


def test_a_skipped_language_is_reported_and_left_out(project, capsys):
    project.json("config.json", {"evaluation_settings": {"language_support": ["en"]}})
    project.reports(config="config.json")
    session(project, "--model=gpt")
    assert poet() == 0
    assert files("gpt")["summary"]["n_total"] == 1
    assert "outputs/report.json: 1 skipped: " in capsys.readouterr().err


def test_rows_that_the_session_did_not_reach_have_failed(project):
    session(project, "--model=gpt", "--agentbench-max-tokens=1", "--agentbench-concurrency=1")
    assert poet() == 1
    report = files("gpt")["report"]
    assert report["n_total"] == 2
    assert "drb.2[gpt]: not run: " in report["lost"][-1]


@pytest.mark.slow
def test_parts_that_nobody_asked_for_are_missing_with_that_reason(project):
    project.reports(parts=["race"])
    session(project, "--model=gpt")
    assert poet() == 1
    report = files("gpt")["report"]
    assert report["means"]["race_score"]["mean"] == pytest.approx(0.6)
    assert {each["reason"] for each in report["missing"]["fact"]} == {"it is not among the parts that are scored"}


@pytest.mark.slow
def test_a_report_of_scores_in_units_of_their_own_can_be_merged(project):
    session(project)
    assert main(["merge", "outputs/report.json", "-o", "outputs/merged.json"]) == 0
    assert main(["research", "poet", "gpt", "--session", "outputs/merged.json"]) == 0
    assert files("gpt")["summary"]["n_scored"] == 2


@pytest.mark.slow
def test_rows_can_be_chosen(project):
    session(project)
    assert poet("gpt", "--only-zh") == 0
    assert [row["task_id"] for row in files("gpt")["summary"]["results"]] == [2]
    assert poet("gpt", "--limit=1") == 0
    assert [row["task_id"] for row in files("gpt")["summary"]["results"]] == [1]


def test_an_evaluation_that_is_gone_loses_its_report_alone(project, capsys):
    session(project, "--model=gpt")
    output = project.bench.path / "outputs"
    (gone,) = find_stored(output, "drb.2/final_result_1.json")
    gone.unlink()
    assert poet() == 1
    report = files("gpt")["report"]
    assert [report[name] for name in COUNTS] == [2, 1, 1, 0]
    assert "outputs: found no evaluation" in report["lost"][0]


@pytest.mark.slow
def test_an_evaluation_that_was_replaced_is_still_found(project):
    project.bench.run(SCRIPTED, "--model=gpt")
    before = session(project, "--model=gpt").report
    project.script(research={**REPLIES, "race": race_reply(9, 1)})
    session(project, "--model=gpt")
    poet()
    later = files("gpt")["summary"]["results"][0]["race_score"]
    (project.bench.path / "outputs" / "report.json").write_text(json.dumps(before))
    poet()
    assert (files("gpt")["summary"]["results"][0]["race_score"], later) == (pytest.approx(0.6), pytest.approx(0.9))


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--session", "elsewhere"], 1, "elsewhere: cannot be read"),
        (
            ["--session", "outputs", "--domain-map", "a=b", "--compat"],
            2,
            "found --domain-map, --compat next to --session",
        ),
        (["--session", "outputs", "gemini"], 1, "found no report of gemini, expected one of claude, gpt"),
    ],
)
def test_wrong_usage(project, capsys, options, code, said):
    session(project)
    assert main(["research", "poet", *options]) == code
    assert said in capsys.readouterr().err


def test_a_session_without_reports_is_an_error(project, capsys):
    project.bench.questions(1, name="cases/others/q.jsonl")
    project.bench.agent()
    session(project, "cases/others")
    assert poet() == 1
    err = capsys.readouterr().err
    assert "outputs/report.json: found no research report among 1 runs, expected a session" in err
