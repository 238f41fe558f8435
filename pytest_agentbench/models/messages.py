"""Parse messages of models: text, thoughts, calls, and how a run ends by them."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from pytest_agentbench.models.ends import CALLS, GIVEN_UP, is_known_finish, read_finish
from pytest_agentbench.models.thoughts import split_thoughts
from pytest_agentbench.records.run import EndDetail, EndReason, Usage

REASONING = ("reasoning_content", "reasoning")
"""Keys of a message that hold the model's thoughts as text."""
_ID_CHARACTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model requests. `arguments` is None if `raw`, the model's own text, is not a JSON object.

    `trace_id` is its name in the trace, None for its id: endpoints may give one id to calls of several replies.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str
    trace_id: str | None = None


class MessageRead(NamedTuple):
    """A parsed message of a model: its parts are those of ChatReply. `finish` is the decisive finish reason."""

    content: str | None
    tool_calls: tuple[ToolCall, ...]
    reasoning: dict[str, str]
    message: dict[str, Any]
    thoughts: str | None
    end: EndReason | None
    detail: EndDetail
    finish: str | None


def read_message(message: Mapping[str, Any], finish: str | None, native: str | None = None) -> MessageRead:
    """Return the content of an assistant message, and how a run ends by it.

    `native` is the finish reason of the router's upstream. Raises TypeError, KeyError or AttributeError for malformed
    calls.
    """
    said = read_text(message.get("content"))
    content, tagged = split_thoughts(said, cut_off=finish == "length") if said else (said, None)
    calls = tuple(_read_tool_call(call) for call in message.get("tool_calls") or ())
    kept: dict[str, Any] = {**message, "role": "assistant", "content": message.get("content")}
    if calls:
        kept["tool_calls"] = [
            {**sent, "id": call.id, "type": "function", "function": {**sent["function"], "arguments": call.raw}}
            for sent, call in zip(message["tool_calls"], calls, strict=True)
        ]
    refusal = read_text(message.get("refusal")) if content is None else None
    plain, meant = read_finish(finish)
    if native and meant == "answered" and not content and not calls and not refusal:
        # A router's stop whose upstream reported a call.
        plain, meant = read_finish(native)
        finish = native if meant != "answered" else finish
    end = _find_end(message, content, calls, refusal, plain, meant)
    raw = finish if end not in ("answered", None) or not is_known_finish(plain) else None
    if end == "no_text":
        raw = ", ".join(dict.fromkeys(_list_media(message)))
    # A refusal comes in place of content; to a check it is the answer that was given.
    content = refusal if content is None else content
    reasoning = {name: text for name in REASONING if (text := take_string(message.get(name)))}
    return MessageRead(
        content, calls, reasoning, kept, _join_thoughts(message, reasoning, tagged), end, EndDetail(raw=raw), finish
    )


def _find_end(
    message: Mapping[str, Any],
    content: str | None,
    calls: Sequence[ToolCall],
    refusal: str | None,
    plain: str,
    meant: EndReason | None,
) -> EndReason | None:
    if meant in GIVEN_UP or meant in ("filtered", "context_exceeded"):
        return meant
    if calls:
        return None
    has_text = bool(content and content.strip())
    if meant == "malformed_reply" or (not has_text and (plain in CALLS or message.get("function_call"))):
        return "malformed_reply"
    if meant == "length":
        return "length"
    if refusal:
        return "refused"
    if has_text:
        return "answered"
    if _list_media(message):
        return "no_text"
    return "empty"


def _list_media(message: Mapping[str, Any]) -> list[str]:
    """Return the kinds of a message's content besides text."""
    found = [name for name in ("audio", "images", "image", "video") if message.get(name)]
    parts = message.get("content")
    for part in parts if isinstance(parts, list) else ():
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and kind not in ("text", "thinking", "reasoning"):
            found.append(kind)
    return found


_MOST_BINARY = 64 * 1024
_BINARY = re.compile(r"(?:data:[^,]{1,200},)?([A-Za-z0-9+/_=-]+)")
_TEXTS = frozenset({"content", "text", "arguments", "thinking", "refusal", "reasoning", "reasoning_content", "summary"})
"""Keys of written text: a long word there is not a picture."""


def digest_media(value: Any) -> Any:
    """Return a message with size (bytes) and SHA-256 in place of each binary part of more than 64 kB."""
    if isinstance(value, Mapping):
        return {
            key: (_digest(item) if key not in _TEXTS else None) or digest_media(item) for key, item in value.items()
        }
    if isinstance(value, list):
        return [digest_media(item) for item in value]
    return value


def _digest(value: object) -> dict[str, Any] | None:
    """Return the size and the SHA-256 of base64 data in a long text, or None for anything else."""
    if not isinstance(value, str) or len(value) <= _MOST_BINARY or (found := _BINARY.fullmatch(value)) is None:
        return None
    try:
        data = base64.b64decode(f"{found[1]}==", altchars=b"-_")  # more padding than is due does no harm
    except ValueError:
        data = found[1].encode()
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _join_thoughts(message: Mapping[str, Any], reasoning: Mapping[str, str], tagged: str | None) -> str | None:
    """Return all reasoning in a message as one text."""
    texts = [*reasoning.values()] or [*_list_details(message.get("reasoning_details"))]
    parts = message.get("content")
    thinking = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    texts += [read_text(part.get("thinking")) or "" for part in thinking if part.get("type") == "thinking"]
    texts.append(tagged or "")
    return "\n".join(dict.fromkeys(filter(None, texts))) or None


