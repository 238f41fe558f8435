"""The built-in tools. All of them work in the run's own workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.tools.base import SearchResult, Tool, ToolContext, ToolOutput
from pytest_agentbench.workspaces import Entry

DEFAULT_COMMAND_SECONDS = 30
_MAX_COMMAND_SECONDS = 600
_MAX_COMMAND = 30_000
_MAX_LISTED = 1_000
_KILLED = {
    "output": "output without end",
    "memory": "out of memory",
    "disk": "the workspace is full",
    "processes": "too many processes",
}


async def _exec_shell(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    seconds = arguments.get("timeout_seconds", DEFAULT_COMMAND_SECONDS)
    sandbox = await context.sandbox()
    result = await sandbox.exec(["/bin/sh", "-c", arguments["command"]], seconds=seconds)
    if result.killed == "time-out":
        end = f"[killed after {seconds:g} s: time-out]"
    elif result.killed is not None:
        end = f"[killed: {_KILLED[result.killed]}]"
    else:
        end = f"[exit code {result.exit_code}]"
    separator = "" if not result.output or result.output.endswith("\n") else "\n"
    return ToolOutput(f"{result.output}{separator}{end}", is_error=result.exit_code != 0)


def _needs_sandbox(context: ToolContext) -> None:
    context.needs_sandbox()


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


async def _web_search(arguments: dict[str, Any], context: ToolContext) -> str:
    _needs_search(context)
    assert context.search is not None
    return _listing(await context.search(arguments["query"]))


def _needs_search(context: ToolContext) -> None:
    if context.search is None:
        raise UnavailableError(
            "web_search has no backend: set AGENTBENCH_SEARXNG_URL, BRAVE_API_KEY or TAVILY_API_KEY, or run with "
            "--model demo, which answers from its script"
        )


def _listing(results: Sequence[SearchResult]) -> str:
    blocks = [
        f"{number}. {result.title}\n   {result.url}\n   {result.snippet}".rstrip()
        for number, result in enumerate(results, start=1)
    ]
    return "\n".join(blocks) or "no results"


def _object(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_PATH = "Path relative to the workspace, or below /tmp, which is private to this run. Links and `..` are refused."

_TOOLS = (
    Tool(
        "exec_shell",
        "Run a command with /bin/sh in the workspace and return what it prints on stdout and stderr, and its exit "
        "code. There is no input. Processes left in the background end with the command. $TMPDIR is the /tmp of the "
        "file tools.",
        _object(
            ["command"],
            command={
                "type": "string",
                "minLength": 1,
                "maxLength": _MAX_COMMAND,
                "description": "The command, as given to sh -c.",
            },
            timeout_seconds={
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": _MAX_COMMAND_SECONDS,
                "default": DEFAULT_COMMAND_SECONDS,
                "description": "When to kill the command and all it started.",
            },
        ),
        _exec_shell,
        _needs_sandbox,
    ),
    Tool(
        "write_file",
        "Write text to a file, replacing what it held. Missing folders are made.",
        _object(
            ["path", "content"],
            path={"type": "string", "minLength": 1, "description": _PATH},
            content={"type": "string", "description": "The whole new content."},
        ),
        _write_file,
    ),
    Tool(
        "read_file",
        "Return the text of a file (UTF-8).",
        _object(["path"], path={"type": "string", "minLength": 1, "description": _PATH}),
        _read_file,
    ),
    Tool(
        "list_files",
        "List the files and folders in one folder, with the files' sizes.",
        _object(
            [], path={"type": "string", "default": ".", "description": f"The folder; default: the workspace. {_PATH}"}
        ),
        _list_files,
    ),
    Tool(
        "web_search",
        "Search the web and return titles, addresses and excerpts of the best pages.",
        _object(["query"], query={"type": "string", "minLength": 1, "maxLength": 2000, "description": "What to find."}),
        _web_search,
        _needs_search,
    ),
)

BUILTIN_TOOLS: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in _TOOLS})
"""The tools every case may name."""
