"""Serve a chat-completions endpoint on loopback that fails on purpose, for tests of its clients.

    with FaultEndpoint(in_order("429", "500")) as endpoint:
        ...  # endpoint.base_url; each conversation fails twice, then gets "answer to <last user message>"
    assert len(endpoint.requests) == 3

The fault of a request depends on its last user message and on the number of earlier requests with that message, never
on timing.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from pytest_agentbench.models.apis.base import write_event
from pytest_agentbench.models.apis.chat import list_events, wants_usage
from pytest_agentbench.models.prompts import message_text

Choose = Callable[[str, int], str]
"""Choose the name of a fault by the last user message and the number of its earlier requests; `ok` is no fault."""

TRANSIENT = ("429", "429-retry-after", "500", "503", "cut", "cut-body", "malformed", "no-choices")

_ERRORS = {
    "400": (400, "Unsupported parameter: 'banana'", "invalid_request_error"),
    "context": (400, "This model's maximum context length is 4096 tokens", "context_length_exceeded"),
    "filtered": (400, "The prompt was flagged", "content_filter"),
    "401": (401, "Incorrect API key provided", "invalid_api_key"),
    "403": (403, "You may not use this model", "forbidden"),
    "404": (404, "The model does not exist", "model_not_found"),
    "408": (408, "Request timed out upstream", "timeout"),
    "429": (429, "Rate limit reached", "rate_limit_exceeded"),
    "429-retry-after": (429, "Rate limit reached", "rate_limit_exceeded"),
    "429-retry-date": (429, "Rate limit reached", "rate_limit_exceeded"),
    "quota": (429, "You exceeded your current quota", "insufficient_quota"),
    "500": (500, "The server had an error", "server_error"),
    "503": (503, "Overloaded", "overloaded"),
}


_PAGES = {
    "html": (200, "text/html", b"<html><title>Welcome to the proxy</title></html>"),
    "html-404": (404, "text/html; charset=utf-8", b"<html>404 Not Found</html>"),
    "text": (200, "text/plain", b"upstream connect error"),
}


def always(fault: str) -> Choose:
    return lambda message, nth: fault


def in_order(*faults: str) -> Choose:
    """Return faults for each conversation in this order; later requests succeed."""
    return lambda message, nth: faults[nth] if nth < len(faults) else "ok"


def share_of(rate: float, faults: tuple[str, ...] = TRANSIENT, *, seed: int = 0, in_a_row: int | None = 5) -> Choose:
    """Return one of `faults` for the share `rate` of all requests, at most `in_a_row` for a conversation."""

    def choose(message: str, nth: int) -> str:
        draw = random.Random(f"{seed}|{message}|{nth}")
        if nth == in_a_row:
            return "ok"
        return draw.choice(faults) if draw.random() < rate else "ok"

    return choose


@dataclass
class Request:
    message: str
    fault: str
    body: dict
    headers: dict[str, str]
    target: str
    at: float = field(default_factory=time.monotonic)


@dataclass
class FaultEndpoint:
    choose: Choose = lambda message, nth: "ok"
    latency: float = 0.0
    delays: Mapping[str, float] = field(default_factory=dict)
    """Further seconds of latency, by the last user message."""
    quick: frozenset[str] = frozenset()
    """Faults that are answered without the latency, as by a firewall."""
    retry_after: float = 0.02
    answer: Callable[[dict], dict] = lambda body: {"role": "assistant", "content": f"answer to {last_user(body)}"}
    """The message for a request; with a finish_reason where that is not the usual one."""
    capacity: int | None = None
    """More requests than this at once meet a 429."""
    sent_headers: dict[str, str] = field(default_factory=dict)
    """Further headers of each completion."""

    requests: list[Request] = field(default_factory=list)
    peak: int = 0
    connections: int = 0

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables that name the endpoint as the judge of research commands."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": "no-key-needed", "OPENAI_MODEL": "judge"}

    def judge_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the endpoint the judge of the research commands of a test."""
        for name, value in self.environ.items():
            monkeypatch.setenv(name, value)

    def __enter__(self) -> FaultEndpoint:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._sent: Counter[str] = Counter()
        self._active = 0
        self._tasks: set[asyncio.Task] = set()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048))
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    def __exit__(self, *exc: object) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def faults(self) -> Counter[str]:
        """Return how often each fault occurred."""
        return Counter(request.fault for request in self.requests)

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(task := asyncio.current_task())
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. Return False if the connection has to be closed."""
        line, *head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        message = last_user(body)
        self._active += 1
        self.peak = max(self.peak, self._active)
        try:
            fault = self.choose(message, self._sent[message])
            if self.capacity is not None and self._active > self.capacity:
                fault = "429"
            self._sent[message] += 1
            self.requests.append(Request(message, fault, body, headers, line.split()[1]))
            if self.latency and fault not in self.quick:
                await asyncio.sleep(self.latency + self.delays.get(message, 0))
            return await self._respond(writer, fault, body)
        finally:
            self._active -= 1

    async def _respond(self, writer: asyncio.StreamWriter, fault: str, body: dict) -> bool:
        if fault == "cut":
            return False
        if fault == "hang":
            await asyncio.Event().wait()
        if body.get("stream") and fault not in {*_ERRORS, *_PAGES}:
            return await self._stream(writer, fault, body)
        completion = b"" if fault in _ERRORS else json.dumps(self._completion(body, fault)).encode()
        if fault in ("slow-body", "cut-body"):
            writer.write(_response(200, completion)[: -len(completion) // 2])
            await writer.drain()
            while fault == "slow-body":  # always a little more, so that no read ever times out
                await asyncio.sleep(0.02)
                writer.write(b" ")
                await writer.drain()
            return False
        writer.write(self._whole(fault, completion))
        await writer.drain()
        return True

    async def _stream(self, writer: asyncio.StreamWriter, fault: str, body: dict) -> bool:
        """Send the completion as events, each in a chunk of the body, with a fault after the first words."""
        writer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

        async def write(event: bytes) -> None:
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()

        for at, event in enumerate(list_events(self._completion(body, fault), include_usage=wants_usage(body))):
            if fault == "comments":
                await write(b": PROCESSING\n\n")
            if at == 2 and fault == "stall":
                await asyncio.Event().wait()
            while at == 2 and fault == "stall-comments":
                await asyncio.sleep(0.02)
                await write(b": PROCESSING\n\n")
            if at == 2 and fault == "error-chunk":
                event = write_event({"error": {"code": 502, "message": "Provider disconnected"}, "choices": []})
            if at == 2 and fault == "garbage-chunk":
                event = b"data: {half\n\n"
            if at == 2 and fault == "cut-stream":
                return False
            if at == 2 and fault == "done-stream":
                await write(b"data: [DONE]\n\n")
            if at == 2 and fault in ("ended-stream", "done-stream"):
                break
            while at == 2 and fault == "endless":
                await write(b": PROCESSING" + b"." * 2**20 + b"\n\n")
            await write(event)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _whole(self, fault: str, completion: bytes) -> bytes:
        if fault in _ERRORS:
            status, said, code = _ERRORS[fault]
            extra = {}
            if fault == "429-retry-after":
                extra = {"retry-after": f"{self.retry_after:g}"}
            if fault == "429-retry-date":
                extra = {"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)}
            return _response(status, json.dumps({"error": {"message": said, "code": code}}).encode(), **extra)
        if fault == "malformed":
            return _response(200, completion[: len(completion) // 2])
        if fault in _PAGES:
            status, kind, page = _PAGES[fault]
            return _response(status, page, **{"content-type": kind})
        return _response(200, completion, **self.sent_headers)

    def _completion(self, body: dict, fault: str) -> dict:
        if fault == "error-inside":
            return {"error": {"code": 502, "message": "Upstream provider failed"}}
        message = dict(self.answer(body))
        finished = message.pop("finish_reason", "tool_calls" if "tool_calls" in message else "stop")
        choice = {"index": 0, "message": message, "finish_reason": finished}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": body.get("model"),
            "choices": [] if fault == "no-choices" else [choice],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }


def last_user(body: dict) -> str:
    texts = [message_text(m) for m in body.get("messages", ()) if m["role"] == "user"]
    return texts[-1] if texts else ""


def _response(status: int, body: bytes, **headers: str) -> bytes:
    headers = {"content-type": "application/json", "content-length": str(len(body))} | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body
