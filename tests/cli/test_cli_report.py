"""`agentbench report`: a stored session in every form, from its report.json or from its journal."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import jsonschema
import pytest
from support.github_runner import commands

from pytest_agentbench.cli import main
from pytest_agentbench.records.case import Case, Model, RunnerSpec
from pytest_agentbench.records.evaluation import Evaluation, MetricResult
from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.journal import Journal
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import run_row

ADDED_LATER = ("line", "evaluation", "judged", "judge_votes", "tool_use")
"""Fields of a row that the first version of report.json did not have."""


def row(case_id, outcome="passed", *, model="gpt", message=None, **fields):
    case = Case(case_id=case_id, title="T", path=Path("t.yaml"), runner=RunnerSpec(type="llm_probe"), **fields)
    return run_row(
        f"cases/t.yaml::{case_id}[{model}]",
        case,
        Model(model_id=model, requested_model=model),
        1,
        None,
        Evaluation(case_id=case_id, outcome=outcome, metrics=(MetricResult(name="f1", score=0.5),)),  # type: ignore[arg-type]
        duration_seconds=1.0,
        reused=False,
        evaluation_reused=False,
        artifact_path=None,
        outcome=outcome,
        message=message,
        line=3,
    )


ROWS = [row("a"), row("b", "failed", message="wrong")]


@pytest.fixture
def report(tmp_path, capsys, monkeypatch):
    """Run the command in a project with `outputs/report.json`. Return exit status and output."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR", "WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    stored(tmp_path / "outputs" / "report.json", ROWS)

    def call(*args: str) -> tuple[int, str]:
        code = main(["report", *args])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return call


def stored(path, rows, **session):
    found = build_report(rows, {"started_at": "2026-01-02T00:00:00+00:00", "exit_status": 1, **session})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def journal(output: Path, *rows, over: bool, left_rows: bool = False):
    facts = {"started_at": "2026-01-03T00:00:00+00:00", "command": [], "versions": {}, "profiles": {}, "warnings": []}
    written = Journal(output, facts, pytest.fail)
    written.plan(3)
    for at, each in enumerate(rows):
        written.row(each, at, {"run": 0.5, "judge": 0.0})
    if over:
        report = build_report(rows, {**facts, "exit_status": 0}, {"run": 0.5, "judge": 0.0})
        written.end(report, written=left_rows)
    written.close()
    return written.path


def test_it_prints_the_summary_of_the_last_session(report):
    code, shown = report()
    assert code == 0
    assert "2 runs: 1 passed, 1 failed" in shown
    assert f"report: {Path('outputs/report.json')}" in shown
    assert report("outputs/report.json") == (code, shown)


@pytest.mark.slow
def test_it_writes_every_form(report, tmp_path):
    names = ["html", "markdown", "csv", "parquet", "chart", "json"]
    code, shown = report(*(part for name in names for part in (f"--{name}", f"out/{name}")))
    assert code == 0
    assert shown.splitlines() == [
        f"{what}: out/{name}"
        for what, name in zip(["page", "Markdown", "CSV", "Parquet", "chart", "report"], names, strict=True)
    ]
    out = tmp_path / "out"
    assert "<!doctype html>" in (out / "html").read_text(encoding="utf-8").lower()[:100]
    assert "❌ agentbench: 2 runs: 1 passed, 1 failed" in (out / "markdown").read_text(encoding="utf-8")
    with (out / "csv").open(encoding="utf-8", newline="") as file:
        assert [each["outcome"] for each in csv.DictReader(file)] == ["passed", "failed"]
    assert (out / "parquet").read_bytes()[:4] == b"PAR1"
    assert (out / "chart").read_text(encoding="utf-8").startswith("<svg ")
    assert json.loads((out / "json").read_text())["runs"] == json.loads(json.dumps(ROWS))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[], [row("a", "error")], [row("a", "skipped")]], ids=["none", "error", "skipped"])
def test_a_session_without_results_has_every_form_too(report, tmp_path, rows):
    stored(tmp_path / "outputs" / "report.json", rows)
    code, shown = report("--html", "h", "--markdown", "m", "--csv", "c", "--parquet", "p", "--chart", "g")
    assert (code, len(shown.splitlines())) == (0, 5)
    assert "No model has both a cost and a pass rate." in (tmp_path / "g").read_text(encoding="utf-8")


