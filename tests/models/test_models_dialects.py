"""Dialects of agents: what is read of a request, what is written of a reply, and that both come back the same."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_agentbench.models.apis.base import BLOCKS, ITEMS, PARTS, Asked, RequestRefused, Route, write_event
from pytest_agentbench.models.apis.choice import AGENT_APIS, ENDPOINT_APIS, find_route
from pytest_agentbench.models.apis.streams import open_reader
from pytest_agentbench.models.apis.translation import translate
from pytest_agentbench.models.failures import RequestFailed
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.replies import read_reply
from pytest_agentbench.records.case import Model

NAMES = sorted(AGENT_APIS)
PIXEL = "data:image/png;base64,iVBORw0KGgo="
NATIVE = {"responses": ITEMS, "messages": BLOCKS, "gemini": PARTS}


MODEL = Model(model_id="m", requested_model="m", base_url="http://127.0.0.1:1/v1")


def read(name: str, body: dict) -> Asked:
    return AGENT_APIS[name].read(body, Route(name, "ask", "m" if name == "gemini" else None))


def write(name: str, messages: list, tools: list = (), **parameters) -> dict:
    """A request as an agent sends it: what our own client would."""
    return ENDPOINT_APIS[name].write({"model": "m", "messages": messages, "tools": tools, **parameters})


def reply(message: dict, finish: str = "stop", usage: dict | None = None) -> ChatReply:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "c-1", "model": "m", "choices": [choice], "usage": usage or {}}
    return parse("chat", json.dumps(body).encode())


def parse(name: str, body: bytes) -> ChatReply:
    """A reply as our own client reads it."""
    spoken = MODEL.model_copy(update={"api": name})
    return read_reply(body, "application/json", spoken, attempts=1, seconds=0.0)


def fold_events(name: str, events: bytes) -> ChatReply:
    reader = open_reader(name)
    reader.feed(events)
    return parse(name, reader.finish(200, {}).content)


ASKED = Asked("m", [])
WORDS = (
    "Ää",
    "x",
    "42",
    "<b>",
    '"quoted"',
    "two words",
    " lead",
    "trail ",
    "line\nbreak",
    "\u2028",
    "🦊",
    "\\",
    "{",
    "data:",
)
SIGNED = {
    "responses": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"},
    "messages": {"type": "thinking", "thinking": "so", "signature": "SIG"},
    "gemini": {"text": "so", "thought": True, "thoughtSignature": "SIG"},
}
"""Of each protocol a thought that only its provider can read."""


class Made:
    """What is made at random, the same in every run."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._calls = 0

    def text(self) -> str:
        return "".join(self.draw.choices(WORDS, k=self.draw.randint(1, 4)))

    def value(self, depth: int = 0):
        kinds = [lambda: None, lambda: self.draw.randint(-9, 9), lambda: 0.5, lambda: True, self.text]
        if depth < 3:
            kinds += [lambda: [self.value(depth + 1) for _ in range(2)], lambda: self.object(depth + 1)]
        return self.draw.choice(kinds)()

    def object(self, depth: int = 0) -> dict:
        return {self.text(): self.value(depth) for _ in range(self.draw.randint(0, 3))}

    def content(self) -> str | list:
        if self.draw.random() < 0.5:
            return self.text()
        image = {"type": "image_url", "image_url": {"url": PIXEL}}
        texts = [{"type": "text", "text": self.text()} for _ in range(self.draw.randint(0, 2))]
        return [*texts, image] if self.draw.random() < 0.5 else [image, *texts]

    def calls(self, number: int) -> list[dict]:
        self._calls += number
        return [
            {
                "id": f"call_{self._calls - at}",
                "type": "function",
                "function": {
                    "name": self.draw.choice(["read_file", "sh"]),
                    "arguments": json.dumps(self.object(), ensure_ascii=False),
                },
            }
            for at in range(number)
        ]

    def answer(self, calls: int) -> dict:
        made = {"role": "assistant", "content": None if calls and self.draw.random() < 0.5 else self.text()}
        return made | ({"tool_calls": self.calls(calls)} if calls else {})

    def conversation(self) -> list[dict]:
        """Return a system text, then turns, each with calls and their results."""
        made = [{"role": "system", "content": self.text()}] if self.draw.random() < 0.5 else []
        for _ in range(self.draw.randint(1, 3)):
            made.append({"role": "user", "content": self.content()})
            for _ in range(self.draw.randint(0, 2)):
                made.append(self.answer(self.draw.randint(1, 3)))
                made += [
                    {"role": "tool", "tool_call_id": call["id"], "content": self.text()}
                    for call in made[-1]["tool_calls"]
                ]
            made.append(self.answer(0))
        return made

    def tools(self) -> list[dict]:
        said = {"description": self.text(), "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
        return [{"type": "function", "function": {"name": name, **said}} for name in ("read_file", "sh")]


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 1000), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_comes_back_the_same(name, seeds):
    for seed in seeds:
        made = Made(seed)
        messages, tools = made.conversation(), made.tools()
        asked = read(name, write(name, messages, tools))
        assert (asked.messages, asked.tools) == (messages, tools)
        assert (asked.model, asked.lost, asked.server_tools, asked.refusal) == ("m", (), (), None)


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_sealed_thoughts_come_back_as_they_were(name):
    for seed in range(100):
        made = Made(seed)
        [call] = made.calls(1)
        given = json.loads(call["function"]["arguments"])
        called = {
            "responses": {"type": "function_call", "call_id": call["id"], **call["function"]},
            "messages": {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": given},
            "gemini": {"functionCall": {"id": call["id"], "name": call["function"]["name"], "args": given}},
        }
        said = {"role": "assistant", "content": None, "tool_calls": [call], NATIVE[name]: [SIGNED[name], called[name]]}
        if name != "responses":
            said["reasoning_content"] = "so"
        result = {"role": "tool", "tool_call_id": call["id"], "content": made.text()}
        messages = [{"role": "user", "content": "?"}, said, result]
        assert read(name, write(name, messages)).messages == messages


@pytest.mark.parametrize("seeds", [range(50), pytest.param(range(50, 500), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_a_reply_comes_back_the_same_whole_and_in_events(name, seeds):
    for seed in seeds:
        made = Made(seed)
        message = made.answer(made.draw.randint(0, 2))
        if made.draw.random() < 0.5:
            message["reasoning_content"] = made.text()
        finish = "tool_calls" if "tool_calls" in message else made.draw.choice(["stop", "length"])
        cached, thought = made.draw.randint(0, 9), made.draw.randint(0, 9)
        usage = {
            "prompt_tokens": 9 + cached,
            "completion_tokens": 9 + thought,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": thought},
        }
        told, dialect = reply(message, finish, usage), AGENT_APIS[name]
        whole = parse(name, json.dumps(dialect.write(told, ASKED)).encode())
        streamed = fold_events(name, b"".join(dialect.events(told, ASKED)))
        for found in (whole, streamed):
            assert facts(found) == facts(told)
            assert name == "messages" or found.usage.reasoning_tokens == thought
            if name in ("messages", "responses"):
                # What the agent sends back of it is what the model said, but for a signature of our own
                own = {key: value for key, value in found.message.items() if key != NATIVE[name]}
                assert read(name, write(name, [{"role": "user", "content": "?"}, found.message])).messages[1:] == [own]


def facts(reply: ChatReply) -> tuple:
    usage = reply.usage
    calls = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    return reply.content, reply.thoughts, reply.end, calls, usage.input_tokens, usage.output_tokens, usage.cached_tokens


KEYS = st.sampled_from(
    [
        *("type", "role", "content", "text", "name", "id", "call_id", "input", "output", "arguments", "tools", "parts"),
        *("messages", "contents", "source", "image_url", "functionCall", "functionResponse", "tool_calls", "custom"),
        *("functionDeclarations", "function_declarations", "inlineData", "generationConfig", "thinking", "system"),
        *("tool_choice", "reasoning", "format", "namespace", "action", "summary", "thinkingConfig", "function", "args"),
        *("systemInstruction", "toolConfig", "functionCallingConfig", "mimeType", "parameters", "output_config", "n"),
    ]
)
SAID = st.sampled_from(
    [
        *(
            "user",
            "assistant",
            "system",
            "tool",
            "model",
            "text",
            "message",
            "function",
            "custom",
            "namespace",
            "image",
        ),
        *("input_text", "input_image", "function_call", "function_call_output", "tool_use", "tool_result", "reasoning"),
        *("thinking", "local_shell_call", "custom_tool_call", "json_schema", "base64", "url", "ANY"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | SAID,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=40,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=st.dictionaries(KEYS, ANYTHING, max_size=6), item=st.dictionaries(KEYS, ANYTHING, max_size=6))
def test_any_json_is_read_or_refused(name, body, item):
    where = {"responses": "input", "gemini": "contents"}.get(name, "messages")
    for sent in (body, {**body, where: [item]}, {where: [item], "tools": [item]}, {where: [{**item, "role": "user"}]}):
        try:
            asked = read(name, sent)
        except RequestRefused:
            continue
        assert asked.messages
        json.dumps(asked.messages + asked.tools)


RICH = {
    "chat": {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "?"}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "p", "input": "x"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "y"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "f"}},
            {"type": "custom", "custom": {"name": "p", "description": "d", "format": {"type": "grammar"}}},
            {"type": "mcp"},
        ],
        "stream_options": {"include_usage": True},
        "n": 1,
    },
    "responses": {
        "model": "m",
        "instructions": "i",
        "input": [
            {"role": "developer", "content": "d"},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "?"}, {"type": "input_image", "image_url": PIXEL}],
            },
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "S"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "namespace": "ns"},
            {"type": "custom_tool_call", "call_id": "2", "name": "p", "input": "x"},
            {"type": "local_shell_call", "call_id": "3", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image", "image_url": PIXEL}]},
            {"type": "custom_tool_call_output", "call_id": "2", "output": "y"},
            {"type": "local_shell_call_output", "id": "3", "output": "z"},
            {"type": "web_search_call", "id": "w"},
        ],
        "tools": [
            {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False},
            {"type": "custom", "name": "p", "format": {"type": "grammar"}},
            {"type": "local_shell"},
            {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}]},
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
        "user": "u",
    },
    "messages": {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "agentbench:1"},
                    {"type": "text", "text": "a", "citations": [{}]},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
                    {"type": "tool_use", "id": "2", "name": "f", "input": {}},
                    {"type": "server_tool_use", "id": "3"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "no", "is_error": True},
                    {
                        "type": "tool_result",
                        "tool_use_id": "2",
                        "content": [
                            {"type": "text", "text": "seen"},
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                        ],
                    },
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web"}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
    },
    "gemini": {
        "system_instruction": {"parts": [{"text": "s"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "?"}, {"inline_data": {"mime_type": "image/png", "data": "AA=="}}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "a"},
                    {"functionCall": {"name": "f", "args": {"x": 1}}},
                    {"functionCall": {"name": "f", "args": {}}},
                    {"functionCall": {"id": "own", "name": "g"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "f", "response": {"output": "one"}}},
                    {"functionResponse": {"name": "f", "response": {"error": "two"}}},
                    {"functionResponse": {"id": "own", "name": "g", "response": {"a": 1}}},
                    {"functionResponse": {"id": "own", "name": "g", "response": {"a": 1}}},
                    {"text": "go on"},
                ],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "f",
                        "parameters": {"type": "OBJECT", "properties": {"x": {"type": "STRING", "nullable": True}}},
                    },
                    {"name": "g", "parametersJsonSchema": {"type": "object"}},
                ]
            },
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {
            "maxOutputTokens": 9,
            "responseMimeType": "application/json",
            "responseSchema": {"type": "OBJECT"},
            "thinkingConfig": {"thinkingBudget": 20000},
            "stopSequences": ["END"],
            "candidateCount": 1,
        },
        "safetySettings": [],
    },
}
"""Of each dialect a request with most of what there is."""


