from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.predictions import as_prediction, read_predictions

SHARED = Path(__file__).parents[3] / "shared" / "data" / "datasets"


@pytest.fixture
def write(tmp_path):
    def write(content, name="preds.json"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def lines(*values):
    return "".join(f"{json.dumps(value)}\n" for value in values)


def problems(path):
    """What is wrong with the file, without its path."""
    with pytest.raises(ConfigError) as raised:
        read_predictions(path)
    return [line.removeprefix(f"{path}:") for line in str(raised.value).splitlines()]


BY_ID = {"q1": "Paris", "q2": 4, "q3": None, "q4": ["a", "b"], "q5": {"wrong": "type"}}
ROLLOUT = {
    "benchmark_name": "qa",
    "metric": "exact_match",
    "average_score": 0.5,
    "results": [
        {"task_id": key, "question": "?", "predicted_answer": value, "ground_truth": "", "score": 0.0}
        for key, value in BY_ID.items()
    ],
}
"""An evaluation as the original's rollouts write it."""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("preds.json", json.dumps(BY_ID)),
        ("preds.json", json.dumps(BY_ID, indent=2)),
        ("preds.jsonl", json.dumps(BY_ID)),
        ("preds.json", json.dumps([{"id": key, "prediction": value} for key, value in BY_ID.items()])),
        ("preds.json", json.dumps([{"id": key, "prediction": value} for key, value in BY_ID.items()], indent=1)),
        ("preds.jsonl", lines(*({"item_id": key, "prediction": value} for key, value in BY_ID.items()))),
        ("preds.jsonl", "\n" + lines(*({"case_id": key, "predictions": value} for key, value in BY_ID.items()))),
        ("preds.txt", lines(*({"id": key, "prediction": value} for key, value in BY_ID.items()))),
        ("preds.json", json.dumps({"evaluation_results": [{"item_id": k, "prediction": v} for k, v in BY_ID.items()]})),
        ("preds.json", "\ufeff" + json.dumps(BY_ID)),
        ("evaluation_qa.json", json.dumps(ROLLOUT)),
        ("evaluation_qa.json", json.dumps(ROLLOUT, indent=2)),
    ],
    ids=[
        *("object", "pretty", "object-jsonl", "list", "pretty-list", "jsonl", "case-ids", "suffix", "results", "bom"),
        *("rollout", "pretty-rollout"),
    ],
)
def test_predictions_by_id_come_in_many_shapes(write, name, content):
    assert read_predictions(write(content, name)) == BY_ID


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("values", [["Paris", None, 4], [["a", "b"], ["c"]], [None], ["", True]])
def test_a_list_is_in_item_order(write, values, indent):
    assert read_predictions(write(json.dumps(values, indent=indent))) == values


def test_ids_are_texts_as_the_ids_of_items_are(write):
    assert read_predictions(write(lines({"id": 7, "prediction": "x"}), "preds.jsonl")) == {"7": "x"}


def test_an_id_may_be_called_items(write):
    assert read_predictions(write('{"q1": "a", "items": ["b", "c"]}')) == {"q1": "a", "items": ["b", "c"]}


@pytest.mark.parametrize(
    "predictions",
    [
        {"de": "ja", "id": "ya", "fr": "oui"},
        {"id": "ya", "in": "haan"},
        {"item_id": "a", "q1": ["b"]},
        {"case_id": None, "task_id": 3, "q1": True},
        {"prediction": "a", "q1": "b"},
        {"predictions": ["a"], "q1": "b"},
        {"question": "a", "answer": "b", "q1": "c"},
    ],
)
@pytest.mark.parametrize("name", ["preds.json", "preds.jsonl"])
def test_an_id_may_be_a_key_of_records(write, predictions, name):
    assert read_predictions(write(json.dumps(predictions), name)) == predictions


@pytest.mark.parametrize("extra", [{}, {"answer": "x"}, {"score": 1.0}, {"predicted": 1, "model": "m"}])
def test_one_object_with_an_id_and_a_prediction_is_one_prediction(write, extra):
    assert read_predictions(write(json.dumps({"id": "q1", "prediction": "a", **extra}))) == {"q1": "a"}


