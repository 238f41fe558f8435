"""The tool loop, against a real endpoint on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest
from runners_support import assistant, make_case, probe, told

from pytest_agentbench.errors import ProviderError, UnavailableError
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.records.case import GivenCall, Message, Model
from pytest_agentbench.records.run import ToolCallEvent, ToolResultEvent
from pytest_agentbench.runners.base import Recorder, RunContext
from pytest_agentbench.runners.probe import FINAL_ANSWER_REQUEST
from pytest_agentbench.tools.base import Tool, ToolContext
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec

FILES = ("write_file", "read_file", "list_files")


def names(context: RunContext) -> list[str]:
    return [getattr(event, "name", None) or event.type for event in context.trace.events]


def test_a_plain_answer() -> None:
    case = make_case(messages=(Message(role="system", content="Be brief."), Message(role="user", content="Hi?")))
    with told(assistant("Hello.")) as (model, requests):
        context, end = probe(case, model, settings={"temperature": 0.5, "timeout_seconds": 9, "top_k": 3})
    assert end is not None
    assert end.status == "success"
    assert end.metadata == {"finish_reason": "stop"}
    assert context.trace.output == "Hello."
    assert names(context) == ["message", "message", "request", "reply", "reply_message", "final_output"]
    assert [e.sequence for e in context.trace.events] == [0, 1, 2, 3, 4, 5]
    assert requests == [
        {
            "model": "told-v1",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}],
            "temperature": 0.5,
            "top_k": 3,
        }
    ]
    assert context.trace.request["parameters"] == {"temperature": 0.5, "top_k": 3}
    assert context.trace.request["timeout_seconds"] == 9
    assert context.trace.provider["model"] == "told-v1"
    assert context.trace.provider["response_ids"] == ["chat-1"]
    assert (context.trace.usage.input_tokens, context.trace.usage.total_tokens) == (10, 15)
    assert context.made_workspace is None


def test_a_conversation_with_calls_and_their_results_is_sent_as_endpoints_take_it() -> None:
    call = GivenCall(id="c7", name="weather", arguments={"city": "Paris"})
    messages = (
        Message(role="user", content="How warm is it?"),
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="21", tool_call_id="c7"),
    )
    with told(assistant("21 degrees.")) as (model, requests):
        probe(make_case(messages=messages), model)
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    assert requests[0]["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c7", "type": "function", "function": function}]},
        {"role": "tool", "content": "21", "tool_call_id": "c7"},
    ]


def test_tools_are_called_and_their_answers_go_back() -> None:
    first = assistant("I write first.", ("write_file", {"path": "a.txt", "content": "42"}))
    second = assistant(None, ("read_file", {"path": "a.txt"}))
    with told(first, second, assistant("It says 42.")) as (model, requests):
        context, end = probe(make_case(tools=FILES), model)
    assert end is not None
    assert end.status == "success"
    assert context.trace.output == "It says 42."
    assert [tool["function"]["name"] for tool in requests[0]["tools"]] == list(FILES)
    assert [m["role"] for m in requests[2]["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert requests[2]["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "42"}
    assert context.trace.usage.total_tokens == 45
    assert context.trace.provider["requests"] == 3
    assert "I write first." in [getattr(event, "content", None) for event in context.trace.events]


def test_calls_run_concurrently_if_the_profile_permits_it_and_stay_in_order() -> None:
    commands = ["mkfifo meet; echo met > meet", "while [ ! -p meet ]; do :; done; cat meet"]
    both = assistant(None, *(("exec_shell", {"command": command}) for command in commands))
    with told(both, assistant("Done.")) as (model, requests):
        context, _ = probe(
            make_case(tools=["exec_shell"]), model, sandbox_spec=lambda: SandboxSpec("local"), parallel_tools="always"
        )
    assert [m["content"] for m in requests[1]["messages"][2:]] == ["[exit code 0]", "met\n[exit code 0]"]
    calls = [e.call_id for e in context.trace.events if isinstance(e, ToolCallEvent)]
    results = [e.call_id for e in context.trace.events if isinstance(e, ToolResultEvent)]
    assert calls == results == ["c1", "c2"]


def test_calls_of_tools_with_a_state_run_in_the_order_given() -> None:
    """A model that writes a file and reads it in one reply means what it says."""
    both = assistant(None, ("exec_shell", {"command": "sleep 0.1; echo 42 > a"}), ("read_file", {"path": "a"}))
    with told(both, assistant("Done.")) as (model, requests):
        context, _ = probe(make_case(tools=["exec_shell", *FILES]), model, sandbox_spec=lambda: SandboxSpec("local"))
    assert [m["content"] for m in requests[1]["messages"][2:]] == ["[exit code 0]", "42\n"]
    done = [e.call_id for e in context.trace.events if isinstance(e, ToolCallEvent | ToolResultEvent)]
    assert done == ["c1", "c1", "c2", "c2"]


@pytest.mark.parametrize(
    ("reads_only", "parallel_tools", "met"),
    [(True, None, True), (True, "never", False), (False, None, False), (False, "always", True)],
)
def test_calls_run_side_by_side_where_all_their_tools_only_read(
    reads_only: bool, parallel_tools: Literal["always", "never"] | None, met: bool
) -> None:
    async def note(arguments: dict[str, Any], context: ToolContext) -> str:
        seen = context.state.setdefault("seen", [])
        seen.append("begun")
        await asyncio.sleep(0)
        seen.append("ended")
        return " ".join(seen)

    tools = {name: Tool(name, "", {"type": "object"}, note, reads_only=reads_only) for name in ("a", "b")}
    with told(assistant(None, ("a", {}), ("b", {})), assistant("Done.")) as (model, requests):
        probe(make_case(tools=tools), model, tools=tools, parallel_tools=parallel_tools)
    assert requests[1]["messages"][3]["content"] == ("begun begun ended ended" if met else "begun ended begun ended")


def test_arguments_that_are_no_object_and_unknown_tools_are_answered() -> None:
    odd = assistant(None, ("read_file", '{"path": "a'), ("read_file", "[1]"), ("rm_rf", {}))
    with told(odd, assistant("Sorry.")) as (model, requests):
        context, end = probe(make_case(tools=FILES), model)
    assert end is not None
    assert end.status == "success"
    answers = [message["content"] for message in requests[1]["messages"][2:]]
    assert "must be one JSON object" in answers[0]
    assert "must be one JSON object" in answers[1]
    assert "unknown tool 'rm_rf'; the tools of this task are: list_files, read_file, write_file" in answers[2]
    calls = [e for e in context.trace.events if isinstance(e, ToolCallEvent)]
    assert [(call.arguments, call.raw) for call in calls] == [(None, '{"path": "a'), (None, "[1]"), ({}, None)]
    assert all(e.is_error for e in context.trace.events if isinstance(e, ToolResultEvent))


def test_max_turns_forces_a_final_answer_without_tools() -> None:
    again = assistant(None, ("list_files", {}))
    with told(again, again, assistant("So be it.")) as (model, requests):
        context, end = probe(make_case(tools=FILES), model, settings={"max_turns": 2})
    assert end is not None
    assert end.metadata == {"finish_reason": "stop", "forced_final_answer": True}
    assert context.trace.output == "So be it."
    assert ["tools" in request for request in requests] == [True, True, False]
    assert requests[2]["messages"][-1] == {"role": "user", "content": FINAL_ANSWER_REQUEST}
    assert names(context).count("request") == 3
    assert "max_turns_reached" in names(context)


def test_a_model_that_never_answers_has_failed() -> None:
    again = assistant(None, ("list_files", {}))
    with told(again, again) as (model, _):
        context, end = probe(make_case(tools=FILES), model, settings={"max_turns": 1})
    assert end is not None
    assert (end.status, end.reason) == ("failed", "max_turns")
    assert end.error is not None
    assert end.error.message == "used its turns"
    assert context.trace.output is None


def test_a_cut_answer_is_kept_and_marked() -> None:
    with told(assistant("It is beca", finish="length")) as (model, _):
        context, end = probe(make_case(), model)
    assert end is not None
    assert (end.status, end.metadata["finish_reason"]) == ("success", "length")
    assert context.trace.output == "It is beca"


def test_a_filtered_answer_is_a_failed_run() -> None:
    with told(assistant(None, finish="content_filter")) as (model, _):
        context, end = probe(make_case(), model)
    assert end is not None
    assert (end.status, end.reason) == ("failed", "filtered")
    assert end.error is not None
    assert end.error.message == "the provider's filter withheld the answer"
    assert context.trace.output is None


def test_retries_are_in_the_trace_and_never_repeat_a_tool() -> None:
    write = assistant(None, ("write_file", {"path": "a", "content": "b"}))
    with told(write, 503, assistant("Done.")) as (model, requests):
        context, _ = probe(make_case(tools=FILES), model)
    assert names(context).count("retry") == 1
    assert names(context).count("write_file") == 2  # the call and its result
    assert requests[1] == requests[2]


def test_a_provider_error_leaves_the_trace_so_far() -> None:
    case, trace = make_case(tools=FILES), Recorder()
    with told(assistant(None, ("list_files", {})), 401) as (model, _), pytest.raises(ProviderError, match="401"):
        probe(case, model, trace=trace)
    assert [event.type for event in trace.events][-3:] == ["tool_call", "tool_result", "runner"]
    assert trace.usage.total_tokens == 15


@pytest.mark.slow
def test_a_run_that_is_cut_off_keeps_its_trace_and_finished_tools() -> None:
    calls = [("list_files", {}), ("exec_shell", {"command": "sleep 60"})]
    with told(assistant(None, *calls)) as (model, _):
        context, end = probe(
            make_case(tools=["list_files", "exec_shell"]), model, sandbox_spec=lambda: SandboxSpec("local"), seconds=0.5
        )
    assert end is None
    assert [e.name for e in context.trace.events if isinstance(e, ToolCallEvent)] == ["list_files", "exec_shell"]
    assert [e.content for e in context.trace.events if isinstance(e, ToolResultEvent)] == ["(empty)"]
    assert context.trace.usage.total_tokens == 15


def test_a_probe_without_its_sandbox_sends_no_request() -> None:
    with told() as (model, requests), pytest.raises(UnavailableError, match="no sandbox"):
        probe(make_case(tools=["exec_shell"]), model)
    assert requests == []


def test_a_scripted_model_uses_tools(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text(
        "schema_version: 1\n"
        "replies:\n"
        "  - steps:\n"
        "      - tool_calls: [{name: write_file, arguments: {path: n.txt, content: '7'}}]\n"
        "      - tool_calls: [{name: read_file, arguments: {path: n.txt}}]\n"
        "      - content: Seven.\n"
    )
    case = make_case(tmp_path, tools=FILES)
    scripts = Scripts()
    scripts.load_beside(case)
    model = Model(model_id="demo", requested_model="demo", scripted=True, api_key_env=None)
    context, end = probe(case, model, scripts=scripts)
    assert end is not None
    assert end.status == "success"
    assert context.trace.output == "Seven."
    assert [e.content for e in context.trace.events if isinstance(e, ToolResultEvent)][1] == "7"


FUNCTIONS = [{"name": "geo.area", "description": "An area.", "parameters": {"type": "dict", "properties": {}}}]


def test_the_first_reply_that_calls_a_declared_function_ends_the_run():
    case = make_case(context={"llm_probe": {"functions": FUNCTIONS}})

    def call(request):
        return assistant("Let me see.", (request["tools"][0]["function"]["name"], {"base": 1}), ("made_up", "{"))

    with told(call) as (model, requests):
        context, end = probe(case, model)
    (tool,) = requests[0]["tools"]
    assert tool["function"]["description"] == "An area."
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}
    assert (end.status, end.reason, len(requests)) == ("success", "answered", 1)
    calls = [event for event in context.trace.events if event.type == "tool_call"]
    assert [(each.name, each.arguments, each.raw) for each in calls] == [
        ("geo.area", {"base": 1}, None),
        ("made_up", None, "{"),
    ]
    assert not [event for event in context.trace.events if event.type == "tool_result"]


def test_an_answer_without_a_call_of_a_declared_function_is_an_answer():
    with told(assistant("There is none.")) as (model, _):
        context, end = probe(make_case(context={"llm_probe": {"functions": FUNCTIONS}}), model)
    assert end.status == "success"
    assert [event.content for event in context.trace.events if event.type == "final_output"] == ["There is none."]
