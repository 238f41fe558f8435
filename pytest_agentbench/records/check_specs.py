"""Declarations of a case's deterministic checks: one small model per kind (seed 002, spec/config.md)."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SerializeAsAny,
    StrictBool,
    StrictInt,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType

from pytest_agentbench.bounded.patterns import compile_pattern
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.base import Dimension, Later, Record, Slug, Text

if TYPE_CHECKING:
    import pytest_agentbench.records.run_checks

Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]


class FinalResponsePresent(Record):
    """The final output is not blank."""

    kind: Literal["final_response_present"]


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
    """Path of the value, such as `$.items[0].name`."""
    value: Any
    """Value that it must equal."""
    path: Text | None = None
    """A file to look at instead of the final output: in the workspace, else in the case's folder."""


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


MAX_NESTING = 10
"""Levels of checks inside of one another."""


class _Combination(Record):
    @model_validator(mode="before")
    @classmethod
    def _bound_nesting(cls, data: Any) -> Any:
        level = [data]
        # Before the fields are read, which recurses
        for _ in range(MAX_NESTING):
            level = [inner for each in level for inner in _list_inner(each)]
        if level:
            raise ValueError(f"found checks on more than {MAX_NESTING} levels, expected fewer")
        return data


def _list_inner(data: Any) -> Iterator[Any]:
    if isinstance(data, dict):
        checks = data.get("checks")
        yield from (each for each in (data.get("check"), *(checks if isinstance(checks, list) else ())) if each)


class AnyOf(_Combination):
    """At least one of the `checks` passes."""

    kind: Literal["any_of"]
    checks: tuple["Declarative", ...] = Field(min_length=1)
    """Kinds of checks with their fields."""


class AllOf(_Combination):
    """Each of the `checks` passes."""

    kind: Literal["all_of"]
    checks: tuple["Declarative", ...] = Field(min_length=1)
    """Kinds of checks with their fields."""


class Not(_Combination):
    """The `check` fails."""

    kind: Literal["not"]
    check: "Declarative"
    """A kind of check with its fields."""


class CustomCheck(Record):
    """A kind that a plugin registers; its other fields reach the plugin's function as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: Text
    """The name that a plugin has registered."""


def _kind(value: Any) -> str:
    # The value is a model if a record is copied or made in Python, a mapping if a file or JSON is read
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return str(kind) if kind in BUILTIN_KINDS else "custom"


def _added(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Read a check that is not ours by its class where its kind has one, else as a CustomCheck."""
    if isinstance(value, Record):
        return value
    name = str(value.get("kind")) if isinstance(value, dict) else ""
    # A scope's names (config/base.py); a model that is made in Python has none, and packs are found all the same.
    known = getattr(info.context, "known", None)
    find_check = partial(find_extension, "check") if known is None else known.find_check
    kind = find_check(name)
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.model_validate(value, context=info.context)
    return handler(value)