def test_the_reported_map_with_the_id_of_indonesian_is_read():
    folder = Path(__file__).parents[3] / "shared" / "data" / "reports" / "predictions_id_key"
    if not folder.is_dir():
        pytest.skip("the reported files are not here")
    rows = map(json.loads, (folder / "d.jsonl").read_text().splitlines())
    assert read_predictions(folder / "p.json") == {row["id"]: row["answer"] for row in rows}


def test_saved_results_of_the_original_are_predictions():
    path = SHARED / "evaluation_Benchmark_math_demo.jsonl.json"
    if not path.is_file():
        pytest.skip("the recorded results are not here")
    [(item_id, prediction)] = read_predictions(path).items()
    assert (item_id, prediction[-8:]) == ("aaa", "is 30.5.")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", ["1:1: found no prediction, expected JSON or JSONL"]),
        ("\n \n", ["1:1: found no prediction"]),
        ("[]", ["1:1: found no prediction"]),
        ("{}", ["1:1: found no prediction"]),
        ('"Paris"', ["1:1: found a text, expected JSON or JSONL"]),
        ("42", ["1:1: found a number"]),
        ("null", ["1:1: found null"]),
        ("id,prediction\nq1,Paris\n", ["1:1: not valid JSON: expecting value; expected JSON or JSONL"]),
        ('{"q1": "a",\n "q2": NaN}', ["2:8: not valid JSON: NaN is no JSON value"]),
        ('{"q1": "is NaN",\n "q2": -Infinity}', ["2:8: not valid JSON: -Infinity is no JSON value"]),
        ('{"q1": "a"', ["1:"]),
        ('{"q1": "a",\n "q2": "b",\n "q1": "c"}', ["3:1: found a second prediction for 'q1', the first is on line 1"]),
        ('[{"prediction": "a"}]', ["1:1: found an object with 'prediction', expected an id (`id`, "]),
        ('[{"id": 1, "answer": "a"}]', ["1:1: found an object with 'id', 'answer', expected an id"]),
        ('{"prediction": "a"}', ["1:1: found an object with 'prediction'"]),
        ('{"id": "q1", "answer": "a"}', ["1:1: found an object with 'id', 'answer', expected an id"]),
        ('[{"q1": "a"}]', ["1:1: found an object with 'q1'"]),
        ('[{"id": 1, "prediction": "a", "predictions": ["a"]}]', ["1:1: found an object with 'id', 'prediction', "]),
        ('[{"id": null, "prediction": "a"}]', ["1:1: id: found null, expected the item's id"]),
        ('[{"id": "", "prediction": "a"}]', ["1:1: id: found an empty text"]),
        ('[{"id": {"x": 1}, "prediction": "a"}]', ["1:1: id: found an object"]),
        ('[{"id": 1, "prediction": "a"},\n 5]', ["2:1: found a number, expected an object with an `id`"]),
        (b'[\n "caf\xe9"]', ["2:6: not UTF-8: found byte 0xe9"]),
        ('["a", "b"', ["1:10: not valid JSON"]),
    ],
)
def test_errors_in_a_predictions_file_contain_their_place(write, content, found):
    told = problems(write(content))
    assert [text.startswith(start) for text, start in zip(told, found, strict=False)] == [True] * len(found), told


def test_at_most_twenty_bad_lines_are_reported(write):
    good = {"id": 1, "prediction": "a"}
    bad = lines(good) + "{bad\n" + lines({"id": 2, "answer": "b"}, good)
    told = problems(write(bad, "preds.jsonl"))
    assert [text.partition(": ")[0] for text in told] == ["2:2", "3:1", "4:1"]
    assert "the first is on line 1" in told[2]
    many = problems(write("id,prediction\n" * 100, "preds.jsonl"))
    assert len(many) == 21
    assert many[-1] == "... and 80 more problems of this file"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_another_encoding_is_named(write, encoding):
    with pytest.raises(ConfigError, match="found UTF-16 or binary data, expected UTF-8 text"):
        read_predictions(write('{"q1": "a"}'.encode(encoding)))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.json: cannot be read: No such file"):
        read_predictions(tmp_path / "gone.json")
    with pytest.raises(ConfigError, match="cannot be read: found a folder, expected a file"):
        read_predictions(tmp_path)


