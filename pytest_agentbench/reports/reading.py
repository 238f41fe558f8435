"""report.json read back: checked as far as what is shown of it rests on it, from this version or an older one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.report import Report, report_schema
from pytest_agentbench.reports.statistics import finite
from pytest_agentbench.store import read_file

_HEAD = ("schema_version", "session", "totals")
"""Beside the runs, what is shown rests on these; the rest follows, and older versions have less of it."""
_KEPT = ("comparison", "human")
"""What does not follow from the runs, and is shown as it stands where it is there."""

_MOST_DIGITS = 100


def read_report(path: Path) -> Report:
    """A report.json. Raises ConfigError for a file that is none of this version."""
    try:
        found = parsed(read_file(path))
    except OSError as error:
        hint = "; run pytest first, or name the report.json" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}{hint}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is no JSON: {error}") from error
    if (problem := _problem(found)) is not None:
        raise ConfigError(f"{path}: {problem}")
    report: Report = found
    return report


def parsed(text: bytes) -> Any:
    """JSON with numbers that can be added up and written again. Raises ValueError and RecursionError."""
    return json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)


def run_mistake(run: Any, place: str = "row") -> str | None:
    """What keeps a value from being one of report.json's runs: a quick check finds it, jsonschema words it."""
    from pydantic_core import ValidationError

    check, schema = _run_check()
    try:
        check(run)
    except ValidationError:
        return _mistake(run, schema, place)
    return None


def facts_mistake(facts: Any) -> str | None:
    """What keeps a value from being what a journal tells beside the runs: `session`, as far as known, and the rest."""
    schema = report_schema()
    definitions = {**schema["$defs"], "session": {**schema["$defs"]["session"], "required": []}}
    properties = {name: schema["properties"][name] for name in ("session", *_KEPT)}
    whole = {"type": "object", "required": ["session"], "properties": properties, "additionalProperties": False}
    return _mistake(facts, {**whole, "$defs": definitions}, "")


@cache
def _run_check() -> tuple[Callable[[Any], Any], dict[str, Any]]:
    from pytest_agentbench.reports.row_check import compiled

    definitions = report_schema()["$defs"]
    row = {"$ref": "#/$defs/run"}
    return compiled(row, definitions).validate_python, {**row, "$defs": definitions}


def _problem(found: Any) -> str | None:
    """What keeps a document from being a report, None where it is one."""
    if not isinstance(found, dict) or "runs" not in found:
        return "is no report.json"
    schema = report_schema()
    if (version := found.get("schema_version")) != schema["properties"]["schema_version"]["const"]:
        return f"schema_version: found {version!r}, expected 1; read it with the version that wrote it"
    definitions, properties = schema["$defs"], {name: schema["properties"][name] for name in (*_HEAD, *_KEPT)}
    head = {"type": "object", "required": [*_HEAD], "properties": properties, "$defs": definitions}
    checked = {name: found[name] for name in properties if name in found}
    return _mistake(checked, head, "") or _bad_run(found["runs"])


def _bad_run(runs: Any) -> str | None:
    if not isinstance(runs, list):
        return "runs: is no list"
    mistakes = (run_mistake(run, f"runs[{number}]") for number, run in enumerate(runs))
    return next(filter(None, mistakes), None)


def _mistake(value: Any, schema: dict[str, Any], place: str) -> str | None:
    """The first that jsonschema finds in what stands at a place, in words."""
    from jsonschema import Draft202012Validator

    error = next(Draft202012Validator(schema).iter_errors(value), None)
    if error is None:
        return None
    place = (place + error.json_path.removeprefix("$")).removeprefix(".")
    return f"{place or 'report'}: {error.message[:300]}"


def _finite(text: str) -> float:
    return value if finite(value := float(text)) is not None else _no_number(text)


def _whole(text: str) -> int:
    return int(text) if len(text) <= _MOST_DIGITS else _no_number(text)


def _no_number(name: str) -> Any:
    raise ValueError(f"found {name[:40]}, expected a number between -1e100 and 1e100")
