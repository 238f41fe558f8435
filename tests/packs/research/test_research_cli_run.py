"""`agentbench research run`: all stages over the sample's reports, judged by its script, offline."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_agentbench.cli import main
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.pipeline import heed_environment
from pytest_agentbench.packs.research.stages import PARTS

SAMPLE = Path(__file__).parents[3] / "cases" / "research"
SCRIPT = SAMPLE / "reports.demo.yaml"
RUN = [
    *("research", "run", "--judge", "demo", "--script", str(SCRIPT)),
    *("--domain-map", "transport=logistics", "--domain-map", "catering=hospitality"),
]
METRICS = {
    "total_duration_seconds": 360,
    "token_usage": {"input_tokens": 2000, "output_tokens": 3000, "total_cost_usd": 0.05},
    "automation_level": 1.0,
}
STAGES = ("select_queries", "criteria", "race", "fact", "efficiency", "strategic", "interaction", "poet")
SET_BY_RUN = {
    *("model", "input_file", "output_file", "output_path", "source", "raw_data_path", "query_data_path"),
    *("from_scores", "raw_results", "export_selected", "convert_to_jsonl", "results_dir", "session", "regenerate"),
}


def options(command: str) -> set[str]:
    parser = argparse.ArgumentParser()
    added = parser.add_subparsers()
    import_module(f"pytest_agentbench.packs.research.{'fact.command' if command == 'fact' else command}").add_parser(
        added
    )
    return {action.dest for each in added.choices.values() for action in each._actions}


@pytest.mark.parametrize("stage", STAGES)
def test_run_accepts_the_options_of_every_stage(stage: str) -> None:
    assert options(stage) - SET_BY_RUN <= options("pipeline")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The seed's layout with the sample's files and its two reports, as one model's; the current folder."""
    for name in ("OPENAI_MODEL", "TARGET_MODELS", "LIMIT", "ONLY_ZH", "ONLY_EN"):
        monkeypatch.delenv(name, raising=False)
    data = tmp_path / "data"
    shutil.copytree(SAMPLE / "annotations", data / "annotation")
    for name, place in {
        "queries.jsonl": "prompt_data/query.jsonl",
        "references.jsonl": "reference/reference.jsonl",
        "criteria.jsonl": "criteria_data/criteria.jsonl",
    }.items():
        (data / place).parent.mkdir()
        shutil.copy(SAMPLE / name, data / place)
    write_reports(data, "quick")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_reports(data: Path, model: str) -> None:
    queries = [json.loads(line) for line in (SAMPLE / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    articles = yaml.safe_load(SCRIPT.read_text(encoding="utf-8"))["answers"]
    rows = [
        {"id": each["id"], "prompt": each["prompt"], "article": articles[each["id"]], "execution_metrics": METRICS}
        for each in queries
    ]
    folder = data / "test_data" / "raw_data"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{model}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def table(out: str) -> dict[str, tuple[str, ...]]:
    """The lines of the end summary by stage."""
    lines = [line.split("  ") for line in f"\n{out}".split("\nstage ")[1].split("\njudge ")[0].strip().splitlines()[1:]]
    return {parts[0]: tuple(part.strip() for part in parts[1:] if part.strip()) for parts in lines}


def summary(project: Path, model: str = "quick") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / f"results/poet/{model}/{model}_poet_summary.json").read_text())
    return found


def judge_costs(report: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))["costs"]["judge"]
    return found


