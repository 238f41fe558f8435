"""Dialects of agents: what is read of a request, what is written of a reply, and that both come back the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_agentbench.models.dialects.base import Asked, RequestRefused, Route
from pytest_agentbench.models.dialects.choice import DIALECTS
from pytest_agentbench.models.protocols.anthropic import BLOCKS
from pytest_agentbench.models.protocols.choice import PROTOCOLS
from pytest_agentbench.models.protocols.gemini import PARTS
from pytest_agentbench.models.protocols.responses import ITEMS
from pytest_agentbench.models.protocols.streams import open_reader
from pytest_agentbench.models.replies import ChatReply, read_reply
from pytest_agentbench.records.case import Model

NAMES = sorted(DIALECTS)
PIXEL = "data:image/png;base64,iVBORw0KGgo="
NATIVE = {"responses": ITEMS, "messages": BLOCKS, "gemini": PARTS}


def read(name: str, body: dict) -> Asked:
    return DIALECTS[name].read(body, Route(name, "ask", "m" if name == "gemini" else None))


def write(name: str, messages: list, tools: list = (), **parameters) -> dict:
    """A request as an agent sends it: what our own client would."""
    return PROTOCOLS[name].write({"model": "m", "messages": messages, "tools": tools, **parameters})


def reply(message: dict, finish: str = "stop", usage: dict | None = None, api: str = "chat") -> ChatReply:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "c-1", "model": "m", "choices": [choice], "usage": usage or {}}
    return parse("chat", json.dumps(body).encode())


def parse(name: str, body: bytes) -> ChatReply:
    """A reply as our own client reads it."""
    model = Model(model_id="m", requested_model="m", base_url="http://127.0.0.1:1/v1", api=name)
    return read_reply(body, "application/json", model, attempts=1, seconds=0.1)


def fold(name: str, events: bytes) -> ChatReply:
    reader = open_reader(name)
    reader.feed(events)
    return parse(name, reader.finish(200, {}).content)


ASKED = Asked("m", [])
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20)
NAME = st.from_regex(r"[a-z]{1,8}", fullmatch=True)


def objects(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.dictionaries(NAME, values, max_size=3)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | objects(inner),
    max_leaves=6,
)


@st.composite
def contents(draw) -> str | list:
    if draw(st.booleans()):
        return draw(TEXT)
    parts = st.one_of(
        TEXT.map(lambda text: {"type": "text", "text": text}),
        st.just({"type": "image_url", "image_url": {"url": PIXEL}}),
    )
    drawn = draw(st.lists(parts, min_size=1, max_size=3))
    return drawn[0]["text"] if len(drawn) == 1 and drawn[0]["type"] == "text" else drawn


@st.composite
def conversations(draw) -> list[dict]:
    """Messages as the internal form has them: a system text, then turns, each with calls and their results."""
    made = [{"role": "system", "content": draw(TEXT)}] if draw(st.booleans()) else []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        made.append({"role": "user", "content": draw(contents())})
        for _ in range(draw(st.integers(0, 2))):
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                function = {"name": draw(NAME), "arguments": json.dumps(draw(objects(JSON)), ensure_ascii=False)}
                calls.append({"id": f"call_{number}", "type": "function", "function": function})
            made.append({"role": "assistant", "content": draw(st.none() | TEXT), "tool_calls": calls})
            made += [{"role": "tool", "tool_call_id": call["id"], "content": draw(TEXT)} for call in calls]
        made.append({"role": "assistant", "content": draw(TEXT)})
    return made


TOOLS = st.lists(
    st.builds(
        lambda name, said: {
            "type": "function",
            "function": {"name": name, "description": said, "parameters": {"type": "object", "properties": {}}},
        },
        NAME,
        TEXT,
    ),
    max_size=3,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=conversations(), tools=TOOLS)
def test_a_conversation_comes_back_the_same(name, messages, tools):
    asked = read(name, write(name, messages, tools))
    assert (asked.messages, asked.tools) == (messages, tools)
    assert (asked.model, asked.lost, asked.server_tools, asked.refusal) == ("m", (), (), None)


@st.composite
def messages(draw) -> tuple[dict, str]:
    calls = [
        {
            "id": f"call_{at}",
            "type": "function",
            "function": {"name": draw(NAME), "arguments": json.dumps(draw(objects(JSON)), ensure_ascii=False)},
        }
        for at in range(draw(st.integers(0, 2)))
    ]
    made = {"role": "assistant", "content": draw(TEXT if not calls else st.none() | TEXT)}
    if calls:
        made["tool_calls"] = calls
    if draw(st.booleans()):
        made["reasoning_content"] = draw(TEXT)
    return made, "tool_calls" if calls else draw(st.sampled_from(["stop", "length"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    made=messages(), counts=st.tuples(*[st.integers(0, 50)] * 2), cached=st.integers(0, 9), thought=st.integers(0, 9)
)
def test_a_reply_comes_back_the_same_whole_and_in_events(name, made, counts, cached, thought):
    usage = {
        "prompt_tokens": counts[0] + cached,
        "completion_tokens": counts[1] + thought,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    told = reply(*made, usage)
    dialect = DIALECTS[name]
    whole = parse(name, json.dumps(dialect.write(told, ASKED)).encode())
    streamed = fold(name, b"".join(dialect.events(told, ASKED)))
    for found in (whole, streamed):
        assert (found.content, found.thoughts, found.end) == (told.content, told.thoughts, told.end)
        assert [(c.id, c.name, c.arguments) for c in found.tool_calls] == [
            (c.id, c.name, c.arguments) for c in told.tool_calls
        ]
        ours, theirs = (
            (each.usage.input_tokens, each.usage.output_tokens, each.usage.cached_tokens) for each in (told, found)
        )
        assert ours == theirs
        if name != "messages":
            assert found.usage.reasoning_tokens == thought
        # What the agent sends back of it is what the model said, but for signatures of our own
        own = {k: v for k, v in found.message.items() if k not in NATIVE.values()}
        if name in ("messages", "responses"):
            back = read(name, write(name, [{"role": "user", "content": "?"}, found.message])).messages
            assert back[1:] == [own]


KEYS = st.sampled_from(
    [
        *("type", "role", "content", "text", "name", "id", "call_id", "input", "output", "arguments", "tools", "parts"),
        *("messages", "contents", "source", "image_url", "functionCall", "functionResponse", "tool_calls", "custom"),
        *("functionDeclarations", "function_declarations", "inlineData", "generationConfig", "thinking", "system"),
        *("tool_choice", "reasoning", "format", "namespace", "action", "summary", "thinkingConfig", "function", "args"),
        *("systemInstruction", "toolConfig", "functionCallingConfig", "mimeType", "parameters", "output_config", "n"),
    ]
)
WORDS = st.sampled_from(
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
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=40,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
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
