"""Agents' requests that pass through to an endpoint of the same API, and the changes that they need."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.models.apis.base import Asked, JsonObject
from pytest_agentbench.models.apis.choice import ENDPOINT_APIS
from pytest_agentbench.models.apis.messages import SAMPLING, VERSION
from pytest_agentbench.models.replies import RawReply
from pytest_agentbench.models.spelling import write_request
from pytest_agentbench.records.case import ApiName, Model

REQUEST_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta", "accept", "content-type")
"""Headers of an agent's request that are sent to its endpoint."""
REPLY_HEADERS = ("content-type", "request-id", "retry-after")
"""Headers of an endpoint's reply that are sent to the agent."""
_DROPPED = ("service_tier", "user", "metadata", "safety_identifier")
"""Fields about the user and the service, which the run decides instead of the agent."""
_STORING = frozenset({"chat", "responses"})


@dataclass(slots=True)
class PassedRequest:
    """A request that passes through to an endpoint, and the functions that receive its reply.

    `request` is its internal form, which cassettes compare. `begin` receives the headers of a successful reply, and
    `write` the pieces of its body. After `begun` the request is not repeated. `refused` is the last reply with an error
    status.
    """

    api: ApiName
    body: bytes
    headers: Mapping[str, str]
    request: Mapping[str, Any]
    stream: bool
    begin: Callable[[Mapping[str, str]], Awaitable[None]]
    write: Callable[[bytes], Awaitable[None]]
    begun: bool = False
    refused: RawReply | None = None

    async def open(self, headers: Mapping[str, str]) -> None:
        """Begin the reply to the agent."""
        self.begun = True
        await self.begin(select_headers(headers, REPLY_HEADERS))


def select_headers(headers: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the headers whose names are in `names`."""
    return {name: value for name in names if (value := headers.get(name)) is not None}


def rewrite_request(
    name: ApiName,
    body: bytes,
    parsed: JsonObject,
    asked: Asked,
    model: Model,
    parameters: Mapping[str, Any],
    contents: Any = None,
) -> bytes:
    """Return the body for the endpoint, which is `body` if nothing must change.

    `parsed` is the parsed body, and `asked` its internal form. The run's `parameters`, by the names of Chat
    Completions, override the agent's, which override the model's. `contents` replace Gemini's contents.
    """
    sent = {field: value for field, value in parsed.items() if field not in _DROPPED}
    if name != "gemini":  # the model is in the path of Gemini's requests
        sent["model"] = model.requested_model
    if name in _STORING and (name == "responses" or sent.get("store")):
        sent["store"] = False
    if name == "chat" and sent.get("stream"):
        sent["stream_options"] = {**(sent.get("stream_options") or {}), "include_usage": True}
    if contents is not None:
        sent["contents"] = contents
    if asked.server_tools:
        _remove_tools(sent, frozenset(asked.server_tools))
    # In this order of precedence: the run's parameters, the agent's fields, the parameters of the model's entry.
    for field, value in _spell(name, model.parameters).items():
        sent[field] = _join(value, sent.get(field))
    for field, value in _spell(name, parameters).items():
        sent[field] = _join(sent.get(field), value)
    # Numbers that Python cannot represent survive only if nothing else changes.
    if sent == parsed:
        return body
    return write_request(sent)


def rewrite_headers(
    name: ApiName, headers: Mapping[str, str], body: bytes, parsed: JsonObject, model: Model
) -> Mapping[str, str]:
    """Return the headers for the endpoint. `body` is the rewritten body, and `parsed` the agent's parsed body.

    An agent's version of Anthropic's API stays, unless models.yaml sets one, or the run adds sampling parameters
    that this version refuses.
    """
    if name != "messages":
        return headers
    sent = json.loads(body)
    added = {field for field in SAMPLING & sent.keys() if parsed.get(field) != sent[field]}
    if VERSION in headers and model.anthropic_version is None and not added:
        return headers
    return {**headers, **ENDPOINT_APIS[name].headers(sent, model)}


def _join(below: Any, above: Any) -> Any:
    """Return the value of a field of which `above` overrides `below`. Objects are merged."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **above}
    if above is None:
        return below
    return above


def _spell(name: ApiName, parameters: Mapping[str, Any]) -> JsonObject:
    """Return parameters with the names and shapes of the API."""
    if not parameters:
        return {}
    write = ENDPOINT_APIS[name].write
    # A field of every request is no parameter, unless a parameter changes it.
    without, written = write({"messages": []}), write({"messages": [], **parameters})
    return {field: value for field, value in written.items() if without.get(field) != value}


def _remove_tools(request: JsonObject, names: frozenset[str]) -> None:
    """Remove the tools that the provider would run: keys of Gemini's tools, or types of other APIs' tools."""
    tools = [
        {field: value for field, value in tool.items() if field not in names}
        for tool in request.get("tools") or ()
        if tool.get("type") not in names
    ]
    request["tools"] = [tool for tool in tools if tool]
    for field in names & request.keys():
        del request[field]


class UsageFilter:
    """A filter for streams of Chat Completions that removes the chunk with the usage."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, part: bytes) -> bytes:
        """Return the complete events so far, without the usage."""
        *events, self._rest = _EVENT.split(self._rest + part)
        # The pattern is a group, so the list alternates between events and the blank lines that end them.
        pairs = zip(events[::2], events[1::2], strict=True)
        return b"".join(event + end for event, end in pairs if not _is_usage(event))

    def finish(self) -> bytes:
        """Return the rest of the stream."""
        rest, self._rest = self._rest, b""
        return rest


_EVENT = re.compile(rb"(\r?\n\r?\n)")


def _is_usage(event: bytes) -> bool:
    """Return whether an event contains only the usage."""
    if b'"usage"' not in event:
        return False
    try:
        chunk = json.loads(event.partition(b"data:")[2])
    except ValueError:
        return False
    return isinstance(chunk, dict) and bool(chunk.get("usage")) and chunk.get("choices") == []
