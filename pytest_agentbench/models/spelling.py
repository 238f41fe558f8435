"""Adapt requests to their endpoint: names of fields, and the parts of a model's own messages that are sent back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from pytest_agentbench.config.dialects import resolve_dialect
from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.apis.chat import fit_message
from pytest_agentbench.models.apis.choice import find_endpoint_api
from pytest_agentbench.models.failures import RequestFailed
from pytest_agentbench.models.learning import LIMITS, MOST_CHANGES, Change, Lessons, find_change
from pytest_agentbench.models.routes import DEFAULT_BASE_URL
from pytest_agentbench.records.case import Dialect, Model

BYTES_PER_TOKEN = 4
"""Approximate number of bytes of a request per token."""
_TOOL_PARAMETERS = frozenset({"tool_choice", "parallel_tool_calls"})  # endpoints refuse them without tools
# One encoder for all: `json.dumps` with options makes a new one for each request.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def compose_request(
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a request before its adaptation to an endpoint.

    The arguments are those of `ChatClient.complete`.
    """
    body: dict[str, Any] = {"model": model.requested_model, "messages": messages}
    fields = {**model.parameters, **parameters}
    # One setting under two names: the last value counts under either name.
    for field, other in (LIMITS, LIMITS[::-1]):
        if field in parameters and other not in parameters:
            fields.pop(other, None)
    if tools:
        body["tools"] = tools
    else:
        fields = {name: value for name, value in fields.items() if name not in _TOOL_PARAMETERS}
    # None removes a value of the model's entry; it is not sent as `null`, which some endpoints refuse.
    return body | {name: value for name, value in fields.items() if value is not None}


def write_request(request: Mapping[str, Any]) -> bytes:
    """Return the JSON of a request."""
    with suppress(PydanticSerializationError):
        return to_json(request, inf_nan_mode="constants", fallback=str)  # a fifth of the standard library's time
    return _encode(request).encode("utf-8", "replace")  # lone surrogates, which no server accepts, become "?"


