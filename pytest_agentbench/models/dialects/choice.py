"""The dialects by name, and the routes that tell them apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote

from pytest_agentbench.models.dialects.base import Dialect, Route, RouteKind
from pytest_agentbench.models.dialects.chat import CHAT
from pytest_agentbench.models.dialects.gemini import GEMINI
from pytest_agentbench.models.dialects.messages import MESSAGES
from pytest_agentbench.models.dialects.responses import RESPONSES
from pytest_agentbench.records.case import ApiName

DIALECTS: Mapping[ApiName, Dialect] = {each.name: each for each in (CHAT, RESPONSES, MESSAGES, GEMINI)}

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
