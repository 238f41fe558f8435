"""What a server answers, turned into records: its list of tools, and the result of a call as text."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from pytest_agentbench.errors import visible
from pytest_agentbench.tools.mcp.base import CallResult, ServerTool

_logger = logging.getLogger(__name__)


def server_tools(server: str, described: Iterable[Any]) -> tuple[ServerTool, ...]:
    """The tools of a list as it came. What has no name is left out, and of two with one name the second.

    A schema stays as it came, however wrong it is; where it is no object at all, any arguments will do.
    """
    tools: dict[str, ServerTool] = {}
    for tool in described:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            _logger.warning("MCP server %s lists a tool without a name, which is left out", server)
        elif name in tools:
            _logger.warning("MCP server %s lists %s twice: the first is used", server, visible(repr(name)))
        else:
            text, schema = tool.get("description"), tool.get("inputSchema")
            tools[name] = ServerTool(
                server=server,
                name=name,
                description=text if isinstance(text, str) else "",
                input_schema=schema if isinstance(schema, dict) else {},
            )
    return tuple(tools.values())


def call_result(result: CallToolResult) -> CallResult:
    """A result as text: its blocks, one below the other; its structured content where it has no blocks."""
    text = "\n".join(map(_block, result.content))
    if not result.content and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    return CallResult(text, is_error=result.is_error or False)


def _block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _binary(block.mime_type, block.data)
        case ResourceLink():
            return "\n".join(_link(block))
        case EmbeddedResource():
            held = block.resource
            if isinstance(held, BlobResourceContents):
                return _binary(held.mime_type or "application/octet-stream", held.blob)
            return held.text


def _link(link: ResourceLink) -> Iterator[str]:
    yield f"{link.name}: {link.uri}"
    if link.description:
        yield link.description


def _binary(mime_type: str, data: str) -> str:
    """A note for what is no text; `data` is base64."""
    return f"[{mime_type}, {len(data.rstrip('=')) * 3 // 4:,} bytes]"
