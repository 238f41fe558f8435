"""Estimate the cost of an attempt at a request whose usage never arrives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_agentbench.models.failures import RequestFailed
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.metering import Meter
from pytest_agentbench.models.replies import find_usage, price_tokens
from pytest_agentbench.models.spelling import BYTES_PER_TOKEN
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Unsettled, Usage

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_ASSUMED_OUTPUT = 4096
"""Assumed output tokens of a request without its own limit."""


@dataclass(slots=True)
class Flight:
    """One attempt at a request: the estimate if its usage never arrives.

    `sent` means that its endpoint may have received it, `given_up` that its caller has gone. `content` is the body of a
    reply, which may be unusable.
    """

    model: Model
    body: bytes
    request: Mapping[str, Any]
    meter: Meter | None
    sent: bool = False
    given_up: bool = False
    content: bytes | None = None

    def failed(self, error: BaseException) -> None:
        """Book the possible cost of the attempt."""
        if self.meter is None or not self.sent:
            return
        usage = None if self.content is None else find_usage(self.content, self.model)
        if usage is None and _may_be_billed(error):
            usage = self._estimate(self._output_limit())
        if usage is not None:
            self.meter.book(usage)

    def complete(self, reply: ChatReply) -> ChatReply:
        """Return the reply, with an estimate if it has no usage."""
        usage = reply.usage
        if usage.cost_usd is not None or None not in (usage.input_tokens, usage.output_tokens):
            return reply
        thoughts = reply.thoughts or ""
        written = sum(map(len, (reply.content or "", thoughts, *(call.raw for call in reply.tool_calls))))
        estimated = self._estimate(-(-written // BYTES_PER_TOKEN)).unsettled
        return replace(reply, usage=usage.model_copy(update={"unsettled": estimated}))

    def _output_limit(self) -> int:
        limit = next((self.request[name] for name in _LIMITS if self.request.get(name) is not None), None)
        if isinstance(limit, int) and limit >= 0:
            return limit
        return _ASSUMED_OUTPUT

    def _estimate(self, output_tokens: int) -> Usage:
        input_tokens = -(-len(self.body) // BYTES_PER_TOKEN)
        tokens = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        return Usage(
            unsettled=Unsettled(
                requests=1,
                given_up=int(self.given_up),
                estimated_cost_usd=price_tokens(tokens, self.model),
                estimated_tokens=input_tokens + output_tokens,
            )
        )


def _may_be_billed(error: BaseException) -> bool:
    """Return whether a failed attempt may be billed.

    A provider bills the output of its model. It does not bill an error status without generated text, a redirect, a
    page of a proxy, and a request that did not reach it.
    """
    if not isinstance(error, RequestFailed):
        return True  # cancelled, while the endpoint was at work
    if error.status is not None:
        return bool(error.partial)
    if error.code == "invalid_response":
        return error.retryable  # else it is a page, which no model has written
    return error.sent and error.code in _GENERATED


_GENERATED = frozenset({"timeout", "connection", "broken_off", "reply_too_large"})
