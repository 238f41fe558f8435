"""Descriptors: classes that make the items, and the names that a descriptor may use."""

from __future__ import annotations

import sys

import pytest
from support.descriptors import asked, bad, cases, q

from pytest_agentbench.config.base import Known
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import CodeNotRun, ConfigError
from pytest_agentbench.sources.dataset import Dataset, open_dataset
from pytest_agentbench.sources.rows import read_rows

MODULE = """
from pytest_agentbench.sources.items import BenchmarkItem

class Custom:
    def _parse_item(self, data, line_num):
        if data["problem"] == "none":
            return None
        if data["problem"] == "bad":
            return BenchmarkItem(id="x", question="q", answer="a", metadata={"when": object()})
        return BenchmarkItem(
            id=str(data.get("custom_id", line_num)), question=data["problem"], answer=str(data.get("truth")),
            metadata={"difficulty": data.get("level"), "tags": ["made"]},
        )

class Other: pass

class Picky:
    def __init__(self, path): pass
"""


@pytest.fixture
def custom(tmp_path, describe):
    def write(benchmark: str = "own_items:Custom", source: str = MODULE, **fields) -> Dataset:
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{benchmark.partition(':')[0]}.py").write_text(source)
        return describe({"files": ["one.jsonl"], "benchmark": benchmark, **fields}, run_code=True)

    return write


def test_a_class_makes_the_items(tmp_path, rows, custom):
    before = list(sys.path)
    rows(
        "data/one.jsonl",
        {"custom_id": 7, "problem": "p", "truth": 3, "level": "hard"},
        {"problem": "none"},
        {"truth": 1},
        {"problem": "bad"},
        {"problem": "last"},
        [1],
    )
    dataset = custom("own_items:Custom", tags_from=["difficulty"])
    first, last = cases(dataset)
    assert (first.case_id, first.messages[0].content, first.reference) == ("data/one.7", "p", "3")
    assert first.metadata == {"difficulty": "hard", "tags": ["made"]}
    assert first.tags == ("hard", "made")
    assert last.case_id == "data/one.5"
    assert [message.partition("one.jsonl:")[2] for message in bad(dataset)] == [
        "2:1: Custom._parse_item returned NoneType, expected a BenchmarkItem",
        "3:1: Custom._parse_item raised KeyError: 'problem'",
        "4:1: found a value that is not JSON: Object of type object is not JSON serializable",
        "6:1: found a list, expected an object",
    ]
    assert sys.path == before


def test_code_runs_only_if_it_is_allowed(tmp_path, rows):
    rows("data/one.jsonl", q(1))
    (tmp_path / "data" / "explosive.py").write_text("raise SystemError('it was run')\n")
    path = tmp_path / "data" / "dataset.yaml"
    path.write_text("schema_version: 1\nfiles: [one.jsonl]\nbenchmark: explosive:Custom\n")
    with pytest.raises(CodeNotRun, match=r"dataset\.yaml:3:12: benchmark: explosive:Custom makes the items"):
        list(read_rows(open_dataset(path, ConfigRoot(tmp_path))))
    with pytest.raises(ConfigError, match=r"3:12: benchmark: cannot import explosive: SystemError: it was run"):
        open_dataset(path, ConfigRoot(tmp_path), run_code=True)


def test_code_cannot_exit_the_process(rows, custom):
    rows("data/one.jsonl", {"problem": "p"}, {"problem": "none"})
    for place in ("import sys; sys.exit(3)", "class Custom:\n    def __init__(self): raise SystemExit(3)"):
        name = f"leaving{len(place)}"
        with pytest.raises(ConfigError, match=rf"benchmark: (cannot import {name}|Custom\(\) failed): SystemExit: 3"):
            custom(f"{name}:Custom", place)
    source = MODULE.replace("return None", "raise SystemExit(3)")
    assert [message.partition("one.jsonl:")[2] for message in bad(custom("leaving:Custom", source))] == [
        "2:1: Custom._parse_item raised SystemExit: 3"
    ]


def test_an_exception_of_a_module_is_an_import_error_with_its_text(rows, custom):
    rows("data/one.jsonl", q(1))
    with pytest.raises(ConfigError, match=r"benchmark: cannot import raising: ValueError: not today"):
        custom("raising:Custom", "raise ValueError('not today')")


@pytest.mark.parametrize(
    ("benchmark", "message"),
    [
        ("own_items:Costum", r"found no class 'Costum' in .*own_items\.py"),
        ("own_items:Other", r"the class 'Other' has no method _parse_item\(self, data, line_num\)"),
        ("own_items:Picky", r"Picky\(\) failed: TypeError: "),
        ("json:JSONDecoder", r"the class 'JSONDecoder' has no method _parse_item"),
    ],
)
def test_a_class_that_cannot_be_used_is_an_error_of_the_descriptor(rows, custom, benchmark, message):
    rows("data/one.jsonl", q(1))
    with pytest.raises(ConfigError, match=rf"dataset\.yaml:\d+:\d+: benchmark: {message}"):
        custom(benchmark)


def test_a_missing_module_is_named(rows, describe):
    rows("data/one.jsonl", q(1))
    with pytest.raises(ConfigError, match=r"found no module 'no_such\.module', neither on the import path nor as"):
        describe({"files": ["one.jsonl"], "benchmark": "no_such.module:Custom"}, run_code=True)


def test_modules_of_one_name_in_two_folders_are_separate(tmp_path, rows, describe):
    found = []
    for folder in ("one", "two"):
        rows(f"{folder}/rows.jsonl", {"problem": folder})
        (tmp_path / folder / "own_items.py").write_text(
            MODULE.replace('question=data["problem"]', f'question="{folder}"')
        )
        found += asked(
            describe(
                {"files": ["rows.jsonl"], "benchmark": "own_items:Custom"}, f"{folder}/dataset.yaml", run_code=True
            )
        )
    assert found == ["one", "two"]


def test_known_names_are_verified(rows, describe):
    rows("data/one.jsonl", q(1))
    known = Known(runners=frozenset({"llm_probe"}), metrics=frozenset({"exact_match"}), tools=frozenset())
    with pytest.raises(ConfigError, match="unknown metric 'exact_mach'; did you mean 'exact_match'"):
        describe({"files": ["one.jsonl"], "metrics": [{"name": "exact_mach"}]}, known=known)
