"""Hold a conversation with an ACP agent in the run's sandbox: one program and one session for all turns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from pytest_agentbench.config.agent_file import fill
from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.records.case import Message
from pytest_agentbench.records.run import EndDetail, EndReason
from pytest_agentbench.runners.acp.client import AUTH_REQUIRED, AcpSession
from pytest_agentbench.runners.acp.connection import ClosedError, ProtocolError, ReplyError
from pytest_agentbench.runners.acp.fields import AcpFields
from pytest_agentbench.runners.acp.services import SandboxServices
from pytest_agentbench.runners.agents.places import START
from pytest_agentbench.runners.agents.reading import ProgramOutput
from pytest_agentbench.runners.agents.turns import ProgramConversation
from pytest_agentbench.runners.base import RunEnd, clean, make_end, quote_last_lines
from pytest_agentbench.runners.conversation import SUCCESS, TurnOutput, name_turn

_STREAMS = "streams"
"""The relay's mode in which stdin and stdout pass through."""

_REASONS: Mapping[str, EndReason | None] = {
    "end_turn": None,
    "max_tokens": "length",
    "max_turn_requests": "max_turns",
    "refusal": "refused",
}
"""The end reasons of turns that the agent ended itself. Checks decide what they are worth."""

_LISTING_SECONDS = 10.0
"""Seconds that an agent gets to connect the MCP servers of its session, before the first message."""

_MOST_SHOWN = 2000


@dataclass(slots=True)
class AcpConversation(ProgramConversation):
    """The turns of one run. The session, which `begin` starts, lives until `close`."""

    _session: AcpSession | None = field(default=None, init=False)

    async def begin(self) -> None:
        """Write the program's files, start it, and begin its session.

        Raises SandboxError, InfrastructureError if the agent does not start, and ConfigError if it lacks what the run
        needs.
        """
        await self.write_files()
        argv = [str(fill(argument, self.values)) for argument in self.prepared.program.argv]
        process = await self.sandbox.spawn(
            ["/bin/sh", "-c", START, self.control, str(self.relay.port), self.relay.socket, _STREAMS, *argv],
            environment=self.environment(self.values),
            stderr="apart",
        )
        services = SandboxServices(self._fields.client, self.sandbox, str(self.values["workspace"]), self.context.trace)
        name = self.prepared.program.name
        self._session = AcpSession(name, process, self._fields, services, self.context.trace)
        try:
            await self._session.start(str(self.values["workspace"]), self.servers)
            # Qwen Code 0.24 connects servers behind its answer, and its first request then lacks their tools
            await self.gateway.wait_until_listed(_LISTING_SECONDS)
        except BaseException:
            await self._session.close()
            raise

    async def reply(self, message: Message, turn: int) -> TurnOutput:
        """Send the message, and return the answer. Raises ProviderError after an outage."""
        assert self._session is not None
        text, began, outcome = self.word(message, turn), time.monotonic(), None
        with self.gateway.turn(text):
            try:
                async with self._turn_time.limit() as timer:
                    outcome = await self._prompt(clean(text))
            except TimeoutError:
                if not timer.expired():
                    raise
        stop = outcome if isinstance(outcome, str) else None
        seconds = time.monotonic() - began
        self._record(turn, seconds, stop)
        if self.prepared.evidence is not None:
            output = ProgramOutput(self._session.turn.text, self._session.errors, reply=self.gateway.reply_text)
            self.prepared.evidence.add_turn(self.address.base_url, f"stopReason {stop}", seconds, output)
        answer = self._find_answer()
        end = self._judge_turn(outcome, answer, name_turn(turn, len(self.texts) or None))
        if self.watch is not None:
            self.watch.require_listed()
        return TurnOutput(answer if end.status == "success" else None, end)

    async def close(self) -> None:
        """End the program, stop the sandbox and close the gateway."""
        try:
            if self._session is not None:
                await self._session.close()
        finally:
            await ProgramConversation.close(self)

    @property
    def _fields(self) -> AcpFields:
        return cast("AcpFields", self.prepared.fields)

    async def _prompt(self, text: str) -> str | Exception:
        """Return the reason for the turn's end, or the failure of the exchange."""
        assert self._session is not None
        try:
            reply = await self._session.prompt(text)
        except (ReplyError, ClosedError, ProtocolError) as error:
            return error
        return str(clean(reply.get("stopReason")))[:_MOST_SHOWN]

    def _find_answer(self) -> str:
        assert self._session is not None
        if self._fields.answer.from_ == "messages":
            return self._session.turn.text.strip()
        return (self.gateway.reply_text or "").strip()

    def _record(self, turn: int, seconds: float, stop: str | None) -> None:
        """Record what the agent reported in the turn. None of it counts for checks of calls or for usage."""
        assert self._session is not None
        trace, record, noise = self.context.trace, self._session.turn, self._session.noise
        trace.event("turn", number=turn, seconds=seconds, stop_reason=stop)
        trace.event("acp_messages", text=record.text, calls=[call.describe() for call in record.calls.values()])
        if noise.counts:
            trace.event("acp_noise", counts=dict(noise.counts), first=list(noise.first))

    def _judge_turn(self, outcome: str | Exception | None, answer: str, turn: str) -> RunEnd:
        """Return how the turn ended. Causes have precedence over their effects, so the gateway's ends come first.

        `outcome` is None after the time limit. Raises the gateway's outage, because agents hide outages, and
        InfrastructureError if the agent needs an authentication.
        """
        name, gateway = self.prepared.program.name, self.gateway
        if gateway.outage is not None:
            raise gateway.outage
        if outcome is None:
            if gateway.fault is not None:
                gateway.find_end(answered=False)
            limit = self._fields.timeout_seconds
            return make_end("timed_out", "run_timeout", f"no answer within timeout_seconds ({limit:g} s), in {turn}")
        if (end := gateway.find_end(answered=isinstance(outcome, str) and bool(answer))) is not None:
            return end
        if isinstance(outcome, Exception):
            return self._judge_failure(outcome, name, turn)
        if outcome not in _REASONS:
            reason = "though nobody cancelled it" if outcome == "cancelled" else "which is none of the protocol's"
            return make_end("failed", "agent_failed", f"{name} ended {turn} with stopReason {outcome!r}, {reason}")
        if outcome == "end_turn":
            if answer:
                return SUCCESS
            if self._session is not None and self._session.turn.denied:
                # Some agents end their turn if a permission is denied, as their user would want
                return RunEnd("success", detail=EndDetail(raw="permission_denied"))
            message = f"{name} ended {turn} without an answer{self._quote_end()}"
            return make_end("invalid", "no_answer", message)
        return RunEnd("success", reason=_REASONS[outcome], detail=EndDetail(raw=outcome))

    def _judge_failure(self, failure: Exception, name: str, turn: str) -> RunEnd:
        if isinstance(failure, ProtocolError):
            return make_end("failed", "acp_protocol", f"{name} broke the protocol in {turn}: {clean(str(failure))}")
        if isinstance(failure, ReplyError):
            text = f"{turn} with error {failure.code}: {clean(str(failure))[:_MOST_SHOWN]}"
            if failure.code == AUTH_REQUIRED:
                remedy = "name one of its authentication methods in `auth`, or set its variables"
                raise InfrastructureError(f"agent_start: {name} answered {text}; {remedy}{self._quote_end()}")
            return make_end("failed", "agent_failed", f"{name} answered {text}")
        return make_end("failed", "agent_exit", f"{name} ended in {turn}: {failure}{self._quote_end()}")

    def _quote_end(self) -> str:
        assert self._session is not None
        return quote_last_lines(self._session.errors)
