"""Servers that a cassette has or keeps: what they list, and what their tools answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from pytest_agentbench.errors import McpCallError, McpServerError
from pytest_agentbench.models import Answer, Form, Refusal, Tape
from pytest_agentbench.tools.mcp.base import CallResult, Listing, ServerTool
from pytest_agentbench.tools.mcp.run_servers import ToolServer


def asked_server(name: str) -> str:
    """Who is asked, in cassettes."""
    return f"mcp:{name}"


class TapedServer:
    """A server through a tape: it is asked, and started, only for what the tape does not have."""

    def __init__(self, name: str, server: ToolServer, tape: Tape) -> None:
        self._asked, self._server, self._tape = asked_server(name), server, tape
        self._listing = _listing_form(name)

    async def listing(self) -> Listing:
        """As ToolServer says."""
        return await self._tape.play(self._asked, {"method": "tools/list"}, self._server.listing, self._listing)

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """As ToolServer says."""
        request = {"method": "tools/call", "tool": tool, "arguments": dict(arguments)}
        return await self._tape.play(self._asked, request, partial(self._server.call, tool, arguments, seconds), _CALL)

    async def close(self) -> None:
        """As ToolServer says."""
        await self._server.close()


def _listing_form(name: str) -> Form[Listing]:
    def read(answer: Answer, seconds: float) -> Listing:
        head, *tools = answer.results or ({},)
        return Listing(
            server_name=head.get("name", ""),
            server_version=head.get("version", ""),
            tools=tuple(
                ServerTool(
                    server=name,
                    name=tool.get("name", ""),
                    description=tool.get("description", ""),
                    input_schema=json.loads(tool.get("input_schema", "{}")),
                )
                for tool in tools
            ),
        )

    return Form(_write_listing, read, lambda error: None, lambda refusal: McpServerError(refusal.message))


def _write_listing(listing: Listing) -> Answer:
    head = {"name": listing.server_name, "version": listing.server_version}
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": json.dumps(tool.input_schema)}
        for tool in listing.tools
    ]
    return Answer(results=(head, *tools))


def _write_call(result: CallResult) -> Answer:
    return Answer(results=({"text": result.text, "is_error": str(result.is_error).lower()},))


def _read_call(answer: Answer, seconds: float) -> CallResult:
    found = (answer.results or ({},))[0]
    return CallResult(found.get("text", ""), is_error=found.get("is_error") == "true")


def _refusal(error: Exception) -> Refusal | None:
    """What fails a call and not the run; a server that cannot be started for it is no other failure to the agent."""
    failed = isinstance(error, McpCallError | McpServerError)
    return Refusal(code="mcp_call_error", message=str(error)) if failed else None


_CALL: Form[CallResult] = Form(_write_call, _read_call, _refusal, lambda refusal: McpCallError(refusal.message))
