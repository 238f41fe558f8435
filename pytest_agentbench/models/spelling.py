"""Requests as their endpoint takes them: names of fields, and what of a model's own messages goes back to it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pytest_agentbench.config.dialects import resolve_dialect
from pytest_agentbench.models.routes import DEFAULT_BASE_URL
from pytest_agentbench.records.case import Dialect, Model

UNKNOWN = "*unknown"
"""In a dialect's `never_back`: all keys that the protocol does not have."""
_MESSAGE_KEYS = frozenset({"role", "content", "name", "tool_calls"})
_CALL_KEYS = frozenset({"id", "type", "function"})
_LIMITS = ("max_tokens", "max_completion_tokens")
_TOOL_PARAMETERS = frozenset({"tool_choice", "parallel_tool_calls"})  # refused by endpoints where no tools are offered
# One encoder for all: `json.dumps` with options makes a new one for each request.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def compose_request(
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a request as it is meant, however its endpoint spells it.

    Its parameters are those of `ChatClient.complete`.
    """
    body: dict[str, Any] = {"model": model.requested_model, "messages": messages}
    if tools:
        body["tools"] = tools
    wanted = {**model.parameters, **parameters}
    # One setting under two names: what is said last counts, whatever it is called there
    for field, other in (_LIMITS, _LIMITS[::-1]):
        if field in parameters and other not in parameters:
            wanted.pop(other, None)
    left_out = () if tools else _TOOL_PARAMETERS
    # None takes back what the model's entry sets; it is not sent as `null`, which some endpoints refuse.
    return body | {name: value for name, value in wanted.items() if value is not None and name not in left_out}


def write_request(request: Mapping[str, Any]) -> bytes:
    """Return the JSON of a request."""
    return _encode(request).encode("utf-8", "replace")  # lone surrogates, which no server takes, become "?"


class Spelling:
    """How one endpoint takes the requests for one model."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def spell(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request as the endpoint takes it."""
        dialect = self.dialect
        spelled = {self._field(name): value for name, value in request.items()}
        effort = spelled.get("reasoning")
        if not dialect.reasoning_object and isinstance(effort, Mapping) and effort.keys() == {"effort"}:
            del spelled["reasoning"]
            spelled.setdefault("reasoning_effort", effort["effort"])
        spelled["messages"] = self._spell_messages(request["messages"])
        return spelled

    def _field(self, name: str) -> str:
        if name in _LIMITS:
            return self.dialect.limit
        return self.dialect.seed if name == "seed" else name

    def _spell_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        if all(message.get("role") != "assistant" for message in messages):
            return list(messages)
        dialect = self.dialect
        spelled = [
            _fit_message(message, dialect.never_back, dialect.always_back)
            if message.get("role") == "assistant"
            else message
            for message in messages
        ]
        for key in dialect.return_empty_in_tool_loop:
            own = [message for message in spelled if message.get("role") == "assistant"]
            if any(message.get(key) for message in own):
                for message in own:
                    message.setdefault(key, "")  # type: ignore[attr-defined]
        return spelled


def _fit_message(message: Mapping[str, Any], never: Collection[str], always: Collection[str]) -> dict[str, Any]:
    """Return what goes back of a message of the model's: nothing empty, and no key that is not taken there."""
    kept = {name: value for name, value in message.items() if _goes_back(name, value, _MESSAGE_KEYS, never, always)}
    # The one key that the protocol demands; of an empty text some make a block, which they refuse then
    kept["content"] = message.get("content") or (None if kept.get("tool_calls") else message.get("content"))
    if calls := kept.get("tool_calls"):
        kept["tool_calls"] = [
            {
                name: value
                for name, value in call.items()
                if name != "index" and _goes_back(name, value, _CALL_KEYS, never, always)
            }
            for call in calls
        ]
    return kept


def _goes_back(
    name: str, value: object, known: Collection[str], never: Collection[str], always: Collection[str]
) -> bool:
    if value is None or value == "" or value == [] or value == {}:
        return False
    if name in never:
        return False
    return name in known or name in always or UNKNOWN not in never


def spelling_of(model: Model) -> Spelling:
    """Return how a model's endpoint takes requests."""
    return Spelling(resolve_dialect(model.dialect, model.base_url or DEFAULT_BASE_URL, model.dialect_overrides))
