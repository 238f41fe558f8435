"""Fields of a case's `runner` block that the runners `command` and `agent` read themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from pytest_agentbench.config.agent_file import Argument, Content, LaterArgument, Reading, check_names
from pytest_agentbench.config.base import Problems, Scope, explain_error
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records.base import AtLeastOne, Record, Seconds, Text, VariableName
from pytest_agentbench.records.case import ApiName

SandboxName = Literal["docker", "bubblewrap", "local"]
SECONDS = 600.0
"""How long all turns of a run may take together, where nothing is said."""


class ProgramFields(Record):
    """Hold what both runners read."""

    timeout_seconds: Seconds = SECONDS
    """How long all turns may take together."""
    env: dict[VariableName, Content] = Field(default_factory=dict)
    """Variables; they win over those of the gateway and the adapter."""
    files: dict[Annotated[str, check_names({"home", "workspace"})], Content] = Field(default_factory=dict)
    """Files that it finds, below {home} or {workspace}."""
    context_tokens: AtLeastOne = 128_000
    """What `{context_tokens}` says: how much the model takes."""


class CommandFields(ProgramFields):
    """Hold what the runner `command` reads."""

    command: Annotated[tuple[LaterArgument, ...], Field(min_length=1)]
    """The program with its arguments; names in braces are replaced, there is no shell."""
    resume: Annotated[tuple[LaterArgument, ...], Field(min_length=1)] | None = None
    """The same for the next turns of a session."""
    sandbox: SandboxName | None = None
    """Where it runs; default: as the run profile says."""
    answer: Reading = Reading()
    """Where its answer stands; default: all of stdout."""
    session: Reading | None = None
    """Where it names its session; default: `{session}` is a name that the run gives."""
    dialects: Annotated[tuple[ApiName, ...], Field(min_length=1)] | None = None
    """How it asks its model; in any other way it is refused. Default: all."""


class AgentFields(ProgramFields):
    """Hold what the runner `agent` reads."""

    agent: Text
    """The adapter's name."""
    argv: tuple[Argument, ...] = ()
    """Further arguments, behind the program's name and its own."""
    sandbox: SandboxName = "docker"
    """Where it runs: in its image, or, of programs that are installed on this machine, in bubblewrap or locally."""
    image: Text | None = None
    """Another image than the one that `agentbench agents image` makes."""

    @model_validator(mode="after")
    def _image_needs_docker(self) -> Self:
        if self.image is not None and self.sandbox != "docker":
            raise Problems([(("image",), f"found an image beside 'sandbox: {self.sandbox}', which has none")])
        return self


F = TypeVar("F", bound=ProgramFields)


def read_fields(model: type[F], settings: Mapping[str, Any]) -> F:
    """Return what of a `runner` block the model has fields for. Raises pydantic's ValidationError."""
    return model.model_validate(_select(model, settings))


def _select(model: type[ProgramFields], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the settings that the model reads."""
    return {name: value for name, value in settings.items() if name in model.model_fields and value is not None}


def find_field_problems(
    model: type[ProgramFields], settings: Mapping[str, Any], scope: Scope | None
) -> Iterator[tuple[Loc, str]]:
    """Yield what is wrong with these fields, each at its place below the block."""
    try:
        model.model_validate(given := _select(model, settings), context=scope)
    except ValidationError as error:
        yield from ((loc, text) for loc, text, _ in explain_error(error, given, model))


def no_turns(agent: str, turns: int) -> str:
    """Return what is said of several turns for an agent that has no sessions."""
    return f"found {turns} turns, and {agent} has no sessions that go on; use one turn, or another agent"
