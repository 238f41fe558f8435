"""The `llm_probe` runner: a chat model, the case's messages, and a loop over the tools the case exposes."""

from __future__ import annotations

from pytest_agentbench.config import RunnerSettings
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records import Case
from pytest_agentbench.runners.base import RunContext, RunOutput
from pytest_agentbench.runners.calling import call_tools
from pytest_agentbench.runners.prompt import render_messages
from pytest_agentbench.runners.requests import Requests, answered

FINAL_ANSWER_REQUEST = "No more tool calls are possible. Give your final answer now."
"""What the model is told once it has used all its turns."""


async def llm_probe(case: Case, context: RunContext) -> RunOutput:
    """Ask the model, run the tools it calls, and go on until it answers without calling one.

    1. Up to `max_turns` requests offer the case's tools; the calls of one reply run in parallel.
    2. A model that still calls tools after that is asked once more, without tools, for its final answer.

    Every request, retry and reply is a runner event of the trace (`request`, `retry`, `reply`). An answer that the
    provider's content filter withheld is a failed run; one that was cut at the token limit is kept as it is, with
    `finish_reason: length` in the metadata. Raises ProviderError, UnavailableError and ConfigError.
    """
    if context.client is None:
        raise UnavailableError("llm_probe needs a model: name one with --model")
    settings, trace = RunnerSettings.model_validate(dict(context.settings)), context.trace
    toolbox = context.toolbox()
    messages, tools = render_messages(case), toolbox.specs()
    requests = Requests(case.case_id, context.client, settings, trace)
    requests.describe(messages, toolbox, max_turns=settings.max_turns)
    for _ in range(settings.max_turns):
        reply = await requests.send(messages, tools)
        if not reply.tool_calls:
            return answered(reply)
        if reply.content:
            trace.message("assistant", reply.content)
        messages.append(reply.message)
        outputs = await call_tools(reply.tool_calls, toolbox, trace)
        for call, output in zip(reply.tool_calls, outputs, strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output.content})
    trace.event("max_turns_reached", max_turns=settings.max_turns)
    messages.append({"role": "user", "content": FINAL_ANSWER_REQUEST})
    trace.message("user", FINAL_ANSWER_REQUEST)
    reply = await requests.send(messages)
    if reply.content and reply.tool_calls:
        trace.message("assistant", reply.content)
    return answered(reply, forced_final_answer=True)
