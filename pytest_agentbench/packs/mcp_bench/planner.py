"""Runner `mcp_planner`: plan, execute, observe, until the planner stops; then the answer."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.models.messages import ChatReply, ToolCall
from pytest_agentbench.models.prompts import Block, TokenCounter, clip_middle
from pytest_agentbench.models.replies import (
    InvalidReply,
    ReplyPart,
    read_json_object,
    validate_form,
)
from pytest_agentbench.packs.mcp_bench.planner_requests import Asker, Parts, Prompts
from pytest_agentbench.packs.mcp_bench.records import PLANNER, PlannerSettings
from pytest_agentbench.packs.mcp_bench.wording import PlannerWording
from pytest_agentbench.records.case import Case, Message
from pytest_agentbench.runners.base import Recorder, RunContext, RunEnd, make_end
from pytest_agentbench.runners.chat import (
    Requests,
    call_tools,
    render_first,
    render_messages,
    together,
    with_attachments,
)
from pytest_agentbench.runners.conversation import AgentConversation, TurnOutput, record_answer
from pytest_agentbench.runners.kinds import Prepared, RunnerKind, RunRequest
from pytest_agentbench.tools.base import ToolOutput
from pytest_agentbench.tools.toolbox import Toolbox

MAX_CALLS = 200
"""How many calls a plan may hold; the paper's most eager model makes 155 in a whole task."""

_BOOLEANS = {"true": True, "false": False}


def _finite(parameters: dict[str, Any]) -> dict[str, Any]:
    # Python accepts NaN and Infinity in JSON, but requests to servers cannot contain them.
    json.dumps(parameters, allow_nan=False)
    return parameters


def _as_boolean(value: object) -> object:
    if isinstance(value, str):
        return _BOOLEANS.get(value.strip().lower(), value)
    return value


class PlannedCall(ReplyPart):
    """A call of a plan: the tool's name, and its arguments, by default none."""

    tool: Annotated[str, Field(min_length=1)]
    parameters: Annotated[
        # Models write null for a tool without arguments.
        dict[str, Any], AfterValidator(_finite), BeforeValidator(lambda value: {} if value is None else value)
    ] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """Decision of the planner. Without `calls` planning ends."""

    reasoning: str
    calls: tuple[PlannedCall, ...]


def parse_plan(text: str) -> Plan:
    """Return the plan in a planner's reply: a JSON object, alone, in the only code fence, or the only plan in a text.

    If `should_continue` is false, also as a text, the tools in the plan are ignored. Raises InvalidReply
    with all mistakes.
    """
    # Validated by two forms in turn: with `"should_continue": false` the tools may have any value.
    fields = read_json_object(text, embedded_keys=("should_continue", "planned_tools"))
    decision = validate_form(fields, _Decision)
    if not decision.should_continue:
        return Plan(decision.reasoning, ())
    return Plan(decision.reasoning, tuple(validate_form(fields, _Calls).planned_tools))


class _Decision(ReplyPart):
    should_continue: Annotated[StrictBool, BeforeValidator(_as_boolean)]
    reasoning: Annotated[str, BeforeValidator(lambda value: "" if value is None else value)] = ""


class _Calls(ReplyPart):
    planned_tools: Annotated[list[PlannedCall], Field(max_length=MAX_CALLS)]


async def execute(
    number: int, planned: Sequence[PlannedCall], toolbox: Toolbox, trace: Recorder, settings: PlannerSettings
) -> list[ToolOutput]:
    """Make the calls of round `number`. Return their outputs in the plan's order. Raises InfrastructureError.

    Calls of `sequential_only_tools` run first, one after the other. The others run concurrently, and all are recorded
    before the first of their results.
    """
    calls = [
        ToolCall(call_id(number, nth), call.tool, call.parameters, "") for nth, call in enumerate(planned, start=1)
    ]
    # Built-in tools belong to no server; they share one limit among them.
    slots = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(settings.parallel_calls_per_server))

    async def use(call: ToolCall) -> ToolOutput:
        async with slots[get_server(toolbox.tool_id(call.name)) or ""]:
            return await _make_call(call, toolbox, settings.call_timeout_seconds)

    outputs: dict[str, ToolOutput] = {}
    alone = [call for call in calls if toolbox.tool_id(call.name) in settings.sequential_only_tools]
    for call in alone:
        [outputs[call.id]] = await call_tools([call], toolbox, trace, use)
    others = [call for call in calls if call not in alone]
    outputs |= zip((call.id for call in others), await call_tools(others, toolbox, trace, use, "always"), strict=True)
    return [outputs[call.id] for call in calls]


