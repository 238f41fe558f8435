from __future__ import annotations

import copy
import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging_samples import EXPECTATIONS, reply

from pytest_agentbench.judging.verdicts import parse_verdict, response_format
from pytest_agentbench.models.replies import InvalidReply
from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.records.case import Expectations

NONE = Expectations()


def problems(answer: object, expectations: Expectations = NONE) -> str:
    with pytest.raises(InvalidReply) as caught:
        parse_verdict(answer if isinstance(answer, str) else json.dumps(answer), expectations)
    return str(caught.value)


def changed(*path: str | int, to: object, expectations: Expectations | None = None) -> dict:
    answer = copy.deepcopy(reply(8, expectations))
    place = answer
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return answer


@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "\n\n{}\n",
        "```json\n{}\n```",
        "```\n{}\n```",
        "Here is my verdict:\n\n```json\n{}\n```\nThat is all.",
        "The agent did well. {} So much for that.",
        "<think>\nShould it be {{10}}? ```no```\n</think>\n\n{}",
    ],
)
def test_plain_and_fenced_json_is_a_verdict(form):
    verdict = parse_verdict(form.format(json.dumps(reply(7.5, task=3))), NONE)
    assert verdict.overall.score == 7.5
    assert verdict.dimensions["task"].score == 3
    assert verdict.overall.evidence == ("seen",)
    assert tuple(verdict.dimensions) == DIMENSIONS


def test_a_code_fence_inside_the_json_is_text():
    answer = changed("summary", to="It ran\n```sh\nls\n```\nand stopped.")
    assert "```sh" in parse_verdict(json.dumps(answer, indent=1), NONE).summary


@pytest.mark.parametrize(
    "score", [-0.1, 10.1, 11, 1e9, True, "8 of 10", "11", "", "1e1", None, [8], float("nan"), float("inf")]
)
def test_a_score_is_a_real_number_from_0_to_10(score):
    assert "overall.score: found" in problems(changed("overall", "score", to=score))
    assert "dimensions.spark.score: found" in problems(changed("dimensions", "spark", "score", to=score))


def test_a_score_may_be_written_as_a_text():
    answer = changed("expectations", 1, "met", to="0.5", expectations=EXPECTATIONS)
    answer["overall"]["score"] = "8"
    verdict = parse_verdict(json.dumps(answer), EXPECTATIONS)
    assert (verdict.overall.score, verdict.expectations[1].met) == (8, 0.5)


def test_of_two_verdicts_in_prose_none_counts():
    text = json.dumps(reply())
    assert "not JSON" in problems(f"The agent wants me to say {text} but I say {text}")


@pytest.mark.parametrize("name", DIMENSIONS)
def test_every_dimension_is_needed(name):
    answer = reply()
    del answer["dimensions"][name]
    assert problems(answer) == f"- dimensions.{name}: missing"


@pytest.mark.parametrize(
    ("overall", "scores", "fits"),
    [
        (0.8, (8, 8, 8, 8, 8, 8), False),
        (0.3, (3, 3, 3, 3, 3, 3), False),
        (4, (8, 9, 7, 8, 8, 8), False),
        (8, (0.8, 0.8, 0.8, 0.8, 0.8, 0.8), False),
        (10, (7, 7, 7, 7, 7, 7), False),
        (4.9, (7, 8, 9, 9, 9, 9), False),
        (5, (7, 8, 9, 9, 9, 9), True),
        (9, (7, 5, 5, 5, 5, 5), True),
        (9.1, (7, 5, 5, 5, 5, 5), False),
        (0, (0, 8, 8, 8, 8, 8), True),
        (1, (2, 8, 8, 8, 8, 8), True),
        (0, (0, 0, 0, 0, 0, 0), True),
        (0.1, (1, 1, 1, 1, 1, 1), True),
        (7.5, (3, 7.5, 7.5, 7.5, 7.5, 7.5), True),
    ],
)
def test_an_overall_score_fits_its_dimensions(overall, scores, fits):
    answer = reply(overall, **dict(zip(DIMENSIONS, scores, strict=True)))
    answer["dimensions"]["of_its_own"] = {"evidence": [], "score": 10}
    if fits:
        assert parse_verdict(json.dumps(answer), NONE).overall.score == overall
        return
    assert problems(answer) == (
        f"- overall.score: found {overall:g}, and the dimensions' scores go from {min(scores):g} to {max(scores):g}; "
        "all are on one scale, 0 to 10, and expected to fit each other"
    )


@pytest.mark.parametrize("key", ["summary", "dimensions", "overall"])
def test_every_part_is_needed(key):
    answer = reply()
    del answer[key]
    assert f"{key}: missing" in problems(answer)


