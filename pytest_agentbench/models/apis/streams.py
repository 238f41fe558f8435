"""Readers of the streams of Responses, Messages and generateContent. Each joins events into a complete reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pytest_agentbench.models.json_values import as_list, as_object
from pytest_agentbench.models.messages import take_string
from pytest_agentbench.models.streaming import EventReader, StreamReader
from pytest_agentbench.records.case import ApiName

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponseReader(EventReader):
    """A reader of the events of a response. The last event has the whole response."""

    unfinished = "its stream ended without the event response.completed"

    def __init__(self) -> None:
        super().__init__()
        self._response: dict[str, Any] = {}

    def add(self, event: dict[str, Any], at: float) -> None:
        """Read an event."""
        kind = str(event.get("type"))
        if kind.endswith(".delta"):
            self.note_piece(at, is_text=kind == "response.output_text.delta")
        elif kind in _ENDS and isinstance(response := event.get("response"), dict):
            self._response, self.complete, self.ended = response, True, True

    def join(self) -> dict[str, Any]:
        """Return the response."""
        return self._response


class MessageReader(EventReader):
    """A reader of the events of a message: one block after another, each in pieces."""

    unfinished = "its stream ended without the event message_stop"
    _PIECES: Mapping[str, tuple[str, str]] = {
        "text_delta": ("text", "text"),
        "thinking_delta": ("thinking", "thinking"),
        "signature_delta": ("signature", "signature"),
        "input_json_delta": ("partial_json", "input"),
    }
    """The key of a piece's text, and the key in the block that the text is appended to, by the type of piece."""

    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}

    def add(self, event: dict[str, Any], at: float) -> None:
        """Read an event."""
        kind, index, delta = event.get("type"), event.get("index"), event.get("delta")
        if kind == "message_start" and isinstance(event.get("message"), dict):
            self._message = event["message"]
        elif kind == "content_block_start" and isinstance(index, int) and isinstance(event.get("content_block"), dict):
            self._blocks[index] = event["content_block"]
            self.note_piece(at)
        elif kind == "content_block_delta" and isinstance(index, int) and isinstance(delta, dict):
            self._add_piece(index, delta)
            self.note_piece(at, is_text=delta.get("type") == "text_delta")
        elif kind == "message_delta" and isinstance(delta, dict):
            self._message |= delta
            if isinstance(counted := event.get("usage"), dict):
                counts = {name: value for name, value in counted.items() if value is not None}
                self._message["usage"] = {**(self._message.get("usage") or {}), **counts}
                self.counted = True
            self.complete |= bool(delta.get("stop_reason"))
        elif kind == "message_stop":
            self.end()

    def _add_piece(self, index: int, delta: Mapping[str, Any]) -> None:
        if delta.get("type") == "citations_delta":
            block = self._blocks.setdefault(index, {"type": "text", "text": ""})
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        elif (names := self._PIECES.get(str(delta.get("type")))) is not None:
            piece = take_string(delta.get(names[0])) or ""
            self._texts.setdefault((index, names[1]), []).append(piece)

    def join(self) -> dict[str, Any]:
        """Return the message. Raises ValueError if the arguments of a call are invalid JSON."""
        for (index, name), pieces in self._texts.items():
            block, text = self._blocks.setdefault(index, {}), "".join(pieces)
            if name != "input":
                block[name] = (block.get(name) or "") + text
            elif text:
                block[name] = self._read_input(text)
        return {**self._message, "content": [block for _, block in sorted(self._blocks.items())]}

    def _read_input(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            # The token limit cut off the last call. The blocks before it are complete and are kept.
            if self._message.get("stop_reason") == "max_tokens":
                return {}
            raise


class GeminiReader(EventReader):
    """A reader of the events of generateContent. Each is a response with more parts, and with the usage so far."""

    unfinished = "its stream ended without a finishReason"

    def __init__(self) -> None:
        super().__init__()
        self._response: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._parts: list[Any] = []

    def add(self, event: dict[str, Any], at: float) -> None:
        """Read an event."""
        self._response |= {name: value for name, value in event.items() if name != "candidates"}
        self.complete |= bool(as_object(event.get("promptFeedback")).get("blockReason"))
        candidate = as_object(next(iter(as_list(event.get("candidates"))), None))
        self._candidate |= candidate
        self.complete |= bool(candidate.get("finishReason"))
        for part in as_list(as_object(candidate.get("content")).get("parts")):
            self._add_part(part)
            fields = as_object(part)
            self.note_piece(at, is_text=bool(fields.get("text")) and not fields.get("thought"))

    def _add_part(self, part: Any) -> None:
        """Add a part. A text continues the text before it if their other fields are equal."""
        if not isinstance(part, dict) or not isinstance(text := part.get("text"), str):
            self._parts.append(part)
            return
        last = as_object(self._parts[-1] if self._parts else None)
        texts = last.get("text")
        if isinstance(texts, list) and {**part, "text": texts} == last:
            texts.append(text)
        else:
            self._parts.append({**part, "text": [text]})

    def join(self) -> dict[str, Any]:
        """Return the response."""
        if not self._candidate:
            return self._response
        for part in self._parts:
            if isinstance(part, dict) and isinstance(texts := part.get("text"), list):
                part["text"] = "".join(texts)
        candidate = {**self._candidate, "content": {"role": "model", "parts": self._parts}}
        return {**self._response, "candidates": [candidate]}


def open_reader(api: ApiName) -> EventReader:
    """Return a new reader for the streams of an API. Its clock starts at once."""
    readers: Mapping[ApiName, Callable[[], EventReader]] = {
        "chat": StreamReader,
        "responses": ResponseReader,
        "messages": MessageReader,
        "gemini": GeminiReader,
    }
    return readers[api]()
