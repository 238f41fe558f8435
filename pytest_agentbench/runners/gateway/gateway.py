"""Serve an agent's requests over HTTP with the client of its run's model."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from pytest_agentbench.errors import ConfigError, InfrastructureError, ProviderError, UnavailableError
from pytest_agentbench.models.apis.base import FAILED, AgentApi, Asked, RequestRefused, Route, require_model
from pytest_agentbench.models.apis.choice import AGENT_APIS, SERVED, find_route
from pytest_agentbench.models.apis.messages import VERSION
from pytest_agentbench.models.apis.signatures import CallSignatures
from pytest_agentbench.models.apis.translation import translate
from pytest_agentbench.models.clock import RUN_CLOCK
from pytest_agentbench.models.completions import parse_object
from pytest_agentbench.models.completions_http import JSONReply, read_body
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.metering import METER, Meter
from pytest_agentbench.models.passing import (
    REPLY_HEADERS,
    REQUEST_HEADERS,
    PassedRequest,
    rewrite_headers,
    rewrite_request,
    select_headers,
)
from pytest_agentbench.models.prompts import TokenCounter
from pytest_agentbench.models.spelling import compose_request
from pytest_agentbench.records.case import ApiName, Model
from pytest_agentbench.records.run import Unsettled, Usage
from pytest_agentbench.runners.asking import Asking
from pytest_agentbench.runners.base import RUN, Recorder, RunEnd, clean, make_end
from pytest_agentbench.runners.chat import Requests, settled
from pytest_agentbench.runners.gateway.address import NO_KEY, list_keys, name_path
from pytest_agentbench.runners.gateway.answering import LastText, ReplyStream, canned_reply, count_tokens
from pytest_agentbench.runners.gateway.bounds import Pace, RequestSlots, is_deep, is_plain
from pytest_agentbench.runners.gateway.conversations import Conversations, KeptThoughts, holds_turn
from pytest_agentbench.runners.gateway.mcp import McpEndpoint, find_server
from pytest_agentbench.runners.gateway.mcp_names import ServedTools
from pytest_agentbench.runners.gateway.offers import describe_offer, list_offered_names, read_offer
from pytest_agentbench.runners.gateway.policy import GatewayPolicy, describe_apis
from pytest_agentbench.runners.gateway.server import listening, wait_until_gone
from pytest_agentbench.runners.gateway.trace import GatewayFacts, ToolTrace, restore_case_words
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from pytest_agentbench.tools.toolbox import Toolbox

UsageSource = Literal["gateway", "gateway_partial"]

_SYNONYMS = (frozenset({"max_tokens", "max_completion_tokens"}), frozenset({"reasoning", "reasoning_effort"}))
"""Groups of fields with one meaning. If the run sets one of a group, the agent's others are dropped."""

_PATIENCE_SECONDS = 15.0
"""Seconds between keep-alive events."""

_MOST_REQUESTS = 2000
"""Maximum requests of a run: a bound for programs that request in a loop, not for tasks."""

_PAUSE_SECONDS = 0.1
"""Seconds that a request without a model call is delayed, so that an agent in a loop does not slow other runs."""

NO_ANSWER = "The model gave no answer to this request. Asking again will not help."
"""Message for an agent after an outage. It gives the agent no reason to retry."""


