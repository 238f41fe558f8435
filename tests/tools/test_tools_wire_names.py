"""Names of tools on the wire."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput
from pytest_agentbench.tools.toolbox import Toolbox, assign_wire_names

LEGAL = re.compile(r"^[A-Za-z0-9_-]{1,64}$")

words = st.one_of(
    st.text(alphabet="ab_-:. ", max_size=8),  # few letters, so that they collide
    st.text(max_size=12),
    st.text(alphabet="ab:", min_size=60, max_size=140),
)
# names as they come out of this very function: whatever it makes may be there already
made_names = words.map(lambda word: assign_wire_names([word, f"x{word}"])[word])


@given(st.lists(st.one_of(words, made_names), max_size=12))
@example(["a:b", "a__b", "a::b", "a: b", "a b", "a_b"])
def test_every_tool_has_a_legal_name_of_its_own(tool_ids: list[str]) -> None:
    names = assign_wire_names(tool_ids)

    assert list(names) == list(dict.fromkeys(tool_ids))
    assert all(LEGAL.match(name) for name in names.values())
    assert len(set(names.values())) == len(names)
    assert all(names[tool_id] == tool_id for tool_id in names if LEGAL.match(tool_id) and "\n" not in tool_id)


def test_names_stay_as_near_to_the_ids_as_they_can() -> None:
    long = "Server:" + "tool_" * 30
    names = assign_wire_names(["read_file", "Time:get_current_time", "Unit Converter:convert", long, "A:b", "A__b"])

    assert names["read_file"] == "read_file"
    assert names["Time:get_current_time"] == "Time__get_current_time"
    assert re.fullmatch(r"Unit_Converter__convert-[0-9a-f]{8}", names["Unit Converter:convert"])
    assert re.fullmatch(r"Server__tool_.*-[0-9a-f]{8}", names[long])
    assert len(names[long]) == 64
    assert (names["A__b"], names["A:b"][:5]) == ("A__b", "A__b-")


@given(st.lists(words, min_size=1, max_size=8, unique=True))
def test_a_toolbox_maps_both_ways(tool_ids: list[str]) -> None:
    box = Toolbox([echoing(tool_id) for tool_id in tool_ids], ToolContext(no_workspace, no_sandbox, list))

    wire = [spec["function"]["name"] for spec in box.specs()]

    assert [box.tool_id(name) for name in wire] == tool_ids == [tool.name for tool in box.tools]
    assert all(box.tool_id(tool_id) == tool_id for tool_id in tool_ids)
    assert box.tool_id("no such tool \N{SNOWMAN}") == "no such tool \N{SNOWMAN}"


def test_a_tool_is_called_by_its_id_and_by_its_wire_name() -> None:
    box = Toolbox([echoing("Time:now"), echoing("now")], ToolContext(no_workspace, no_sandbox, list))

    assert asyncio.run(box.call("Time:now", {})).content == "Time:now"
    assert asyncio.run(box.call("Time__now", {})).content == "Time:now"
    assert asyncio.run(box.call("now", {})).content == "now"
    assert "the tools of this task are: Time__now, now" in asyncio.run(box.call("then", {})).content
    assert "the tools of this task are: Time:now, now" in asyncio.run(box.call("Time:then", {})).content


def test_a_tool_that_looks_at_its_arguments_itself_gets_them_as_they_came() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def told(arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        return ToolOutput(repr(arguments))

    tool = Tool("Server:count", "", schema, told, checks_arguments=False)
    box = Toolbox([tool], ToolContext(no_workspace, no_sandbox, list))

    assert asyncio.run(box.call("Server:count", {"n": "one", "m": 2})).content == "{'n': 'one', 'm': 2}"
    refused = asyncio.run(box.call("Server:count", None, "[1]"))
    assert (refused.is_error, "must be one JSON object" in refused.content) == (True, True)


def test_a_schema_that_providers_refuse_is_not_sent_to_them() -> None:
    whole = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schemas = [whole, {"properties": {}}, {}, {"type": "array"}, {"type": "objekt"}, {"$ref": "http://127.0.0.1:9/x"}]
    tools = [replace(echoing(f"S:{n}"), parameters=schema, checks_arguments=False) for n, schema in enumerate(schemas)]

    box = Toolbox(tools, ToolContext(no_workspace, no_sandbox, list))

    any_object = {"type": "object"}
    sent = [spec["function"]["parameters"] for spec in box.specs()]
    assert sent == [whole, {**any_object, "properties": {}}, *[any_object] * 4]
    assert [tool.parameters for tool in box.tools] == schemas


def echoing(name: str) -> Tool:
    async def call(arguments: dict[str, object], context: ToolContext) -> str:
        return name

    return Tool(name, "", {"type": "object"}, call)


def no_workspace():
    raise AssertionError


async def no_sandbox():
    raise AssertionError
