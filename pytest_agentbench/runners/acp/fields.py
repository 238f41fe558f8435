"""Fields of a case's `runner` block for the runner `acp`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pytest_agentbench.config.agent_file import SessionArgument, SessionMode
from pytest_agentbench.config.base import Problems
from pytest_agentbench.extensions import CONTAINERS
from pytest_agentbench.records.base import Record, SandboxKind, Seconds, Text
from pytest_agentbench.records.case import ApiName
from pytest_agentbench.runners.agents.fields import ProgramFields, takes_images

Permissions = Literal["allow", "deny", "ask-recorded"]
PermissionAnswer = Literal["allow", "deny"]


class PermissionRule(Record):
    """An answer to requests for permission, for one tool, kind or path."""

    tool: Text | None = None
    """A pattern with `*`, for the tool's name, its `server:tool`, or the title that the agent shows."""
    kind: Text | None = None
    """The kind that the agent reports: read, edit, delete, move, search, execute, think, fetch, other."""
    path: Text | None = None
    """A pattern with `*`, for a path of the call."""
    answer: PermissionAnswer
    """The answer."""

    @model_validator(mode="after")
    def _one_pattern(self) -> Self:
        if sum(value is not None for value in (self.tool, self.kind, self.path)) != 1:
            raise ValueError("expected exactly one of 'tool', 'kind' and 'path'")
        return self


class AcpAnswer(Record):
    """The place of the answer."""

    from_: Literal["reply", "messages"] = Field(default="reply", alias="from")
    """reply: the model's last text, by its gateway; messages: all texts that the agent sends in the turn."""


class ClientServices(Record):
    """Services of the client that the agent may use. They are served in the run's sandbox."""

    fs: bool = False
    """Reading and writing of text files."""
    terminal: bool = False
    """Commands."""


class AcpFields(ProgramFields):
    """Fields of the runner `acp`."""

    timeout_seconds: Seconds = 300.0
    """Maximum seconds of all turns together."""
    command: Annotated[tuple[SessionArgument, ...], Field(min_length=1)] | None = None
    """The program with its arguments; names in braces are replaced, there is no shell."""
    agent: Text | None = None
    """An adapter with `acp`, in place of `command`."""
    argv: tuple[SessionArgument, ...] = ()
    """Further arguments for the adapter's program."""
    sandbox: SandboxKind | None = None
    """Sandbox of the program; default: docker for an adapter, else that of the run profile."""
    image: Text | None = None
    """Another image than the one that `agentbench agents image` makes."""
    permissions: Permissions = "allow"
    """Answer to requests for permission: allow or deny all, or by `permission_rules`."""
    permission_rules: tuple[PermissionRule, ...] = ()
    """Rules of `ask-recorded`: the first that matches decides, and without one the answer is allow."""
    mode: SessionMode | None = None
    """The agent's modes; default: those of the adapter."""
    client: ClientServices = ClientServices()
    """Services for the agent. It is in the sandbox itself, so that it needs none."""
    auth: Text | None = None
    """Id of the agent's authentication method that is used before the session."""
    answer: AcpAnswer = AcpAnswer()
    """Place of the answer."""
    start_seconds: Seconds = 60.0
    """Maximum seconds of the program's start, and of each request before the first prompt."""
    dialects: Annotated[tuple[ApiName, ...], Field(min_length=1)] | None = None
    """APIs that the program may use; requests in others are refused. Default: the adapter's, else all."""

    @field_validator("permission_rules")
    @classmethod
    def _rules_need_asking(cls, rules: tuple[PermissionRule, ...], info: ValidationInfo) -> tuple[PermissionRule, ...]:
        if rules and info.data.get("permissions") != "ask-recorded":
            raise ValueError("found rules without 'permissions: ask-recorded', which alone uses them; add it")
        return rules

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if (self.command is None) == (self.agent is None):
            raise Problems([((), "expected exactly one of 'command' and 'agent'")])
        problems: list[tuple[tuple[Any, ...], str]] = [
            ((name,), "belongs to 'agent', and there is none; leave it out")
            for name in ("argv", "image")
            if self.agent is None and getattr(self, name)
        ]
        if self.agent is not None and self.image is not None and not takes_images(self.sandbox or CONTAINERS):
            problems.append((("image",), f"found an image with 'sandbox: {self.sandbox}', which uses no image"))
        if problems:
            raise Problems(problems)
        return self


def no_acp(agent: str) -> str:
    """Return the message for an adapter without a command for ACP."""
    return f"the agent {agent} has no `acp` in its agent.yaml; use the runner agent, or another agent"
