"""Requests to endpoints and their replies, in Responses and Messages."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st

from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.replies import read_reply
from pytest_agentbench.models.spelling import Spelling, compose_request, dialect_of
from pytest_agentbench.records.case import Model

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 2?"}]

TOOL = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}

SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}

FORM = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}

URL = "http://127.0.0.1:1/v1"


def model(api: str, **fields) -> Model:
    return Model(model_id="m", requested_model="m", base_url=URL, api=api, **fields)


def write(api: str, *messages: dict, tools: tuple = (), entry: Model | None = None, **parameters) -> dict:
    """The body of a request."""
    asked = entry or model(api)
    spelling = Spelling(dialect_of(asked), asked)
    composed = compose_request(asked, [*ASKED, *messages], tools, parameters)
    return spelling.write(spelling.spell(composed)[0])


def read(api: str, body: dict) -> ChatReply:
    return read_reply(json.dumps(body).encode(), "application/json", model(api), attempts=1, seconds=0.1)


def response(*output: dict, **fields) -> dict:
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return {"id": "resp_1", "model": "m-1", "status": "completed", "output": [*output], "usage": usage, **fields}


def message(*content: dict, stop_reason: str = "end_turn", **fields) -> dict:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [*content],
        "stop_reason": stop_reason,
        "usage": usage,
        **fields,
    }


def text_item(text: str, **fields) -> dict:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **fields}


def call_item(name: str = "add", arguments: str = "{}", **fields) -> dict:
    return {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments, **fields}


REASONED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"}

THOUGHT = {"type": "thinking", "thinking": "two and two", "signature": "SIG"}

SEALED = {"type": "redacted_thinking", "data": "abc"}

USED = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)

JSON = st.dictionaries(TEXT, st.one_of(st.integers(-5, 5), TEXT, st.booleans(), st.none(), st.lists(TEXT)), max_size=3)

BLOCKS = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, TEXT),
        st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, TEXT, TEXT),
        st.builds(lambda data: {"type": "redacted_thinking", "data": data}, TEXT),
        st.builds(lambda name, given: {"type": "tool_use", "name": name, "input": given}, TEXT, JSON),
    ),
    min_size=1,
    max_size=5,
).map(lambda blocks: [{**b, "id": f"t{n}"} if b["type"] == "tool_use" else b for n, b in enumerate(blocks)])

FEW = settings(max_examples=20)
