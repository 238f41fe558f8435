from __future__ import annotations

import pytest

from pytest_agentbench.records.run import MessageEvent, ToolCallEvent, ToolResultEvent
from pytest_agentbench.tools.base import Tool
from pytest_agentbench.tools.toolbox import annotate_calls


async def unused(arguments, context):
    raise AssertionError("nothing is called")


def tool(name, **parameters):
    return Tool(name, "", parameters, unused)


ADD = tool("Calc:add", type="object", properties={"a": {"type": "number"}}, required=["a"])
CLOCK = tool("Clock:now", type="object")
BROKEN = tool("Odd:broken", **{"$ref": "https://127.0.0.1/schema"})


def call(name, arguments, raw=None, call_id="1"):
    return ToolCallEvent(sequence=0, at=0.0, call_id=call_id, name=name, arguments=arguments, raw=raw)


def judged(event, tools=(ADD, CLOCK, BROKEN), warnings=None):
    [found] = annotate_calls([event], tools, (warnings if warnings is not None else []).append)
    return found.name, found.offered, found.schema_valid


@pytest.mark.parametrize(
    ("event", "offered", "schema_valid"),
    [
        (call("Calc:add", {"a": 1}), True, True),
        (call("Calc:add", {"a": "1"}), True, False),
        (call("Calc:add", {}), True, False),
        (call("Clock:now", {}), True, True),
        (call("Clock:now", None), True, True),
        (call("Clock:now", None, "  "), True, True),
        (call("Calc:add", None, ""), True, False),
        (call("Clock:now", None, "[1]"), True, False),
        (call("Clock:now", None, "null"), True, False),
        (call("Calc:subtract", {"a": 1}), False, None),
        (call("add", {"a": 1}), False, None),
        (call("Odd:broken", {"a": 1}), True, None),
        (call("Odd:broken", None, "[1]"), True, None),
    ],
)
def test_a_call_says_whether_there_was_such_a_tool_and_its_arguments_fit(event, offered, schema_valid):
    assert judged(event) == (event.name, offered, schema_valid)


def test_an_agent_may_report_calls_by_the_names_that_providers_see():
    events = [
        call("Calc__add", {"a": 1}),
        ToolResultEvent(sequence=1, at=0.1, call_id="1", name="Calc__add", content="1"),
        MessageEvent(sequence=2, at=0.2, role="assistant", content="Calc__add"),
    ]
    made = annotate_calls(events, [ADD], lambda text: None)
    assert [getattr(event, "name", None) for event in made] == ["Calc:add", "Calc:add", None]
    assert (made[0].offered, made[0].schema_valid) == (True, True)
    assert made[2] == events[2]
    assert [event.sequence for event in made] == [0, 1, 2]


def test_an_invalid_schema_is_reported_with_its_tool_and_the_reason():
    warnings = []
    judged(call("Odd:broken", {}), warnings=warnings)
    assert warnings == [
        "Odd:broken: its calls are not scored by its input schema: "
        "$ref https://127.0.0.1/schema is not in it, and nothing is fetched"
    ]
