"""Answer an agent's requests over HTTP by the client of its run's model."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.completions import (
    EVENT_STREAM,
    LAST_EVENT,
    RequestRefused,
    list_events,
    read_request,
    write_event,
)
from pytest_agentbench.models.completions_http import (
    JSONReply,
    asks_for_models,
    read_body,
    respond_with_models,
    respond_with_refusal,
)
from pytest_agentbench.models.replies import ChatReply
from pytest_agentbench.models.spelling import drop_empty
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.chat import Requests, settled
from pytest_agentbench.runners.gateway.bounds import SlotPool, is_deep, is_plain
from pytest_agentbench.runners.gateway.policy import GatewayPolicy
from pytest_agentbench.runners.gateway.server import listening
from pytest_agentbench.runners.gateway.trace import ToolTrace, restore_case_words

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_PASSED_ON = frozenset(
    {
        "enable_thinking",
        "frequency_penalty",
        "include_reasoning",
        "logit_bias",
        "max_completion_tokens",
        "max_tokens",
        "min_p",
        "parallel_tool_calls",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "seed",
        "stop",
        "temperature",
        "thinking",
        "tool_choice",
        "top_a",
        "top_k",
        "top_p",
        "verbosity",
    }
)
"""Fields of a request that the model gets. Not those that would ask another model, search the web or store anything."""

_OF_THE_PROTOCOL = frozenset({"model", "messages", "tools", "stream", "stream_options"})
_SYNONYMS = (frozenset({"max_tokens", "max_completion_tokens"}), frozenset({"reasoning", "reasoning_effort"}))
"""Fields that say the same: where the run sets one, the agent's others go."""

_PATIENCE_SECONDS = 60.0
"""After how long, and how often, an agent hears that its model is still at work."""

_MOST_REQUESTS = 2000
"""How often a run may ask its model: a bound for programs that ask in a loop, not for tasks."""

_SLOTS, _BYTES_PER_SLOT = 8, 4 * 2**20
"""Requests at a time, and how large they may be together: of the largest ones there is one at a time."""

_PAUSE_SECONDS = 0.1
"""How long what costs nothing waits, in its slot: a program that asks in a loop does not hold up the other runs."""

NO_ANSWER = "The model gave no answer to this request. Asking again will not help."
"""What an agent is told of an outage, in words that none takes for a reason to try once more."""


