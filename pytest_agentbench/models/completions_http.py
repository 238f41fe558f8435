"""The chat-completions protocol as a server speaks it over ASGI: requests read, completions and errors sent."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 32 * 1024 * 1024


class RequestRefused(Exception):
    """A request ends with an HTTP error."""

    def __init__(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}

    def body(self, kind: str) -> dict[str, Any]:
        """Return the error's body as the protocol has it, `kind` its type."""
        return {"error": {"message": str(self), "type": kind, "param": None, "code": self.code}}


def asks_for_models(scope: Scope) -> bool:
    """Return whether the list of models is asked for, else a completion. Raises RequestRefused for any other route."""
    route = (scope["method"], scope["path"].rstrip("/"))
    if route not in (("GET", "/v1/models"), ("POST", "/v1/chat/completions")):
        message = f"{route[0]} {scope['path']} is not served; there are POST /v1/chat/completions and GET /v1/models"
        raise RequestRefused(404, message, "unknown_route")
    return route[0] == "GET"


async def read_body(receive: Receive) -> bytes:
    """Return the whole request. Raises RequestRefused where it is larger than 32 MB."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise RequestRefused(413, f"the request is larger than {MAX_BODY:,} bytes", "too_large")
        if not message.get("more_body"):
            return bytes(body)


def read_request(body: bytes) -> dict[str, Any]:
    """Return the request for a completion, with at least one message. Raises RequestRefused for anything else."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"the request is no JSON: {error}", "invalid_json") from error
    messages = request.get("messages") if isinstance(request, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise RequestRefused(400, "the request needs 'messages', a list of at least one message", "invalid_request")
    return dict(request)


async def send_json(send: Send, status: int, data: object, headers: Mapping[str, str] | None = None) -> None:
    """Send a whole response."""
    body = json.dumps(data).encode()
    length = (b"content-length", str(len(body)).encode())
    extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    await _send_head(send, status, (b"content-type", b"application/json"), length, *extra)
    await send({"type": "http.response.body", "body": body})


async def send_models(send: Send, name: str) -> None:
    """Send the list of models: this one."""
    model = {"id": name, "object": "model", "created": 0, "owned_by": "agentbench"}
    await send_json(send, 200, {"object": "list", "data": [model]})


class EventStream:
    """A response of server-sent events, begun with the first event."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def keep_alive(self) -> None:
        """Send an event without a choice: clients that limit the time between two events do not see comments."""
        await self._event({"object": "chat.completion.chunk", "choices": []})

    async def send_completion(self, completion: Mapping[str, Any], options: object) -> None:
        """Send a whole completion, its text word by word, with usage where the request's `stream_options` want it."""
        head = {key: completion[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
        choice = completion["choices"][0]
        for delta in _split_message(choice["message"]):
            await self._event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        await self._event(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
        if isinstance(options, dict) and options.get("include_usage") and completion.get("usage") is not None:
            await self._event(head | {"choices": [], "usage": completion["usage"]})
        await self._end()

    async def send_refusal(self, body: Mapping[str, Any]) -> None:
        """Send an error, in place of a completion."""
        await self._event(body)
        await self._end()

    async def _event(self, data: Mapping[str, Any]) -> None:
        await self._write(b"data: " + json.dumps(data).encode() + b"\n\n")

    async def _end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _write(self, data: bytes) -> None:
        if not self.begun:
            self.begun = True
            await _send_head(self._send, 200, (b"content-type", b"text/event-stream"))
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


async def _send_head(send: Send, status: int, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


def _split_message(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the message in pieces: its text word by word, the arguments of each call in two, and all else as it is."""
    whole = {name: value for name, value in message.items() if name not in ("content", "tool_calls")}
    yield {**whole, "content": None if message["content"] is None else ""}
    for word in re.findall(r"\s*\S+|\s+$", message["content"] or ""):
        yield {"content": word}
    for index, call in enumerate(message.get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        yield {"tool_calls": [{"index": index, **call, "function": {"name": name, "arguments": ""}}]}
        for piece in (arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
