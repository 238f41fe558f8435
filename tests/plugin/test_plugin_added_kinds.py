"""A distribution of somebody else's adds a runner, a profile section, a typed check and a sandbox by entry points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pytest_agentbench import extensions
from pytest_agentbench.config.kinds import json_schemas
from pytest_agentbench.config.loader import load
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.registry import build_registry
from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.sources.test_yaml import load_case
from pytest_agentbench.store.fingerprints import run_profile_input
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

SAMPLE = """
from typing import Literal
from pytest_agentbench.checks.base import CheckSpec, verdict
from pytest_agentbench.config.sections import ProfileSection
from pytest_agentbench.records.base import Record
from pytest_agentbench.runners.kinds import Prepared, RunnerKind, RunnerSession

class Settings(Record):
    tempo: int = 1

SECTION = ProfileSection("sample", "run_profile", Settings, "How fast.", default=Settings)

class Session(RunnerSession):
    def prepare(self, request):
        return Prepared(identity={"sample": request.profile.section(SECTION)})

class Runner(RunnerKind):
    own_tools = True
    def open(self, parts):
        return Session()

RUNNER = Runner()

class IsHaiku(CheckSpec):
    kind: Literal["is_haiku"]
    lines: int = 3
    def check(self, context):
        return verdict(len((context.artifact.final_output or "").splitlines()) == self.lines, "counted")

class Sandbox:
    def problem(self):
        return "the farm is closed; open it"

SANDBOX = Sandbox()
"""
ENTRIES = """[pytest_agentbench.packs]
run_profile sample = agentbench_sample:SECTION
runner sample = agentbench_sample:RUNNER
check is_haiku = agentbench_sample:IsHaiku
sandbox farm = agentbench_sample:SANDBOX
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfigRoot]:
    """A config root, with the sample distribution installed."""
    site = tmp_path / "site"
    info = site / "agentbench_sample-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: agentbench-sample\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    (site / "agentbench_sample.py").write_text(SAMPLE)
    monkeypatch.syspath_prepend(str(site))
    extensions._table.cache_clear()
    (tmp_path / "root" / "run_profiles").mkdir(parents=True)
    yield ConfigRoot(tmp_path / "root")
    monkeypatch.undo()
    extensions._table.cache_clear()


def profile(root: ConfigRoot, **fields: object) -> RunProfile:
    path = root.path / "run_profiles" / "p.yaml"
    path.write_text(yaml.safe_dump({"schema_version": 1, "run_profile_id": "p", "title": "P", **fields}))
    return load(path, RunProfile)


def case(root: ConfigRoot, **fields: object) -> Path:
    path = root.path / "cases" / "c" / "test.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {"schema_version": 1, "case_id": "c", "title": "C", "runner": {"type": "sample"}}
    path.write_text(yaml.safe_dump({**given, "input": {"messages": [{"role": "user", "content": "x"}]}, **fields}))
    return path


def haiku(**fields: object) -> list[dict[str, object]]:
    return [{"check_id": "h", "declarative": {"kind": "is_haiku", **fields}}]


def test_a_section_is_read_covered_and_refused_like_a_field(root: ConfigRoot) -> None:
    with_tempo = profile(root, sample={"tempo": 3})
    assert run_profile_input(with_tempo)["sample"].tempo == 3
    assert "sample" not in run_profile_input(profile(root))
    with pytest.raises(ConfigError, match=r"p.yaml:3:10: sample.tempo: found 'fast', expected"):
        profile(root, sample={"tempo": "fast"})
    with pytest.raises(ConfigError, match="did you mean 'sample'"):
        profile(root, sampel={})
    assert "sample" in json_schemas()["run_profile"]["properties"]


def test_a_runner_with_tools_of_its_own_is_offered_none(root: ConfigRoot) -> None:
    known = build_registry().known
    assert load_case(case(root), root, known).runner.type == "sample"
    offered = {"messages": [{"role": "user", "content": "x"}], "context": {"llm_probe": {"tools": ["read_file"]}}}
    with pytest.raises(ConfigError, match="the runner sample has tools of its own"):
        load_case(case(root, input=offered), root, known)


def test_fields_of_a_typed_check_are_read_and_described(root: ConfigRoot) -> None:
    known = build_registry().known
    [check] = load_case(case(root, deterministic_checks=haiku(lines=5)), root, known).checks
    assert check.declarative is not None
    assert check.declarative.model_dump() == {"kind": "is_haiku", "lines": 5}
    assert check.model_dump()["declarative"] == {"kind": "is_haiku", "lines": 5}
    with pytest.raises(ConfigError, match=r"test.yaml:\d+:\d+: deterministic_checks.*lines: found 'many', expected"):
        load_case(case(root, deterministic_checks=haiku(lines="many")), root, known)
    assert "IsHaiku" in json_schemas()["test_case"]["$defs"]


def test_a_profile_may_name_a_packs_sandbox(root: ConfigRoot) -> None:
    settings = profile(root, sandbox={"type": "farm"}).sandbox_settings
    assert settings.model_dump()["type"] == "farm"
    with pytest.raises(UnavailableError, match="farm: the farm is closed; open it"):
        Sandboxes(Workspaces()).spec(settings)
    with pytest.raises(ValueError, match="'auto', 'docker', 'bubblewrap' or 'local'"):
        SandboxSettings.model_validate({"type": "barn"})