def list_places(value: object) -> list[tuple]:
    """Return the way to each value within a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(key, *rest) for key, inner in items for rest in [(), *list_places(inner)]]


def put(value: object, place: tuple, other: object) -> object:
    if not place:
        return other
    made = dict(value) if isinstance(value, dict) else list(value)
    made[place[0]] = put(value[place[0]], place[1:], other)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_a_request_with_anything_in_any_place_is_read_or_refused(name):
    found = set()
    for place in list_places(RICH[name]):
        for other in (None, 0, 2, "", "x", [], [0], {}, {"type": []}, [{}], [{"type": 1}], True):
            try:
                asked = read(name, put(RICH[name], place, other))
            except RequestRefused as refused:
                found.add((refused.status, refused.code))
            else:
                json.dumps([asked.messages, asked.tools, asked.parameters])
    assert found <= {(400, "invalid_request"), (400, "unsupported_parameter")}


def call(call_id: str, name: str, arguments: str) -> dict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def image(url: str) -> dict:
    return {"type": "image_url", "image_url": {"url": url}}


CUSTOM = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def test_an_event_is_ascii_whatever_it_tells():
    """Some clients end a line at U+2028; half characters are told as they are."""
    said = {"text": "é \u2028 \ud800 🦊"}
    line = write_event(said, "told")
    assert line.isascii()
    assert line.startswith(b"event: told\ndata: {")
    assert line.endswith(b"}\n\n")
    assert json.loads(line.partition(b"data: ")[2]) == said
    assert write_event({"a": [1, 0.5, None]}) == b'data: {"a":[1,0.5,null]}\n\n'


def test_what_is_read_of_chat():
    asked = read("chat", RICH["chat"])
    assert asked.messages[1]["tool_calls"] == [call("c", "p", '{"input": "x"}')]
    assert [tool["function"] for tool in asked.tools] == [
        {"name": "f"},
        {"name": "p", "description": "d", "parameters": CUSTOM},
    ]
    assert (asked.server_tools, asked.lost, asked.ignored) == (("mcp",), ("grammars of custom tools",), ())
    told = reply({"role": "assistant", "content": None, "tool_calls": [call("d", "p", '{"input": "hi"}')]})
    custom = {"id": "d", "type": "custom", "custom": {"name": "p", "input": "hi"}}
    assert AGENT_APIS["chat"].write(told, asked)["choices"][0]["message"]["tool_calls"] == [custom]
    events = b"".join(AGENT_APIS["chat"].events(told, asked))
    assert b'"custom":{"name":"p","input":""}' in events


def test_what_is_read_of_responses():
    asked = read("responses", RICH["responses"])
    assert asked.messages == [
        {"role": "system", "content": "i"},
        {"role": "system", "content": "d"},
        {"role": "user", "content": [{"type": "text", "text": "?"}, image(PIXEL)]},
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "hm",
            "tool_calls": [
                call("1", "ns__f", "{}"),
                call("2", "p", '{"input": "x"}'),
                call("3", "local_shell", '{"command": ["ls"]}'),
            ],
            ITEMS: RICH["responses"]["input"][2:7],
        },
        {"role": "tool", "tool_call_id": "1", "content": ""},
        {"role": "tool", "tool_call_id": "2", "content": "y"},
        {"role": "tool", "tool_call_id": "3", "content": "z"},
        {"role": "user", "content": [image(PIXEL)]},
    ]
    assert [tool["function"]["name"] for tool in asked.tools] == ["f", "p", "local_shell", "ns__f"]
    assert asked.parameters == {
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "verbosity": "low",
        "reasoning_effort": "low",
    }
    assert (asked.server_tools, asked.ignored) == (("web_search",), ("user",))
    assert asked.lost == (
        "places of images in results",
        "web_search_call items",
        "grammars of custom tools",
        "namespaces of tools",
    )


def test_calls_go_out_of_responses_as_the_agent_s_own_tools():
    asked = read("responses", RICH["responses"])
    calls = [
        call("1", "ns__f", "{}"),
        call("2", "p", '{"input": "x"}'),
        call("3", "local_shell", '{"command": ["ls"]}'),
    ]
    told = reply({"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls")
    items = AGENT_APIS["responses"].write(told, asked)["output"]
    wanted = [
        {"type": "function_call", "call_id": "1", "namespace": "ns", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "2", "name": "p", "input": "x"},
        {"type": "local_shell_call", "call_id": "3", "action": {"type": "exec", "env": {}, "command": ["ls"]}},
    ]
    assert [{key: item[key] for key in each} for item, each in zip(items, wanted, strict=True)] == wanted
    [answered] = read("responses", {**RICH["responses"], "input": items}).messages[1:]
    assert answered["tool_calls"] == calls


def test_a_refusal_is_one_where_the_dialect_has_a_word_for_it():
    told = reply({"role": "assistant", "content": None, "refusal": "I will not."})
    for name in NAMES:
        found = fold_events(name, b"".join(AGENT_APIS[name].events(told, ASKED)))
        wanted = "refused" if name == "responses" else "answered"  # to an agent, in chat too, it is the answer
        assert (found.content, found.end) == ("I will not.", wanted)


def test_what_is_read_of_messages():
    asked = read("messages", RICH["messages"])
    pixel = image("data:image/png;base64,AA==")
    assert asked.messages == [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "?"}, pixel, image("https://example.org/a.png")],
        },
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "hm",
            "tool_calls": [call("1", "f", '{"x": 1}'), call("2", "f", "{}")],
        },
        {"role": "tool", "tool_call_id": "1", "content": "[error] no"},
        {"role": "tool", "tool_call_id": "2", "content": "seen"},
        {"role": "user", "content": [pixel]},
        {"role": "user", "content": "go on"},
    ]
    assert asked.parameters == {
        "max_tokens": 9,
        "stop": ["END"],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "reasoning_effort": "low",
    }
    assert (asked.server_tools, asked.ignored) == (("web_search_20250305",), ("metadata",))
    assert asked.lost == (
        *("cache_control", "citations", "server_tool_use blocks"),
        *("marks of failed results", "places of images in results", "thinking budget"),
    )


def test_what_is_read_of_gemini():
    asked = read("gemini", RICH["gemini"])
    assert asked.messages == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "?"}, image("data:image/png;base64,AA==")]},
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "hm",
            "tool_calls": [call("call_1_2", "f", '{"x": 1}'), call("call_1_3", "f", "{}"), call("own", "g", "{}")],
        },
        {"role": "tool", "tool_call_id": "call_1_2", "content": "one"},
        {"role": "tool", "tool_call_id": "call_1_3", "content": "[error] two"},
        {"role": "tool", "tool_call_id": "own", "content": '{"a": 1}'},
        {"role": "user", "content": "go on"},
    ]
    schema = {"type": "object", "properties": {"x": {"type": ["string", "null"]}}}
    assert [tool["function"] for tool in asked.tools] == [
        {"name": "f", "parameters": schema},
        {"name": "g", "parameters": {"type": "object"}},
    ]
    assert asked.parameters == {
        "max_tokens": 9,
        "stop": ["END"],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "reasoning_effort": "high",
    }
    assert (asked.server_tools, asked.lost, asked.ignored) == (
        ("googleSearch",),
        ("marks of failed results", "thinking budget"),
        ("safetySettings",),
    )


TALK = {
    "chat": {"messages": [{"role": "user", "content": "?"}]},
    "responses": {"input": "?"},
    "messages": {"messages": [{"role": "user", "content": "?"}]},
    "gemini": {"contents": [{"parts": [{"text": "?"}]}]},
}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        *(("responses", field, "x") for field in ("previous_response_id", "conversation", "background", "prompt")),
        *(("messages", field, [{}]) for field in ("container", "mcp_servers")),
        *(("gemini", field, "x") for field in ("cachedContent", "cached_content")),
        ("chat", "messages", [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]),
        ("messages", "messages", [{"role": "user", "content": [{"type": "image", "source": {"file_id": "x"}}]}]),
        ("responses", "input", [{"type": "item_reference", "id": "x"}]),
        ("responses", "input", [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]),
    ],
)
def test_what_reaches_for_something_stored_is_refused_by_its_name(name, field, value):
    with pytest.raises(RequestRefused, match="is not supported here") as refused:
        read(name, {**TALK[name], field: value})
    assert (refused.value.status, refused.value.code) == (400, "unsupported_parameter")
    assert read(name, {**TALK[name], **({field: None} if field not in TALK[name] else {})}).messages


@pytest.mark.parametrize(
    ("name", "more", "code"),
    [
        ("chat", {"n": 2}, "unsupported_parameter"),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "unsupported_content"),
        ("gemini", {"generationConfig": {"candidateCount": 2}}, "unsupported_parameter"),
        ("gemini", {"generationConfig": {"responseModalities": ["AUDIO"]}}, "unsupported_parameter"),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "unsupported_content"),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "unsupported_content"),
        (
            "gemini",
            {"contents": [{"parts": [{"inlineData": {"mimeType": "audio/wav", "data": ""}}]}]},
            "unsupported_content",
        ),
    ],
)
def test_what_cannot_be_translated_is_read_and_says_so(name, more, code):
    refusal = read(name, {**TALK[name], **more}).refusal
    assert (refusal.status, refusal.code) == (400, code)


@pytest.mark.parametrize(
    ("method", "target", "headers", "route"),
    [
        ("POST", "/v1/chat/completions", {}, Route("chat", "ask")),
        ("POST", "/r/TOKEN/v1/chat/completions/", {}, Route("chat", "ask", token="TOKEN")),
        ("POST", "/r/TOKEN/responses", {}, Route("responses", "ask", token="TOKEN")),
        ("POST", "/any/prefix/v1/responses?beta=true", {}, Route("responses", "ask")),
        ("POST", "/v1/messages/count_tokens", {}, Route("messages", "count")),
        ("POST", "/v1/responses/count_tokens", {}, Route("responses", "unknown")),
        ("POST", "/v1/threads/t/messages", {}, Route("messages", "unknown")),
        ("GET", "/v1/responses/resp_1", {}, Route("responses", "unknown")),
        ("POST", "/v1beta/models/a%2Fb:generateContent", {}, Route("gemini", "ask", "a/b")),
        ("POST", "/models/m:countTokens", {}, Route("gemini", "count", "m")),
        ("POST", "/v1/models/m:streamGenerateContent", {}, Route("gemini", "ask", "m", as_list=True)),
        ("POST", "/v1beta/models/m:streamGenerateContent?alt=sse", {}, Route("gemini", "ask", "m", stream=True)),
        ("POST", "/v1beta/models/m:embedContent", {}, Route("gemini", "unknown")),
        ("GET", "/v1/models", {}, Route("chat", "models")),
        ("GET", "/v1/models/m", {"anthropic-version": "2023-06-01"}, Route("messages", "models", "m")),
        ("GET", "/v1beta/models", {}, Route("gemini", "models")),
        ("HEAD", "/r/TOKEN", {}, Route("chat", "ping", token="TOKEN")),
        ("HEAD", "/", {}, Route("chat", "ping")),
        ("GET", "/", {}, Route("chat", "unknown")),
        ("POST", "/v1/embeddings", {}, Route("chat", "unknown")),
    ],
)
def test_routes(method, target, headers, route):
    assert find_route(method, target, headers) == route


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("messages", {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}),
        ("messages", {409: "invalid_request_error", 413: "request_too_large", 429: "rate_limit_error"}),
        ("messages", {500: "api_error", 502: "api_error"}),
        ("gemini", {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 413: "INVALID_ARGUMENT"}),
        ("gemini", {429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 502: "INTERNAL"}),
    ],
)
def test_errors_by_status(name, kinds):
    for status, kind in kinds.items():
        made = AGENT_APIS[name].error(status, "the_code", "words")["error"]
        assert (made.get("status") or made["type"], made["message"]) == (kind, "words")
        assert "the_code" in json.dumps(made)


@pytest.mark.parametrize("name", NAMES)
def test_an_error_in_a_stream_is_found_by_who_reads_it(name):
    dialect = AGENT_APIS[name]
    with pytest.raises(RequestFailed, match="words"):
        fold_events(name, dialect.keep_alive * 2 + dialect.error_events(400, "bad_request", "words"))


@pytest.mark.parametrize("name", NAMES)
def test_what_keeps_a_connection_alive_says_nothing(name):
    told = reply({"role": "assistant", "content": "One two."})
    events = [*AGENT_APIS[name].events(told, ASKED)]
    assert fold_events(name, AGENT_APIS[name].keep_alive.join([b"", *events])).content == "One two."


def test_a_usage_of_gemini_is_that_of_its_last_event_and_never_a_sum():
    counted = {"promptTokenCount": 5, "toolUsePromptTokenCount": 2, "cachedContentTokenCount": 3}
    parts = [{"text": "a"}, {"text": "b"}]
    events = [
        {
            "candidates": [{"content": {"parts": [part]}, **({"finishReason": "STOP"} if at else {})}],
            "usageMetadata": {**counted, "candidatesTokenCount": at + 1, "thoughtsTokenCount": 4},
        }
        for at, part in enumerate(parts)
    ]
    usage = fold_events("gemini", b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 6, 13)
    assert (usage.cached_tokens, usage.reasoning_tokens, usage.cache_write_tokens) == (3, 4, None)


def test_a_stream_of_gemini_that_is_no_stream_of_events_is_a_list():
    asked = AGENT_APIS["gemini"].read(TALK["gemini"], find_route("POST", "/v1/models/m:streamGenerateContent", {}))
    assert not asked.stream
    [made] = AGENT_APIS["gemini"].write(reply({"role": "assistant", "content": "a"}), asked)
    assert parse("gemini", json.dumps(made).encode()).content == "a"


def test_what_is_translated_goes_without_what_only_its_own_provider_has_use_for():
    body = {**RICH["responses"], "input": RICH["responses"]["input"][1:4]}
    asked = translate(read("responses", body), "chat")
    assert asked.messages[-1] == {"role": "assistant", "content": "a"}
    asked = read("messages", {**TALK["messages"], "top_k": 64})
    assert [translate(asked, wire).parameters for wire in ("chat", "gemini")] == [{}, {"top_k": 64}]
    assert translate(asked, "chat").lost == ("top_k",)
    with pytest.raises(RequestRefused, match="'n' is not supported"):
        translate(read("chat", {**TALK["chat"], "n": 2}), "messages")


def test_a_long_text_comes_in_a_bounded_number_of_events():
    text = "word " * 10_000
    for name in NAMES:
        events = [*AGENT_APIS[name].events(reply({"role": "assistant", "content": text}), ASKED)]
        assert len(events) < 300
        assert fold_events(name, b"".join(events)).content == text


def test_calls_of_gemini_without_an_id_get_one_and_keep_their_signature():
    part = {"functionCall": {"name": "f", "args": {"x": 1}}, "thoughtSignature": "SIG"}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    body = json.dumps({"candidates": [candidate], "responseId": "r"}).encode()
    told = parse("gemini", body)
    [called] = told.tool_calls
    assert (called.id, called.arguments) == ("call_r_0", {"x": 1})
    result = {"role": "tool", "tool_call_id": called.id, "content": "done"}
    sent = write("gemini", [{"role": "user", "content": "?"}, told.message, result])["contents"]
    assert sent[1]["parts"] == [{**part, "functionCall": {**part["functionCall"], "id": "call_r_0"}}]
    answer = {"id": "call_r_0", "name": "f", "response": {"output": "done"}}
    assert sent[2]["parts"] == [{"functionResponse": answer}]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "it has no candidates"),
        ({"candidates": [1]}, "it has no candidates"),
        ({"candidates": [{"content": {"parts": [1]}}]}, "its parts are no objects"),
        ({"candidates": [{"content": {"parts": [{"functionCall": {"name": 1}}]}}]}, "its tool calls are malformed"),
    ],
)
def test_what_is_no_response_of_gemini_is_refused(body, said):
    with pytest.raises(RequestFailed, match=said):
        parse("gemini", json.dumps(body).encode())


def test_a_prompt_that_gemini_blocks_is_filtered():
    told = parse("gemini", b'{"promptFeedback": {"blockReason": "SAFETY"}}')
    assert (told.end, told.content) == ("filtered", None)
    stopped = {"candidates": [{"finishReason": "RECITATION"}]}
    assert parse("gemini", json.dumps(stopped).encode()).end == "filtered"
