"""Serve an ACP agent's requests for files and commands in the run's sandbox."""

from __future__ import annotations

import asyncio
import itertools
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.runners.acp.connection import BAD_PARAMS, FAILED, ReplyError
from pytest_agentbench.runners.acp.fields import ClientServices
from pytest_agentbench.runners.base import Recorder, clean
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox

_MOST_FILE = 10 * 2**20
_MOST_OUTPUT = 2**20
_MOST_TERMINALS = 32
_SECONDS = 86_400.0
"""Maximum seconds of a command: the time limit of the run ends it earlier."""

_SHOWN = 500


@dataclass(slots=True)
class _Terminal:
    """A command, whose output is available at its end."""

    running: asyncio.Task[ExecResult]
    limit: int
    killed: bool = False


class SandboxServices:
    """The client's files and terminals. Paths are absolute and in the workspace; commands run in the sandbox.

    The event loop owns the terminals, until `close` ends them.
    """

    def __init__(self, offered: ClientServices, sandbox: Sandbox, workspace: str, trace: Recorder) -> None:
        self._offered, self._sandbox, self._workspace, self._trace = offered, sandbox, workspace, trace
        self._terminals: dict[str, _Terminal] = {}
        self._numbers = itertools.count(1)

    @property
    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities that the agent is told."""
        fs = self._offered.fs
        return {"fs": {"readTextFile": fs, "writeTextFile": fs}, "terminal": self._offered.terminal}

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the reply, or None for a method that is not served. Raises ReplyError."""
        if method.startswith("fs/") and self._offered.fs:
            serve = {"fs/read_text_file": self._read, "fs/write_text_file": self._write}.get(method)
        elif method.startswith("terminal/") and self._offered.terminal:
            serve = {
                "terminal/create": self._create,
                "terminal/output": self._output,
                "terminal/wait_for_exit": self._wait,
                "terminal/kill": self._kill,
                "terminal/release": self._release,
            }.get(method)
        else:
            return None
        if serve is None:
            return None
        named = [name for name in ("path", "command", "terminalId") if name in params]
        about = {name: str(clean(params[name]))[:_SHOWN] for name in named}
        self._trace.event("client_request", method=method, **about)
        return await serve(params)

    async def close(self) -> None:
        """End all commands."""
        for terminal in self._terminals.values():
            terminal.running.cancel()
        await asyncio.gather(*(each.running for each in self._terminals.values()), return_exceptions=True)

    async def _read(self, params: Mapping[str, Any]) -> dict[str, Any]:
        path = self._find_path(params.get("path"))
        try:
            text = (await self._sandbox.get(path, _MOST_FILE)).decode("utf-8", "replace")
        except PathRefusedError as error:
            raise ReplyError(BAD_PARAMS, str(error)) from error
        except OSError as error:
            raise ReplyError(FAILED, f"{path}: {error.strerror or error}") from error
        line, limit = params.get("line"), params.get("limit")
        if isinstance(line, int) or isinstance(limit, int):
            lines = text.splitlines(keepends=True)
            first = max(0, line - 1) if isinstance(line, int) else 0
            text = "".join(lines[first : first + limit if isinstance(limit, int) else None])
        return {"content": text}

    async def _write(self, params: Mapping[str, Any]) -> dict[str, Any]:
        path, content = self._find_path(params.get("path")), params.get("content")
        if not isinstance(content, str):
            raise ReplyError(BAD_PARAMS, f"content: found {type(content).__name__}, expected a text")
        encoded = content.encode("utf-8", "replace")
        if len(encoded) > _MOST_FILE:
            raise ReplyError(BAD_PARAMS, f"content: found {len(encoded):,} bytes, expected at most {_MOST_FILE:,}")
        try:
            await self._sandbox.put(path, encoded)
        except PathRefusedError as error:
            raise ReplyError(BAD_PARAMS, str(error)) from error
        except OSError as error:
            raise ReplyError(FAILED, f"{path}: {error.strerror or error}") from error
        return {}

    async def _create(self, params: Mapping[str, Any]) -> dict[str, Any]:
        command, args, cwd = params.get("command"), params.get("args") or [], params.get("cwd")
        if not isinstance(command, str) or not isinstance(args, list):
            raise ReplyError(BAD_PARAMS, "command: expected a text, and args a list of texts")
        if len(self._terminals) >= _MOST_TERMINALS:
            raise ReplyError(FAILED, f"there are {_MOST_TERMINALS} terminals; release one")
        folder = self._workspace if cwd is None else self._find_path(cwd)
        limit = params.get("outputByteLimit")
        bound = min(limit, _MOST_OUTPUT) if isinstance(limit, int) and limit > 0 else _MOST_OUTPUT
        # Agents send a line of a shell with no `args`, or a program with its arguments
        argv = [command, *map(str, args)] if args else ["/bin/sh", "-c", command]
        running = asyncio.create_task(
            self._sandbox.exec(
                argv, seconds=_SECONDS, output_limit=bound, environment=_read_variables(params.get("env")), cwd=folder
            )
        )
        terminal_id = f"terminal-{next(self._numbers)}"
        self._terminals[terminal_id] = _Terminal(running, bound)
        return {"terminalId": terminal_id}

    async def _output(self, params: Mapping[str, Any]) -> dict[str, Any]:
        terminal = self._find_terminal(params)
        if not terminal.running.done() or terminal.killed:
            status = {"exitStatus": {"signal": "SIGKILL"}} if terminal.killed else {}
            return {"output": "", "truncated": False, **status}
        done = terminal.running.result()
        return {"output": done.output, "truncated": done.truncated, "exitStatus": _describe_exit(done)}

    async def _wait(self, params: Mapping[str, Any]) -> dict[str, Any]:
        terminal = self._find_terminal(params)
        await asyncio.wait((terminal.running,))
        return {"signal": "SIGKILL"} if terminal.killed else _describe_exit(terminal.running.result())

    async def _kill(self, params: Mapping[str, Any]) -> dict[str, Any]:
        terminal = self._find_terminal(params)
        if not terminal.running.done():
            terminal.killed = True
            terminal.running.cancel()
            await asyncio.wait((terminal.running,))
        return {}

    async def _release(self, params: Mapping[str, Any]) -> dict[str, Any]:
        await self._kill(params)
        del self._terminals[str(params.get("terminalId"))]
        return {}

    def _find_terminal(self, params: Mapping[str, Any]) -> _Terminal:
        terminal = self._terminals.get(str(params.get("terminalId")))
        if terminal is None:
            raise ReplyError(BAD_PARAMS, "terminalId: there is no such terminal")
        return terminal

    def _find_path(self, path: Any) -> str:
        """Return a path of the workspace relative to it. Raises ReplyError for any other."""
        if not isinstance(path, str) or not posixpath.isabs(path):
            raise ReplyError(BAD_PARAMS, f"path: found {str(path)[:_SHOWN]!r}, expected an absolute path")
        relative = posixpath.relpath(posixpath.normpath(path), self._workspace)
        if relative == ".." or relative.startswith("../"):
            raise ReplyError(BAD_PARAMS, f"path: {path[:_SHOWN]!r} is outside of the workspace {self._workspace}")
        return relative


def _describe_exit(done: ExecResult) -> dict[str, Any]:
    if done.exit_code is None:
        return {"signal": "SIGKILL"}
    return {"exitCode": done.exit_code}


def _read_variables(env: Any) -> dict[str, str]:
    entries = [entry for entry in env if isinstance(entry, Mapping)] if isinstance(env, list) else []
    return {str(entry["name"]): str(entry.get("value", "")) for entry in entries if "name" in entry}
