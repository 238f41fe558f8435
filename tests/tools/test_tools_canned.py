"""Canned tools, as a model meets them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pytest_agentbench.config.base import Problems
from pytest_agentbench.config.canned_tools import read_canned_tool
from pytest_agentbench.tools import canned
from pytest_agentbench.tools.base import ToolContext, ToolOutput
from pytest_agentbench.tools.canned import make_canned_tool
from pytest_agentbench.tools.toolbox import Toolbox


def call(definition: dict[str, Any], **arguments: Any) -> ToolOutput:
    def unused() -> Any:
        raise AssertionError

    tool = make_canned_tool(read_canned_tool({"name": "t", **definition}))
    return asyncio.run(Toolbox([tool], ToolContext(unused, unused, unused)).call("t", arguments))


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("18 degrees", "18 degrees"),
        ({"degrees": 18, "où": "Nîmes"}, '{"degrees": 18, "où": "Nîmes"}'),
        ([{"value": 1}, 2], '[{"value": 1}, 2]'),
        (False, "false"),
        (None, "null"),
        ("", ""),
    ],
)
def test_a_single_result_is_a_text_or_json(value: Any, content: str) -> None:
    output = call({"returns": value})
    assert (output.content, output.is_error, output.refused) == (content, False, False)


def test_the_first_result_whose_patterns_all_match_is_returned() -> None:
    tool = {
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "day": {}}},
        "returns": [
            {"when": {"city": "(?i)paris", "day": "^1$"}, "value": "rain"},
            {"when": {"day": '"dawn"'}, "value": "fog"},
            {"when": {"city": "Paris"}, "value": "sun"},
        ],
    }
    assert call(tool, city="in PARIS", day=1).content == "rain"
    assert call(tool, city="Paris", day=11).content == call(tool, city="Paris").content == "sun"
    assert call(tool, day=["dawn"]).content == "fog"
    output = call(tool, city="paris")
    assert output.content == 'error: t: no \'when\' of this tool matches the arguments {"city": "paris"}'
    assert (output.is_error, output.refused, output.broken) == (True, True, False)


def test_an_error_is_the_answer_to_every_call_that_the_schema_accepts() -> None:
    tool = {"parameters": {"city": "string", "days": {"type": "integer"}}, "error": "closed"}
    output = call(tool, city="Rome", days=2)
    assert (output.content, output.is_error, output.refused) == ("error: closed", True, False)
    output = call(tool, city="Rome")
    assert ("'days' is a required property" in output.content, output.refused) == (True, True)
    assert call({"returns": 1}, city="Rome").refused  # without `parameters` there are no arguments


def test_a_pattern_that_takes_too_long_is_a_fault_of_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canned, "PATTERN_SECONDS", 0.02)
    tool = {"parameters": {"a": "string"}, "returns": [{"when": {"a": "^(a|aa)+$"}, "value": 1}]}
    output = call(tool, a="a" * 1000 + "b")
    assert ("takes over 0.02 s" in output.content, output.broken) == (True, True)


@pytest.mark.parametrize(
    ("definition", "place", "problem"),
    [
        ({}, (), "found neither of 'returns' and 'error', expected exactly one"),
        ({"returns": None, "error": "x"}, (), "found both of 'returns' and 'error', expected exactly one"),
        ({"name": "a b", "error": "x"}, ("name",), "found 'a b', expected at most 64 letters"),
        ({"retuns": 1}, ("retuns",), "unknown field; did you mean 'returns'?"),
        ({"parameters": {"a": "str"}, "error": "x"}, ("parameters", "a"), "found 'str', expected a type of JSON"),
        ({"parameters": {"a": {"type": "str"}}, "error": "x"}, ("parameters",), "found no JSON Schema: "),
        ({"returns": [{"when": {}, "value": 1}, {"value": 2}]}, ("returns", 1, "when"), "missing; add it"),
        ({"returns": [{"when": {"a": "("}, "value": 1}]}, ("returns", 0, "when", "a"), "found '(', which is not"),
        (
            {"parameters": {"city": "string"}, "returns": [{"when": {"citi": "x"}, "value": 1}]},
            ("returns", 0, "when", "citi"),
            "unknown argument; did you mean 'city'?",
        ),
    ],
)
def test_a_wrong_definition_is_refused_at_its_field(
    definition: dict[str, Any], place: tuple[str | int, ...], problem: str
) -> None:
    with pytest.raises(Problems) as caught:
        read_canned_tool({"name": "t", **definition})
    ((found_at, text),) = [each for each in caught.value.found if each[0] == place]
    assert (found_at, text[: len(problem)]) == (place, problem)
