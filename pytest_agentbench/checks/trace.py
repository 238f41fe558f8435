"""Checks of how the run went: its end, its tool calls, and what it used up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pytest_agentbench.checks.base import CheckContext, Verdict, verdict
from pytest_agentbench.checks.json_values import compact, includes
from pytest_agentbench.metrics import calls_of
from pytest_agentbench.records import (
    MaxCostUsd,
    MaxSeconds,
    MaxTurns,
    MessageEvent,
    RunnerEvent,
    StatusIs,
    ToolCallCount,
    ToolCalled,
    ToolCallEvent,
    ToolNotCalled,
)


def status_is(spec: StatusIs, context: CheckContext) -> Verdict:
    """The run ended with the status."""
    status = context.artifact.status
    return verdict(status == spec.status, f"the run's status is {status}", spec.status, status)


def tool_call_count(spec: ToolCallCount, context: CheckContext) -> Verdict:
    """The trace holds exactly so many tool calls."""
    calls = context.artifact.tool_calls
    message = f"{len(calls)} tool calls: {_summary(calls)}"
    return verdict(len(calls) == spec.count, message, str(spec.count), str(len(calls)))


def tool_called(spec: ToolCalled, context: CheckContext) -> Verdict:
    """Enough calls of the tool include the arguments and come after a call of `after`, and the tool did not break."""
    called = calls_of(context.artifact)
    broke = [call for call, result in called if call.name == spec.name and result is not None and result.broken]
    calls = [call for call, result in called if result is None or not result.broken]
    if spec.after is not None:
        first = next((at for at, call in enumerate(calls) if call.name == spec.after), len(calls))
        calls = calls[first + 1 :]
    hits = _hits(calls, spec.name, spec.arguments)
    order = f" after {spec.after}" if spec.after else ""
    message = f"{len(hits)} calls of {spec.name}{order} as described, expected at least {spec.min_count}"
    message += f"; the tool itself broke in {len(broke)} further calls, which do not count" if broke else ""
    expected = f"{_described(spec.name, spec.arguments)}{order}"
    return verdict(len(hits) >= spec.min_count, message, expected, _summary(context.artifact.tool_calls, spec.name))


def tool_not_called(spec: ToolNotCalled, context: CheckContext) -> Verdict:
    """No call of the tool includes the arguments."""
    calls = context.artifact.tool_calls
    hits = _hits(calls, spec.name, spec.arguments)
    message = f"{len(hits)} calls of {spec.name} as described, expected none"
    return verdict(not hits, message, f"no {_described(spec.name, spec.arguments)}", _summary(calls, spec.name))


def max_turns(spec: MaxTurns, context: CheckContext) -> Verdict:
    """The runner's requests to the model; where it records none, the assistant's messages."""
    trace = context.artifact.trace
    turns = sum(isinstance(event, RunnerEvent) and event.name == "request" for event in trace)
    turns = turns or sum(isinstance(event, MessageEvent) and event.role == "assistant" for event in trace)
    if not turns and context.artifact.status == "success":
        raise ValueError("the trace shows neither requests nor assistant messages, so the turns are unknown")
    return verdict(turns <= spec.count, f"the model was asked {turns} times", f"at most {spec.count}", str(turns))


def max_cost_usd(spec: MaxCostUsd, context: CheckContext) -> Verdict:
    """The run's cost is known and within the limit."""
    cost = context.artifact.usage.cost_usd
    if cost is None:
        raise ValueError("the run's cost is unknown; give the model prices in models.yaml")
    return verdict(cost <= spec.usd, f"the run cost ${cost:.6g}", f"at most ${spec.usd:g}", f"${cost:.6g}")


def max_seconds(spec: MaxSeconds, context: CheckContext) -> Verdict:
    """The run's duration is within the limit."""
    took = context.artifact.duration_seconds
    return verdict(took <= spec.seconds, f"the run took {took:.3g} s", f"at most {spec.seconds:g} s", f"{took:.3g} s")


def _hits(calls: Sequence[ToolCallEvent], name: str, arguments: dict[str, Any]) -> list[ToolCallEvent]:
    return [call for call in calls if call.name == name and includes(call.arguments or {}, arguments)]


def _described(name: str, arguments: dict[str, Any]) -> str:
    return f"call of {name} with {compact(arguments)}" if arguments else f"call of {name}"


def _summary(calls: Sequence[ToolCallEvent], name: str | None = None) -> str:
    """The arguments of the calls of `name` where there are any, else how often each tool was called."""
    own = [compact(call.arguments) for call in calls if call.name == name]
    if own:
        return f"{name} with {'; '.join(own)}"
    return ", ".join(f"{tool} x{count}" for tool, count in Counter(call.name for call in calls).items()) or "none"
