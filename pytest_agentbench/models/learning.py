"""Adaptations learned from an endpoint's refusals: fields to rename, to drop, not to send back. They are stored for a
week.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.models.json_values import as_list, as_object
from pytest_agentbench.models.messages import take_string
from pytest_agentbench.records.base import Record

LEARNED = ".agentbench/learned.json"
"""The file, in the output folder."""
MOST_CHANGES = 4
"""Maximum number of learned changes for one model at an endpoint."""
_KEPT_SECONDS = 7 * 86_400.0
LIMITS = ("max_tokens", "max_completion_tokens")
_DROPPED = frozenset(
    {"temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed", "logprobs", "top_logprobs"}
    | {"parallel_tool_calls", "include"}
)
_UNSUPPORTED = frozenset({"unsupported_parameter", "unsupported_value"})
_MESSAGE_KEY = re.compile(
    r"messages?[.\d'\]\[ :]+.*?['\"](reasoning|reasoning_content|reasoning_details|extra_content)['\"]"
    r"(?: is|: )?.{0,40}?(?:unsupported|not supported|not permitted|unexpected|unknown)",
    re.DOTALL,
)
_NAMED = re.compile(
    r"(?i)unsupported (?:parameter|value): ['\"](\w+)['\"]|^(?:\d+\. )?(\w+): Extra inputs are not permitted"
)
_UNSEALED = re.compile(rb"(?i)encrypted content is not supported")
_MAX_BYTES = 2**20


class Change(Record):
    """A change to requests, learned from an endpoint.

    `rename` sends the limit under the name `field`, `drop` leaves a parameter out, `keep` does not send a key of
    messages back, `tools` sends tools with the request for a final answer, `format` demands no format of the reply.
    """

    do: Literal["rename", "drop", "keep", "tools", "format"]
    field: str

    def __str__(self) -> str:
        if self.do == "rename":
            return f"{LIMITS[self.field == LIMITS[0]]}->{self.field}"
        if self.do == "keep":
            return f"messages.{self.field} not returned"
        if self.do == "tools":
            return "tools kept in the final answer"
        return f"{self.field} dropped"


KEEP_TOOLS = Change(do="tools", field="tools")
PLAIN_REPLIES = Change(do="format", field="response_format")


def find_change(status: int | None, body: bytes, request: Mapping[str, Any], own: Collection[str]) -> Change | None:
    """Return the change that a refusal of a request suggests, or None.

    `request` is the sent request; `own` are the case's own parameters, which are never dropped.
    """
    if status not in (400, 422):
        return None
    codes, fields, key = _read_refusal(body)
    for field in fields:
        if field in LIMITS and field in request:
            return Change(do="rename", field=LIMITS[field == LIMITS[0]])
        if field in _DROPPED and field in request and field not in own and (codes & _UNSUPPORTED or status == 422):
            return Change(do="drop", field=field)
    if "include" in request and "include" not in own and _UNSEALED.search(body):
        return Change(do="drop", field="include")  # a model without thoughts has none to seal
    if key is not None:
        return Change(do="keep", field=key)
    return None


_FORM_WORDS = re.compile(
    rb"(?i)response_format|schema|structured output|grammar|json mode|requested parameters|guided|outlines"
)


def refuses_form(status: int | None, body: bytes) -> bool:
    """Return whether an error with another status (a server's error, no such model) is about the reply's format."""
    return status in (404, 500, 501) and _FORM_WORDS.search(body) is not None


def _read_refusal(body: bytes) -> tuple[set[str], list[str], str | None]:
    """Return the codes of a refusal, the fields of the request that it names, and the key of its messages."""
    try:
        data = as_object(json.loads(body))
    except (ValueError, RecursionError):
        return set(), [], None
    error = as_object(data.get("error", data))
    codes = {code for code in (error.get("code"), error.get("type")) if isinstance(code, str)}
    field, message = error.get("param"), take_string(error.get("message")) or ""
    fields: list[str] = []
    if isinstance(field, str) and codes & _UNSUPPORTED:
        fields = [field]
    elif (match := _NAMED.search(message)) is not None:  # a gateway may pass on only the text of the error
        fields = [match[1] or match[2]]
        codes.add("unsupported_parameter")
    places = [*_list_places(error)]
    fields += [place[1] for place in places if len(place) == 2 and place[0] == "body"]
    keys = [place[-1] for place in places if len(place) > 2 and place[:2] == ["body", "messages"]]
    if (match := _MESSAGE_KEY.search(message)) is not None:
        keys.insert(0, match[1])
    return codes, fields, next(iter(keys), None)


def _list_places(error: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the places of refused fields in the request, in pydantic's form of errors."""
    for holder in (error, error.get("message")):
        for detail in map(as_object, as_list(as_object(holder).get("detail"))):
            if "extra" in str(detail.get("type")):
                yield [str(part) for part in as_list(detail.get("loc"))]


class Lesson(Record):
    """A change of one model at an endpoint, learned at a time (Unix)."""

    endpoint: str
    model: str
    change: Change
    at: float


class _File(Record):
    schema_version: Literal[1] = 1
    lessons: tuple[Lesson, ...] = ()


class Lessons:
    """The changes learned from endpoints, stored in a file of the output folder if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._fresh: list[Lesson] = []

    def recall(self, endpoint: str, model: str) -> list[Change]:
        """Return the changes for a model at an endpoint."""
        return [lesson.change for lesson in self._read() if (lesson.endpoint, lesson.model) == (endpoint, model)]

    def note(self, endpoint: str, model: str, change: Change) -> None:
        """Store a change. Raises OSError."""
        self._fresh.append(Lesson(endpoint=endpoint, model=model, change=change, at=time.time()))
        if self._path is not None:
            document = _File(lessons=tuple(self._read())).model_dump_json(indent=1)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(str(self._path.parent), self._path.name, document.encode())

    def _read(self) -> list[Lesson]:
        """Return the stored changes that are not too old, merged with those learned here."""
        stored: tuple[Lesson, ...] = ()
        if self._path is not None:
            # An unreadable file is ignored: one refused request teaches each of its changes again.
            with suppress(OSError, ValidationError):
                stored = _File.model_validate_json(read_file(self._path, _MAX_BYTES)).lessons
        # The latest lesson of each change counts.
        lessons = {(lesson.endpoint, lesson.model, lesson.change): lesson for lesson in (*stored, *self._fresh)}
        since = time.time() - _KEPT_SECONDS
        return [lesson for lesson in lessons.values() if lesson.at >= since]
