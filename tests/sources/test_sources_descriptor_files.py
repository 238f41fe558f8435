"""Descriptors: the files of a dataset, its name, and which descriptor a file belongs to."""

from __future__ import annotations

import pytest
from support.cpu_seconds import at_most
from support.descriptors import asked, bad, good, ids, q
from support.questions import is_dataset

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.dataset import open_dataset
from pytest_agentbench.sources.discovery import find_cases
from pytest_agentbench.sources.rows import row_case


def test_files_are_read_in_the_order_of_patterns_then_names_and_each_once(rows, describe):
    rows("data/parts/b.jsonl", q(2))
    rows("data/parts/a.jsonl", q(1))
    rows("data/last.jsonl", q(3))
    dataset = describe({"files": ["parts/*.jsonl", "last.jsonl", "parts/a.jsonl"]})
    found = good(dataset)
    assert [row.case_id for row in found] == ["data.q1", "data.q2", "data.q3"]
    assert [(row.path.name, row.line, row.index) for row in found] == [
        ("a.jsonl", 1, 0),
        ("b.jsonl", 1, 1),
        ("last.jsonl", 1, 2),
    ]
    case = row_case(dataset, found[2])
    assert (case.path, case.line, case.dataset) == (found[2].path, 1, "data")


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("data/dataset.yaml", {"name": "Sums"}, "Sums"),
        ("data/dataset.yaml", {"name": "a::b"}, "a_b-78f0be"),
        ("data/dataset.yaml", {}, "data/one"),
        ("data/hard.dataset.yaml", {}, "data/one"),
        ("data/dataset.yml", {"files": ["*.jsonl"]}, "data"),
        ("data/hard.dataset.yaml", {"files": ["*.jsonl"]}, "data/hard"),
    ],
)
def test_the_name_is_in_the_descriptor_or_that_of_the_only_file_or_folder(rows, describe, name, fields, expected):
    rows("data/one.jsonl", q(1))
    rows("data/two.jsonl", q(2))
    assert describe({"files": ["one.jsonl"], **fields}, name).name == expected


def test_a_data_file_is_read_with_the_descriptor_that_lists_it(tmp_path, rows, describe):
    one = rows("data/one.jsonl", {"problem": "1?"})
    rows("data/deep/two.jsonl", {"problem": "2?"})
    fields = {"name": "n", "files": ["one.jsonl", "deep/*"], "fields": {"question": "problem"}}
    assert ids(describe(fields)) == ["n.one.item_1", "n.deep/two.item_1"]
    assert ids(open_dataset(one, ConfigRoot(tmp_path))) == ["n.one.item_1"]
    assert asked(open_dataset(tmp_path / "data/deep/two.jsonl", ConfigRoot(tmp_path))) == ["2?"]
    describe({"files": ["one.jsonl"]}, "data/other.dataset.yaml")
    with pytest.raises(ConfigError, match=r"one\.jsonl:1:1: found several descriptors that list it"):
        open_dataset(one, ConfigRoot(tmp_path))


def test_a_folder_is_collected_through_its_descriptors(tmp_path, rows, describe):
    for name in ("one", "two", "shots", "deep/three", "free"):
        rows(f"data/{name}.jsonl", q(1))
    rows("data/local/four.jsonl", q(1))
    describe({"files": ["one.jsonl", "deep/*"], "few_shot": {"file": "shots.jsonl"}})
    describe({"source": "hf:./local"}, "data/hub.dataset.yaml")
    (tmp_path / "data" / "sub").mkdir()
    (tmp_path / "data" / "sub" / "dataset.yaml").write_text("train: images/\nnames: [cat, dog]\n")  # another tool's
    found = [path.relative_to(tmp_path / "data").as_posix() for path in find_cases(tmp_path)]
    assert found == ["dataset.yaml", "free.jsonl", "hub.dataset.yaml", "two.jsonl"]
    assert not is_dataset(tmp_path / "data/one.jsonl")
    assert is_dataset(tmp_path / "data/deep/three.jsonl")  # alone it knows nothing of what stands above
    assert not is_dataset(tmp_path / "data/deep/three.jsonl", tmp_path)


