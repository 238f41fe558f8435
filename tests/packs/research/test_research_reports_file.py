from __future__ import annotations

import pytest
import yaml
from jsonschema import Draft202012Validator

from pytest_agentbench.config.base import Scope, load_in
from pytest_agentbench.config.kinds import json_schemas
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.cases import REPORTS
from pytest_agentbench.packs.research.reports_file import ReportsFile
from pytest_agentbench.packs.research.stages import PARTS, SCORES, UNBOUNDED
from pytest_agentbench.sources.discovery import find_source
from pytest_agentbench.sources.names import source_names

FILES = ("gpt.jsonl", "claude.jsonl", "query.jsonl", "criteria.jsonl")
WHOLE = {"reports": ["gpt.jsonl"], "criteria": "criteria.jsonl", "annotations": "ann"}


@pytest.fixture
def loaded(tmp_path):
    """Loads a reports.yaml of these fields."""
    for name in FILES:
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "ann").mkdir()

    def load(**fields):
        path = tmp_path / "reports.yaml"
        path.write_text(yaml.safe_dump({"schema_version": 1, **fields}, sort_keys=False))
        return load_in(path, ReportsFile, Scope(str(tmp_path), str(tmp_path)))

    return load


def test_everything_is_scored_unless_parts_are_named(loaded):
    assert loaded(**WHOLE).parts == PARTS
    assert loaded(reports=["gpt.jsonl"], parts=["fact"]).parts == ("fact",)
    assert loaded(**WHOLE, parts=["strategic", "race"]).parts == ("race", "strategic")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"parts": ["fact"]}, "found neither reports nor queries"),
        ({"reports": [], "parts": ["fact"]}, "reports: found none, expected at least one path or pattern"),
        ({"reports": ["no*.jsonl"], "parts": ["fact"]}, "reports[0]: found 'no*.jsonl', which matches no"),
        ({"reports": ["../x.jsonl"], "parts": ["fact"]}, "which leaves"),
        ({"reports": ["gpt.jsonl"], "parts": []}, "parts: found none, expected at least one of race"),
        ({"reports": ["gpt.jsonl"], "parts": ["races"]}, "parts[0]: found 'races', expected 'race', 'fact'"),
        (
            {"reports": ["gpt.jsonl"]},
            "found no criteria, which race needs; name them, or leave it out: "
            "parts: [fact, efficiency, strategic, interaction]",
        ),
        (
            {"reports": ["gpt.jsonl"], "criteria": "criteria.jsonl"},
            "found no annotations, which efficiency, strategic, interaction and poet need; name them, or leave it "
            "out: parts: [race, fact]",
        ),
        (
            {**WHOLE, "parts": ["race", "poet"]},
            "parts: found poet without fact, efficiency and strategic, which it is made of",
        ),
        ({"reports": ["gpt.jsonl"], "parts": ["fact"], "cleaning": "model"}, "only race judges a cleaned article"),
        ({**WHOLE, "thresholds": {"races": 1}}, "thresholds.races: found no score of that name, expected one of race,"),
        ({**WHOLE, "thresholds": {"race_sd": 0.1}}, "thresholds.race_sd: found no score of that name"),
        ({**WHOLE, "thresholds": {"race": 4.5}}, "thresholds.race: found 4.5, expected a number from 0 to 1"),
        (
            {"reports": ["gpt.jsonl"], "parts": ["fact"], "thresholds": {"race": 0.5}},
            "thresholds.race: a score of race, which is not among the parts",
        ),
        ({**WHOLE, "knowledge_base": "ann"}, "knowledge_base: found 'ann', which is a folder, expected a file"),
        ({**WHOLE, "knowledge_base": "/tmp/k.jsonl"}, "which leaves"),
        ({**WHOLE, "queries": "queries.jsonl"}, "queries: found 'queries.jsonl', expected an existing file"),
        ({**WHOLE, "anotations": "ann"}, "did you mean 'annotations'?"),
    ],
)
def test_errors_in_a_reports_file_contain_their_place(loaded, fields, problem):
    with pytest.raises(ConfigError) as raised:
        loaded(**fields)
    assert problem in str(raised.value)
    assert "reports.yaml:" in str(raised.value)


def test_files_of_one_stem_are_one_model(loaded, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "gpt.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"reports\[1\]: found .*which are of one model \('gpt'\)"):
        loaded(reports=["gpt.jsonl", "more/*.jsonl"], parts=["fact"])


def test_scores_in_units_of_their_own_have_any_threshold(loaded):
    assert loaded(**WHOLE, thresholds={"cost_saving_usd": 120, "race": 0.5}).thresholds["cost_saving_usd"] == 120
    assert {name for names in SCORES.values() for name in names} > UNBOUNDED


@pytest.mark.parametrize("name", ["reports.yaml", "reports.yml", "drb.reports.yaml"])
def test_a_file_is_known_by_its_name(tmp_path, name):
    path = tmp_path / name
    path.write_text("schema_version: 1\n")
    assert find_source(path) is REPORTS
    path.write_text("reports: of another tool\n")
    assert find_source(path) is None


@pytest.mark.parametrize("name", ["reports.demo.yaml", "myreports.yaml", "reports.json"])
def test_other_names_are_other_files(name):
    assert "reports" not in [each.name for each in source_names(name)]


@pytest.mark.slow
def test_the_schema_knows_the_parts():
    validator = Draft202012Validator(json_schemas()["reports"])
    assert validator.is_valid({"schema_version": 1, **WHOLE, "parts": ["race"]})
    assert not validator.is_valid({"schema_version": 1, **WHOLE, "parts": ["races"]})
    assert not validator.is_valid({"schema_version": 1, **WHOLE, "cleaning": "yes"})
