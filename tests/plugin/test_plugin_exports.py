"""Sessions in every form that `agentbench report` writes."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from support.bench import HEAD, case_yaml

from pytest_agentbench.cli import main

ROOT = Path(__file__).parents[2]
SAMPLE_CASES = ROOT / "cases"
FORMS = ("html", "markdown", "csv", "parquet", "chart", "json")


@pytest.mark.full
def test_the_sample_session_is_exported_in_every_form(bench, monkeypatch):
    shutil.copytree(SAMPLE_CASES, bench.path / "cases")
    report = bench.spawn("cases", "--model", "demo", "--agentbench-profile", "standard", timeout=900).report
    assert f"\n{len(report['runs'])} runs: " in (ROOT / "README.md").read_text(encoding="utf-8")
    by_section = {name: [row for row in report["runs"] if row.get(name)] for name in ("research", "tool_use")}
    assert all(by_section.values())
    (bench.path / "report.json").write_text(json.dumps(report), encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(bench.path / "summary"))
    targets = [part for form in FORMS for part in (f"--{form}", f"out/{form}")]
    assert main(["report", "report.json", "--runs", "outputs", "--github", *targets]) == 0
    assert all(path.stat().st_size for path in (Path("summary"), *(Path("out", form) for form in FORMS)))
    assert json.loads(Path("out/json").read_text(encoding="utf-8"))["runs"] == report["runs"]
    with Path("out/csv").open(encoding="utf-8", newline="") as file:
        ids = {row["research.row_id"] for row in csv.DictReader(file)}
    assert ids == {"", *(str(row["research"]["row_id"]) for row in by_section["research"])}


def test_an_own_agents_runs_have_their_texts_in_report_csv_and_comparison(bench, capsys):
    bench.agent(HEAD + "def agent(case): return 'Lyon' if case.case_id == 'wrong' else 'Paris'")
    for case_id in ("right", "wrong"):
        bench.write(f"cases/{case_id}/test.yaml", case_yaml(case_id, title="The capital"))
    bench.run("--agentbench-json=before.json")
    rows = json.loads((bench.path / "before.json").read_text())["runs"]
    row = next(row for row in rows if row["case_id"] == "wrong")
    assert (row["title"], row["answer"]) == ("The capital", "Lyon")
    assert row["question"] in str(case_yaml("wrong"))
    assert row["expected"]
    bench.agent(HEAD + "def agent(case): return 'Paris' if case.case_id == 'wrong' else 'Nice'")
    bench.run("--agentbench-json=after.json")
    assert main(["report", str(bench.path / "after.json"), "--csv", str(bench.path / "after.csv")]) in (0, 1)
    with (bench.path / "after.csv").open() as file:
        answers = {line["case_id"]: line["answer"] for line in csv.DictReader(file)}
    assert answers == {"right": "Nice", "wrong": "Paris"}
    capsys.readouterr()
    main(["compare", str(bench.path / "before.json"), str(bench.path / "after.json")])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert f"question:      {row['question']}" in lines
    at = lines.index("answer before: Paris")
    assert lines[at + 1] == "answer now:    Nice"
