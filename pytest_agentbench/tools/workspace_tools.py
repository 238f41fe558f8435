"""Tools for the run's workspace and sandbox: commands, programs, a shell session, files."""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
from typing import Any

from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput, object_schema, require_sandbox
from pytest_agentbench.workspaces.confined import MAX_FILE_BYTES
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Process, Sandbox
from pytest_agentbench.workspaces.sandboxes.programs import Capture
from pytest_agentbench.workspaces.workspace import Entry

DEFAULT_COMMAND_SECONDS = 30
_MAX_COMMAND_SECONDS = 600
MAX_COMMAND = 30_000
"""Maximum characters of a command."""

_KILLED = {
    "output": "output without end",
    "memory": "out of memory",
    "disk": "the workspace is full",
    "processes": "too many processes",
}


def timeout_schema(what: str) -> dict[str, Any]:
    """Return the JSON Schema of `timeout_seconds` with the description `what`."""
    return {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": _MAX_COMMAND_SECONDS,
        "default": DEFAULT_COMMAND_SECONDS,
        "description": what,
    }


def append_end(output: str, end: str) -> str:
    """Return a command's output, followed by a line that states how it ended."""
    separator = "" if not output or output.endswith("\n") else "\n"
    return f"{output}{separator}[{end}]"


def refuse_command(tool: str, command: str) -> ToolOutput | None:
    """Return an error for a command that shells do not accept, or None."""
    if "\0" not in command:
        return None
    return ToolOutput(f"error: {tool}: command: found a NUL character, which no shell accepts", is_error=True)


