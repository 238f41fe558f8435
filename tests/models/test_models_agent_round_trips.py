"""Requests and replies of agents in each API: conversations made at random come back unchanged."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.agent_apis import ASKED, NAMES, PIXEL, RICH, fold_events, parse, read, reply, write

from pytest_agentbench.models.apis.base import BLOCKS, ITEMS, PARTS, RequestRefused
from pytest_agentbench.models.apis.choice import AGENT_APIS
from pytest_agentbench.models.messages import ChatReply

NATIVE = {"responses": ITEMS, "messages": BLOCKS, "gemini": PARTS}

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
def test_a_conversation_is_unchanged_by_writing_and_reading(name, seeds):
    for seed in seeds:
        made = Made(seed)
        messages, tools = made.conversation(), made.tools()
        asked = read(name, write(name, messages, tools))
        assert (asked.messages, asked.tools) == (messages, tools)
        assert (asked.model, asked.lost, asked.server_tools, asked.refusal) == ("m", (), (), None)


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_sealed_thoughts_are_unchanged_by_writing_and_reading(name):
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
def test_a_reply_is_unchanged_whole_and_in_events(name, seeds):
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
