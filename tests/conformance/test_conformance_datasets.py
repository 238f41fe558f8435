"""The real datasets load as specified, and the original loader's items but for what the specification decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.sources.dataset import Row, open_dataset
from pytest_agentbench.sources.discovery import find_cases
from pytest_agentbench.sources.rows import BadRow, read_benchmark_items, read_rows, row_case

DATA = Path(__file__).parents[3] / "shared" / "data" / "datasets"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the conformance data are not here")

ROWS = {
    "math_demo": ["aaa"],
    "mmlongbench_demo": ["Independents-Report.pdf", "Test-Document-2.pdf", "Test-Document-3.pdf"],
    "python_interpreter_demo": ["pyint-001", "pyint-002"],
    "rag_benchmark": [f"task_{n:03}" for n in range(1, 11)],
    "tbench_demo": [f"tbench-00{n}" for n in range(1, 5)],
    "web_benchmark": [f"web_00{n}" for n in range(1, 6)],
    "webagent_demo": ["webagent_1", "webagent_3"],
}
WITHOUT_ANSWERS = {"webagent_demo"}


def test_a_folder_has_these_datasets_and_no_vectors_or_results():
    assert {path.stem for path in find_cases(DATA)} == {*ROWS, "loader_edge", "loader_edge_expected_v1"}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_loads(name):
    path = DATA / f"{name}.jsonl"
    dataset = open_dataset(path, ConfigRoot(DATA))
    rows = list(read_rows(dataset))
    originals = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    # The data may lie inside of a project, which is where names begin then
    assert dataset.name.rpartition("/")[2] == name
    assert [row.case_id for row in rows] == [f"{dataset.name}.{item_id}" for item_id in ROWS[name]]
    assert [(row.path, row.index) for row in rows] == [(path, n) for n in range(len(rows))]
    for row, item, original in zip(rows, read_benchmark_items(dataset), originals, strict=True):
        case = row_case(dataset, row)
        assert case.messages[0].content == item.question == original["question"]
        assert case.reference == original.get("answer", original.get("expected"))
        assert case.metadata == item.metadata
        assert item.metadata == {k: v for k, v in original.items() if k not in ("id", "question", "answer")}
        assert bool(case.metrics) is (name not in WITHOUT_ANSWERS)


def test_the_original_loaders_items_but_for_what_the_specification_decides():
    expected = json.loads((DATA / "loader_edge_expected_v1.json").read_text())
    dataset = open_dataset(DATA / "loader_edge.jsonl", ConfigRoot(DATA))
    items, messages = [], []
    for item in read_benchmark_items(dataset):
        messages.append(item.message) if isinstance(item, BadRow) else items.append(vars(item))
    differences = [
        (at, field, old[field], new[field])
        for at, (old, new) in enumerate(zip(expected, items, strict=False))
        for field in old
        if (type(old[field]), old[field]) != (type(new[field]), new[field])
    ]
    nested: dict[str, Any] = {"metadata": {"a": 1}, "x": [1]}
    assert differences == [
        (0, "id", 1, "1"),  # ids become texts
        (1, "answer", "True", "true"),  # values are spelled as JSON spells them
        (1, "metadata", nested, {"a": 1, "x": [1]}),  # a metadata mapping is merged, not nested
        (3, "answer", "['a', 'b']", "a"),  # a list is "any of these": the first one stands for all
    ]
    assert [item["id"] for item in expected[len(items) :]] == ["d"]  # the duplicate was kept silently
    assert messages == [
        f"{DATA / 'loader_edge.jsonl'}:3:2: not valid JSON: expecting property name enclosed in double quotes",
        f"{DATA / 'loader_edge.jsonl'}:8:1: id: found 'd' again, first on line 7; give each item its own id",
    ]


def test_a_descriptor_gives_the_rows_without_an_answer_one(tmp_path):
    """The field `expected` of tbench is its answer."""
    (tmp_path / "tbench_demo.jsonl").symlink_to(DATA / "tbench_demo.jsonl")
    descriptor = tmp_path / "dataset.yaml"
    descriptor.write_text("schema_version: 1\nfiles: [tbench_demo.jsonl]\nfields: {answer: expected}\n")
    dataset = open_dataset(descriptor, ConfigRoot(tmp_path), allow_outside=True)
    rows = [row for row in read_rows(dataset) if isinstance(row, Row)]
    cases = [row_case(dataset, row) for row in rows]
    assert [case.reference for case in cases] == ["Hello from inside container", "Python", "bin", "item:1"]
    assert all(case.metrics for case in cases)
    assert all("expected" not in case.metadata for case in cases)