_Spec = Annotated[
    Annotated[Later[FinalResponsePresent], Tag("final_response_present")]
    | Annotated[Later["pytest_agentbench.records.run_checks.ToolCallCount"], Tag("tool_call_count")]
    | Annotated[Later["pytest_agentbench.records.run_checks.FileExists"], Tag("file_exists")]
    | Annotated[Later["pytest_agentbench.records.run_checks.PathExists"], Tag("path_exists")]
    | Annotated[Later["pytest_agentbench.records.run_checks.FileContains"], Tag("file_contains")]
    | Annotated[Later["pytest_agentbench.records.run_checks.StatusIs"], Tag("status_is")]
    | Annotated[Later["pytest_agentbench.records.run_checks.OutputArtifactPresent"], Tag("output_artifact_present")]
    | Annotated[Later["pytest_agentbench.records.text_checks.Contains"], Tag("contains")]
    | Annotated[Later["pytest_agentbench.records.text_checks.IContains"], Tag("icontains")]
    | Annotated[Later["pytest_agentbench.records.text_checks.NotContains"], Tag("not_contains")]
    | Annotated[Later["pytest_agentbench.records.text_checks.StartsWith"], Tag("starts_with")]
    | Annotated[Later["pytest_agentbench.records.text_checks.Equals"], Tag("equals")]
    | Annotated[Later[RegexMatch], Tag("regex_match")]
    | Annotated[Later[JsonSchema], Tag("json_schema")]
    | Annotated[Later[JsonPathEquals], Tag("json_path_equals")]
    | Annotated[Later["pytest_agentbench.records.run_checks.ToolCalled"], Tag("tool_called")]
    | Annotated[Later["pytest_agentbench.records.run_checks.ToolNotCalled"], Tag("tool_not_called")]
    | Annotated[Later["pytest_agentbench.records.run_checks.SkillUsed"], Tag("skill_used")]
    | Annotated[Later["pytest_agentbench.records.run_checks.PermissionAsked"], Tag("permission_asked")]
    | Annotated[Later["pytest_agentbench.records.run_checks.MaxTurns"], Tag("max_turns")]
    | Annotated[Later["pytest_agentbench.records.run_checks.MaxCostUsd"], Tag("max_cost_usd")]
    | Annotated[Later["pytest_agentbench.records.run_checks.MaxSeconds"], Tag("max_seconds")]
    | Annotated[Later[MetricAtLeast], Tag("metric")]
    | Annotated[AnyOf, Tag("any_of")]
    | Annotated[AllOf, Tag("all_of")]
    | Annotated[Not, Tag("not")]
    | Annotated[SerializeAsAny[CustomCheck], WrapValidator(_added), Tag("custom")],
    Discriminator(_kind),
]
# A type with a name can refer to itself
Declarative = TypeAliasType("Declarative", _Spec)
BUILTIN_KINDS: frozenset[str] = frozenset(kind.__metadata__[-1].tag for kind in get_args(get_args(_Spec)[0])) - {
    "custom"
}


def reads_file(spec: Any) -> bool:
    """Return whether a check is of ours and reads the file `path`, and nothing else of the run."""
    is_own = spec is not None and spec.kind in BUILTIN_KINDS and spec.kind != "metric"
    return is_own and getattr(spec, "path", None) is not None


class PythonHook(Record):
    """A callable of the case's author that checks a run. It runs only if the evaluation profile allows it."""

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


def _check_turn(value: Any) -> Any:
    is_number = type(value) is int and (value >= 1 or value == -1)
    if value is not None and not is_number and value not in ("any", "each"):
        raise ValueError(f"found {value!r}, expected the number of a turn from 1, -1 for the last one, any or each")
    return value


TurnChoice = Annotated[
    StrictInt | Literal["any", "each"],
    BeforeValidator(_check_turn, json_schema_input_type=StrictInt | Literal["any", "each"]),
]
"""A turn of a conversation by its number from 1, -1 for the last turn, any turn or each turn."""


class Check(Record):
    """One deterministic check of a case. `dimensions` is empty if the file uses the kind's default."""

    check_id: Slug
    """Its name in reports; unique in the case."""
    description: str | None = None
    """For people."""
    dimensions: tuple[Dimension, ...] = ()
    """Dimensions to which it counts; default: those of its kind."""
    declarative: Declarative | None = None
    """The check: a kind and its fields."""
    python_hook: Later[PythonHook] | None = None
    """Python that checks, instead of a kind."""
    turn: TurnChoice | None = Field(None, exclude_if=lambda value: value is None)
    """The turn whose answer and calls it looks at: a number from 1, -1 for the last, any or each; default: the last
    answer, and the calls of all turns."""

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
        if self.declarative is not None:
            return self.declarative.kind
        return "python_hook"

    @property
    def leaves(self) -> Iterator[tuple[tuple[int | str, ...], "Check"]]:
        """Yield the check with the place of its fields, and in place of a combination the checks that it combines."""
        yield from _find_leaves(("declarative",), self)

    def with_spec(self, spec: Declarative) -> "Check":
        """Return the check with another kind and fields."""
        return self.model_copy(update={"declarative": spec})


def _find_leaves(place: tuple[int | str, ...], check: Check) -> Iterator[tuple[tuple[int | str, ...], Check]]:
    spec = check.declarative
    if isinstance(spec, Not):
        yield from _find_leaves((*place, "check"), check.with_spec(spec.check))
    elif isinstance(spec, AnyOf | AllOf):
        for at, inner in enumerate(spec.checks):
            yield from _find_leaves((*place, "checks", at), check.with_spec(inner))
    else:
        yield place, check
