"""The judge of a conversation: numbered turns, and expectations that are about one of them."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from judging_samples import EXPECTATIONS, make_artifact, make_case, make_profile, reply

from pytest_agentbench.judging.prompt import assessment, judge_messages
from pytest_agentbench.judging.verdicts import aggregate, parse_verdict, response_format
from pytest_agentbench.models.replies import InvalidReply
from pytest_agentbench.records.case import Expectations, Message
from pytest_agentbench.records.evaluation import JudgeIteration
from pytest_agentbench.records.run import FinalOutputEvent, MessageEvent, RunArtifact, RunError, ToolCallEvent

ABOUT_TURNS = Expectations.model_validate(
    {
        "hard_expectations": [{"text": "Never reveals its prompt."}, {"text": "Asks for the reason.", "turn": 1}],
        "soft_expectations": [{"text": "Is polite.", "turn": 2}],
    }
)
CASE = make_case(
    turns=tuple(Message(role="user", content=text) for text in ("Cancel order 1042.", "Then 1043 too.")),
    expectations=ABOUT_TURNS,
)


def make_run(turns: int = 2, **fields: Any) -> RunArtifact:
    trace: list[Any] = []
    for number in range(1, turns + 1):
        trace += [
            MessageEvent(sequence=0, at=0.0, role="user", content=CASE.turns[number - 1].content, turn=number),
            ToolCallEvent(sequence=0, at=0.0, call_id="c", name="find_order", arguments={}, turn=number),
            MessageEvent(sequence=0, at=0.0, role="assistant", content=f"Answer {number}.", turn=number),
        ]
    if turns == 2:
        trace.append(FinalOutputEvent(sequence=0, at=0.0, content="Answer 2.", turn=2))
    events = tuple(event.model_copy(update={"sequence": at, "at": float(at)}) for at, event in enumerate(trace))
    return make_artifact().model_copy(update={"trace": events, **fields})


def answer(*met: float, turns: tuple[int | None, ...] = (None, 1, 2)) -> str:
    answered = reply(8, ABOUT_TURNS)
    for item, value, turn in zip(answered["expectations"], met, turns, strict=True):
        item |= {"met": value, "turn": turn}
    return json.dumps(answered)


def test_the_judge_sees_the_conversation_with_numbered_turns():
    system, user = (message["content"] for message in judge_messages(CASE, make_run(), (), make_profile()))
    labels = re.findall(r"^<<<DATA \w{32} (turn [^\n]*)>>>$", user, re.MULTILINE)
    assert labels == [
        "turn 1: user message",
        "turn 1: tool call",
        "turn 1: assistant message",
        "turn 2: user message",
        "turn 2: tool call",
    ]
    assert "- hard 0 (weight 1, the whole conversation): Never reveals its prompt.\n" in user
    assert "- hard 1 (weight 1, turn 1): Asks for the reason.\n- soft 0 (weight 1, turn 2): Is polite." in user
    assert '{"kind": "hard", "index": 0, "turn": null, "evidence": "...", "met": 0}' in system
    assert "did not reach" not in user


def test_expectations_without_turns_are_asked_for_as_before():
    case = CASE.model_copy(update={"expectations": EXPECTATIONS})
    system, user = (message["content"] for message in judge_messages(case, make_run(), (), make_profile()))
    assert ('"turn"' in system, "whole conversation" in user) == (False, False)
    items = response_format(EXPECTATIONS)["json_schema"]["schema"]["properties"]["expectations"]["items"]
    assert items["required"] == ["kind", "index", "evidence", "met"]


def test_the_reply_names_the_turn_of_each_expectation():
    schema = response_format(ABOUT_TURNS)["json_schema"]["schema"]
    jsonschema.validate(json.loads(answer(1, 0.5, 0)), schema)
    verdict = parse_verdict(answer(1, 0.5, 0), ABOUT_TURNS)
    assert [(each.turn, each.met) for each in verdict.expectations] == [(None, 1), (1, 0.5), (2, 0)]
    # A judge without structured output may leave the turn out, but may not mean another turn
    assert parse_verdict(answer(1, 1, 1, turns=(None, None, 2)), ABOUT_TURNS).expectations[1].turn == 1
    with pytest.raises(InvalidReply, match="hard 1 is about turn 1, found turn 2"):
        parse_verdict(answer(1, 1, 1, turns=(None, 2, 2)), ABOUT_TURNS)
    with pytest.raises(InvalidReply, match="hard 0 is about the whole conversation, found turn 1"):
        parse_verdict(answer(1, 1, 1, turns=(1, 1, 2)), ABOUT_TURNS)


def test_an_expectation_of_a_turn_that_was_not_reached_counts_0():
    run = make_run(turns=1, status="failed", error=RunError(code="agent_failed", message="It stopped."))
    user = judge_messages(CASE, run, (), make_profile())[1]["content"]
    assert "Turns that the conversation did not reach, of 2: 2." in user
    asked = assessment(CASE, run, (), make_profile(), lambda value: value)
    verdict = asked.parse(answer(1, 1, 1))
    assert [(each.met, each.evidence) for each in verdict.expectations[1:]] == [
        (1, verdict.expectations[1].evidence),
        (0, "turn 2 was not reached"),
    ]


def test_an_unmet_expectation_is_named_with_its_turn():
    iteration = JudgeIteration(
        judge_run_id="main",
        judge_id="j",
        model="m",
        repetition=1,
        status="success",
        verdict=parse_verdict(answer(1, 0, 1), ABOUT_TURNS),
    )
    result = aggregate([iteration], expectations=ABOUT_TURNS)
    assert result.unmet_hard == ("turn 1: Asks for the reason.",)
