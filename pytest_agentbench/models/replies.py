"""Replies of models: chat completions as read, and JSON in them, validated."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models.failures import RequestFailed, invalid_reply, status_failed
from pytest_agentbench.models.pricing import read_usage
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage

_REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asks for. `arguments` is None where `raw`, the model's own text, is no JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One answer of a model.

    `message` is the assistant message as it goes back into the conversation. `usage` holds tokens and cost.
    `attempts` counts the requests it took, `seconds` is the time of the last one. `reasoning` are the fields of the
    message that hold the model's thoughts as text, for callers that show or return them.
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


def read_reply(body: bytes, content_type: str, model: Model, *, attempts: int, seconds: float) -> ChatReply:
    """Return the reply in a response with status 200. Raises RequestFailed where it breaks the protocol."""
    data = _json_object(body, content_type, model)
    if isinstance(error := data.get("error"), Mapping | str) and error:  # OpenRouter reports a failing upstream so
        raise _read_inner_error(error, model)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise invalid_reply("it has no choices", body, model)
    choice = choices[0]
    if isinstance(choice, Mapping) and isinstance(error := choice.get("error"), Mapping | str) and error:
        raise _read_inner_error(error, model)
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(message, Mapping):
        raise invalid_reply("its first choice has no message", body, model)
    content = read_text(message.get("content"))
    if content is None:
        content = read_text(message.get("refusal"))
    try:
        calls = tuple(read_tool_call(call, index) for index, call in enumerate(message.get("tool_calls") or ()))
    except (TypeError, KeyError, AttributeError) as error:
        raise invalid_reply("its tool calls are malformed", body, model) from error
    answered_by = _nonempty_string(data.get("model")) or model.requested_model
    return ChatReply(
        content=content,
        tool_calls=calls,
        finish_reason=_nonempty_string(choice.get("finish_reason")),
        usage=read_usage(data.get("usage"), model, answered_by),
        model=answered_by,
        response_id=_nonempty_string(data.get("id")),
        message=_conversation_message(content, calls, message),
        attempts=attempts,
        seconds=seconds,
        reasoning={name: text for name in _REASONING if (text := _nonempty_string(message.get(name)))},
    )


def _json_object(body: bytes, content_type: str, model: Model) -> dict[str, Any]:
    try:
        data = json.loads(body)
        if b"\\u" in body:
            # An escaped lone surrogate can be neither written to a file nor sent back to the model.
            data = json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        kind = content_type.partition(";")[0].strip()
        what = "its JSON is malformed" if kind == "application/json" else f"its content type is {kind or 'missing'}"
        raise invalid_reply(what, body, model) from error
    if not isinstance(data, dict):
        raise invalid_reply("it is no JSON object", body, model)
    return data


def _read_inner_error(error: Mapping[str, Any] | str, model: Model) -> RequestFailed:
    code = error.get("code") if isinstance(error, Mapping) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 502
    return status_failed(status, json.dumps({"error": error}).encode(), model)


def read_tool_call(call: Mapping[str, Any], index: int) -> ToolCall:
    """Return a call as an assistant message has it.
    Raises TypeError, KeyError or AttributeError where it is malformed.
    """
    function = call["function"]
    raw = function.get("arguments")
    text = raw if isinstance(raw, str) else json.dumps(raw if raw is not None else {})
    name = function["name"]
    if not isinstance(name, str):
        raise TypeError("a tool's name is text")
    return ToolCall(
        id=_nonempty_string(call.get("id")) or f"call_{index}", name=name, arguments=_parse_arguments(text), raw=text
    )


def _parse_arguments(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_constant=_refuse_constant) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def _conversation_message(content: str | None, calls: Sequence[ToolCall], message: Mapping[str, Any]) -> dict[str, Any]:
    """Return only what every endpoint takes back, and the reasoning that some demand between tool calls."""
    result: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}
            for call in calls
        ]
    if details := message.get("reasoning_details"):
        result["reasoning_details"] = details
    return result


def read_text(value: object) -> str | None:
    """Return a text, or the text parts of a list of content parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str)) or None
    return None


def _nonempty_string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