def _list_details(details: object) -> Iterator[str]:
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping):
            yield from filter(None, (take_string(detail.get(name)) for name in ("text", "summary")))


_CALL_MARKS = re.compile(
    # <tool_call>, <|tool_calls_begin|>, <minimax:tool_call>, <｜DSML｜function_calls>, <function=f>, <invoke name="f">
    r"<[|｜]?(?:\w{1,20}[:|｜])?(?:(?:tool|function)[_▁]?calls?|function=|invoke name=)"
    r"|\[tool_calls?\]|<\|(?:python_tag|action_start|start_action|channel)\|>|functools\[|```tool_c(?:ode|all)",
    re.IGNORECASE,
)
"""Prefixes of textual tool calls of models, which a server's tool parser should have converted."""
_BARE_CALL = re.compile(r"\[?\s*([\w.-]{1,128})\(.*\)\s*\]?", re.DOTALL)


def is_call_as_text(text: str, tools: Collection[str]) -> bool:
    """Return whether a text calls one of `tools`: with the markup of any model, or as JSON or Python and nothing else.

    So come the calls of a server that has no parser for them.
    """
    mark = _CALL_MARKS.search(text)
    if mark is not None:
        return any(name in text[mark.end() :] for name in tools)
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        body = body[3:-3].partition("\n")[2].strip()
    if bare := _BARE_CALL.fullmatch(body):
        return bare[1] in tools
    if not body.startswith(("{", "[")):
        return False
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return False
    calls = [call for call in (found if isinstance(found, list) else [found]) if isinstance(call, dict)]
    return any(call.keys() & _ARGUMENTS and str(call.get("name")) in tools for call in calls)


_ARGUMENTS = frozenset({"arguments", "parameters"})


def _read_tool_call(call: Mapping[str, Any]) -> ToolCall:
    """Return a call in the form of an assistant message, with a universally accepted id if it has none.

    Raises TypeError, KeyError or AttributeError if it is malformed.
    """
    function = call["function"]
    # Text by the protocol; some local servers send an object.
    raw = function.get("arguments")
    text = raw if isinstance(raw, str) else json.dumps(raw if raw is not None else {})
    name = function["name"]
    if not isinstance(name, str):
        raise TypeError("a tool's name is text")
    made = take_string(call.get("id")) or "".join(random.choices(_ID_CHARACTERS, k=9))
    return ToolCall(id=made, name=name, arguments=_parse_arguments(text), raw=text)


def _parse_arguments(text: str) -> dict[str, Any] | None:
    try:
        # Python reads NaN and Infinity, which no server and no tool takes as JSON.
        value = json.loads(text, parse_constant=_refuse_constant) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return value
    return None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def read_text(value: object) -> str | None:
    """Return a text, or the text parts of a list of content parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str)) or None
    return None


def take_string(value: object) -> str | None:
    """Return a text that is not empty, None for anything else."""
    if isinstance(value, str) and value:
        return value
    return None


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """Seconds from a request to the first piece of its reply of any kind, to the first text, to the last piece."""

    first: float | None
    first_text: float | None
    last: float | None

    def measure(self, usage: Usage) -> dict[str, float | None]:
        """Return the reported measurements of a streamed reply. None: not measured."""
        speed = None
        if usage.output_tokens and self.first is not None and self.last is not None and self.last > self.first:
            speed = usage.output_tokens / (self.last - self.first)
        return {
            "ttft_seconds": self.first,
            "first_text_seconds": self.first_text,
            "output_tokens_per_second": speed,
        }


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One answer of a model.

    `message` is the unchanged assistant message, to be sent back to its endpoint in the conversation. `usage` contains
    tokens and cost. `attempts` counts the requests, `seconds` is the time of the last one. `reasoning` are the
    fields of the message with the model's thoughts as text, for callers that show or return them; `thoughts` are
    all of them as one text, or None. `end` is how a run ends by the reply, None if it calls tools,
    and `detail` its details. `unfiltered` means that the provider's filter did not run. `adapted` lists
    the adaptations of the request to its endpoint. `times` are those of a streamed reply; `batch` has the id of the
    reply's batch, and the seconds it took.
    """

    content: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    usage: Usage
    model: str
    response_id: str | None
    message: dict[str, Any]
    attempts: int
    seconds: float
    reasoning: Mapping[str, str] = field(default_factory=dict)
    thoughts: str | None = None
    end: EndReason | None = None
    detail: EndDetail | None = None
    unfiltered: bool = False
    adapted: tuple[str, ...] = ()
    times: StreamTimes | None = None
    batch: Mapping[str, Any] | None = None