def call_id(number: int, nth: int) -> str:
    """Return the id of the `nth` call of round `number` in the trace, both from 1."""
    # The calls of a plan, which is a text, have no ids, but a trace needs them.
    return f"r{number}-{nth}"


def get_server(tool_id: str) -> str | None:
    """Return the server of `Server:tool`; None for a built-in tool."""
    server, colon, _ = tool_id.partition(":")
    if colon:
        return server
    return None


async def _make_call(call: ToolCall, toolbox: Toolbox, seconds: float) -> ToolOutput:
    try:
        # A call that takes too long is a result for the planner to read, like any tool's error: the run goes on.
        async with asyncio.timeout(seconds):
            return await toolbox.call(call.name, call.arguments)
    except TimeoutError:
        message = f"error: {toolbox.tool_id(call.name)}: no result within call_timeout_seconds ({seconds:g} s)"
        return ToolOutput(message, is_error=True, seconds=seconds)


@dataclass(slots=True)
class Information:
    """Knowledge of all rounds so far. A text that the model condensed replaces the original.

    `prompts` are those of the turn, set before its first round. The trace has each result whole; its runner events
    `summary` and `compression` contain the condensed texts.
    """

    _asker: Asker
    _counter: TokenCounter
    _settings: PlannerSettings
    _trace: Recorder
    prompts: Prompts = field(init=False)
    _rounds: list[list[str | Block]] = field(default_factory=list, init=False)

    @property
    def parts(self) -> Parts:
        """Return the knowledge of all rounds for a request; empty before the first round."""
        return [part for parts in self._rounds for part in parts]

    async def add(self, number: int, plan: Plan, outputs: Sequence[ToolOutput]) -> None:
        """Add a round: its reasoning, its calls, and their results. Raises ProviderError."""
        wording, limit = self.prompts.wording, self._settings.summarise_over_tokens
        results = list(dict.fromkeys(output.content for output in outputs))  # equal results are summarised once
        shortened = dict(zip(results, await together(map(self._shorten, results)), strict=True))
        parts: list[str | Block] = [wording.round_heading.format(round=number)]
        if plan.reasoning:
            parts.append(Block(wording.reasoning_label, self._cut(plan.reasoning, limit)))
        for nth, (call, output) in enumerate(zip(plan.calls, outputs, strict=True), start=1):
            content = shortened[output.content]
            if content != output.content:
                self._trace.event("summary", call_id=call_id(number, nth), content=content)
            outcome = wording.failed if output.is_error else wording.succeeded
            label = wording.result_label.format(number=nth, round=number)
            parts.append(Block(label, f"{self._cut(_format_call(call), limit)}\n-> {outcome}\n{content}"))
        self._rounds.append(parts)
        # Tokens of the request's text are counted, including delimiters and labels.
        if self._counter.count(self.prompts.plain(self.parts)) > self._settings.information_tokens:
            await self._compress()

    async def _shorten(self, result: str) -> str:
        """Return a short result unchanged, or else the model's summary of it, cut to the limit."""
        limit = self._settings.summarise_over_tokens
        if self._counter.count(result) <= limit:
            return result
        return await self._condense("summary", self.prompts.summary(result, limit), result, limit)

    async def _compress(self) -> None:
        """Condense all knowledge to half of its limit."""
        # Half, because a text at the limit itself would be condensed again in the next round. And not more
        # than one reply may contain.
        target = min(self._settings.information_tokens // 2, self._settings.summary_tokens)
        pieces = self._pieces()
        share = max(target // len(pieces), 1)
        texts = await together(
            self._condense("compression", self.prompts.compression(piece, share), piece, share) for piece in pieces
        )
        text, wording = "\n\n".join(texts), self.prompts.wording
        self._trace.event("compression", pieces=len(pieces), content=text)
        self._rounds = [[wording.compressed, Block(wording.compressed_label, text)]]

    def _pieces(self) -> list[str]:
        """Join the parts to texts of at most twice `information_tokens`, except for longer single parts."""
        # One round may have far more than the limit: a request with all of it would not fit into the model's context.
        pieces, length, limit = [""], 0, 2 * self._settings.information_tokens
        for part in self.parts:
            text = part if isinstance(part, str) else f"{part.label}:\n{part.text}"
            tokens = self._counter.count(text)
            if pieces[-1] and length + tokens > limit:
                pieces.append("")
                length = 0
            pieces[-1] += f"{text}\n\n"
            length += tokens
        return pieces

    async def _condense(self, purpose: str, messages: list[dict[str, str]], original: str, tokens: int) -> str:
        """Return the model's condensed text, or `original` if the reply is empty, cut to `tokens`."""
        reply = await self._asker.ask(purpose, messages, self._settings.summary_tokens)
        return self._cut((reply.content or "").strip() or original, tokens)

    def _cut(self, text: str, tokens: int) -> str:
        head = self._counter.cut(text, tokens)
        if head == text:
            return text
        return f"{head}\n{self.prompts.wording.left_out.format(tokens=self._counter.count(text[len(head) :]))}"


def _format_call(call: PlannedCall) -> str:
    return f"{call.tool} {json.dumps(call.parameters, ensure_ascii=False)}"


MAX_ATTEMPTS = 3
"""Maximum requests for a plan; then the run has failed."""
REQUEST_SECONDS = 300.0
"""Default seconds of a request: a plan of 12,000 tokens takes minutes."""
PLANNER_CONTRACT = "planner_contract"
"""The code of a run that failed because no plan was valid."""

_QUOTED_REPLY = 20_000


@dataclass(slots=True)
class PlannerConversation(AgentConversation):
    """Runs a case with tools by Algorithm 1 of the paper (seed 004, 3.1), for each message of the user.

    1. In each round the model plans the calls of that round from the findings of earlier rounds. An invalid plan is
       asked for again with its mistakes, up to MAX_ATTEMPTS times; then the run is `failed`.
    2. The calls run concurrently; long results are summarised, and the knowledge is compressed once it grows too long.
    3. Planning ends with a plan that stops or calls nothing, or after `max_rounds`; then the final answer is written.

    A later turn has the conversation so far as its task, and keeps the knowledge. The trace has a runner event `round`
    {number} for each planned round, and `plan` {round, attempt, ok, problems} for each reply of the planner, which
    follows as a message. Numbers of rounds go on over the turns; `max_rounds` counts those of one turn.
    """

    context: RunContext
    messages: list[dict[str, Any]]
    toolbox: Toolbox
    planner: PlannerSettings
    requests: Requests
    asker: Asker
    counter: TokenCounter
    information: Information
    _rounds: int = 0

    async def reply(self, message: Message, turn: int) -> TurnOutput:
        """Return the answer to the message, with the conversation so far as the task."""
        self.messages.append({"role": "user", "content": message.content})
        output = await self.answer()
        self.messages.append({"role": "assistant", "content": output.text or ""})
        return output

    async def answer(self) -> TurnOutput:
        """Plan, execute and observe, and return the answer to the messages. Raises ProviderError."""
        planner, trace, toolbox = self.planner, self.context.trace, self.toolbox
        prompts = Prompts(planner.language, self.messages, toolbox.tools, planner.prompts)
        planning = _Planning(self.requests, self.asker, prompts, self.counter, planner, trace)
        information = self.information
        information.prompts = prompts
        called: list[str] = []
        for number in range(1, planner.max_rounds + 1):
            self._rounds += 1
            trace.event("round", number=self._rounds)
            plan = await planning.plan(number, self._rounds, information.parts)
            if isinstance(plan, RunEnd):
                return TurnOutput(None, plan)
            called += [toolbox.tool_id(call.tool) for call in plan.calls]
            outputs = await execute(self._rounds, plan.calls, toolbox, trace, planner)
            # Also for a plan without calls: the answer is written from its reasoning too.
            await information.add(self._rounds, plan, outputs)
            if not plan.calls:
                break
        else:
            # Only if no plan ended the loop: the event distinguishes such a run from a finished one.
            trace.event("max_rounds_reached", max_rounds=planner.max_rounds)
        servers = {get_server(tool_id) for tool_id in called} - {None}
        request = prompts.answer(len(called), len(servers), information.parts)
        return self.requests.read_end(await self.asker.ask("answer", request, planner.answer_tokens))


async def open_planner(case: Case, context: RunContext, messages: list[dict[str, Any]]) -> PlannerConversation:
    """Return a conversation that begins with the messages. Raises UnavailableError and ConfigError."""
    if context.client is None:
        raise UnavailableError("mcp_planner needs a model: name one with --model")
    trace, model = context.trace, context.client.model
    planner = context.prepared if isinstance(context.prepared, PlannerSettings) else PlannerSettings()
    settings = RunnerSettings.model_validate({"timeout_seconds": REQUEST_SECONDS, **context.settings})
    toolbox = context.toolbox()
    requests = Requests(case.case_id, context.client, settings, trace, case.runner.overrides)
    # Summaries and cuts depend on the token count: a replay from a cassette must make the same requests on
    # any machine.
    counter = await context.in_thread(partial(TokenCounter, model, everywhere_alike=context.client.taped))
    requests.describe(messages, toolbox.tools, planner=planner.of_a_run, tokenizer=counter.tokenizer)
    asker = Asker(requests, {**model.parameters, **settings.request_parameters})
    information = Information(asker, counter, planner, trace)
    return PlannerConversation(context, messages, toolbox, planner, requests, asker, counter, information)


@dataclass(slots=True)
class _Planning:
    """Conversation about one round's plan, until a reply is valid."""

    _requests: Requests
    _asker: Asker
    _prompts: Prompts
    _counter: TokenCounter
    _settings: PlannerSettings
    _trace: Recorder

    async def plan(self, number: int, round_number: int, information: Parts) -> Plan | RunEnd:
        """Return the plan of round `number` of the turn, or how the run has ended without one. Raises ProviderError.

        `round_number` counts the rounds of all turns.
        """
        wording = self._prompts.wording
        messages = self._prompts.plan(number, self._settings.max_rounds, information)
        problems: list[str] = []
        for attempt in range(1, MAX_ATTEMPTS + 1):
            reply = await self._ask(messages)
            plan, problems = _read_plan(reply, wording, self._settings.plan_tokens)
            self._trace.event("plan", round=round_number, attempt=attempt, ok=plan is not None, problems=problems)
            if reply.content:
                self._trace.message("assistant", reply.content)
            if plan is not None:
                return plan
            if reply.end in ("filtered", "context_exceeded"):
                return self._requests.read_end(reply).end
            listed = "\n".join(f"- {problem}" for problem in problems)
            messages = [*messages, *_repair_messages(reply, wording.invalid_plan.format(problems=listed))]
        reason = f"round {round_number}: no plan in {MAX_ATTEMPTS} replies; the last one: {'; '.join(problems)}"
        return make_end("failed", PLANNER_CONTRACT, reason)

    async def _ask(self, messages: Sequence[Mapping[str, str]]) -> ChatReply:
        """Make one request and update the token counter from its usage.

        Only these requests update it, because they run one at a time: after concurrent ones the counter would depend on
        their order, and a replay would differ.
        """
        reply = await self._asker.ask("plan", messages, self._settings.plan_tokens)
        self._counter.learn("\n".join(message["content"] for message in messages), reply.usage.input_tokens)
        return reply


def _read_plan(reply: ChatReply, wording: PlannerWording, tokens: int) -> tuple[Plan | None, list[str]]:
    """Return the plan in a reply of at most this number of tokens, or its mistakes."""
    try:
        return parse_plan(reply.content or ""), []
    except InvalidReply as error:
        problems = error.problems
    if reply.tool_calls:
        problems.append(wording.native_calls)
    if reply.finish_reason == "length":
        problems.append(wording.cut_plan.format(tokens=tokens))
    return None, problems


def _repair_messages(reply: ChatReply, advice: str) -> list[dict[str, str]]:
    """Return the refused reply, and the advice as the user's message."""
    quoted = clip_middle(reply.content or "(an empty reply)", _QUOTED_REPLY)
    return [{"role": "assistant", "content": quoted}, {"role": "user", "content": advice}]


class PlannerRunner(RunnerKind):
    """Runner `mcp_planner`."""

    # Seconds, the original's limit of a task: up to 20 rounds, each with a plan and its calls.
    run_seconds = 3000.0
    has_turns = True
    # A turn has many requests: it may take most of the run's time.
    limits_itself = True

    async def __call__(self, case: Case, context: RunContext) -> RunEnd:
        """Plan, execute and observe for one answer: see PlannerConversation."""
        conversation = await open_planner(case, context, render_messages(case))
        return record_answer(await conversation.answer(), context.trace)

    async def converse(self, case: Case, context: RunContext) -> PlannerConversation:
        """Begin a conversation after the case's messages and attachments."""
        return await open_planner(case, context, with_attachments(case, case.messages))

    def require_input(self, case: Case) -> None:
        """Raise ConfigError as `render_first` does."""
        render_first(case)

    def prepare(self, request: RunRequest) -> Prepared:
        """Return the profile's section `planner`, as the run's data."""
        settings = request.profile.section(PLANNER)
        return Prepared(identity={"planner": settings.of_a_run}, data=settings)


RUNNER = PlannerRunner()
