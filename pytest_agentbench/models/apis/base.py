"""The internal form of requests and replies, and the shared functions of the codecs. No IO.

The internal form is Chat Completions: messages, tools and parameters of a request, and a `ChatReply`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic_core import PydanticSerializationError, to_json

from pytest_agentbench.models.ends import read_finish
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.records.case import ApiName, Model
from pytest_agentbench.records.run import Usage

RouteKind = Literal["ask", "count", "models", "ping", "unknown"]
JsonObject = dict[str, Any]
T = TypeVar("T")

BLOCKS, PARTS, ITEMS = "content_blocks", "content_parts", "output_items"
"""Keys of an assistant message for its source in Messages, Gemini and Responses."""
KEPT = frozenset({BLOCKS, PARTS, ITEMS})
_SYSTEM_ROLES = frozenset({"system", "developer"})

REFUSED = frozenset(
    {"previous_response_id", "conversation", "background", "prompt", "container", "mcp_servers"}
    | {"cachedContent", "cached_content"}
)
"""Fields that refer to data stored at a provider. A request that sets one is refused."""

_TYPES = {str: "a text", list: "a list", dict: "an object", int: "an integer", bool: "true or false"}


class RequestRefused(Exception):
    """A request ends with an HTTP error."""

    def __init__(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Route:
    """The route of an agent's request.

    `model` is the model in the path, and `token` the run's token after `/r/`; None if the path has none. The API of an
    `unknown` route is a guess for the body of the error. `stream` and `as_list` are set for Gemini only: the path
    asks for a stream, and the stream is a JSON array unless the query asks for events.
    """

    api: ApiName
    kind: RouteKind
    model: str | None = None
    token: str | None = None
    stream: bool = False
    as_list: bool = False


@dataclass(frozen=True, slots=True)
class ToolName:
    """The name and the kind of a tool in the agent's API, if it has a namespace or is no function."""

    name: str
    namespace: str | None = None
    kind: Literal["function", "custom", "local_shell"] = "function"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in the internal form.

    - `parameters`: the parameters for the model, by the names of Chat Completions.
    - `include_usage`: whether a stream reports its usage.
    - `ignored`: fields of the request that are not sent on.
    - `server_tools`: tools that the provider would run; they are not in `tools`.
    - `lost`: details that other APIs cannot express.
    - `refusal`: why the request cannot be translated, or None.
    - `names`: the tools' names in the agent's API, by their names in `tools`.
    - `echo`: fields of the request that replies in the agent's API repeat.
    """

    model: str
    messages: list[JsonObject]
    tools: list[JsonObject] = field(default_factory=list)
    parameters: JsonObject = field(default_factory=dict)
    stream: bool = False
    include_usage: bool = True
    as_list: bool = False
    ignored: tuple[str, ...] = ()
    server_tools: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    refusal: RequestRefused | None = None
    names: Mapping[str, ToolName] = field(default_factory=dict)
    echo: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentApi:
    """An API as agents use it: data and functions.

    `read` parses the body of a request, and raises RequestRefused if it is invalid. `write` returns the body of a
    reply, `events` the events of a streamed reply; equal replies have equal bodies. `error` returns the body of an
    error from its status, code and text; `error_events` returns the events that end a started stream with an error.
    `keep_alive` may be sent before the first event and between any two. `list_models` and `describe_model` describe the
    run's model, `count` returns the body with a number of tokens.
    """

    name: ApiName
    read: Callable[[Mapping[str, Any], Route], Asked]
    write: Callable[[ChatReply, Asked], Any]
    events: Callable[[ChatReply, Asked], Iterator[bytes]]
    error: Callable[[int, str, str], JsonObject]
    error_events: Callable[[int, str, str], bytes]
    keep_alive: bytes
    list_models: Callable[[str], JsonObject]
    describe_model: Callable[[str], JsonObject]
    count: Callable[[int], JsonObject]


@dataclass(frozen=True, slots=True)
class EndpointApi:
    """An API as endpoints serve it: data and functions.

    `path` is appended to the endpoint's address; `{model}` in it is the name of the model. `streamed` is the path of
    requests for a stream, None if it is the same. `write` translates a request of Chat Completions, and `read`
    translates a reply into a chat completion; `read` raises ValueError if the reply is invalid. `headers` returns
    the headers of a translated request. `defaults` are fields of every request that does not set them. `stream` are
    fields that ask for events. `limit` is the name of the field for the maximum tokens to generate, `least` the lowest
    accepted maximum. `statuses` maps codes of errors in replies with status 200 to HTTP statuses.
    """

    path: str
    limit: str
    stream: Mapping[str, Any]
    headers: Callable[[Mapping[str, Any], Model], dict[str, str]] = lambda request, model: {}
    write: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    read: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    defaults: Mapping[str, Any] = field(default_factory=dict)
    least: int = 1
    statuses: Mapping[str, int] = field(default_factory=dict)
    streamed: str | None = None


def refuse_fields(body: Mapping[str, Any]) -> None:
    """Raise RequestRefused if a request refers to data stored at the provider."""
    for name in sorted(REFUSED & body.keys()):
        if body[name]:
            raise unsupported(name)


def unsupported(name: str, why: str = "a run stores nothing at the provider") -> RequestRefused:
    """Return the refusal of a field."""
    return RequestRefused(400, f"{name!r} is not supported here: {why}", "unsupported_parameter")


def unsupported_content(kind: str) -> RequestRefused:
    """Return the refusal of content that cannot be translated."""
    message = f"content of the type {kind!r} cannot be translated for the run's model: only text and images can"
    return RequestRefused(400, message, "unsupported_content")


def malformed(where: str, expected: str) -> RequestRefused:
    """Return the refusal of a malformed field."""
    return RequestRefused(400, f"{where!r} must be {expected}", "invalid_request")


def take(body: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """Return a field, or None if it is missing or null. Raises RequestRefused if it has another type."""
    value = body.get(name)
    if value is not None and not isinstance(value, kind):
        raise malformed(name, _TYPES[kind])
    return value


def need(body: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a field. Raises RequestRefused if it is missing or has another type."""
    value = take(body, name, kind)
    if value is None:
        raise malformed(name, _TYPES[kind])
    return value


