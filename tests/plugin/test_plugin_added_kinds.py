"""A distribution of somebody else's adds a runner, a profile section, a typed check and a sandbox by entry points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pytest_agentbench import extensions
from pytest_agentbench.cli.checker import Checker
from pytest_agentbench.config.base import load
from pytest_agentbench.config.kinds import json_schemas
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.engine.services import build_registry
from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.identity.fingerprints import plain, run_fingerprint_input, run_profile_input
from pytest_agentbench.records.case import Model, SandboxSettings
from pytest_agentbench.sources.test_yaml import load_case
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

MODEL = Model(model_id="m", requested_model="m")
SAMPLE = '''
from typing import Literal
from pytest_agentbench import Pack, SandboxProvider, Tool
from pytest_agentbench.checks.base import CheckSpec, verdict
from pytest_agentbench.config.sections import ProfileSection
from pytest_agentbench.records.base import Record
from pytest_agentbench.records.base import CasePart
from pytest_agentbench.runners.kinds import Prepared, RunnerKind

class Settings(Record):
    tempo: int = 1

SECTION = ProfileSection("sample", "run_profile", Settings, "How fast.", default=Settings)

class Runner(RunnerKind):
    own_tools = True
    def prepare(self, request):
        return Prepared(identity={"sample": request.profile.section(SECTION)})

RUNNER = Runner()

class IsHaiku(CheckSpec):
    kind: Literal["is_haiku"]
    lines: int = 3
    def check(self, context):
        return verdict(len((context.artifact.final_output or "").splitlines()) == self.lines, "counted")

class Budget(CasePart):
    """How much an answer may hold."""

    is_section = True
    words: int = 3
    """The most words."""

class Sandbox(SandboxProvider):
    def problem(self):
        return "the farm is closed; open it"

def thing(*arguments):
    pass

PACK = Pack(
    "added",
    run_profile_sections={"sample": SECTION},
    runners={"sample": Runner()},
    checks={"is_haiku": IsHaiku},
    sandboxes={"farm": Sandbox()},
    tools={"thing": Tool("thing", "Does nothing.", {}, thing)},
    metrics={"thing": thing},
    judges={"thing": thing},
    model_providers={"thing": "agentbench_added:thing"},
    case_parts={"budget": Budget},
)
'''
ENTRIES = "[pytest_agentbench.packs]\nadded = agentbench_added:PACK\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfigRoot]:
    """A config root, with the sample distribution installed."""
    site = tmp_path / "site"
    info = site / "agentbench_added-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: agentbench-added\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    (site / "agentbench_added.py").write_text(SAMPLE)
    monkeypatch.syspath_prepend(str(site))
    extensions.forget_packs()
    (tmp_path / "root" / "run_profiles").mkdir(parents=True)
    yield ConfigRoot(tmp_path / "root")
    monkeypatch.undo()
    extensions.forget_packs()


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


@pytest.mark.slow
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
    with pytest.raises(ConfigError, match="the runner sample has its own tools"):
        load_case(case(root, input=offered), root, known)


@pytest.mark.slow
def test_fields_of_a_typed_check_are_read_and_described(root: ConfigRoot) -> None:
    known = build_registry().known
    [check] = load_case(case(root, deterministic_checks=haiku(lines=5)), root, known).checks
    assert check.declarative is not None
    assert check.declarative.model_dump() == {"kind": "is_haiku", "lines": 5}
    assert check.model_dump()["declarative"] == {"kind": "is_haiku", "lines": 5}
    with pytest.raises(ConfigError, match=r"test.yaml:\d+:\d+: deterministic_checks.*lines: found 'many', expected"):
        load_case(case(root, deterministic_checks=haiku(lines="many")), root, known)
    with pytest.raises(ConfigError, match=r"declarative.line: unknown field; did you mean 'lines'\?"):
        load_case(case(root, deterministic_checks=haiku(line=5)), root, known)
    assert "IsHaiku" in json_schemas()["test_case"]["$defs"]


@pytest.mark.slow
def test_a_part_of_cases_is_a_section_of_their_files(root: ConfigRoot) -> None:
    written = load_case(case(root, budget={"words": 5}), root)
    assert written.budget.words == 5
    assert run_fingerprint_input(written, MODEL, "sample", {}, 1)["parts"]["budget"] == plain(written.budget)
    assert "parts" not in run_fingerprint_input(load_case(case(root), root), MODEL, "sample", {}, 1)
    with pytest.raises(ConfigError, match=r"test.yaml:2:10: budget.words: found 'few', expected"):
        load_case(case(root, budget={"words": "few"}), root)
    with pytest.raises(ConfigError, match="did you mean 'budget'"):
        load_case(case(root, bugdet={}), root)
    schema = json_schemas()["test_case"]
    assert schema["properties"]["budget"] == {"$ref": "#/$defs/Budget"}
    assert schema["$defs"]["Budget"]["description"] == "How much an answer may hold."
    assert schema["$defs"]["Budget"]["properties"]["words"]["description"] == "The most words."
    assert not schema["additionalProperties"]


def test_validate_says_yes_to_a_part_that_is_installed_and_names_what_it_has_wrong(root: ConfigRoot) -> None:
    for words, errors in ((5, 0), ("few", 1)):
        checker = Checker(SessionRoots(root.path, root.path))
        checker.check(case(root, budget={"words": words}, report_only=True))
        assert checker.cases == 1 - errors
        assert sum(finding.is_error for finding in checker.findings) == errors, checker.findings


def test_a_profile_may_name_a_packs_sandbox(root: ConfigRoot) -> None:
    settings = profile(root, sandbox={"type": "farm"}).sandbox_settings
    assert settings.model_dump()["type"] == "farm"
    with pytest.raises(UnavailableError, match="farm: the farm is closed; open it"):
        Sandboxes(Workspaces()).spec(settings)
    with pytest.raises(ValueError, match="'auto', 'docker', 'bubblewrap', 'local' or 'farm'"):
        SandboxSettings.model_validate({"type": "barn"})


def test_tools_metrics_judges_and_providers_are_found_by_their_names(root: ConfigRoot) -> None:
    registry = build_registry()
    found = [each["thing"] for each in (registry.metrics, registry.judges, registry.providers)]
    assert found == [find_extension("metric", "thing")] * 3
    assert registry.tools["thing"].name == "thing"
    assert "thing" in registry.known.tools & registry.known.metrics