def test_all_problems_are_reported_at_once():
    answer = changed("overall", "score", to=12)
    del answer["summary"]
    answer["dimensions"]["task"]["evidence"] = "a text"
    assert len(problems(answer).splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("I give it an 8.", "not JSON"),
        ("[1]", "a JSON list, expected an object"),
        ('{"summary": ', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("```json\n{}\n```\n```json\n{}\n```", "several code blocks"),
        ("<think>never ends", "not JSON"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text, expected):
    assert expected in problems(text)


def test_other_keys_are_ignored():
    answer = reply() | {"confidence": 1, "expectations": []}
    answer["dimensions"]["charm"] = {"score": 1, "evidence": []}
    assert tuple(parse_verdict(json.dumps(answer), NONE).dimensions) == DIMENSIONS


def test_expectations_are_answered_each_once():
    verdict = parse_verdict(json.dumps(reply(8, EXPECTATIONS)), EXPECTATIONS)
    assert [(each.kind, each.index, each.met) for each in verdict.expectations] == [
        ("hard", 0, 1),
        ("hard", 1, 1),
        ("soft", 0, 1),
    ]


def test_expectations_without_an_answer_or_with_two_are_refused():
    answer = reply(8, EXPECTATIONS)
    assert "hard 0 is missing" in problems(reply(8), EXPECTATIONS)
    assert "soft 0 is missing" in problems(answer | {"expectations": answer["expectations"][:2]}, EXPECTATIONS)
    assert "answered twice" in problems(answer | {"expectations": answer["expectations"] * 2}, EXPECTATIONS)
    assert "there is no soft 7" in problems(
        changed("expectations", 2, "index", to=7, expectations=EXPECTATIONS), EXPECTATIONS
    )


@pytest.mark.parametrize("met", [-0.1, 1.1, 8, True, "1.1", None])
def test_met_is_a_fraction(met):
    answer = changed("expectations", 1, "met", to=met, expectations=EXPECTATIONS)
    assert "expectations.1.met: found" in problems(answer, EXPECTATIONS)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
@pytest.mark.slow
def test_no_reply_breaks_the_reader(value):
    problems(json.dumps(value))
    problems(json.dumps(reply() | {"overall": value}))


@pytest.mark.parametrize("expectations", [NONE, EXPECTATIONS])
def test_the_schema_and_the_contract_accept_the_same_replies(expectations):
    given = response_format(expectations)
    assert (given["type"], given["json_schema"]["name"], given["json_schema"]["strict"]) == (
        "json_schema",
        "judge_verdict",
        True,
    )
    schema = given["json_schema"]["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(reply(8, expectations if expectations is EXPECTATIONS else None), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"summary": "x"}, schema)


def test_the_schema_is_strict_as_endpoints_ask_for_it():
    """Every object closed and every property required; evidence is written before the score."""

    def objects(node):
        if isinstance(node, dict):
            if node.get("type") == "object":
                yield node
            for child in node.values():
                yield from objects(child)

    schema = response_format(EXPECTATIONS)["json_schema"]["schema"]
    found = list(objects(schema))
    assert all(each["additionalProperties"] is False and each["required"] == list(each["properties"]) for each in found)
    assert list(schema["properties"]["overall"]["properties"]) == ["evidence", "score"]


@pytest.mark.parametrize(
    "reply_text",
    [
        "Here it is:\n```json\n{}\n```\nThat is all.",
        "```json\r\n{}\r\n```",
        "```json {}```",
        "{}\n",
    ],
)
def test_a_fence_ends_where_a_line_does(reply_text):
    verdict = reply(8) | {"summary": "It used ```python print()``` and\ud800 more"}
    parsed = parse_verdict(reply_text.replace("{}", json.dumps(verdict)), NONE)
    assert (parsed.overall.score, parsed.summary) == (8, "It used ```python print()``` and? more")


CRITERIA = ("Truth", "Short and clear")


def criterion(name, score=6, *evidence):
    return {"name": name, "score": score, "evidence": [*evidence]}


def test_criteria_of_the_rubric_are_scored_by_name_in_its_order():
    answer = {**reply(8), "criteria": [criterion("short  and CLEAR", 4.5, "40 lines"), criterion("Truth", 9)]}
    jsonschema.validate(
        {**answer, "criteria": [criterion(name) for name in CRITERIA]},
        response_format(NONE, CRITERIA)["json_schema"]["schema"],
    )
    criteria = parse_verdict(json.dumps(answer), NONE, CRITERIA).criteria
    assert [*criteria] == [*CRITERIA]
    assert (criteria["Short and clear"].score, criteria["Short and clear"].evidence) == (4.5, ("40 lines",))
    assert parse_verdict(json.dumps(answer), NONE).criteria == {}, "nobody asked for them"
    assert parse_verdict(json.dumps(reply(8)), NONE, CRITERIA).criteria == {}, "they do not decide"


@pytest.mark.parametrize(
    ("criteria", "problem"),
    [
        ([criterion("Beauty")], "criteria: there is no 'Beauty'; the rubric has 'Truth', 'Short and clear'"),
        ([criterion("Truth"), criterion("truth")], "criteria: 'Truth' is answered twice"),
        ([criterion("Truth", 11)], "criteria.0.score"),
    ],
)
def test_mistakes_in_criteria_are_asked_again_with_the_mistake(criteria, problem):
    with pytest.raises(InvalidReply) as caught:
        parse_verdict(json.dumps({**reply(8), "criteria": criteria}), NONE, CRITERIA)
    assert problem in str(caught.value)
