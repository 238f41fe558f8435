"""What an agent asks, whatever dialect it asks in, and what a dialect is: data, and functions without any IO.

The internal form is that of Chat Completions: messages, tools and parameters in, a `ChatReply` out. How an endpoint is
asked in one of the same APIs is in the module of the API.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pydantic_core import PydanticSerializationError, to_json

from pytest_agentbench.models.ends import read_finish
from pytest_agentbench.records.case import ApiName, Model

if TYPE_CHECKING:
    from pytest_agentbench.models.messages import ChatReply
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
"""Fields that reach for what a provider keeps: refused where they say anything."""

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
    """Tell where a request goes: `model` is the one in the path, `token` the run's behind `/r/`; None: there is none.

    Of an `unknown` route the dialect is a guess, for the body of the error. `stream` and `as_list` are Gemini's, whose
    streams are told by the path, and are a JSON array unless they are asked for as events.
    """

    dialect: ApiName
    kind: RouteKind
    model: str | None = None
    token: str | None = None
    stream: bool = False
    as_list: bool = False


class ToolName(NamedTuple):
    """Tell what a tool is called in its dialect, where that is no function, or has a namespace."""

    name: str
    namespace: str | None = None
    kind: Literal["function", "custom", "local_shell"] = "function"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in the internal form.

    `parameters` are those that the model gets, by the names of Chat Completions. `include_usage` is whether a stream
    tells its usage. `ignored` are fields that go nowhere, `server_tools` are tools that the provider would run, which
    are none of `tools`, `lost` is what another protocol has no words for. `refusal` says why the request cannot be
    translated at all, None where it can. `names` has what tools are called in the dialect, by their name in `tools`.
    `echo` has the fields of the request that the dialect's replies repeat.
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
    """A dialect as data and functions.

    `read` takes a request's body and raises RequestRefused where it is none. `write` returns the body of a reply,
    `events` those of a stream; both are the same for the same reply. `error` returns the body of an error by its
    status, code and text, `error_events` what ends a stream that has begun with one. `keep_alive` may be sent between
    any two events, and before the first. `list_models` and `describe_model` answer who asks for models by the one that
    there is, `count` who asks for a number of tokens.
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
    """An API as endpoints are asked in it: data and functions.

    `path` is appended to the endpoint's address; `{model}` in it is the name of the model. `streamed` is the path of
    requests for a stream, None if it is the same. `write` translates a request of Chat Completions, and `read`
    translates a reply into a chat completion; `read` raises ValueError for anything that is no reply. `headers` returns
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
    """Raise RequestRefused for a field that reaches for what the provider keeps."""
    for name in sorted(REFUSED & body.keys()):
        if body[name]:
            raise unsupported(name)


def unsupported(name: str, why: str = "nothing of a run is kept at the provider") -> RequestRefused:
    """Return the refusal of a field."""
    return RequestRefused(400, f"{name!r} is not supported here: {why}", "unsupported_parameter")


def unsupported_content(kind: str) -> RequestRefused:
    """Return the refusal of content that cannot be translated."""
    said = f"content of the type {kind!r} cannot be translated for the run's model; there are text and images"
    return RequestRefused(400, said, "unsupported_content")


def malformed(where: str, expected: str) -> RequestRefused:
    """Return the refusal of what is not as its dialect has it."""
    return RequestRefused(400, f"{where!r} is to be {expected}", "invalid_request")


def take(body: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """Return a field, None where it is missing or null. Raises RequestRefused where it is of another type."""
    value = body.get(name)
    if value is not None and not isinstance(value, kind):
        raise malformed(name, _TYPES[kind])
    return value


def need(body: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a field. Raises RequestRefused where it is missing, too."""
    value = take(body, name, kind)
    if value is None:
        raise malformed(name, _TYPES[kind])
    return value


def require_model(asked: Asked) -> None:
    """Raise RequestRefused for a request that names no model."""
    if not asked.model:
        raise malformed("model", "the name of a model")


