"""Caches of prompts: marks and keys by which a provider caches common parts of requests.

Separate from `spelling`, which is the same for all entries of an endpoint: only some of them ask for a cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_agentbench.models.apis.base import keep_given, text_part
from pytest_agentbench.models.routes import caches_prompts, takes_marks
from pytest_agentbench.records.case import Dialect, Model, PromptCache

_LONGEST_KEY = 64


def ask_for_cache(request: Mapping[str, Any], model: Model, dialect: Dialect) -> dict[str, Any]:
    """Return a request with the marks, or the key, by which its endpoint caches prompts. The request's key stays."""
    cache, key = model.prompt_cache, model.prompt_cache_key
    if cache is None or not caches_prompts(model, dialect):
        return dict(request)
    if takes_marks(model, dialect):
        return {**request, "messages": _mark_messages(request["messages"], cache)}
    if key is not None and len(key) > _LONGEST_KEY:
        key = hashlib.sha256(key.encode()).hexdigest()
    return {**keep_given(prompt_cache_key=key), **request}


def _mark_messages(messages: Sequence[Mapping[str, Any]], cache: PromptCache) -> list[Mapping[str, Any]]:
    """Return messages with `cache_control` at the end of each part that is to be cached."""
    control = {"type": "ephemeral"}
    if cache.ttl != "5m":
        control["ttl"] = cache.ttl
    places: list[int] = []
    if cache.system:
        places += [at for at, message in enumerate(messages) if message.get("role") in ("system", "developer")][-1:]
    if cache.last_message and messages:
        places.append(len(messages) - 1)
    marked = list(messages)
    for at in dict.fromkeys(places):  # a place that is in the list twice must not be marked twice
        marked[at] = _mark(marked[at], control)
    return marked


def _mark(message: Mapping[str, Any], control: Mapping[str, str]) -> Mapping[str, Any]:
    content = message.get("content")
    parts = [text_part(content)] if isinstance(content, str) else content
    if not content or not isinstance(parts, list) or not isinstance(parts[-1], Mapping):
        return message  # endpoints refuse a mark at an empty text
    return {**message, "content": [*parts[:-1], {**parts[-1], "cache_control": control}]}
