"""What the tests of the gateway share: replies, and how agents show them again in their requests."""

from __future__ import annotations

import json
from typing import Any

from pytest_agentbench.models.messages import ToolCall
from pytest_agentbench.models.replies import ChatReply
from pytest_agentbench.records.run import ToolResultEvent, Usage
from pytest_agentbench.runners.base import Recorder

Call = tuple[str, str, dict[str, Any]]
"""Id, name, arguments."""


def reply(*calls: Call, content: str | None = None) -> ChatReply:
    asked = tuple(ToolCall(id=id_, name=name, arguments=args, raw=json.dumps(args)) for id_, name, args in calls)
    return ChatReply(content, asked, "tool_calls", Usage(), "m", None, {"role": "assistant"}, 1, 0.1)


def shown(*calls: Call, content: str | None = None) -> dict[str, Any]:
    """The message by which an agent shows such a reply, its arguments written in its own way."""
    tool_calls = [
        {
            "id": id_,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(args, separators=(",", ":"))},
        }
        for id_, name, args in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def result(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def results(trace: Recorder) -> list[tuple[str, str, str]]:
    return [(e.call_id, e.name, e.content) for e in trace.events if isinstance(e, ToolResultEvent)]
