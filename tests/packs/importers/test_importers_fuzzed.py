"""Each row of any file becomes a case or is reported, and all written files are valid."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentbench.config.session_roots import find_root
from pytest_agentbench.engine.services import build_registry
from pytest_agentbench.packs.importers import deepeval, inspect, promptfoo
from pytest_agentbench.packs.importers.drafts import FileContents
from pytest_agentbench.packs.importers.folders import write_drafts
from pytest_agentbench.sources.dataset import Row, open_dataset
from pytest_agentbench.sources.discovery import find_cases
from pytest_agentbench.sources.rows import read_rows, row_case
from pytest_agentbench.sources.test_yaml import load_case

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
GOLDEN = st.fixed_dictionaries(
    {},
    optional={
        "input": TEXT | JSON,
        "expected_output": TEXT | JSON,
        "actual_output": TEXT,
        "name": TEXT | JSON,
        "expected_tools": st.lists(st.fixed_dictionaries({"name": TEXT}), max_size=2) | JSON,
        "expectations": st.fixed_dictionaries({}, optional={"must": st.lists(TEXT), "must_not": JSON}) | JSON,
        "additional_metadata": st.dictionaries(TEXT, JSON, max_size=2) | JSON,
        "context": JSON,
    },
)
SAMPLE = st.fixed_dictionaries(
    {},
    optional={
        "input": TEXT
        | st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": TEXT}))
        | JSON,
        "target": TEXT | st.lists(TEXT, max_size=3) | JSON,
        "id": TEXT | st.integers(0, 3) | JSON,
        "choices": st.lists(TEXT, max_size=3) | JSON,
        "metadata": st.dictionaries(TEXT, JSON, max_size=2) | JSON,
        "files": st.dictionaries(st.sampled_from(["a.txt", "b/c.txt", "../x", "/etc/x"]), TEXT, max_size=2) | JSON,
        "sandbox": st.sampled_from(["docker", "local", ["docker", "compose.yaml"]]) | JSON,
        "setup": TEXT,
    },
)
VALUE = st.sampled_from(["{{ q }}", "yes", "{{ x | upper }}", "(", "file:///etc/passwd"]) | TEXT | JSON
KINDS = [
    "contains",
    "icontains-any",
    "not-contains-all",
    "equals",
    "is-json",
    "regex",
    "llm-rubric",
    "cost",
    "python",
    "x",
]
ASSERTION = (
    st.fixed_dictionaries(
        {"type": st.sampled_from(KINDS)}, optional={"value": VALUE, "threshold": JSON, "weight": JSON}
    )
    | JSON
)
TEST = st.fixed_dictionaries(
    {},
    optional={
        "vars": st.dictionaries(st.just("q"), VALUE) | JSON,
        "assert": st.lists(ASSERTION, max_size=3) | JSON,
        "description": TEXT | JSON,
        "options": JSON,
        "metadata": JSON,
    },
)


def loaded(folder: Path) -> int:
    """Return the number of cases in a folder, all of which can be loaded."""
    root, known = find_root(folder / "x.yaml", folder, None), build_registry().known
    count = sum(load_case(path, root, known) is not None for path in find_cases(folder) if path.name == "test.yaml")
    for descriptor in folder.glob("*.dataset.yaml"):
        dataset = open_dataset(descriptor, root)
        for row in read_rows(dataset):
            assert isinstance(row, Row), row
            row_case(dataset, row)
            count += 1
    return count


def check(gathered: FileContents, top: Path, rows: int) -> None:
    """Assert that every row is a draft or lost, and every draft is a case, unless it is reported."""
    assert len(gathered.drafts) + len(gathered.lost) == rows, (gathered.drafts, gathered.lost)
    if gathered.drafts:
        write_drafts(gathered, top / "it", "it")
        assert loaded(top / "it") == len(gathered.drafts)
        assert len(gathered.drafts) + len(gathered.lost) == rows


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(GOLDEN | JSON, max_size=4))
def test_no_golden_is_lost_silently(rows: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "g.jsonl")
        rows = [{"input": "Say yes."}, {"input": "Say no."}, *rows]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        check(deepeval.read(file), Path(folder), len(rows))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(SAMPLE, min_size=1, max_size=4))
def test_no_sample_is_lost_silently(rows: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "s.jsonl")
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        check(inspect.read(file), Path(folder), len(rows))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(TEST, min_size=1, max_size=4))
def test_no_test_of_promptfoo_is_lost_silently(tests: list[dict[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "promptfooconfig.yaml")
        for test in tests:  # a list of values would stand for several cases
            if isinstance(test.get("vars"), dict):
                test["vars"] = {k: v for k, v in test["vars"].items() if not isinstance(v, list)}
        file.write_text(yaml.safe_dump({"prompts": ["Say {{ q }}"], "tests": tests}), encoding="utf-8")
        check(promptfoo.read(file), Path(folder), len(tests))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.lists(TEXT, min_size=3, max_size=3), min_size=1, max_size=5))
def test_no_row_of_a_table_is_lost_silently(rows: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = io.StringIO(newline="")
        csv.writer(table).writerows([["input", "target", "id"], *rows])
        file = Path(folder, "s.csv")
        file.write_text(table.getvalue(), encoding="utf-8", newline="")
        filled = [row for row in rows if any(cell.strip() for cell in row)]
        check(inspect.read(file), Path(folder), len(filled))


@pytest.mark.parametrize("cut", ['input,target\nx,"y', "input,target\nx\n", "input,input\n"])
def test_a_broken_table_is_named(tmp_path: Path, cut: str) -> None:
    file = tmp_path / "s.csv"
    file.write_text(cut)
    try:
        gathered = inspect.read(file)
    except Exception as error:
        assert "two columns" in str(error)  # noqa: PT017
    else:
        assert gathered.lost
        assert not gathered.drafts
