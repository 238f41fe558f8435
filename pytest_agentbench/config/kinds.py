"""The kinds of configuration files: which kind a file is, and the JSON Schemas that editors get."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from pytest_agentbench.config.agent_file import AgentProgram
from pytest_agentbench.config.base import YAML_SUFFIXES, ConfigFile
from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.dataset_file import DatasetDescriptor, is_descriptor_name
from pytest_agentbench.config.documents import read_document
from pytest_agentbench.config.folders import visited_folders, walk_folders
from pytest_agentbench.config.keys import KeysFile
from pytest_agentbench.config.profiles import OWN_KINDS, ModelsFile
from pytest_agentbench.config.sections import (
    RunnerSettings,
    SectionedFile,
    ServersFile,
    added_folders,
    added_kind,
    added_kinds,
)
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import load_extensions
from pytest_agentbench.records.check_specs import BUILTIN_KINDS

KINDS: dict[str, type[ConfigFile]] = {
    "test_case": TestCaseFile,
    "dataset": DatasetDescriptor,
    **{kind.name: kind.model for kind in OWN_KINDS.values()},
    "models": ModelsFile,
    "servers": ServersFile,
    "keys": KeysFile,
    "agent_program": AgentProgram,
}
"""The kinds of configuration files that need no pack, by their schemas' names."""

_BY_NAME: dict[str, type[ConfigFile]] = {
    "test": TestCaseFile,
    "models": ModelsFile,
    "servers": ServersFile,
    "keys": KeysFile,
}
_BY_ID: dict[str, type[ConfigFile]] = {
    "case_id": TestCaseFile,
    **{kind.id_field: kind.model for kind in OWN_KINDS.values()},
}
_CASSETTE = re.compile(r"-r[0-9]+\.yaml$")


def all_kinds() -> dict[str, type[ConfigFile]]:
    """Return every kind of configuration file, including the kinds of packs, by its schema's name."""
    return {**KINDS, **{kind.name: kind.model for kind in added_kinds()}}


def kind_of(path: Path) -> type[ConfigFile] | None:
    """Return the kind of a YAML file, or None if it is no configuration file."""
    if path.suffix not in YAML_SUFFIXES or ("cassettes" in path.parts[-3:-1] and _CASSETTE.search(path.name)):
        return None
    if path.parent.name in OWN_KINDS:
        return OWN_KINDS[path.parent.name].model
    if path.match("agents/*/agent.*") and (_says(path, "argv") or _says(path, "acp")):
        return AgentProgram
    for folder in {path.parent.name, path.parent.parent.name} & added_folders():
        kind = added_kind(folder)
        if kind is not None and path.match(f"{folder}/{kind.pattern}"):
            return kind.model
    if path.stem in _BY_NAME:
        return _BY_NAME[path.stem]
    named = _kind_of_name(path.name)
    try:
        data = read_document(path).data
    except ConfigError:
        return named
    if not isinstance(data, dict) or "schema_version" not in data:
        return None
    if named is not None:
        return named
    by_id = _BY_ID if _BY_ID.keys() & data.keys() else {each.id_field: each.model for each in added_kinds()}
    return next((kind for key, kind in by_id.items() if key in data), None)


def _says(path: Path, key: str) -> bool:
    """Return whether a file has a key: a pack may have files of other keys in the same place."""
    try:
        data = read_document(path).data
    except ConfigError:
        return False
    return isinstance(data, dict) and key in data


def _kind_of_name(name: str) -> type[ConfigFile] | None:
    """Return the kind of a file of that name, which other tools may use too."""
    if is_descriptor_name(name):
        return DatasetDescriptor
    return None


def find_named(folder: Path, names: Collection[str]) -> Iterator[Path]:
    """Yield every file with one of the names below a folder; hidden folders and agents' workspaces are left out."""
    for place, folders, files in walk_folders(folder):
        folders[:] = visited_folders(folders)
        yield from (Path(place, name) for name in files if name in names)


def find_config_files(folder: Path) -> Iterator[tuple[Path, type[ConfigFile]]]:
    """Yield every configuration file below a folder with its kind.

    Other YAML files in a case's folder are the case's own; hidden folders and agents' workspaces are left out.
    """
    for place, folders, files in walk_folders(folder):
        case_files = [name for name in files if name in ("test.yaml", "test.yml")]
        folders[:] = [each for each in visited_folders(folders) if not (case_files and each == "verify")]
        for name in sorted(case_files or files):
            path = Path(place, name)
            kind = kind_of(path)
            if kind is not None:
                yield path, kind


