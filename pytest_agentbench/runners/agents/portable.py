"""Convert a script's portable tool calls to an agent's own tools."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_agentbench.config.agent_file import ABSOLUTE, ToolCall, fill
from pytest_agentbench.models.apis.base import make_call
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.messages import ToolCall as Called
from pytest_agentbench.models.script_files import PORTABLE
from pytest_agentbench.records.base import PortableName
from pytest_agentbench.runners.agents.adapter import Program
from pytest_agentbench.runners.chat import Requests

_BY_SHELL = {"write": 'mkdir -p -- "$(dirname -- {path})" && printf %s {content} > {path}', "read": "cat -- {path}"}
"""Shell commands in place of tools that an agent lacks."""


class PortableRequests(Requests):
    """Requests of an agent. Portable tool names in a script's replies become the agent's own names."""

    program: Program
    workspace: str
    """Path of the workspace inside the sandbox."""

    async def send(self, *args: Any, **kwargs: Any) -> ChatReply:
        """Send one request, as Requests does."""
        reply = await super().send(*args, **kwargs)
        if not self._client.model.scripted:
            return reply
        return adapt_reply(reply, self.program, self.workspace)


def name_tools(program: Program) -> dict[str, str]:
    """Return the portable name of each tool of the agent that has one."""
    # Reversed, so that the first portable name counts if several have the same tool
    return {call.name: portable for portable, call in reversed(list(program.tools.items()))}


def adapt_reply(reply: ChatReply, program: Program, workspace: str) -> ChatReply:
    """Return a scripted reply with the agent's own tools. If the agent ends by a tool call, the last text becomes
    one.
    """
    calls = tuple(_adapt(call, program.tools, workspace) for call in reply.tool_calls)
    # An agent that waits for such a call takes a plain text for an unfinished turn, and asks again
    if not calls and program.finish is not None and reply.content is not None:
        name, arguments = _make(program.finish, {"content": shlex.quote(reply.content)})
        calls = (Called("call_finish", name, arguments, json.dumps(arguments)),)
        reply = replace(reply, content=None, finish_reason="tool_calls", end=None)
    if calls == reply.tool_calls:
        return reply
    sent = [make_call(call.id, call.name, call.raw) for call in calls]
    return replace(reply, tool_calls=calls, message={**reply.message, "content": reply.content, "tool_calls": sent})


def _adapt(call: Called, tools: Mapping[PortableName, ToolCall], workspace: str) -> Called:
    portable: Any = call.name.removeprefix(PORTABLE)
    if portable == call.name or call.arguments is None or "shell" not in tools:
        return call
    if portable in tools:
        values = dict(call.arguments)
        if "path" in values:
            values[ABSOLUTE] = posixpath.join(workspace, str(values["path"]))
        name, arguments = _make(tools[portable], values)
    else:
        quoted = {key: shlex.quote(str(value)) for key, value in call.arguments.items()}
        name, arguments = _make(tools["shell"], {"command": fill(_BY_SHELL[portable], quoted)})
    return replace(call, name=name, arguments=arguments, raw=json.dumps(arguments, ensure_ascii=False))


def _make(tool: ToolCall, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return tool.name, fill(tool.arguments, values)
