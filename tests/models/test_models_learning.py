"""What endpoints teach by refusing a request, and how long it is remembered."""

from __future__ import annotations

import json

import pytest

from pytest_agentbench.models import learning
from pytest_agentbench.models.learning import Change, Lessons, find_change, refuses_form

URL = "http://127.0.0.1:1/v1"
TEMPERATURE = Change(do="drop", field="temperature")


def openai(param: str, code: str = "unsupported_parameter") -> bytes:
    said = f"Unsupported parameter: '{param}' is not supported with this model."
    return json.dumps({"error": {"message": said, "param": param, "code": code}}).encode()


def extra(*loc: object) -> bytes:
    return json.dumps({"detail": [{"type": "extra_forbidden", "loc": ["body", *loc], "msg": "no"}]}).encode()


REQUEST = {"messages": [], "max_tokens": 5, "temperature": 0, "seed": 1, "include": ["reasoning.encrypted_content"]}
UNSEALED = b'{"error": {"message": "Encrypted content is not supported with this model.", "param": "include"}}'


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (400, openai("max_tokens"), "max_tokens->max_completion_tokens"),
        (400, openai("temperature", "unsupported_value"), "temperature dropped"),
        (422, extra("seed"), "seed dropped"),
        (422, extra("messages", 3, "assistant", "reasoning_content"), "messages.reasoning_content not returned"),
        (
            400,
            b"""{"error": {"message": "'messages.1' : for 'role:assistant' property 'reasoning' is unsupported"}}""",
            "messages.reasoning not returned",
        ),
        (
            400,
            b"""{"error": {"message": "Unsupported parameter: 'max_tokens'."}}""",
            "max_tokens->max_completion_tokens",
        ),
        (400, UNSEALED, "include dropped"),
    ],
)
def test_a_refusal_teaches(status, body, told):
    assert str(find_change(status, body, REQUEST, ())) == told


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, openai("top_k")),  # no default of anybody's
        (400, openai("top_p")),  # it was not asked for
        (500, openai("max_tokens")),
        (400, b"Unsupported parameter: 'max_tokens'"),
        (400, b"[]"),
        (400, b'{"error": {"message": "bad", "param": ["max_tokens"], "code": "unsupported_parameter"}}'),
    ],
)
def test_any_other_refusal_does_not(status, body):
    assert find_change(status, body, REQUEST, ()) is None


def test_parameters_of_the_case_are_never_dropped():
    assert find_change(400, openai("temperature"), REQUEST, {"temperature"}) is None
    assert find_change(400, UNSEALED, REQUEST, {"include"}) is None
    assert find_change(400, UNSEALED, {"messages": []}, ()) is None


def test_a_lesson_is_kept_for_other_sessions_and_for_seven_days(tmp_path, monkeypatch):
    path = tmp_path / "made" / "learned.json"
    Lessons(path).note(URL, "m", TEMPERATURE)
    Lessons(path).note(URL, "n", Change(do="rename", field="max_completion_tokens"))
    assert Lessons(path).recall(URL, "m") == [TEMPERATURE]
    assert Lessons(path).recall("http://127.0.0.1:2/v1", "m") == []
    later = learning.time.time() + 7 * 86_400 + 1
    monkeypatch.setattr(learning.time, "time", lambda: later)
    assert Lessons(path).recall(URL, "m") == []


@pytest.mark.parametrize("content", ["", "{", '{"schema_version": 9}', '{"lessons": [{"endpoint": 1}]}'])
def test_a_damaged_file_costs_no_more_than_its_lessons(tmp_path, content):
    path = tmp_path / "learned.json"
    path.write_text(content)
    lessons = Lessons(path)
    assert lessons.recall(URL, "m") == []
    lessons.note(URL, "m", TEMPERATURE)
    assert Lessons(path).recall(URL, "m") == [TEMPERATURE]


def test_a_server_error_that_names_a_grammar_is_about_the_form():
    assert refuses_form(500, b"failed to parse grammar")
    assert not refuses_form(500, b"The server had an error")
    assert not refuses_form(503, b"failed to parse grammar")
