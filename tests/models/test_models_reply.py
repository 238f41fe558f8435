"""Replies as endpoints really write them, and what they cost."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys

import genai_prices
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cpu_seconds import at_most

from pytest_agentbench.models.failures import RequestFailed
from pytest_agentbench.models.messages import ToolCall, digest_media, is_call_as_text
from pytest_agentbench.models.replies import price_by_library, price_by_table, read_reply, read_usage
from pytest_agentbench.records.case import Model, Prices
from pytest_agentbench.records.run import Usage

MODEL = Model(model_id="m", requested_model="gpt-4o-mini")
LOCAL = MODEL.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})


def read(message: object, **top):
    body = {"id": "x", "model": "gpt-4o-mini", "choices": [{"message": message, "finish_reason": "stop"}]} | top
    return read_reply(json.dumps(body).encode(), "application/json", LOCAL, attempts=1, seconds=0.1)


def call(arguments: object, **fields) -> dict:
    return {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}} | fields


@pytest.mark.parametrize(
    ("raw", "arguments", "kept"),
    [
        ('{"a": 1}', {"a": 1}, '{"a": 1}'),
        ("", {}, ""),
        ('{"a": ', None, '{"a": '),
        ("[1]", None, "[1]"),
        ('{"seconds": NaN}', None, '{"seconds": NaN}'),  # it is within every limit
        ({"a": 1}, {"a": 1}, '{"a": 1}'),
        (None, {}, "{}"),
        ("[" * 100_000, None, "[" * 100_000),
    ],
)
def test_tool_arguments(raw, arguments, kept):
    reply = read({"content": None, "tool_calls": [call(raw)]})
    assert reply.tool_calls == (ToolCall("c1", "add", arguments, kept),)
    assert reply.message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": kept}}],
    }


def test_calls_without_ids_get_ids():
    calls = read({"content": "", "tool_calls": [call("{}", id=None), call("{}", id="")]}).tool_calls
    assert len({each.id for each in calls}) == 2
    assert all(re.fullmatch("[A-Za-z0-9]{9}", each.id) for each in calls)


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"content": "hi"}, "hi"),
        ({"content": ""}, ""),
        ({"content": None}, None),
        ({"content": None, "refusal": "I will not"}, "I will not"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "thinking"}, {"type": "text", "text": "b"}]}, "ab"),
    ],
)
def test_content(message, content):
    assert read(message).content == content


def test_a_lone_surrogate_cannot_break_what_is_written_later():
    body = b'{"choices": [{"message": {"content": "bad \\ud800 good \\ud83d\\ude00"}}]}'
    reply = read_reply(body, "application/json", LOCAL, attempts=1, seconds=0)
    assert reply.content == "bad ? good 😀"


def test_a_message_is_kept_as_it_came():
    came = {"role": "assistant", "content": "x", "reasoning_details": [{"d": 1}], "annotations": [], "audio": None}
    assert read(came).message == came


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_a_reply_or_a_failed_request(body):
    with pytest.raises(RequestFailed):
        read_reply(body, "text/plain", LOCAL, attempts=1, seconds=0)


@pytest.mark.slow
@given(json_values, json_values, json_values, json_values)
def test_any_shape_inside_is_a_reply_or_a_failed_request(content, calls, usage, finish):
    body = {
        "choices": [{"message": {"content": content, "tool_calls": calls}, "finish_reason": finish}],
        "usage": usage,
    }
    try:
        reply = read_reply(json.dumps(body).encode(), "application/json", LOCAL, attempts=1, seconds=0)
    except RequestFailed:
        return
    assert reply.content is None or isinstance(reply.content, str)
    Usage.model_validate(reply.usage.model_dump())


USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 400},
    "completion_tokens_details": {"reasoning_tokens": 60},
}


def test_usage_is_normalised_and_kept():
    usage = read_usage(USAGE, LOCAL, "gpt-4o-mini")
    assert usage == Usage(
        input_tokens=1000, output_tokens=100, total_tokens=1100, reasoning_tokens=60, cached_tokens=400, raw=(USAGE,)
    )
    other = read_usage({"input_tokens": 3, "output_tokens": 4, "total_tokens": 9}, LOCAL, "x")
    assert (other.input_tokens, other.output_tokens, other.total_tokens, other.cached_tokens) == (3, 4, 9, None)
    assert read_usage(None, LOCAL, "x") == Usage()
    assert read_usage({"prompt_tokens": "many", "completion_tokens": True}, LOCAL, "x").total_tokens is None


PRICES = Prices(input_per_1m=2.5, output_per_1m=10, cached_input_per_1m=1.25)


def test_cost_is_the_providers_own_then_by_price_then_by_library_then_unknown():
    priced = LOCAL.model_copy(update={"prices": PRICES})
    assert read_usage(USAGE | {"cost": 0.25}, priced, "x").cost_usd == 0.25
    assert read_usage(USAGE, priced, "x").cost_usd == pytest.approx((600 * 2.5 + 400 * 1.25 + 100 * 10) / 1e6)
    assert read_usage(USAGE, MODEL, "gpt-4o-mini-2024-07-18").cost_usd == pytest.approx(0.00018, rel=0.5)
    assert read_usage(USAGE, LOCAL, "gpt-4o-mini").cost_usd is None
    assert read_usage(USAGE, MODEL, "nobody-knows-me").cost_usd == read_usage(USAGE, MODEL, "gpt-4o-mini").cost_usd
    unknown = MODEL.model_copy(update={"requested_model": "nobody-knows-me-either"})
    assert read_usage(USAGE, unknown, "nobody-knows-me").cost_usd is None


def test_a_scripted_model_costs_nothing_unless_priced():
    scripted = MODEL.model_copy(update={"scripted": True})
    assert read_usage(USAGE, scripted, "demo").cost_usd == 0
    assert read_usage(USAGE, scripted.model_copy(update={"prices": PRICES}), "demo").cost_usd > 0


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_cached_tokens_never_cost_more(prompt, completion, cached):
    usage = Usage(input_tokens=prompt, output_tokens=completion, cached_tokens=cached)
    full = price_by_table(usage.model_copy(update={"cached_tokens": 0}), PRICES)
    assert 0 <= price_by_table(usage, PRICES) <= full


def test_unknown_tokens_have_no_price():
    assert price_by_table(Usage(output_tokens=3), PRICES) is None
    assert price_by_library(Usage(output_tokens=3), "https://api.openai.com/v1", "gpt-4o") is None


@pytest.mark.slow
def test_the_price_library_needs_no_network():
    code = """