def take_objects(body: Mapping[str, Any], name: str) -> list[JsonObject]:
    """Return a field that is a list of objects, [] where it is missing. Raises RequestRefused for anything else."""
    value = take(body, name, list) or []
    if not all(isinstance(item, dict) for item in value):
        raise malformed(name, "a list of objects")
    return value


def take_model(body: Mapping[str, Any]) -> str:
    """Return the model that is asked for, "" where none is."""
    return take(body, "model", str) or ""


def kind_of(item: Mapping[str, Any]) -> str:
    """Return the type of an object, "" where it says none."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else ""


def list_ignored(body: Mapping[str, Any], known: frozenset[str]) -> tuple[str, ...]:
    """Return the fields that say something and are not known."""
    # Not to be stored is what every request is here
    return tuple(
        sorted(name for name, value in body.items() if name not in known and (name, value) != ("store", False))
    )


def custom_function(described: Mapping[str, Any], name: str | None = None) -> JsonObject:
    """Return a custom tool as a function with one text: its grammar, if any, is left to its description."""
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return make_function({**described, "parameters": schema, "strict": None}, "parameters", name)


def write_custom_input(text: str) -> str:
    """Return the arguments of that function."""
    return json.dumps({"input": text}, ensure_ascii=False)


def read_custom_input(arguments: Mapping[str, Any] | None, raw: str) -> str:
    """Return the text of a custom tool's call; what is no such call goes as the model wrote it."""
    given = (arguments or {}).get("input")
    return given if isinstance(given, str) else raw


@dataclass(slots=True)
class Draft:
    """A request as it is read, for dialects that are not the internal form itself."""

    messages: list[JsonObject] = field(default_factory=list)
    tools: list[JsonObject] = field(default_factory=list)
    names: dict[str, ToolName] = field(default_factory=dict)
    server_tools: list[str] = field(default_factory=list)
    lost: dict[str, None] = field(default_factory=dict)
    refusal: RequestRefused | None = None
    _images: list[JsonObject] = field(default_factory=list)

    def refuse(self, refusal: RequestRefused) -> None:
        """Note why the request cannot be translated: what is said first counts."""
        self.refusal = self.refusal or refusal

    def lose(self, what: str) -> None:
        """Note what another protocol has no words for."""
        self.lost[what] = None

    def add(self, role: str, parts: list[JsonObject]) -> None:
        """Add a message of content parts, a single text as that."""
        self.add_message({"role": role, "content": join_parts(parts)})

    def add_message(self, message: JsonObject) -> None:
        """Add a message."""
        self.end_results()
        self.messages.append(message)

    def add_answer(self, message: JsonObject) -> None:
        """Add a message of the model's, unless it holds nothing, or nothing but readable thoughts."""
        if message["content"] or message.keys() - {"role", "content", "reasoning_content"}:
            self.add_message(message)

    def add_result(self, call_id: str, parts: list[JsonObject], *, failed: bool = False) -> None:
        """Add what a tool returned: its texts, behind a mark where it failed. Images go behind the last result."""
        said = "\n".join(part["text"] for part in parts if part["type"] == "text")
        images = [part for part in parts if part["type"] != "text"]
        for what, there in (("marks of failed results", failed), ("places of images in results", images)):
            if there:
                self.lose(what)
        self.messages.append(
            {"role": "tool", "tool_call_id": call_id, "content": f"{FAILED}{said}" if failed else said}
        )
        self._images += images

    def end_results(self) -> None:
        """Add the images of results as a user message: those of one request's calls stand together."""
        if images := self._images:
            self._images = []
            self.messages.append({"role": "user", "content": images})

    def add_tool(self, tool: JsonObject, own: ToolName | None = None) -> None:
        """Add a function, and what it is called in the dialect where that is not the same."""
        self.tools.append(tool)
        if own is not None:
            self.names[tool["function"]["name"]] = own

    def read_part(self, url: str | None, kind: str, **more: Any) -> JsonObject:
        """Return an image by its URL; what has none cannot be translated, and is named in its place."""
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
        return "medium" if tokens <= 16_384 else "high"

    def finish(self, body: Mapping[str, Any], known: frozenset[str], **fields: Any) -> Asked:
        """Return the request; of the body's fields those not `known` go nowhere."""
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
"""What the result of a tool begins with that failed: the internal form has no other mark for it."""