@pytest.mark.slow
def test_all_parts_of_all_models(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_reports(project / "data", "slow")
    assert main(RUN) == 0
    out = capsys.readouterr().out
    parts = ("race", "extract", "deduplicate", "scrape", "validate", "stat", "efficiency", "strategic", "interaction")
    of_models = [f"{part} {model}" for model in ("quick", "slow") for part in (*parts, "poet")]
    assert list(table(out)) == ["criteria", *of_models, "comparison"]
    assert set(table(out).values()) == {("2", "2", "0")}
    for model in ("quick", "slow"):
        assert [row["task_id"] for row in summary(project, model)["results"]] == ["vans", "lunch"]
        assert summary(project, model)["n_scored"] == 2
    assert (project / "results/poet/poet_comparison.txt").is_file()
    costs = {
        model: judge_costs(project / f"results/poet/{model}/{model}_poet_report.json") for model in ("quick", "slow")
    }
    assert costs["quick"]["race"]["requests"] == costs["slow"]["race"]["requests"] == 2
    compared = json.loads((project / "results/poet/poet_comparison.json").read_text(encoding="utf-8"))
    assert [each["costs"]["judge"] for each in compared["models"]] == list(costs.values())
    assert {"results/poet/poet_comparison.json", "results/poet/poet_comparison.txt"} <= set(out.splitlines())
    written = [line for line in out.splitlines() if line.startswith(("results/", "data/"))]
    assert "data/criteria_data/criteria.jsonl" in written
    assert "results/fact/slow/: 5 files" in written
    assert all((project / path.partition(": ")[0]).exists() for path in written)


def test_limit_and_language_of_the_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONLY_ZH", "--only_zh")
    assert main(RUN) == 0
    assert [row["task_id"] for row in summary(project)["results"]] == ["lunch"]
    monkeypatch.delenv("ONLY_ZH")
    monkeypatch.setenv("LIMIT", "--limit 1")
    assert main(RUN) == 0
    assert [row["task_id"] for row in summary(project)["results"]] == ["vans"]
    assert set(table(capsys.readouterr().out).values()) == {("1", "1", "0")}


def test_missing_files_are_reported_before_any_request(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(project / "data" / "annotation")
    (project / "data/reference/reference.jsonl").unlink()
    (project / "data/prompt_data/query.jsonl").unlink()
    (project / "data/criteria_data/criteria.jsonl").unlink()
    assert main([*RUN, "--target-models", "quick", "other"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    said = printed.err.splitlines()
    starts = [
        "data/test_data/raw_data/other.jsonl: there is no such file; every stage scores these reports",
        "data/prompt_data/query.jsonl: there is no such file; criteria are made for these queries",
        "data/reference/reference.jsonl: there is no such file; RACE compares reports with these",
        "data/annotation: there is no such folder; efficiency needs its annotations",
    ]
    assert [line[: len(start)] for line, start in zip(said, starts, strict=True)] == starts
    assert not (project / "results").exists()


RACE_AND_FACT = ["race", "extract", "deduplicate", "scrape", "validate", "stat"]


def test_named_parts_need_no_files_of_others(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(project / "data" / "annotation")
    assert main([*RUN, "--parts", "fact,race"]) == 0
    printed = capsys.readouterr()
    assert list(table(printed.out)) == ["criteria", *RACE_AND_FACT]
    assert set(table(printed.out).values()) == {("2", "2", "0")}
    assert printed.err == ""


def test_parts_without_a_judge_ask_for_none(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN[:2], *RUN[6:], "--parts", "efficiency"]) == 0
    stages = table(capsys.readouterr().out)
    assert (stages["efficiency"], len(stages.keys() & {"criteria", *PARTS})) == (("2", "2", "0"), 1)


@pytest.mark.parametrize(
    ("missing", "told", "broken"),
    [
        (["annotation"], ["efficiency is not run: data/annotation: there is no such folder"], ["efficiency"]),
        (["reference"], ["race is not run: data/reference/reference.jsonl: there is no such file"], ["race"]),
        (["criteria_data", "prompt_data"], ["race is not run: data/prompt_data/query.jsonl: there is no"], ["race"]),
        (["criteria_data"], [], []),
    ],
)
def test_parts_without_their_files_are_named_and_the_others_run(
    missing: list[str], told: list[str], broken: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in missing:
        shutil.rmtree(project / "data" / name)
    assert main(RUN) == 1
    printed = capsys.readouterr()
    said = [line.split("run: ", 1)[1] for line in printed.err.splitlines() if "is not run" in line]
    assert [line[: len(start)] for line, start in zip(said, told, strict=True)] == told
    stages = table(printed.out)
    assert [name for name, counts in stages.items() if "could not be run" in counts] == broken
    assert stages["stat"] == ("2", "2", "0")


def test_a_named_part_without_its_files_ends_the_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(project / "data" / "annotation")
    assert main([*RUN, "--parts", "race,efficiency"]) == 1
    assert "data/annotation: there is no such folder; efficiency needs" in capsys.readouterr().err
    assert not (project / "results").exists()


def test_criteria_that_are_there_need_no_queries(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "data/prompt_data/query.jsonl").unlink()
    assert main([*RUN, "--parts", "race"]) == 0
    assert table(capsys.readouterr().out) == {"race": ("2", "2", "0")}


@pytest.mark.parametrize("parts", ["", "race,facts", "stat"])
def test_unknown_parts_are_wrong_usage(parts: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*RUN, "--parts", parts])
    assert "expected some of race,fact,efficiency,strategic,interaction,poet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"options": ["--query_file", "none.jsonl"]}, "none.jsonl: there is no such file; criteria are made"),
        ({"options": ["--reference_file", "none.jsonl"]}, "none.jsonl: there is no such file; RACE compares"),
        ({"options": ["--annotation_dir", "none"]}, "none/domain_expert_data.json: is missing"),
        ({"options": ["--enable_query_selection"]}, "query_analysis/raw_query.md: there is no such file"),
        ({"options": ["--raw_data_dir", "nowhere"]}, "nowhere: found no reports <model>.jsonl"),
        ({"options": ["--config", "none.json"]}, "none.json"),
        ({"LIMIT": "some"}, "LIMIT: found 'some', expected a number"),
        ({"SKIP_CLEANING": "maybe"}, "SKIP_CLEANING: found 'maybe', expected true or false"),
        ({"ONLY_ZH": "1", "ONLY_EN": "1"}, "found both ONLY_ZH and ONLY_EN"),
    ],
)
def test_wrong_input_ends_it_at_once(
    change: dict[str, Any],
    said: str,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = change.pop("options", [])
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    assert main([*RUN, *given]) == 1
    assert said in capsys.readouterr().err
    assert not (project / "results").exists()


def test_a_stage_that_cannot_run_is_reported_and_the_others_continue(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "results").mkdir()
    (project / "results" / "race").write_text("a file where a folder is to be")
    assert main(RUN) == 1
    printed = capsys.readouterr()
    assert "agentbench research run: race: results/race/quick/race_result.txt: cannot be written" in printed.err
    stages = table(printed.out)
    assert stages["race"] == ("0", "0", "0", "could not be run")
    assert stages["stat"] == stages["strategic"] == ("2", "2", "0")
    assert stages["poet"] == ("2", "0", "2")
    reasons = "poet: 'vans': no composite: race: results/race/quick/raw_results.jsonl is not there"
    assert reasons in printed.err


@pytest.mark.slow
def test_criteria_that_are_there_stay_as_they_are(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    criteria = project / "data/criteria_data/criteria.jsonl"
    before = criteria.read_text(encoding="utf-8")
    assert main(RUN) == 0
    assert criteria.read_text(encoding="utf-8") == before
    own, lacking = before.splitlines()[0], json.loads(before.splitlines()[1])
    criteria.write_text(own + "\n", encoding="utf-8")
    script = yaml.safe_load(SCRIPT.read_text(encoding="utf-8"))
    weights = {"reasoning": "As before.", "weights": lacking["dimension_weight"]}
    script["researches"]["lunch"] |= {
        "weights": weights,
        "criteria": [{"criteria": each} for each in lacking["criterions"].values()],
    }
    (project / "own.demo.yaml").write_text(yaml.safe_dump(script), encoding="utf-8")
    assert main([*RUN, "--script", "own.demo.yaml"]) == 0
    first, second = criteria.read_text(encoding="utf-8").splitlines()
    assert first == own
    made = json.loads(second)
    assert (made["id"], made["criterions"]) == ("lunch", lacking["criterions"])
    assert made["dimension_weight"] == pytest.approx(lacking["dimension_weight"])


def test_only_selected_queries_are_scored(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Domains and levels come from the judge then: raw queries have none."""
    queries = project / "data/prompt_data/query.jsonl"
    prompts = [json.loads(line)["prompt"] for line in queries.read_text(encoding="utf-8").splitlines()]
    raw = "\n".join(f'#### **Query {n}: title**\n"{prompt}"\n' for n, prompt in enumerate(prompts, 1))
    (project / "query_analysis").mkdir()
    (project / "query_analysis/raw_query.md").write_text(raw, encoding="utf-8")
    queries.unlink()
    reports = project / "data/test_data/raw_data/quick.jsonl"
    for path in (reports, project / "data/reference/reference.jsonl", project / "data/criteria_data/criteria.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        path.write_text("".join(json.dumps({**row, "id": n}) + "\n" for n, row in enumerate(rows, 1)), encoding="utf-8")
    script = yaml.safe_load(SCRIPT.read_text(encoding="utf-8"))
    value = {letter: {"reason": "Read.", "score": 5} for letter in "ABCDEFG"}
    domains = {"vans": ("logistics", 2), "lunch": ("hospitality", 3)}
    script["researches"] = {
        str(n): script["researches"][name] | {"select": {**value, "domain": domain, "complexity_level": level}}
        for n, (name, (domain, level)) in enumerate(domains.items(), 1)
    }
    (project / "own.demo.yaml").write_text(yaml.safe_dump(script), encoding="utf-8")
    assert main([*RUN, "--enable-query-selection", "--script", "own.demo.yaml"]) == 0
    assert [json.loads(line)["id"] for line in queries.read_text(encoding="utf-8").splitlines()] == [1, 2]
    found = [(row["domain"], row["complexity_level"]) for row in summary(project)["results"]]
    assert found == [("logistics", 2), ("hospitality", 3)]


REPORTS = """
schema_version: 1
name: sample
reports: [test_data/raw_data/*.jsonl]
queries: prompt_data/query.jsonl
criteria: criteria_data/criteria.jsonl
references: reference/reference.jsonl
annotations: annotation
domain_map: {transport: logistics, catering: hospitality}
"""
PROFILE = """
schema_version: 1
evaluation_profile_id: scripted
title: Scripted
judges: [{judge_id: main, type: llm_probe, model: demo}]
judge_runs: [{judge_run_id: main, judge_id: main}]
"""
SAME = {
    "race": "race_score",
    "fact_accuracy": "fact_accuracy",
    "efficiency": "efficiency_score",
    "cost_saving_usd": "cost_saving_usd",
    "strategic": "strategic_score",
    "knowledge_units": "knowledge_units_created",
    "quality": "quality_score",
    "poet": "overall_poet_score",
}


@pytest.mark.slow
def test_items_have_the_same_scores(project: Path) -> None:
    data = project / "data"
    (data / "reports.yaml").write_text(REPORTS, encoding="utf-8")
    shutil.copy(SCRIPT, data / "reports.demo.yaml")
    (data / "evaluation_profiles").mkdir()
    (data / "evaluation_profiles" / "scripted.yaml").write_text(PROFILE, encoding="utf-8")
    assert main(RUN) == 0
    command = [sys.executable, "-m", "pytest", "data", "-q", "--agentbench-evaluation-profile", "scripted"]
    session = subprocess.run(
        [*command, "--agentbench-json", "report.json"], capture_output=True, text=True, check=False
    )
    assert session.returncode == 0, session.stdout
    runs = json.loads((project / "report.json").read_text(encoding="utf-8"))["runs"]
    items = {run["case_id"]: {name: run["metrics"][name] for name in SAME} for run in runs}
    rows = {row["task_id"]: {name: row[field] for name, field in SAME.items()} for row in summary(project)["results"]}
    assert items == {f"sample.{row}": scores for row, scores in rows.items()}


GIVEN = argparse.Namespace(
    target_models=None,
    enable_query_selection=False,
    skip_cleaning=False,
    model_cleaning=False,
    max_workers=None,
    limit=None,
    only=None,
)


@pytest.mark.parametrize(
    ("environ", "heeded"),
    [
        ({}, {}),
        ({"TARGET_MODELS": '("gpt" "claude-3")'}, {"target_models": ["gpt", "claude-3"]}),
        ({"TARGET_MODELS": "gpt, claude-3"}, {"target_models": ["gpt", "claude-3"]}),
        ({"ENABLE_QUERY_SELECTION": "true"}, {"enable_query_selection": True}),
        ({"ENABLE_QUERY_SELECTION": "false"}, {}),
        ({"N_TOTAL_PROCESS": "4"}, {"max_workers": 4}),
        ({"LIMIT": "2"}, {"limit": 2}),
        ({"LIMIT": "--limit 2"}, {"limit": 2}),
        ({"LIMIT": ""}, {}),
        ({"SKIP_CLEANING": "--skip_cleaning"}, {"skip_cleaning": True}),
        ({"ONLY_EN": "--only_en"}, {"only": "en"}),
    ],
)
def test_the_seeds_variables(environ: dict[str, str], heeded: dict[str, Any]) -> None:
    args = argparse.Namespace(**vars(GIVEN))
    heed_environment(args, environ)
    assert {**vars(args), "target_models": args.target_models or None} == {**vars(GIVEN), **heeded}


def test_options_win_over_variables() -> None:
    reply = {"target_models": ["own"], "max_workers": 3, "limit": 7, "only": "zh", "model_cleaning": True}
    args = argparse.Namespace(**vars(GIVEN) | reply)
    environ = {"TARGET_MODELS": "a b", "N_TOTAL_PROCESS": "9", "LIMIT": "1", "ONLY_EN": "1", "SKIP_CLEANING": "1"}
    heed_environment(args, environ)
    assert vars(args) == vars(GIVEN) | reply


@pytest.mark.parametrize(
    "environ", [{"LIMIT": "0"}, {"LIMIT": "-1"}, {"N_TOTAL_PROCESS": "two"}, {"ONLY_EN": "perhaps"}]
)
def test_variables_that_say_nothing(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(environ))):
        heed_environment(argparse.Namespace(**vars(GIVEN)), environ)


def select(project: Path, prompts: list[str], *options: str) -> int:
    """Run RACE with a selection of these raw queries; all are worth 5."""
    raw = "\n".join(f'#### **Query {n}: title**\n"{prompt}"\n' for n, prompt in enumerate(prompts, 1))
    (project / "query_analysis").mkdir(exist_ok=True)
    (project / "query_analysis/raw_query.md").write_text(raw, encoding="utf-8")
    script = yaml.safe_load(SCRIPT.read_text(encoding="utf-8"))
    script["research"] = {
        **script.get("research", {}),
        "select": {letter: {"reason": "Read.", "score": 5} for letter in "ABCDEFG"}
        | {"domain": "logistics", "complexity_level": 2},
    }
    (project / "own.demo.yaml").write_text(yaml.safe_dump(script), encoding="utf-8")
    return main([*RUN, "--enable-query-selection", "--script", "own.demo.yaml", "--parts", "race", *options])


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_a_selection_keeps_ids_that_reports_use_and_a_copy_of_the_queries(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = project / "data/prompt_data/query.jsonl"
    before = queries.read_bytes()
    # The reports' queries are called vans and lunch, and another one has their numbers
    vans, lunch = (row["prompt"] for row in rows_of(queries))
    assert select(project, ["What do trams cost?", lunch, vans]) == 0
    ids = [row["id"] for row in rows_of(queries)]
    assert ids == [1, "lunch", "vans"]
    assert [row["id"] for row in rows_of(project / "query_analysis/selected_queries.jsonl")] == ids
    assert (project / "data/prompt_data/query.jsonl.1").read_bytes() == before
    printed = capsys.readouterr()
    assert "query.jsonl: its former rows are kept in data/prompt_data/query.jsonl.1" in printed.err
    # Criteria are made for queries with reports alone: none were missing
    assert table(printed.out)["criteria"] == ("2", "2", "0")
    assert table(printed.out)["race"] == ("2", "2", "0")
    assert select(project, ["What do trams cost?", lunch, vans]) == 0
    assert select(project, [lunch, vans]) == 0
    names = sorted(path.name for path in queries.parent.iterdir())
    assert names == ["query.jsonl", "query.jsonl.1", "query.jsonl.2"]
    assert [row["id"] for row in rows_of(queries)] == ["lunch", "vans"]


@pytest.mark.slow
def test_criteria_are_made_for_queries_with_reports_only(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queries = project / "data/prompt_data/query.jsonl"
    text = queries.read_text(encoding="utf-8")
    other = {"id": "trams", "language": "en", "prompt": "What do trams cost?"}
    queries.write_text(f"{json.dumps(other)}\n{text}", encoding="utf-8")
    assert main([*RUN, "--parts", "race"]) == 0
    assert table(capsys.readouterr().out)["criteria"] == ("2", "2", "0")
    # --limit chooses reports: the query of the first one is not the first of the queries
    assert main([*RUN, "--parts", "race", "--limit", "1"]) == 0
    assert table(capsys.readouterr().out) == {"criteria": ("1", "1", "0"), "race": ("1", "1", "0")}
    queries.write_text(f"{json.dumps(other)}\n", encoding="utf-8")
    assert main([*RUN, "--parts", "race"]) == 1
    assert "criteria: data/prompt_data/query.jsonl: found no query of the reports" in capsys.readouterr().err
