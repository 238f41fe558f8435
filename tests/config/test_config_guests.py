"""The user's config root is told from guests' roots, and guests' files are limited."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_agentbench.config.grants import Trust
from pytest_agentbench.config.guests import EVALUATION_LIMITS, RUN_LIMITS, RUNNER_LIMITS
from pytest_agentbench.config.profiles import (
    EvaluationProfile,
    ExecutionPolicy,
    NetworkSettings,
    RunProfile,
    SecurityPolicy,
)
from pytest_agentbench.config.root_search import NamedRoot
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.config.session_roots import SessionRoots, decide_roots
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.mcp_bench.records import LIMITED, MCP_TASKS, PLANNER, PlannerSettings
from pytest_agentbench.packs.openclaw.config import find_agent_file
from pytest_agentbench.packs.research.cases import open_reports
from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.records.conversations import ConversationLimits

HARMLESS = {
    "schema_version metadata run_profile_id title runner_defaults model_overrides task_text",
    "execution_policy.fail_fast execution_policy.stop_on_runner_error parallel_tools exclude_tools reference_variant",
    # Ids of the user's own models.yaml, as judges: models of a guest's file are refused.
    "roles",
    "planner.summarise_over_tokens planner.information_tokens planner.sequential_only_tools planner.language",
    "planner.resident_servers planner.distractors planner.compat",
    # Refused of guests where they are read: config/prompt_files.py.
    "planner.prompts",
    # Servers of a plugin are refused of guests where it is read: config/plugins.py.
    "skills plugins",
    "evaluation_profile_id judges judge_runs aggregation anchors mcp_tasks judge_system_prompt_path",
    "judge_system_prompt metrics compat judge_sees_reasoning",
    "temperature top_p seed keep_reasoning_tags stream stall_seconds env gateway",
}
"""Fields of profiles that loosen no limit with any value; `runner_defaults` and overrides are checked by key."""


def make_root(folder: Path, **files: Any) -> Path:
    """Return a config root; `run_profiles__safe={...}` is run_profiles/safe.yaml."""
    (folder / "suites").mkdir(parents=True)
    (folder / "suites" / "any.yaml").write_text("schema_version: 1\nsuite_id: any\ntitle: A\nmodels: []\n")
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump({"schema_version": 1, **content}))
    return folder


def run_profile(name: str = "safe", **fields: Any) -> dict[str, Any]:
    return {"run_profile_id": name, "title": name, **fields}


def places(roots: SessionRoots, *folders: Path) -> list[bool]:
    """For each folder whether a case in it is a guest's."""
    return [roots.of(folder / "test.yaml").is_guest for folder in folders]


def test_the_outermost_root_on_the_way_to_the_first_path_is_the_users(tmp_path: Path) -> None:
    own, beside = make_root(tmp_path / "cases"), make_root(tmp_path / "more")
    inner = make_root(own / "vendor" / "deep")
    folders = (own / "a", own / "vendor", inner / "a", beside, tmp_path)
    assert places(decide_roots([own], tmp_path), *folders) == [False, False, True, True, False]
    assert places(decide_roots([inner, own], tmp_path), *folders) == [False, False, True, True, False]
    assert places(decide_roots([tmp_path / "none", beside, own], tmp_path), *folders) == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert places(decide_roots([own / ".." / "more"], tmp_path), own, beside) == [True, False]
    (tmp_path / "link").symlink_to(own)
    assert places(decide_roots([tmp_path / "link"], tmp_path), own) == [False]


def test_without_one_on_the_way_the_only_one_with_cases_is_the_users(tmp_path: Path) -> None:
    own, beside = make_root(tmp_path / "tests" / "cases"), make_root(tmp_path / "src")
    for asked in ([tmp_path], [tmp_path / "tests" / "test_a.py"]):
        roots = decide_roots(asked, tmp_path, has_cases=lambda folder, without: without is None and folder == own)
        assert places(roots, own, beside) == [False, True]
    roots = decide_roots([tmp_path], tmp_path)
    assert places(roots, own, beside, tmp_path) == [True, True, False]
    assert "agentbench_configs" in roots.of(own / "test.yaml").guest.remedy


