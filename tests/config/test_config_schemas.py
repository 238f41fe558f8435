from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from pytest_agentbench.config.agent_file import AgentProgram
from pytest_agentbench.config.kinds import all_kinds, described_schema, find_config_files, json_schemas
from pytest_agentbench.extensions import extension_names

SHARED = Path(__file__).parents[3] / "shared" / "data" / "config"


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict[str, Any]]:
    return json_schemas()


def check(**fields: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "case_id": "a",
        "title": "A",
        "runner": {"type": "llm_probe"},
        "input": {},
        "deterministic_checks": [{"check_id": "c", "declarative": fields}],
    }


@pytest.mark.slow
def test_there_is_a_valid_schema_for_every_kind(schemas):
    assert schemas.keys() == all_kinds().keys() | extension_names("schema")
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["additionalProperties"] is False
        assert schema["properties"]["schema_version"]["const"] == 1


@pytest.mark.slow
def test_every_field_of_the_configuration_files_is_described(schemas):
    for name, schema in schemas.items():
        assert schema["description"]
        for field, described in schema["properties"].items():
            assert described.get("description"), f"{name}.{field}"


def test_another_class_of_the_same_name_takes_no_description_away() -> None:
    made = described_schema(AgentProgram)
    namesake = type("Reading", (BaseModel,), {"__module__": "elsewhere"})
    assert described_schema(AgentProgram) == made
    assert made["$defs"][namesake.__name__]["properties"]["file"]["description"]


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the conformance data are not here")
def test_the_conformance_data_satisfy_the_schemas(schemas):
    names = {kind: name for name, kind in all_kinds().items()}
    files = list(find_config_files(SHARED))
    assert files
    for path, kind in files:
        Draft202012Validator(schemas[names[kind]]).validate(yaml.safe_load(path.read_text()))


def test_a_built_in_check_accepts_only_its_own_fields(schemas):
    validator = Draft202012Validator(schemas["test_case"])
    for fields, valid in [
        ({"kind": "tool_call_count", "count": 3}, True),
        ({"kind": "tool_call_count", "count": "3"}, False),
        ({"kind": "tool_call_count", "cuont": 3}, False),
        ({"kind": "json_schema", "schema": {"type": "object"}}, True),
        ({"kind": "of_a_plugin", "anything": 1}, True),
    ]:
        assert validator.is_valid(check(**fields)) is valid, fields


@pytest.mark.parametrize(
    ("kind", "valid"), [("test_case", False), ("dataset", False), ("servers", True), ("run_profile", True)]
)
def test_only_where_it_may_stand_a_servers_sandbox_is_offered(schemas, kind, valid):
    definitions = schemas[kind]["$defs"]
    server = {"$ref": "#/$defs/McpServer", "$defs": definitions}
    assert Draft202012Validator(server).is_valid({"command": "x"})
    assert Draft202012Validator(server).is_valid({"command": "x", "sandbox": "local"}) is valid


@pytest.mark.parametrize(
    ("defaults", "valid"), [({"temperature": 3}, False), ({"temperature": None}, True), ({"anything": 1}, True)]
)
def test_runner_settings_are_checked_and_open(schemas, defaults, valid):
    profile = {"schema_version": 1, "run_profile_id": "a", "title": "A"}
    validator = Draft202012Validator(schemas["run_profile"])
    assert validator.is_valid({**profile, "runner_defaults": defaults}) is valid
    assert validator.is_valid({**profile, "model_overrides": {"m": defaults}}) is valid
    case = check(kind="final_response_present") | {"runner": {"type": "llm_probe", **defaults}}
    assert Draft202012Validator(schemas["test_case"]).is_valid(case) is valid


@pytest.mark.parametrize(("env", "valid"), [("serial", True), ({"TZ": "UTC"}, True), ("parallel", False), (1, False)])
def test_variables_of_a_program_stand_where_serial_may(schemas, env, valid):
    case = {**check(kind="final_response_present"), "runner": {"type": "command", "command": ["x"], "env": env}}
    assert Draft202012Validator(schemas["test_case"]).is_valid(case) is valid