def text_part(text: str) -> JsonObject:
    """Return a text as a content part."""
    return {"type": "text", "text": text}


def join_parts(parts: list[JsonObject]) -> str | list[JsonObject]:
    """Return content parts, a single text as that."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def make_function(described: Mapping[str, Any], schema: str, name: str | None = None) -> JsonObject:
    """Return a tool whose parameters are under the key `schema`. Raises RequestRefused where it is none."""
    function: JsonObject = {"name": name or need(described, "name", str)}
    if (said := take(described, "description", str)) is not None:
        function["description"] = said
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
    described = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    return described.get("schema") if isinstance(described, Mapping) else None


def split_system(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the messages with instructions, and all other messages."""
    instructions = [message for message in messages if message.get("role") in _SYSTEM_ROLES]
    return instructions, [message for message in messages if message.get("role") not in _SYSTEM_ROLES]


def find_limit(request: Mapping[str, Any]) -> Any:
    """Return the limit of generated tokens under either of its names."""
    return request.get("max_tokens") or request.get("max_completion_tokens")


def list_stops(stop: str | list[str]) -> list[str]:
    """Return the stop sequences of a request as a list."""
    return [stop] if isinstance(stop, str) else stop


def split_data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and the base64 of a data URL, or None for another URL."""
    head, comma, data = url.partition(";base64,")
    return (head.removeprefix("data:"), data) if comma and head.startswith("data:") else None


def parse_arguments(call: Mapping[str, Any]) -> JsonObject:
    """Return the arguments of a call, or {} if they are no object: the result of the call explains the error."""
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
    """Return the tokens of a request that the prompt cache read and, if known, wrote: Chat Completions' fields."""
    written = {} if usage.cache_write_tokens is None else {"cache_write_tokens": usage.cache_write_tokens}
    return {"cached_tokens": usage.cached_tokens or 0, **written}


def read_content(content: Any, draft: Draft, read_part: Callable[[JsonObject, Draft], JsonObject]) -> list[JsonObject]:
    """Return content, a text or a list of parts, as content parts."""
    if isinstance(content, str):
        return [text_part(content)]
    return [read_part(part, draft) for part in take_objects({"content": content}, "content")]


def keep_given(**parameters: Any) -> JsonObject:
    """Return the parameters that say something."""
    return {name: value for name, value in parameters.items() if value is not None}


def finish_of(reply: ChatReply) -> Literal["length", "filtered", "stop"]:
    """Return how a reply ends, with its calls or without."""
    meant = read_finish(reply.finish_reason)[1]
    return meant if meant in ("length", "filtered") else "stop"


def write_event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """Return a server-sent event."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + _write_ascii(data) + b"\n\n"


def _write_ascii(data: Mapping[str, Any]) -> bytes:
    """Return JSON in ASCII: some clients end a line where Unicode does, in the middle of an event."""
    with suppress(PydanticSerializationError):
        text = to_json(data, inf_nan_mode="constants")  # a sixth of the standard library's time
        if text.isascii():
            return text
    return json.dumps(data).encode()


_MOST_PIECES = 256


def split_words(text: str | None) -> list[str]:
    """Return a text in the pieces that it is streamed in: words, of a long one several each."""
    words = re.findall(r"\s*\S+|\s+$", text or "")
    size = -(-len(words) // _MOST_PIECES)
    return words if size <= 1 else ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def split_arguments(arguments: str) -> tuple[str, str]:
    """Return the arguments of a call in the pieces that they are streamed in."""
    middle = len(arguments) // 2
    return arguments[:middle], arguments[middle:]


def make_id(prefix: str, reply: ChatReply) -> str:
    """Return an id for what a reply consists of: the same for the same reply."""
    told = reply.response_id or json.dumps(reply.message, sort_keys=True, default=str)
    return prefix + hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:24]
