"""Checks about one turn of a conversation, any turn or each turn; and the turns of a run's trace."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.run import run_checks
from pytest_agentbench.config.profiles import SecurityPolicy
from pytest_agentbench.metrics.registry import METRICS
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import CheckResult
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.records.run_turns import find_unreached, limit_to_turn, split_turns


def call(name: str, turn: int | None, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": name, "name": name, "arguments": arguments, "turn": turn}


def say(role: str, content: str, turn: int | None) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, "turn": turn}


SYSTEM = say("system", "You are a support agent.", None)
FIRST = [
    say("user", "Cancel order 1042.", 1),
    say("assistant", "Let me see.", 1),
    call("find_order", 1, id="1042"),
    call("cancel", 1, id="1042"),
    say("assistant", "Order 1042 is cancelled.", 1),
]
SECOND = [
    say("user", "Then 1043 too.", 2),
    {"type": "runner", "name": "request", "data": {}, "turn": 2},
    call("find_order", 2, id="1043"),
    say("assistant", "1043 was sent already.", 2),
]
FINAL = {"type": "final_output", "content": "1043 was sent already.", "turn": 2}
TRACE = [SYSTEM, *FIRST, *SECOND, FINAL]


def make_run(trace: list[dict[str, Any]], **fields: Any) -> RunArtifact:
    """Return a run of ten seconds with an event a second."""
    return RunArtifact.model_validate(
        {
            "run_id": "r",
            "case_id": "orders",
            "runner_type": "llm_probe",
            "model": {},
            "repetition": 1,
            "status": "success",
            "started_at": datetime.now(UTC),
            "duration_seconds": 20.0,
            "trace": [{**event, "sequence": at, "at": float(at)} for at, event in enumerate(trace)],
            **fields,
        }
    )


def decide(run: RunArtifact, turn: Any, turns: int = 2, **declarative: Any) -> CheckResult:
    case = Case.model_validate(
        {
            "case_id": "orders",
            "title": "Orders",
            "path": Path("/cases/test.yaml"),
            "runner": {"type": "llm_probe"},
            "turns": [{"role": "user", "content": "..."}] * turns,
            "checks": [{"check_id": "c", "turn": turn, "declarative": declarative}],
        }
    )
    context = CheckContext(case, run, None, METRICS)
    [result] = asyncio.run(run_checks(context, SecurityPolicy()))
    return result


CANCELLED = {"kind": "contains", "text": "cancelled"}
SENT = {"kind": "contains", "text": "sent"}


@pytest.mark.parametrize(
    ("turn", "declarative", "outcome", "message"),
    [
        (1, CANCELLED, "passed", "turn 1: the final output contains the text"),
        (2, CANCELLED, "failed", "turn 2: the final output does not contain the text"),
        (-1, SENT, "passed", "turn 2: the final output contains the text"),
        (-1, CANCELLED, "failed", "turn 2: the final output does not contain the text"),
        ("any", CANCELLED, "passed", "turn 1: the final output contains the text"),
        ("any", SENT, "passed", "turn 2: the final output contains the text"),
        (
            "any",
            {"kind": "contains", "text": "Paris"},
            "failed",
            "none of 2 turns passes: turn 1: the final output does not contain the text; turn 2: the final output does "
            "not contain the text",
        ),
        (
            "each",
            {"kind": "contains", "text": "104"},
            "passed",
            "2 turns passed: turn 1: the final output contains the text; turn 2: the final output contains the text",
        ),
        ("each", SENT, "failed", "1 of 2 turns failed: turn 1: the final output does not contain the text"),
        (1, {"kind": "tool_called", "name": "cancel"}, "passed", None),
        (2, {"kind": "tool_called", "name": "cancel"}, "failed", None),
        ("each", {"kind": "tool_called", "name": "find_order"}, "passed", None),
        ("any", {"kind": "tool_not_called", "name": "cancel"}, "passed", None),
        (1, {"kind": "tool_call_count", "count": 2}, "passed", None),
        (2, {"kind": "tool_call_count", "count": 1}, "passed", None),
        (2, {"kind": "max_turns", "count": 1}, "passed", "turn 2: the model was asked 1 times"),
        (1, {"kind": "max_seconds", "seconds": 4}, "passed", "turn 1: the run took 4 s"),
        (2, {"kind": "max_seconds", "seconds": 3.9}, "failed", "turn 2: the run took 4 s"),
        (1, {"kind": "not", "check": SENT}, "passed", None),
        # One turn has to have both
        ("any", {"kind": "all_of", "checks": [CANCELLED, SENT]}, "failed", None),
    ],
)
def test_a_check_looks_at_its_turn(turn, declarative, outcome, message):
    result = decide(make_run(TRACE), turn, **declarative)
    assert result.outcome == outcome, result.message
    assert message is None or result.message == message


def test_without_a_turn_a_check_looks_at_the_last_answer_and_all_calls():
    run = make_run(TRACE)
    assert decide(run, None, **CANCELLED).outcome == "failed"
    assert decide(run, None, **SENT).message == "the final output contains the text"
    assert decide(run, None, kind="tool_call_count", count=3).outcome == "passed"


@pytest.mark.parametrize("turn", [2, -1, "each"])
def test_a_turn_that_was_not_reached_fails(turn):
    run = make_run([SYSTEM, *FIRST[:3]], status="timed_out", error={"code": "run_timeout", "message": "too long"})
    result = decide(run, turn, kind="tool_not_called", name="refund")
    assert result.outcome == "failed"
    assert result.message.endswith("turn 2 was not reached")
    # The turn that was cut has no answer, but has calls; it lasted until the run ended
    assert decide(run, 1, kind="tool_called", name="find_order").outcome == "passed"
    assert decide(run, 1, kind="contains", text="see").message == "turn 1: there is no final output"
    assert decide(run, 1, kind="max_seconds", seconds=18).outcome == "failed"
    assert decide(run, "any", kind="tool_called", name="find_order").outcome == "passed"
    nothing = make_run([SYSTEM], status="failed", error={"code": "x", "message": "x"})
    assert decide(nothing, "any", **SENT).message == "turn 1 was not reached"


def test_a_later_turn_that_was_cut_lasted_until_the_end():
    run = make_run([SYSTEM, *FIRST, *SECOND[:2]], status="timed_out", error={"code": "run_timeout", "message": "late"})
    assert [turn.seconds for turn in split_turns(run)] == [4.0, 14.0]
    assert [turn.answer for turn in split_turns(run)] == ["Order 1042 is cancelled.", None]
    assert find_unreached(run, 4) == (3, 4)
    assert find_unreached(make_run(TRACE), 2) == ()
    # The one run failed before its first turn; of the other, such as a prediction, no turn is recorded
    assert find_unreached(make_run([SYSTEM], status="failed", error={"code": "x", "message": "x"}), 2) == (1, 2)
    assert find_unreached(make_run([{**FINAL, "turn": None}]), 2) == ()


def test_a_turn_before_a_limit_has_its_answer():
    error = {"code": "conversation_limit", "message": "the conversation reached max_turns (1) before turn 2"}
    run = make_run([SYSTEM, *FIRST], status="failed", error=error)
    assert decide(run, 1, **CANCELLED).outcome == "passed"
    assert decide(run, 1, kind="max_seconds", seconds=4).outcome == "passed"
    assert decide(run, 2, **SENT).message == "turn 2 was not reached"


def test_an_error_of_a_turn_is_an_error_unless_another_turn_decides():
    broken = {"kind": "json_schema", "schema": {"$ref": "https://example.org/none"}}
    run = make_run([say("user", "a", 1), say("assistant", "{}", 1), say("user", "b", 2), FINAL])
    assert decide(run, 1, **broken).outcome == "error"
    assert decide(run, "each", **broken).outcome == "failed"  # the second answer is no JSON
    assert decide(run, "any", **broken).outcome == "error"


def test_without_fixed_turns_those_that_the_run_reached_count():
    run = make_run(TRACE)
    assert decide(run, -1, turns=0, **SENT).message == "turn 2: the final output contains the text"
    assert decide(run, "each", turns=0, **SENT).message.startswith("1 of 2 turns failed: turn 1: ")
    nothing = make_run([SYSTEM], status="failed", error={"code": "x", "message": "x"})
    for turn in (-1, "each"):
        assert decide(nothing, turn, turns=0, **SENT).message == "turn 1 was not reached"


def test_turns_of_a_prediction_are_unknown():
    run = make_run([{**FINAL, "turn": None}], runner_type="predictions")
    result = decide(run, -1, **SENT)
    assert (result.outcome, "has only the last answer" in result.message) == ("error", True)


def test_a_run_that_was_stored_before_events_had_turns_has_them_all_the_same():
    run = make_run([{**event, "turn": None} for event in TRACE])
    turns = split_turns(run)
    assert [turn.answer for turn in turns] == ["Order 1042 is cancelled.", "1043 was sent already."]
    assert decide(run, 1, kind="tool_called", name="cancel").outcome == "passed"


numbered = st.lists(st.sampled_from(["user", "assistant", "call"]), min_size=1, max_size=6)


@given(st.lists(numbered, max_size=5), st.booleans())
def test_turns_divide_a_trace(shapes, succeeded):
    trace = [SYSTEM]
    for number, kinds in enumerate(shapes, start=1):
        for at, kind in enumerate(kinds):
            name = f"{number}.{at}"
            trace.append(call(name, number) if kind == "call" else say(kind, name, number))
    status = {} if succeeded else {"status": "failed", "error": {"code": "x", "message": "x"}}
    run = make_run(trace, **status)
    turns = split_turns(run)
    assert [turn.number for turn in turns] == [*range(1, len(shapes) + 1)]
    assert [event for turn in turns for event in turn.events] == [*run.trace[1:]]
    assert all(turn.seconds >= 0 for turn in turns)
    for turn, kinds in zip(turns if succeeded else turns[:-1], shapes, strict=False):
        spoken = [at for at, kind in enumerate(kinds) if kind == "assistant"]
        assert turn.answer == (f"{turn.number}.{spoken[-1]}" if spoken else None)
        view = limit_to_turn(run, turn)
        assert view.final_output == turn.answer
        assert view.tool_calls == tuple(event for event in run.tool_calls if event.turn == turn.number)
