"""A shell that stays for the whole run: folder, variables, functions and background jobs are there in the next call.

Each command is sent as `eval 'TEXT' </dev/null`, so that it cannot read what is sent after it, and a command with an
unclosed quote fails by itself. A line with a random word tells where its output ends.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
from typing import Any

from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput, needs_sandbox, object_schema
from pytest_agentbench.tools.commands import DEFAULT_COMMAND_SECONDS, MAX_COMMAND, refusal, timeout_schema, with_end
from pytest_agentbench.workspaces import Capture, Process, Sandbox

_NAME = "shell_session"
_SHELL = ("/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash --noprofile --norc; fi; exec /bin/sh")
_OUTPUT_LIMIT = 64_000
_NEW_NEXT = "the next call starts a new one in the workspace, without its variables and jobs"


class ShellSession:
    """The one shell of a run, started at the first command; commands wait for each other.

    Its process ends with the run's sandbox.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._early = b""

    async def run(self, command: str, seconds: float) -> ToolOutput:
        """What the command and background jobs wrote, and how the command ended; a time-out ends the shell."""
        async with self._lock:
            if self._process is None:
                self._process = await self._sandbox.open(_SHELL)
            mark, capture = secrets.token_hex(16), Capture(_OUTPUT_LIMIT)
            status: int | None = None
            end = f"the shell ended before the command did; {_NEW_NEXT}"
            try:
                async with asyncio.timeout(seconds):
                    status = await self._until_mark(self._process, command, mark, capture)
            except BrokenPipeError:
                end = f"the shell had ended, so nothing was run; {_NEW_NEXT}"
            except TimeoutError:
                end = f"killed after {seconds:g} s: time-out; the shell ended with it, {_NEW_NEXT}"
            finally:
                if status is None:
                    await self._end()
            if capture.endless:
                end = f"killed: output without end; the shell ended with it, {_NEW_NEXT}"
            end = end if status is None else f"exit code {status}"
            return ToolOutput(with_end(capture.text(), end), is_error=status != 0)

    async def restart(self) -> None:
        """Ends the shell with all that it started; the next command begins in a new one."""
        async with self._lock:
            await self._end()

    async def _until_mark(self, process: Process, command: str, mark: str, capture: Capture) -> int | None:
        """The command's exit code; None where the shell ended, or was not to be waited for.

        Raises BrokenPipeError where the shell ended since the last command.
        """
        line = re.compile(rb"\n%s (\d+)\n" % mark.encode())
        longest = len(mark) + 8
        seen, self._early = self._early, b""
        sent = f"command eval {shlex.quote(command)} </dev/null\ncommand printf '\\n{mark} %d\\n' $?\n"
        try:
            await process.write(sent.encode("utf-8", "replace"))
            while not capture.endless and (data := await process.read()):
                seen += data
                if (found := line.search(seen)) is not None:
                    seen, self._early = seen[: found.start()], seen[found.end() :]
                    return int(found[1])
                capture.data_received(seen[:-longest])
                seen = seen[-longest:]
            return None
        finally:
            capture.data_received(seen)

    async def _end(self) -> None:
        process, self._process, self._early = self._process, None, b""
        if process is not None:
            await process.stop()


async def _shell_session(arguments: dict[str, Any], context: ToolContext) -> str | ToolOutput:
    command, restart = arguments.get("command"), arguments.get("restart", False)
    if command is None and not restart:
        return ToolOutput("error: shell_session: found neither 'command' nor 'restart': true", is_error=True)
    if command is not None and (refused := refusal(_NAME, command)) is not None:
        return refused
    sandbox = await context.sandbox()
    session: ShellSession = context.state.setdefault(_NAME, ShellSession(sandbox))
    if restart:
        await session.restart()
    if command is None:
        return "[the shell is new]"
    return await session.run(command, arguments.get("timeout_seconds", DEFAULT_COMMAND_SECONDS))


SHELL_SESSION = Tool(
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
    needs_sandbox,
)
