"""Caches of prompts: marks and keys by which a provider caches common parts of requests.

Separate from `spelling`, which is the same for all entries of an endpoint: only some of them ask for a cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_agentbench.models.routes import caches_prompts, takes_marks
from pytest_agentbench.records.case import Dialect, Model, PromptCache

_LONGEST_KEY = 64


def ask_for_cache(request: Mapping[str, Any], model: Model, dialect: Dialect) -> dict[str, Any]:
    """Return a request with the marks, or the key, by which its endpoint caches prompts; the request's own fields
    stay.
    """
    cache, key = model.prompt_cache, model.prompt_cache_key
    if cache is None or not caches_prompts(model, dialect):
        return dict(request)
    if takes_marks(model, dialect):
        return {**request, "messages": _mark_messages(request["messages"], cache)}
    if key is not None and len(key) > _LONGEST_KEY:
        key = hashlib.sha256(key.encode()).hexdigest()
    return {**({} if key is None else {"prompt_cache_key": key}), **request}


def _mark_messages(messages: Sequence[Mapping[str, Any]], cache: PromptCache) -> list[Mapping[str, Any]]:
    """Return messages with `cache_control` at the end of each part that is to be cached."""
    control = {"type": "ephemeral", **({"ttl": cache.ttl} if cache.ttl != "5m" else {})}
    system = [at for at, message in enumerate(messages) if message.get("role") in ("system", "developer")]
    places = {*(system[-1:] if cache.system else ()), *([len(messages) - 1] if cache.last_message else ())}
    return [_mark(message, control) if at in places else message for at, message in enumerate(messages)]


def _mark(message: Mapping[str, Any], control: Mapping[str, str]) -> Mapping[str, Any]:
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not content or not isinstance(parts, list) or not isinstance(parts[-1], Mapping):
        return message  # a mark stands at a text: of an empty one endpoints complain
    return {**message, "content": [*parts[:-1], {**parts[-1], "cache_control": control}]}