def test_a_file_next_to_an_unreadable_descriptor_is_no_dataset(tmp_path, rows):
    one = rows("data/one.jsonl", q(1))
    (tmp_path / "data/dataset.yaml").write_text("schema_version: 1\nfiles: [one.jsonl\n")
    assert is_dataset(tmp_path / "data/dataset.yaml")
    assert not is_dataset(one)


@pytest.mark.parametrize("text", ["files: one.jsonl", "files: [1]", "filse: [one.jsonl]", "source: [1]"])
def test_a_descriptor_without_files_makes_its_neighbours_no_datasets(tmp_path, rows, text):
    one = rows("data/one.jsonl", q(1))
    (tmp_path / "data/dataset.yaml").write_text(f"schema_version: 1\n{text}\n")
    assert not is_dataset(one)


def test_a_pattern_that_leaves_the_root_is_refused(tmp_path, rows):
    one = rows("root/data/one.jsonl", q(1))
    (tmp_path / "root/data/out").symlink_to("/")
    path = tmp_path / "root/data/dataset.yaml"
    path.write_text("schema_version: 1\nfiles: ['/**/*.jsonl', '../../**/*.jsonl', 'out/**/*.jsonl']\n")
    with at_most(0.5):
        assert is_dataset(one, tmp_path / "root")
    with pytest.raises(ConfigError, match="which leaves") as caught:
        open_dataset(path, ConfigRoot(tmp_path / "root"))
    assert str(caught.value).count("which leaves") == 3


@pytest.mark.parametrize("place", ["../*.jsonl", "../secret.jsonl", "link.jsonl", "../*/secret.jsonl"])
@pytest.mark.parametrize("field", ["files", "few_shot", "source"])
def test_a_dataset_reads_nothing_outside_its_folder_and_the_roots_cases(tmp_path, rows, place, field):
    """The config root is a whole project here; what it has elsewhere is no cases."""
    for name in ("secret.jsonl", "elsewhere/secret.jsonl", "cases/shared.jsonl", "data/one.jsonl"):
        rows(name, q(1))
    (tmp_path / "data" / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    said = {"files": f"files: ['{place}']", "few_shot": f"few_shot: {{file: '{place}', count: 1}}\nfiles: [one.jsonl]"}
    said["source"] = f"source: hf:./{place.replace('*/', 'elsewhere/').replace('*', 'secret')}"
    path = tmp_path / "data" / "dataset.yaml"
    path.write_text(f"schema_version: 1\nname: d\n{said[field]}\n")
    with pytest.raises(ConfigError, match="which leaves"):
        open_dataset(path, ConfigRoot(tmp_path))
    path.write_text("schema_version: 1\nname: d\nfiles: [../cases/shared.jsonl]\n")
    assert ids(open_dataset(path, ConfigRoot(tmp_path))) == ["d.q1"]


def test_a_descriptor_in_utf_16_is_read(tmp_path, rows):
    one = rows("data/one.jsonl", q(1))
    path = tmp_path / "data/dataset.yaml"
    path.write_text("schema_version: 1\nname: wide\nfiles: [one.jsonl]\n", encoding="utf-16")
    assert list(find_cases(tmp_path)) == [path]
    assert ids(open_dataset(path, ConfigRoot(tmp_path))) == ["wide.q1"]
    assert not is_dataset(one)


def test_a_descriptor_that_changes_is_read_again(tmp_path, rows, describe):
    one, two = rows("data/one.jsonl", q(1)), rows("data/two.jsonl", q(2))
    describe({"files": ["one.jsonl"]})
    assert [is_dataset(one), is_dataset(two)] == [False, True]
    describe({"files": ["one.jsonl", "two.jsonl"]})
    assert [is_dataset(one), is_dataset(two)] == [False, False]


def test_an_unreadable_file_does_not_affect_other_files(rows, describe):
    rows("data/a.jsonl", q(1))
    rows("data/b.jsonl").write_bytes('{"question": "x"}'.encode("utf-16"))
    rows("data/c.jsonl", q(3))
    dataset = describe({"files": ["*.jsonl"]})
    assert ids(dataset) == ["data.q1", "data.q3"]
    (message,) = bad(dataset)
    assert "b.jsonl:1:1: found UTF-16 or binary data" in message
    assert message.count("b.jsonl") == 1
