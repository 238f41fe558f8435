"""Rows of report.json checked in bulk: jsonschema takes 1 ms for a row, pydantic's compiled validators 10 µs.

The validator is made from the JSON Schema itself, of the keywords that the schema of rows uses, and never accepts what
the schema refuses. What it refuses may be right all the same (1.0 for an integer): that is for jsonschema to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import CoreSchema, SchemaValidator, core_schema

_SILENT = frozenset({"description"})
_BOUNDS = {"minimum": "ge", "maximum": "le"}


def compiled(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> SchemaValidator:
    """The validator of a schema whose `$ref`s are among the definitions. Raises ValueError for a keyword it lacks."""
    return SchemaValidator(_core(schema, definitions))


def _core(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> CoreSchema:
    rules = {keyword: value for keyword, value in schema.items() if keyword not in _SILENT}
    if "$ref" in rules:
        named: Mapping[str, Any] = definitions[rules.pop("$ref").removeprefix("#/$defs/")]
        return _done(rules, _core(named, definitions))
    if "enum" in rules:
        rules.pop("type", None)  # its values have it
        return _done(rules, core_schema.literal_schema(rules.pop("enum")))
    kinds = rules.pop("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    choices = [_kind(kind, rules, definitions) for kind in kinds if kind != "null"]
    made = choices[0] if len(choices) == 1 else core_schema.union_schema(list(choices))
    return _done(rules, core_schema.nullable_schema(made) if "null" in kinds else made)


def _kind(kind: str, rules: dict[str, Any], definitions: Mapping[str, Any]) -> CoreSchema:
    """A value of one type; takes the keywords that are about it out of the rules."""
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


def _done(rules: Mapping[str, Any], made: CoreSchema) -> CoreSchema:
    if rules:
        raise ValueError(f"found {', '.join(rules)} in a schema, expected keywords that rows are checked by")
    return made
