"""Tool calls with the label that three independent validators gave them, against schemas of real servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.bounded.schemas import bounded_schema

DATA = Path(__file__).parents[3] / "shared" / "data" / "mcp"
CATALOGUE, LABELS = DATA / "tool_catalogue_live_252.json", DATA / "schema_mutation_oracle.sample.jsonl"
pytestmark = pytest.mark.skipif(not LABELS.exists(), reason=f"no conformance data: {LABELS} is not there")


def test_every_call_gets_its_label():
    catalogue = json.loads(CATALOGUE.read_text())
    rows = [json.loads(line) for line in LABELS.read_text().splitlines()]
    assert len(rows) == 422
    schemas = {tool_id: bounded_schema(tool["input_schema"]) for tool_id, tool in catalogue.items()}
    assert [tool_id for tool_id, schema in schemas.items() if schema.problem is not None] == []
    assert [row for row in rows if schemas[row["tool"]].accepts(row["parameters"]) is not row["valid"]] == []
