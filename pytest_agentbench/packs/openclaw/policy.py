"""Rules of a run's gateway for the peculiarities of OpenClaw's requests (2026.9.6)."""

from __future__ import annotations

import json
import re
from typing import Any

from pytest_agentbench.models.messages import ToolCall
from pytest_agentbench.packs.openclaw.container import model_ref
from pytest_agentbench.records.case import Model
from pytest_agentbench.runners.gateway.policy import GatewayPolicy, Volatile

_INTERNAL = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
"""Beginning of the user messages that contain OpenClaw's own notes to its model."""

_WRAPPER = "tool_call"
"""OpenClaw's tool that calls tools which are not offered to the model directly, such as `web_fetch`."""

_STAMPS = (
    (re.compile(r"^\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d [^\]\s]+\] ", re.MULTILINE), "[time] "),
    (re.compile(r"^Current date: \d{4}-\d\d-\d\d$", re.MULTILINE), "Current date: [date]"),
    (re.compile(r" \| host=[^|\n]* \| os=[^|\n]* \| "), " | host=[host] | os=[os] | "),
)
"""Texts that differ in each run: the time, the date, the container's name and the machine's kernel."""


def make_policy(model: Model) -> GatewayPolicy:
    """Return OpenClaw's policy.

    OpenClaw sends its own name for the model if that is `openrouter/` and a name without a slash.
    """
    return GatewayPolicy(
        names=(model_ref(model),),
        volatile=tuple(Volatile("any", pattern, name) for pattern, name in _STAMPS),
        internal=(_INTERNAL,),
        is_error=_is_error,
        unwrap=_unwrap,
        passes=False,  # stored runs and cassettes contain requests that were composed here
    )


def _unwrap(call: ToolCall) -> tuple[str, dict[str, Any] | None]:
    """Return the tool of a call and its arguments. A call of the wrapper counts as a call of the tool that it names.

    The wrapper accepts a name, or an id such as `openclaw:core:web_fetch`. A call of the wrapper in another form, which
    some models write, keeps the wrapper's name.
    """
    wrapped = call.arguments or {}
    tool, arguments = wrapped.get("id"), wrapped.get("args", {})
    if call.name != _WRAPPER or not wrapped.keys() <= {"id", "args"} or not isinstance(arguments, dict):
        return call.name, call.arguments
    if isinstance(tool, str) and (name := tool.strip().split(":", 2)[-1]):
        return name, arguments
    return call.name, call.arguments


def _is_error(content: str, name: str) -> bool:
    """Return whether a result has the form in which OpenClaw reports a failed tool; the protocol has no error flag."""
    # OpenClaw has three forms: two texts and a JSON object.
    if content == f"Tool {name} not found" or content.startswith(f'Validation failed for tool "{name}":'):
        return True
    if not content.startswith("{"):
        return False
    try:
        result = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(result, dict) and result == {"status": "error", "tool": name, "error": result.get("error")}