def json_schemas() -> dict[str, dict[str, Any]]:
    """Return names with JSON Schemas (draft 2020-12). Descriptions are the docstrings of models and their fields.

    The models of files with cases that packs read are in the field `schemas` of a Pack.
    """
    added = load_extensions("schema")
    return {name: _schema(name, kind) for name, kind in {**all_kinds(), **added}.items()}


def described_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a file's model, with the docstrings of fields as their descriptions."""
    if issubclass(kind, ConfigFile):
        kind = kind.with_sections()
    schema = kind.model_json_schema(schema_generator=_DescribedSchema)
    if issubclass(kind, SectionedFile):  # which lets sections pass, and nothing else
        schema["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _schema(name: str, kind: type[BaseModel]) -> dict[str, Any]:
    schema = described_schema(kind)
    definitions: dict[str, Any] = schema.get("$defs", {})
    known = BUILTIN_KINDS | _describe_added_checks(definitions)
    if "CustomCheck" in definitions:
        # Else a built-in check would match this alternative too, and a misspelt one only this.
        definitions["CustomCheck"]["properties"]["kind"]["not"] = {"enum": sorted(known)}
    if "RunnerSpec" in definitions:
        _complete(definitions["RunnerSpec"])
        # Settings that runners of programs read themselves
        env = definitions["RunnerSpec"]["properties"]["env"]
        env["description"] += " A mapping: variables of the program that `command` or `agent` starts."
        env["anyOf"].insert(1, {"type": "object"})
    files_of_cases = (TestCaseFile, DatasetDescriptor, *load_extensions("schema").values())
    if kind in files_of_cases and "McpServer" in definitions:  # cases do not choose where their servers run
        del definitions["McpServer"]["properties"]["sandbox"], definitions["SandboxSettings"]
    for layer in _layers(schema):
        _complete(layer)
    return {**schema, "title": f"pytest-agentbench {name.replace('_', ' ')}"}


def _describe_added_checks(definitions: dict[str, Any]) -> frozenset[str]:
    """Let an editor complete and check the fields of packs' typed checks; return their kinds."""
    if "CustomCheck" not in definitions:
        return frozenset()
    typed: dict[str, type[BaseModel]] = {
        name: each for name, each in load_extensions("check").items() if isinstance(each, type)
    }
    alternatives = definitions["Declarative"]["oneOf"]
    for check in typed.values():
        schema = check.model_json_schema(schema_generator=_DescribedSchema)
        definitions |= {**schema.pop("$defs", {}), check.__name__: schema}
        alternatives.insert(-1, {"$ref": f"#/$defs/{check.__name__}"})
    return frozenset(typed)


def _layers(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of the runner settings in a run profile."""
    properties = schema.get("properties", {})
    if "runner_defaults" not in properties:
        return []
    return [properties["runner_defaults"], properties["model_overrides"]["additionalProperties"]]


def _complete(layer: dict[str, Any]) -> None:
    """Let an editor complete and check the settings that `llm_probe` reads; others stay allowed, and null removes."""
    schema = RunnerSettings.model_json_schema(schema_generator=_DescribedSchema)
    parts = {f"#/$defs/{name}": part for name, part in schema.get("$defs", {}).items()}
    properties = layer.setdefault("properties", {})
    for name, setting in schema["properties"].items():
        description = setting.pop("description")
        alternatives = setting.get("anyOf", [{k: v for k, v in setting.items() if k not in ("default", "title")}])
        # Inline, as the layer's own schema has no such definitions
        inline = [parts[each["$ref"]] if "$ref" in each else each for each in alternatives if each != {"type": "null"}]
        title = setting.get("title", name.capitalize())
        properties[name] = {"title": title, "description": description, "anyOf": [*inline, {"type": "null"}]}


class _DescribedSchema(GenerateJsonSchema):
    """Write the docstrings of fields as their descriptions, of models and of those in their fields."""

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        definition, model = super().model_schema(schema), schema["cls"]
        docs = {name: text for base in reversed(model.__mro__) for name, text in _attribute_docs(base).items()}
        for name, field in model.model_fields.items():
            described = definition.get("properties", {}).get(field.alias or name)
            if described is not None and (name in docs or "const" in described):
                described.setdefault("description", docs.get(name, "Always this."))
        return definition


@cache
def _attribute_docs(model: type) -> dict[str, str]:
    """Return the docstrings under a model's fields, read from its source: pydantic's option would slow every import."""
    if not issubclass(model, BaseModel) or model is BaseModel:
        return {}
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    if not isinstance(body, ast.ClassDef):
        return {}
    return {
        line.target.id: inspect.cleandoc(text.value.value)
        for line, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
