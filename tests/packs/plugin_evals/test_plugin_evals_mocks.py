"""Mocked MCP servers of a plugin's evals: answers, expected calls, and mistakes in their files."""

from __future__ import annotations

import json

import pytest
from packs.plugin_evals.plugin_support import EVAL, read_case, write_grader, write_plugin, write_prompt, write_script
from support.bench import Bench

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.plugin_evals.mock_server import call_mock

FIND = "---\ndescription: Find an article.\nexpect: {query: ^yard}\n---\n{{input.query}} is {{file:yard.txt}}\n"


def write_mocks(bench: Bench, query: str) -> None:
    """Write a case with a mocked server, whose agent asks the mock for `query`."""
    write_plugin(bench)
    bench.write("cases/units/.mcp.json", '{"kb": {"command": "no-such-program"}}')
    write_prompt(bench, runs=1)
    bench.write(f"{EVAL}/mocks/kb/find.md", FIND)
    bench.write(f"{EVAL}/mocks/kb/yard.txt", "91.44 cm")
    bench.write(f"{EVAL}/mocks/kb/_tools.json", json.dumps({"tools": [{"name": "list"}]}))
    write_grader(bench, "result", type="regex", target="trace", pattern="yard is 91.44 cm")
    write_grader(bench, "found", type="tool_used", tool="mcp__kb__find", input_match='"query":"yard"')
    write_grader(bench, "calls", type="regex", target="mock_calls", pattern='^{"tool":"mcp__kb__find"')
    call = {"name": "kb:find", "arguments": {"query": query}}
    write_script(bench, {"tool_calls": [call]}, {"content": "91.44 cm"})


def test_a_mocked_server_replaces_the_plugins_and_its_calls_are_graded(bench: Bench) -> None:
    write_mocks(bench, "yard")
    finished = bench.run("cases", "--model", "demo")
    row = finished.runs["convert[demo]"]
    assert (row["outcome"], row["metrics"]["graders"]) == ("passed", 1.0), finished.text


def test_a_call_that_the_mock_does_not_expect_is_an_error_of_the_run(bench: Bench) -> None:
    write_mocks(bench, "metre")
    finished = bench.run("cases", "--model", "demo")
    assert finished.outcomes["convert[demo]"] == "error"
    text = "aborted: unexpected call of a mock: find: query: found 'metre', expected /^yard/"
    assert text in finished.text.replace("\n", " ")


def test_mocks_return_errors_and_values_of_the_input() -> None:
    mock = {"expect": {}, "text": "{{input.a.b}} {{ input.n }}{{input.none}}", "is_error": True}
    result = call_mock({"find": mock}, "find", {"a": {"b": "x"}, "n": [1]})
    assert result == {"content": [{"type": "text", "text": "x [1]"}], "isError": True}
    assert call_mock({}, "find", {})["content"][0]["text"] == "unexpected call of a mock: find has no answer"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("kb/_server.md", "Play a server.", "_server.md:1:1: found a server that a model plays"),
        ("kb/find.md", "---\ntype: agent\n---\n", "find.md:2:7: type: found 'agent', expected 'fixed'"),
        ("kb/find.md", "---\nexpect: {a: '('}\n---\n", "find.md:2:13: expect.a: found '(', which is not a regular"),
        ("kb/find.md", "{{file:../../../secret}}", "find.md:1:1: found '../../../secret'"),
        ("kb/_tools.json", '{"tools": [{}]}', "_tools.json:1:12: [0].name: missing"),
        ("kb/notes.txt", "No tool.", "kb: found no tool, expected TOOL.md"),
    ],
)
def test_a_wrong_file_of_a_mock_is_an_error(bench: Bench, name: str, text: str, message: str) -> None:
    write_plugin(bench)
    write_prompt(bench)
    bench.write(f"{EVAL}/mocks/{name}", text)
    with pytest.raises(ConfigError) as error:
        read_case(bench)
    assert message in str(error.value)
