"""Read report.json: compiled validators check rows in bulk, and jsonschema words the errors of refused rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic_core import CoreSchema, SchemaValidator, core_schema

from pytest_agentbench.bounded.files import MAX_DOCUMENT, read_file
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import cache_extensions, load_extensions
from pytest_agentbench.reports.rows import KEPT, Report
from pytest_agentbench.statistics.estimates import finite

# jsonschema takes 1 ms for a row, pydantic's compiled validators 10 µs. The validator is built from the JSON
# Schema itself, from the keywords that the schema of rows uses, and never accepts a value that the schema
# refuses. It may refuse a correct value (1.0 for an integer): jsonschema then decides.


_SILENT = frozenset({"description"})
_BOUNDS = {"minimum": "ge", "maximum": "le"}


def compiled(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> SchemaValidator:
    """Return the validator of a schema, whose `$ref`s are in `definitions`. Raises ValueError for unknown keywords."""
    return SchemaValidator(_core(schema, definitions))


def _core(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> CoreSchema:
    rules = {keyword: value for keyword, value in schema.items() if keyword not in _SILENT}
    if "$ref" in rules:
        target: Mapping[str, Any] = definitions[rules.pop("$ref").removeprefix("#/$defs/")]
        return _done(rules, _core(target, definitions))
    if "enum" in rules:
        rules.pop("type", None)  # its values have it
        return _done(rules, core_schema.literal_schema(rules.pop("enum")))
    kinds = rules.pop("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    # Each builder removes its own keywords from `rules`. A keyword that remains at the end is not supported.
    choices = [_kind(kind, rules, definitions) for kind in kinds if kind != "null"]
    core = choices[0] if len(choices) == 1 else core_schema.union_schema(list(choices))
    if "null" in kinds:
        core = core_schema.nullable_schema(core)
    return _done(rules, core)


def _kind(kind: str, rules: dict[str, Any], definitions: Mapping[str, Any]) -> CoreSchema:
    """Return the schema of values of one type, and remove its keywords from `rules`."""
    match kind:
        case "boolean":
            return core_schema.bool_schema(strict=True)
        case "string":
            return core_schema.str_schema(strict=True, pattern=rules.pop("pattern", None))
        case "integer":
            return core_schema.int_schema(strict=True, **_bounds(rules))
        case "number":
            return core_schema.float_schema(strict=True, allow_inf_nan=False, **_bounds(rules))
        case "array":
            return core_schema.list_schema(_core(rules.pop("items"), definitions), strict=True)
    return _object(rules, definitions)


def _bounds(rules: dict[str, Any]) -> dict[str, Any]:
    return {name: rules.pop(keyword) for keyword, name in _BOUNDS.items() if keyword in rules}


def _object(rules: dict[str, Any], definitions: Mapping[str, Any]) -> CoreSchema:
    others, required = rules.pop("additionalProperties", True), rules.pop("required", ())
    values = _core(others, definitions) if isinstance(others, Mapping) else None
    if "properties" not in rules:
        most = rules.pop("maxProperties", None)
        return core_schema.dict_schema(core_schema.str_schema(), values, max_length=most, strict=True)
    fields = {
        name: core_schema.typed_dict_field(_core(field, definitions), required=name in required)
        for name, field in rules.pop("properties").items()
    }
    return core_schema.typed_dict_schema(
        fields, strict=True, extra_behavior="allow" if others else "forbid", extras_schema=values
    )


def _done(rules: Mapping[str, Any], core: CoreSchema) -> CoreSchema:
    if rules:
        raise ValueError(f"found {', '.join(rules)} in a schema, expected keywords that rows are checked by")
    return core


_HEAD = ("schema_version", "session", "totals")
"""Members that a report must have. The rest is computed from its runs."""

_MOST_DIGITS = 100


def read_report(path: Path) -> Report:
    """Return the checked members of a report.json: those that do not follow from its runs, and the runs.

    `report.complete_report` adds the others. Raises ConfigError for a file that is no report.json of this version.
    """
    try:
        document = parsed(read_file(path, MAX_DOCUMENT))
    except OSError as error:
        hint = "; run pytest first, or name the report.json" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}{hint}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is no JSON: {error}") from error
    if (problem := _problem(document)) is not None:
        raise ConfigError(f"{path}: {problem}")
    if "variants" not in document:
        _name_parameters(document["runs"])
    return {name: document[name] for name in (*_HEAD, *KEPT, "runs") if name in document}


def _name_parameters(runs: list[dict[str, Any]]) -> None:
    """Name the parameters of hand-written tests in reports of earlier versions, in which `variant` was their name."""
    for run in runs:
        if "variant" in run:
            run["parameters"] = run.pop("variant")


def parsed(text: bytes) -> Any:
    """Return parsed JSON, with numbers that can be added up and written again. Raises ValueError and RecursionError."""
    return json.loads(text, parse_constant=_refuse_number, parse_float=_finite, parse_int=_whole)


def run_mistake(run: Any, place: str = "row") -> str | None:
    """Return why a value is not a valid run of report.json, or None; jsonschema words the reason."""
    from pydantic_core import ValidationError

    check, schema = _run_check()
    try:
        check(run)
    except ValidationError:
        return _mistake(run, schema, place)
    return None


def facts_mistake(facts: Any) -> str | None:
    """Return why a value is not a valid report without runs (`session` and the rest, as far as known), or None."""
    schema = report_schema()
    definitions = {**schema["$defs"], "session": {**schema["$defs"]["session"], "required": []}}
    properties = {name: schema["properties"][name] for name in ("session", *KEPT)}
    whole = {"type": "object", "required": ["session"], "properties": properties, "additionalProperties": False}
    return _mistake(facts, {**whole, "$defs": definitions}, "")


@cache_extensions
def _run_check() -> tuple[Callable[[Any], Any], dict[str, Any]]:
    definitions = report_schema()["$defs"]
    row = {"$ref": "#/$defs/run"}
    return compiled(row, definitions).validate_python, {**row, "$defs": definitions}


def _problem(document: Any) -> str | None:
    """Return why a document is not a report, or None if it is one."""
    if not isinstance(document, dict) or "runs" not in document:
        return "is no report.json"
    schema = report_schema()
    if (version := document.get("schema_version")) != schema["properties"]["schema_version"]["const"]:
        return f"schema_version: found {version!r}, expected 1; read it with the version that wrote it"
    definitions, properties = schema["$defs"], {name: schema["properties"][name] for name in (*_HEAD, *KEPT)}
    head = {"type": "object", "required": [*_HEAD], "properties": properties, "$defs": definitions}
    checked = {name: document[name] for name in properties if name in document}
    return _mistake(checked, head, "") or _bad_run(document["runs"])


def _bad_run(runs: Any) -> str | None:
    if not isinstance(runs, list):
        return "runs: not a list"
    mistakes = (run_mistake(run, f"runs[{number}]") for number, run in enumerate(runs))
    return next(filter(None, mistakes), None)


def _mistake(value: Any, schema: dict[str, Any], place: str) -> str | None:
    """Return the first error that jsonschema finds at a place of the document, as text."""
    from jsonschema import Draft202012Validator  # noqa: TID251 - the schema is our own

    error = next(Draft202012Validator(schema).iter_errors(value), None)
    if error is None:
        return None
    place = (place + error.json_path.removeprefix("$")).removeprefix(".")
    return f"{place or 'report'}: {error.message[:300]}"


def _finite(text: str) -> float:
    if finite(value := float(text)) is None:
        _refuse_number(text)
    return value


def _whole(text: str) -> int:
    # Python takes quadratic time for the digits of an integer, and refuses more than 4,300
    if len(text) > _MOST_DIGITS:
        _refuse_number(text)
    return int(text)


def _refuse_number(name: str) -> NoReturn:
    raise ValueError(f"found {name[:40]}, expected a number between -1e100 and 1e100")


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of report.json, with the sections of all packs."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("report.schema.json").read_text(encoding="utf-8"))
    definitions = schema["$defs"]
    for name, section in load_extensions("report_section").items():
        added = section.schema()
        definitions |= added.get("$defs", {})
        for kind, entry in (("row", "run"), ("model", "model")):
            if kind in added:
                definitions[entry]["properties"][name] = added[kind]
    return schema