def test_a_configured_root_holds_for_guests_as_it_is(tmp_path: Path) -> None:
    own = make_root(tmp_path / "configs", run_profiles__safe=run_profile())
    guest = make_root(tmp_path / "cases" / "vendor", run_profiles__safe=run_profile(sandbox="local"))
    around = make_root(tmp_path)
    roots = decide_roots([tmp_path], tmp_path, NamedRoot(own))
    assert places(roots, tmp_path / "cases", guest, around) == [False, True, False]
    assert {roots.of(folder / "test.yaml").path for folder in (tmp_path, guest, own)} == {own}
    assert roots.of(guest / "test.yaml").run_profile("safe").sandbox == "auto"


def test_a_link_out_of_a_trusted_folder_is_not_trusted(tmp_path: Path) -> None:
    own, trusted, other = (make_root(tmp_path / name) for name in ("cases", "cases/a", "other"))
    (trusted / "link").symlink_to(other)
    roots = decide_roots([own], tmp_path, trust=Trust((str(trusted),)))
    assert places(roots, trusted, trusted / "link") == [False, True]


def test_a_guest_may_name_no_prompts(tmp_path: Path) -> None:
    own = make_root(tmp_path / "cases", run_profiles__mine=run_profile("mine", planner={"prompts": "texts"}))
    guest = make_root(
        own / "vendor",
        run_profiles__theirs=run_profile("theirs", planner={"prompts": "texts"}),
        evaluation_profiles__judged={
            "evaluation_profile_id": "judged", "title": "J", "judges": [], "judge_runs": [],
            "mcp_tasks": {"prompts": "texts"},
        },
        reports=REPORTS_WITH_PROMPTS,
    )  # fmt: skip
    texts = {
        own / "run_profiles/texts/summary.en.txt": "{content}",
        guest / "run_profiles/texts/summary.en.txt": "{content}",
        guest / "evaluation_profiles/texts/judge.en.txt": "{task}{solution}{execution}{tools}",
        guest / "texts/extract.en.txt": "{article}",
    }
    for path, text in texts.items():
        path.parent.mkdir()
        path.write_text(text)
    (guest / "a.jsonl").write_text("{}")
    roots = decide_roots([own], tmp_path)
    assert roots.of(own / "test.yaml").run_profile("mine").section(PLANNER).prompts.find("summary", "en") == "{content}"
    root = roots.of(guest / "test.yaml")
    for load in (
        lambda: root.run_profile("theirs"),
        lambda: root.evaluation_profile("judged"),
        lambda: open_reports(guest / "reports.yaml", root),
    ):
        with pytest.raises(ConfigError, match=r"(?s)found prompts .* not trusted, expected none; .*agentbench trust"):
            load()
    root = decide_roots([own], tmp_path, trust=Trust((str(guest),))).of(guest / "test.yaml")
    assert root.run_profile("theirs").section(PLANNER).prompts is not None
    assert root.evaluation_profile("judged").section(MCP_TASKS).prompts is not None
    assert open_reports(guest / "reports.yaml", root).scoring.prompts is not None


REPORTS_WITH_PROMPTS = {"reports": ["a.jsonl"], "parts": ["fact"], "prompts": "texts"}


