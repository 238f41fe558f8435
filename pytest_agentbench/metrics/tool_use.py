"""Measure how a run used its tools: rates over the trace of any runner (seed 004, 5.1; spec/mcp.md).

Every rate is None if there is nothing to measure. Calls for which `offered` is unknown, such as calls that a user's
agent reports itself, are in no rate of names and arguments.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from pytest_agentbench.metrics.registry import Measured, metric
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import RunArtifact, RunnerEvent, ToolCallEvent, ToolResultEvent

_OWN_AGENT = "callable"


class Called(NamedTuple):
    """A tool call with its result, None if there was none."""

    call: ToolCallEvent
    result: ToolResultEvent | None

    @property
    def succeeded(self) -> bool:
        """Return whether a result came, and was not flagged as an error."""
        return self.result is not None and not self.result.is_error


def calls_of(artifact: RunArtifact) -> list[Called]:
    """Return all tool calls in order. Of calls with the same id, the first one has the first result."""
    results: dict[str, deque[ToolResultEvent]] = defaultdict(deque)
    for event in artifact.trace:
        if isinstance(event, ToolResultEvent):
            # By call id and order: some providers number the calls of each reply anew, so ids repeat within a run
            results[event.call_id].append(event)
    return [
        Called(call, results[call.call_id].popleft() if results[call.call_id] else None) for call in artifact.tool_calls
    ]


@metric("valid_tool_name_rate", trace=True)
def valid_tool_name_rate(case: Case, artifact: RunArtifact) -> Measured | None:
    """Return calls that name a tool of the run / all calls."""
    known = _known(artifact)
    return _rate(sum(call.offered is True for call in known), len(known))


@metric("input_schema_compliance", trace=True)
def input_schema_compliance(case: Case, artifact: RunArtifact) -> Measured | None:
    """Return calls of a tool of the run whose arguments satisfy its schema / calls of a tool of the run.

    Calls of a tool with a broken schema count on neither side. 0 if no call names a tool.
    """
    known = _known(artifact)
    named = [call for call in known if call.offered]
    # A run that only made up names has complied with no schema: None would spare it the average
    if known and not named:
        return Measured(0.0, {"of": 0})
    scored = [call for call in named if call.schema_valid is not None]
    return _rate(sum(call.schema_valid is True for call in scored), len(scored))


@metric("execution_success_rate", trace=True)
def execution_success_rate(case: Case, artifact: RunArtifact) -> Measured | None:
    """Return calls that ended without an error / all calls. A call that never ended is no success."""
    calls = _calls_with_known_end(artifact)
    return _rate(sum(called.succeeded for called in calls), len(calls))


@metric("soft_error_rate", trace=True)
def soft_error_rate(case: Case, artifact: RunArtifact) -> Measured | None:
    """Return calls that return `{"error": ...}` without an error flag / all calls."""
    calls = _calls_with_known_end(artifact)
    return _rate(sum(called.succeeded and _is_soft_error(called.result) for called in calls), len(calls))


@metric("valid_call_failure_rate", trace=True)
def valid_call_failure_rate(case: Case, artifact: RunArtifact) -> Measured | None:
    """Return valid calls that ended with an error, or never / valid calls.

    A call is valid unless it names no tool of the run, or its arguments do not satisfy the tool's schema. A high rate
    points to the servers, not to the agent.
    """
    calls = _calls_with_known_end(artifact)
    valid = [each for each in calls if each.call.offered is not False and each.call.schema_valid is not False]
    return _rate(sum(not called.succeeded for called in valid), len(valid))


@metric("dependency_compliance", trace=True)
def dependency_compliance(case: Case, artifact: RunArtifact) -> Measured | None:
    """Return executed calls before which all `dependencies` of the task for their tool had succeeded / all executed
    calls.

    A call is executed if its tool belongs to the run and it has a result; a tool without dependencies complies.
    `needing` in the details counts the others. None if the task declares no graph. Calls of one round are recorded
    before their results, so none of them counts as earlier than another.
    """
    required = next((graph for part in case.case_parts if (graph := part.required_calls)), None)
    if not required:
        return None
    # Calls of invented tools never ran. If `offered` is unknown, a result proves that the tool ran.
    executed = {each.call.sequence for each in calls_of(artifact) if each.result and each.call.offered is not False}
    done: set[str] = set()
    needing = complied = 0
    for event in artifact.trace:
        if isinstance(event, ToolResultEvent) and not event.is_error:
            # By both names, as tasks may write a tool with its server or without
            done |= _names(event.name)
        elif event.sequence in executed and isinstance(event, ToolCallEvent):
            before = {each for name in _names(event.name) for each in required.get(name, ())}
            needing += bool(before)
            complied += before <= done
    rate = _rate(complied, len(executed))
    return rate and rate._replace(details={**rate.details, "needing": needing})


@metric("planning_json_compliance", trace=True)
def planning_json_compliance(case: Case, artifact: RunArtifact) -> Measured | None:
    """Return plans that kept the contract at the first attempt / all replies of the planner."""
    plans = [event.data for event in artifact.trace if isinstance(event, RunnerEvent) and event.name == "plan"]
    return _rate(sum(plan.get("ok") is True and plan.get("attempt") == 1 for plan in plans), len(plans))


def _rate(hits: int, of: int) -> Measured | None:
    if of:
        return Measured(hits / of, {"hits": hits, "of": of})
    return None


def _known(artifact: RunArtifact) -> Sequence[ToolCallEvent]:
    return [call for call in artifact.tool_calls if call.offered is not None]


def _calls_with_known_end(artifact: RunArtifact) -> Sequence[Called]:
    """Return all calls, but those that a user's agent reports without a result: nobody knows how these ended."""
    calls = calls_of(artifact)
    if artifact.runner_type == _OWN_AGENT:
        return [each for each in calls if each.result is not None]
    return calls


def _is_soft_error(result: ToolResultEvent | None) -> bool:
    # A cheap look first: results may be large, and few hold the word
    if result is None or '"error"' not in result.content:
        return False
    try:
        said = json.loads(result.content)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and bool(said.get("error"))


def _names(tool_id: str) -> set[str]:
    """Return the tool's id, and its name without the server's."""
    return {tool_id, tool_id.partition(":")[2] or tool_id}
