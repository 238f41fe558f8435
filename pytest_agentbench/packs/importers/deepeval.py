"""Read DeepEval's goldens (JSON, JSONL, CSV as its datasets are saved) as drafts.

DeepEval defines metrics in Python, not in these files, so only a golden's own expectations decide its case.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench.packs.importers.drafts import (
    MUST_NOT,
    Draft,
    FileContents,
    Place,
    Row,
    as_text,
    nonblank_text,
    parse_cell,
    read_rows,
)

# Files come in both spellings: expectedOutput and expected_output.
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STRUCTURED = ("expected_tools", "tools_called", "additional_metadata", "custom_column_key_values", "expectations")
# DeepEval puts images and documents into texts by such marks.
_MEDIA = re.compile(r"\[DEEPEVAL:(?:IMAGE|PDF):")
_TOOLS = ("expected_tools", "tools_called")
_USED = {"input", "expected_output", "actual_output", *_TOOLS, "expectations", "additional_metadata", "name"}


def read(path: Path) -> FileContents:
    """Return the goldens of a file. Raises ConfigError if the file cannot be read."""
    gathered = FileContents()
    for number, row in enumerate(read_rows(path, gathered), 1):
        _add_golden(row, number, gathered)
    return gathered


def _add_golden(row: Row, number: int, gathered: FileContents) -> None:
    golden: dict[str, Any] = {}
    for spelled, value in row.value.items():
        name = _CAMEL.sub("_", spelled).lower()
        # A field may have both spellings: an empty one is ignored, two different values are reported.
        if golden.get(name) in (None, ""):
            golden[name] = value
        elif value not in (None, "", golden[name]):
            gathered.lose(row.place, f"{spelled}: found two values, {golden[name]!r:.40} and {value!r:.40}; keep one")
            return
    for name in _STRUCTURED:
        parse = _parse_tools if name in _TOOLS else parse_cell
        try:
            golden[name] = parse(golden.get(name))
        except (ValueError, RecursionError) as error:
            gathered.lose(row.place, f"{name}: not valid JSON: {error}")
            return
    if (reason := _why_unfit(golden)) is not None:
        gathered.lose(row.place, reason)
        return
    answer = nonblank_text(golden.get("actual_output"))
    checks = tuple(_list_tool_checks(golden["expected_tools"]))
    calls = _read_calls(golden) if checks else None
    if answer is not None and checks and calls is None:
        # Without the calls of its run every check of tools would be an error.
        gathered.note(row.place, "actual_output: not scored: expected_tools need tools_called")
        answer = None
    draft = Draft(
        place=row.place,
        name=nonblank_text(golden.get("name")) or f"golden-{number}",
        messages=({"role": "user", "content": golden["input"]},),
        reference=nonblank_text(golden.get("expected_output")),
        # If expectations decide, the expected output is for their judge.
        compared=not golden["expectations"],
        checks=checks,
        expectations=tuple(_list_expectations(golden["expectations"] or {})),
        metadata=_make_metadata(golden),
        answers=() if answer is None else (answer,),
        calls=calls,
    )
    if checks:
        names = ", ".join(sorted({check["declarative"]["name"] for check in checks}))
        gathered.note(row.place, f"expected_tools: offer the agent {names} by tools, mcp_servers or its own runner")
    _note_judge(golden["expectations"] or {}, row.place, gathered)
    gathered.drafts.append(draft)


def _why_unfit(golden: Mapping[str, Any]) -> str | None:
    """Return why a golden cannot become a case, or None if it can."""
    if nonblank_text(golden.get("scenario")) is not None:
        return "scenario: a conversation with a simulated user is not imported; write its messages to a test.yaml"
    if nonblank_text(golden.get("input")) is None:
        return f"input: found {golden.get('input')!r}, expected a text"
    if _MEDIA.search(golden["input"]):
        return "input: found an image or PDF; messages of cases are texts"
    for name in ("expected_output", "actual_output"):
        if not isinstance(golden.get(name), str | None):
            return f"{name}: found {golden[name]!r}, expected a text"
    for name in _TOOLS:
        if golden[name] is not None and not _is_list_of(golden[name], _is_tool):
            return f"{name}: expected a list of objects with a name"
    block = golden["expectations"]
    if block is not None and not (
        isinstance(block, dict) and all(_is_list_of(block.get(k), nonblank_text) for k in _statement_keys(block))
    ):
        return "expectations: expected must and must_not with lists of texts"
    if not isinstance(golden["additional_metadata"], dict | None):
        return "additional_metadata: expected an object"
    return None


def _parse_tools(value: Any) -> Any:
    """Return the tools of a cell: JSON, else names between semicolons, as DeepEval reads both. Raises ValueError."""
    if not isinstance(value, str) or value.lstrip().startswith(("[", "{")):
        return parse_cell(value)
    return [{"name": name.strip()} for name in value.split(";") if name.strip()] or None


def _is_tool(value: Any) -> bool:
    return isinstance(value, dict) and nonblank_text(value.get("name")) is not None


def _read_calls(golden: Mapping[str, Any]) -> tuple[dict[str, Any], ...] | None:
    """Return the calls of the run with the actual output; None if the golden does not have them."""
    called = golden["tools_called"]
    if called is None:
        return None
    return tuple(map(_read_call, called))


def _read_call(tool: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("inputParameters", "input_parameters")
    arguments: Any = next((tool[key] for key in keys if tool.get(key) is not None), {})
    if not isinstance(arguments, dict):
        # DeepEval's tools accept any value as input; arguments of calls are objects.
        arguments = {"input": arguments}
    call = {"name": tool["name"], "arguments": arguments}
    output = tool.get("output")
    if output is None:
        return call
    return call | {"result": as_text(output)}


def _is_list_of(value: Any, fits: Any) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _statement_keys(expectations: Mapping[str, Any]) -> list[str]:
    """Return the keys of an `expectations` object whose values are statements."""
    return [name for name in ("must", "must_not", "mustNot") if expectations.get(name)]


def _list_tool_checks(tools: list[dict[str, Any]] | None) -> Iterator[dict[str, Any]]:
    """Yield a check for each expected tool by its name: DeepEval compares only names unless configured in Python."""
    for name, count in Counter(tool["name"] for tool in tools or ()).items():
        check = {"kind": "tool_called", "name": name}
        if count > 1:
            check["min_count"] = count
        yield {"declarative": check}


def _list_expectations(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key in _statement_keys(block):
        prefix = "" if key == "must" else MUST_NOT
        for text in block[key]:
            yield {"text": prefix + text}


def _note_judge(block: Mapping[str, Any], place: Place, gathered: FileContents) -> None:
    for name in ("model", "eval_mode"):
        if block.get(name) is not None:
            gathered.note(place, f"expectations.{name}: left out; judges are configured in an evaluation profile")


def _make_metadata(golden: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that neither the agent sees nor a check uses, including the arguments of expected tools."""
    fields = {name: value for name, value in golden.items() if name not in _USED and value not in (None, "", [], {})}
    fields |= {name: golden[name] for name in _TOOLS if golden[name]}
    return fields | (golden["additional_metadata"] or {})