import socket
def refuse(*args, **kwargs): raise AssertionError("network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from pytest_agentbench.models.replies import price_by_library
from pytest_agentbench.records.run import Usage
usage = Usage(input_tokens=1000, output_tokens=100)
print(price_by_library(usage, "https://openrouter.ai/api/v1", "openai/gpt-4o-mini"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0


CLAUDE = "https://api.anthropic.com/v1"


@pytest.mark.parametrize(
    ("base_url", "model", "flavor", "block"),
    [
        (
            "https://api.x.ai/v1",
            "grok-4",
            "chat",
            {
                "prompt_tokens": 4643,
                "completion_tokens": 1187,
                "total_tokens": 6690,
                "completion_tokens_details": {"reasoning_tokens": 860},
                "prompt_tokens_details": {"cached_tokens": 100},
            },
        ),
        (
            CLAUDE,
            "claude-sonnet-4-5",
            "default",
            {
                "input_tokens": 1000,
                "output_tokens": 50,
                "cache_creation_input_tokens": 1500,
                "cache_read_input_tokens": 500,
                "cache_creation": {"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 500},
            },
        ),
        (
            "https://openrouter.ai/api/v1",
            "anthropic/claude-sonnet-4.5",
            "chat",
            {
                "prompt_tokens": 3000,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 1000, "cache_write_tokens": 1500},
            },
        ),
    ],
)
def test_tokens_are_those_that_the_price_library_reads(base_url, model, flavor, block):
    theirs = genai_prices.extract_usage(
        {"model": model, "usage": block}, provider_api_url=base_url, api_flavor=flavor
    ).usage
    asked = Model(model_id="m", requested_model=model, base_url=base_url)
    ours = read_usage(block, asked, model)
    assert (ours.input_tokens, ours.output_tokens, ours.cached_tokens or 0) == (
        theirs.input_tokens,
        theirs.output_tokens,
        theirs.cache_read_tokens or 0,
    )
    assert (ours.cache_write_tokens or 0, ours.cache_write_1h_tokens or 0) == (
        theirs.cache_write_tokens or 0,
        theirs.cache_write_1h_tokens or 0,
    )
    price = genai_prices.calc_price(theirs, model, provider_api_url=base_url).total_price
    assert ours.cost_usd == pytest.approx(float(price))


def test_cache_writes_have_their_own_price():
    block = {
        "prompt_tokens": 3000,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 1000, "cache_write_tokens": 1500},
    }
    listed = Model(model_id="m", requested_model="claude-sonnet-4-5", base_url=CLAUDE)
    usage = read_usage(block, listed, "claude-sonnet-4-5")
    assert usage.cost_usd == pytest.approx(0.007575)
    assert usage.uncached_cost_usd == pytest.approx(0.00915)
    prices = Prices(input_per_1m=3, output_per_1m=15, cached_input_per_1m=0.3)
    assert read_usage(block, listed.model_copy(update={"prices": prices}), "m").cost_usd == pytest.approx(0.00645)
    prices = prices.model_copy(update={"cache_write_per_1m": 3.75})
    own = read_usage(block, listed.model_copy(update={"prices": prices}), "m")
    assert own.cost_usd == pytest.approx(0.007575)
    assert own.uncached_cost_usd == pytest.approx(0.00915)
    told = {"input_tokens": 500, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 1500}
    split = {**told, "output_tokens": 10, "cache_creation": {"ephemeral_1h_input_tokens": 500}}
    assert read_usage(split, listed.model_copy(update={"prices": prices}), "m").cost_usd == pytest.approx(0.007575)
    prices = prices.model_copy(update={"cache_write_1h_per_1m": 6.0})
    assert read_usage(split, listed.model_copy(update={"prices": prices}), "m").cost_usd == pytest.approx(0.0087)


def test_large_binary_parts_are_described_by_size_and_hash():
    picture = bytes(range(256)) * 300
    coded = base64.b64encode(picture).decode()
    told = {"size": len(picture), "sha256": hashlib.sha256(picture).hexdigest()}
    word = "a" * 100_000
    message = {
        "content": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{coded}"}},
            {"type": "image_url", "image_url": f"data:image/png;base64,{coded}"},
            {"type": "text", "text": word},
            {"type": "image", "source": {"data": coded[:1000]}},
        ],
        "audio": {"data": base64.urlsafe_b64encode(picture).decode()},
        "reasoning_content": word,
        "link": "https://example.org/" + word,
    }
    assert digest_media(message) == {
        **message,
        "content": [
            {"type": "image_url", "image_url": {"url": told}},
            {"type": "image_url", "image_url": told},
            *message["content"][2:],
        ],
        "audio": {"data": told},
    }
    assert digest_media({"content": word}) == {"content": word}


OFFERED = ("write_file", "get.weather-now")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "write_file", "arguments": {"path": "a.txt"}}\n</tool_call>',
        'I will write it.\n<tool_call>{"name": "write_file", "arguments": {}}</tool_call>',
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>\n</tool_call>",
        '<function=write_file>{"path": "a.txt"}</function>',
        '<function_calls>\n<invoke name="write_file">\n<parameter name="path">a.txt</parameter>\n</invoke>',
        '<minimax:tool_call>\n<invoke name="write_file"></invoke>\n</minimax:tool_call>',
        '<｜DSML｜function_calls><｜DSML｜invoke name="write_file">',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write_file",
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>{"path": 1}',
        '<|tool_call|>[{"name": "write_file", "arguments": {}}]',
        '<|python_tag|>{"name": "write_file", "parameters": {"path": "a.txt"}}',
        '<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>{"path": "a.txt"}',
        '[TOOL_CALLS][{"name": "write_file", "arguments": {"path": "a.txt"}}]',
        '[TOOL_CALLS]write_file[ARGS]{"path": "a.txt"}',
        'functools[{"name": "write_file", "arguments": {}}]',
        '```tool_code\nwrite_file(path="a.txt")\n```',
        '{"name": "write_file", "parameters": {"path": "a.txt"}}',
        '[{"name": "get.weather-now", "arguments": "{}"}]',
        '```json\n{"name": "write_file", "arguments": {}}\n```',
        '[write_file(path="a.txt", content="b")]',
        'write_file(path="a.txt")',
    ],
)
def test_a_call_in_any_markup_is_a_call_as_text(text):
    assert is_call_as_text(text, OFFERED)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Paris",
        "I would use write_file for it.",
        "It was written (see a.txt).",
        '<tool_call>{"name": "delete_file", "arguments": {}}</tool_call>',
        "write_file begins with <tool_call>",
        '{"name": "write_file"}',
        '{"name": "Ada", "arguments": {}}',
        '[{"arguments": {}}, "write_file", 1]',
        '{"name": ["write_file"], "arguments": {}}',
        "[write_file]",
        "print(1)",
        "[" * 100_000,
        "```\n```",
        "```",
    ],
)
def test_other_text_is_no_call(text):
    assert not is_call_as_text(text, OFFERED)


@pytest.mark.parametrize("text", ["write_file(" + ") " * 200_000 + "x", "```x" + " " * 200_000 + "y", "<|" * 200_000])
def test_hostile_text_is_searched_for_calls_in_no_time(text):
    with at_most(1):
        assert not is_call_as_text(text, OFFERED)
