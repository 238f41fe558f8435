"""An agent's own request on its way through to an endpoint of its dialect: what of it has to change, and no more."""

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
"""Headers of an agent's request that its endpoint gets."""
REPLY_HEADERS = ("content-type", "request-id", "retry-after")
"""Headers of an endpoint's reply that an agent gets."""
DROPPED = ("service_tier", "user", "metadata", "safety_identifier")
"""Fields that are about who asks, and which service: they are the run's, and not the agent's."""
_STORING = frozenset({"chat", "responses"})


@dataclass(slots=True)
class PassedRequest:
    """A request in an agent's own words, and who takes what comes of it.

    `request` is what it asks in the internal form, by which cassettes compare. `begin` takes the headers of a good
    reply, and `write` the pieces of its body as they come: once it has `begun` nothing is asked again. `refused` is the
    last reply with the status of an error.
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
        """Begin the reply for the agent."""
        self.begun = True
        await self.begin(select_headers(headers, REPLY_HEADERS))


def select_headers(headers: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return those of the headers that have one of the names."""
    return {name: value for name in names if (value := headers.get(name)) is not None}


def rewrite_request(
    name: ApiName,
    body: bytes,
    given: JsonObject,
    asked: Asked,
    model: Model,
    parameters: Mapping[str, Any],
    contents: Any = None,
) -> bytes:
    """Return the body of an agent's request as the endpoint gets it: the same bytes where nothing has to change.

    `given` is the body as read, and `asked` what it asks. The run's own `parameters`, by the names of Chat Completions,
    win over the agent's, and these over the model's. `contents` take the place of Gemini's.
    """
    made = {field: value for field, value in given.items() if field not in DROPPED}
    if name != "gemini":  # which names its model in the path
        made["model"] = model.requested_model
    if name in _STORING and (name == "responses" or made.get("store")):
        made["store"] = False
    if name == "chat" and made.get("stream"):
        made["stream_options"] = {**(made.get("stream_options") or {}), "include_usage": True}
    if contents is not None:
        made["contents"] = contents
    if asked.server_tools:
        _remove_tools(made, frozenset(asked.server_tools))
    for field, value in _spell(name, model.parameters).items():
        made[field] = _join(value, made.get(field))
    for field, value in _spell(name, parameters).items():
        made[field] = _join(made.get(field), value)
    # Numbers that Python has no value for stay as they are only where nothing else changes
    return body if made == given else write_request(made)


def rewrite_headers(
    name: ApiName, headers: Mapping[str, str], body: bytes, given: JsonObject, model: Model
) -> Mapping[str, str]:
    """Return the headers of an agent's request as the endpoint gets them: `body` is `given` as it was rewritten.

    An agent's own version of Anthropic's API stays, unless models.yaml says one, or the run adds sampling parameters
    that this version refuses.
    """
    if name != "messages":
        return headers
    sent = json.loads(body)
    added = {field for field in SAMPLING & sent.keys() if given.get(field) != sent[field]}
    if VERSION in headers and model.anthropic_version is None and not added:
        return headers
    return {**headers, **ENDPOINT_APIS[name].headers(sent, model)}


def _join(below: Any, above: Any) -> Any:
    """Return what a field says where one value of it wins over another."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **above}
    return below if above is None else above


def _spell(name: ApiName, parameters: Mapping[str, Any]) -> JsonObject:
    """Return parameters as the dialect has them."""
    write = ENDPOINT_APIS[name].write
    without = write({"messages": []}) if parameters else {}
    written = write({"messages": [], **parameters}) if parameters else {}
    return {field: value for field, value in written.items() if without.get(field) != value}


def _remove_tools(made: JsonObject, names: frozenset[str]) -> None:
    """Take the tools out that the provider would run: Gemini's are keys of a tool, those of others are types."""
    tools = [
        {field: value for field, value in tool.items() if field not in names}
        for tool in made.get("tools") or ()
        if tool.get("type") not in names
    ]
    made["tools"] = [tool for tool in tools if tool]
    for field in names & made.keys():
        del made[field]


class UsageFilter:
    """A stream of Chat Completions without the chunk of its usage, which nobody asked for but the gateway."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, part: bytes) -> bytes:
        """Return the events that are whole by now and may go on."""
        *events, self._rest = _EVENT.split(self._rest + part)
        # Each with the blank line that ends it
        pairs = zip(events[::2], events[1::2], strict=True)
        return b"".join(event + end for event, end in pairs if not _is_usage(event))

    def finish(self) -> bytes:
        """Return what is left of the stream."""
        rest, self._rest = self._rest, b""
        return rest


_EVENT = re.compile(rb"(\r?\n\r?\n)")


def _is_usage(event: bytes) -> bool:
    """Return whether an event is nothing but the usage."""
    if b'"usage"' not in event:
        return False
    try:
        chunk = json.loads(event.partition(b"data:")[2])
    except ValueError:
        return False
    return isinstance(chunk, dict) and bool(chunk.get("usage")) and chunk.get("choices") == []
