"""Streamed replies: server-sent events, joined into the reply that would have come whole, and when its pieces came."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_agentbench.models.failures import cut_off
from pytest_agentbench.models.json_values import as_list, as_object
from pytest_agentbench.models.messages import StreamTimes
from pytest_agentbench.models.replies import RawReply

EVENT_STREAM = "text/event-stream"
"""The content type of a reply that comes in events."""
_JOINED = frozenset({"content", "refusal", "arguments", "text", "summary", "thinking"})
"""Keys whose texts come in pieces, in addition to those that begin with `reasoning`."""
_PIECEWISE = frozenset({"text", "thinking", "reasoning.text", "reasoning.summary"})
"""Types of list parts that come in pieces without an index."""


def ask_for_stream(body: bytes, fields: Mapping[str, Any]) -> bytes:
    """Return the JSON of a request with the fields that ask for its reply in events."""
    if not fields:
        return body
    return body[:-1] + b"," + json.dumps(fields, separators=(",", ":")).encode()[1:]


class EventReader:
    """A reader of a stream. `complete` means that the whole answer has arrived, `ended` that nothing more will come.

    A stream that has ended and is not complete was cut off. `[DONE]` alone completes no answer, as servers send it
    after an abort too, unless the stream has `counted` the tokens of the whole answer: some never send a finish reason.

    A subclass parses the events and joins them. An unreadable event ends the stream, and becomes the reply, which is
    refused because it is not JSON. An error replaces all other content.
    """

    unfinished: str
    """The error of a stream that breaks off."""

    def __init__(self) -> None:
        self.complete = self.ended = self.counted = False
        self._began = time.perf_counter()
        self._first: float | None = None
        self._first_text: float | None = None
        self._last: float | None = None
        self._line: list[bytes] = []  # pieces of the line that is not complete yet
        self._data: list[bytes] = []
        self._event = b""
        self._broken: bytes | None = None
        self._error: Any = None

    def add(self, event: dict[str, Any], at: float) -> None:
        """Read an event that came `at` seconds after the beginning."""
        raise NotImplementedError

    def join(self) -> dict[str, Any]:
        """Return the reply that the events form. Raises ValueError if they form none."""
        raise NotImplementedError

    def end(self) -> None:
        """Record that the stream declared its end."""
        self.ended = True
        self.complete |= self.counted

    def note_piece(self, at: float, *, is_text: bool = False) -> None:
        """Record the time of a piece of the answer, in seconds since the beginning."""
        self._last = at
        if self._first is None:
            self._first = at
        if is_text and self._first_text is None:
            self._first_text = at

    def feed(self, part: bytes) -> bool:
        """Read the next bytes of the body. Return whether they ended an event with data, which a comment is not."""
        first, *lines = part.split(b"\n")
        self._line.append(first)
        has_event = False
        for line in lines:
            whole, self._line = b"".join(self._line), [line]
            has_event |= self._take_line(whole.rstrip(b"\r"))
        return has_event

    def finish(self, status: int, headers: Mapping[str, str]) -> RawReply:
        """Return the reply that the events form. Raises RequestFailed if they end before the reply does."""
        self._take_line(b"".join(self._line).rstrip(b"\r"))
        self._take_line(b"")
        headers = {**headers, "content-type": "application/json"}  # a broken event is refused as broken JSON
        if self._broken is not None:
            return RawReply(status, headers, self._broken)
        if not self.complete:
            raise cut_off(self.unfinished)
        times = StreamTimes(self._first, self._first_text, self._last)
        try:
            whole = self.join()
            if self._error is not None:
                whole = {**whole, "error": self._error}
            content = json.dumps(_settle(whole), ensure_ascii=False).encode("utf-8", "replace")
        except RecursionError:
            return RawReply(status, headers, b"events that nest too deep to be joined")
        except ValueError:
            return RawReply(status, headers, b"events whose pieces are no JSON together")
        return RawReply(status, headers, content, times=times)

    def _take_line(self, line: bytes) -> bool:
        if line.startswith(b"data:"):
            self._data.append(line[5:].strip())
        elif line.startswith(b"event:"):
            self._event = line[6:].strip()
        elif not line:
            data, event = b"\n".join(self._data), self._event
            self._data, self._event = [], b""
            if data and not self.ended:
                self._take_event(data, event)
                return True
        return False

    def _take_event(self, data: bytes, event: bytes) -> None:
        if data == b"[DONE]":
            self.end()
            return
        try:
            chunk = json.loads(data.decode("utf-8", "replace"))
            if not isinstance(chunk, dict):
                raise ValueError("an event is an object")
            # Older vLLM, and gateways that name the event: the whole event is the error.
            if "error" not in chunk and (event == b"error" or "error" in (chunk.get("object"), chunk.get("type"))):
                chunk = {"error": chunk}
            self.add(chunk, time.perf_counter() - self._began)
            # A failure after the first piece is reported in the stream; nothing useful follows it.
            if "error" in chunk and not _is_empty(chunk["error"]):
                self._error, self.complete, self.ended = chunk["error"], True, True
        except (ValueError, RecursionError):
            self._broken, self.complete, self.ended = data, True, True


class StreamReader(EventReader):
    """A reader of the chunks of a chat completion."""

    unfinished = "its stream ended without a finish_reason"

    def __init__(self) -> None:
        super().__init__()
        self._top: dict[str, Any] = {}
        self._choice: dict[str, Any] | None = None
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[Any] = []
        self._places: dict[int, int] = {}  # places in `_calls` by the index of the stream

    def join(self) -> dict[str, Any]:
        """Return the chat completion."""
        if self._calls:
            self._message["tool_calls"] = self._calls
        whole: dict[str, Any] = {**self._top, "object": "chat.completion", "choices": []}
        if self._choice is not None:
            whole["choices"] = [{"index": 0, "message": self._message, **self._choice}]
        if not whole.get("usage") and (usage := as_object(whole.get("x_groq")).get("usage")):
            whole["usage"] = usage
        return whole

    def add(self, chunk: dict[str, Any], at: float) -> None:
        """Read a chunk."""
        top = self._top
        # Hundreds of chunks repeat the same values, so the first one that is not empty stays.
        for name, value in chunk.items():
            if name != "choices" and (value or name not in top):
                top[name] = value
        choices = chunk.get("choices")
        self.counted |= bool(chunk.get("usage")) and not choices
        for choice in as_list(choices):
            if isinstance(choice, dict) and not choice.get("index"):
                self._add_choice(choice, at)

    def _add_choice(self, choice: dict[str, Any], at: float) -> None:
        self._last = at
        if self._choice is None:
            self._choice = {"finish_reason": None}
        for name, value in choice.items():
            if value and name != "delta":
                self._choice[name] = _join("", self._choice.get(name), value)
                self.complete |= name in ("finish_reason", "error")
                self.ended |= name == "error"
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        for name, value in delta.items():
            if name == "tool_calls":
                for piece in as_list(value):
                    self._add_call(piece)
            else:
                self._message[name] = _join(name, self._message.get(name), value)
            if self._first_text is None and value and name != "role":
                self.note_piece(at, is_text=name == "content" and isinstance(value, str))

    def _add_call(self, piece: Any) -> None:
        """Join a piece to its call: by index, else to the last; a name under another id begins another call."""
        if not isinstance(piece, dict):
            self._calls.append(piece)  # refused with the reply
            return
        index, place = piece.pop("index", None), len(self._calls) - 1
        if isinstance(index, int):
            place = self._places.get(index, -1)
        call = self._calls[place] if place >= 0 else None
        is_named = not _is_empty(as_object(piece.get("function")).get("name"))
        # Gemini's calls that come together have the same index, or none.
        is_next = is_named and piece.get("id") and as_object(call).get("id") not in (None, "", piece["id"])
        if not isinstance(call, dict) or is_next:
            if isinstance(index, int):
                self._places[index] = len(self._calls)
            self._calls.append(piece)
        else:
            self._calls[place] = _join("", call, piece)


class _Pieces(list[str]):
    """A text in pieces, which are joined once. To join each piece to the text before it is quadratic."""


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value == [] or value == {}


def _join(name: str, before: Any, value: Any) -> Any:
    """Return a key's value with one more piece: texts of known names are joined, otherwise the last non-empty value
    wins.
    """
    if _is_empty(before):
        if before is None or not _is_empty(value):
            return value
        return before
    if _is_empty(value):
        return before
    if name in _JOINED or name.startswith("reasoning"):
        if isinstance(value, str) and isinstance(before, str | _Pieces):
            if isinstance(before, str):
                return _Pieces((before, value))
            before.append(value)
            return before
        if isinstance(before, list) or isinstance(value, list):
            return _join_parts(_as_parts(before), _as_parts(value))
    if isinstance(before, dict) and isinstance(value, dict):
        for key, piece in value.items():
            before[key] = _join(key, before.get(key), piece)
        return before
    return value


def _as_parts(value: Any) -> list[Any]:
    """Return a text among lists of content parts (Mistral's, once it has thought) as such a list."""
    if isinstance(value, _Pieces):
        value = "".join(value)
    if isinstance(value, list):
        return value
    return [{"type": "text", "text": value}]


def _join_parts(before: list[Any], pieces: Sequence[Any]) -> list[Any]:
    for piece in pieces:
        place = _find_part(before, piece)
        if place is None:
            before.append(piece)
        else:
            before[place] = _join("", before[place], piece)
    return before


def _find_part(parts: Sequence[Any], piece: Any) -> int | None:
    """Return the place of the part that a piece belongs to: that of its index and type, else the last of its type."""
    if not isinstance(piece, dict):
        return None
    index, kind = piece.get("index"), piece.get("type")
    if index is None:
        if kind in _PIECEWISE and parts and as_object(parts[-1]).get("type") == kind:
            return len(parts) - 1
        return None
    places = range(len(parts) - 1, -1, -1)
    same = {"index": index, "type": kind}
    return next((at for at in places if isinstance(parts[at], dict) and same.items() <= parts[at].items()), None)


def _settle(value: Any) -> Any:
    """Return a value with the texts in it whole."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {key: _settle(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_settle(item) for item in value]
    return value