@pytest.mark.parametrize(
    ("field", "said", "users"),
    [
        ("sandbox", "local", {}),
        ("sandbox.type", {"type": "bubblewrap"}, {"sandbox": {"type": "docker", "image": "a:1"}}),
        ("sandbox.image", {"image": "a:1"}, {}),
        ("sandbox.network", {"network": "allow"}, {}),
        ("sandbox.build_network", {"build_network": "allow"}, {}),
        ("sandbox.cpus", {"cpus": 2.5}, {}),
        ("sandbox.processes", {"processes": 65}, {"sandbox": {"processes": 64}}),
        ("network.web", {"web": "public"}, {"network": {"web": "deny"}}),
        ("network.hosts", {}, {"network": {"hosts": ["example.org"]}}),
        ("network.allow_private", {"allow_private": ["10.0.0.1"]}, {"network": {"allow_private": ["10.0.0.2"]}}),
        ("allow_outside_paths", True, {}),
        ("allow_floating_image", True, {}),
        ("reuse_unsuccessful", True, {}),
        ("mcp_servers", {"x": {"command": "x", "env": {"A": "secret"}}}, {}),
        ("variants", {"x": {"case": {"runner.max_turns": 900}}}, {}),
        ("openclaw", {"agent_id": "a", "image": "a:1", "timeout_seconds": 1, "docker_cli": "./evil"}, {}),
        ("run_timeout_seconds", 61, {"run_timeout_seconds": 60}),
        ("conversation.max_turns", {"max_turns": 31}, {}),
        ("conversation.turn_timeout_seconds", {}, {"conversation": {"turn_timeout_seconds": 60}}),
        ("execution_policy.run_repetitions", {"run_repetitions": 2}, {}),
        ("runner_defaults.max_turns", {"max_turns": 9}, {}),
        ("model_overrides.m.retries", {"m": {"retries": 6}}, {"runner_defaults": {"retries": 5}}),
        ("model_overrides.m.outage_seconds", {"m": {"outage_seconds": 301}}, {}),
        ("runner_defaults.outage_seconds", {"outage_seconds": 0}, {}),
        (
            "runner_defaults.extra_body.max_tokens",
            {"extra_body": {"max_tokens": 11}},
            {"runner_defaults": {"max_tokens": 10}},
        ),
        (
            "runner_defaults.max_completion_tokens",
            {"max_completion_tokens": 11},
            {"runner_defaults": {"max_tokens": 10}},
        ),
        ("planner.max_rounds", {"max_rounds": 21}, {}),
    ],
)
def test_a_guests_run_profile_that_exceeds_the_users_is_refused(
    tmp_path: Path, field: str, said: Any, users: dict[str, Any]
) -> None:
    name = field.partition(".")[0]
    own = make_root(tmp_path / "own", run_profiles__safe=run_profile(**users))
    guest = make_root(tmp_path / "own" / "guest", run_profiles__safe=run_profile(**{name: said}))
    root = decide_roots([own], tmp_path).of(guest / "test.yaml")
    with pytest.raises(ConfigError) as raised:
        root.run_profile("safe")
    text = str(raised.value)
    assert re.search(rf"{guest}/run_profiles/safe\.yaml:\d+:\d+: {field}[\w.]*: found", text), text
    assert f"according to {own}/run_profiles/safe.yaml" in text
    assert f"agentbench trust {guest}" in text
    assert "secret" not in text
    # what the user allows, a guest may ask for
    (own / "run_profiles" / "safe.yaml").write_text((guest / "run_profiles" / "safe.yaml").read_text())
    assert root.run_profile("safe") == decide_roots([own], tmp_path).of(own / "test.yaml").run_profile("safe")


def test_every_field_of_a_profile_is_limited_or_known_to_be_harmless() -> None:
    parts = {"sandbox": SandboxSettings, "network": NetworkSettings, "planner": PlannerSettings}
    parts |= {"execution_policy": ExecutionPolicy, "security_policy": SecurityPolicy}
    parts["conversation"] = ConversationLimits
    fields = {*RunnerSettings.model_fields}
    for kind in (RunProfile, EvaluationProfile):
        for name in kind.with_sections().model_fields:
            fields |= {f"{name}.{part}" for part in parts[name].model_fields} if name in parts else {name}
    of_packs = {"openclaw", *(f"planner.{name}" for name in LIMITED)}
    assert fields == {*RUN_LIMITS, *of_packs, *EVALUATION_LIMITS, *RUNNER_LIMITS, *" ".join(HARMLESS).split()}


def test_a_stricter_profile_of_a_name_that_only_the_guest_has_holds(tmp_path: Path) -> None:
    own = make_root(tmp_path / "own")
    stricter = {"sandbox": {"memory_mb": 64}, "network": {"web": "deny"}, "run_timeout_seconds": 5}
    guest = make_root(own / "guest", run_profiles__small=run_profile("small", **stricter))
    assert decide_roots([own], tmp_path).of(guest / "test.yaml").run_profile("small").run_timeout_seconds == 5