class Gateway:
    """Endpoint of one run that serves all APIs and forwards requests to the client of the run's model.

    Requests may be concurrent. Tool calls and their results go into the trace. The model client reports an outage after
    its own retries. After an outage the turn has failed, and all later requests of the turn are refused. `key` is the
    key that agents should send. Another key is noted and not used.

    Ownership: all methods run on the engine's event loop, so plain attributes need no lock. `app` runs in tasks of
    the server, which many runs share. Each model call gets a task with a copy of the run's context variables
    (`_variables`). `turn` owns `_in_turn`, `failure`, `refused`, `reply_text`, `_server_tool` and `_offered`: it
    resets them, and requests set them. `_offered` are the names of the tools in the turn's requests, None before the
    first. `reply_text` is the text of the last reply in the main conversation, None if that request failed. The slots
    of `_slots` belong to requests, and a request keeps its slots until its usage is booked.
    """

    key: str = NO_KEY

    def __init__(
        self,
        requests: Requests,
        model: Model,
        trace: Recorder,
        parameters: Mapping[str, Any],
        over_budget: Callable[[Usage], str | None] = lambda usage: None,
        policy: GatewayPolicy = GatewayPolicy(),  # noqa: B008 - frozen
        usage_source: UsageSource = "gateway",
        variables: contextvars.Context | None = None,
        served: ServedTools | None = None,
    ) -> None:
        """Merge the run's fields `parameters` into every request. They have precedence over the agent's fields.

        `over_budget` returns the reason why a run with such a usage may not call its model again, or None.
        `usage_source` is `gateway_partial` if the agent can reach models elsewhere, too. `variables` are the run's
        context variables, by default the caller's. `served` are the tools that the agent gets by MCP: `serve`.
        """
        # For cassettes: one request may contain another time and host name in each run
        requests.compare_by(lambda request: policy.drop_moments(request, self._turns), policy.make_alike)
        self._policy = policy
        self._requests = requests
        self._model = model
        self._trace = trace
        self._tools = ToolTrace(trace, policy, served)
        self._endpoint: McpEndpoint | None = None
        self._conversations, self._thoughts, self._signatures = Conversations(), KeptThoughts(), CallSignatures()
        self._parameters = parameters
        self._turns: list[str] = []
        self._in_turn = False
        self._asking: set[asyncio.Task[ChatReply]] = set()
        self._asked = 0
        self._slots, self._pace = RequestSlots(), Pace(_PAUSE_SECONDS)
        self._over_budget = over_budget
        self.failure: BaseException | None = None
        self.refused: str | None = None
        self._refused_apis: Counter[tuple[ApiName, str]] = Counter()
        self._last_text = LastText()
        self._skipped_steps = 0
        self._offered: set[str] | None = None
        self._server_tool: str | None = None
        self.reply_text: str | None = None
        # Requests are handled in tasks of a listener that all runs share. Those tasks lack the run's context
        # variables, so they know neither its time limit nor its logs.
        self._variables = contextvars.copy_context() if variables is None else variables
        self._clock, self.run = self._variables.get(RUN_CLOCK), self._variables.get(RUN)
        self._asking_record = Asking() if self.run is None else self.run.asking
        self._asking_record.expected = True
        self.fault: str | None = None
        # A run's own meter outlives the gateway: the engine waits for replies that are read to their end
        metered = self._variables.get(METER)
        self._meter = Meter(trace.add_usage) if metered is None else metered
        self._owns_meter = metered is None
        self._facts = GatewayFacts(trace, self._conversations)
        trace.provider.update(usage_source=usage_source)

    def serve(self, served: ServedTools, toolbox: Toolbox, *, wraps_json: bool = False) -> None:
        """Serve the tools by MCP, too: `McpEndpoint`."""

        def note_wrapped() -> None:
            self._facts.note(json_text="wrap")

        self._endpoint = McpEndpoint(
            served, toolbox, self._tools, self._fail, self._variables, wraps_json=note_wrapped if wraps_json else None
        )

    async def wait_until_listed(self, seconds: float) -> None:
        """Wait until the agent has asked all MCP servers of the run for their tools, at most so long."""
        if self._endpoint is not None:
            await self._endpoint.wait_until_listed(seconds)

    def _fail(self, failure: BaseException) -> None:
        """End the run with an error of one of its tools."""
        self.failure = failure

    @contextlib.asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        """Listen at `socket` inside the block. Cancel requests in flight at its end. Raises OSError."""
        try:
            async with listening(self.app, socket, self._note_fault):
                yield
        finally:
            if self._owns_meter:
                await self._meter.give_up()

    def _note_fault(self, fault: str) -> None:
        self.fault = fault

    @contextlib.contextmanager
    def turn(self, *texts: str) -> Iterator[None]:
        """Begin a turn with these texts of the user. The model may be called inside the block only.

        At the end of the block requests are cancelled, and the client reads their replies only for the usage. The
        beginning clears failures and refusals of the previous turn. After the block this turn's can be read.
        """
        self._turns += texts
        self.failure = self.refused = self._server_tool = self.reply_text = None
        self._last_text, self._skipped_steps, self._offered = LastText(), 0, None
        self._in_turn = True
        if self._endpoint is not None:
            self._endpoint.in_turn = True
        try:
            yield
        finally:
            self._in_turn = False
            if self._endpoint is not None:
                self._endpoint.end_turn()
            for task in self._asking:
                # Processes that the agent left running would go on sending paid requests.
                task.cancel()
            self._warn_of_tools()

    def _warn_of_tools(self) -> None:
        """Warn of the run's tools that the turn's requests do not offer, once of each server."""
        if self._offered is None:
            return
        if self._skipped_steps and not self._offered:
            self._trace.warnings.append(
                f"{count_text(self._skipped_steps, 'step')} of the script with tool calls skipped: no request of "
                "the turn offers tools; a program with a protocol of its own in texts needs a script of texts"
            )
        if self._endpoint is None:
            return
        for slug, message in self._endpoint.find_missing(self._offered):
            if self._facts.note(servers_not_offered=[slug]):
                self._trace.warnings.append(message)

    @property
    def last_text(self) -> str | None:
        """Return the model's last text in this turn: of the main conversation, if that has one."""
        return self._last_text.text

    @property
    def in_flight(self) -> int:
        """Return the number of requests that the model has not answered yet."""
        return len(self._asking) + self._meter.pending

    @property
    def outage(self) -> BaseException | None:
        """Return the turn's outage, or None. Agents hide outages, so the gateway has to report them.

        An outage counts also if the agent hung up while its request waited, and no later request had an answer.
        """
        if _is_outage(self.failure):
            return self.failure
        if self._clock is None or (trouble := self._clock.trouble) is None:
            return None
        message = f"the model's endpoint failed, and no later request of the run had an answer: {trouble}"
        return ProviderError(message, code="timeout", retryable=True)

    def find_end(self, *, answered: bool) -> RunEnd | None:
        """Return how the turn ended according to its requests, or None if they decide nothing.

        `answered` is true if the agent gave an answer. Raises the turn's outage. Raises the provider's refusal of the
        last request if the agent gave no answer. Raises ConfigError if all requests of the run were refused for their
        API, which is an error of the adapter or the case file.
        """
        if (outage := self.outage) is not None:
            raise outage
        if self._refused_apis and not self._asked:
            raise ConfigError(self._explain_apis())
        if self.fault is not None and not answered:
            raise InfrastructureError(f"the run's gateway failed, and this may have made its agent fail: {self.fault}")
        if self.failure is not None and not answered:
            raise self.failure
        if self._server_tool is not None:
            message = f"the agent asked for the tool {self._server_tool!r}, which its provider would run"
            return make_end("failed", "server_tool", message)
        if self.refused is not None and not answered:
            message = f"the agent asked for the model {self.refused!r}, and a run has one model only"
            return make_end("failed", "other_model", message)
        return None

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI app."""
        if self._endpoint is not None and (slug := find_server(scope["path"])) is not None:
            await self._endpoint.app(slug, scope, receive, send)
            return
        request = Request(scope, receive)
        query = scope.get("query_string", b"").decode("latin-1")
        target = f"{scope['path']}?{query}" if query else scope["path"]
        route = find_route(scope["method"], target, request.headers)
        dialect = AGENT_APIS[route.api]
        if route.kind != "ask":
            await self._pace.wait()
        # Slots are taken before the body is read, because they also bound the memory of bodies
        async with self._slots.reserve(scope, receive) as receive_body:
            request = Request(scope, receive_body)
            try:
                if any(key != self.key for key in list_keys(request.headers, query)):
                    self._facts.note(foreign_key=True)
                if "content-encoding" in request.headers:
                    raise RequestRefused(415, "a compressed request is not read here", "unsupported_encoding")
                if route.kind == "ask" and route.api in (self._policy.dialects or AGENT_APIS):
                    await self._respond(await self._read(request, route, dialect), scope, receive_body, send)
                    return
                response = await self._answer_aside(request, route, dialect)
            except RequestRefused as refused:
                body = dialect.error(refused.status, refused.code, str(refused))
                response = JSONReply(body, refused.status, refused.headers)
                await asyncio.sleep(_PAUSE_SECONDS)
            await response(scope, receive_body, send)

    async def _answer_aside(self, request: Request, route: Route, dialect: AgentApi) -> Response:
        """Answer a request that needs no model. Raises RequestRefused."""
        name = self._model.requested_model
        if route.kind == "ping":
            return Response()
        if route.kind == "count":
            asked = dialect.read(_parse(await read_body(request)), route)
            return JSONReply(dialect.count(count_tokens(asked, self._counter)))
        if route.kind == "models" and route.model is None:
            return JSONReply(dialect.list_models(name))
        if route.kind == "models" and route.model in self._names:
            return JSONReply(dialect.describe_model(name))
        path = name_path(request.scope["path"], route.token)
        self._trace.event("refused_endpoint", method=request.method[:20], path=path)
        if route.kind == "ask":
            self._refused_apis[route.api, f"{request.method[:20]} {path}"] += 1
            self._asking_record.refuse(problem := self._explain_apis())
            raise RequestRefused(404, problem, "unknown_route")
        self._asking_record.refuse(f"it asked at {request.method[:20]} {path}, which is not served")
        raise RequestRefused(404, f"{request.method} {path} is not served here; there are {SERVED}", "unknown_route")

    def _explain_apis(self) -> str:
        """Return which APIs the agent asked in although its adapter or case excludes them, and what to write."""
        written = ", ".join(self._policy.dialects)
        apis = ", ".join(dict.fromkeys(api for api, _ in self._refused_apis))
        asked = describe_apis(self._refused_apis)
        return f"the program asks {asked}; found dialects: [{written}]; write dialects: [{apis}]"

    @cached_property
    def _counter(self) -> TokenCounter:
        return TokenCounter(self._model)

    @property
    def _names(self) -> tuple[str, ...]:
        return self._model.requested_model, self._model.model_id, *self._policy.names

    async def _read(self, request: Request, route: Route, dialect: AgentApi) -> _Incoming:
        """Return the parsed request if it is allowed. Raises RequestRefused."""
        document = _parse(body := await read_body(request))
        asked = dialect.read(document, route)
        # Only this gateway writes a stream as a JSON list; endpoints send events
        passes = self._policy.passes and not asked.as_list and self._model.find_wire(dialect.name) is not None
        path = name_path(request.scope["path"], route.token)
        self._check(asked, path, passes=passes)
        self._check_turn(dialect, passes=passes)
        return _Incoming(asked, dialect, body, document, select_headers(request.headers, REQUEST_HEADERS), passes)

    def _check_turn(self, dialect: AgentApi, *, passes: bool) -> None:
        """Raise RequestRefused if the turn allows no further request, or none in this API."""
        if not self._in_turn:
            raise RequestRefused(409, "the agent's turn is over", "no_turn")
        if _is_outage(self.failure):
            self._facts.note(asked_after_outage=self._facts.count("asked_after_outage") + 1)
        elif (reason := self._over_budget(self._trace.usage)) is not None:
            self.failure = ProviderError(f"the model was not asked again: {reason}", code="over_budget")
        elif not (passes or self._policy.translates or self._model.scripted):
            self.failure = _refuse_translation(self._model, dialect.name)
        elif self._clock is not None and self._clock.trouble_seconds > self._requests.longest_outage:
            # An agent that hangs up and retries begins a new request, but the outage continues
            self.failure = self.outage
        if self.failure is not None and _is_outage(self.failure):
            raise self._make_refusal(self.failure)
        if self._asked >= _MOST_REQUESTS:
            raise RequestRefused(400, f"this run has asked its model {self._asked:,} times, the maximum", "limit")
        # Counted before the call, so that concurrent requests cannot exceed the maximum together
        self._asked += 1
        self._asking_record.asked += 1

    def _check(self, asked: Asked, path: str, *, passes: bool) -> None:
        """Raise RequestRefused for another model, for tools that the provider would run, and for untranslatable
        requests.
        """
        if asked.model not in self._names:
            if self._policy.pin == "refuse":
                require_model(asked)
                self.refused = asked.model
                name = clean(asked.model)[:_MOST_OF_A_NAME]
                if self._facts.note(refused_models=[name]):
                    self._trace.event("refused_model", model=name, path=path)
                self._asking_record.refuse(f"it asked for the model {name!r} at {path}, which is not the run's")
                message = f"this run has the model {self._model.requested_model!r} and no other; found {asked.model!r}"
                raise RequestRefused(404, message, "model_not_found")
            self._facts.note(rewritten_models=[asked.model])
        if asked.server_tools and not (passes and self._policy.server_tools == "pass"):
            if self._policy.server_tools == "refuse":
                self._server_tool = asked.server_tools[0]
                message = f"the provider would run {self._server_tool!r} itself; 'tools' is to be a list of functions"
                raise RequestRefused(400, message, "server_tool")
            if self._facts.note(removed_tools=asked.server_tools):
                names = ", ".join(asked.server_tools)
                self._trace.warnings.append(f"tools that the provider would run were left out of requests: {names}")
        if asked.refusal is not None and not passes:
            raise asked.refusal

    async def _respond(self, incoming: _Incoming, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the model and send its reply. Send nothing more if the agent has disconnected.

        Three tasks take part: this one, of the server, writes to the agent. `asking` calls the model. `gone` waits for
        the agent to disconnect. This task cancels and awaits the other two on every way out.
        """
        asked, dialect = incoming.asked, incoming.dialect
        stream = ReplyStream(send, dialect, asked)
        passed = self._pass_on(incoming, stream) if incoming.passes else None
        # A copy for each call, so that the meter is not set in the run's own context
        variables = self._variables.copy()
        variables.run(METER.set, self._meter)
        asking = asyncio.create_task(self._ask(incoming, passed), context=variables)
        gone = asyncio.ensure_future(wait_until_gone(receive))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        try:
            # A response that is not a stream cannot carry keep-alive events.
            patience = _PATIENCE_SECONDS if asked.stream else None
            while not asking.done() and not gone.done():
                await asyncio.wait((asking, gone), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done() and not gone.done():
                    await stream.keep_alive()
            hung_up = not asking.done()
        finally:
            stream.hang_up()
            # The client reads a reply that the endpoint has begun to its end, because it is billed anyway
            await settled((asking, gone))
        if hung_up:
            # The slot stays taken until then, so that hanging up does not allow more concurrent requests
            await self._meter.settle()
        if asking.cancelled():
            return
        failure = asking.exception()
        # Concurrent requests do not replace an outage as the reason for the turn's end.
        if not _is_outage(self.failure):
            self.failure = failure
        if failure is not None:
            # A response that has begun has sent status 200 already, so its refusal is sent as an event.
            if stream.begun:
                await stream.fail(self._make_refusal(failure))
            elif passed is not None and passed.refused is not None and not _is_outage(failure):
                headers = select_headers(passed.refused.headers, REPLY_HEADERS)
                await Response(passed.refused.content, passed.refused.status, headers)(scope, receive, send)
            else:
                raise self._make_refusal(failure)
        elif passed is not None and passed.begun:
            await stream.end_passed()
        elif asked.stream:
            await stream.finish(asking.result())
        else:
            await JSONReply(dialect.write(asking.result(), asked))(scope, receive, send)

    def _pass_on(self, incoming: _Incoming, stream: ReplyStream) -> PassedRequest:
        """Return the request as forwarded to the endpoint. The endpoint's reply goes into the stream."""
        asked, name = incoming.asked, incoming.dialect.name
        if self._policy.server_tools == "pass":
            asked = replace(asked, server_tools=())
        contents, restored = self._signatures.mend(incoming.document.get("contents"))
        if restored:
            self._facts.note(signature_restored=True)
        body = rewrite_request(name, incoming.body, incoming.document, asked, self._model, self._parameters, contents)
        parameters = self._parameters_of(asked.parameters)
        headers = rewrite_headers(name, incoming.headers, body, incoming.document, self._model)
        if (version := headers.get(VERSION)) != incoming.headers.get(VERSION):
            self._facts.note(anthropic_version=version)
        return PassedRequest(
            api=name,
            body=body,
            headers=headers,
            request=compose_request(self._model, asked.messages, asked.tools, parameters),
            stream=asked.stream,
            begin=stream.begin_passed,
            write=stream.pass_on,
        )

    async def _ask(self, incoming: _Incoming, passed: PassedRequest | None) -> ChatReply:
        asked, wire = incoming.asked, self._model.api
        mode = "pass"
        if passed is not None:
            wire = passed.api
        elif wire == incoming.dialect.name:
            mode = "relay"
        else:
            mode, asked = "translate", translate(asked, wire)
        way = {"dialect": incoming.dialect.name, "wire": wire, "mode": mode}
        self._facts.add_way(way)
        # Before the note, which also writes the conversations so far
        number = self._conversations.place(asked, self._turns)
        self._facts.note(lost=() if mode == "pass" else asked.lost)
        if self._model.scripted and (canned := canned_reply(asked, self._policy.helpers, self._model)) is not None:
            self._trace.event("helper", conversation=number)
            return canned
        # The tools of the first request. Later requests may come from a sub-agent with other tools.
        self._trace.request.setdefault("tools", [tool["function"]["name"] for tool in asked.tools])
        offered = list_offered_names(asked)
        self._offered = (self._offered or set()) | offered
        self._tools.requested(asked.messages, FAILED if incoming.dialect.name != "chat" else None, self._turns)
        if self._policy.observe is not None:
            self._policy.observe(asked.messages, asked.tools)
        note: dict[str, Any] = {"dialect": way["dialect"], "mode": mode, "conversation": number}
        if asked.ignored and passed is None:
            note["ignored"] = list(asked.ignored)
        messages: Sequence[Mapping[str, Any]] = asked.messages
        if passed is None and (messages := self._thoughts.restore(asked.messages)) != asked.messages:
            self._facts.note(signature_restored=True)
        if self._model.scripted:
            messages = restore_case_words(messages, self._turns, self._policy.internal)
        parameters = self._parameters_of(asked.parameters)
        label = None if mode == "relay" else f"{incoming.dialect.name}, {mode}"
        # An agent that offers no tools has no main conversation: each request may be the turn's
        if self._conversations.main in (None, number):
            self.reply_text = None
        try:
            reply = await self._requests.send(messages, asked.tools, parameters, passed=passed, way=label, **note)
        except asyncio.CancelledError:
            # A plugin's client books nothing for a cancelled request; the package's own client does
            if self._model.provider is not None:
                self._trace.add_usage(Usage(unsettled=Unsettled(requests=1, given_up=1)))
            raise
        self._thoughts.keep(reply)
        self._signatures.keep(reply.message)
        self._skipped_steps = max(self._skipped_steps, reply.skipped_steps)
        is_main = number == self._conversations.main
        self._last_text.add(reply, is_main=is_main, offers_tools=bool(asked.tools), of_turn=self._is_of_turn(asked))
        if is_main or self._conversations.main is None:
            self.reply_text = reply.content
        self._tools.replied(asked.messages, reply, None if is_main else number, offered)
        self._warn_of_calls(reply, asked, offered)
        return reply

    def _warn_of_calls(self, reply: ChatReply, asked: Asked, offered: frozenset[str]) -> None:
        """Warn once of each tool that the model calls and the request does not offer."""
        for name in (call.name for call in reply.tool_calls if call.name not in offered):
            if self._facts.note(calls_not_offered=[clean(name)[:_MOST_OF_A_NAME]]):
                offer = describe_offer(read_offer(asked.tools))
                self._trace.warnings.append(
                    f"the model called the tool {clean(name)[:_MOST_OF_A_NAME]!r}, which the request does not offer; "
                    f"it offers: {offer}"
                )

    def _is_of_turn(self, asked: Asked) -> bool:
        return bool(self._turns) and holds_turn(asked.messages, self._turns[-1:])

    def _parameters_of(self, agents_own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request's parameters: the run's fields, then the agent's, then the model's, in order of
        precedence.
        """
        overruled = {name for alike in _SYNONYMS if not alike.isdisjoint(self._parameters) for name in alike}
        sent = {name: value for name, value in agents_own.items() if name not in overruled}
        # None removes the model's own field if the agent sets a synonym of it.
        replaced = {name for alike in _SYNONYMS if not alike.isdisjoint(sent) for name in alike}
        return {**dict.fromkeys(replaced), **sent, **self._parameters}

    def _make_refusal(self, failure: BaseException) -> RequestRefused:
        """Return the refusal for the agent. It gets no details of an outage."""
        if _is_outage(failure):
            # 400 by default, because clients retry after 429 and 5xx.
            return RequestRefused(self._policy.outage_status, NO_ANSWER, "no_answer")
        return RequestRefused(400, str(failure), "bad_request")


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A request as received, and parsed as `asked`. It `passes` if the model's endpoint serves its API."""

    asked: Asked
    dialect: AgentApi
    body: bytes
    document: dict[str, Any]
    headers: Mapping[str, str]
    passes: bool


def _parse(body: bytes) -> dict[str, Any]:
    """Return the object that a body is. Raises RequestRefused."""
    if not is_plain(body) or is_deep(parsed := parse_object(body)):
        raise RequestRefused(413, "the request has too many values, or they nest too deep", "too_large")
    return parsed


def _refuse_translation(model: Model, api: str) -> UnavailableError:
    return UnavailableError(
        f"the agent uses the API {api}, and the model {model.model_id!r} {model.api}: --agentbench-strict allows a "
        f"translation only if the runner has `gateway: {{translate: true}}`. If the endpoint also serves {api}, "
        f"write `wires: [{api}]` into the model's entry of models.yaml"
    )


_MOST_OF_A_NAME = 200
_AGENTS_ERRORS = frozenset({"bad_request", "context_exceeded", "filtered"})
"""Codes of errors that the agent can react to, for example by condensing a conversation."""


def _is_outage(failure: BaseException | None) -> bool:
    """Return whether a failure is independent of the request's content, so that a changed request would fail, too."""
    return failure is not None and not (isinstance(failure, ProviderError) and failure.code in _AGENTS_ERRORS)
