"""Exchange JSON-RPC messages with a program, one a line of its stdin and stdout."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_agentbench.runners.base import clean
from pytest_agentbench.runners.gateway.bounds import is_deep, is_plain
from pytest_agentbench.workspaces.sandboxes.base import Process

MOST_LINE = 16 * 2**20
"""Maximum bytes of a message from the agent."""

MOST_BAD_LINES = 1000
"""Maximum lines that are no message: a program may print a few words, not its whole log."""

_MOST_BYTES = 2**30
"""Maximum bytes of all messages, because reading them takes the time of other runs."""

_MOST_REQUESTS = 32
"""Maximum requests of the agent that are answered at the same time."""

_MOST_KEPT, _SHOWN = 20, 200

NOT_FOUND, BAD_PARAMS, FAILED = -32601, -32602, -32603


class ReplyError(Exception):
    """An error reply: of the agent to a request, or of this client to the agent."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ClosedError(Exception):
    """The agent closed its stdout, so it answers nothing more."""


class ProtocolError(Exception):
    """The agent's output is no stream of messages."""


Answer = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Answers a request of the agent, by its method and parameters. May raise ReplyError."""

Notice = Callable[[str, Mapping[str, Any]], None]
"""Receives a notification of the agent."""


@dataclass(slots=True)
class Noise:
    """Output of the agent that nothing here reads: how many lines and messages of each kind, and the first ones."""

    bad_lines: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def add(self, kind: str, text: str) -> None:
        """Count a message of a kind. Further kinds count as `other` once there are many."""
        if kind not in self.counts and len(self.counts) >= _MOST_KEPT:
            kind = "other"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(self.first) < _MOST_KEPT:
            self.first.append(clean(text)[:_SHOWN])


class Connection:
    """The messages of one program. All methods run on the event loop.

    One task reads the program's output from `open` to `close`. It fulfils the futures of requests, and starts a task
    for each request of the agent, so that a slow answer does not delay other messages. If the reading ends, all waiting
    requests raise its reason.
    """

    def __init__(self, process: Process, answer: Answer, notice: Notice) -> None:
        self._process, self._answer, self._notice = process, answer, notice
        self.noise = Noise()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._answering: set[asyncio.Task[None]] = set()
        self._over: Exception | None = None
        self._sending = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to read."""
        self._reading = asyncio.create_task(self._read())

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and return the reply. Raises ReplyError, ClosedError and ProtocolError."""
        number = next(self._numbers)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            if self._over is not None:
                raise self._over
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            result = await reply
        finally:
            del self._waiting[number]
        return result if isinstance(result, Mapping) else {}

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification. Nothing happens if the agent has closed its stdin."""
        try:
            await self._send({"jsonrpc": "2.0", "method": method, "params": params})
        except ClosedError:
            return

    @property
    def errors(self) -> str:
        """Return the program's stderr."""
        return self._process.errors()

    async def close(self, seconds: float) -> None:
        """Close the program's stdin, wait for its end for at most `seconds`, and kill what is left of it."""
        try:
            await self._process.end_input()
            if self._reading is not None:
                await asyncio.wait((self._reading,), timeout=seconds)
        finally:
            await self._process.stop()
            tasks = [*self._answering, *([] if self._reading is None else [self._reading])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps(clean(message), ensure_ascii=False).encode()
        try:
            # One at a time, because a long line is written in several pieces
            async with self._sending:
                await self._process.write(line + b"\n")
        except BrokenPipeError:
            raise ClosedError("it closed its stdin") from None

    async def _read(self) -> None:
        over: Exception = ClosedError("it was stopped")
        try:
            await self._read_lines()
            over = ClosedError("it closed its stdout")
        except Exception as error:  # noqa: BLE001 - requests raise it
            over = error
        finally:
            self._fail(over)

    def _fail(self, reason: Exception) -> None:
        """Let all requests raise the reason, those that wait and later ones."""
        self._over = self._over or reason
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(self._over)

    async def _read_lines(self) -> None:
        """Handle the messages until the end of the output. Raises ProtocolError."""
        rest, size = bytearray(), 0
        while data := await self._process.read():
            size += len(data)
            if size > _MOST_BYTES:
                raise ProtocolError(f"it wrote more than {_MOST_BYTES >> 20:,} MB")
            *lines, last = data.split(b"\n")
            for line in lines:
                rest += line
                self._require_short(rest)
                self._handle(bytes(rest))
                rest.clear()
            rest += last
            self._require_short(rest)
            # A program that writes without pause must not keep the loop from other runs
            await asyncio.sleep(0)
        if rest:
            self._handle(bytes(rest))

    def _require_short(self, line: bytearray) -> None:
        if len(line) > MOST_LINE:
            raise ProtocolError(f"it wrote a line of more than {MOST_LINE >> 20} MB")

    def _handle(self, line: bytes) -> None:
        """Handle one line. Raises ProtocolError for one bad line too many."""
        if not line.strip():
            return
        message = _parse(line)
        if message is None:
            self.noise.bad_lines += 1
            self.noise.add("bad line", line[:_SHOWN].decode("utf-8", "replace"))
            if self.noise.bad_lines > MOST_BAD_LINES:
                first = self.noise.first[0]
                raise ProtocolError(f"more than {MOST_BAD_LINES:,} lines of its stdout are no messages, as: {first}")
            return
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        if not isinstance(params, Mapping):
            params = {}
        if not isinstance(method, str):
            self._fulfil(number, message)
        elif number is None:
            self._notice(method, params)
        else:
            self._begin_answer(number, method, params)

    def _fulfil(self, number: Any, message: Mapping[str, Any]) -> None:
        reply = self._waiting.get(number) if isinstance(number, int) else None
        if reply is None or reply.done():
            self.noise.add("unexpected reply", f"reply to {number!r}")
        elif (error := message.get("error")) is not None:
            reply.set_exception(_read_error(error))
        else:
            reply.set_result(message.get("result"))

    def _begin_answer(self, number: Any, method: str, params: Mapping[str, Any]) -> None:
        task = asyncio.create_task(self._reply(number, method, params))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _reply(self, number: Any, method: str, params: Mapping[str, Any]) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        try:
            if len(self._answering) > _MOST_REQUESTS:
                raise ReplyError(FAILED, f"more than {_MOST_REQUESTS} requests at the same time")
            message["result"] = await self._answer(method, params)
        except ReplyError as error:
            message["error"] = {"code": error.code, "message": str(error)}
        except Exception as error:  # noqa: BLE001 - requests raise it
            self._fail(error)
            return
        try:
            await self._send(message)
        except ClosedError:
            return  # it does not wait for the answer


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line's JSON object, or None for anything else and for JSON that is too large to read quickly."""
    try:
        value = json.loads(line) if is_plain(line) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or is_deep(value):
        return None
    return value


def _read_error(error: Any) -> ReplyError:
    if not isinstance(error, Mapping):
        return ReplyError(FAILED, str(clean(error))[:_SHOWN])
    code, message = error.get("code"), str(error.get("message"))
    parts = [message, *_find_details(error.get("data"))]
    return ReplyError(code if isinstance(code, int) else FAILED, ": ".join(dict.fromkeys(parts))[: 10 * _SHOWN])


def _find_details(data: Any) -> Iterator[str]:
    """Yield texts that explain an error: agents place them in different members."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        yield from (data[name] for name in ("details", "message", "error") if isinstance(data.get(name), str))
