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
from pytest_agentbench.models.json_values import as_list, as_object
from pytest_agentbench.models.thoughts import split_thoughts
from pytest_agentbench.records.run import EndDetail, EndReason, Usage

REASONING = ("reasoning_content", "reasoning")
"""Keys of a message that hold the model's thoughts as text."""
_ID_CHARACTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model requests. `arguments` is None if `raw`, the model's own text, is not a JSON object.

    `trace_id` is its id in the trace if that differs from `id`: endpoints may give calls of several replies one id.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str
    trace_id: str | None = None


class MessageRead(NamedTuple):
    """A parsed message of a model, with parts as in ChatReply. `finish` is the decisive finish reason."""

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
    content, tagged, refusal = read_text(message.get("content")), None, None
    if content:
        content, tagged = split_thoughts(content, cut_off=finish == "length")
    calls = tuple(_read_tool_call(call) for call in message.get("tool_calls") or ())
    # The message that is sent back: its calls may have got an id, and arguments as text.
    own: dict[str, Any] = {**message, "role": "assistant", "content": message.get("content")}
    if calls:
        own["tool_calls"] = [
            {**sent, "id": call.id, "type": "function", "function": {**sent["function"], "arguments": call.raw}}
            for sent, call in zip(message["tool_calls"], calls, strict=True)
        ]
    if content is None:
        refusal = read_text(message.get("refusal"))
    plain, reason = read_finish(finish)
    if native and reason == "answered" and not content and not calls and not refusal:
        # A router reports a stop although its upstream reported a call.
        plain, reason = read_finish(native)
        if reason != "answered":
            finish = native
    end = _find_end(message, content, calls, refusal, plain, reason)
    raw = None
    if end == "no_text":
        raw = ", ".join(dict.fromkeys(_list_media(message)))
    elif end not in ("answered", None) or not is_known_finish(plain):
        raw = finish
    if content is None:  # a refusal comes in place of content, and checks treat it as the answer
        content = refusal
    reasoning = {name: text for name in REASONING if (text := take_string(message.get(name)))}
    thoughts = _join_thoughts(message, reasoning, tagged)
    return MessageRead(content, calls, reasoning, own, thoughts, end, EndDetail(raw=raw), finish)


def _find_end(
    message: Mapping[str, Any],
    content: str | None,
    calls: Sequence[ToolCall],
    refusal: str | None,
    plain: str,
    reason: EndReason | None,
) -> EndReason | None:
    if reason in GIVEN_UP or reason in ("filtered", "context_exceeded"):
        return reason
    if calls:
        return None
    has_text = bool(content and content.strip())
    if reason == "malformed_reply" or (not has_text and (plain in CALLS or message.get("function_call"))):
        return "malformed_reply"
    if reason == "length":
        return "length"
    if refusal:
        return "refused"
    if has_text:
        return "answered"
    if _list_media(message):
        return "no_text"
    return "empty"


def _list_media(message: Mapping[str, Any]) -> list[str]:
    """Return the kinds of a message's content other than text."""
    kinds = [name for name in ("audio", "images", "image", "video") if message.get(name)]
    for part in map(as_object, as_list(message.get("content"))):
        kind = part.get("type")
        if isinstance(kind, str) and kind not in ("text", "thinking", "reasoning"):
            kinds.append(kind)
    return kinds


_MOST_BINARY = 64 * 1024
_BINARY = re.compile(r"(?:data:[^,]{1,200},)?([A-Za-z0-9+/_=-]+)")
_TEXTS = frozenset({"content", "text", "arguments", "thinking", "refusal", "reasoning", "reasoning_content", "summary"})
"""Keys of texts, in which a long word is no encoded picture."""


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
    if not isinstance(value, str) or len(value) <= _MOST_BINARY or (match := _BINARY.fullmatch(value)) is None:
        return None
    try:
        data = base64.b64decode(f"{match[1]}==", altchars=b"-_")  # too much padding does no harm
    except ValueError:
        data = match[1].encode()
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _join_thoughts(message: Mapping[str, Any], reasoning: Mapping[str, str], tagged: str | None) -> str | None:
    """Return all reasoning in a message as one text."""
    texts = [*reasoning.values()] or [*_list_details(message.get("reasoning_details"))]
    parts = map(as_object, as_list(message.get("content")))
    texts += [read_text(part.get("thinking")) or "" for part in parts if part.get("type") == "thinking"]
    texts.append(tagged or "")
    return "\n".join(dict.fromkeys(filter(None, texts))) or None


def _list_details(details: object) -> Iterator[str]:
    for detail in map(as_object, as_list(details)):
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

    Servers without a parser for the model's calls send them as text.
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
        value = json.loads(body)
    except (ValueError, RecursionError):
        return False
    calls = map(as_object, as_list(value) or [value])
    return any(call.keys() & _ARGUMENTS and str(call.get("name")) in tools for call in calls)


_ARGUMENTS = frozenset({"arguments", "parameters"})


def _read_tool_call(call: Mapping[str, Any]) -> ToolCall:
    """Return a call of an assistant message. One without an id gets one that all providers accept.

    Raises TypeError, KeyError or AttributeError if it is malformed.
    """
    function = call["function"]
    text = function.get("arguments")
    if not isinstance(text, str):  # some local servers send an object, or null
        text = json.dumps({} if text is None else text)
    name = function["name"]
    if not isinstance(name, str):
        raise TypeError("a tool's name is text")
    call_id = take_string(call.get("id")) or "".join(random.choices(_ID_CHARACTERS, k=9))
    return ToolCall(id=call_id, name=name, arguments=_parse_arguments(text), raw=text)


def _parse_arguments(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return {}
    try:
        # Python reads NaN and Infinity, which servers and tools refuse in JSON.
        value = json.loads(text, parse_constant=_refuse_constant)
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
    texts = [part.get("text") for part in map(as_object, as_list(value))]
    return "".join(text for text in texts if isinstance(text, str)) or None


def take_string(value: object) -> str | None:
    """Return a text that is not empty, None for anything else."""
    if isinstance(value, str) and value:
        return value
    return None


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """Seconds from a request to the first piece of its reply, to the first piece of text, and to the last piece."""

    first: float | None
    first_text: float | None
    last: float | None

    def measure(self, usage: Usage) -> dict[str, float | None]:
        """Return the reported measurements of a streamed reply. None: not measured."""
        speed = None
        if usage.output_tokens and self.first is not None and self.last is not None and self.last > self.first:
            speed = usage.output_tokens / (self.last - self.first)
        return {"ttft_seconds": self.first, "first_text_seconds": self.first_text, "output_tokens_per_second": speed}


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One answer of a model.

    `message` is the unchanged assistant message, to be sent back to its endpoint in the conversation. `usage` contains
    tokens and cost. `attempts` counts the requests, `seconds` is the time of the last one. `reasoning` are the
    fields of the message with the model's thoughts as text, for callers that show or return them; `thoughts` are
    all of them as one text, or None. `end` is how a run ends by the reply, None if it calls tools,
    and `detail` its details. `unfiltered` means that the provider's filter did not run. `adapted` lists
    the adaptations of the request to its endpoint. `times` are those of a streamed reply; `batch` has the id of the
    reply's batch, and the seconds it took. `system_fingerprint` is the provider's name of its configuration.
    `skipped_steps` counts the steps with calls that a script skips for a request without tools.
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
    system_fingerprint: str | None = None
    skipped_steps: int = 0