def require_model(asked: Asked) -> None:
    """Raise RequestRefused if a request names no model."""
    if not asked.model:
        raise malformed("model", "the name of a model")


def take_objects(body: Mapping[str, Any], name: str) -> list[JsonObject]:
    """Return a field that is a list of objects, [] if it is missing. Raises RequestRefused if it has another type."""
    value = take(body, name, list) or []
    if not all(isinstance(item, dict) for item in value):
        raise malformed(name, "a list of objects")
    return value


def take_model(body: Mapping[str, Any]) -> str:
    """Return the name of the model in a request, "" if it is missing."""
    return take(body, "model", str) or ""


def kind_of(item: Mapping[str, Any]) -> str:
    """Return the type of an object, "" if it has none."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    return ""


def list_ignored(body: Mapping[str, Any], known: frozenset[str]) -> tuple[str, ...]:
    """Return the fields that are not in `known`."""
    # No request is stored, so `"store": false` is not reported as ignored.
    return tuple(
        sorted(name for name, value in body.items() if name not in known and (name, value) != ("store", False))
    )


def custom_function(described: Mapping[str, Any], name: str | None = None) -> JsonObject:
    """Return a custom tool as a function with one text argument. Its grammar is dropped."""
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return make_function({**described, "parameters": schema, "strict": None}, "parameters", name)


def write_custom_input(text: str) -> str:
    """Return the arguments of a custom tool's function."""
    return json.dumps({"input": text}, ensure_ascii=False)


def read_custom_input(arguments: Mapping[str, Any] | None, raw: str) -> str:
    """Return the input of a custom tool's call, or `raw` if the arguments have no text `input`."""
    text = (arguments or {}).get("input")
    if isinstance(text, str):
        return text
    return raw


