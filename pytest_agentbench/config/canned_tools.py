"""Canned tools: tools that a case defines itself, with their results, in `context.llm_probe.tools`."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from pytest_agentbench.bounded.patterns import compile_pattern
from pytest_agentbench.bounded.schemas import bounded_schema
from pytest_agentbench.config.base import Problems, complain, explain_error, suggest
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records.base import Record, Text

_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise ValueError(f"found {name[:80]!r}, expected at most 64 letters, digits, '_' and '-', as models require")
    return name


def _read_parameters(parameters: Any) -> Any:
    """Return the JSON Schema of a tool's arguments. The short form maps each argument to its type or JSON Schema."""
    if not isinstance(parameters, dict):
        return parameters
    if parameters.get("type") == "object" or isinstance(parameters.get("properties"), dict):
        return {**parameters, "type": "object"}
    complain(
        ((name,), f"found {kind!r}, expected a type of JSON{suggest(str(kind), _TYPES)}")
        for name, kind in parameters.items()
        if not isinstance(kind, dict) and kind not in _TYPES
    )
    properties = {name: kind if isinstance(kind, dict) else {"type": kind} for name, kind in parameters.items()}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if (problem := bounded_schema(schema).problem) is not None:
        raise ValueError(f"found no JSON Schema: {problem}")
    return schema


def _check_pattern(pattern: str) -> str:
    compile_pattern(pattern)
    return pattern


class CannedResult(Record):
    """A result of a canned tool, for the calls whose arguments match all patterns of `when`."""

    when: dict[str, Annotated[Text, AfterValidator(_check_pattern)]]
    """Regular expressions by argument, searched for anywhere; a value that is no text is searched as JSON."""
    value: Any
    """The result; a value that is no text is returned as JSON."""


def _form(returns: Any) -> str:
    is_conditional = isinstance(returns, list | tuple) and any(
        isinstance(item, CannedResult) or (isinstance(item, dict) and "when" in item) for item in returns
    )
    return "results" if is_conditional else "value"


class CannedTool(Record):
    """A tool whose results are in the case. It has exactly one of `returns` and `error`."""

    name: Annotated[Text, AfterValidator(_check_name)]
    """The name for models and checks."""
    description: str = ""
    """The description for models."""
    parameters: Annotated[dict[str, Any], BeforeValidator(_read_parameters), AfterValidator(_check_schema)] = Field(
        default={}, validate_default=True
    )
    """A JSON Schema of an object, or the short form `{city: string}`, in which every argument is required."""
    returns: Annotated[
        Annotated[tuple[CannedResult, ...], Tag("results")] | Annotated[Any, Tag("value")], Discriminator(_form)
    ] = None
    """One result for all calls, or a list of results with `when`, of which the first match counts."""
    error: Text | None = None
    """The text with which every call fails."""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if ("returns" in self.model_fields_set) == (self.error is not None):
            found = "neither" if self.error is None else "both"
            raise ValueError(f"found {found} of 'returns' and 'error', expected exactly one")
        complain(self._unknown_arguments())
        return self

    @property
    def results(self) -> tuple[CannedResult, ...]:
        """Return the results in the order in which they are tried."""
        if _form(self.returns) == "results":
            return tuple(self.returns)
        return (CannedResult(when={}, value=self.returns),)

    def _unknown_arguments(self) -> Iterator[tuple[Loc, str]]:
        """Yield the arguments in `when` that no call can have."""
        names = self.parameters.get("properties")
        if names is None or self.parameters.get("additionalProperties", False) is not False:
            return
        for index, result in enumerate(self.results):
            for name in result.when.keys() - names.keys():
                yield ("returns", index, "when", name), f"unknown argument{suggest(name, names)}"


def read_canned_tool(definition: Mapping[str, Any]) -> CannedTool:
    """Return the canned tool of a definition. Raises Problems with the place of each mistake."""
    try:
        return CannedTool.model_validate(definition)
    except ValidationError as error:
        raise Problems((loc, text) for loc, text, _ in explain_error(error, definition, CannedTool)) from None
