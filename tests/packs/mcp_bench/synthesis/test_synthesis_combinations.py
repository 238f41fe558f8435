"""Combinations of servers, from a file as MCP-Bench has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from synthesis_samples import DATA

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.mcp_bench.synthesis.base import Combination, read_combinations

FARES = {"name": "Fares", "servers": ["Trains", "Money"], "description": "Trains and money"}


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_however_a_file_is_indented(tmp_path: Path, indent: int | str | None) -> None:
    path = tmp_path / "combinations.json"
    path.write_text(json.dumps({"mcp_server_combinations": {"two": [FARES]}}, indent=indent), encoding="utf-8")
    assert read_combinations(path) == [Combination.model_validate(FARES)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "combinations.json:1:2: not valid JSON"),
        ('{"mcp_server_combinations": []}', "combinations.json:1:29: mcp_server_combinations"),
        ('{"mcp_server_combinations": {"two": []}}', "found no combination"),
        ('{"mcp_server_combinations": {"two": [{"name": "a", "servers": []}]}}', "two[0].servers"),
        ('{"server_tasks": []}', "mcp_server_combinations"),
    ],
)
def test_a_file_of_something_else(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "combinations.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_combinations(path)


@pytest.mark.skipif(not DATA.is_dir(), reason="the data of MCP-Bench does not lie beside this checkout")
@pytest.mark.parametrize(("name", "count", "kind"), [("2server", 15, "two_server"), ("3server", 9, "three_server")])
def test_those_of_mcp_bench(name: str, count: int, kind: str) -> None:
    combinations = read_combinations(DATA / f"mcp_{name}_combinations.json")
    assert [each.type for each in combinations] == [kind] * count
    assert all(each.description for each in combinations)
