"""Requests in batches: the kinds of batches by API, and the lines for each service."""

from __future__ import annotations

import json

import pytest
from support.endpoint_apis import (
    model,
)

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.batches.services import find_kind, open_service, require_kind


@pytest.mark.parametrize(
    ("api", "batch", "dialect", "kind"),
    [
        ("chat", "gemini", "auto", "gemini"),
        ("responses", "openai", "auto", "openai"),
        ("responses", "auto", "azure", "openai"),
        ("responses", "auto", "anthropic", None),
        ("responses", "gemini", "auto", None),
        ("messages", "anthropic", "auto", "anthropic"),
        ("messages", "openai", "auto", None),
    ],
)
def test_the_kind_of_a_batch_depends_on_the_api(api, batch, dialect, kind):
    asked = model(api, batch=batch, dialect=dialect)
    assert find_kind(asked) == kind
    if kind is None:
        wanted = {"responses": "openai", "messages": "anthropic"}[api]
        with pytest.raises(ConfigError, match=f"set batch: {wanted} if it has batches of that kind"):
            require_kind(asked)


def test_a_line_of_a_batch_has_the_request_of_its_service():
    body = {"model": "m", "input": []}
    line = json.loads(open_service("openai", model("responses"), "", {}).write_line("a-1", body))
    assert (line["url"], line["body"]) == ("/v1/responses", body)
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 1, "metadata": {"a": "b"}}
    assert json.loads(open_service("openai", model("chat"), "", {}).write_line("a-1", chat))["url"] == (
        "/v1/chat/completions"
    )
    body = {"model": "m", "messages": [], "max_tokens": 5}
    line = json.loads(open_service("anthropic", model("messages"), "", {}).write_line("a-1", body))
    assert line["params"] == body
    line = json.loads(open_service("anthropic", model("chat"), "", {}).write_line("a-1", chat))
    assert line["params"] == {"model": "m", "messages": chat["messages"], "max_tokens": 4096}


def test_a_line_of_googles_batch_has_system_and_developer_messages_apart():
    roles = ("system", "developer", "user", "assistant", "user")
    body = {"messages": [{"role": role, "content": f"{number}"} for number, role in enumerate(roles)]}
    line = json.loads(open_service("gemini", model("chat"), "", {}).write_line("a-1", body))
    assert line["request"] == {
        "contents": [
            {"role": role, "parts": [{"text": f"{number}"}]}
            for number, role in ((2, "user"), (3, "model"), (4, "user"))
        ],
        "systemInstruction": {"parts": [{"text": "0\n\n1"}]},
    }
