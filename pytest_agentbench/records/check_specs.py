"""What a case declares about its deterministic checks: one small model per kind (seed 002, spec/config.md)."""

from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictInt,
    StringConstraints,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_serializer,
    model_validator,
)

from pytest_agentbench.bounded.patterns import compile_pattern
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.base import Dimension, Later, PortableName, Record, RunStatus, Slug

Text = Annotated[str, StringConstraints(min_length=1)]
Count = Annotated[StrictInt, Field(ge=0)]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]


class FinalResponsePresent(Record):
    """The final output is not blank."""

    kind: Literal["final_response_present"]


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
    """What it has to hold."""


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


class RegexMatch(Record):
    """`pattern` (as in `re`, searched for) is found in the final output, or in the file `path`."""

    kind: Literal["regex_match"]
    pattern: Text
    """A regular expression of Python's, searched for anywhere."""
    path: Text | None = None
    """A file to look at instead of the final output: in the workspace, else in the case's folder."""
    ignore_case: StrictBool = False
    """Capital and small letters are the same."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        compile_pattern(pattern)
        return pattern


class JsonSchema(Record):
    """The final output, or the file `path`, is JSON that satisfies `schema`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")
    """A JSON Schema, of draft 2020-12 unless its `$schema` names another."""
    path: Text | None = None
    """A file to look at instead of the final output: in the workspace, else in the case's folder."""


class JsonPathEquals(Record):
    """The value at `json_path` (RFC 9535) of the final output, or of the file `path`, equals `value`."""

    kind: Literal["json_path_equals"]
    json_path: Text
    """Where the value stands, such as `$.items[0].name`."""
    value: Any
    """What it has to equal."""
    path: Text | None = None
    """A file to look at instead of the final output: in the workspace, else in the case's folder."""


class _OfTool(Record):
    """Calls of a tool: by its name, or by what it does."""

    name: Text | None = None
    """The tool."""
    portable: PortableName | None = None
    """In place of `name`: a tool that does this, whatever the run's agent calls it."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What the call's arguments have to include; others may be there."""

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if (self.name is None) == (self.portable is None):
            raise ValueError("expected exactly one of 'name' and 'portable'")
        return self

    @model_serializer(mode="wrap")
    def _leave_unsaid(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # What is stored of checks by name stays what it was
        unsaid = "name" if self.name is None else "portable"
        return {name: value for name, value in dump(self).items() if name != unsaid}


class ToolCalled(_OfTool):
    """A call of the tool whose arguments include `arguments`, after a call of `after` where that is given.

    A call in which the tool's own code broke does not count.
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


class MetricAtLeast(Record):
    """A registered metric of the final output, or of the file `path`, against `reference` reaches `threshold`."""

    kind: Literal["metric"]
    name: Text
    """A registered metric, such as `contains_answer`."""
    reference: str
    """The expected answer."""
    threshold: Fraction = 1.0
    """The score from which it passes, 0 to 1."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Options of the metric."""
    path: Text | None = None
    """A file to look at instead of the final output: in the workspace, else in the case's folder."""


class CustomCheck(Record):
    """A kind that a plugin registers; its other fields reach the plugin's function as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: Text
    """The name that a plugin has registered."""


BUILTIN_CHECKS: tuple[type[Record], ...] = (
    FinalResponsePresent,
    ToolCallCount,
    FileExists,
    PathExists,
    FileContains,
    StatusIs,
    OutputArtifactPresent,
    RegexMatch,
    JsonSchema,
    JsonPathEquals,
    ToolCalled,
    ToolNotCalled,
    MaxTurns,
    MaxCostUsd,
    MaxSeconds,
    MetricAtLeast,
)
BUILTIN_KINDS: frozenset[str] = frozenset(model.model_fields["kind"].annotation.__args__[0] for model in BUILTIN_CHECKS)  # type: ignore[union-attr]


def _kind(value: Any) -> str:
    # A model is given where a record is copied or made in Python, a mapping where a file or JSON is read
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if kind in BUILTIN_KINDS else "custom"


def _added(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Read a check that is not ours by its class where its kind has one, else as a CustomCheck."""
    if isinstance(value, Record):
        return value
    name = str(value.get("kind")) if isinstance(value, dict) else ""
    # A scope's names (config/base.py); a model that is made in Python has none, and packs are found all the same.
    known = getattr(info.context, "known", None)
    kind = (known.find_check if known is not None else partial(find_extension, "check"))(name)
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.model_validate(value, context=info.context)
    return handler(value)


Declarative = Annotated[
    Annotated[Later[FinalResponsePresent], Tag("final_response_present")]
    | Annotated[Later[ToolCallCount], Tag("tool_call_count")]
    | Annotated[Later[FileExists], Tag("file_exists")]
    | Annotated[Later[PathExists], Tag("path_exists")]
    | Annotated[Later[FileContains], Tag("file_contains")]
    | Annotated[Later[StatusIs], Tag("status_is")]
    | Annotated[Later[OutputArtifactPresent], Tag("output_artifact_present")]
    | Annotated[Later[RegexMatch], Tag("regex_match")]
    | Annotated[Later[JsonSchema], Tag("json_schema")]
    | Annotated[Later[JsonPathEquals], Tag("json_path_equals")]
    | Annotated[Later[ToolCalled], Tag("tool_called")]
    | Annotated[Later[ToolNotCalled], Tag("tool_not_called")]
    | Annotated[Later[MaxTurns], Tag("max_turns")]
    | Annotated[Later[MaxCostUsd], Tag("max_cost_usd")]
    | Annotated[Later[MaxSeconds], Tag("max_seconds")]
    | Annotated[Later[MetricAtLeast], Tag("metric")]
    | Annotated[SerializeAsAny[CustomCheck], WrapValidator(_added), Tag("custom")],
    Discriminator(_kind),
]


class PythonHook(Record):
    """A callable of the case author's that checks a run; runs only where the evaluation profile allows it."""

    path: Text | None = None
    """A Python file, relative to test.yaml."""
    import_path: Text | None = None
    """A module that can be imported, instead of a file."""
    callable_name: Text
    """The function in it."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.path is not None and self.import_path is not None:
            raise ValueError("Specify only one of 'path' and 'import_path'")
        if self.path is None and self.import_path is None:
            raise ValueError("a python_hook requires 'path' or 'import_path'")
        return self


class Check(Record):
    """One deterministic check of a case. `dimensions` is empty where the file leaves the kind's default."""

    check_id: Slug
    """What reports call it; unique in the case."""
    description: str | None = None
    """For people."""
    dimensions: tuple[Dimension, ...] = ()
    """What it counts towards; default: what its kind does."""
    declarative: Declarative | None = None
    """What is checked: a kind and its fields."""
    python_hook: Later[PythonHook] | None = None
    """Python that checks, instead of a kind."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.declarative is not None and self.python_hook is not None:
            raise ValueError("a check cannot define both 'declarative' and 'python_hook'")
        if self.declarative is None and self.python_hook is None:
            raise ValueError("a check requires 'declarative' or 'python_hook'")
        return self

    @property
    def kind(self) -> str:
        """Return the declarative kind, or `python_hook`."""
        return self.declarative.kind if self.declarative is not None else "python_hook"
