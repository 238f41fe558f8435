"""The `mcp_planner` runner: plan, execute, observe, until the planner stops; then the answer from all that was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pytest_agentbench.config import PlannerSettings, RunnerSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.models import ChatReply, InvalidReply, TokenCounter, clipped
from pytest_agentbench.records import Case, RunError
from pytest_agentbench.runners.base import RunContext, RunEnd, RunOutput
from pytest_agentbench.runners.planner.asking import Asker
from pytest_agentbench.runners.planner.executing import execute, server_of
from pytest_agentbench.runners.planner.information import Information
from pytest_agentbench.runners.planner.plan import Plan, parse_plan
from pytest_agentbench.runners.planner.prompting import Parts, Prompts
from pytest_agentbench.runners.planner.wording import Wording
from pytest_agentbench.runners.prompt import render_messages
from pytest_agentbench.runners.recorder import Recorder
from pytest_agentbench.runners.requests import WITHHELD, Requests, answered

MAX_ATTEMPTS = 3
"""How often a plan is asked for before the run has failed."""
REQUEST_SECONDS = 300.0
"""Limit of a request where the settings give none: a plan of 12,000 tokens takes minutes."""
PLANNER_CONTRACT = "planner_contract"
"""The code of a run that failed as no plan kept the contract."""

_QUOTED_REPLY = 20_000


async def mcp_planner(case: Case, context: RunContext) -> RunOutput | RunEnd:
    """Algorithm 1 of the paper (seed 004, 3.1), for any case with tools.

    1. Each round the model plans the calls of that round, knowing what earlier rounds have found. A plan that does not
       keep the contract is asked for again with what is wrong, up to MAX_ATTEMPTS times; then the run is `failed`.
    2. The calls run side by side; long results are summarised, and what is known is compressed once it grows too long.
    3. Planning ends with a plan that stops or calls nothing, or after `max_rounds`; then the final answer is written.

    The trace has a runner event `round` {number} for each round that is planned, and `plan` {round, attempt, ok,
    problems} for each reply of the planner, which follows as a message. Raises ProviderError, UnavailableError and
    ConfigError.
    """
    if context.client is None:
        raise UnavailableError("mcp_planner needs a model: name one with --model")
    trace, planner, model = context.trace, context.planner, context.client.model
    settings = RunnerSettings.model_validate({"timeout_seconds": REQUEST_SECONDS, **context.settings})
    toolbox, messages = context.toolbox(), render_messages(case)
    requests = Requests(case.case_id, context.client, settings, trace)
    # What is summarised and cut depends on the count: a cassette's requests must come again on any machine.
    counter = await context.in_thread(partial(TokenCounter, model, everywhere_alike=context.client.taped))
    requests.describe(messages, toolbox, planner=planner.of_a_run, tokenizer=counter.tokenizer)
    asker = Asker(requests, {**model.parameters, **settings.request_parameters})
    prompts = Prompts(planner.language, messages, toolbox.tools)
    planning = _Planning(asker, prompts, counter, planner, trace)
    information = Information(asker, prompts, counter, planner, trace)
    called: list[str] = []
    for number in range(1, planner.max_rounds + 1):
        trace.event("round", number=number)
        plan = await planning.plan(number, information.parts)
        if isinstance(plan, RunEnd):
            return plan
        called += [toolbox.tool_id(call.tool) for call in plan.calls]
        outputs = await execute(number, plan.calls, toolbox, trace, planner)
        await information.add(number, plan, outputs)
        if not plan.calls:
            break
    else:
        trace.event("max_rounds_reached", max_rounds=planner.max_rounds)
    servers = {server_of(tool_id) for tool_id in called} - {None}
    request = prompts.answer(len(called), len(servers), information.parts)
    return answered(await asker.ask("answer", request, planner.answer_tokens))


class _Planning:
    """Asks for plans until they keep the contract."""

    def __init__(
        self, asker: Asker, prompts: Prompts, counter: TokenCounter, settings: PlannerSettings, trace: Recorder
    ) -> None:
        self._asker = asker
        self._prompts = prompts
        self._counter = counter
        self._settings = settings
        self._trace = trace

    async def plan(self, number: int, information: Parts) -> Plan | RunEnd:
        """The plan of round `number`, or how the run has ended without one. Raises ProviderError."""
        said = self._prompts.wording
        messages = self._prompts.plan(number, self._settings.max_rounds, information)
        problems: list[str] = []
        for attempt in range(1, MAX_ATTEMPTS + 1):
            reply = await self._ask(messages)
            plan, problems = _read(reply, said, self._settings.plan_tokens)
            self._trace.event("plan", round=number, attempt=attempt, ok=plan is not None, problems=problems)
            if reply.content:
                self._trace.message("assistant", reply.content)
            if plan is not None:
                return plan
            if reply.finish_reason == "content_filter":
                return RunEnd("failed", RunError(code="content_filter", message=WITHHELD.format("plan")))
            messages = [*messages, *_asked_again(reply, said.invalid_plan.format(problems=_listed(problems)))]
        found = f"round {number}: no plan in {MAX_ATTEMPTS} replies; the last one: {'; '.join(problems)}"
        return RunEnd("failed", RunError(code=PLANNER_CONTRACT, message=found))

    async def _ask(self, messages: Sequence[Mapping[str, str]]) -> ChatReply:
        """One request, from which the counter learns.

        It learns from these alone, of which there is one at a time: what runs side by side would make it depend on who
        is faster, and a replay not the same.
        """
        reply = await self._asker.ask("plan", messages, self._settings.plan_tokens)
        self._counter.learn("\n".join(message["content"] for message in messages), reply.usage.input_tokens)
        return reply


def _read(reply: ChatReply, said: Wording, tokens: int) -> tuple[Plan | None, list[str]]:
    """The plan in a reply of at most so many tokens, else what is wrong with it."""
    try:
        return parse_plan(reply.content or ""), []
    except InvalidReply as error:
        problems = error.problems
    if reply.tool_calls:
        problems.append(said.native_calls)
    if reply.finish_reason == "length":
        problems.append(said.cut_plan.format(tokens=tokens))
    return None, problems


def _asked_again(reply: ChatReply, what_is_wrong: str) -> list[dict[str, str]]:
    """The refused reply, and why it is refused."""
    quoted = clipped(reply.content or "(an empty reply)", _QUOTED_REPLY)
    return [{"role": "assistant", "content": quoted}, {"role": "user", "content": what_is_wrong}]


def _listed(problems: Sequence[str]) -> str:
    return "\n".join(f"- {problem}" for problem in problems)