MAX_PROBLEMS = 12
MAX_LEVELS = 64
"""How deep a reply may nest: much deeper, and nothing that it becomes part of can be written any more."""
# Fences stand at the ends of lines, so that a text inside of the JSON may quote code.
_FENCED = re.compile(r"^[ \t]*```[A-Za-z]*\s(.*?)```[ \t\r]*$", re.DOTALL | re.MULTILINE)
_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_MAX_BRACES = 1000

P = TypeVar("P", bound="ReplyPart")


class InvalidReply(AgentbenchError):
    """A reply outside its contract; the text lists what is wrong, a line for each, as the model is told it."""

    @property
    def problems(self) -> list[str]:
        """Return the lines without their marks."""
        return [line.removeprefix("- ") for line in str(self).splitlines()]


class ReplyPart(BaseModel):
    """A part of a reply's contract; other keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def read_json(text: str, form: type[P]) -> P:
    """Return the JSON object in a reply, alone or in the reply's only code fence, as a `form`.

    Raises InvalidReply with everything that is wrong with it.
    """
    return validate_form(read_json_object(text), form)


def validate_form(found: Mapping[str, Any], form: type[P]) -> P:
    """Return a JSON object as a `form`. Raises InvalidReply with everything that is wrong with it."""
    try:
        return form.model_validate(found)
    except ValidationError as error:
        raise make_invalid_reply([_describe_problem(each) for each in error.errors(include_url=False)]) from error


def read_json_object(text: str, embedded_keys: Collection[str] = ()) -> dict[str, Any]:
    """Return the JSON object in a reply, alone or in the reply's only code fence. Raises InvalidReply.

    With `embedded_keys` it may stand in other text too, where that has one object alone with any of these keys.
    """
    body = _THOUGHTS.sub("", text).strip()
    if not body:
        raise InvalidReply("- the reply is empty")
    try:
        return _only_object(body)
    except InvalidReply:
        found = (
            [each for each in _find_embedded(body) if not each.keys().isdisjoint(embedded_keys)]
            if embedded_keys
            else []
        )
        if not found:
            raise
    if len(found) > 1:
        raise InvalidReply(f"- the reply has {len(found)} JSON objects, so it is not clear which one counts")
    return found[0]


def make_invalid_reply(problems: Sequence[str]) -> InvalidReply:
    """Return the InvalidReply to raise for a reply with these problems."""
    shown = [f"- {problem}" for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        shown.append(f"- and {len(problems) - MAX_PROBLEMS} more")
    return InvalidReply("\n".join(shown))


def _only_object(body: str) -> dict[str, Any]:
    fenced = _FENCED.findall(body)
    if len(fenced) > 1:
        raise InvalidReply("- the reply has several code blocks, so it is not clear which one counts")
    try:
        found = _drop_surrogates(json.loads(fenced[0] if fenced and not body.startswith("{") else body))
    except (ValueError, RecursionError) as error:
        raise InvalidReply(f"- the reply is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidReply(f"- the reply is a JSON {type(found).__name__}, expected an object")
    if _count_levels(found) > MAX_LEVELS:
        raise InvalidReply(f"- the reply nests deeper than {MAX_LEVELS} levels")
    return found


def _find_embedded(body: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that stand in a text, none of them within another."""
    decoder, at = json.JSONDecoder(), body.find("{")
    # Bounded: each brace may be tried to the end of the text, which is quadratic in a reply of braces alone.
    for _ in range(_MAX_BRACES):
        if at < 0:
            return
        try:
            found, end = decoder.raw_decode(body, at)
            found = _drop_surrogates(found)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if _count_levels(found) <= MAX_LEVELS:
                yield found
        at = body.find("{", end)


def _drop_surrogates(found: Any) -> Any:
    """Return the value without escaped lone surrogates, which cannot be written to a file."""
    return json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))


def _count_levels(found: Any) -> int:
    """Return how deep a value nests: 1 for what holds no list and no object."""
    # Level by level and not recursively: a reply may nest deeper than Python's stack.
    levels, inner = 0, [found]
    while inner:
        levels += 1
        values = (each.values() if isinstance(each, dict) else each for each in inner)
        inner = [value for holder in values for value in holder if isinstance(value, dict | list)]
    return levels


def _describe_problem(error: Mapping[str, Any]) -> str:
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"{where}: missing"
    found = json.dumps(error["input"], default=str)
    found = found if len(found) <= 80 else f"{found[:80]}..."
    return f"{where}: found {found}; {error['msg'][:1].lower()}{error['msg'][1:]}"