@dataclass(slots=True)
class Draft:
    """A request of an API other than Chat Completions while it is translated into the internal form."""

    messages: list[JsonObject] = field(default_factory=list)
    tools: list[JsonObject] = field(default_factory=list)
    names: dict[str, ToolName] = field(default_factory=dict)
    server_tools: list[str] = field(default_factory=list)
    lost: dict[str, None] = field(default_factory=dict)
    refusal: RequestRefused | None = None
    _images: list[JsonObject] = field(default_factory=list)

    def refuse(self, refusal: RequestRefused) -> None:
        """Record why the request cannot be translated. The first reason counts."""
        self.refusal = self.refusal or refusal

    def lose(self, detail: str) -> None:
        """Record a detail that other APIs cannot express."""
        self.lost[detail] = None

    def add(self, role: str, parts: list[JsonObject]) -> None:
        """Add a message of content parts. A single text is written as a string."""
        self.add_message({"role": role, "content": _join_parts(parts)})

    def add_message(self, message: JsonObject) -> None:
        """Add a message."""
        self.end_results()
        self.messages.append(message)

    def add_answer(self, message: JsonObject) -> None:
        """Add an assistant message, unless it is empty or has only readable thoughts."""
        if message["content"] or message.keys() - {"role", "content", "reasoning_content"}:
            self.add_message(message)

    def add_result(self, call_id: str, parts: list[JsonObject], *, failed: bool = False) -> None:
        """Add the result of a tool: its texts, with a mark if the call failed. Its images follow the last result."""
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        images = [part for part in parts if part["type"] != "text"]
        if failed:
            text = f"{FAILED}{text}"
            self.lose("marks of failed results")
        if images:
            self.lose("places of images in results")
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        # Providers refuse other messages between the results of one message's calls, so images wait for the last.
        self._images += images

    def end_results(self) -> None:
        """Add the images of consecutive results as one user message."""
        if images := self._images:
            self._images = []
            self.messages.append({"role": "user", "content": images})

    def add_tool(self, tool: JsonObject, name: ToolName | None = None) -> None:
        """Add a function, and its name in the agent's API if that differs."""
        self.tools.append(tool)
        if name is not None:
            self.names[tool["function"]["name"]] = name

    def read_part(self, url: str | None, kind: str, **more: Any) -> JsonObject:
        """Return an image by its URL. Other content (None) is refused and replaced by the name of its type."""
        if url is not None:
            return {"type": "image_url", "image_url": {"url": url, **more}}
        self.refuse(unsupported_content(kind))
        return text_part(f"[{kind}]")

    def read_budget(self, tokens: object) -> str | None:
        """Return the effort for a thinking budget in tokens, or None if there is no budget."""
        if not isinstance(tokens, int) or tokens <= 0:
            return None
        self.lose("thinking budget")
        if tokens <= 2_048:
            return "low"
        if tokens <= 16_384:
            return "medium"
        return "high"

    def finish(self, body: Mapping[str, Any], known: frozenset[str], **fields: Any) -> Asked:
        """Return the request. Fields of the body that are not in `known` are listed as ignored."""
        self.end_results()
        if not self.messages:
            raise RequestRefused(400, "the request needs at least one message", "invalid_request")
        return Asked(
            messages=self.messages,
            tools=self.tools,
            names=self.names,
            server_tools=tuple(self.server_tools),
            lost=tuple(self.lost),
            refusal=self.refusal,
            ignored=list_ignored(body, known),
            **fields,
        )


FAILED = "[error] "
"""Prefix of the result of a failed call. The internal form has no other mark for it."""


def text_part(text: str) -> JsonObject:
    """Return a text as a content part."""
    return {"type": "text", "text": text}


def _join_parts(parts: list[JsonObject]) -> str | list[JsonObject]:
    """Return content parts. A single text is returned as a string."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def make_function(described: Mapping[str, Any], schema: str, name: str | None = None) -> JsonObject:
    """Return a tool whose parameters have the key `schema`. Raises RequestRefused if it is invalid."""
    function: JsonObject = {"name": name or need(described, "name", str)}
    if (description := take(described, "description", str)) is not None:
        function["description"] = description
    if (parameters := take(described, schema, dict)) is not None:
        function["parameters"] = parameters
    if described.get("strict") is True:
        function["strict"] = True
    return {"type": "function", "function": function}


def choose_function(name: str) -> JsonObject:
    """Return the choice of a tool by its name."""
    return {"type": "function", "function": {"name": name}}


def choose_json_schema(schema: object) -> JsonObject:
    """Return the response format that demands JSON by a schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def find_schema(response_format: object) -> Any:
    """Return the JSON Schema of a response format, or None if it has none."""
    return as_object(as_object(response_format).get("json_schema")).get("schema")


