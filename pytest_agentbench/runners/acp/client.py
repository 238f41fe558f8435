"""Hold one session with an agent by the Agent Client Protocol, version 1."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Protocol

from pytest_agentbench.config.agent_file import SessionMode
from pytest_agentbench.errors import ConfigError, InfrastructureError
from pytest_agentbench.runners.acp.connection import (
    NOT_FOUND,
    ClosedError,
    Connection,
    Noise,
    ProtocolError,
    ReplyError,
)
from pytest_agentbench.runners.acp.fields import AcpFields
from pytest_agentbench.runners.acp.permissions import CallReport, decide, list_options
from pytest_agentbench.runners.agents.mcp import McpServerEntry
from pytest_agentbench.runners.base import Recorder, clean, quote_last_lines
from pytest_agentbench.workspaces.sandboxes.base import Process

VERSION = 1
"""The version of the protocol. Version 2 is a draft, and agents that answer 2 expect other messages."""

AUTH_REQUIRED = -32000
_CANCEL_SECONDS = 5.0
"""Seconds in which the agent has to end a cancelled turn."""

_END_SECONDS = 6.0
"""Seconds after the end of stdin: more than the relay waits before it kills the program."""

_MOST_CALLS = 2000
_MOST_TEXT = 2**20
"""Maximum characters of the agent's messages that are stored for a turn."""

_SHOWN = 500
_READ_ELSEWHERE = frozenset(
    {
        "agent_thought_chunk",
        "user_message_chunk",
        "plan",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
    }
)
"""Kinds of updates that need no action: the gateway has the model's side of them."""


class Services(Protocol):
    """Requests of the agent that are served in the sandbox."""

    @property
    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities that the agent is told."""
        ...

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the reply, or None for a method that is not served. Raises ReplyError."""
        ...

    async def close(self) -> None:
        """End all that was started."""
        ...


@dataclass(slots=True)
class TurnRecord:
    """The agent's reports of one turn: its text, and its tool calls by their ids.

    `denied` is whether it was denied a permission.
    """

    text: str = ""
    calls: dict[str, CallReport] = field(default_factory=dict)
    denied: bool = False


class AcpSession:
    """A session of the agent. All methods run on the event loop.

    Nothing that the agent sends here counts as a tool call, as usage or as the model's words: the gateway has these.
    """

    def __init__(self, name: str, process: Process, fields: AcpFields, services: Services, trace: Recorder) -> None:
        self._name, self._fields, self._services, self._trace = name, fields, services, trace
        self._connection = Connection(process, self._answer, self._hear)
        self._session_id = ""
        self._cancelled = False
        self.turn = TurnRecord()

    @property
    def noise(self) -> Noise:
        """Return the output that nothing here reads."""
        return self._connection.noise

    async def start(self, workspace: str, servers: Sequence[McpServerEntry]) -> None:
        """Begin the session in the workspace, with the MCP servers, in the mode of the run's policy.

        Raises InfrastructureError if the agent does not start, ConfigError if it lacks what the run needs.
        """
        self._connection.open()
        about = await self._start_request(
            "initialize",
            {
                "protocolVersion": VERSION,
                "clientCapabilities": self._services.capabilities,
                "clientInfo": {"name": "pytest-agentbench", "version": version("pytest-agentbench")},
            },
        )
        if (found := about.get("protocolVersion")) != VERSION:
            raise self._cannot(f"it answers with version {found!r} of the protocol, expected {VERSION}")
        if self._fields.auth is not None:
            await self._start_request("authenticate", {"methodId": self._fields.auth})
        entries = _list_servers(servers, about.get("agentCapabilities"))
        session = await self._start_request("session/new", {"cwd": workspace, "mcpServers": entries})
        if not isinstance(session.get("sessionId"), str):
            raise self._cannot_start("it answered session/new without a sessionId")
        self._session_id = session["sessionId"]
        mode = await self._choose_mode(session)
        self._trace.event("acp_session", agent=_select(about.get("agentInfo"), "name", "version"), mode=mode)

    async def prompt(self, text: str) -> Mapping[str, Any]:
        """Send a message, and return the agent's reply at the end of the turn.

        Raises ReplyError, ClosedError and ProtocolError. If the caller is cancelled, so is the agent's turn.
        """
        self.turn = TurnRecord()
        params = {"sessionId": self._session_id, "prompt": [{"type": "text", "text": text}]}
        asking = asyncio.ensure_future(self._connection.request("session/prompt", params))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await self._cancel(asking)
            raise

    async def close(self) -> None:
        """End the program, by the end of its stdin and then by signals, and the services."""
        try:
            await self._connection.close(_END_SECONDS)
        finally:
            await self._services.close()

    @property
    def errors(self) -> str:
        """Return the program's stderr."""
        return self._connection.errors

    async def _cancel(self, asking: asyncio.Future[Any]) -> None:
        """Ask the agent to end its turn, and wait for that."""
        self._cancelled = True
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._connection.notify("session/cancel", {"sessionId": self._session_id})
                await asyncio.wait((asking,))
        except TimeoutError:
            self._trace.event("acp_cancel", answered=False)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _start_request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        seconds = self._fields.start_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._connection.request(method, params)
        except TimeoutError:
            reason = f"it did not answer {method} within start_seconds ({seconds:g} s)"
        except ReplyError as error:
            reason = f"it answered {method} with error {error.code}: {error}"
            if error.code == AUTH_REQUIRED:
                reason += "; name one of its authentication methods in `auth`, or set its variables"
        except (ClosedError, ProtocolError) as error:
            reason = f"{error} before it answered {method}"
        raise self._cannot_start(reason)

    def _cannot_start(self, reason: str) -> InfrastructureError:
        hint = ""
        if self.noise.bad_lines:
            first = self.noise.first[0]
            hint = f"; its first line that is no message: {first!r}. Is the option that starts ACP missing?"
        return InfrastructureError(
            f"agent_start: {self._name} did not start: {reason}{hint}{quote_last_lines(self.errors)}"
        )

    def _cannot(self, reason: str) -> ConfigError:
        return ConfigError(f"agent_cannot: {self._name} cannot run this case: {reason}")

    async def _choose_mode(self, session: Mapping[str, Any]) -> str | None:
        """Set the mode of the policy, and return it; None if there is none to set."""
        mode = self._fields.mode or SessionMode()
        value = mode.allow if self._fields.permissions == "allow" else mode.ask
        if value is None:
            return None
        if mode.config is not None:
            params = {"sessionId": self._session_id, "configId": mode.config, "value": value}
            await self._start_request("session/set_config_option", params)
            return value
        modes = session.get("modes")
        available = modes.get("availableModes") if isinstance(modes, Mapping) else None
        ids = [_select(each, "id").get("id") for each in available] if isinstance(available, list) else []
        if value not in ids:
            raise self._cannot(f"it has no mode {value!r}; its modes are {', '.join(map(str, ids)) or 'none'}")
        if isinstance(modes, Mapping) and modes.get("currentModeId") != value:
            await self._start_request("session/set_mode", {"sessionId": self._session_id, "modeId": value})
        return value

    async def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if method == "session/request_permission":
            return self._permit(params)
        if (reply := await self._services.answer(method, params)) is not None:
            return reply
        self.noise.add(f"request {method[:_SHOWN]}", method)
        raise ReplyError(NOT_FOUND, f"{method[:_SHOWN]} is not served")

    def _permit(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request for permission, and record it."""
        if self._cancelled:
            return {"outcome": {"outcome": "cancelled"}}
        call = params.get("toolCall")
        # The request may be the first message about the call, or repeat only a part of it
        report = self._merge(call if isinstance(call, Mapping) else {})
        options = list_options(params)
        decision = decide(self._fields.permissions, self._fields.permission_rules, report, options)
        self.turn.denied |= not decision.kind.startswith("allow")
        self._trace.event(
            "permission",
            **report.describe(),
            options=options,
            answer=decision.kind,
            policy=self._fields.permissions,
            rule=decision.rule,
        )
        return decision.describe()

    def _hear(self, method: str, params: Mapping[str, Any]) -> None:
        update = params.get("update")
        if method != "session/update" or not isinstance(update, Mapping):
            self.noise.add(f"notification {method[:_SHOWN]}", method)
            return
        kind = str(update.get("sessionUpdate"))
        if kind in ("tool_call", "tool_call_update"):
            self._merge(update)
        elif kind == "agent_message_chunk":
            content = update.get("content")
            text = content.get("text") if isinstance(content, Mapping) else None
            if isinstance(text, str):
                self.turn.text += text[: _MOST_TEXT - len(self.turn.text)]
        elif kind not in _READ_ELSEWHERE:
            self.noise.add(f"update {kind[:_SHOWN]}", kind)

    def _merge(self, report: Mapping[str, Any]) -> CallReport:
        """Add a report to those about the same call, and return them."""
        call_id = str(clean(report.get("toolCallId")))[:_SHOWN]
        call = self.turn.calls.get(call_id, CallReport(call_id))
        call.add(report)
        if len(self.turn.calls) < _MOST_CALLS:
            self.turn.calls[call_id] = call
        return call


def _list_servers(servers: Sequence[McpServerEntry], capabilities: Any) -> list[dict[str, Any]]:
    """Return the servers in the form of the protocol: by address if the agent can, else as programs, which all can."""
    mcp = capabilities.get("mcpCapabilities") if isinstance(capabilities, Mapping) else None
    if isinstance(mcp, Mapping) and mcp.get("http") is True:
        return [{"type": "http", "name": each.slug, "url": each.url, "headers": []} for each in servers]
    return [{"name": each.slug, "command": each.command, "args": [each.url], "env": []} for each in servers]


def _select(value: Any, *names: str) -> dict[str, Any]:
    """Return the texts of an object's members, shortened; {} for anything else."""
    if not isinstance(value, Mapping):
        return {}
    return {name: clean(value[name])[:_SHOWN] for name in names if isinstance(value.get(name), str)}
