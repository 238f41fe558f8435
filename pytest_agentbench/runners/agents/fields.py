"""Fields of a case's `runner` block for the runners `command` and `agent`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from pytest_agentbench.config.agent_file import Argument, Content, LaterArgument, Reading, check_names
from pytest_agentbench.config.base import Problems, Scope, explain_error
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.extensions import CONTAINERS
from pytest_agentbench.records.base import AtLeastOne, Record, SandboxKind, Seconds, Text, VariableName
from pytest_agentbench.records.case import ApiName

SECONDS = 600.0
"""Default seconds for all turns of a run together."""


def takes_images(kind: SandboxKind) -> bool:
    """Return whether sandboxes of this kind run an image."""
    from pytest_agentbench.workspaces.sandboxes.base import provider_of

    return "image" in provider_of(kind).takes


class ProgramFields(Record):
    """Fields of both runners."""

    timeout_seconds: Seconds = SECONDS
    """Maximum seconds of all turns together."""
    env: dict[VariableName, Content] = Field(default_factory=dict)
    """Environment variables, with precedence over those of the gateway and the adapter."""
    files: dict[Annotated[str, check_names({"home", "workspace"})], Content] = Field(default_factory=dict)
    """Files for the program, below {home} or {workspace}."""
    context_tokens: AtLeastOne = 128_000
    """Value of `{context_tokens}`: the model's context size."""


class CommandFields(ProgramFields):
    """Fields of the runner `command`."""

    command: Annotated[tuple[LaterArgument, ...], Field(min_length=1)]
    """The program with its arguments; names in braces are replaced, there is no shell."""
    resume: Annotated[tuple[LaterArgument, ...], Field(min_length=1)] | None = None
    """The command of later turns, which continues the session."""
    sandbox: SandboxKind | None = None
    """Sandbox of the program; default: that of the run profile."""
    answer: Reading = Reading()
    """Place of the answer in the output; default: all of stdout."""
    session: Reading | None = None
    """Place of the session's name in the output; default: the run sets `{session}`."""
    dialects: Annotated[tuple[ApiName, ...], Field(min_length=1)] | None = None
    """APIs that the program may use; requests in others are refused. Default: all."""


class AgentFields(ProgramFields):
    """Fields of the runner `agent`."""

    agent: Text
    """The adapter's name."""
    argv: tuple[Argument, ...] = ()
    """Further arguments, after the program's name and its own."""
    sandbox: SandboxKind = CONTAINERS
    """Sandbox: the adapter's image (`docker`, and a plugin's sandbox that takes images), or a program of the sandbox
    itself: of this machine for `bubblewrap` and `local`."""
    image: Text | None = None
    """Another image than the one that `agentbench agents image` makes."""

    @model_validator(mode="after")
    def _image_is_used(self) -> Self:
        if self.image is not None and not takes_images(self.sandbox):
            raise Problems([(("image",), f"found an image with 'sandbox: {self.sandbox}', which uses no image")])
        return self


F = TypeVar("F", bound=ProgramFields)


def read_fields(model: type[F], settings: Mapping[str, Any]) -> F:
    """Return the model's fields in a `runner` block. Raises pydantic's ValidationError."""
    return model.model_validate(_select(model, settings))


def _select(model: type[ProgramFields], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the settings that the model reads."""
    return {name: value for name, value in settings.items() if name in model.model_fields and value is not None}


def find_field_problems(
    model: type[ProgramFields], settings: Mapping[str, Any], scope: Scope | None
) -> Iterator[tuple[Loc, str]]:
    """Yield the errors of these fields, each with its place below the block."""
    try:
        model.model_validate(values := _select(model, settings), context=scope)
    except ValidationError as error:
        yield from ((loc, text) for loc, text, _ in explain_error(error, values, model))


def no_turns(agent: str, turns: int) -> str:
    """Return the message for several turns with an agent without sessions."""
    return f"found {turns} turns, and {agent} cannot continue a session; use one turn, or another agent"


def refuse_tools(agent: str, field: str) -> str:
    """Return the message for a case's field with tools or MCP servers, and an agent that takes none."""
    what = field.replace("mcp_servers", "MCP servers")
    return f"agent {agent!r} takes no {what} (its adapter has no `mcp`); remove {field} or choose another agent"