class Gateway:
    """One run's way to its model: an OpenAI-compatible endpoint on a unix socket, answered by the run's client.

    Requests may come side by side. Tool calls and their results go into the trace. After an outage, which the client
    tells when its own retries are over, nothing more is asked in the same turn: it has failed.
    """

    def __init__(
        self,
        requests: Requests,
        model: Model,
        trace: Recorder,
        parameters: Mapping[str, Any],
        over_budget: Callable[[Usage], str | None] = lambda usage: None,
        policy: GatewayPolicy = GatewayPolicy(),  # noqa: B008 - frozen
    ) -> None:
        """Take the run's own fields of every request, `parameters`: they win over what the agent sends.

        `over_budget` says why a run with such a usage may ask for nothing more, None where it may.
        """
        # For cassettes: the same request may name another time and another host in every run.
        requests.compare_by(policy.make_alike)
        self._policy = policy
        self._requests = requests
        self._model = model
        self._trace = trace
        self._tools = ToolTrace(trace, policy)
        self._parameters = parameters
        self._turns: list[str] = []
        self._in_turn = False
        self._asking: set[asyncio.Task[ChatReply]] = set()
        self._asked = 0
        self._slots = SlotPool(_SLOTS)
        self._over_budget = over_budget
        self._failure: BaseException | None = None
        self._refused: str | None = None

    @contextlib.asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        """Listen at `socket` inside the block; at its end what is in flight is cancelled. Raises OSError."""
        async with listening(self._app, socket):
            yield

    @contextlib.contextmanager
    def turn(self, text: str) -> Iterator[None]:
        """Begin a turn with this text of the user's: the model is asked inside the block only, and given up at its end.

        What failed or was refused before it is forgotten; what did in it can be read after it.
        """
        self._turns.append(text)
        self._failure = self._refused = None
        self._in_turn = True
        try:
            yield
        finally:
            self._in_turn = False
            for task in self._asking:
                # What the agent left behind would go on asking, and be paid for, for nobody.
                task.cancel()

    @property
    def failure(self) -> BaseException | None:
        """Return the turn's outage, else why the provider refused the last request; None where there is neither."""
        return self._failure

    @property
    def outage(self) -> BaseException | None:
        """Return the turn's outage: what says nothing of any request; None where there was none."""
        return self._failure if _is_outage(self._failure) else None

    @property
    def refused(self) -> str | None:
        """Return the name of another model that was asked for, if any."""
        return self._refused

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Taken before the body is read: slots bound what lies in memory, too.
        async with self._slots.take(_count_slots(scope)):
            try:
                request = Request(scope, receive)
                if not asks_for_models(request):
                    await self._respond(await self._read(request), scope, receive, send)
                    return
                response = respond_with_models(self._model.requested_model)
            except RequestRefused as refused:
                response = respond_with_refusal(refused, "agentbench_error")
            await asyncio.sleep(_PAUSE_SECONDS)
            await response(scope, receive, send)

    async def _read(self, request: Request) -> dict[str, Any]:
        """Return the completion that is asked for, which may be. Raises RequestRefused."""
        body = await read_body(request)
        if not is_plain(body) or is_deep(wanted := read_request(body)):
            raise RequestRefused(413, "the request has too many values, or they nest too deep", "too_large")
        self._check(wanted)
        self._check_turn()
        return wanted

    def _check_turn(self) -> None:
        """Raise RequestRefused where nothing may be asked any more, whatever it is."""
        if not self._in_turn:
            raise RequestRefused(409, "the agent's turn is over", "no_turn")
        if not _is_outage(self._failure) and (reason := self._over_budget(self._trace.usage)) is not None:
            self._failure = ProviderError(f"the model was not asked again: {reason}", code="over_budget")
        if _is_outage(self._failure):
            raise _make_refusal(self._failure)
        if self._asked >= _MOST_REQUESTS:
            raise RequestRefused(400, f"this run has asked its model {self._asked:,} times, and may not again", "limit")
        self._asked += 1

    def _check(self, request: Mapping[str, Any]) -> None:
        """Raise RequestRefused for another model and for tools that the provider would run."""
        name = request.get("model")
        if name not in (self._model.requested_model, *self._policy.names):
            self._refused = str(name)
            message = f"this run has the model {self._model.requested_model!r} and no other, not {name!r}"
            raise RequestRefused(404, message, "model_not_found")
        tools = request.get("tools") or []
        if not isinstance(tools, list) or not all(_is_function(tool) for tool in tools):
            raise RequestRefused(400, "'tools' is to be a list of functions", "invalid_request")

    async def _respond(self, request: Mapping[str, Any], scope: Scope, receive: Receive, send: Send) -> None:
        """Ask the model and send what it says; nothing more where the agent has gone meanwhile."""
        stream = _EventStream(send) if request.get("stream") else None
        # Behind the body, `receive` comes back only when the client has gone.
        asking, gone = asyncio.ensure_future(self._ask(request)), asyncio.ensure_future(receive())
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        try:
            # Without a stream nothing can be said before the answer.
            patience = None if stream is None else _PATIENCE_SECONDS
            while not asking.done() and not gone.done():
                await asyncio.wait((asking, gone), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if stream is not None and not asking.done() and not gone.done():
                    await stream.send([_AT_WORK])
        finally:
            await settled((asking, gone))
        if asking.cancelled():
            return
        failure = asking.exception()
        # An outage stays the turn's reason, whatever requests beside it came to.
        if not _is_outage(self._failure):
            self._failure = failure
        if failure is not None:
            refusal = _make_refusal(failure)
            # A stream that has begun has said 200 already: its refusal comes as an event.
            if stream is None or not stream.begun:
                raise refusal
            await stream.send([write_event(refusal.body("agentbench_error")), LAST_EVENT], more=False)
        elif stream is not None:
            events = list_events(_make_completion(asking.result()), request.get("stream_options"))
            await stream.send(events, more=False)
        else:
            await JSONReply(_make_completion(asking.result()))(scope, receive, send)

    async def _ask(self, request: Mapping[str, Any]) -> ChatReply:
        messages: Sequence[Mapping[str, Any]] = request["messages"]
        tools = request.get("tools") or ()
        # Those of the first request; later ones may be a sub-agent's, which is offered others.
        self._trace.request.setdefault("tools", [tool["function"]["name"] for tool in tools])
        self._tools.requested(messages)
        ignored = sorted(request.keys() - _PASSED_ON - _OF_THE_PROTOCOL)
        note: dict[str, Any] = {"ignored": ignored} if ignored else {}
        asked = restore_case_words(messages, self._turns, self._policy.internal) if self._model.scripted else messages
        reply = await self._requests.send(asked, tools, self._parameters_of(request), **note)
        self._tools.replied(messages, reply)
        return reply

    def _parameters_of(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the model gets beside messages and tools: the run's own fields, then the agent's, then the
        model's.
        """
        overruled = {name for alike in _SYNONYMS if not alike.isdisjoint(self._parameters) for name in alike}
        sent = {name: value for name, value in request.items() if name in _PASSED_ON - overruled}
        # None takes the model's own field away where the agent's says the same in another.
        replaced = {name for alike in _SYNONYMS if not alike.isdisjoint(sent) for name in alike}
        return {**dict.fromkeys(replaced), **sent, **self._parameters}


_AT_WORK = write_event({"object": "chat.completion.chunk", "choices": []})
"""An event without a choice: clients that limit the time between two events do not see comments."""


class _EventStream:
    """A response of server-sent events, begun with the first: until then the request can still be refused."""

    # Not StreamingResponse: that sends its head before its first event is known.

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def send(self, events: Iterable[bytes], *, more: bool = True) -> None:
        """Send events; without `more` they are the last."""
        if not self.begun:
            self.begun = True
            headers = [(name.encode(), value.encode()) for name, value in EVENT_STREAM.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in events:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})
        if not more:
            await self._send({"type": "http.response.body", "body": b""})


def _count_slots(scope: Scope) -> int:
    """Return how many slots a request of this length needs."""
    # A number: the server has refused everything else.
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return min(_SLOTS, 1 + int(length) // _BYTES_PER_SLOT)


def _is_function(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    return isinstance(function, Mapping) and isinstance(function.get("name"), str)


_TOLD = frozenset({"bad_request", "context_exceeded", "filtered"})
"""Codes of errors that the agent may do something about, such as to condense a conversation."""


def _is_outage(failure: BaseException | None) -> bool:
    """Return whether it says nothing of the request itself, which could be asked again in other words."""
    return failure is not None and not (isinstance(failure, ProviderError) and failure.code in _TOLD)


def _make_refusal(failure: BaseException | None) -> RequestRefused:
    """Return what the agent is told: an outage's reasons are none of its business."""
    if _is_outage(failure):
        # 400, as clients send again what is answered by 429 and 5xx.
        return RequestRefused(400, NO_ANSWER, "no_answer")
    return RequestRefused(400, str(failure), "bad_request")


def _make_completion(reply: ChatReply) -> dict[str, Any]:
    """Return the reply as the protocol has it."""
    completion = {
        "id": reply.response_id or "chatcmpl-agentbench",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": reply.model,
        "choices": [
            {
                "index": 0,
                # Its parts as one text: agents take no others
                "message": {**drop_empty(reply.message), **reply.reasoning, "content": reply.content},
                "finish_reason": reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop"),
            }
        ],
    }
    usage = _make_usage(reply.usage)
    return completion if usage is None else {**completion, "usage": usage}


def _make_usage(usage: Usage) -> dict[str, Any] | None:
    """Return the provider's own account, or one like it; None where the tokens are unknown."""
    # Responses and Messages count by other names, which an agent that asks for completions does not read
    if usage.raw and "prompt_tokens" in usage.raw[-1]:
        return usage.raw[-1]
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }
