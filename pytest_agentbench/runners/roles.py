"""Ask a model that plays a role in a run next to the run's own model, such as a simulated user."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.clock import Wait
from pytest_agentbench.models.metering import METER, Meter
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.runners.base import RunContext

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.models.messages import ChatReply

_BLAMES_THE_MODEL = frozenset({"filtered", "context_exceeded", "malformed_reply", "unsupported"})
"""Reasons of errors that would be the agent's failure, or a skip, if its own model had them."""


class RoleRequests:
    """Sends the requests of one role of a run. It is the run's RoleClient.

    Its usage is that of all requests, also of failed attempts that may be billed. Time limit and retries are those of
    the run's own requests, the limits of its endpoint are the model's. For the event loop.
    """

    def __init__(self, role: str, context: RunContext, client: ChatClient) -> None:
        self.role = role
        self._usage: Usage | None = None
        self._context, self._client = context, client
        self._settings = RunnerSettings.model_validate(dict(context.settings))

    @property
    def model(self) -> Model:
        """Return the model that plays the role."""
        return self._client.model

    @property
    def usage(self) -> Usage | None:
        """Return the sum of the usage of all requests, None before the first one."""
        return self._usage

    def _book(self, usage: Usage) -> None:
        self._usage = usage if self._usage is None else self._usage + usage

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Return one chat completion, as RoleClient does. Raises its ProviderError, also if the budget is used up."""
        trace = self._context.trace
        if (reason := self._context.over_budget(trace.usage)) is not None:
            raise self._fail(f"the model was not asked: {reason}", code="over_budget")
        meter = METER.get()
        token = METER.set(Meter(self._book, self.role) if meter is None else meter.for_role(self.role, self._book))
        try:
            reply = await self._ask(messages, tools=tools, parameters=parameters)
        except ProviderError as error:
            reason = "provider_error" if error.reason in _BLAMES_THE_MODEL else error.reason
            raise self._fail(str(error), code=error.code, retryable=error.retryable, reason=reason) from error
        finally:
            METER.reset(token)
        self._book(reply.usage)
        trace.event("role_reply", role=self.role, model=reply.model, attempts=reply.attempts, seconds=reply.seconds)
        return reply

    async def _ask(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> ChatReply:
        with Wait(self._settings.outage_seconds or math.inf) as wait:

            def note_retry(reason: str, delay: float, partial: str | None = None) -> None:
                wait.begin(reason)
                self._context.trace.event("role_retry", role=self.role, reason=reason, delay_seconds=delay)

            try:
                reply = await self._client.complete(
                    messages,
                    **fields,
                    timeout=self._settings.timeout_seconds,
                    case_id=self._context.case.case_id,
                    on_retry=note_retry,
                    **self._settings.repeats,
                )
            except ProviderError:
                wait.answered()
                raise
            wait.answered(reply.seconds)
            return reply

    def _fail(self, message: str, **fields: Any) -> ProviderError:
        return ProviderError(f"role {self.role!r} ({self.model.model_id}): {message}", **fields)
