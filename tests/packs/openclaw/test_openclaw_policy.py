"""The peculiarities of OpenClaw's requests, in the policy of a run's gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest
from runners.gateway.gateway_support import reply, result, shown, user

from pytest_agentbench.packs.openclaw.policy import make_policy
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import RunnerEvent, ToolCallEvent, ToolResultEvent
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.gateway.trace import ToolTrace, restore_case_words

POLICY = make_policy(Model(model_id="m", requested_model="m-1"))


def remove_stamps(text: str) -> Any:
    return POLICY.make_alike({"messages": [user(text)]})["messages"][0]["content"]


def test_a_note_of_openclaws_own_is_no_turn_of_the_case():
    internal = user("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nRevise it.")
    messages = [user("[Sun 2026-11-22 09:15 UTC] Write it."), internal]
    assert restore_case_words(messages, ["Write it.", "Revise it."], POLICY.internal) == [user("Write it.")]


def test_the_runs_model_has_openclaws_name_too():
    assert POLICY.names == ("agentbench/m-1",)


@pytest.mark.parametrize(
    ("content", "is_error"),
    [
        ('{\n  "status": "error",\n  "tool": "read",\n  "error": "ENOENT: no such file"\n}', True),
        ('{"status": "error", "tool": "write", "error": "x"}', False),
        ('{"status": "error", "tool": "read", "error": "x", "and": "more"}', False),
        ('{"status": "ok"}', False),
        ("Tool read not found", True),
        ('Validation failed for tool "read":\n  - path: must be string', True),
        ('Validation failed for tool "write":\n  - path: must be string', False),
        ("{", False),
        ("Error: no such file", False),
    ],
)
def test_a_result_is_an_error_where_it_is_plainly_openclaws_own_form(content, is_error):
    tools, history = ToolTrace(trace := Recorder(), POLICY), [user("Go.")]
    tools.replied(history, reply(("a", "read", {})))
    tools.requested([*history, shown(("a", "read", {})), result("a", content)])
    assert [event.is_error for event in trace.events if isinstance(event, ToolResultEvent)] == [is_error]


@pytest.mark.parametrize("tool_id", ["web_fetch", "openclaw:core:web_fetch", " web_fetch "])
def test_a_call_through_openclaws_wrapper_is_one_of_the_tool_that_it_names(tool_id):
    tools, history = ToolTrace(trace := Recorder(), POLICY), [user("Go.")]
    call = ("a", "tool_call", {"id": tool_id, "args": {"url": "http://x"}})
    tools.replied(history, reply(call))
    failed = json.dumps({"status": "error", "tool": "tool_call", "error": "no network"}, indent=2)
    tools.requested([*history, shown(call), result("a", failed)])
    assert [(e.name, e.arguments) for e in trace.events if isinstance(e, ToolCallEvent)] == [
        ("web_fetch", {"url": "http://x"})
    ]
    assert [(e.name, e.is_error) for e in trace.events if isinstance(e, ToolResultEvent)] == [("web_fetch", True)]
    [note] = [event for event in trace.events if isinstance(event, RunnerEvent)]
    assert (note.name, note.data) == ("wrapped_call", {"call_id": "a", "by": "tool_call", "id": tool_id})


@pytest.mark.parametrize(
    "arguments",
    [{}, {"id": ""}, {"id": 7}, {"id": "openclaw:core:"}, {"id": "x", "args": "text"}, {"id": "x", "url": "http://x"}],
)
def test_a_wrapper_that_names_no_tool_plainly_is_a_call_of_itself(arguments):
    tools = ToolTrace(trace := Recorder(), POLICY)
    tools.replied([user("Go.")], reply(("a", "tool_call", arguments)))
    assert [(e.name, e.arguments) for e in trace.events] == [("tool_call", arguments)]


def test_the_time_and_the_machine_are_no_part_of_what_cassettes_compare():
    runtime = "Runtime: agent=a | sessionId=s1 | host={} | os={} | node=v24.19.0 | model=m"
    first = "[Sun 2026-11-22 09:15 UTC] Write it.\n\n" + runtime.format("vm", "Linux 6.18.44 (x64)")
    second = "[Mon 2027-03-01 23:59 Europe/Berlin] Write it.\n\n" + runtime.format("0a1b2c", "Linux 5.10.1-x (x64)")
    assert remove_stamps(first) == remove_stamps(second)
    assert "node=v24.19.0" in remove_stamps(first)
    assert remove_stamps("## Temporal Context\nCurrent date: 2026-11-22\n") == remove_stamps(
        "## Temporal Context\nCurrent date: 2027-01-01\n"
    )


@pytest.mark.parametrize("text", ["It was [Sun 2026-11-22 09:15 UTC] then.", "The Current date: 2026-11-22 matters."])
def test_text_similar_to_a_stamp_is_not_removed(text):
    assert remove_stamps(text) == text