@pytest.mark.parametrize("linked", ["run_profiles/wide.yaml", "run_profiles"])
def test_a_link_to_a_guests_profile_keeps_it_a_guests(tmp_path: Path, linked: str) -> None:
    own = make_root(tmp_path / "own")
    other = make_root(own / "other", run_profiles__wide=run_profile("wide", sandbox="local"))
    guest = make_root(own / "guest")
    (guest / linked).parent.mkdir(exist_ok=True)
    (guest / linked).symlink_to(other / linked)
    with pytest.raises(ConfigError, match="found 'local', expected at most 'auto'"):
        decide_roots([own], tmp_path).of(guest / "test.yaml").run_profile("wide")


def test_a_guests_profile_reads_no_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / ".env").write_text("KEY=x")
    own = make_root(tmp_path / "own" / "cases")
    evaluation = {"evaluation_profile_id": "e", "title": "e", "judge_system_prompt_path": "../../../.env"}
    guest = make_root(own / "guest", evaluation_profiles__e=evaluation)
    with pytest.raises(ConfigError, match="which leaves"):
        decide_roots([own], tmp_path).of(guest / "test.yaml").evaluation_profile("e")


def test_agents_suites_and_servers_of_the_user_hold_in_guests(tmp_path: Path) -> None:
    own = make_root(
        tmp_path / "own",
        suites__s={"suite_id": "s", "title": "the user's"},
        servers={"servers": {"a": {"command": "users"}}},
    )
    suite = {"suite_id": "s", "title": "x", "models": [{"model_id": "m", "base_url": "http://evil"}]}
    theirs = {"a": {"command": "evil", "sandbox": "local"}, "b": {"command": "evil"}}
    guest = make_root(own / "deep" / "guest", suites__s=suite, suites__t={**suite, "suite_id": "t"})
    (guest / "x").mkdir()
    (guest / "x" / "servers.yaml").write_text(yaml.safe_dump({"schema_version": 1, "servers": theirs}))
    for root in (own, guest):
        (root / "agents" / "w" / "workspace").mkdir(parents=True)
        (root / "agents" / "w" / "agent.yaml").write_text("schema_version: 1\nagent_id: w\ntitle: w\n")
    root, near = decide_roots([own], tmp_path).of(guest / "x" / "test.yaml"), guest / "x" / "test.yaml"
    assert find_agent_file(root, "w") == own / "agents" / "w" / "agent.yaml"
    assert {name: server.command for name, server in root.mcp_servers(near).items()} == {"a": "users"}
    root.require_servers(near, ["a", "elsewhere"])
    with pytest.raises(ConfigError, match=rf"found the MCP servers 'b', which only files in {guest} declare"):
        root.require_servers(near, ["a", "b"])
    for name in ("s", "t"):
        with pytest.raises(ConfigError, match=r"models\[0\]\.base_url: found \['base_url'\]"):
            root.suite(name)


def test_a_trusted_folders_files_win_there_and_the_users_are_the_fallback(tmp_path: Path) -> None:
    models = {"models": [{"model_id": "both", "label": "mine"}, {"model_id": "only-mine"}]}
    own = make_root(tmp_path, models=models, run_profiles__safe=run_profile(), run_profiles__mine=run_profile("mine"))
    theirs = {"models": [{"model_id": "both", "label": "theirs"}, {"model_id": "only-theirs"}]}
    looser = run_profile(allow_outside_paths=True)
    vendor = make_root(tmp_path / "vendor", models=theirs, run_profiles__safe=looser)

    root = decide_roots([own], own, trust=Trust((str(vendor),))).of(vendor / "case" / "test.yaml")

    assert not root.is_guest
    assert root.run_profile("safe").allow_outside_paths
    assert root.run_profile("mine").title == "mine"
    labels = {model.model_id: model.label for model in root.models().models}
    assert labels == {"both": "theirs", "only-theirs": None, "only-mine": None}
    with pytest.raises(ConfigError, match=r"no run profile 'mime'.*did you mean 'mine'"):
        root.run_profile("mime")
