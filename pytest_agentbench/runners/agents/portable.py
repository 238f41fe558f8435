"""Convert a script's portable tool calls to an agent's own tools."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.agent_file import ABSOLUTE, ToolCall, fill, find_names
from pytest_agentbench.config.documents import read_document
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.apis.base import make_call
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.messages import ToolCall as Called
from pytest_agentbench.models.script_files import MCP, PORTABLE
from pytest_agentbench.records.base import PortableName
from pytest_agentbench.runners.agents.adapter import FILE, Program
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.runners.gateway.offers import OfferedTool, describe_offer, read_offer

if TYPE_CHECKING:
    from pytest_agentbench.runners.gateway.mcp_names import ServedTools

_BY_SHELL = {"write": 'mkdir -p -- "$(dirname -- {path})" && printf %s {content} > {path}', "read": "cat -- {path}"}
"""Shell commands in place of tools that an agent lacks."""


class PortableRequests(Requests):
    """Requests of an agent. Portable tool names in a script's replies become the agent's own names."""

    program: Program
    workspace: str
    """Path of the workspace inside the sandbox."""
    served: ServedTools | None = None
    """The run's tools that the agent gets by MCP."""

    async def send(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), *args: Any, **kwargs: Any
    ) -> ChatReply:
        """Send one request, as Requests does. Raises ConfigError if the request does not offer a portable tool."""
        reply = await super().send(messages, tools, *args, **kwargs)
        if not self._client.model.scripted:
            return reply
        if self.served is not None:
            offered = [tool["function"]["name"] for tool in tools]
            reply = _replace_calls(reply, tuple(_name_served(call, self.served, offered) for call in reply.tool_calls))
        adapted = adapt_reply(reply, self.program, self.workspace)
        require_offered(reply, adapted, self.program, read_offer(tools))
        return adapted


def require_offered(reply: ChatReply, adapted: ChatReply, program: Program, offer: Mapping[str, OfferedTool]) -> None:
    """Raise ConfigError if the request does not offer the tool of an adapted call, or not with its arguments.

    Calls that the script makes by the agent's own names may be wrong on purpose, as a model's are.
    """
    for before, after in zip_longest(reply.tool_calls, adapted.tool_calls):
        if before is not None and not before.name.startswith(PORTABLE):
            continue
        field = _name_field(before, program)
        tool = offer.get(after.name)
        if tool is None:
            names = frozenset().union(*(_HINTS.get(part, frozenset()) for part in field))
            tools = list(offer.values())
            near = tools if len(tools) == 1 else [each for each in tools if names.intersection(each.properties)]
            advice = f". Closest for {field[-1]}: {near[0].describe()}" if near else ""
            problem = f"is {after.name!r}; the request offers: {describe_offer(offer)}{advice}"
            raise _make_error(program, (*field, "name"), problem)
        if (lacks := tool.find_problem(after.arguments or {})) is not None:
            raise _make_error(program, (*field, "arguments"), lacks)


def _name_field(call: Called | None, program: Program) -> tuple[str, ...]:
    """Return the field of the adapter that a call was made of. None: the call by which the agent ends."""
    if call is None:
        return ("finish",)
    portable: Any = call.name.removeprefix(PORTABLE)
    return "tools", portable if portable in program.tools else "shell"


def _make_error(program: Program, field: tuple[str, ...], problem: str) -> ConfigError:
    text = f"{'.'.join(field)} {problem}"
    if program.adapter is None:
        return ConfigError(f"{program.name}: {text}")
    path = program.adapter.folder / FILE
    place = read_document(path).problem(field, "")
    return ConfigError(f"{path}:{place.line}:{place.column}: {text}")


_HINTS: Mapping[str, frozenset[str]] = {
    "shell": frozenset({"command", "cmd", "script", "commands", "bash_command"}),
    "write": frozenset({"content", "contents", "text", "file_text"}),
    "read": frozenset({"path", "file_path", "filePath", "filepath", "file"}),
    "edit": frozenset({"old_string", "oldString", "old_str", "old", "search"}),
}
"""Names of arguments by which an agent's tool is recognised as the likely one for a portable tool."""


def name_tools(program: Program) -> dict[str, str]:
    """Return the portable name of each tool of the agent that has one."""
    # Reversed, so that the first portable name counts if several have the same tool
    return {call.name: portable for portable, call in reversed(list(program.tools.items()))}


def adapt_reply(reply: ChatReply, program: Program, workspace: str) -> ChatReply:
    """Return a scripted reply with the agent's own tools.

    If the agent ends by a tool call, the last text is wrapped in one, or precedes it if the call does not contain it.
    """
    calls = tuple(_adapt(call, program.tools, workspace) for call in reply.tool_calls)
    # An agent that waits for such a call takes a plain text for an unfinished turn, and asks again
    if not calls and program.finish is not None and reply.content is not None:
        shell = program.tools.get("shell")
        is_shell = shell is not None and shell.name == program.finish.name
        name, arguments = _make(program.finish, {"content": shlex.quote(reply.content) if is_shell else reply.content})
        calls = (Called("call_finish", name, arguments, json.dumps(arguments, ensure_ascii=False)),)
        is_wrapped = "content" in find_names(program.finish.arguments)
        reply = replace(reply, content=None if is_wrapped else reply.content, finish_reason="tool_calls", end=None)
    return _replace_calls(reply, calls)


def _replace_calls(reply: ChatReply, calls: tuple[Called, ...]) -> ChatReply:
    if calls == reply.tool_calls:
        return reply
    sent = [make_call(call.id, call.name, call.raw) for call in calls]
    return replace(reply, tool_calls=calls, message={**reply.message, "content": reply.content, "tool_calls": sent})


def _name_served(call: Called, served: ServedTools, offered: Collection[str]) -> Called:
    """Return the call; one of a tool of the run gets the agent's name of the tool."""
    tool_id = call.name.removeprefix(f"{PORTABLE}{MCP}:")
    if tool_id == call.name:
        return call
    return replace(call, name=served.name_for_agent(tool_id, offered))


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