@pytest.mark.slow
def test_a_line_of_fifty_megabytes_is_a_prediction(write):
    text = "x" * 50_000_000
    content = lines({"id": "long", "prediction": text}, {"id": "short", "prediction": "y"})
    found = read_predictions(write(content, "preds.jsonl"))
    assert (len(found["long"]), found["short"]) == (50_000_000, "y")


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("Paris", "Paris"),
        ("", ""),
        (4, "4"),
        (0.5, "0.5"),
        (True, "True"),
        (None, None),
        (["a", 1, False], ("a", "1", "False")),
        (("a",), ("a",)),
        ([], ()),
    ],
)
def test_a_prediction_is_a_text_several_or_none(value, taken):
    assert as_prediction(value) == taken


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"answer": "a"}, "found an object, expected a text"),
        (["a", {"b": 1}], "2. sample: found an object"),
        ([["a"]], "1. sample: found a list"),
        ([None], "1. sample: found null"),
        ({"a"}, "found a set"),
    ],
)
def test_any_other_value_is_none(value, said):
    with pytest.raises(ValueError, match=said):
        as_prediction(value)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.text(string.ascii_letters + "-_.7é", min_size=1).filter(
    lambda key: key not in ("id", "item_id", "case_id", "prediction", "predictions", "evaluation_results")
)


@pytest.mark.slow
@given(st.dictionaries(KEYS, JSON_VALUES, min_size=1), st.sampled_from([None, 1]), st.booleans())
def test_an_object_comes_back_as_it_was_written(tmp_path_factory, predictions, indent, ascii_only):
    path = tmp_path_factory.mktemp("object") / "preds.json"
    path.write_text(json.dumps(predictions, indent=indent, ensure_ascii=ascii_only), "utf-8")
    assert read_predictions(path) == predictions


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1), JSON_VALUES, min_size=1))
def test_records_come_back_as_they_were_written(tmp_path_factory, predictions):
    path = tmp_path_factory.mktemp("records") / "preds.jsonl"
    path.write_text(lines(*({"id": key, "prediction": value} for key, value in predictions.items())))
    assert read_predictions(path) == predictions


@given(st.binary(max_size=60), st.sampled_from(["preds.json", "preds.jsonl"]))
def test_no_file_breaks_the_reader(tmp_path_factory, content, name):
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(content)
    try:
        found = read_predictions(path)
    except ConfigError as error:
        found = str(error).startswith(str(path))
    assert found


LOGS = [
    {
        "task_id": "q1",
        "question": "2+2?",
        "answer": "4",
        "messages": [{"role": "user"}],
        "success": True,
        "error": None,
    },
    {"task_id": "q2", "question": "3*3?", "messages": [], "success": False, "error": "time is up"},
    {"task_id": "q3", "question": "1+1?", "answer": "2", "predicted_answer": "3", "trajectory": []},
    {"task_id": "q4", "answer": "5", "trajectory": {"steps": []}},
    {"task_id": "q5", "question": "2+3?", "answer": "5", "success": True},
]


@pytest.mark.parametrize("content", [lines(*LOGS), json.dumps(LOGS), json.dumps({"evaluation_results": LOGS})])
def test_logs_of_runs_are_predictions(write, content):
    assert read_predictions(write(content)) == {"q1": "4", "q2": None, "q3": "3", "q4": "5", "q5": "5"}


def test_a_dataset_is_no_log(write):
    (found,) = problems(write(lines({"task_id": "q1", "question": "2+2?", "answer": "4"})))
    assert found.startswith("1:1: found an object with 'task_id', 'question', 'answer', expected an id")


@pytest.mark.parametrize(
    "evaluation",
    [
        {"benchmark_info": {"name": "math"}, "summary": {"average_score": 0.5}},
        {"benchmark_info": {}, "evaluation_results": {}, "summary": {}},
        {"name": "math", "total_items": 2, "metric": "exact_match", "average_score": 0.5},
    ],
)
def test_an_evaluation_without_results_is_no_mapping_of_predictions(write, evaluation):
    (found,) = problems(write(json.dumps(evaluation), "evaluation_math.json"))
    assert found.startswith("1:1: found an evaluation (")
    assert "expected JSON or JSONL: {item id: prediction}" in found
