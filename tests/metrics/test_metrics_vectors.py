"""Scores of the original definitions, worked out by hand as fractions: they need no data beside the project's own."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench import score

VECTORS = Path(__file__).parents[1] / "data" / "metric_vectors.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row["why"][:40] for row in ROWS])
def test_the_original_definitions_match_exact_arithmetic(row: dict[str, Any]) -> None:
    for name, (above, below) in row["v1"].items():
        found = score(name, row["ground_truth"], row["prediction"], compat="v1")
        assert found == pytest.approx(float(Fraction(above, below)), abs=1e-12), name
