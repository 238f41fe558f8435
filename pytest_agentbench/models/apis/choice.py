"""The APIs by name, and the routes of agents' requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote

from pytest_agentbench.models.apis import chat, gemini, messages, responses
from pytest_agentbench.models.apis.base import AgentApi, EndpointApi, Route
from pytest_agentbench.records.case import ApiName, Model

_MODULES = (chat, responses, messages, gemini)
AGENT_APIS: Mapping[ApiName, AgentApi] = {module.AGENT.name: module.AGENT for module in _MODULES}
ENDPOINT_APIS: Mapping[ApiName, EndpointApi] = {module.AGENT.name: module.ENDPOINT for module in _MODULES}

SERVED = (
    "POST /v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens and "
    "/v1beta/models/M:generateContent, :streamGenerateContent, :countTokens, and GET /v1/models"
)
"""The existing routes, for the error about an unknown route."""
_PATH = re.compile(r"(?:/r/(?P<token>[^/]+))?(?P<rest>/.*|)", re.DOTALL)
# The prefix `/v1` may follow any path, and may be missing if there is no path before it.
_VERSION = r"(?:.*/v1(?:beta)?)?"
_ASKED = re.compile(_VERSION + r"/(chat/completions|responses|messages)(/count_tokens)?", re.DOTALL)
_GEMINI = re.compile(_VERSION + r"/models/(.+):(generateContent|streamGenerateContent|countTokens)", re.DOTALL)
_MODELS = re.compile(_VERSION + r"/models(?:/(.+))?", re.DOTALL)
_NAMES: Mapping[str, ApiName] = {"chat/completions": "chat", "responses": "responses", "messages": "messages"}


def find_route(method: str, target: str, headers: Mapping[str, str]) -> Route:
    """Return the route of a request. `target` is its path with an optional query, `headers` have lower-case names."""
    path, _, query = target.partition("?")
    token, rest = None, path
    if (match := _PATH.fullmatch(path)) is not None:
        token, rest = match["token"], match["rest"].rstrip("/")
    if method == "POST" and (match := _ASKED.fullmatch(rest)) is not None:
        name = _NAMES[match[1]]
        if not match[2]:
            return Route(name, "ask", token=token)
        if name == "messages":
            return Route(name, "count", token=token)
    if method == "POST" and (match := _GEMINI.fullmatch(rest)) is not None:
        model, action = unquote(match[1]), match[2]
        if action == "countTokens":
            return Route("gemini", "count", model, token)
        stream = action == "streamGenerateContent"
        in_events = stream and "sse" in parse_qs(query).get("alt", ())
        return Route("gemini", "ask", model, token, stream=in_events, as_list=stream and not in_events)
    api = _guess_api(rest, headers)
    if method == "GET" and (match := _MODELS.fullmatch(rest)) is not None:
        return Route(api, "models", match[1] and unquote(match[1]), token)
    if method == "HEAD" and not rest:
        return Route(api, "ping", token=token)
    return Route(api, "unknown", token=token)


def _guess_api(path: str, headers: Mapping[str, str]) -> ApiName:
    """Return the most likely API of a path that several APIs share or that none has."""
    if "x-goog-api-key" in headers or "/v1beta" in path:
        return "gemini"
    if "anthropic-version" in headers or "/messages" in path:
        return "messages"
    if "/responses" in path:
        return "responses"
    return "chat"


def find_endpoint_api(model: Model) -> EndpointApi:
    """Return the API of the requests to a model. Scripted models are asked in Chat Completions."""
    return ENDPOINT_APIS["chat" if model.scripted else model.api]
