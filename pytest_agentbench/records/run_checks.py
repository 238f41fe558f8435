"""Kinds of checks of a run's calls and files: imported for the first case that has one."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    StrictInt,
    field_validator,
    model_serializer,
    model_validator,
)

from pytest_agentbench.bounded.patterns import compile_pattern
from pytest_agentbench.records.base import PortableName, Record, RunStatus, Text

Count = Annotated[StrictInt, Field(ge=0)]


class ToolCallCount(Record):
    """The trace holds exactly `count` tool calls."""

    kind: Literal["tool_call_count"]
    count: Count
    """How many, neither more nor less."""


class FileExists(Record):
    """`path` is a regular file, in the workspace or else in the case folder."""

    kind: Literal["file_exists"]
    path: Text
    """Relative to the workspace, else to the case's folder."""


class PathExists(Record):
    """`path` is anything that exists, in the workspace or else in the case folder."""

    kind: Literal["path_exists"]
    path: Text
    """Relative to the workspace, else to the case's folder."""


class FileContains(Record):
    """The file holds `text`, case-sensitively."""

    kind: Literal["file_contains"]
    path: Text
    """Relative to the workspace, else to the case's folder."""
    text: Text
    """Text that the file must contain."""


class StatusIs(Record):
    """The run ended with `status`."""

    kind: Literal["status_is"]
    status: RunStatus
    """How the run has to end."""


class OutputArtifactPresent(Record):
    """The run recorded an output artifact that matches every field given."""

    kind: Literal["output_artifact_present"]
    artifact_id: Text | None = None
    """Its id."""
    artifact_type: Text | None = None
    """Its type."""
    uri: Text | None = None
    """Its address."""

    @model_validator(mode="after")
    def _needs_a_matcher(self) -> Self:
        if self.artifact_id is None and self.artifact_type is None and self.uri is None:
            raise ValueError(
                "output_artifact_present requires at least one matcher field: artifact_id, artifact_type, uri"
            )
        return self


class _OfTool(Record):
    """Calls of a tool, selected by its name or by its kind."""

    name: Text | None = None
    """The tool."""
    portable: PortableName | None = None
    """A kind of tool, in place of `name`, since agents use different names."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Members that the call's arguments must include."""

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if (self.name is None) == (self.portable is None):
            raise ValueError("expected exactly one of 'name' and 'portable'")
        return self

    @model_serializer(mode="wrap")
    def _leave_unsaid(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The unset one is left out, so that adding `portable` changed no fingerprint of checks by name
        unsaid = "name" if self.name is None else "portable"
        return {name: value for name, value in dump(self).items() if name != unsaid}


class ToolCalled(_OfTool):
    """A call of the tool whose arguments include `arguments`, after a call of `after` if that is set.

    A call that was refused (no such tool, or arguments that it does not accept) does not count, nor one in which the
    tool's own code broke.
    """

    kind: Literal["tool_called"]
    after: Text | None = None
    """A tool that has to be called before."""
    min_count: Annotated[StrictInt, Field(ge=1)] = 1
    """How many such calls there have to be at least."""


class ToolNotCalled(_OfTool):
    """No call of the tool whose arguments include `arguments`."""

    kind: Literal["tool_not_called"]
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Only calls whose arguments include these are forbidden."""


class SkillUsed(Record):
    """The agent loaded a skill. The check is skipped if the run had no such skill, as in a variant without it."""

    kind: Literal["skill_used"]
    name: Text | None = None
    """The skill."""
    pattern: Text | None = None
    """A regular expression, found in the name of the skill, in place of `name`."""
    min: Count = 1
    """How often at least."""
    max: Count | None = None
    """How often at most; with `min: 0, max: 0` the skill must not be loaded."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            compile_pattern(pattern)
        return pattern

    @model_validator(mode="after")
    def _one_skill(self) -> Self:
        if (self.name is None) == (self.pattern is None):
            raise ValueError("expected exactly one of 'name' and 'pattern'")
        if self.max is not None and self.max < self.min:
            raise ValueError(f"found max {self.max}, expected at least min ({self.min})")
        return self


class PermissionAsked(Record):
    """The agent asked for a permission, as agents by ACP do."""

    kind: Literal["permission_asked"]
    title: Text | None = None
    """A pattern with `*`, for the title that the agent shows or the tool's name."""
    tool_kind: Text | None = None
    """The kind of the call, in place of `title`: read, edit, delete, move, search, execute, think, fetch, other."""
    answer: Literal["allow", "deny"] | None = None
    """The answer that it got; default: any."""

    @model_validator(mode="after")
    def _one_call(self) -> Self:
        if (self.title is None) == (self.tool_kind is None):
            raise ValueError("expected exactly one of 'title' and 'tool_kind'")
        return self


class MaxTurns(Record):
    """The model was asked at most `count` times."""

    kind: Literal["max_turns"]
    count: Count
    """Requests to the model, at most."""


class MaxCostUsd(Record):
    """The run cost at most `usd`; an unknown cost is an error of the check."""

    kind: Literal["max_cost_usd"]
    usd: Annotated[float, Field(strict=True, ge=0)]
    """US dollars, at most."""


class MaxSeconds(Record):
    """The run took at most `seconds`."""

    kind: Literal["max_seconds"]
    seconds: Annotated[float, Field(strict=True, gt=0)]
    """Wall-clock time of the run, at most."""
