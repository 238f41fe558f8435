"""Question, expected and answer of a run, for people who read a report."""

from __future__ import annotations

import pytest
from reports_samples import make_case, make_run

from pytest_agentbench.records.case import Expectation, Expectations, Message, Rubric
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.gold import read_gold
from pytest_agentbench.reports.texts import HEAD, REASON, describe_expected, find_question, find_reason, run_texts

ASKED = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Capital of France?"),
    Message(role="assistant", content="Paris."),
)


def checked(**declarative):
    return Check.model_validate({"check_id": declarative["kind"].replace("_", "-"), "declarative": declarative})


def test_the_question_is_the_last_message_of_the_user():
    assert find_question(make_case()) is None
    assert find_question(make_case(messages=ASKED)) == "Capital of France?"
    later = (Message(role="user", content="And of Spain?"),)
    assert find_question(make_case(messages=ASKED, turns=later)) == "And of Spain?"


@pytest.mark.parametrize(
    ("declarative", "text"),
    [
        ({"kind": "regex_match", "pattern": r"\{no\}"}, r"matches \{no\}"),
        ({"kind": "regex_match", "pattern": "no", "path": "note.txt"}, "note.txt matches no"),
        ({"kind": "file_contains", "path": "note.txt", "text": "30 days"}, "note.txt contains 30 days"),
        ({"kind": "not_contains", "text": "sorry"}, "does not contain sorry"),
        ({"kind": "equals", "text": "Paris"}, "Paris"),
        ({"kind": "file_exists", "path": "note.txt"}, "note.txt exists"),
        ({"kind": "json_path_equals", "json_path": "$.a", "value": [1, None]}, "$.a is [1, None]"),
        ({"kind": "tool_called", "name": "look"}, "calls look"),
        ({"kind": "tool_not_called", "portable": "write"}, "does not call write"),
        ({"kind": "status_is", "status": "timed_out"}, "ends as timed_out"),
        ({"kind": "metric", "name": "f1_score", "reference": "Paris"}, "Paris"),
        ({"kind": "final_response_present"}, None),
    ],
)
def test_checks_name_what_they_look_for(declarative, text):
    assert describe_expected(make_case(checks=(checked(**declarative),))) == text


def test_a_check_of_a_turn_names_it():
    check = checked(kind="contains", text="Paris")
    named = [check.model_copy(update={"turn": turn}) for turn in (2, -1, "each")]
    expected = "turn 2: contains Paris; last turn: contains Paris; each turn: contains Paris"
    assert describe_expected(make_case(checks=tuple(named))) == expected


def test_a_right_answer_comes_before_checks_and_these_before_the_judge():
    judge = {
        "expectations": Expectations(hard_expectations=(Expectation(text="names the city"),)),
        "rubric": Rubric(scoring_instructions="Be strict.\nVery."),
    }
    checks = (checked(kind="regex_match", pattern="Paris"), checked(kind="file_exists", path="a.txt"))
    golds = read_gold(["Paris", "Lutetia"])
    assert describe_expected(make_case(golds=golds, checks=checks, **judge)) == 'any of "Paris", "Lutetia"'
    assert describe_expected(make_case(reference="Paris", checks=checks)) == "Paris"
    assert describe_expected(make_case(checks=checks, **judge)) == "matches Paris; a.txt exists"
    assert describe_expected(make_case(**judge)) == "names the city"
    assert describe_expected(make_case(rubric=judge["rubric"])) == "Be strict."
    assert describe_expected(make_case()) is None


def test_texts_are_cut_after_secrets_are_removed():
    secret = "zebra-crossing-4711"
    answer = "x" * (HEAD - 5) + secret + "y" * HEAD
    texts = run_texts(make_case(messages=ASKED), make_run(answer), lambda text: text.replace(secret, "[redacted]"))
    assert len(texts["answer"]) == HEAD
    assert "zebra" not in texts["answer"]
    assert texts["question"] == "Capital of France?"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("check has-answer: the answer does not hold 'Paris'", "check has-answer"),
        ("model 'a' at http://127.0.0.1:9/v1: HTTP 503: overloaded", "HTTP 503"),
        ("scripted model 'b': no reply left", "no reply left"),
        ("cases/t.yaml:7:3: nothing decides this task", "nothing decides this task"),
        ("C:\\cases\\a.yaml:4:7: nothing decides this task", "nothing decides this task"),
        ("first line\nsecond: line", "first line"),
        ("x" * 100, "x" * (REASON - 1) + "…"),
        (None, "run timed_out"),
    ],
)
def test_equal_troubles_of_models_and_lines_have_one_reason(message, reason):
    assert find_reason("failed", "timed_out", message) == reason
    assert find_reason("passed", "success", message) is None
