"""The sample session of the README in every form that `agentbench report` writes."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from pytest_agentbench.cli import main

SAMPLE_CASES = Path(__file__).parents[2] / "cases"
FORMS = ("html", "markdown", "csv", "parquet", "chart", "json")


@pytest.mark.full
def test_the_sample_session_is_exported_in_every_form(bench, monkeypatch):
    shutil.copytree(SAMPLE_CASES, bench.path / "cases")
    report = bench.spawn("cases", "--model", "demo", "--agentbench-profile", "standard", timeout=300).report
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
