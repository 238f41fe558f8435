"""JSON Schemas of all configuration files, for editors."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from pydantic import BaseModel

from pytest_agentbench.config.base import ConfigFile
from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.dataset_file import DatasetDescriptor
from pytest_agentbench.config.kinds import KINDS
from pytest_agentbench.config.reports_file import ReportsFile
from pytest_agentbench.config.settings import RunnerSettings
from pytest_agentbench.records import BUILTIN_KINDS


def json_schemas() -> dict[str, dict[str, Any]]:
    """Name to JSON Schema (draft 2020-12). Descriptions are the docstrings of the models and of their fields."""
    return {name: _schema(name, kind) for name, kind in KINDS.items()}


def described_schema(kind: type[ConfigFile]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a kind of file, with the docstrings of fields as their descriptions."""
    schema = kind.model_json_schema()
    models = {model.__name__: model for model in _models(BaseModel)}
    for title, definition in ((kind.__name__, schema), *schema.get("$defs", {}).items()):
        if title in models:
            _describe(definition, models[title])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _schema(name: str, kind: type[ConfigFile]) -> dict[str, Any]:
    schema = described_schema(kind)
    definitions: dict[str, Any] = schema.get("$defs", {})
    if "CustomCheck" in definitions:
        # Else a built-in check would match this alternative too, and a misspelt one only this.
        definitions["CustomCheck"]["properties"]["kind"]["not"] = {"enum": sorted(BUILTIN_KINDS)}
    if "RunnerSpec" in definitions:
        _complete(definitions["RunnerSpec"])
    if kind in (TestCaseFile, DatasetDescriptor, ReportsFile):  # which may not say where their servers run
        del definitions["McpServer"]["properties"]["sandbox"], definitions["SandboxSettings"]
    for layer in _layers(schema):
        _complete(layer)
    return {**schema, "title": f"pytest-agentbench {name.replace('_', ' ')}"}


def _layers(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The places of a run profile where runner settings stand."""
    properties = schema["properties"]
    if "runner_defaults" not in properties:
        return []
    return [properties["runner_defaults"], properties["model_overrides"]["additionalProperties"]]


def _complete(layer: dict[str, Any]) -> None:
    """Let an editor complete and check the settings that `llm_probe` reads; others stay allowed, and null removes."""
    settings = RunnerSettings.model_json_schema()["properties"]
    docs = _attribute_docs(RunnerSettings)
    properties = layer.setdefault("properties", {})
    for name, setting in settings.items():
        alternatives = setting.get("anyOf", [{k: v for k, v in setting.items() if k not in ("default", "title")}])
        nullable = [*(a for a in alternatives if a != {"type": "null"}), {"type": "null"}]
        properties[name] = {"title": setting["title"], "description": docs[name], "anyOf": nullable}


def _describe(definition: dict[str, Any], model: type[BaseModel]) -> None:
    docs = {name: text for base in reversed(model.__mro__) for name, text in _attribute_docs(base).items()}
    for name, field in model.model_fields.items():
        described = definition.get("properties", {}).get(field.alias or name)
        if described is not None and (name in docs or "const" in described):
            described.setdefault("description", docs.get(name, "Always this."))


def _attribute_docs(model: type) -> dict[str, str]:
    """Field name to the docstring under it. Read from the source only here: it would cost every import."""
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


def _models(base: type[BaseModel]) -> list[type[BaseModel]]:
    return [model for sub in base.__subclasses__() for model in (sub, *_models(sub))]
