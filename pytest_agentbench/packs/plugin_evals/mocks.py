"""Mocked MCP servers of a case: `mocks/SERVER/TOOL.md` with a fixed answer, and the tools' schemas in `_tools.json`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, field_validator

from pytest_agentbench.bounded.patterns import compile_pattern
from pytest_agentbench.config.base import Scope, resolve_file, validate
from pytest_agentbench.config.documents import Document, parse_json, read_bytes
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.plugin_evals.files import read_front_matter, resolve_folder_in
from pytest_agentbench.packs.plugin_evals.javascript import translate_pattern
from pytest_agentbench.records.base import Record, Text
from pytest_agentbench.records.case import McpServer

MOCKS_FOLDER = "mocks"
_SERVER_FILE = "_server.md"
_TOOLS_FILE = "_tools.json"
_SCRIPT = Path(__file__).with_name("mock_server.py")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FILE = re.compile(r"\{\{\s*file:([^{}]+?)\s*\}\}")
_MOST_BYTES = 100_000
"""Maximum bytes of a server's definition, which is an argument of its program; Linux allows 131,072."""


def _translate(pattern: str) -> str:
    translated = translate_pattern(pattern)
    compile_pattern(translated)
    re.compile(translated)  # the server, which uses the standard library alone, searches for it
    return translated


class _Mock(Record):
    """The front matter of a tool's file."""

    type: Literal["fixed"] = "fixed"
    """fixed: the text below is the answer. Other types ask a model, and are not supported."""
    description: str = ""
    """The tool's description for models; that in `_tools.json` has precedence."""
    expect: dict[str, Annotated[Text, AfterValidator(_translate)]] = Field(default_factory=dict)
    """Regular expressions of JavaScript's by argument. A call that does not match is an error of the run."""
    error: bool | Text = False
    """true: the answer is an error. A text: the answer is this error."""


class _Tool(Record):
    """A tool as an MCP server lists it. Further keys are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Text
    description: str = ""
    input_schema: Annotated[dict[str, Any], Field(alias="inputSchema")] = Field(default={"type": "object"})

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"found {name[:80]!r}, expected at most 64 letters, digits, '_' and '-'")
        return name


_TOOLS: TypeAdapter[Any] = TypeAdapter(tuple[_Tool, ...])


@dataclass(frozen=True, slots=True)
class MockedServer:
    """A mocked server and the names of its tools."""

    name: str
    server: McpServer
    tools: tuple[str, ...]


def read_mocks(folder: Path, scope: Scope) -> Iterator[MockedServer]:
    """Yield the mocked servers of a case's folder. Raises ConfigError."""
    mocks = folder / MOCKS_FOLDER
    if not mocks.is_dir():
        return
    for entry in sorted(resolve_folder_in(mocks, scope).iterdir()):
        if entry.is_dir():
            yield _read_server(resolve_folder_in(entry, scope), scope._replace(folder=str(entry)))


def _read_server(folder: Path, scope: Scope) -> MockedServer:
    if (folder / _SERVER_FILE).is_file():
        raise ConfigError(
            f"{folder / _SERVER_FILE}:1:1: found a server that a model plays, expected a file for each tool"
        )
    tools = {tool.name: tool for tool in _read_tools(folder / _TOOLS_FILE, scope)}
    mocks: dict[str, Any] = {}
    for path in sorted(folder.glob("*.md")):
        mock, text = _read_mock(path, scope)
        tools.setdefault(path.stem, _Tool(name=path.stem, description=mock.description))
        mocks[path.stem] = {
            "expect": mock.expect,
            "text": mock.error if isinstance(mock.error, str) else text,
            "is_error": bool(mock.error),
        }
    if not tools:
        raise ConfigError(f"{folder}: found no tool, expected TOOL.md with the answer of a tool")
    listed = [tool.model_dump(by_alias=True) for tool in tools.values()]
    definition = json.dumps({"tools": listed, "mocks": mocks}, sort_keys=True)
    if len(definition.encode()) > _MOST_BYTES:
        raise ConfigError(f"{folder}: found answers of over {_MOST_BYTES:,} bytes, expected shorter ones")
    # It runs outside of the run's sandbox, since it runs no code of the case
    server = McpServer(command=sys.executable, args=("-I", str(_SCRIPT), definition), sandbox="local")
    return MockedServer(folder.name, server, tuple(tools))


def _read_mock(path: Path, scope: Scope) -> tuple[_Mock, str]:
    """Return the keys of a tool's file and its answer, with files put in. Raises ConfigError."""
    if not _NAME.fullmatch(path.stem):
        raise ConfigError(f"{path}:1:1: found the tool {path.stem!r}, expected letters, digits, '_' and '-'")
    document, text = read_front_matter(path)
    mock = validate(document, _Mock, scope)
    try:
        return mock, _FILE.sub(lambda match: _read_file(match[1], scope), text)
    except ValueError as error:
        raise ConfigError(f"{path}:1:1: {error}") from error


def _read_file(name: str, scope: Scope) -> str:
    return read_bytes(resolve_file(name, scope), _MOST_BYTES).decode("utf-8")


def _read_tools(path: Path, scope: Scope) -> Sequence[_Tool]:
    """Return the tools of `_tools.json`, a list or an object with a list `tools`; () without the file."""
    if not path.is_file():
        return ()
    try:
        document = parse_json(read_bytes(resolve_file(path.name, scope)), path)
    except ValueError as error:
        raise ConfigError(f"{path}:1:1: {error}") from error
    if not isinstance(document.data, dict):
        return _validate_tools(document, scope)
    listed = document.data.get("tools")

    def place(loc: tuple[int | str, ...]) -> tuple[int, int]:
        problem = document.problem(("tools", *loc), "")
        return problem.line, problem.column

    return _validate_tools(Document(path, b"", listed, place=place), scope)


def _validate_tools(document: Document, scope: Scope) -> Sequence[_Tool]:
    tools: Sequence[_Tool] = validate(document, _TOOLS, scope)
    return tools
