"""Hugging Face datasets, here only local ones: `datasets` reads these as it reads those of the hub."""

from __future__ import annotations

import datetime
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import yaml

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.dataset import Dataset, Row, open_dataset
from pytest_agentbench.sources.discovery import find_cases
from pytest_agentbench.sources.rows import BadRow, read_rows, row_case

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="the extra hf is not installed"),
]

ROWS = [{"id": f"r{n}", "question": f"{n} + {n}?", "answer": 2 * n} for n in range(3)]


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    """The package, offline; what it caches lies in the test's folder."""
    import datasets

    for name in ("HF_DATASETS_CACHE", "HF_MODULES_CACHE"):
        monkeypatch.setattr(datasets.config, name, str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return datasets


@pytest.fixture
def hub(tmp_path, datasets):
    """Opens a descriptor with a source."""

    def write(source: str, **fields) -> Dataset:
        path = tmp_path / "root" / "data" / "dataset.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"schema_version": 1, "source": source, **fields}, sort_keys=False))
        return open_dataset(path, ConfigRoot(tmp_path / "root"))

    return write


@pytest.fixture
def place(tmp_path) -> Path:
    folder = tmp_path / "root" / "data"
    folder.mkdir(parents=True)
    return folder


def good(dataset: Dataset) -> list[Row]:
    return [row for row in read_rows(dataset) if isinstance(row, Row)]


def bad(dataset: Dataset) -> list[str]:
    return [row.message for row in read_rows(dataset) if isinstance(row, BadRow)]


def write_csv(path: Path, count: int = 3) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("problem,solution\n" + "".join(f"{n} + {n}?,{2 * n}\n" for n in range(count)))


def test_a_folder_of_csv_files_with_splits(hub, place):
    write_csv(place / "table" / "train.csv", 4)
    write_csv(place / "table" / "test.csv", 2)
    fields = {"question": "problem", "answer": "solution"}
    dataset = hub("hf:./table", split="test", fields=fields, few_shot={"split": "train", "count": 1, "shuffle_seed": 1})
    found = good(dataset)
    assert [(row.case_id, row.line, row.index, row.path) for row in found] == [
        ("data.item_1", 1, 0, place / "dataset.yaml"),
        ("data.item_2", 2, 1, place / "dataset.yaml"),
    ]
    case = row_case(dataset, found[1])
    assert (case.messages[-1].content, case.reference, case.path) == ("1 + 1?", "2", place / "dataset.yaml")
    assert [message.role for message in case.messages] == ["user", "assistant", "user"]
    with pytest.raises(
        ConfigError, match=r"dataset\.yaml:2:9: source: cannot be loaded: split: found none, expected one of"
    ):
        list(read_rows(hub("hf:./table", fields=fields)))
    with pytest.raises(ConfigError, match=r"dataset\.yaml:2:9: source: cannot be loaded: .*tset"):
        list(read_rows(hub("hf:./table", fields=fields, split="tset")))


@pytest.mark.parametrize("kind", ["rows.csv", "rows.json", "rows.jsonl", "rows.parquet", "saved", "saved_splits"])
def test_single_files_and_saved_datasets(datasets, hub, place, kind):
    made = datasets.Dataset.from_list(ROWS)
    path = place / kind
    if kind == "saved":
        made.save_to_disk(str(path))
    elif kind == "saved_splits":
        datasets.DatasetDict({"test": made, "train": made.select([0])}).save_to_disk(str(path))
    else:
        getattr(made, f"to_{path.suffix[1:].removesuffix('l')}")(str(path))
    dataset = hub(f"hf:./{kind}", **({"split": "test"} if kind == "saved_splits" else {}))
    assert [row.case_id for row in good(dataset)] == ["data.r0", "data.r1", "data.r2"]
    assert [row_case(dataset, row).reference for row in good(dataset)] == ["0", "2", "4"]
    assert [path.name for path in find_cases(place)] == ["dataset.yaml"]  # not the rows by themselves too


def test_values_are_json_values(datasets, hub, place):
    made = datasets.Dataset.from_list(
        [
            {
                "question": "q",
                "answers": {"text": ["a", "b"], "start": [1, 2]},
                "when": datetime.datetime(2024, 1, 2, 3, 4),
                "score": float("nan"),
                "none": None,
            }
        ]
    )
    made.save_to_disk(str(place / "saved"))
    dataset = hub("hf:./saved", fields={"answer": "answers.text.1"})
    (row,) = good(dataset)
    case = row_case(dataset, row)
    assert case.reference == "b"
    assert case.metadata == {
        "answers": {"text": ["a", "b"], "start": [1, 2]},
        "when": "2024-01-02T03:04:00",
        "score": None,
        "none": None,
    }
    assert json.loads(row.raw)["question"] == "q"


def test_a_row_with_an_image_is_an_error_that_names_the_field(datasets, hub, place):
    stored = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    rows = [
        {"question": "with", "image": {"bytes": b"\x89PNG" * 100, "path": None}},
        {"question": "without", "image": None},
    ]
    made = datasets.Dataset.from_list(
        rows, features=datasets.Features({"question": datasets.Value("string"), "image": stored})
    ).cast_column("image", datasets.Image())
    made.save_to_disk(str(place / "saved"))
    dataset = hub("hf:./saved")
    assert [row.case_id for row in good(dataset)] == ["data.item_2"]
    (message,) = bad(dataset)
    assert "dataset.yaml:2:9: source: row 1: image.bytes: found binary data (400 bytes), such as an image" in message


def test_limit_and_bad_rows(hub, place):
    (place / "rows.jsonl").write_text('{"question": "a"}\n{"question": null}\n{"question": "c"}\n{"question": "d"}\n')
    dataset = hub("hf:./rows.jsonl", limit=2)
    assert [(row.case_id, row.index) for row in good(dataset)] == [("data.item_1", 0), ("data.item_3", 2)]
    assert bad(dataset)[0].endswith("source: row 2: question: found null, expected a text; it is the agent's task")


@pytest.mark.parametrize("how", ["card", "web", "link", "saved"])
def test_a_folder_cannot_read_files_outside_of_the_root(tmp_path, datasets, hub, place, how):
    write_csv(tmp_path / "secret" / "rows.csv")
    folder = place / "evil"
    write_csv(folder / "rows.csv")
    if how in ("card", "web"):
        files = tmp_path / "secret/rows.csv" if how == "card" else "https://127.0.0.1:9/rows.csv"
        (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: a\n  data_files: {files}\n---\n")
    elif how == "link":
        (folder / "more.csv").symlink_to(tmp_path / "secret" / "rows.csv")
    else:
        (folder / "rows.csv").unlink()
        datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "secret" / "saved"))
        datasets.Dataset.from_list(ROWS).save_to_disk(str(folder))
        state = json.loads((folder / "state.json").read_text())
        (held,) = (tmp_path / "secret" / "saved").glob("*.arrow")
        state["_data_files"] = [{"filename": str(held)}]
        (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(ConfigError, match=r"dataset\.yaml:2:9: source: cannot be loaded: ") as caught:
        list(read_rows(hub("hf:./evil", fields={"question": "problem"})))
    if how != "web":
        assert "which leaves" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("broken.parquet", b"not parquet", "cannot be loaded: "),
        ("text.docx", b"x", r"found 'text\.docx', expected a folder or a file that ends in"),
        ("empty/readme", b"", "cannot be loaded: "),
    ],
)
def test_an_unloadable_folder_is_one_short_error(hub, place, name, content, message):
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_bytes(content)
    dataset = hub(f"hf:./{name.partition('/')[0]}")
    with pytest.raises(ConfigError, match=rf"^{place}/dataset\.yaml:2:9: source: .*{message}") as caught:
        list(read_rows(dataset))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_dataset_of_the_hub_that_is_out_of_reach_is_one_clear_error(hub, tmp_path, monkeypatch):
    (tmp_path / "someone" / "set").mkdir(parents=True)  # a folder of that name is not taken for it
    (tmp_path / "someone" / "set" / "rows.jsonl").write_text('{"question": "local"}\n')
    monkeypatch.chdir(tmp_path)
    dataset = hub("hf:someone/set", split="test")
    with pytest.raises(ConfigError, match=r"dataset\.yaml:2:9: source: cannot be loaded: \w+: .*someone/set") as caught:
        list(read_rows(dataset))
    assert "\n" not in str(caught.value)


def test_without_the_package_the_extra_is_named(hub, place, monkeypatch):
    write_csv(place / "rows.csv")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"source: .*install it with: pip install 'pytest-agentbench\[hf\]'"):
        list(read_rows(hub("hf:./rows.csv", fields={"question": "problem"})))


def test_rows_that_unpack_to_more_than_they_may_are_refused_before_they_are_loaded(hub, place):
    import pyarrow.parquet

    references = pyarrow.array([0] * 2_000, pyarrow.int32())
    table = pyarrow.table({"question": pyarrow.DictionaryArray.from_arrays(references, ["x" * 2**20])})
    pyarrow.parquet.write_table(table, place / "rows.parquet", store_schema=False)
    with pytest.raises(ConfigError, match=r"source: cannot be loaded: .*rows\.parquet: found a row group of more than"):
        list(read_rows(hub("hf:./rows.parquet")))