async def _exec_shell(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    seconds = arguments.get("timeout_seconds", DEFAULT_COMMAND_SECONDS)
    if (refused := refuse_command("exec_shell", arguments["command"])) is not None:
        return refused
    command = (
        arguments["command"].encode("utf-8", "replace").decode("utf-8")
    )  # arguments cannot contain lone surrogates
    sandbox = await context.sandbox()
    return _make_output(await sandbox.exec(["/bin/sh", "-c", command], seconds=seconds), seconds)


async def _exec_python(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    seconds = arguments.get("timeout_seconds", DEFAULT_COMMAND_SECONDS)
    sandbox = await context.sandbox()
    code = arguments["code"].encode("utf-8", "replace")
    return _make_output(await sandbox.exec(["python3", "-u", "-"], seconds=seconds, stdin=code), seconds)


def _make_output(result: ExecResult, seconds: float) -> ToolOutput:
    if result.killed == "time-out":
        end = f"killed after {seconds:g} s: time-out"
    elif result.killed is not None:
        end = f"killed: {_KILLED[result.killed]}"
    else:
        end = f"exit code {result.exit_code}"
    return ToolOutput(append_end(result.output, end), is_error=result.exit_code != 0)


_COMMAND_TOOLS = (
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
        require_sandbox,
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
        require_sandbox,
    ),
)


# A shell for the whole run: folder, variables, functions and background jobs persist between calls. Each
# command is sent as `eval 'TEXT' </dev/null`, so that it cannot read later commands, and an unclosed quote
# fails only this command. A line with a random word marks the end of its output.


_NAME = "shell_session"
_SHELL = ("/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash --noprofile --norc; fi; exec /bin/sh")
_OUTPUT_LIMIT = 64_000
_RESTART_NOTE = "the next call starts a new one in the workspace, without its variables and jobs"


class ShellSession:
    """The shell of a run, started at the first command. Its process ends with the run's sandbox.

    `_lock` serialises commands. `_unread` is output after the last mark, which belongs to background jobs.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._unread = b""

    async def run(self, command: str, seconds: float) -> ToolOutput:
        """Run a command. Return its output with that of background jobs, and how it ended. A time-out ends the
        shell.
        """
        async with self._lock:
            if self._process is None:
                self._process = await self._sandbox.spawn(_SHELL)
            # Random, and new for each command, so that no output can contain it by chance or on purpose
            mark, capture = secrets.token_hex(16), Capture(_OUTPUT_LIMIT)
            status: int | None = None
            end = f"the shell ended before the command did; {_RESTART_NOTE}"
            try:
                async with asyncio.timeout(seconds):
                    status = await self._run_to_mark(self._process, command, mark, capture)
            except BrokenPipeError:
                end = f"the shell had ended, so nothing was run; {_RESTART_NOTE}"
            except TimeoutError:
                end = f"killed after {seconds:g} s: time-out; the shell ended with it, {_RESTART_NOTE}"
            finally:
                if status is None:  # also if the call was cancelled: the command's output would go to the next call
                    await self._end()
            if capture.endless:
                end = f"killed: output without end; the shell ended with it, {_RESTART_NOTE}"
            if status is not None:
                end = f"exit code {status}"
            return ToolOutput(append_end(capture.text(), end), is_error=status != 0)

    async def restart(self) -> None:
        """Kill the shell with its descendants. The next command starts a new one."""
        async with self._lock:
            await self._end()

    async def _run_to_mark(self, process: Process, command: str, mark: str, capture: Capture) -> int | None:
        """Send a command and return its exit code, or None if the shell ended or the output is endless.

        Raises BrokenPipeError if the shell has ended since the last command.
        """
        line = re.compile(rb"\n%s (\d+)\n" % mark.encode())
        longest = len(mark) + 8
        buffer, self._unread = self._unread, b""
        sent = f"command eval {shlex.quote(command)} </dev/null\ncommand printf '\\n{mark} %d\\n' $?\n"
        try:
            await process.write(sent.encode("utf-8", "replace"))
            while not capture.endless and (data := await process.read()):
                buffer += data
                if (match := line.search(buffer)) is not None:
                    buffer, self._unread = buffer[: match.start()], buffer[match.end() :]
                    return int(match[1])
                # A read may split the mark, so as many bytes as it has wait for the next read
                capture.data_received(buffer[:-longest])
                buffer = buffer[-longest:]
            return None
        finally:
            capture.data_received(buffer)

    async def _end(self) -> None:
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            await process.stop()


async def _shell_session(arguments: dict[str, Any], context: ToolContext) -> str | ToolOutput:
    command, restart = arguments.get("command"), arguments.get("restart", False)
    if command is None and not restart:
        return ToolOutput("error: shell_session: found neither 'command' nor 'restart': true", is_error=True)
    if command is not None and (refused := refuse_command(_NAME, command)) is not None:
        return refused
    sandbox = await context.sandbox()
    session: ShellSession = context.state.setdefault(_NAME, ShellSession(sandbox))
    # Even with a command in the same call: the model expects it to run in the new shell
    if restart:
        await session.restart()
    if command is None:
        return "[the shell is new]"
    return await session.run(command, arguments.get("timeout_seconds", DEFAULT_COMMAND_SECONDS))


_SHELL_SESSION = Tool(
    _NAME,
    "Run a command in a shell that stays: its folder, variables, functions and background jobs are there in the next "
    "call. Returns what is printed on stdout and stderr, and the command's exit code. It is bash where that is "
    "installed, else sh. There is no input. Background jobs' later output comes with the next command.",
    object_schema(
        [],
        command={"type": "string", "minLength": 1, "maxLength": MAX_COMMAND, "description": "The command."},
        timeout_seconds=timeout_schema("When to kill the command, and the shell with all it started."),
        restart={
            "type": "boolean",
            "default": False,
            "description": "Begin with a new shell in the workspace; `command` may then be left out.",
        },
    ),
    _shell_session,
    require_sandbox,
)


_MAX_LISTED = 1_000


async def _write_file(arguments: dict[str, Any], context: ToolContext) -> str:
    path, content = arguments["path"], arguments["content"]
    copy = context.copy()
    if copy is None:
        context.workspace().write_text(path, content)
    else:
        await copy.put(path, content.encode("utf-8", "replace"))
    return f"wrote {len(content):,} characters to {path}"


async def _read_file(arguments: dict[str, Any], context: ToolContext) -> str | ToolOutput:
    path, copy = arguments["path"], context.copy()
    try:
        if copy is None:
            return context.workspace().read_text(path)
        return (await copy.get(path, MAX_FILE_BYTES)).decode()
    except UnicodeDecodeError as error:
        return ToolOutput(f"error: read_file: {path}: not UTF-8 text (byte {error.start})", is_error=True)


async def _list_files(arguments: dict[str, Any], context: ToolContext) -> str:
    path, copy = arguments.get("path", "."), context.copy()
    entries = context.workspace().entries(path) if copy is None else await copy.entries(path)
    lines = [_format_entry(entry) for entry in entries[:_MAX_LISTED]]
    if len(entries) > _MAX_LISTED:
        lines.append(f"[... {len(entries) - _MAX_LISTED:,} more ...]")
    return "\n".join(lines) or "(empty)"


def _format_entry(entry: Entry) -> str:
    name = entry.name if entry.name.isprintable() else repr(entry.name)
    if entry.kind == "file":
        return f"{name}  {entry.size:,} bytes"
    if entry.kind == "folder":
        return f"{name}/"
    return f"{name}  ({entry.kind})"


_PATH = "Path relative to the workspace, or below /tmp, which is private to this run. Links and `..` are refused."

_FILE_TOOLS = (
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
        reads_only=True,
    ),
    Tool(
        "list_files",
        "List the files and folders in one folder, with the files' sizes.",
        object_schema(
            [], path={"type": "string", "default": ".", "description": f"The folder; default: the workspace. {_PATH}"}
        ),
        _list_files,
        reads_only=True,
    ),
)

TOOLS = {tool.name: tool for tool in (*_COMMAND_TOOLS, _SHELL_SESSION, *_FILE_TOOLS)}
"""The tools of this module by name."""
