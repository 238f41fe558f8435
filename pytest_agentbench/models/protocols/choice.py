"""The protocol that a model is asked in: where its requests go, how they are written, how its replies are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_agentbench.models.protocols import anthropic, gemini, responses
from pytest_agentbench.records.case import ApiName, Model

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
        read=responses.read_response,
        # What a model thought comes back to it sealed: nothing of a run is kept at the endpoint
        defaults={"store": False, "include": ["reasoning.encrypted_content"]},
        least=16,
        statuses=responses.STATUSES,
    ),
    "messages": WireProtocol(
        "/messages",
        "max_tokens",
        {"stream": True},
        anthropic.choose_headers,
        write=anthropic.write_request,
        read=anthropic.read_message,
        statuses=anthropic.STATUSES,
    ),
    "gemini": WireProtocol(
        "/models/{model}:generateContent",
        "max_tokens",
        {},
        write=gemini.write_request,
        read=gemini.read_response,
        statuses=gemini.STATUSES,
        streamed="/models/{model}:streamGenerateContent?alt=sse",
    ),
}

KEPT = frozenset({responses.ITEMS, anthropic.BLOCKS, gemini.PARTS})
"""Keys of an assistant message that hold what it was made of in its protocol."""


def protocol_of(model: Model) -> WireProtocol:
    """Return the protocol that a model is asked in."""
    return PROTOCOLS["chat" if model.scripted else model.api]
