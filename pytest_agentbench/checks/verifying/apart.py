"""The solution in a second sandbox: a verifier requests calls of it and gets plain data back.

The verifier's sandbox has the hidden files and nothing of the agent. The solution's sandbox has the agent's files, and
neither hidden files nor a connection to the verifier. The two share no folder, no process and no user that could see
both: requests come through a socket of the verifier's sandbox, and this process runs each of them in the solution's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pytest_agentbench.checks.base import loads
from pytest_agentbench.checks.verifying.verifiers import private_path
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import Connection, Sandbox

HELPER = Path(__file__).with_name("agentbench_solution.py")
"""The module by which hidden files ask."""

_CALLER = Path(__file__).with_name("solution_caller.py")
_FOLDER, _SOCKET = "agentbench", "solution"
_MAX_REQUEST = 8 * 2**20
_MAX_OUTPUT = 2**20
_MAX_FILE = 8 * 2**20


class _Refused(Exception):
    """Error text that the verifier gets in place of a result."""


class SolutionServer:
    """Server for one verifier's requests. `trouble` is a failure of the solution's sandbox, which is no verdict."""

    def __init__(self, solution: Sandbox, python: str, seconds: float) -> None:
        self.trouble: SandboxError | None = None
        self._solution, self._python, self._seconds = solution, python, seconds
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, connection: Connection) -> None:
        """Read one request, and write its reply."""
        request = bytearray()
        while b"\n" not in request:
            data = await connection.read()
            request += data
            if not data or len(request) > _MAX_REQUEST:  # it has gone, or asks for too much
                return
        try:
            document = json.loads(request.partition(b"\n")[0])
        except (ValueError, RecursionError):
            return
        await connection.write(json.dumps(await self._reply(document)).encode("ascii") + b"\n")

    async def _reply(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        does = {"call": self._call, "run": self._run, "read": self._read}
        try:
            async with self._one_at_a_time:
                return await does[request["do"]](request)
        except _Refused as refused:
            return {"error": str(refused)}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return {"error": f"the request is not understood: {type(error).__name__}: {error}"}
        except SandboxError as error:
            self.trouble = self.trouble or error
            return {"error": str(error)}

    async def _call(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        # The solution's own output comes before the mark, so no line of it can be mistaken for the result.
        mark = secrets.token_hex(16)
        request = {name: call[name] for name in ("function", "arguments", "named", "pythonpath")}
        stdin = json.dumps({"mark": mark, **request}).encode("ascii") + b"\n"
        ended = await self._run_in_it([self._python, "-I", "-B", "-c", _caller()], stdin, call["seconds"])
        printed, separator, text = ended["output"].rpartition(mark)
        if not separator:
            output = printed or text
            raise _Refused(f"it ended with exit code {ended['exit_code']} and returned nothing: {output[-2000:]}")
        try:
            reply = loads(text)
        except ValueError as error:
            raise _Refused(f"it returned something other than plain data: {error}") from error
        if isinstance(reply, dict):
            return reply
        return {"error": "it returned something other than plain data"}

    async def _run(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._run_in_it(request["argv"], base64.b64decode(request["stdin"]), request["seconds"])

    async def _read(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            content = await self._solution.get(str(request["path"]), _MAX_FILE)
        except (PathRefusedError, OSError) as error:
            raise _Refused(f"{type(error).__name__}: {error}") from error
        return {"content": base64.b64encode(content).decode("ascii")}

    async def _run_in_it(self, argv: list[str], stdin: bytes, seconds: float) -> dict[str, Any]:
        seconds = min(seconds, self._seconds)
        ended = await self._solution.exec(
            argv,
            seconds=seconds,
            stdin=stdin,
            output_limit=_MAX_OUTPUT,
            environment={"HOME": private_path(self._solution, "")},
        )
        if ended.killed == "time-out":
            raise _Refused(f"it had not ended after {seconds:g} s")
        if ended.killed is not None:
            raise _Refused(f"it was killed: it broke the sandbox's limit of {ended.killed}")
        return {"exit_code": ended.exit_code, "output": ended.output}


@asynccontextmanager
async def serve_solution(asked: SolutionServer, verifier: Sandbox) -> AsyncIterator[Mapping[str, str]]:
    """Answer the verifier's requests until the block ends. Yield the environment variables with the socket's address.

    Raises SandboxError if no socket can be created.
    """
    await verifier.put(f"/tmp/{_FOLDER}/{HELPER.name}", HELPER.read_bytes())  # noqa: S108 - the sandbox's own
    async with verifier.serve(f"/tmp/{_FOLDER}/{_SOCKET}", asked.answer):  # noqa: S108
        seen = private_path(verifier, _FOLDER)
        yield {"AGENTBENCH_SOLUTION": f"{seen}/{_SOCKET}", "PYTHONPATH": seen}


@cache
def _caller() -> str:
    return _CALLER.read_text(encoding="utf-8")
