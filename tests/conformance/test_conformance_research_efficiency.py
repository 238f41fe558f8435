"""The efficiency of real reports against the original's annotations, in both spellings, with both of its configs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.cli import main

DATA = Path(__file__).parents[3] / "shared" / "data" / "research"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data: {DATA} is not there")


@pytest.mark.parametrize("config", ["poet_algorithm_config", "poet_config"])
@pytest.mark.parametrize(
    ("annotations", "domain", "hours", "usd"),
    [
        ("poet_annotation_code_format", "medical", 5, 900),  # 5 h at 180 USD; levels have no multiplier
        ("poet_annotation_code_format", "healthcare", 5, 900),
        ("poet_annotation_seed_format", "healthcare", 4.2, 1050),  # 2.8 h x 1.5 at 250 USD
        ("poet_annotation_seed_format", "medical", 4.2, 1050),
    ],
)
def test_reports_against_annotations(
    tmp_path: Path, config: str, annotations: str, domain: str, hours: float, usd: float
) -> None:
    rows = [json.loads(line) for line in (DATA / "poet_gpt/raw_data/gpt.jsonl").read_text().splitlines()]
    file = tmp_path / "gpt.jsonl"
    file.write_text("".join(json.dumps({**row, "domain": domain, "complexity_level": 4}) + "\n" for row in rows))
    options = ["--annotation_dir", str(DATA / annotations), "--config", str(DATA / f"poet_config/{config}.json")]
    places = ["--input_file", str(file), "--output_dir", str(tmp_path), "--results_dir", str(tmp_path)]
    assert main(["research", "efficiency", *options, *places]) == 0
    result = json.loads((tmp_path / "efficiency_report.json").read_text())
    assert [result[name] for name in ("n_total", "n_scored", "n_failed")] == [2, 2, 0]
    time, cost = (hours - 1 / 3) / hours, (usd - 0.087) / usd  # 1,200 s, 0.087 USD, automation 0.95
    for row in result["results"]:
        assert (row["expert_hours"], row["expert_cost_usd"]) == (pytest.approx(hours), pytest.approx(usd))
        assert (row["time_saving"], row["cost_saving_usd"]) == (pytest.approx(time), pytest.approx(usd - 0.087))
        assert row["efficiency_score"] == pytest.approx(0.4 * time + 0.3 * cost + 0.3 * 0.95)
