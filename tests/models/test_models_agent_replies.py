"""Replies to agents: events, errors and keep-alives of each API."""

from __future__ import annotations

import json

import pytest
from support.agent_apis import ASKED, NAMES, TALK, fold_events, parse, reply

from pytest_agentbench.models.apis.base import write_event
from pytest_agentbench.models.apis.choice import AGENT_APIS, find_route
from pytest_agentbench.models.failures import RequestFailed


def test_an_event_is_ascii():
    """Some clients end a line at U+2028; half characters are told as they are."""
    said = {"text": "é \u2028 \ud800 🦊"}
    line = write_event(said, "told")
    assert line.isascii()
    assert line.startswith(b"event: told\ndata: {")
    assert line.endswith(b"}\n\n")
    assert json.loads(line.partition(b"data: ")[2]) == said
    assert write_event({"a": [1, 0.5, None]}) == b'data: {"a":[1,0.5,null]}\n\n'


def test_only_responses_have_refusals():
    told = reply({"role": "assistant", "content": None, "refusal": "I will not."})
    for name in NAMES:
        found = fold_events(name, b"".join(AGENT_APIS[name].events(told, ASKED)))
        wanted = "refused" if name == "responses" else "answered"  # to an agent, in chat too, it is the answer
        assert (found.content, found.end) == ("I will not.", wanted)


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
def test_an_error_has_the_type_of_its_status(name, kinds):
    for status, kind in kinds.items():
        made = AGENT_APIS[name].error(status, "the_code", "words")["error"]
        assert (made.get("status") or made["type"], made["message"]) == (kind, "words")
        assert "the_code" in json.dumps(made)


@pytest.mark.parametrize("name", NAMES)
def test_the_reader_of_a_stream_finds_its_error(name):
    dialect = AGENT_APIS[name]
    with pytest.raises(RequestFailed, match="words"):
        fold_events(name, dialect.keep_alive * 2 + dialect.error_events(400, "bad_request", "words"))


@pytest.mark.parametrize("name", NAMES)
def test_keep_alives_do_not_change_a_streamed_reply(name):
    told = reply({"role": "assistant", "content": "One two."})
    events = [*AGENT_APIS[name].events(told, ASKED)]
    assert fold_events(name, AGENT_APIS[name].keep_alive.join([b"", *events])).content == "One two."


def test_gemini_writes_a_stream_without_events_as_a_list():
    asked = AGENT_APIS["gemini"].read(TALK["gemini"], find_route("POST", "/v1/models/m:streamGenerateContent", {}))
    assert not asked.stream
    [made] = AGENT_APIS["gemini"].write(reply({"role": "assistant", "content": "a"}), asked)
    assert parse("gemini", json.dumps(made).encode()).content == "a"


def test_a_long_text_has_a_bounded_number_of_events():
    text = "word " * 10_000
    for name in NAMES:
        events = [*AGENT_APIS[name].events(reply({"role": "assistant", "content": text}), ASKED)]
        assert len(events) < 300
        assert fold_events(name, b"".join(events)).content == text