class Spelling:
    """Adapts requests for one model to its endpoint: by its dialect, and by learned changes (`lessons`).

    A Spelling is shared by all requests of its event loop, so a change that one learns applies to all later ones.
    """

    def __init__(self, dialect: Dialect, model: Model, lessons: Lessons | None = None) -> None:
        self.dialect = dialect
        self._model, self.api = model, find_endpoint_api(model)
        # Changes learned in one API do not apply to another.
        native = "" if model.api == "chat" else self.api.path
        self._key = (model.base_url or DEFAULT_BASE_URL) + native, model.requested_model
        self._lessons = lessons or Lessons()
        self._changes: list[Change] = []
        for change in self._lessons.recall(*self._key):
            self._take(change)

    def learn(self, failed: RequestFailed, sent: Mapping[str, Any], own: Collection[str]) -> bool:
        """Return whether a refused request should be sent again, adapted.

        `own` are the case's own parameters. Raises OSError if the change cannot be stored.
        """
        change = find_change(failed.status, failed.body, sent, own)
        return change is not None and self.note(change)

    def note(self, change: Change) -> bool:
        """Apply a change to further requests, and return whether it applies. Raises OSError if it cannot be stored."""
        if change in self._changes:  # learned by another request while this one was in flight
            return True
        if len(self._changes) >= MOST_CHANGES:
            return False
        self._take(change)
        self._lessons.note(*self._key, change)
        return True

    def _take(self, change: Change) -> None:
        self._changes.append(change)
        dialect, field = self.dialect, change.field
        changed: dict[str, Any] = {}
        if change.do == "rename":
            changed["limit"] = field
        elif change.do == "keep":
            changed["never_back"] = (*dialect.never_back, field)
        elif change.do == "tools":
            changed["final_without_tools"] = False
        self.dialect = dialect.model_copy(update=changed)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes learned from the endpoint."""
        return tuple(self._changes)

    @property
    def takes_forms(self) -> bool:
        """Return whether a request may demand a format of the reply."""
        return not any(change.do == "format" for change in self._changes)

    def spell(self, request: Mapping[str, Any], own: Collection[str] = ()) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return a request of Chat Completions adapted to the endpoint, and the adaptations that changed it.

        `write` translates it into the model's API.
        """
        dialect, full_request = self.dialect, {**self.api.defaults, **request}
        dropped = {change.field for change in self._changes if change.do == "drop" and change.field not in own}
        # A field that another API lacks has no effect, so it is reported.
        lacking = [name for name in dialect.ignored if name in request and self._model.api != "chat"]
        left_out = dropped.union(lacking)
        spelled = {self._field(name): value for name, value in full_request.items() if name not in left_out}
        effort = spelled.get("reasoning")
        if not dialect.reasoning_object and isinstance(effort, Mapping) and effort.keys() == {"effort"}:
            del spelled["reasoning"]
            spelled.setdefault("reasoning_effort", effort["effort"])
        spelled["messages"] = self._spell_messages(request["messages"])
        if not self._changes and not lacking:
            return spelled, ()
        effective = [change for change in self._changes if _acts(change, full_request, own)]
        drops = [Change(do="drop", field=name) for name in lacking]
        return spelled, tuple(map(str, (*drops, *effective)))

    def write(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return an adapted request in the model's API. Raises ProviderError if it cannot be translated."""
        try:
            return self.api.write(request)
        except (KeyError, TypeError, AttributeError) as error:  # a user's agent may send messages of any shape
            message = f"the request cannot be written for `api: {self._model.api}`: {error!r}"
            raise ProviderError(message, code="bad_request", reason="rejected", retryable=False) from error

    def _field(self, name: str) -> str:
        if name in LIMITS:
            return self.dialect.limit
        if name == "seed":
            return self.dialect.seed
        return name

    def _spell_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        dialect, spelled = self.dialect, list(messages)
        places = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
        for at in places:
            spelled[at] = fit_message(messages[at], dialect.never_back, dialect.always_back)
        if places and dialect.call_ids == "nine":
            spelled = [_fit_ids(message) for message in spelled]
        for key in dialect.return_empty_in_tool_loop:
            if any(spelled[at].get(key) for at in places):
                for at in places:
                    spelled[at] = {**spelled[at], key: spelled[at].get(key, "")}
        return spelled


def _acts(change: Change, request: Mapping[str, Any], own: Collection[str]) -> bool:
    """Return whether a change alters a request."""
    if change.do == "rename":
        return any(name in request for name in LIMITS)
    if change.do == "drop":
        return change.field in request and change.field not in own
    if change.do == "keep":
        return any(message.get("role") == "assistant" and message.get(change.field) for message in request["messages"])
    return change.do == "tools" and request.get("tool_choice") == "none"


_NINE = re.compile("[A-Za-z0-9]{9}")


def _fit_ids(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message whose calls have ids of nine letters and digits. The ids in a case may be another provider's."""
    fitted = dict(message)
    if "tool_call_id" in message:
        fitted["tool_call_id"] = _fit_id(message["tool_call_id"])
    if isinstance(calls := message.get("tool_calls"), list):
        fitted["tool_calls"] = [{**call, "id": _fit_id(call.get("id"))} for call in calls]
    return fitted


def _fit_id(call_id: object) -> str:
    # It depends only on the id, so that a call, its result, and further requests of the conversation have equal ids.
    if isinstance(call_id, str) and _NINE.fullmatch(call_id):
        return call_id
    return hashlib.sha256(str(call_id).encode()).hexdigest()[:9]


def dialect_of(model: Model) -> Dialect:
    """Return the dialect of a model's endpoint without learned changes."""
    return resolve_dialect(model.dialect, model.base_url or DEFAULT_BASE_URL, model.dialect_overrides, model.api)
