"""Providers as they are: what endpoints were reported to answer, replayed over HTTP through the whole plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.bench import LEAN, case_yaml, check
from support.replay_endpoint import ReplayEndpoint
from support.stored import Stored

from pytest_agentbench.records.run import RunArtifact, RunnerEvent, ToolCallEvent

DATA = Path(__file__).parents[3] / "shared" / "data" / "providers"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="the providers' replies are not beside this checkout"),
]
CONFTEST = """
import functools
from pytest_agentbench.models import client, failures

client.Backoff = functools.partial(failures.Backoff, first=0.01, longest=0.01)
"""
"""Waits of ten milliseconds in place of half a second and more."""
FILES = ["write_file", "read_file"]


def load_scenarios() -> dict[str, dict[str, Any]]:
    if not DATA.is_dir():
        return {}
    form = json.loads((DATA / "format.json").read_text())["harness"]
    found = {}
    for path in sorted(DATA.glob("*.json")):
        for scenario in json.loads(path.read_text()).get("scenarios", ()):
            if path.stem == "batch" or "case" not in scenario:
                continue
            name = scenario["id"]
            scenario["dialect"] = form["dialect"].get(name) or form["dialect"].get(path.stem, "other")
            found[name] = scenario
    return found


SCENARIOS = load_scenarios()
DEMANDS = {
    *("outcome", "status", "end_reason", "requests", "side", "at", "categories", "adapted", "shown", "retries"),
    *("judge", "reasoning", "output", "cost_usd", "usage", "measured", "distinct_calls", "order"),
}
"""Keys of `must` that the tests below look at."""
IN_A_ROW = "local_servers.lmstudio_empty_200"
"""A scenario that only several runs show whole."""


def describe_model(scenario: Mapping[str, Any], url: str) -> list[dict[str, Any]]:
    """The entries of models.yaml for a scenario: the model, and for a judge's the model that it judges."""
    name = scenario["id"]
    entry = {
        "model_id": name,
        "base_url": f"{url}/v1",
        "dialect": scenario["dialect"],
        "parameters": scenario.get("settings", {}),
    }
    if ".learn_" in name:
        entry["dialect_overrides"] = {"limit": "max_tokens"}
    elif name == "mistral.max_completion_tokens_refused":
        entry["dialect_overrides"] = {"limit": "max_completion_tokens"}
    if "api" in scenario:
        entry["api"] = scenario["api"]
    if scenario.get("stream"):
        entry |= {"stream": True, **entry.pop("parameters")}
    entry |= scenario.get("model", {})
    entry["base_url"] = entry["base_url"].replace("{base}", url)
    if "headers" not in entry or not any(value.startswith("env:") for value in entry["headers"].values()):
        entry["api_key_env"] = "none"
    if scenario["case"] != "judged":
        # The endpoint's name for it is the scenario, also where an address says the model
        return [entry | {"requested_model": name}]
    judged = {**entry, "model_id": name, "dialect": "openai", "requested_model": f"openai_chat.answered@{name}"}
    return [judged | {"judge": f"judge-of-{name}"}, entry | {"model_id": f"judge-of-{name}", "requested_model": name}]


def write_project(folder: Path, url: str) -> None:
    fours = [check("four", kind="regex_match", pattern="4")]
    asked = {"messages": [{"role": "user", "content": "What is 2 + 2? Write it down first."}]}
    cases = {
        "plain": {},
        "tool": {"input": asked | {"context": {"llm_probe": {"tools": FILES}}}},
        "shell": {"input": asked | {"context": {"llm_probe": {"tools": [*FILES, "exec_shell"]}}}},
        "judged": {"rubric": {"criteria": [{"name": "correct", "what_good_looks_like": "It is 4."}]}},
    }
    documents = {
        f"cases/{name}/test.yaml": case_yaml(name, **({"input": asked} | fields), deterministic_checks=fours)
        for name, fields in cases.items()
    }
    documents["cases/models.yaml"] = {
        "schema_version": 1,
        "models": [entry for scenario in SCENARIOS.values() for entry in describe_model(scenario, url)],
    }
    documents["cases/run_profiles/replayed.yaml"] = {
        "schema_version": 1,
        "run_profile_id": "replayed",
        "title": "Replayed",
        "runner_defaults": {"retries": 2, "timeout_seconds": 60, "max_turns": 3},
        "model_overrides": {"transport.outage_8_requests": {"retries": None}},
        "execution_policy": {"stop_on_runner_error": False, "max_concurrency": 16},
    }
    documents["cases/evaluation_profiles/judged.yaml"] = {
        "schema_version": 1,
        "evaluation_profile_id": "judged",
        "title": "Judged",
        "judges": [{"judge_id": "judge", "type": "llm_probe", "model": "openai_chat.answered"}],
        "judge_runs": [{"judge_run_id": "one", "judge_id": "judge"}],
    }
    for name, document in documents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(document))
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")


@dataclass
class Played:
    """A session over all scenarios: rows of the report and numbers of requests by scenario, and what it printed."""

    folder: Path
    rows: dict[str, dict[str, Any]]
    report: dict[str, Any]
    requests: Counter[str]
    text: str
    endpoint: ReplayEndpoint

    def run(self, name: str) -> RunArtifact:
        return Stored(self.folder / "outputs", self.rows[name]["artifact"]).run()


