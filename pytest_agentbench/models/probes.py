"""Send a dozen small requests to an endpoint: supported parts of a chat, forms of refusal, and settings to write
down.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.client import ChatClient, Connection, Endpoints
from pytest_agentbench.models.failures import RequestFailed
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.models.learning import LIMITS
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.replies import RawReply, price_tokens
from pytest_agentbench.models.routes import DEFAULT_BASE_URL
from pytest_agentbench.models.spelling import compose_request, write_request
from pytest_agentbench.models.streaming import ask_for_stream
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage

MOST_REQUESTS = 12
MOST_TOKENS = 64
_FEW_TOKENS = 8
_FORECAST = Usage(input_tokens=400, output_tokens=9 * MOST_TOKENS + _FEW_TOKENS)
"""Expected usage of all probes: two are refused normally, and one is cut at eight tokens."""
_SECONDS = 60.0
_QUESTION = ({"role": "user", "content": "Say 4."},)
_NO_MODEL = "agentbench-no-such-model"


def _make_tool(name: str, description: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


_WEATHER = _make_tool("weather", "Tell the weather of a city.")
_TIME = _make_tool("time", "Tell the time in a city.")
_ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Probed:
    """Result of one probe. `works` is None if it was not sent, or is inconclusive.

    `write` contains settings for an entry of models.yaml.
    """

    number: int
    name: str
    works: bool | None
    said: str
    write: Mapping[str, Any] = field(default_factory=dict)


class SpentError(Exception):
    """All requests that may be sent were sent."""


class BoundedConnection:
    """A connection that sends at most MOST_REQUESTS requests, including retries."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.sent = 0

    async def send(self, body: bytes, headers: Mapping[str, str], stall_seconds: float | None = None) -> RawReply:
        """Implement `Connection`. Raises SpentError."""
        if self.sent >= MOST_REQUESTS:
            raise SpentError
        self.sent += 1
        return await self._connection.send(body, headers, stall_seconds)

    async def close(self) -> None:
        """Implement `Connection`."""
        await self._connection.close()


def forecast_cost(model: Model) -> float | None:
    """Return the approximate cost of all probes in USD, or None if the price is unknown."""
    return price_tokens(_FORECAST, model)


