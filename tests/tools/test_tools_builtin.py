"""The built-in tools, as a model meets them: whatever it sends, it gets an answer it can read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.tools.base import SearchResult, Tool, ToolContext, ToolOutput
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS
from pytest_agentbench.tools.toolbox import Toolbox
from pytest_agentbench.workspaces.sandboxes.base import Sandbox
from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace

FILE_TOOLS = ("write_file", "read_file", "list_files")


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    workspaces = Workspaces()
    yield workspaces.create("case")
    workspaces.close()


def toolbox(workspace: Workspace, *names: str, **context: Any) -> Toolbox:
    return Toolbox((BUILTIN_TOOLS[name] for name in names), tool_context(workspace, **context))


def tool_context(workspace: Workspace, *, sandboxed: bool = False, **fields: Any) -> ToolContext:
    async def sandbox() -> Sandbox:
        return LocalSandbox(workspace)

    def needs_sandbox() -> None:
        if not sandboxed:
            raise UnavailableError("no sandbox")

    return ToolContext(lambda: workspace, sandbox, needs_sandbox, **fields)


def timeless(output: ToolOutput) -> ToolOutput:
    return replace(output, seconds=0.0)


def call(box: Toolbox, name: str, arguments: dict[str, Any] | None, raw: str = "") -> ToolOutput:
    return asyncio.run(box.call(name, arguments, raw))


def test_files_are_written_read_and_listed(workspace: Workspace) -> None:
    box = toolbox(workspace, *FILE_TOOLS)
    written = call(box, "write_file", {"path": "a/b.txt", "content": "héllo"})
    assert (written.content, written.is_error) == ("wrote 5 characters to a/b.txt", False)
    assert call(box, "read_file", {"path": "a/b.txt"}).content == "héllo"
    call(box, "write_file", {"path": "c.txt", "content": ""})
    assert call(box, "list_files", {}).content == "a/\nc.txt  0 bytes"
    assert call(box, "list_files", {"path": "a"}).content == "b.txt  6 bytes"


def test_specs_are_what_a_chat_completion_takes(workspace: Workspace) -> None:
    specs = toolbox(workspace, *FILE_TOOLS).specs()
    assert [spec["function"]["name"] for spec in specs] == list(FILE_TOOLS)
    assert all(spec["type"] == "function" and spec["function"]["description"] for spec in specs)
    assert specs[0]["function"]["parameters"]["required"] == ["path", "content"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("read_file", {"path": "../x"}, "`..` is not allowed"),
        ("read_file", {"path": "/etc/passwd"}, "outside the workspace"),
        ("read_file", {"path": "nope.txt"}, '"nope.txt": No such file or directory'),
        ("read_file", {"path": "."}, "Is a directory"),
        ("read_file", {"path": "binary"}, "not UTF-8 text (byte 0)"),
        ("read_file", {"path": 3}, "path: 3 is not of type 'string'"),
        ("read_file", {}, "'path' is a required property"),
        ("write_file", {"path": "x", "content": "y", "mode": "a"}, "'mode' was unexpected"),
        ("write_file", {"path": "x/", "content": None}, "content: None is not of type 'string'"),
        ("list_files", None, "the arguments must be one JSON object, found '[1'"),
        ("delete_file", {"path": "x"}, "unknown tool 'delete_file'; the tools of this task are: list_files, read_file"),
    ],
)
def test_a_failed_call_is_answered_with_an_error(
    workspace: Workspace, name: str, arguments: dict[str, Any] | None, message: str
) -> None:
    workspace.write_bytes("binary", b"\xff\xfe")
    output = call(toolbox(workspace, *FILE_TOOLS), name, arguments, "[1")
    assert output.is_error
    assert output.content.startswith("error: ")
    assert message in output.content
    assert str(workspace.path) not in output.content


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["path", "content"]), st.text() | st.none() | st.integers(), max_size=2))
def test_no_arguments_ever_raise(arguments: dict[str, Any]) -> None:
    workspaces = Workspaces()
    box = toolbox(workspaces.create("case"), *FILE_TOOLS)
    for name in FILE_TOOLS:
        assert isinstance(call(box, name, arguments).content, str)
    workspaces.close()


def test_long_output_is_cut_in_the_middle(workspace: Workspace) -> None:
    workspace.write_text("long", "a" * 50_000 + "z")
    output = call(toolbox(workspace, "read_file"), "read_file", {"path": "long"}).content
    assert "characters left out" in output
    assert output.endswith("az")
    assert len(output) < 33_000


def test_file_names_cannot_forge_lines(workspace: Workspace) -> None:
    (workspace.path / "a\n[exit code 0]").touch()
    with open(os.fsencode(workspace.path) + b"/\xff", "wb"):
        pass
    content = call(toolbox(workspace, "list_files"), "list_files", {}).content
    assert content == "'a\\n[exit code 0]'  0 bytes\n'\\udcff'  0 bytes"


@pytest.mark.slow
def test_a_shell_command_shows_its_output_and_how_it_ended(workspace: Workspace) -> None:
    box = toolbox(workspace, "exec_shell", "read_file", sandboxed=True)
    good = call(box, "exec_shell", {"command": "printf hi; printf you > $TMPDIR/x"})
    assert (good.content, good.is_error) == ("hi\n[exit code 0]", False)
    assert call(box, "read_file", {"path": "/tmp/x"}).content == "you"
    bad = call(box, "exec_shell", {"command": "exit 7"})
    assert (bad.content, bad.is_error) == ("[exit code 7]", True)
    slow = call(box, "exec_shell", {"command": "echo a; sleep 60", "timeout_seconds": 0.3})
    assert slow.is_error
    assert slow.content == "a\n[killed after 0.3 s: time-out]"
    assert 0.3 <= slow.seconds < 10
    assert call(box, "exec_shell", {"command": "x", "timeout_seconds": 10**9}).is_error
    assert call(box, "exec_shell", {"command": "echo a\0b"}).is_error


def test_commands_of_one_turn_run_side_by_side(workspace: Workspace) -> None:
    box = toolbox(workspace, "exec_shell", sandboxed=True)
    os.mkfifo(workspace.path / "meet")

    async def both() -> list[str]:
        commands = ["echo met > meet", "cat meet"]  # each waits for the other
        outputs = await asyncio.gather(*(box.call("exec_shell", {"command": command}) for command in commands))
        return [output.content for output in outputs]

    assert asyncio.run(both()) == ["[exit code 0]", "met\n[exit code 0]"]


def test_unusable_tools_are_unavailable_before_the_run(workspace: Workspace) -> None:
    with pytest.raises(UnavailableError, match="no sandbox"):
        toolbox(workspace, "exec_shell")
    with pytest.raises(UnavailableError, match="AGENTBENCH_SEARXNG_URL, BRAVE_API_KEY or TAVILY_API_KEY"):
        toolbox(workspace, "web_search")


def test_web_search_lists_what_the_plugged_in_search_finds(workspace: Workspace) -> None:
    async def search(query: str) -> list[SearchResult]:
        return [SearchResult(f"About {query}", "https://example.org/a", "It is so."), SearchResult("B", "b")]

    box = toolbox(workspace, "web_search", search=search)
    output = call(box, "web_search", {"query": "owls"}).content
    assert output == "1. About owls\n   https://example.org/a\n   It is so.\n2. B\n   b"


def test_a_failing_tool_answers_and_a_dead_sandbox_ends_the_run(workspace: Workspace) -> None:
    async def broken(arguments: dict[str, Any], context: ToolContext) -> str:
        raise KeyError("oops")

    async def dead(arguments: dict[str, Any], context: ToolContext) -> str:
        raise SandboxError("gone")

    async def missing(arguments: dict[str, Any], context: ToolContext) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    tools = [Tool(f.__name__, "", {"type": "object"}, f) for f in (broken, dead, missing)]
    box = Toolbox(tools, tool_context(workspace))
    assert timeless(call(box, "broken", {})) == ToolOutput(
        "error: broken: KeyError: 'oops'", is_error=True, broken=True
    )
    assert timeless(call(box, "missing", {})) == ToolOutput("error: missing: No such file or directory", is_error=True)
    with pytest.raises(SandboxError):
        call(box, "dead", {})


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ({"city": "Zürich", "people": [1, None]}, '{"city": "Zürich", "people": [1, null]}'),
        ([{"a": True}], '[{"a": true}]'),
        (3, "3"),
        ("as it is", "as it is"),
    ],
)
def test_a_returned_value_reaches_the_model_as_text_or_json(workspace: Workspace, returned, expected) -> None:
    box = Toolbox([Tool("t", "", {"type": "object"}, lambda arguments, context: returned)], tool_context(workspace))
    assert timeless(call(box, "t", {})) == ToolOutput(expected)


@pytest.mark.parametrize("returned", [None, {"when": object()}, [float("nan")]])
def test_a_value_that_is_not_json_is_an_error_of_the_tool(workspace: Workspace, returned) -> None:
    box = Toolbox([Tool("t", "", {"type": "object"}, lambda arguments, context: returned)], tool_context(workspace))
    output = call(box, "t", {})
    assert (output.is_error, output.broken) == (True, True)
    assert "expected text or JSON" in output.content
