"""Short forms of a test case's fields: one text in place of a mapping, and a list of texts in place of expectations."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, PlainValidator, Tag

from pytest_agentbench.config.case_context import PROBE
from pytest_agentbench.extensions import installed_names
from pytest_agentbench.records.base import Later, Text
from pytest_agentbench.records.case import Expectation, Expectations, Rubric, RunnerSpec


def _form(value: Any) -> str:
    if isinstance(value, str | list):
        return "short"
    return "whole"


def _read_rubric(value: Any) -> Rubric:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"found {value!r}, expected a mapping, or a text of instructions for the judge")
    return Rubric(scoring_instructions=value)


def _read_expectations(value: Any) -> Expectations:
    if not isinstance(value, list):
        raise ValueError(f"found {value!r}, expected a mapping, or a list of texts; write [{value}]")
    hard = [{"text": item} if isinstance(item, str) else item for item in value]
    return Expectations.model_validate({"hard_expectations": hard})


def _read_runner(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # `agentbench validate` may not know a runner of a conftest.py, so another name may be that of a model
    if value == PROBE or value in installed_names("runner"):
        return {"type": value}
    example = f"write runner: {{type: {PROBE}}}, and name the model with --model {value or 'ID'}"
    raise ValueError(f"found {value!r}, expected a mapping: {example}")


def read_input(value: Any) -> Any:
    """Return a text as an input with one user message; any other value unchanged."""
    if isinstance(value, str) and value.strip():
        return {"messages": [{"role": "user", "content": value}]}
    return value


# A form that replaces the whole with a validator, not before it: only so does the schema for editors have both forms
RubricField = Annotated[
    Annotated[Later[Rubric], Tag("whole")]
    | Annotated[Rubric, PlainValidator(_read_rubric, json_schema_input_type=Text), Tag("short")],
    Discriminator(_form),
]
"""A rubric, or its scoring instructions as a text."""

ExpectationsField = Annotated[
    Annotated[Later[Expectations], Tag("whole")]
    | Annotated[
        Expectations,
        PlainValidator(_read_expectations, json_schema_input_type=list[Text | Later[Expectation]]),
        Tag("short"),
    ],
    Discriminator(_form),
]
"""Expectations, or a list of hard ones."""

RUNNER_NAME = BeforeValidator(_read_runner, json_schema_input_type=RunnerSpec | Text)
"""Reads the name of an installed runner as its mapping."""
