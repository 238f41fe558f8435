"""The descriptor's `join` and `functions_from`: fields of another file, and functions of a row."""

from __future__ import annotations

import json

import pytest
import yaml

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.dataset import open_dataset
from pytest_agentbench.sources.rows import BadRow, read_rows, row_case

F = {"name": "f", "description": "", "parameters": {"type": "object"}}


@pytest.fixture
def describe(tmp_path):
    """Return the dataset of rows, and of others that are joined."""

    def write(rows, others=None, **more):
        (tmp_path / "pytest.ini").touch()
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        text = {"schema_version": 1, "files": ["rows.jsonl"], **more}
        if others is not None:
            (tmp_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in others))
            text["join"] = "others.jsonl"
        (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(text))
        return open_dataset(tmp_path / "dataset.yaml", ConfigRoot(tmp_path))

    return write


def cases(dataset):
    return [row if isinstance(row, BadRow) else row_case(dataset, row) for row in read_rows(dataset)]


def test_rows_with_the_same_id_add_their_fields(describe):
    rows = [{"uid": 1, "q": "one"}, {"uid": "b", "q": "two", "level": "own"}, {"uid": 3, "q": "three"}]
    others = [{"uid": "b", "a": "B", "level": "other"}, {"uid": "1", "a": "A"}, {"uid": "unknown", "a": "?"}]
    fields = {"id": "uid", "question": "q", "answer": "a"}
    found = cases(describe(rows, others, fields=fields))
    assert [case.reference for case in found] == ["A", "B", None]
    assert found[1].metadata["level"] == "own"


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ([{"id": 1}, {"id": "1"}], "others.jsonl:2:1: join: found '1' again, expected each id once"),
        ([{"key": 1}], "others.jsonl:1:1: join: found no field 'id', which names the row that it belongs to"),
        ([[1]], "others.jsonl:1:1: join: found no field 'id'"),
    ],
)
def test_a_joined_file_with_mistakes_is_refused(describe, others, problem):
    with pytest.raises(ConfigError) as caught:
        list(read_rows(describe([{"id": 1, "question": "q"}], others)))
    assert problem in str(caught.value)


@pytest.mark.parametrize("path", ["gone.jsonl", "../others.jsonl"])
def test_a_joined_file_exists_inside_the_root(describe, path):
    with pytest.raises(ConfigError, match="join: "):
        describe([{"question": "q"}], join=path)


def test_functions_of_a_row_are_declared(describe):
    dataset = describe(
        [{"question": "q", "function": [{"name": "f"}]}, {"question": "r", "function": []}],
        functions_from="function",
        context={"llm_probe": {"tools": ["read_file"]}},
    )
    assert [case.context for case in cases(dataset)] == [
        {"llm_probe": {"tools": ["read_file"], "functions": [F]}},
        {"llm_probe": {"tools": ["read_file"], "functions": []}},
    ]


def test_wrong_declarations_are_errors_of_their_row(describe):
    rows = [{"question": "q", "function": "f"}, {"question": "r"}]
    first, second = cases(describe(rows, functions_from="function"))
    assert "rows.jsonl:1:1: function: found 'f', expected a function" in first.message
    assert "rows.jsonl:2:1: functions_from: found no field 'function'" in second.message


def test_a_runner_with_tools_of_its_own_takes_no_functions(describe):
    with pytest.raises(ConfigError, match="functions_from: the runner openclaw has its own tools"):
        describe([{"question": "q", "function": []}], functions_from="function", runner={"type": "openclaw"})
