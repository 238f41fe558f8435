"""The tools that read and write files of the run's own workspace."""

from __future__ import annotations

from typing import Any

from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput, object_schema
from pytest_agentbench.workspaces import Entry

_MAX_LISTED = 1_000


async def _write_file(arguments: dict[str, Any], context: ToolContext) -> str:
    path, content = arguments["path"], arguments["content"]
    context.workspace().write_text(path, content)
    return f"wrote {len(content):,} characters to {path}"


async def _read_file(arguments: dict[str, Any], context: ToolContext) -> str | ToolOutput:
    path = arguments["path"]
    try:
        return context.workspace().read_text(path)
    except UnicodeDecodeError as error:
        return ToolOutput(f"error: read_file: {path}: not UTF-8 text (byte {error.start})", is_error=True)


async def _list_files(arguments: dict[str, Any], context: ToolContext) -> str:
    entries = context.workspace().entries(arguments.get("path", "."))
    lines = [_line(entry) for entry in entries[:_MAX_LISTED]]
    if len(entries) > _MAX_LISTED:
        lines.append(f"[... {len(entries) - _MAX_LISTED:,} more ...]")
    return "\n".join(lines) or "(empty)"


def _line(entry: Entry) -> str:
    name = entry.name if entry.name.isprintable() else repr(entry.name)
    if entry.kind == "file":
        return f"{name}  {entry.size:,} bytes"
    return f"{name}/" if entry.kind == "folder" else f"{name}  ({entry.kind})"


_PATH = "Path relative to the workspace, or below /tmp, which is private to this run. Links and `..` are refused."

FILE_TOOLS = (
    Tool(
        "write_file",
        "Write text to a file, replacing what it held. Missing folders are made.",
        object_schema(
            ["path", "content"],
            path={"type": "string", "minLength": 1, "description": _PATH},
            content={"type": "string", "description": "The whole new content."},
        ),
        _write_file,
    ),
    Tool(
        "read_file",
        "Return the text of a file (UTF-8).",
        object_schema(["path"], path={"type": "string", "minLength": 1, "description": _PATH}),
        _read_file,
    ),
    Tool(
        "list_files",
        "List the files and folders in one folder, with the files' sizes.",
        object_schema(
            [], path={"type": "string", "default": ".", "description": f"The folder; default: the workspace. {_PATH}"}
        ),
        _list_files,
    ),
)