class Prober:
    """Probes one model at its endpoint, one request after the other. `parameters` are those of the run profile."""

    def __init__(self, model: Model, parameters: Mapping[str, Any]) -> None:
        self.model, self._parameters = model, parameters
        self._connections: list[BoundedConnection] = []
        self._endpoints = Endpoints(wrap=self._bound)
        self._client: ChatClient = self._endpoints.client(model)
        self._called: tuple[list[dict[str, Any]], ChatReply] | None = None
        self.costs: list[float | None] = []

    @property
    def requests(self) -> int:
        """Return how many requests were sent."""
        return sum(connection.sent for connection in self._connections)

    def _bound(self, connection: Connection) -> Connection:
        self._connections.append(bounded := BoundedConnection(connection))
        return bounded

    async def run(self, tell: Callable[[Probed], None]) -> list[Probed]:
        """Return the results of all probes; `tell` gets each at once. The first two must work for the others to run."""
        probes: Sequence[tuple[str, Callable[[], Awaitable[tuple[bool | None, str, Mapping[str, Any]]]]]] = (
            ("an answer", self._ask),
            ("the profile's parameters", self._ask_with_parameters),
            (f"a limit of {_FEW_TOKENS} tokens", self._limit),
            ("a tool", self._call_tool),
            ("the round trip of a call", self._return_result),
            ("a final answer", self._force_answer),
            ("two calls at once", self._call_two),
            ("a form of reply", self._ask_in_form),
            ("streaming", self._stream),
            ("seed and temperature", self._repeat),
            ("a limit of 10,000,000 tokens", self._overflow),
            ("a model that does not exist", self._misname),
        )
        results: list[Probed] = []
        try:
            for number, (name, probe) in enumerate(probes, start=1):
                try:
                    works, said, write = await probe()
                except ProviderError as error:
                    works, said, write = False, _shorten(str(error)), {}
                except SpentError:
                    works, said, write = None, f"not asked: all {MOST_REQUESTS} requests were sent", {}
                results.append(Probed(number, name, works, said, write))
                tell(results[-1])
                if number <= 2 and works is False:
                    break
        finally:
            await self._endpoints.close()
        return results

    async def _send(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), **parameters: Any
    ) -> ChatReply:
        parameters = {"max_tokens": MOST_TOKENS, **parameters}
        reply = await self._client.complete(messages, tools=tools, parameters=parameters, timeout=_SECONDS, retries=0)
        self.costs.append(reply.usage.cost_usd)
        return reply

    async def _ask(self) -> tuple[bool, str, Mapping[str, Any]]:
        reply = await self._send(_QUESTION)
        usage = reply.usage
        facts = [f"{reply.model} in {reply.seconds:.1f} s", "no usage", "its price is not known: write `prices`"]
        if usage.input_tokens is not None:
            facts[1] = f"{usage.input_tokens} + {usage.output_tokens} tokens"
        if usage.cost_usd is not None:
            facts[2] = f"{usage.cost_usd:.6f} USD"
        if reply.thoughts or usage.reasoning_tokens:
            facts.append("it thinks")
        return True, ", ".join(facts), self._learned()

    async def _ask_with_parameters(self) -> tuple[bool | None, str, Mapping[str, Any]]:
        if not self._parameters:
            return None, "the profile has none", {}
        most = min(MOST_TOKENS, *(self._parameters[name] for name in LIMITS if self._parameters.get(name)), MOST_TOKENS)
        reply = await self._send(_QUESTION, **{**self._parameters, **dict.fromkeys(LIMITS), "max_tokens": most})
        taken = f"takes {', '.join(self._parameters)}"
        if reply.adapted:
            taken = f"{taken}, but {'; '.join(reply.adapted)}"
        return True, taken, self._learned()

    async def _limit(self) -> tuple[bool, str, Mapping[str, Any]]:
        name, settings = self._client.spelling.api.limit, {}
        if self.model.api == "chat":
            name = self._client.spelling.dialect.limit
            [other] = {*LIMITS} - {name}
            settings = {"dialect_overrides": {"limit": other}}
        most = max(_FEW_TOKENS, self._client.spelling.api.least)
        reply = await self._send(({"role": "user", "content": "Count from 1 to 50."},), max_tokens=most)
        if (reply.usage.output_tokens or 0) > most:
            return False, f"{name} has no effect: {reply.usage.output_tokens} tokens came", settings
        if not reply.content:
            return True, f"by {name}; the thoughts used all of it, so give reasoning models more", {}
        return True, f"by {name}, finish_reason {reply.finish_reason}", {}

    async def _call_tool(self) -> tuple[bool, str, Mapping[str, Any]]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Which weather has Paris? Use the tool."}]
        reply = await self._send(messages, [_WEATHER], tool_choice="required")
        if not reply.tool_calls:
            return False, f"no call came (finish_reason {reply.finish_reason})", {}
        self._called = messages, reply
        call = reply.tool_calls[0]
        summary = f"ids like {call.id!r}, finish_reason {reply.finish_reason}"
        if call.arguments is None:
            summary = f"{summary}, arguments that are no JSON"
        return True, summary, {}

    def _conversation(self) -> list[Mapping[str, Any]] | None:
        if self._called is None:
            return None
        messages, reply = self._called
        results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in reply.tool_calls]
        return [*messages, reply.message, *results]

    async def _return_result(self) -> tuple[bool | None, str, Mapping[str, Any]]:
        if (messages := self._conversation()) is None or self._called is None:
            return None, "no call came before", {}
        reply = await self._send(messages, [_WEATHER])
        summary = "it takes its own call with the result"
        if own := sorted(self._called[1].message.keys() - {"role", "content", "tool_calls"}):
            summary = f"{summary}; its fields {', '.join(own)} were sent back if it accepts them"
        return bool(reply.content or reply.tool_calls), summary, self._learned()

    async def _force_answer(self) -> tuple[bool | None, str, Mapping[str, Any]]:
        if (messages := self._conversation()) is None:
            return None, "no call came before", {}
        reply = await self._send(messages, [_WEATHER], tool_choice="none")
        if reply.tool_calls:
            return False, "it calls tools in spite of `tool_choice: none`", {}
        return bool(reply.content), "it answers with `tool_choice: none`", self._learned()

    async def _call_two(self) -> tuple[bool, str, Mapping[str, Any]]:
        text = "Which weather has Paris, and what time is it there? Call both tools at once."
        reply = await self._send(({"role": "user", "content": text},), [_WEATHER, _TIME])
        count = len(reply.tool_calls)
        return count > 1, f"{count} calls in one reply", {}

    async def _ask_in_form(self) -> tuple[bool, str, Mapping[str, Any]]:
        schema = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": _ANSWER}}
        question = ({"role": "user", "content": 'What is 2 + 2? Reply with JSON, such as {"answer": 1}.'},)
        try:
            reply = await self._send(question, response_format=schema)
        except ProviderError as error:
            refusal = _shorten(str(error))
            reply = await self._send(question, response_format={"type": "json_object"})
            write = {"dialect_overrides": {"json_schema": False}}
            return _is_object(reply), f"json_object; json_schema is refused: {refusal}", write
        if _is_object(reply):
            return True, "a JSON Schema is followed", {}
        return False, f"a JSON Schema is ignored: {reply.content!r}", {}

    async def _stream(self) -> tuple[bool, str, Mapping[str, Any]]:
        spelling = self._client.spelling
        request, _ = spelling.spell(compose_request(self.model, _QUESTION, (), {"max_tokens": MOST_TOKENS}))
        body = ask_for_stream(write_request(spelling.write(request)), spelling.api.stream)
        try:
            async with asyncio.timeout(_SECONDS):
                reply = await self._connections[0].send(body, {}, _SECONDS)
        except TimeoutError:
            return False, f"it did not end within {_SECONDS:g} s", {}
        except RequestFailed as failed:
            return False, _shorten(failed.summary), {}
        if reply.status != 200:
            return False, f"HTTP {reply.status}: {_shorten(reply.content.decode('utf-8', 'replace'))}", {}
        if reply.times is None or reply.times.first is None:
            return False, "no server-sent events came", {}
        usage = "with usage" if _read_object(reply.content).get("usage") else "without usage"
        return True, f"{usage}, the first token after {reply.times.first:.2f} s", {}

    async def _repeat(self) -> tuple[bool | None, str, Mapping[str, Any]]:
        if "seed" in self._client.spelling.dialect.ignored and self.model.api != "chat":
            return None, f"`api: {self.model.api}` has no seed", {}
        first = await self._send(_QUESTION, seed=7, temperature=0)
        dropped = [name for name in ("seed", "temperature") if f"{name} dropped" in first.adapted]
        if dropped:
            return False, f"{' and '.join(dropped)} refused", self._learned()
        if self.requests + 3 > MOST_REQUESTS:  # the last two probes are more informative
            return True, f"taken; not asked twice, as {MOST_REQUESTS} requests are all", {}
        second = await self._send(_QUESTION, seed=7, temperature=0)
        if first.content == second.content:
            return True, "taken; two requests gave the same text", {}
        return True, "taken; two requests gave two texts", {}

    async def _overflow(self) -> tuple[bool | None, str, Mapping[str, Any]]:
        try:
            await self._send(_QUESTION, max_tokens=10_000_000)
        except ProviderError as error:
            is_recognised = error.reason in ("context_exceeded", "rejected")
            return is_recognised, f"refused ({error.reason}): {_shorten(str(error))}", {}
        return None, "taken: no limit is refused as too high", {}

    async def _misname(self) -> tuple[bool, str, Mapping[str, Any]]:
        client = self._endpoints.client(self.model.model_copy(update={"requested_model": _NO_MODEL}))
        parameters = {"max_tokens": MOST_TOKENS}
        try:
            reply = await client.complete(_QUESTION, parameters=parameters, timeout=_SECONDS, retries=0)
        except ProviderError as error:
            return True, f"refused: {_shorten(str(error))}", {}
        return False, f"{reply.model} answers to any name: check which model the endpoint uses for yours", {}

    def _learned(self) -> Mapping[str, Any]:
        """Return the adaptations learned from the endpoint as settings of an entry."""
        changes, dialect = self._client.spelling.changes, self._client.spelling.dialect
        overrides: dict[str, Any] = {}
        if any(change.do == "rename" for change in changes):
            overrides["limit"] = dialect.limit
        if any(change.do == "keep" for change in changes):
            overrides["never_back"] = [*dialect.never_back]
        if any(change.do == "tools" for change in changes):
            overrides["final_without_tools"] = False
        if overrides:
            return {"dialect_overrides": overrides}
        return {}


def merge_settings(results: Sequence[Probed]) -> dict[str, Any]:
    """Return the settings from all probes for an entry."""
    merged: dict[str, Any] = {}
    for probed in results:
        for name, value in probed.write.items():
            merged[name] = {**merged.get(name, {}), **value}
    return merged


def host_of(model: Model) -> str:
    """Return the host of a model's endpoint."""
    return urlsplit(model.base_url or DEFAULT_BASE_URL).netloc.rpartition("@")[2]


def _is_object(reply: ChatReply) -> bool:
    return isinstance(_read_object((reply.content or "").encode()).get("answer"), int)


def _read_object(content: bytes) -> Mapping[str, Any]:
    try:
        return as_object(json.loads(content))
    except ValueError:
        return {}


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= 200:
        return line
    return f"{line[:197]}..."
