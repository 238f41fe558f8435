"""A user's own callable as a runner, and what its return value comes to."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from runners_support import make_case
from support.cpu_seconds import slowness

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import ToolCallEvent, ToolResultEvent, Usage
from pytest_agentbench.runners.base import Recorder, ReportedCall, RunContext, RunOutput, conclude
from pytest_agentbench.runners.subjects import adapt
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

CASE = make_case(text="ping")


def ask(agent: Callable[..., Any], **fields: Any) -> Any:
    async def run() -> Any:
        sandboxes = Sandboxes(Workspaces())
        return await adapt(agent)(CASE, RunContext(CASE, lambda: sandboxes, **fields))

    return asyncio.run(run())


async def coroutine(case: Case) -> str:
    return case.messages[0].content


def plain(case: Case, context: RunContext) -> str:
    return f"{case.messages[0].content} {context.repetition}"


class Sync:
    def __call__(self, case: Case) -> str:
        return case.messages[0].content

    async def method(self, case: Case, context: RunContext) -> str:
        return f"{case.messages[0].content} {context.repetition}"


class Async:
    async def __call__(self, case: Case, context: RunContext) -> str:
        return f"{case.messages[0].content} {context.repetition}"


def with_options(case: Case, retries: int = 3) -> str:
    return f"{case.messages[0].content} {retries}"


def keyword_only(case: Case, *, context: RunContext) -> str:
    return plain(case, context)


@functools.wraps(coroutine)
def decorated(*args: Any, **kwargs: Any) -> Any:
    return coroutine(*args, **kwargs)


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        (lambda case: case.messages[0].content, "ping"),
        (plain, "ping 2"),
        (coroutine, "ping"),
        (Sync(), "ping"),
        (Sync().method, "ping 2"),
        (Async(), "ping 2"),
        (functools.partial(plain), "ping 2"),
        (functools.partial(Async()), "ping 2"),
        (functools.partial(with_options, retries=5), "ping 5"),
        (with_options, "ping 3"),
        (keyword_only, "ping 2"),
        (decorated, "ping"),
        (lambda *args: args[0].messages[0].content, "ping"),
        (lambda case: coroutine(case), "ping"),
    ],
)
def test_every_shape_of_callable(agent: Callable[..., Any], answer: str) -> None:
    assert ask(agent, repetition=2) == answer


def test_a_builtin_without_a_signature_gets_the_case() -> None:
    assert ask(type) is Case


@pytest.mark.parametrize("agent", [lambda: "x", lambda a, b, c: "x", lambda case, *, key: "x", "text", None])
def test_other_shapes_are_refused_at_once(agent: Any) -> None:
    with pytest.raises(ConfigError, match=r"an agent takes \(case\) or \(case, context\)"):
        adapt(agent)


def test_plain_functions_run_off_the_loop_and_coroutines_on_it() -> None:
    here = threading.get_ident()

    async def on_loop(case: Case) -> str:
        return str(threading.get_ident() == here)

    assert ask(lambda case: str(threading.get_ident() == here)) == "False"
    assert ask(on_loop) == "True"


def test_exceptions_go_through() -> None:
    def agent(case: Case) -> str:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        ask(agent)


def test_the_workspace_is_made_when_an_agent_asks_for_it() -> None:
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)
    context = RunContext(CASE, lambda: sandboxes)
    assert context.made_workspace is None
    assert context.workspace is context.workspace
    assert context.workspace.path.is_dir()
    workspaces.close()


def test_text_is_the_final_output() -> None:
    trace = Recorder()
    assert conclude("answer", trace).status == "success"
    assert trace.output == "answer"


def test_none_keeps_what_the_agent_recorded_itself() -> None:
    trace = Recorder()
    trace.final_output("mine")
    assert conclude(None, trace).status == "success"
    assert conclude("mine", trace).status == "success"
    assert [event.type for event in trace.events] == ["final_output"]
    empty = Recorder()
    assert conclude(None, empty).status == "success"
    assert empty.output is None


def test_a_run_output_brings_calls_usage_and_metadata() -> None:
    trace = Recorder()
    trace.add_usage(Usage(input_tokens=1, output_tokens=2, total_tokens=3, cost_usd=0.5))
    calls = (ReportedCall(name="search", arguments={"q": "owls"}, result="found"), ReportedCall(name="stop"))
    usage = Usage(input_tokens=10, output_tokens=20, total_tokens=30)
    end = conclude(RunOutput(output="done", tool_calls=calls, usage=usage, metadata={"steps": 2}), trace)
    assert (end.status, end.error, end.metadata) == ("success", None, {"steps": 2})
    assert [type(event) for event in trace.events[:3]] == [ToolCallEvent, ToolResultEvent, ToolCallEvent]
    assert trace.output == "done"
    assert trace.usage.total_tokens == 33
    assert trace.usage.cost_usd is None  # unknown and known is unknown


def test_a_reported_call_has_a_result_or_an_error():
    with pytest.raises(ValidationError, match="found a result and an error, expected one of them"):
        ReportedCall(name="search", result="found", error="it timed out")


def test_a_reported_failure_is_a_failed_run() -> None:
    end = conclude(RunOutput(output=None, status="failed", error="gave up"), Recorder())
    assert end.status == "failed"
    assert end.error is not None
    assert (end.error.code, end.error.message) == ("agent_failed", "gave up")


@pytest.mark.parametrize("returned", [3, b"x", {"output": "x"}, ["x"]])
def test_anything_else_breaks_the_contract(returned: object) -> None:
    end = conclude(returned, Recorder())
    assert end.status == "invalid"
    assert end.error is not None
    assert end.error.message == f"the runner returned {type(returned).__name__}, expected str, RunOutput or None"


def test_text_that_no_file_can_hold_is_made_so() -> None:
    trace = Recorder()
    trace.tool_call("1", "x", {"a": ["\ud800", {"\udfff": "é"}]}, None)
    trace.event("odd", value="\ud800")
    conclude("a\ud800b", trace)
    assert trace.output == "a?b"
    assert '"?":"é"' in trace.events[0].model_dump_json()


def test_data_of_an_event_may_be_called_name() -> None:
    trace = Recorder()
    trace.event("step", name="plan", self=1)
    [event] = trace.events
    assert (event.name, event.data) == ("step", {"name": "plan", "self": 1})


def test_deeply_nested_values_are_cut_off() -> None:
    """JSON of 200 levels is written, but never read back; of 255 it is not even written."""
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    trace = Recorder()
    trace.tool_call("1", "x", {"a": deep}, None)
    end = conclude(RunOutput(output="x", metadata={"a": {"b": deep}}), trace)
    for document in (trace.events[0].model_dump_json(), json.dumps(end.metadata)):
        assert '"[nested deeper than 64]"' in document
        assert 60 <= document.count("[") <= 70


def test_threads_record_one_after_the_other() -> None:
    trace = Recorder()

    def record() -> None:
        for number in range(200):
            trace.event("step", number=number)
            trace.add_usage(Usage(input_tokens=1))

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.sequence for event in trace.events] == list(range(800))
    assert trace.usage.input_tokens == 800


def test_an_async_agent_costs_next_to_nothing() -> None:
    async def agent(case: Case) -> str:
        return "x"

    async def seconds() -> float:
        runner, workspaces = adapt(agent), Workspaces()
        began = time.process_time()
        for _ in range(1000):
            context = RunContext(CASE, lambda: Sandboxes(workspaces))
            conclude(await runner(CASE, context), context.trace)
        return (time.process_time() - began) / 1000

    assert min(asyncio.run(seconds()) for _ in range(5)) < 30e-6 * slowness()
