"""The arithmetic of RACE, FACT and efficiency on data of the project's own; the expected values are worked out here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.cli import main

DATA = Path(__file__).parents[2] / "data" / "research"


def test_race_means_of_stored_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each mean is of four reports, two of them in each language: (.5 + .3 + .6 + .1) / 4 = .375 overall."""
    stored = ["--raw_results", str(DATA / "race_scores.jsonl"), "--output_dir", str(tmp_path)]
    assert main(["research", "race", *stored]) == 0
    assert (tmp_path / "race_result.txt").read_text().splitlines() == [
        "Comprehensiveness: 0.4000",
        "Insight: 0.4000",
        "Instruction Following: 0.4000",
        "Readability: 0.4000",
        "Overall Score: 0.3750",
    ]
    assert capsys.readouterr().out.splitlines()[5:7] == [
        "Overall Score (en, 2 of 4): 0.4000",
        "Overall Score (zh, 2 of 4): 0.3500",
    ]


def test_several_runs_have_mean_and_deviation_and_two_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second run has 0.1 more overall on each of four tasks; a test of four differences has p = 2 / 2^4."""
    rows = [json.loads(line) for line in (DATA / "race_scores.jsonl").read_text(encoding="utf-8").splitlines()]
    second, third = tmp_path / "second.jsonl", tmp_path / "third.jsonl"
    second.write_text("".join(json.dumps({**row, "overall_score": row["overall_score"] + 0.1}) + "\n" for row in rows))
    third.write_text("".join(json.dumps({**row, "overall_score": 0.675}) + "\n" for row in rows[1:]))
    runs = [
        "--raw-results",
        str(DATA / "race_scores.jsonl"),
        "--raw-results",
        str(second),
        "--output-dir",
        str(tmp_path),
    ]
    assert main(["research", "race", *runs]) == 0
    expected = [
        *("Comprehensiveness: 0.4000", "Insight: 0.4000", "Instruction Following: 0.4000", "Readability: 0.4000"),
        "Overall Score: 0.4250",
        "Runs: 2",
        *("Comprehensiveness SD: 0.0000", "Insight SD: 0.0000", "Instruction Following SD: 0.0000"),
        "Readability SD: 0.0000",
        "Overall Score SD: 0.0707",
        "Overall Score Difference: +0.1000, p = 0.1250 (exact sign flip, 4 tasks)",
    ]
    assert (tmp_path / "race_result.txt").read_text().splitlines() == expected
    assert capsys.readouterr().out.splitlines()[: len(expected)] == expected
    document = json.loads((tmp_path / "race_runs.json").read_text())
    assert [run["n_scored"] for run in document["runs"]] == [4, 4]
    assert document["difference"]["tasks"] == 4
    assert main(["research", "race", *runs, "--raw-results", str(third)]) == 0
    printed = capsys.readouterr()
    assert "Overall Score: 0.5083\nRuns: 3\n" in printed.out
    assert "Overall Score SD: 0.1528\n" in printed.out
    assert "Difference" not in printed.out
    assert f"third.jsonl: has no scores of {rows[0]['id']!r}, which other runs have" in printed.err


def test_one_file_twice_is_no_second_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = ["--raw_results", str(DATA / "race_scores.jsonl")] * 2
    assert main(["research", "race", *twice, "--output_dir", str(tmp_path)]) == 2
    assert "found one file twice as --raw-results" in capsys.readouterr().err


def test_fact_statistics_count_known_citations(tmp_path: Path) -> None:
    """Known labels: 3 of the first report and 2 of the second; supported: 2 and 2. The unknown one counts nowhere."""
    target = tmp_path / "fact_result.txt"
    files = ["--input_path", str(DATA / "fact_validated.jsonl"), "--output_path", str(target)]
    assert main(["research", "fact", "stat", *files, "--compat"]) == 0
    assert target.read_text().splitlines() == ["total_citations: 2.5", "total_valid_citations: 2.0", "valid_rate: 0.8"]


def test_efficiency_against_an_expert(tmp_path: Path) -> None:
    """An expert takes 2 h x 1.5 at 60 USD an hour. A report that takes longer or costs more saves nothing."""
    options = ["--annotation_dir", str(DATA / "annotations"), "--output_dir", str(tmp_path)]
    assert main(["research", "efficiency", "--input_file", str(DATA / "reports.jsonl"), *options]) == 0
    first, second = json.loads((tmp_path / "efficiency_report.json").read_text())["results"]
    assert (first["expert_hours"], first["expert_cost_usd"]) == (pytest.approx(3), pytest.approx(180))
    assert (first["time_saving"], first["cost_saving_usd"]) == (pytest.approx(2.5 / 3), pytest.approx(179.82))
    assert first["efficiency_score"] == pytest.approx(0.4 * 2.5 / 3 + 0.3 * 0.999 + 0.3 * 0.9)
    assert (second["time_saving"], second["cost_saving_usd"]) == (pytest.approx(-1 / 3), pytest.approx(-20))
    assert second["efficiency_score"] == pytest.approx(0.3 * 0.5)
