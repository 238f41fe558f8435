"""Clients that ask for what they do not get: REFUSAL by SDK, printed as the exceptions that were raised."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

MODEL = "m-1"
BASE = os.environ["ANTHROPIC_BASE_URL"]
GO: list[Any] = [{"role": "user", "content": "Go."}]
Asks = Mapping[str, Callable[[], Any]]


def chat() -> Asks:
    from openai import OpenAI

    client, foreign = OpenAI(max_retries=0), OpenAI(api_key="sk-x", base_url=BASE.rpartition("/r/")[0], max_retries=0)
    create = client.chat.completions.create
    return {
        "asked": lambda: create(model=MODEL, messages=GO),
        "endpoint": client.files.list,
        "model": lambda: create(model="other", messages=GO),
        "server_tool": lambda: create(model=MODEL, messages=GO, tools=[{"type": "web_search"}]),
        "parameter": lambda: create(model=MODEL, messages=GO, extra_body={"container": "c-1"}),
        "large": lambda: create(model=MODEL, messages=[{"role": "user", "content": "x" * 33 * 2**20}]),
        "foreign": lambda: foreign.chat.completions.create(model=MODEL, messages=GO),
    }


def responses() -> Asks:
    from openai import OpenAI

    client, foreign = OpenAI(max_retries=0), OpenAI(api_key="sk-x", base_url=BASE.rpartition("/r/")[0], max_retries=0)
    create = client.responses.create
    return {
        "asked": lambda: create(model=MODEL, input="Go."),
        "endpoint": lambda: client.responses.retrieve("resp_1"),
        "model": lambda: create(model="other", input="Go."),
        "server_tool": lambda: create(model=MODEL, input="Go.", tools=[{"type": "web_search"}]),
        "parameter": lambda: create(model=MODEL, input="Go.", previous_response_id="resp_1"),
        "large": lambda: create(model=MODEL, input="x" * 33 * 2**20),
        "foreign": lambda: foreign.responses.create(model=MODEL, input="Go."),
    }


def messages() -> Asks:
    from anthropic import Anthropic

    client = Anthropic(max_retries=0)
    foreign = Anthropic(api_key="sk-x", base_url=BASE.rpartition("/r/")[0], max_retries=0)
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "messages": GO}
    search = {"type": "web_search_20250305", "name": "web_search"}
    return {
        "asked": lambda: client.messages.create(**asked),
        "endpoint": client.messages.batches.list,
        "model": lambda: client.messages.create(**{**asked, "model": "other"}),
        "server_tool": lambda: client.messages.create(**asked, tools=[search]),
        "parameter": lambda: client.messages.create(**asked, extra_body={"container": "c-1"}),
        "large": lambda: client.messages.create(**{**asked, "system": "x" * 33 * 2**20}),
        "foreign": lambda: foreign.messages.create(**asked),
    }


def gemini() -> Asks:
    from google import genai

    client = genai.Client()
    foreign = genai.Client(api_key="AIza-x", http_options={"base_url": BASE.rpartition("/r/")[0]})

    def ask(**fields: Any) -> Any:
        return client.models.generate_content(**{"model": MODEL, "contents": "Go.", **fields})

    return {
        "asked": ask,
        "endpoint": lambda: list(client.files.list()),
        "model": lambda: ask(model="other"),
        "server_tool": lambda: ask(config={"tools": [{"google_search": {}}]}),
        "parameter": lambda: ask(config={"cached_content": "cachedContents/1"}),
        "large": lambda: ask(contents="x" * 33 * 2**20),
        "foreign": lambda: foreign.models.generate_content(model=MODEL, contents="Go."),
    }


def raised(ask: Callable[[], Any]) -> list[Any]:
    """Return the class of the exception, its status and its text; [] where there is none."""
    try:
        ask()
    except Exception as error:
        status = getattr(error, "status_code", None) or getattr(error, "code", None)
        return [type(error).__name__, status, str(error)[:500]]
    return []


dialect, *names = sys.argv[1:]
asks = {"chat": chat, "responses": responses, "messages": messages, "gemini": gemini}[dialect]()
print(json.dumps({name: raised(asks[name]) for name in names}))