def split_system(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the messages with instructions, and all other messages."""
    instructions = [message for message in messages if message.get("role") in _SYSTEM_ROLES]
    return instructions, [message for message in messages if message.get("role") not in _SYSTEM_ROLES]


def find_limit(request: Mapping[str, Any]) -> Any:
    """Return the limit of generated tokens under either of its names."""
    return request.get("max_tokens") or request.get("max_completion_tokens")


def list_stops(stop: str | list[str]) -> list[str]:
    """Return the stop sequences of a request as a list."""
    if isinstance(stop, str):
        return [stop]
    return stop


def split_data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and the base64 of a data URL, or None for another URL."""
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return (head.removeprefix("data:"), data)
    return None


def parse_arguments(call: Mapping[str, Any]) -> JsonObject:
    """Return the arguments of a call, or {} if they are no object: the result of the call reports that error to the
    model.
    """
    with suppress(ValueError, RecursionError):
        arguments = json.loads(call["function"]["arguments"] or "{}")
        if isinstance(arguments, dict):
            return arguments
    return {}


def make_call(call_id: Any, name: Any, arguments: Any) -> JsonObject:
    """Return a call of a function in an assistant message. `arguments` are JSON."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def make_completion(reply_id: Any, model: Any, choice: JsonObject, usage: Any) -> JsonObject:
    """Return a chat completion with one choice."""
    return {"id": reply_id, "model": model, "choices": [{"index": 0, **choice}], "usage": usage}


def count_cached(usage: Usage) -> JsonObject:
    """Return the counts of tokens read from the prompt cache and, if known, written to it."""
    return {"cached_tokens": usage.cached_tokens or 0, **keep_given(cache_write_tokens=usage.cache_write_tokens)}


def read_content(content: Any, draft: Draft, read_part: Callable[[JsonObject, Draft], JsonObject]) -> list[JsonObject]:
    """Return content, a text or a list of parts, as content parts."""
    if isinstance(content, str):
        return [text_part(content)]
    return [read_part(part, draft) for part in take_objects({"content": content}, "content")]


def write_content(content: Any, write_part: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Any:
    """Return the content of a message with its parts translated. A text stays; missing content becomes ""."""
    if isinstance(content, list):
        return [write_part(part) for part in content]
    return content or ""


def keep_given(**parameters: Any) -> JsonObject:
    """Return the parameters that are not None."""
    return {name: value for name, value in parameters.items() if value is not None}


def finish_of(reply: ChatReply) -> Literal["length", "filtered", "stop"]:
    """Return how a reply ends, regardless of its calls."""
    reason = read_finish(reply.finish_reason)[1]
    if reason in ("length", "filtered"):
        return reason
    return "stop"


def write_event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """Return a server-sent event."""
    event = b"data: " + _write_ascii(data) + b"\n\n"
    if name is None:
        return event
    return f"event: {name}\n".encode() + event


def _write_ascii(data: Mapping[str, Any]) -> bytes:
    """Return JSON in ASCII, because some clients split lines at Unicode line separators inside an event."""
    with suppress(PydanticSerializationError):
        text = to_json(data, inf_nan_mode="constants")  # takes a sixth of the time of the standard library
        if text.isascii():
            return text
    return json.dumps(data).encode()


_MOST_PIECES = 256


def split_words(text: str | None) -> list[str]:
    """Return the pieces of a streamed text: one word each, or several words each if the text is long."""
    words = re.findall(r"\s*\S+|\s+$", text or "")
    size = -(-len(words) // _MOST_PIECES)
    if size <= 1:
        return words
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def split_arguments(arguments: str) -> tuple[str, str]:
    """Return the two pieces in which the arguments of a call are streamed."""
    middle = len(arguments) // 2
    return arguments[:middle], arguments[middle:]


def make_id(prefix: str, reply: ChatReply) -> str:
    """Return an id made from the reply, the same for equal replies."""
    source = reply.response_id or json.dumps(reply.message, sort_keys=True, default=str)
    return prefix + hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:24]