def play(folder: Path, endpoint: ReplayEndpoint, *options: str, only: str | None = None) -> Played:
    """Run a session over the scenarios in the folder's project."""
    played = SCENARIOS if only is None else {only: SCENARIOS[only]}
    nodes = [f"cases/{each['case']}/test.yaml::{each['case']}[{name}]" for name, each in played.items()]
    models = [word for name in played for word in ("--model", name)]
    before = endpoint.count()
    command = [sys.executable, "-m", "pytest", *LEAN, "-q", "--agentbench-run-profile=replayed", *models, *options]
    command.append("--agentbench-evaluation-profile=judged")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI", "OPENROUTER", "PYTEST", "COV"))
    }
    environment |= {"AZURE_OPENAI_API_KEY": "azure-test-key-0123456789", "COLUMNS": "200"}
    finished = subprocess.run(
        [*command, *nodes], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    text = finished.stdout + finished.stderr
    path = folder / "outputs" / "report.json"
    assert path.is_file(), text
    report = json.loads(path.read_text())
    rows = {row["model_id"]: row for row in report["runs"]}
    return Played(folder, rows, report, endpoint.count() - before, text, endpoint)


MODES = [pytest.param("0", id="one process"), pytest.param("2", id="two workers", marks=pytest.mark.full)]


@pytest.fixture(scope="module", params=MODES)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("replayed")
    with ReplayEndpoint(SCENARIOS.values()) as endpoint:
        write_project(folder, endpoint.url)
        yield play(folder, endpoint, "-n", request.param)


# One item for all scenarios of a demand: each item may be on another worker, which plays all scenarios again
def test_a_scenario_ends_as_it_must(session: Played, subtests: pytest.Subtests) -> None:
    for name, scenario in SCENARIOS.items():
        with subtests.test(scenario=name):
            must, row = scenario["must"], session.rows[name]
            end = {key: row[key] for key in ("outcome", "status", "end_reason")}
            end["requests"] = session.requests[name]
            assert end == {key: must[key] for key in end}, row["message"]


def test_a_scenario_leaves_what_it_must(session: Played, subtests: pytest.Subtests) -> None:
    for name, scenario in SCENARIOS.items():
        if scenario["case"] != "judged":
            with subtests.test(scenario=name):
                check_run(session, name)


def check_run(session: Played, name: str) -> None:
    must, row = SCENARIOS[name]["must"], session.rows[name]
    detail = row.get("end_detail", {})
    assert {key: detail.get(key) for key in ("side", "at", "categories") if key in must} == {
        key: must[key] for key in ("side", "at", "categories") if key in must
    }
    if "adapted" in must:
        assert row["adapted"] == must["adapted"]
    if "shown" in must and name != IN_A_ROW:
        assert must["shown"] in session.text
    if row["artifact"] is None:
        return
    run = session.run(name)
    assert run.end_reason == must["end_reason"]
    events = [event for event in run.trace if isinstance(event, RunnerEvent)]
    if "retries" in must:
        assert sum(event.name == "retry" for event in events) == must["retries"]
    if "reasoning" in must:
        assert [event.data["text"] for event in events if event.name == "reasoning"] == [must["reasoning"]]
    if "output" in must:
        assert run.final_output == must["output"]
    if "cost_usd" in must:
        assert row["cost_usd"]["run"] == must["cost_usd"]
    if "usage" in must:
        assert {key: getattr(run.usage, key) for key in must["usage"]} == must["usage"]
    if "measured" in must:
        [reply] = [event.data for event in events if event.name == "reply"]
        assert all(reply[each] > 0 for each in must["measured"])
        assert all(row["streaming"][each] == [reply[each]] for each in must["measured"])
    if "distinct_calls" in must:
        ids = {event.call_id for event in run.trace if isinstance(event, ToolCallEvent)}
        assert len(ids) == must["distinct_calls"]
    if "order" in must:
        assert [event.name for event in run.trace if isinstance(event, ToolCallEvent)] == must["order"]


def test_a_judge_ends_as_it_must(session: Played, subtests: pytest.Subtests) -> None:
    for name, scenario in SCENARIOS.items():
        if "judge" in scenario["must"]:
            with subtests.test(scenario=name):
                check_judge(session, name)


def check_judge(session: Played, name: str) -> None:
    row, must = session.rows[name], SCENARIOS[name]["must"]["judge"]
    judge = Stored(session.folder / "outputs", row["evaluation"]).evaluation().judge
    if must == "success":
        assert judge is not None
        assert [each.status for each in judge.iterations] == [must]
    else:
        assert judge is None
        assert f"1 of 1 iterations failed (1 {must})" in row["message"]


def test_only_what_is_not_steady_is_asked_again(session: Played) -> None:
    again = play(session.folder, session.endpoint)
    asked = {name for name in SCENARIOS if again.requests[name]}
    ends = {name: row["end_reason"] for name, row in session.rows.items()}
    chance = {"provider_error", "rejected", "authentication", "quota", "malformed_reply", "no_text", "unsupported"}
    failed_judges = {name for name, row in session.rows.items() if row["outcome"] == "error" and row["status"]}
    assert asked == {name for name, reason in ends.items() if reason in chance} | failed_judges


def test_all_that_is_demanded_is_looked_at() -> None:
    told = {"note"}  # for people
    assert {key for scenario in SCENARIOS.values() for key in scenario["must"]} - told == DEMANDS


def test_all_scenarios_are_met() -> None:
    assert len(SCENARIOS) == 162


def test_many_blank_answers_are_reported(tmp_path: Path) -> None:
    nodes = [f"cases/plain/test.yaml::plain[{IN_A_ROW}{suffix}]" for suffix in ("", *(f"-r{n}" for n in range(2, 6)))]
    command = [sys.executable, "-m", "pytest", *LEAN, "-q", "--agentbench-run-profile=replayed", "--model", IN_A_ROW]
    with ReplayEndpoint(SCENARIOS.values()) as endpoint:
        write_project(tmp_path, endpoint.url)
        finished = subprocess.run(
            [*command, "--agentbench-repetitions=5", *nodes], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
    assert SCENARIOS[IN_A_ROW]["must"]["shown"] in finished.stdout
