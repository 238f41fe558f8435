"""Chat completions over HTTP as a server speaks them, and the app that answers them from scripts, offline.

Requests are taken in with a bound; completions and errors go out as responses or streams of events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from pytest_agentbench.models.completions import (
    EVENT_STREAM,
    complete_scripted,
    read_request,
    refuse_large,
)
from pytest_agentbench.models.dialects.base import RequestRefused
from pytest_agentbench.models.dialects.chat import error, list_events, list_models, wants_usage
from pytest_agentbench.models.scripts import Scripts

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class JSONReply(Response):
    """A whole response in JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Return the JSON in ASCII."""
        # Not JSONResponse: it fails at lone surrogates, which the model's name in a request may hold.
        return json.dumps(content).encode()


def asks_for_models(request: Request) -> bool:
    """Return whether the list of models is asked for, else a completion. Raises RequestRefused for any other route."""
    route = (request.method, request.scope["path"].rstrip("/"))
    if route not in (("GET", "/v1/models"), ("POST", "/v1/chat/completions")):
        message = (
            f"{route[0]} {request.scope['path']} is not served; there are POST /v1/chat/completions and GET /v1/models"
        )
        raise RequestRefused(404, message, "unknown_route")
    return route[0] == "GET"


async def read_body(request: Request) -> bytes:
    """Return the whole request. Raises RequestRefused where it is larger than 32 MB, or cut off."""
    body = bytearray()
    try:
        async for piece in request.stream():  # counted as it comes: its `body()` takes any length
            body += piece
            refuse_large(len(body))
    except ClientDisconnect as error:
        raise RequestRefused(400, "the request is cut off", "invalid_request") from error
    return bytes(body)


def respond_with_refusal(refused: RequestRefused) -> Response:
    """Return the response that says why."""
    return JSONReply(error(refused.status, refused.code, str(refused)), refused.status, refused.headers)


def respond_with_models(name: str) -> Response:
    """Return the list of models: this one."""
    return JSONReply(list_models(name))


def respond_with_completion(completion: Mapping[str, Any], request: Mapping[str, Any]) -> Response:
    """Return a completion, as a stream of events where the request wants one."""
    if not request.get("stream"):
        return JSONReply(completion)

    async def stream() -> AsyncIterator[bytes]:  # Starlette takes each step of another iterator to a thread
        for event in list_events(completion, include_usage=wants_usage(request)):
            yield event

    return StreamingResponse(stream(), headers=EVENT_STREAM)


def scripted_app(scripts: Scripts, *, latency_seconds: float = 0.0) -> ASGIApp:
    """Serve `POST /v1/chat/completions` (streaming too) and `GET /v1/models`; each answer waits `latency_seconds`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            # Read before the route is looked at: a client that still sends does not see an early refusal.
            body = await read_body(request)
            if latency_seconds:
                await asyncio.sleep(latency_seconds)
            if asks_for_models(request):
                response = respond_with_models("demo")
            else:
                wanted = read_request(body)
                completion = await complete_scripted(scripts, wanted, request.headers, body)
                response = respond_with_completion(completion, wanted)
        except RequestRefused as refused:
            response = respond_with_refusal(refused)
        await response(scope, receive, send)

    return app
