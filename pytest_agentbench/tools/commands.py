"""The tools that run commands and programs in the run's sandbox, each by itself."""

from __future__ import annotations

from typing import Any

from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput, needs_sandbox, object_schema
from pytest_agentbench.workspaces import ExecResult

DEFAULT_COMMAND_SECONDS = 30
_MAX_COMMAND_SECONDS = 600
MAX_COMMAND = 30_000
"""How many characters a command may have."""

_KILLED = {
    "output": "output without end",
    "memory": "out of memory",
    "disk": "the workspace is full",
    "processes": "too many processes",
}


def timeout_schema(what: str) -> dict[str, Any]:
    """The JSON Schema of `timeout_seconds`."""
    return {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": _MAX_COMMAND_SECONDS,
        "default": DEFAULT_COMMAND_SECONDS,
        "description": what,
    }


def with_end(output: str, end: str) -> str:
    """What a command wrote, and on a line of its own how it ended."""
    separator = "" if not output or output.endswith("\n") else "\n"
    return f"{output}{separator}[{end}]"


def refusal(tool: str, command: str) -> ToolOutput | None:
    """The answer to a command that no shell takes; None to all others."""
    if "\0" not in command:
        return None
    return ToolOutput(f"error: {tool}: command: found a NUL character, which no shell takes", is_error=True)


async def _exec_shell(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    seconds = arguments.get("timeout_seconds", DEFAULT_COMMAND_SECONDS)
    if (refused := refusal("exec_shell", arguments["command"])) is not None:
        return refused
    command = arguments["command"].encode("utf-8", "replace").decode("utf-8")  # no argument holds lone surrogates
    sandbox = await context.sandbox()
    return _shown(await sandbox.exec(["/bin/sh", "-c", command], seconds=seconds), seconds)


async def _exec_python(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    seconds = arguments.get("timeout_seconds", DEFAULT_COMMAND_SECONDS)
    sandbox = await context.sandbox()
    code = arguments["code"].encode("utf-8", "replace")
    return _shown(await sandbox.exec(["python3", "-u", "-"], seconds=seconds, stdin=code), seconds)


def _shown(result: ExecResult, seconds: float) -> ToolOutput:
    if result.killed == "time-out":
        end = f"killed after {seconds:g} s: time-out"
    elif result.killed is not None:
        end = f"killed: {_KILLED[result.killed]}"
    else:
        end = f"exit code {result.exit_code}"
    return ToolOutput(with_end(result.output, end), is_error=result.exit_code != 0)


COMMAND_TOOLS = (
    Tool(
        "exec_shell",
        "Run a command with /bin/sh in the workspace and return what it prints on stdout and stderr, and its exit "
        "code. There is no input. Processes left in the background end with the command. $TMPDIR is the /tmp of the "
        "file tools.",
        object_schema(
            ["command"],
            command={
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_COMMAND,
                "description": "The command, as given to sh -c.",
            },
            timeout_seconds=timeout_schema("When to kill the command and all it started."),
        ),
        _exec_shell,
        needs_sandbox,
    ),
    Tool(
        "exec_python",
        "Run a Python program with python3 in the workspace and return what it prints on stdout and stderr, and its "
        "exit code. Print what you want to see. Nothing stays for the next call but files; modules in the workspace "
        "can be imported. There is no input.",
        object_schema(
            ["code"],
            code={"type": "string", "minLength": 1, "maxLength": 200_000, "description": "The whole program."},
            timeout_seconds=timeout_schema("When to kill the program and all it started."),
        ),
        _exec_python,
        needs_sandbox,
    ),
)
