"""The planner's contract: valid and invalid replies."""

from __future__ import annotations

import json
from dataclasses import fields
from string import Formatter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.models.replies import InvalidReply
from pytest_agentbench.packs.mcp_bench.planner import MAX_CALLS, Plan, parse_plan
from pytest_agentbench.packs.mcp_bench.wording import PlannerWording, read_planner_wording

GOOD = '{"reasoning": "r", "should_continue": true, "planned_tools": [{"tool": "S:a", "parameters": {"x": 1}}]}'

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
plans = st.fixed_dictionaries(
    {
        "should_continue": st.just(True) | st.sampled_from(["true", "True", " TRUE "]),
        "planned_tools": st.lists(
            st.fixed_dictionaries(
                {"tool": st.text(min_size=1)}, optional={"parameters": st.dictionaries(st.text(), values) | st.none()}
            ),
            max_size=4,
        ),
    },
    optional={"reasoning": st.text(), "confidence": values},
)


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidReply) as caught:
        parse_plan(text)
    return caught.value.problems


def test_a_plan() -> None:
    plan = parse_plan(GOOD)
    assert plan.reasoning == "r"
    assert [(call.tool, call.parameters) for call in plan.calls] == [("S:a", {"x": 1})]


@pytest.mark.parametrize(
    "reply",
    [
        f"```json\n{GOOD}\n```",
        f"My plan:\n```\n{GOOD}\n```\nThat is all.",
        f"I decide as follows. {GOOD}",
        f"{GOOD}\nI hope {{this}} helps.",
        f"For {{city}} and {{}} I plan: {GOOD}",
        f'<think>{{"should_continue": false}}</think>{GOOD}',
        f"```json\n{{}}\n```\n```json\n{GOOD}\n```",
    ],
)
def test_a_plan_in_other_text_counts_where_there_is_no_other(reply: str) -> None:
    assert parse_plan(reply) == parse_plan(GOOD)


@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        ("", "the reply is empty"),
        ("[]", "the reply is a JSON list, expected an object"),
        (f"{GOOD} or {GOOD}", "the reply has 2 JSON objects, so it is not clear which one counts"),
        (f"```\n{GOOD}\n```\n```\n{GOOD}\n```", "the reply has 2 JSON objects, so it is not clear which one counts"),
        ("{}", "should_continue: missing"),
        ('{"should_continue": 1}', "should_continue: found 1; input should be a valid boolean"),
        ('{"should_continue": "no"}', 'should_continue: found "no"; input should be a valid boolean'),
        ('{"should_continue": null}', "should_continue: found null; input should be a valid boolean"),
        ('{"should_continue": true}', "planned_tools: missing"),
        ('{"should_continue": true, "planned_tools": {}}', "planned_tools: found {}; input should be a valid list"),
        (GOOD.replace('"S:a"', '""'), 'planned_tools.0.tool: found ""; string should have at least 1 character'),
        (
            GOOD.replace('{"x": 1}', '"x=1"'),
            'planned_tools.0.parameters: found "x=1"; input should be a valid dictionary',
        ),
        (
            GOOD.replace("1", "NaN"),
            'planned_tools.0.parameters: found {"x": NaN}; value error, '
            "Out of range float values are not JSON compliant",
        ),
    ],
)
def test_problems_of_an_invalid_plan_are_reported(reply: str, wrong: str) -> None:
    assert problems(reply) == [wrong]


def test_a_plan_has_at_most_so_many_calls() -> None:
    def of(number: int) -> str:
        return json.dumps({"should_continue": True, "planned_tools": [{"tool": "S:a"}] * number})

    assert len(parse_plan(of(MAX_CALLS)).calls) == 200
    assert "list should have at most 200 items" in problems(of(MAX_CALLS + 1))[0]


def test_a_reply_of_nothing_but_braces_is_no_plan() -> None:
    assert problems('{"a":' * 200_000)[0].startswith("the reply is not JSON")


@pytest.mark.parametrize("levels", [61, 500, 100_000])
def test_parameters_nest_no_deeper_than_can_be_stored(levels: int) -> None:
    reply = GOOD.replace("1", "[" * levels + "]" * levels)
    assert len(problems(reply)) == 1
    assert len(problems(f"So: {reply}")) == 1
    assert len(parse_plan(GOOD.replace("1", "[" * 60 + "]" * 60)).calls) == 1


@pytest.mark.slow
@given(plans, st.sampled_from(["{}", "```json\n{}\n```", "Here it is: {}", "{}\nDone."]))
def test_every_plan_is_read_as_it_was_written(written: dict[str, Any], frame: str) -> None:
    plan = parse_plan(frame.replace("{}", json.dumps(written)))
    assert plan.reasoning == written.get("reasoning", "")
    expected = [(call["tool"], call.get("parameters") or {}) for call in written["planned_tools"]]
    assert [(call.tool, call.parameters) for call in plan.calls] == expected


@pytest.mark.slow
@given(plans, st.sampled_from([False, "false", "FALSE"]))
def test_a_plan_that_stops_has_no_calls(written: dict[str, Any], stop: object) -> None:
    assert parse_plan(json.dumps({**written, "should_continue": stop})).calls == ()


@given(
    st.text()
    | values.map(json.dumps)
    | st.dictionaries(st.sampled_from(["should_continue", "planned_tools"]), values).map(json.dumps)
)
def test_any_reply_is_parsed_to_a_plan_or_a_list_of_problems(text: str) -> None:
    try:
        found: object = parse_plan(text)
    except InvalidReply as error:
        found = error.problems
    assert isinstance(found, Plan) or all(found)


def test_both_languages_say_the_same_things_of_the_same_numbers() -> None:
    def places(text: str) -> set[str | None]:
        try:
            return {name for _, name, _, _ in Formatter().parse(text)} - {None}
        except ValueError:  # the form of a plan, which is not filled in
            return set()

    for field in fields(PlannerWording):
        english, chinese = (getattr(read_planner_wording(language), field.name) for language in ("en", "zh"))
        assert places(english) == places(chinese), field.name
        assert english.count("\n- ") == chinese.count("\n- "), field.name
        assert not english.isascii() or any("\u4e00" <= letter <= "\u9fff" for letter in chinese), field.name
