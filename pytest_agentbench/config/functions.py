"""Tools that a case itself describes in `context.llm_probe`: functions that nothing runs, and canned tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_agentbench.bounded.files import find_repeated

if TYPE_CHECKING:
    from pytest_agentbench.config.canned_tools import CannedTool
    from pytest_agentbench.records.case import Case

_SCHEMAS = ("parameters", "input_schema", "inputSchema")
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_PYTHON_TYPES = {
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "str": "string",
    "float": "number",
    "double": "number",
    "int": "integer",
    "long": "integer",
    "bool": "boolean",
}
_MOST_LEVELS = 32


class Function(NamedTuple):
    """A function: its name, its description for models, and the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


def read_functions(value: object) -> list[Function]:
    """Return the functions of a declaration or a list of them, each `{name, description, parameters}`.

    OpenAI's `{type: function, function: {...}}` and the schema's other names (`input_schema`, `inputSchema`) are read
    too, and types by their names in Python (`dict`, `float`). Raises ValueError for anything else.
    """
    if value is None:
        return []
    functions = [_read_function(each) for each in (value if isinstance(value, list) else [value])]
    if (twice := find_repeated(function.name for function in functions)) is not None:
        raise ValueError(f"found the function {twice[:80]!r} twice, expected each name once")
    return functions


def functions_of(context: Mapping[str, Any]) -> list[Function]:
    """Return the functions that a case's context lets `llm_probe` call. Raises ValueError for a wrong declaration."""
    return read_functions((context.get("llm_probe") or {}).get("functions"))


def canned_tools_of(context: Mapping[str, Any]) -> list[CannedTool]:
    """Return the canned tools that a case's context defines. Raises ValueError for a wrong definition."""
    tools = (context.get("llm_probe") or {}).get("tools") or ()
    definitions = [tool for tool in tools if isinstance(tool, dict)]
    if not definitions:
        return []
    from pytest_agentbench.config.canned_tools import read_canned_tool

    return list(map(read_canned_tool, definitions))


def offers_tools(case: Case) -> bool:
    """Return whether the case itself has tools, functions or skills for `llm_probe`; MCP servers do not count."""
    return bool(case.tools or case.skills or functions_of(case.context) or canned_tools_of(case.context))


def _read_function(value: object) -> Function:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or not name.strip():
        raise ValueError(f"found {str(value)[:80]!r}, expected a function: {{name, description, parameters}}")
    schema: Any = next((value[key] for key in _SCHEMAS if value.get(key) is not None), {})
    if not isinstance(schema, dict):
        raise ValueError(f"found parameters of {name[:80]!r} that are no object, expected a JSON Schema")
    description = value.get("description")
    if not isinstance(description, str):
        description = ""
    return Function(name, description, {**_read_schema(schema, _MOST_LEVELS), "type": "object"})


def _read_schema(schema: Any, levels: int) -> Any:
    """Return the schema with JSON Schema's names of types; a type that has none there is left open."""
    if not isinstance(schema, dict) or not levels:
        return schema
    converted = dict(schema)
    kind = converted.get("type")
    if isinstance(kind, str) and kind not in _TYPES:
        converted.pop("type")
        if kind.lower() in {*_TYPES, *_PYTHON_TYPES}:
            converted["type"] = _PYTHON_TYPES.get(kind.lower(), kind.lower())
    if isinstance(properties := converted.get("properties"), dict):
        converted["properties"] = {name: _read_schema(each, levels - 1) for name, each in properties.items()}
    for key in ("items", "additionalProperties"):
        if key in converted:
            converted[key] = _read_schema(converted[key], levels - 1)
    return converted
