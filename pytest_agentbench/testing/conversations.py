"""A kit for drivers of conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pytest_agentbench.engine.conversations import Driver, TurnLimits, hold_conversation
from pytest_agentbench.records.case import Case, Message
from pytest_agentbench.records.run import MessageEvent
from pytest_agentbench.runners.base import RoleClient, RunContext, RunEnd, make_end
from pytest_agentbench.runners.conversation import AgentConversation, TurnOutput
from pytest_agentbench.testing.samples import MODEL, expect
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

_NO_MORE = "no_more_answers"
_SECONDS = 60.0


class _Answers(AgentConversation):
    """An agent that gives the answers in order, and then fails."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = answers

    async def reply(self, message: Message, turn: int) -> TurnOutput:
        if turn > len(self._answers):
            return TurnOutput(None, make_end("failed", _NO_MORE, f"the kit has {len(self._answers)} answers"))
        return TurnOutput(self._answers[turn - 1])


def check_driver(
    driver: Driver, case: Case, answers: Sequence[str], *, roles: Mapping[str, RoleClient] | None = None
) -> list[str]:
    """Hold a case's conversation twice, at the same time, as the engine would; return the messages of the first one.

    The agent gives these `answers` in order. The driver has to return after the last one at the latest. `roles` are the
    clients of `context.client_for`.
    """
    declared = getattr(driver, "model_roles", ())
    expect(isinstance(declared, tuple | list), f"model_roles: found {declared!r}, expected a tuple of names")
    if roles is not None:
        expect({*roles} <= {*declared}, f"model_roles: found {declared!r}, expected {sorted(roles)}")
    workspaces = Workspaces()
    try:
        return asyncio.run(_hold_two(driver, case, answers, roles or {}, workspaces))
    finally:
        workspaces.close()


async def _hold_two(
    driver: Driver, case: Case, answers: Sequence[str], roles: Mapping[str, RoleClient], workspaces: Workspaces
) -> list[str]:
    sandboxes, before = Sandboxes(workspaces), case.model_dump_json()

    async def converse(case: Case, context: RunContext) -> AgentConversation:
        return _Answers(answers)

    async def hold() -> tuple[RunEnd, list[str]]:
        context = RunContext(case, lambda: sandboxes, model=MODEL, roles=roles)
        async with asyncio.timeout(_SECONDS):
            end = await hold_conversation(converse, driver, TurnLimits(), case, context)
        events = context.trace.events
        return end, [event.content for event in events if isinstance(event, MessageEvent) and event.role == "user"]

    try:
        # At the same time, as the engine does: state that a driver keeps between two awaits gets mixed up here
        (end, messages), (_, others) = await asyncio.gather(hold(), hold())
    finally:
        await sandboxes.close()
    code = None if end.error is None else end.error.code
    expect(code != _NO_MORE, f"the driver goes on after {len(answers)} answers; it said {messages[-1]!r}")
    expect(end.status != "invalid", f"the conversation is invalid: {end.error}")
    expect(messages == others, f"two conversations at the same time differ: {messages} and {others}")
    expect(case.model_dump_json() == before, "the driver changed its case")
    return messages
