"""Declarations of functions that a model may call and nothing runs."""

from __future__ import annotations

import re

import pytest

from pytest_agentbench.bounded.schemas import bounded_schema
from pytest_agentbench.config.functions import Function, read_functions

PLAIN = {
    "name": "f",
    "description": "Does f.",
    "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
}


@pytest.mark.parametrize(
    "value",
    [
        PLAIN,
        [PLAIN],
        {"type": "function", "function": PLAIN},
        [{"type": "function", "function": PLAIN}],
        {"name": "f", "description": "Does f.", "input_schema": PLAIN["parameters"]},
        {"name": "f", "description": "Does f.", "inputSchema": PLAIN["parameters"]},
        {**PLAIN, "parameters": {"type": "dict", "properties": {"a": {"type": "str"}}}},
    ],
)
def test_common_spellings_are_read_alike(value):
    assert read_functions(value) == [Function("f", "Does f.", PLAIN["parameters"])]


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        ({"type": "float"}, {"type": "number"}),
        ({"type": "tuple", "items": {"type": "int"}}, {"type": "array", "items": {"type": "integer"}}),
        ({"type": "any"}, {}),
        ({"type": "HashMap"}, {}),
        ({"type": "String"}, {"type": "string"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "dict", "properties": {"type": {"type": "bool"}}, "additionalProperties": {"type": "long"}},
            {
                "type": "object",
                "properties": {"type": {"type": "boolean"}},
                "additionalProperties": {"type": "integer"},
            },
        ),
        (True, True),
    ],
)
def test_types_get_their_names_in_json_schema(schema, read):
    ((_, _, parameters),) = read_functions({"name": "f", "parameters": {"properties": {"a": schema}}})
    assert parameters == {"type": "object", "properties": {"a": read}}
    assert bounded_schema(parameters).problem is None


@pytest.mark.parametrize("value", [None, []])
def test_nothing_is_no_function(value):
    assert read_functions(value) == []


def test_a_function_without_parameters_takes_none():
    assert read_functions([{"name": "f"}]) == [Function("f", "", {"type": "object"})]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("f", "found 'f', expected a function"),
        ([PLAIN, 3], "found '3', expected a function"),
        ({"description": "x"}, "expected a function: {name, description, parameters}"),
        ({"name": " "}, "expected a function"),
        ({"name": "f", "parameters": []}, "found parameters of 'f' that are no object"),
        ([PLAIN, PLAIN], "found the function 'f' twice"),
    ],
)
def test_wrong_declarations_are_named(value, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        read_functions(value)
