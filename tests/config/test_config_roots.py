from __future__ import annotations

import os

import pytest

from pytest_agentbench.config.profiles import RunProfile, merge_runner_settings
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.config.session_roots import find_root
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.openclaw.config import AgentFile, find_agent_file


def make_suite(folder):
    """Make a configuration root of a folder."""
    (folder / "suites").mkdir(parents=True)
    (folder / "suites" / "any.yaml").write_text("schema_version: 1\n")


@pytest.fixture
def profile(tmp_path):
    def write(name, declared, **more):
        path = tmp_path / "run_profiles" / name
        path.parent.mkdir(exist_ok=True)
        fields = "".join(f"{key}: {value}\n" for key, value in more.items())
        path.write_text(f"schema_version: 1\nrun_profile_id: {declared}\ntitle: T\n{fields}")
        return path

    return write


@pytest.fixture
def root(tmp_path):
    return ConfigRoot(tmp_path)


def test_a_profile_is_found_by_stem_by_id_and_by_path(root, profile, tmp_path, monkeypatch):
    path = profile("standard.yaml", "standard_run")
    monkeypatch.chdir(tmp_path)
    names = ("standard", "standard_run", str(path), "run_profiles/standard.yaml")
    assert {root.run_profile(name).run_profile_id for name in names} == {"standard_run"}


def test_a_path_may_be_relative_to_the_root(root, profile, tmp_path, monkeypatch):
    profile("standard.yml", "a")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert root.run_profile("run_profiles/standard.yml").run_profile_id == "a"


def test_stem_and_id_that_name_two_files_are_ambiguous(root, profile):
    first, second = profile("quick.yaml", "one"), profile("other.yaml", "quick")
    with pytest.raises(ConfigError) as error:
        root.run_profile("quick")
    assert str(first) in str(error.value)
    assert str(second) in str(error.value)


def test_yaml_and_yml_are_ambiguous(root, profile):
    profile("quick.yaml", "one")
    profile("quick.yml", "two")
    with pytest.raises(ConfigError, match="'quick' is ambiguous"):
        root.run_profile("quick")


def test_an_unknown_name_is_an_error_that_lists_the_names(root, profile):
    profile("standard.yaml", "standard_run")
    with pytest.raises(ConfigError, match="there is no run profile 'standrad'; did you mean 'standard'"):
        root.run_profile("standrad")
    with pytest.raises(ConfigError, match="there is no run profile 'x'; there is standard, standard_run"):
        root.run_profile("x")
    with pytest.raises(ConfigError, match="there is no suite 'x'; there are none"):
        root.suite("x")
    with pytest.raises(ConfigError, match="there is no such run profile file"):
        root.run_profile("./x.yaml")


def test_one_broken_file_does_not_hide_the_others(root, profile):
    profile("good.yaml", "fine")
    profile("bad.yaml", "[")
    assert root.run_profile("fine").run_profile_id == "fine"
    with pytest.raises(ConfigError, match=r"bad\.yaml:"):
        root.run_profile("bad")


def test_an_agent_is_a_folder(root, tmp_path):
    folder = tmp_path / "agents" / "helper"
    (folder / "workspace").mkdir(parents=True)
    (folder / "agent.yaml").write_text("schema_version: 1\nagent_id: helper\ntitle: H\n")
    names = ("helper", str(folder), "agents/helper/agent.yaml")
    first, *others = [root.load(find_agent_file(root, name), AgentFile) for name in names]
    assert others == [first, first]


def test_models_are_none_without_the_file(root, tmp_path):
    assert root.models().models == ()
    (tmp_path / "models.yaml").write_text("schema_version: 1\nmodels: [{model_id: demo, judge: demo}]\n")
    entry = root.models().get("demo")
    assert entry is not None
    assert entry.judge == "demo"
    assert root.models().get("other") is None


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(root, profile):
    path = profile("a.yaml", "a")
    first = root.run_profile("a")
    assert root.run_profile("a") is first
    profile("a.yaml", "a", sandbox="local")
    os.utime(path, ns=(1, 1))
    assert root.run_profile("a").sandbox == "local"


def test_the_nearest_folder_with_configuration_is_the_root(tmp_path):
    make_suite(tmp_path)
    inner = tmp_path / "cases" / "group"
    (inner / "one").mkdir(parents=True)
    (inner / "models.yaml").write_text("schema_version: 1\n")
    (tmp_path / "cases" / "two").mkdir()
    assert find_root(inner / "one" / "test.yaml", tmp_path, None).path == inner
    assert find_root(tmp_path / "cases" / "two" / "test.yaml", tmp_path, None).path == tmp_path
    assert find_root(inner / "one" / "test.yaml", tmp_path, tmp_path).path == tmp_path


def test_the_search_ends_at_rootdir(tmp_path):
    make_suite(tmp_path)
    project = tmp_path / "project"
    (project / "cases" / "one").mkdir(parents=True)
    assert find_root(project / "cases" / "one" / "test.yaml", project, None).path == project


def test_a_file_outside_rootdir_has_its_own_root(tmp_path):
    project, other = tmp_path / "project", tmp_path / "projects"
    make_suite(other)
    (other / "case").mkdir()
    assert find_root(other / "case" / "test.yaml", project, None).path == other
    assert find_root(tmp_path / "lone" / "test.yaml", project, None).path == tmp_path / "lone"


def test_all_cases_of_a_root_share_it(tmp_path):
    make_suite(tmp_path)
    assert find_root(tmp_path / "a" / "test.yaml", tmp_path, None) is find_root(
        tmp_path / "b" / "test.yaml", tmp_path, None
    )


def test_settings_merge_from_profile_to_case_and_null_removes():
    profile = RunProfile(
        schema_version=1,
        run_profile_id="p",
        title="P",
        runner_defaults={"temperature": 0, "max_tokens": 100, "seed": 1, "type": "llm_probe"},
        model_overrides={"big": {"max_tokens": 4000, "seed": None}},
    )
    assert merge_runner_settings(profile, "small", {}) == {"temperature": 0, "max_tokens": 100, "seed": 1}
    assert merge_runner_settings(profile, "big", {"temperature": 1}) == {"temperature": 1, "max_tokens": 4000}
    assert merge_runner_settings(profile, "big", {"max_tokens": None}) == {"temperature": 0}


def test_settings_have_the_documented_defaults_and_pass_the_rest_on():
    settings = RunnerSettings.model_validate({"temperature": 0, "retries": 2, "logit_bias": {"1": 2}})
    assert (settings.timeout_seconds, settings.retries, settings.max_turns) == (30, 2, 8)
    assert settings.extras == {"logit_bias": {"1": 2}}
    assert settings.request_parameters == {"temperature": 0, "logit_bias": {"1": 2}}
