"""Way of an OpenClaw run to its model: an OpenAI-compatible endpoint that the run's own client answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.completions import EVENT_STREAM, parse_object
from pytest_agentbench.models.completions_http import (
    JSONReply,
    read_body,
    respond_with_refusal,
)
from pytest_agentbench.models.dialects.base import Asked, RequestRefused, Route
from pytest_agentbench.models.dialects.choice import DIALECTS, find_route
from pytest_agentbench.models.replies import ChatReply
from pytest_agentbench.packs.openclaw.container import model_ref
from pytest_agentbench.packs.openclaw.conversation import ToolTrace, remove_stamps, restore_case_words
from pytest_agentbench.packs.openclaw.socket_server import SlotPool, is_deep, is_plain, listening
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.chat import Requests, settled

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_CHAT = DIALECTS["chat"]
_SYNONYMS = (frozenset({"max_tokens", "max_completion_tokens"}), frozenset({"reasoning", "reasoning_effort"}))
"""Fields that say the same: where the run sets one, the agent's others go."""

_PATIENCE_SECONDS = 60.0
"""After how long, and how often, an agent hears that its model is still at work: OpenClaw itself waits 300 s."""

_MOST_REQUESTS = 2000
"""How often a run may ask its model: a bound for programs that ask in a loop, not for tasks."""

_SLOTS, _BYTES_PER_SLOT = 8, 4 * 2**20
"""Requests at a time, and how large they may be together: of the largest ones there is one at a time."""

_PAUSE_SECONDS = 0.1
"""How long what costs nothing waits, in its slot: a program that asks in a loop does not hold up the other runs."""

NO_ANSWER = "The model gave no answer to this request. Asking again will not help."
"""What an agent is told of an outage, in words that OpenClaw does not take for a reason to try once more."""


class ModelRelay:
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
    ) -> None:
        """Take the run's own fields of every request, `parameters`: they win over what the agent sends.

        `over_budget` says why a run with such a usage may ask for nothing more, None where it may.
        """
        # For cassettes: the same request names another time and another host in every run.
        requests.compare_by(remove_stamps)
        self._requests = requests
        self._model = model
        self._trace = trace
        self._tools = ToolTrace(trace)
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
    def refused(self) -> str | None:
        """Return the name of another model that was asked for, if any."""
        return self._refused

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Taken before the body is read: slots bound what lies in memory, too.
        async with self._slots.take(_count_slots(scope)):
            try:
                request = Request(scope, receive)
                route = find_route(request.method, scope["path"], {})
                if route == Route("chat", "ask"):
                    await self._respond(await self._read(request), scope, receive, send)
                    return
                if route != Route("chat", "models"):
                    raise RequestRefused(404, f"{request.method} {scope['path']} is not served", "unknown_route")
                response: Response = JSONReply(_CHAT.list_models(self._model.requested_model))
            except RequestRefused as refused:
                response = respond_with_refusal(refused)
            await asyncio.sleep(_PAUSE_SECONDS)
            await response(scope, receive, send)

    async def _read(self, request: Request) -> Asked:
        """Return the completion that is asked for, which may be. Raises RequestRefused."""
        body = await read_body(request)
        if not is_plain(body) or is_deep(sent := parse_object(body)):
            raise RequestRefused(413, "the request has too many values, or they nest too deep", "too_large")
        asked = _CHAT.read(sent, Route("chat", "ask"))
        self._check(asked)
        self._check_turn()
        return asked

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

    def _check(self, asked: Asked) -> None:
        """Raise RequestRefused for another model and for tools that the provider would run.

        OpenClaw sends its own name for the model where that is `openrouter/` and a name without a slash.
        """
        if asked.model not in (self._model.requested_model, model_ref(self._model)):
            self._refused = asked.model
            message = f"this run has the model {self._model.requested_model!r} and no other, not {asked.model!r}"
            raise RequestRefused(404, message, "model_not_found")
        if asked.server_tools:
            said = f"the provider would run {asked.server_tools[0]!r} itself; 'tools' is to be a list of functions"
            raise RequestRefused(400, said, "invalid_request")
        if asked.refusal is not None:
            raise asked.refusal

    async def _respond(self, asked: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask the model and send what it says; nothing more where the agent has gone meanwhile."""
        stream = _EventStream(send) if asked.stream else None
        # Behind the body, `receive` comes back only when the client has gone.
        asking, gone = asyncio.ensure_future(self._ask(asked)), asyncio.ensure_future(receive())
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        try:
            # Without a stream nothing can be said before the answer.
            patience = None if stream is None else _PATIENCE_SECONDS
            while not asking.done() and not gone.done():
                await asyncio.wait((asking, gone), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if stream is not None and not asking.done() and not gone.done():
                    await stream.send([_CHAT.keep_alive])
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
            await stream.send([_CHAT.error_events(refusal.status, refusal.code, str(refusal))], more=False)
        elif stream is not None:
            await stream.send(_CHAT.events(asking.result(), asked), more=False)
        else:
            await JSONReply(_CHAT.write(asking.result(), asked))(scope, receive, send)

    async def _ask(self, asked: Asked) -> ChatReply:
        # Those of the first request; later ones may be a sub-agent's, which is offered others.
        self._trace.request.setdefault("tools", [tool["function"]["name"] for tool in asked.tools])
        self._tools.requested(asked.messages)
        note: dict[str, Any] = {"ignored": list(asked.ignored)} if asked.ignored else {}
        messages: Sequence[Mapping[str, Any]] = asked.messages
        if self._model.scripted:
            messages = restore_case_words(messages, self._turns)
        reply = await self._requests.send(messages, asked.tools, self._parameters_of(asked.parameters), **note)
        self._tools.replied(asked.messages, reply)
        return reply

    def _parameters_of(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the model gets beside messages and tools: the run's own fields, then the agent's, then the
        model's.
        """
        overruled = {name for alike in _SYNONYMS if not alike.isdisjoint(self._parameters) for name in alike}
        sent = {name: value for name, value in given.items() if name not in overruled}
        # None takes the model's own field away where the agent's says the same in another.
        replaced = {name for alike in _SYNONYMS if not alike.isdisjoint(sent) for name in alike}
        return {**dict.fromkeys(replaced), **sent, **self._parameters}


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
