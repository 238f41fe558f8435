"""Requests of agents over HTTP, and the app that answers them from scripts, offline, in the dialect they ask in.

Requests are taken in with a bound; replies and errors go out as responses or streams of events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from pytest_agentbench.bounded.json_files import lies_deep
from pytest_agentbench.models.apis.base import RequestRefused, Route, require_model
from pytest_agentbench.models.apis.chat import list_events, wants_usage
from pytest_agentbench.models.apis.choice import AGENT_APIS, SERVED, find_route
from pytest_agentbench.models.completions import (
    EVENT_STREAM,
    answer_scripted,
    complete_scripted,
    count_tokens,
    parse_object,
    read_request,
    refuse_large,
)
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.records.case import ApiName

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_MOST_LEVELS = 100


class JSONReply(Response):
    """A whole response in JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Return the JSON in ASCII."""
        # Not JSONResponse: it fails at lone surrogates, which the model's name in a request may hold.
        return json.dumps(content).encode()


async def read_body(request: Request) -> bytes:
    """Return the whole request. Raises RequestRefused if it is larger than 32 MB, or cut off."""
    body = bytearray()
    try:
        async for piece in request.stream():  # counted as it comes: its `body()` takes any length
            body += piece
            refuse_large(len(body))
    except ClientDisconnect as error:
        raise RequestRefused(400, "the request is cut off", "invalid_request") from error
    return bytes(body)


def respond_with_refusal(refused: RequestRefused, name: ApiName = "chat") -> Response:
    """Return the response with the reason, in the dialect's form."""
    body = AGENT_APIS[name].error(refused.status, refused.code, str(refused))
    return JSONReply(body, refused.status, refused.headers)


def _respond_with_events(events: Iterable[bytes]) -> Response:
    """Return a stream of events."""

    async def stream() -> AsyncIterator[bytes]:  # Starlette takes each step of another iterator to a thread
        for event in events:
            yield event

    return StreamingResponse(stream(), headers=EVENT_STREAM)


def scripted_app(scripts: Scripts, *, latency_seconds: float = 0.0) -> ASGIApp:
    """Serve the scripts' answers in every dialect, streaming too, with lists of models and counts of tokens; each
    answer waits `latency_seconds`.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        target = f"{scope['path']}?{request.url.query}"
        route = find_route(request.method, target, request.headers)
        try:
            # Read before the route is looked at: a client that still sends does not see an early refusal.
            body = await read_body(request)
            if latency_seconds:
                await asyncio.sleep(latency_seconds)
            response = await _respond(scripts, route, request, body)
        except RequestRefused as refused:
            response = respond_with_refusal(refused, route.api)
        await response(scope, receive, send)

    return app


async def _respond(scripts: Scripts, route: Route, request: Request, body: bytes) -> Response:
    api = AGENT_APIS[route.api]
    if route.kind == "ping":
        return Response()
    if route.kind == "models":
        return JSONReply(api.list_models("demo") if route.model is None else api.describe_model(route.model))
    if route.kind == "unknown":
        message = f"{request.method} {request.scope['path']} is not served; there are {SERVED}"
        raise RequestRefused(404, message, "unknown_route")
    if api.name == "chat":
        chat_request = read_request(body)
        completion = await complete_scripted(scripts, chat_request, request.headers, body)
        if not chat_request.get("stream"):
            return JSONReply(completion)
        return _respond_with_events(list_events(completion, include_usage=wants_usage(chat_request)))
    sent = parse_object(body)
    if lies_deep(sent, _MOST_LEVELS):
        raise RequestRefused(400, f"the request nests deeper than {_MOST_LEVELS} levels", "invalid_request")
    asked = api.read(sent, route)
    if api.name == "responses":
        require_model(asked)  # Open Responses requires it; the other APIs always accepted requests without a model here
    if route.kind == "count":
        return JSONReply(api.count(count_tokens(asked.messages)))
    reply = await answer_scripted(scripts, asked, request.headers)
    if asked.stream:
        return _respond_with_events(api.events(reply, asked))
    return JSONReply(api.write(reply, asked))
