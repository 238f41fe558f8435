"""From a dialect to a model's protocol: as it is (what is read off the side), or translated (what is left out)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from pytest_agentbench.models.dialects.base import Asked, DialectName
from pytest_agentbench.models.protocols.choice import KEPT
from pytest_agentbench.models.protocols.streams import open_reader
from pytest_agentbench.models.replies import ChatReply, RawReply, read_reply
from pytest_agentbench.models.streaming import EVENT_STREAM
from pytest_agentbench.records.case import ApiName, Model

_OWN = KEPT | {"reasoning_content"}
"""Keys of messages for what an agent was shown of thoughts: another provider than the one that wrote it has no use for
it, and some refuse it.
"""
_LACKING: Mapping[ApiName, frozenset[str]] = {"chat": frozenset({"top_k"}), "responses": frozenset({"top_k"})}
"""Parameters that a protocol has no name for, and agents send unasked: Gemini CLI a `topK` of 64 with each request."""


def translate(asked: Asked, wire: ApiName) -> Asked:
    """Return a request for a model that is asked in another protocol than the agent's dialect.

    Raises RequestRefused for one that cannot be translated.
    """
    if asked.refusal is not None:
        raise asked.refusal
    lacking = _LACKING.get(wire, frozenset()) & asked.parameters.keys()
    return replace(
        asked,
        messages=[{key: value for key, value in message.items() if key not in _OWN} for message in asked.messages],
        parameters={name: value for name, value in asked.parameters.items() if name not in lacking},
        lost=(*asked.lost, *sorted(lacking)),
    )


def fold(name: DialectName, raw: RawReply, model: Model, *, seconds: float = 0.0) -> ChatReply:
    """Return what a reply in a dialect says, whole or as events, that a model gave which was asked in it.

    For one that is read as it comes, `raw` is what the reader of `open_reader` makes of it. Raises RequestFailed, or
    ConnectionError for events that break off.
    """
    kind = raw.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = raw.content
    if name == "gemini" and content.lstrip()[:1] == b"[":  # a stream that is no stream of events
        content, kind = _write_events(content), EVENT_STREAM
    if kind == EVENT_STREAM:
        reader = open_reader(name)
        reader.feed(content)
        raw = reader.finish(raw.status, raw.headers)
        content, kind = raw.content, "application/json"
    spoken = model.model_copy(update={"api": name, "scripted": False})
    return read_reply(content, kind, spoken, attempts=1, seconds=seconds)


def _write_events(content: bytes) -> bytes:
    try:
        return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in json.loads(content))
    except (ValueError, RecursionError):
        return content  # refused as what it is
