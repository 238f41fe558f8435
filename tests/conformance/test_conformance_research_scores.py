"""Published scores of RACE and of queries, through the commands that take them up; no model is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.cli import main

DATA = Path(__file__).parents[3] / "shared" / "data" / "research"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data: {DATA} is not there")


def test_a_published_race_result_byte_by_byte(tmp_path, capsys) -> None:
    published = DATA / "drb_claude37" / "race"
    stored = str(published / "raw_results.jsonl")
    assert main(["research", "race", "--raw_results", stored, "--output_dir", str(tmp_path)]) == 0
    assert (tmp_path / "race_result.txt").read_bytes() == (published / "race_result.txt").read_bytes()
    out = capsys.readouterr().out.splitlines()
    assert out[5:7] == ["Overall Score (en, 50 of 100): 0.4228", "Overall Score (zh, 50 of 100): 0.4209"]
    for language, mean in {"zh": "0.4209", "en": "0.4228"}.items():
        only = ["--raw_results", stored, "--output_dir", str(tmp_path), f"--only_{language}"]
        assert main(["research", "race", *only]) == 0
        assert (tmp_path / "race_result.txt").read_text().splitlines()[-1] == f"Overall Score: {mean}"


def test_published_query_scores_at_both_thresholds(tmp_path, capsys) -> None:
    scores = ["--from_scores", str(DATA / "poet_query" / "query_scores.json"), "--output_dir", str(tmp_path)]
    for threshold, kept in {"4.0": 35, "4.5": 10}.items():
        target = tmp_path / f"query_{threshold}.jsonl"
        options = ["--threshold", threshold, "--export_selected", "--convert_to_jsonl", str(target)]
        assert main(["research", "select-queries", *scores, *options]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert [line.removesuffix(" (chosen)") for line in out.splitlines()[:2]] == [
            "kept at 4.0: 35 of 42",
            "kept at 4.5: 10 of 42",
        ]
        rows = [json.loads(line) for line in target.read_text().splitlines()]
        assert len(rows) == kept
        assert {row["language"] for row in rows} == {"zh"}
        selected = [json.loads(line) for line in (tmp_path / "selected_queries.jsonl").read_text().splitlines()]
        assert [row["id"] for row in selected] == [row["id"] for row in rows]
        assert {(row["domain"], row["complexity_level"]) for row in selected} == {(None, None)}
