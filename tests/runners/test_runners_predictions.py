from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from runners_support import make_case

from pytest_agentbench.runners.base import RunContext, conclude
from pytest_agentbench.runners.subjects import Predictions
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces


def run(answers, repetition=1, dataset=None, case_id="a_case"):
    """How the run ended, what it answered, and what its trace says of where that came from."""
    predictions = Predictions(Path("somewhere/preds.json"), answers)
    case = make_case(dataset=dataset).model_copy(update={"case_id": case_id})
    context = RunContext(case=case, open_sandboxes=lambda: Sandboxes(Workspaces()), repetition=repetition)
    end = conclude(asyncio.run(predictions(case, context)), context.trace)
    return end, context.trace.output, context.trace.provider


@pytest.mark.parametrize(("value", "output"), [("Paris", "Paris"), (4, "4"), (False, "False"), ("", "")])
def test_the_prediction_is_the_final_output(value, output):
    end, found, provider = run({"a_case": value})
    assert (end.status, end.error, found) == ("success", None, output)
    assert provider["predictions"] == "preds.json"


def test_the_trace_has_the_hash_of_the_text():
    assert run({"a_case": "Zürich"})[2]["sha256"] == hashlib.sha256("Zürich".encode()).hexdigest()
    assert run({})[2]["sha256"] is None


def test_a_case_is_found_by_its_id_before_the_id_that_its_row_has_in_the_dataset():
    answers = {"facts.fr": "full", "fr": "short"}
    assert run(answers, dataset="facts", case_id="facts.fr")[1] == "full"
    assert run({"fr": "short"}, dataset="facts", case_id="facts.fr")[1] == "short"
    assert run({"fr": "short"}, case_id="facts.fr")[1] is None


def test_each_repetition_has_its_sample():
    answers = {"a_case": ["a", "b", None, {"c": 1}, ["d"]]}
    ends = [run(answers, repetition) for repetition in range(1, 7)]
    assert [output for _, output, _ in ends] == ["a", "b", None, None, None, None]
    assert [end.status for end, _, _ in ends] == ["success", "success", "failed", "invalid", "invalid", "failed"]
    assert [end.error and end.error.code for end, _, _ in ends] == [
        None,
        None,
        "missing_prediction",
        "invalid_prediction",
        "invalid_prediction",
        "missing_prediction",
    ]


@pytest.mark.parametrize(
    ("answers", "repetition", "status", "said"),
    [
        ({}, 1, "failed", "preds.json has no prediction of 'facts.fr' or 'fr'"),
        ({"fr": None}, 1, "failed", "preds.json: 'fr': found null"),
        ({"fr": ["a", None]}, 2, "failed", "preds.json: 'fr': found null for repetition 2"),
        ({"fr": "a"}, 2, "failed", "preds.json: 'fr': found 1 prediction, none for repetition 2"),
        ({"fr": []}, 1, "failed", "preds.json: 'fr': found 0 predictions, none for repetition 1"),
        ({"fr": {"x": 1}}, 1, "invalid", "preds.json: 'fr': found an object, expected a text"),
        ({"fr": [["x"]]}, 1, "invalid", "preds.json: 'fr': found a list in a list"),
    ],
)
def test_a_missing_or_invalid_prediction_is_an_error_with_the_reason(answers, repetition, status, said):
    end, output, _ = run(answers, repetition, dataset="facts", case_id="facts.fr")
    assert (end.status, output) == (status, None)
    assert end.error.message.startswith(said)


def test_other_predictions_have_other_digests():
    case = make_case()
    digests = [
        Predictions(Path("p.json"), {"a_case": value}).digest(case, 1) for value in ("a", "b", None, {"a": 1}, ["a"])
    ]
    assert digests[0] == digests[4]
    assert digests[2] is None
    assert len(set(digests)) == 4


def test_the_model_id_is_the_files_name_without_its_suffix():
    assert Predictions(Path("/x/gpt-4o.2024.jsonl"), {}).model_id == "gpt-4o.2024"


CALL = {"name": "search", "arguments": {"q": "x"}, "result": "found"}


def test_a_prediction_may_bring_its_tool_calls():
    predictions = Predictions(Path("preds.json"), {"a_case": {"output": 4, "tool_calls": [CALL, {"name": "read"}]}})
    context = RunContext(case=make_case(), open_sandboxes=lambda: Sandboxes(Workspaces()), repetition=1)
    case = make_case().model_copy(update={"case_id": "a_case"})
    end = conclude(asyncio.run(predictions(case, context)), context.trace)
    assert (end.status, context.trace.output) == ("success", "4")
    calls = [event for event in context.trace.events if event.type == "tool_call"]
    assert [(call.name, call.arguments) for call in calls] == [("search", {"q": "x"}), ("read", {})]
    assert context.trace.provider["reported_calls"] == 2


@pytest.mark.parametrize(
    ("prediction", "said"),
    [
        ({"output": "x", "tool_calls": {}}, "tool_calls: found {}, expected a list of"),
        ({"output": "x", "tool_calls": [{}]}, "tool_calls[0]: name: found nothing, expected a value"),
        ({"output": "x", "tool_calls": [CALL, "y"]}, 'tool_calls[1]: found "y"; '),
        ({"output": [1], "tool_calls": []}, "found a list"),
        ({"output": "x"}, "found an object"),
        ({"output": "x", "tool_calls": [], "more": 1}, "found an object"),
        ({"answers": ["x"]}, "the case has no turns"),
    ],
)
def test_a_prediction_with_wrong_calls_is_invalid(prediction, said):
    end, _, _ = run({"a_case": prediction})
    assert (end.status, end.error.code) == ("invalid", "invalid_prediction")
    assert said in end.error.message
