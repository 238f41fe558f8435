"""The APIs by name: how agents ask in them, how models are asked in them, and the routes of agents' requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from pytest_agentbench.models.apis import chat, gemini, messages, responses
from pytest_agentbench.models.apis.base import AgentApi, Route, RouteKind
from pytest_agentbench.records.case import ApiName, Model

DIALECTS: Mapping[ApiName, AgentApi] = {
    each.name: each for each in (chat.CHAT, responses.RESPONSES, messages.MESSAGES, gemini.GEMINI)
}

Translation = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class WireProtocol:
    """A protocol as data, and two functions.

    `path` lies below the endpoint's address, `headers` returns those of a request as it was written. `write` turns a
    request of Chat Completions into one of this protocol, `read` a reply into a chat completion; it raises ValueError
    where that is none. `defaults` are request fields where a request does not say otherwise, `stream` are those that
    ask for events. `streamed` is the path of requests for a stream, where it is another one; in both `{model}` is the
    model's name. `limit` is the name of the most tokens to generate, `least` how few of them may be asked for.
    `statuses` says which HTTP status the code of an error would have had that comes in a reply with status 200.
    """

    path: str
    limit: str
    stream: Mapping[str, Any]
    headers: Callable[[Mapping[str, Any], Model], dict[str, str]] = lambda request, model: {}
    write: Translation = dict
    read: Translation = dict
    defaults: Mapping[str, Any] = field(default_factory=dict)
    least: int = 1
    statuses: Mapping[str, int] = field(default_factory=dict)
    streamed: str | None = None


PROTOCOLS: Mapping[ApiName, WireProtocol] = {
    "chat": WireProtocol(
        "/chat/completions", "max_tokens", {"stream": True, "stream_options": {"include_usage": True}}
    ),
    "responses": WireProtocol(
        "/responses",
        "max_output_tokens",
        {"stream": True},
        write=responses.write_request,
        read=responses.read_reply,
        # What a model thought comes back to it sealed: nothing of a run is kept at the endpoint
        defaults={"store": False, "include": ["reasoning.encrypted_content"]},
        least=16,
        statuses=responses.STATUSES,
    ),
    "messages": WireProtocol(
        "/messages",
        "max_tokens",
        {"stream": True},
        messages.choose_headers,
        write=messages.write_request,
        read=messages.read_reply,
        statuses=messages.STATUSES,
    ),
    "gemini": WireProtocol(
        "/models/{model}:generateContent",
        "max_tokens",
        {},
        write=gemini.write_request,
        read=gemini.read_reply,
        statuses=gemini.STATUSES,
        streamed="/models/{model}:streamGenerateContent?alt=sse",
    ),
}


def protocol_of(model: Model) -> WireProtocol:
    """Return the protocol that a model is asked in."""
    return PROTOCOLS["chat" if model.scripted else model.api]


SERVED = (
    "POST /v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens and "
    "/v1beta/models/M:generateContent, :streamGenerateContent, :countTokens, and GET /v1/models"
)
"""What there is, for who asks for anything else."""
_PATH = re.compile(r"(?:/r/(?P<token>[^/]+))?(?P<rest>/.*|)", re.DOTALL)
# Behind any prefix there is `/v1`; without one it may be missing, too
_VERSION = r"(?:.*/v1(?:beta)?)?"
_ASKED = re.compile(_VERSION + r"/(chat/completions|responses|messages)(/count_tokens)?", re.DOTALL)
_GEMINI = re.compile(_VERSION + r"/models/(.+):(generateContent|streamGenerateContent|countTokens)", re.DOTALL)
_MODELS = re.compile(_VERSION + r"/models(?:/(.+))?", re.DOTALL)
_NAMES: Mapping[str, ApiName] = {"chat/completions": "chat", "responses": "responses", "messages": "messages"}


def find_route(method: str, target: str, headers: Mapping[str, str]) -> Route:
    """Return the route of a request by its path, with a query where there is one, and by its headers in lower case."""
    path, _, query = target.partition("?")
    split = _PATH.fullmatch(path)
    token, rest = (split["token"], split["rest"].rstrip("/")) if split else (None, path)
    if method == "POST" and (asked := _ASKED.fullmatch(rest)) is not None:
        name = _NAMES[asked[1]]
        if not asked[2] or name == "messages":
            return Route(name, "count" if asked[2] else "ask", token=token)
    if method == "POST" and (asked := _GEMINI.fullmatch(rest)) is not None:
        stream = asked[2] == "streamGenerateContent"
        in_events = stream and "sse" in parse_qs(query).get("alt", ())
        kind: RouteKind = "count" if asked[2] == "countTokens" else "ask"
        return Route("gemini", kind, unquote(asked[1]), token, stream=in_events, as_list=stream and not in_events)
    spoken = _guess_dialect(rest, headers)
    if method == "GET" and (asked := _MODELS.fullmatch(rest)) is not None:
        return Route(spoken, "models", asked[1] and unquote(asked[1]), token)
    return Route(spoken, "ping" if method == "HEAD" and not rest else "unknown", token=token)


def _guess_dialect(path: str, headers: Mapping[str, str]) -> ApiName:
    """Return the dialect of a route that several have, or none."""
    if "x-goog-api-key" in headers or "/v1beta" in path:
        return "gemini"
    if "anthropic-version" in headers or "/messages" in path:
        return "messages"
    return "responses" if "/responses" in path else "chat"
