"""Files of predictions that others wrote, read from the places that a dataset.yaml names."""

from __future__ import annotations

import json

import pytest
import yaml

from pytest_agentbench.cli import main
from pytest_agentbench.config.dataset_file import PredictionFields
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.dataset import open_dataset
from pytest_agentbench.sources.items import MISSING, look_up
from pytest_agentbench.sources.predictions import read_mapped_predictions
from pytest_agentbench.sources.rows import read_benchmark_items

TRIALS = [
    {"task_id": 0, "trial": 0, "reward": 1.0, "traj": [{"content": "Hi"}, {"content": "Done."}]},
    {"task_id": 1, "trial": 0, "reward": 0.0, "traj": [{"content": "No."}]},
    {"task_id": 0, "trial": 1, "reward": 0.5, "traj": [{"content": "Fine."}]},
]
REWARDS = {"id": "task_id", "prediction": "reward"}


def read(tmp_path, content, fields, name="preds.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_mapped_predictions(path, PredictionFields.model_validate(fields))


@pytest.mark.parametrize(
    ("content", "fields", "found"),
    [
        (TRIALS, REWARDS, {"0": [1.0, 0.5], "1": 0.0}),
        ("".join(json.dumps(trial) + "\n" for trial in TRIALS), REWARDS, {"0": [1.0, 0.5], "1": 0.0}),
        (TRIALS, {"id": "task_id", "prediction": "traj.-1.content"}, {"0": ["Done.", "Fine."], "1": "No."}),
        ({"info": 1, "simulations": TRIALS[:2]}, {"items": "simulations", **REWARDS}, {"0": 1.0, "1": 0.0}),
        ({"run": {"simulations": TRIALS[:2]}}, {"items": "run.simulations", **REWARDS}, {"0": 1.0, "1": 0.0}),
        (
            [{"instance_id": "a-1", "model_patch": "diff"}],
            {"id": "instance_id", "prediction": "model_patch"},
            {"a-1": "diff"},
        ),
        (
            {"a-1": {"resolved": True}, "a-2": {"resolved": False}},
            {"prediction": "resolved"},
            {"a-1": True, "a-2": False},
        ),
        (
            {"resolved_ids": ["a-1"], "unresolved_ids": ["a-2", 3], "total": 3},
            {"lists": {"yes": "resolved_ids", "no": "unresolved_ids"}},
            {"a-1": "yes", "a-2": "no", "3": "no"},
        ),
        ([{"id": 1, "out": None}], {"id": "id", "prediction": "out"}, {"1": None}),
    ],
)
def test_ids_and_predictions_are_read_from_the_fields_of_the_descriptor(tmp_path, content, fields, found):
    assert read(tmp_path, content, fields) == found


@pytest.mark.parametrize(
    ("content", "fields", "problem"),
    [
        ([{"id": 1}], REWARDS, "preds.json:1:1: predictions.id: found no text or number 'task_id'"),
        ([{"task_id": [1]}], REWARDS, "predictions.id: found no text or number 'task_id'"),
        ([{"task_id": 1}], REWARDS, "predictions.prediction: found no field 'reward' of '1'"),
        ([1], REWARDS, "found a number, expected an object"),
        ({"a": []}, {"lists": {"yes": "b"}}, "predictions.lists.yes: found no list 'b', expected one of ids"),
    ],
)
def test_files_without_these_fields_are_refused(tmp_path, content, fields, problem):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, content, fields)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"id": "x"}, "found neither of prediction and lists"),
        ({"prediction": "x", "lists": {"a": "b"}}, "found both of prediction and lists"),
        ({"id": "x", "lists": {"a": "b"}}, "found lists together with id or items"),
        ({"prediction": "x.", "id": "x"}, "expected the name of a field"),
    ],
)
def test_a_mapping_has_one_way(tmp_path, fields, problem):
    (tmp_path / "rows.jsonl").write_text('{"question": "q"}\n')
    (tmp_path / "dataset.yaml").write_text(
        yaml.safe_dump({"schema_version": 1, "files": ["rows.jsonl"], "predictions": fields})
    )
    with pytest.raises(ConfigError, match=problem):
        open_dataset(tmp_path / "dataset.yaml", ConfigRoot(tmp_path))


@pytest.mark.parametrize(
    ("path", "value"),
    [("a.-1", 3), ("a.-3", 1), ("a.-4", MISSING), ("a.0", 1), ("a.3", MISSING), ("a.-0", 1), ("a.x", MISSING)],
)
def test_negative_places_count_from_the_end(path, value):
    assert look_up({"a": [1, 2, 3]}, path) == value


def test_rows_that_only_verifiers_decide_are_no_matter_of_evaluate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"id": 0, "question": "a"}\n')
    text = {"schema_version": 1, "files": ["rows.jsonl"], "verify": {"answer_file": "a", "command": "true"}}
    (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(text))
    (tmp_path / "preds.json").write_text('{"0": "x"}')
    assert main(["evaluate", "dataset.yaml", "preds.json"]) != 0
    assert "only a session can decide its rows by `verify`" in capsys.readouterr().err


def test_an_answer_of_every_row_is_scored(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"id": 0, "question": "a"}\n{"id": 1, "question": "b", "answer": "own"}\n')
    text = {"schema_version": 1, "files": ["rows.jsonl"], "answer": 1, "predictions": REWARDS}
    text["metrics"] = [{"name": "numeric_match", "threshold": 1.0}]
    (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(text))
    (tmp_path / "preds.json").write_text(json.dumps(TRIALS[:2]))
    items = list(read_benchmark_items(open_dataset(tmp_path / "dataset.yaml", ConfigRoot(tmp_path))))
    assert [item.answer for item in items] == ["1", "1"]
    assert main(["evaluate", "dataset.yaml", "preds.json", "--json"]) == 0
    (card,) = json.loads(capsys.readouterr().out)["metrics"]
    assert card["average_score"] == 0.5