def test_a_killed_session_is_reported_from_its_journal(report, tmp_path):
    found = journal(tmp_path / "outputs", row("c"), over=False)
    code, _ = report("--json", "saved.json", "--markdown", "m.md")
    assert code == 0
    saved = json.loads((tmp_path / "saved.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(report_schema()).validate(saved)
    assert [each["case_id"] for each in saved["runs"]] == ["c"]
    assert "The session was killed: 1 of 3 runs are reported" in saved["session"]["warnings"][0]
    assert "⚠️ agentbench: 1 run: 1 passed" in (tmp_path / "m.md").read_text(encoding="utf-8")
    assert "1 run: 1 passed" in report(str(found))[1]


def test_the_report_counts_where_its_session_wrote_it(report, tmp_path):
    journal(tmp_path / "outputs", row("c"), over=True)
    stored(tmp_path / "outputs" / "report.json", ROWS, started_at="2026-01-03T00:00:00+00:00")
    assert "2 runs: 1 passed, 1 failed" in report()[1]


def test_a_session_that_wrote_its_report_elsewhere_is_found_by_its_journal(report, tmp_path):
    journal(tmp_path / "outputs", row("c"), over=True)
    assert "1 run: 1 passed" in report()[1]


def test_of_two_sessions_at_once_the_report_that_is_there_counts(report, tmp_path):
    journal(tmp_path / "outputs", row("c"), over=True, left_rows=True)
    assert "2 runs: 1 passed, 1 failed" in report()[1]
    (tmp_path / "outputs" / "report.json").unlink()
    code, said = report()
    assert (code, "its session wrote its runs to" in said, "found none there" in said) == (1, True, True)


@pytest.mark.slow
def test_a_report_of_an_older_version_is_completed(report, tmp_path):
    path = tmp_path / "outputs" / "report.json"
    found = stored(path, ROWS)
    for each in found["runs"]:
        for name in ADDED_LATER:
            each.pop(name, None)
    for name in ("models", "cases", "datasets", "human", "judges"):
        found.pop(name, None)
    path.write_text(json.dumps(found), encoding="utf-8")
    assert "2 runs: 1 passed, 1 failed" in report()[1]
    code, _ = report("--markdown", "m.md", "--csv", "c.csv", "--html", "h.html")
    assert code == 0


def test_a_stored_comparison_stays(report, tmp_path):
    path = tmp_path / "outputs" / "report.json"
    found = stored(path, ROWS)
    found["comparison"] = json.loads(
        json.dumps(compare(build_campaign(found, "base.json"), build_campaign(found)).as_dict())
    )
    path.write_text(json.dumps(found), encoding="utf-8")
    report("--json", "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["comparison"] == found["comparison"]


@pytest.mark.parametrize(("part", "broken"), [("comparison", {"models": []}), ("human", [1])])
def test_a_broken_part_of_a_report_is_named(report, tmp_path, part, broken):
    path = tmp_path / "outputs" / "report.json"
    found = stored(path, ROWS)
    path.write_text(json.dumps({**found, part: broken}), encoding="utf-8")
    code, shown = report("--markdown", "m.md")
    assert (code, shown.startswith(f"outputs/report.json: {part}: ")) == (1, True)


def test_a_gate_with_few_fields_is_shown(report, tmp_path):
    nothing = dict.fromkeys(("pass_rate", "completion", "fail_under", "min_completion"))
    stored(tmp_path / "outputs" / "report.json", ROWS, gate={"passed": True, "reasons": [], **nothing})
    assert "gate passed: pass rate unknown, completion unknown" in report()[1]


def test_faults_outside_of_runs_are_shown_once(report, tmp_path):
    faults = ["2 collection errors.", "The session stopped early: the budget is used up."]
    warnings = ["the budget is used up; 3 runs were not started"]
    stored(tmp_path / "outputs" / "report.json", ROWS, faults=faults, warnings=warnings)
    shown = report()[1]
    assert "2 collection errors." in shown
    assert shown.count("the budget is used up") == 1


def test_a_job_of_github_gets_summary_and_annotations(report, tmp_path, monkeypatch):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "t.yaml").write_text("", encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path.parent))
    code, shown = report("--github")
    assert code == 0
    (found,) = commands(shown)
    place = {"file": f"{tmp_path.name}/cases/t.yaml", "line": "3", "title": "b failed on gpt"}
    assert (found.name, found.properties, found.message) == ("error", place, "gpt: wrong")
    assert "❌ agentbench" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_elsewhere_there_is_no_summary_to_add_to(report):
    code, shown = report("--github")
    assert (code, shown.startswith("agentbench report: --github: found no GITHUB_STEP_SUMMARY")) == (2, True)


def test_a_missing_extra_is_named_before_anything_is_written(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, shown = report("--csv", "runs.csv", "--parquet", "out")
    assert code == 2
    assert shown == (
        "agentbench report: --parquet: needs the module pyarrow; install it with: "
        "pip install 'pytest-agentbench[parquet]'\n"
    )
    assert not (tmp_path / "runs.csv").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--csv", "x", "--html", "x"), "--csv: found x, which is --html too"),
        (("--chart", "chart.png"), "--chart: found chart.png, expected a name that ends in .svg"),
        (("outputs/report.json", "--json", "outputs/report.json"), "which is the report itself too"),
        (
            ("outputs", "--csv", "outputs/report.json"),
            "--csv: found outputs/report.json, which is the report itself too",
        ),
        (("--csv", "outputs/report.json", "--json", "outputs/report.json"), "which is --csv too"),
    ],
)
def test_no_file_is_written_twice_or_over_the_report(report, args, said):
    code, shown = report(*args)
    assert (code, said in shown) == (2, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nowhere",), "nowhere: cannot be read: No such file or directory; run pytest first, or name the report.json"),
        (("empty",), "empty: holds neither report.json nor the journal of a session; run pytest first"),
        (("other.json",), "other.json: is no report.json"),
        (("--csv", "other.json/x"), "other.json/x: cannot be written"),
        (("--human", "nowhere.jsonl"), "nowhere.jsonl: "),
    ],
)
def test_unreadable_and_unwritable_paths_are_errors(report, tmp_path, args, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    code, shown = report(*args)
    assert (code, said in shown) == (1, True)
