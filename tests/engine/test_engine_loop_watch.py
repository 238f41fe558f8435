"""The watch of the event loop names the user's code that blocks it, also if that code is installed as a package."""

from __future__ import annotations

import asyncio
import os
import sysconfig
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from pytest_agentbench.engine import user_code
from pytest_agentbench.engine.running import run_until_end
from pytest_agentbench.engine.user_code import LoopWatch
from pytest_agentbench.metrics.registry import MetricContext, measure_async
from pytest_agentbench.records.case import Case, MetricSpec
from pytest_agentbench.runners.base import RunContext
from pytest_agentbench.runners.subjects import adapt
from pytest_agentbench.tools.base import Tool
from pytest_agentbench.tools.toolbox import Toolbox

HERE = os.path.dirname(__file__)
INSTALLED = sysconfig.get_path("purelib")
SOURCE = """
async def agent(case):
    blocked.set()
    freed.wait(30)
    return "Paris"

def plain_agent(case):
    return agent(case)

async def tool(arguments, context):
    return await agent(None)

async def metric(reference, output, *, context):
    await agent(None)
    return 1.0
"""


class Blocking:
    """Code that blocks the loop until it is freed, in a file of a folder."""

    def __init__(self, folder: str) -> None:
        self.blocked, self.freed = threading.Event(), threading.Event()
        self.path = os.path.join(folder, "blocking_agent.py")
        names: dict[str, Any] = {"__name__": "blocking_agent", "blocked": self.blocked, "freed": self.freed}
        # What the watch knows of a function is the file that its code names: nothing has to be installed
        exec(compile(SOURCE, self.path, "exec"), names)
        self.code = SimpleNamespace(**names)


def run_agent(agent: Callable[..., Any]) -> Awaitable[Any]:
    context = RunContext(case=cast(Case, None), open_sandboxes=lambda: pytest.fail("it needs no sandbox"))
    return run_until_end(adapt(agent), context, None, None)


def call_tool(function: Callable[..., Any]) -> Awaitable[Any]:
    tool = Tool(name="look", description="", parameters={"type": "object"}, call=function)
    return Toolbox([tool], cast(Any, None)).call("look", {})


def measure(function: Callable[..., Any]) -> Awaitable[Any]:
    context = MetricContext(case_id="q", question="", client=cast(Any, None), redactor=cast(Any, None))
    return measure_async(MetricSpec(name="own"), "a", "b", {"own": function}, context)


CALLS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "an async agent": lambda code: run_agent(code.agent),
    "a function that returns a coroutine": lambda code: run_agent(code.plain_agent),
    "a tool": lambda code: call_tool(code.tool),
    "a metric": lambda code: measure(code.metric),
}


def warnings_of(blocking: Blocking, call: Callable[[Any], Awaitable[Any]]) -> list[str]:
    """Return what the watch warns of while the call blocks the loop.

    No frame of this file may lie below the call: the watch names the outermost frame of a user's code.
    """
    loop, warnings = asyncio.new_event_loop(), list[str]()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    watch = LoopWatch(loop, thread, dict, warnings.append)
    thread.start()
    ended = asyncio.run_coroutine_threadsafe(cast(Any, call(blocking.code)), loop)
    try:
        assert blocking.blocked.wait(30)
        started = time.perf_counter()
        while time.perf_counter() - started <= 5 * user_code._LONGEST_STEP:
            watch.look()
    finally:
        blocking.freed.set()
        ended.result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
    watch.end()
    return warnings


@pytest.mark.parametrize("folder", [HERE, INSTALLED], ids=["of the project", "installed"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_user_code_that_blocks_the_loop_is_named(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], Awaitable[Any]], folder: str
) -> None:
    monkeypatch.setattr(user_code, "_LONGEST_STEP", 0.01)
    blocking = Blocking(folder)
    [warning] = warnings_of(blocking, call)
    assert "blocked the event loop for 0." in warning
    assert f" s at {blocking.path}:" in warning


def test_a_library_that_no_run_calls_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "_LONGEST_STEP", 0.01)
    blocking = Blocking(INSTALLED)
    assert warnings_of(blocking, lambda code: code.agent(None)) == []


class ReturningFrame:
    """A frame of another thread that returns after its caller was read once."""

    f_globals: Mapping[str, Any] = MappingProxyType({})
    f_code = compile("", os.path.join(INSTALLED, "library.py"), "exec")

    def __init__(self, caller: Any) -> None:
        self._callers = [caller]

    @property
    def f_back(self) -> Any:
        return self._callers.pop() if self._callers else None


def test_a_frame_may_return_while_it_is_looked_at() -> None:
    outer = ReturningFrame(ReturningFrame(None))
    assert user_code._agent_frame(cast(Any, outer)) is None
