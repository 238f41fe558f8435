"""Every field that a file can say of a model or a run reaches the request, is ours, or is refused with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.fault_endpoint import FaultEndpoint, in_order

from pytest_agentbench.cli import main
from pytest_agentbench.config.model_entries import ModelEntry, SuiteModel
from pytest_agentbench.config.request_fields import MODEL_FIELDS, REQUEST_FIELDS
from pytest_agentbench.config.sections import RUN_SETTINGS

RUNS = {"model", "messages", "tools"}
FIELDS = REQUEST_FIELDS | MODEL_FIELDS | RUN_SETTINGS | RUNS | {"made_up"}
VALUES: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.25,
    "max_tokens": 7,
    "max_completion_tokens": 7,  # another name of the same setting
    "seed": 3,
    "provider": {"order": ["x"]},
    "reasoning": {"effort": "low", "exclude": True},
    "retries": 1,
    "max_turns": 2,
    "timeout_seconds": 9,
    "outage_seconds": 9,
    "stall_seconds": 9,
    "stream": False,
    "env": "serial",
    "gateway": {"translate": True},
    "keep_reasoning_tags": False,
}
SAID = {name: VALUES.get(name, f"said of {name}") for name in sorted(FIELDS)}
_PROFILE = """\
schema_version: 1
run_profile_id: p
title: P
model_overrides:
  gpt4x: {temperature: 1}
"""
ANY = [{"check_id": "any", "declarative": {"kind": "final_response_present"}}]
PLACES = ["suite", "parameters", "runner_defaults", "model_overrides", "case"]
OWN = {
    "suite": SuiteModel.model_fields.keys(),
    "parameters": set(),
    "runner_defaults": RUN_SETTINGS,
    "model_overrides": RUN_SETTINGS,
    "case": RUN_SETTINGS,
}
REFUSED = {
    "suite": (RUN_SETTINGS - SuiteModel.model_fields.keys()) | RUNS,
    "parameters": RUN_SETTINGS | RUNS | MODEL_FIELDS,
    "runner_defaults": RUNS | MODEL_FIELDS,
    "model_overrides": RUNS | MODEL_FIELDS,
    "case": RUNS | MODEL_FIELDS,
}
"""What belongs elsewhere: `provider` with a mapping is a request field of one endpoint."""


@pytest.fixture
def endpoint():
    with FaultEndpoint(in_order()) as made:
        yield made


def write(bench, endpoint, place: str, fields: dict[str, Any]):
    """Writes a project that says the fields in one place; returns the file."""
    entry = {"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"}
    runner = {"type": "llm_probe"} | (fields if place == "case" else {})
    asked = {"messages": [{"role": "user", "content": "Paris?"}], "context": {"llm_probe": {"tools": ["read_file"]}}}
    files = {
        "case": bench.case("one", runner=runner, input=asked),
        "parameters": bench.models(entry | ({"parameters": fields} if place == "parameters" else {})),
        "runner_defaults": bench.profile(
            "p",
            runner_defaults=fields if place == "runner_defaults" else {},
            model_overrides={"m": fields if place == "model_overrides" else {}},
        ),
    }
    suite = {"schema_version": 1, "suite_id": "s", "title": "S"}
    models = [{"model_id": "m"} | (fields if place == "suite" else {})]
    files["suite"] = bench.write("cases/suites/s.yaml", suite | {"models": models})
    return files["runner_defaults" if place == "model_overrides" else place]


@pytest.mark.parametrize("place", PLACES)
def test_no_field_is_lost(bench, endpoint, capsys, place):
    said = {name: value for name, value in SAID.items() if name not in OWN[place] or name in RUN_SETTINGS}
    path = write(bench, endpoint, place, said)
    assert main(["validate", str(path)]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{path}:")]
    text = path.read_text().splitlines()
    refused = {}
    for line in lines:
        if "warning: " not in line:
            number = int(line.removeprefix(f"{path}:").partition(":")[0])
            name = line.split(": ")[1].rpartition(".")[2]
            refused[name] = " ".join(text[number - 2 : number])  # a mapping begins in the line after its name
    assert refused.keys() == REFUSED[place]
    assert all(name in written for name, written in refused.items())
    sent = {name: value for name, value in said.items() if name not in refused}
    write(bench, endpoint, place, sent)
    session = bench.run("cases", "--agentbench-suite=s", "--agentbench-run-profile=p")
    assert session.exit == 0, session.text
    (body,) = (request.body for request in endpoint.requests)
    lost = {name for name, value in sent.items() if body.get(name) != value} - OWN[place]
    assert lost == {"max_completion_tokens"}  # here it goes by the name of max_tokens
    assert sent.keys() | refused.keys() | OWN[place] == FIELDS


def test_own_fields_of_models_are_those_that_are_refused_elsewhere():
    assert MODEL_FIELDS | {"provider", "stream", "stall_seconds"} == SuiteModel.model_fields.keys()
    assert ModelEntry.model_fields.keys() <= SuiteModel.model_fields.keys()


@pytest.mark.parametrize("name", sorted(REQUEST_FIELDS - {"provider"})[::9])
def test_a_request_field_beside_an_entrys_own_is_refused(bench, endpoint, capsys, name):
    path = write(bench, endpoint, "case", {})
    path = bench.models({"model_id": "m", name: 1})
    assert main(["validate", str(path)]) == 1
    assert f"{path}:" in (told := capsys.readouterr().out)
    assert f"models[0].{name}: " in told


def test_the_nearest_place_wins_and_a_null_takes_back(bench, endpoint):
    write(bench, endpoint, "case", {"top_k": None, "extra_body": {"mine": 3}})
    bench.models(
        {"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none", "parameters": {"seed": 1, "top_k": 1}}
    )
    bench.write(
        "cases/suites/s.yaml",
        {
            "schema_version": 1,
            "suite_id": "s",
            "title": "S",
            "models": [{"model_id": "m", "seed": 2, "top_p": 0.2, "primary_params": {"seed": 3, "min_p": 0.1}}],
        },
    )
    bench.profile(
        "p", runner_defaults={"top_p": 0.3, "mine": 1}, model_overrides={"m": {"top_p": 0.4, "extra_body": {"mine": 2}}}
    )
    assert bench.run("cases", "--agentbench-suite=s", "--agentbench-run-profile=p").exit == 0
    (body,) = (request.body for request in endpoint.requests)
    assert {name: body.get(name) for name in ("seed", "top_p", "top_k", "min_p", "mine", "extra_body")} == {
        "seed": 3,
        "top_p": 0.4,
        "top_k": None,
        "min_p": 0.1,
        "mine": 3,
        "extra_body": None,
    }


MISSPELT = "did you mean 'temperature'? no known endpoint takes this request field"


@pytest.mark.parametrize("place", PLACES)
def test_a_misspelt_field_is_told_by_session_and_validate_and_sent(bench, endpoint, capsys, place):
    path = write(bench, endpoint, place, {"tempratur": 1})
    assert main(["validate", str(bench.path / "cases")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "tempratur" in line]
    number = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "tempratur" in text)
    assert line.startswith(f"{path}:{number}:")
    assert MISSPELT in line
    session = bench.run("cases", "--agentbench-suite=s", "--agentbench-run-profile=p")
    assert session.exit == 0
    assert session.text.count(MISSPELT) == 1
    assert f"{path}:{number}:" in session.text
    assert endpoint.requests[0].body["tempratur"] == 1


def test_a_name_that_is_meant_is_not_told(bench, endpoint, capsys):
    write(bench, endpoint, "runner_defaults", {"extra_body": {"tempratur": 1}})
    session = bench.run("cases", "--agentbench-suite=s", "--agentbench-run-profile=p")
    assert "tempratur" not in session.text
    assert endpoint.requests[0].body["tempratur"] == 1


def test_an_override_of_a_model_that_nobody_declares_is_an_error_of_both(bench, endpoint, capsys):
    write(bench, endpoint, "case", {})
    path = bench.profile("p", model_overrides={"mm": {"seed": 1}, "demo": {"seed": 1}})
    said = ":6:7: model_overrides.mm: unknown model_id 'mm'; "
    assert main(["validate", str(path)]) == 1
    assert f"{path}:" in (told := capsys.readouterr().out)
    assert "model_overrides.mm: unknown model_id 'mm'" in told
    assert "model_overrides.demo" not in told, said
    session = bench.run("cases", "--model=m", "--agentbench-run-profile=p")
    assert "model_overrides.mm: unknown model_id 'mm'" in session.text
    assert session.exit != 0
    assert endpoint.requests == []
    named = bench.run("cases", "--model=m", "--model=mm", "--agentbench-run-profile=p", "--collect-only")
    assert "unknown model_id" not in named.text  # a name that the default endpoint knows


@pytest.mark.slow
def test_a_runner_that_sends_no_requests_refuses_their_fields(bench, endpoint):
    bench.agent(
        """
from pytest_agentbench import RunnerKind

class Silent(RunnerKind):
    sends_requests = False

    async def __call__(self, case, context):
        return "Paris"

def pytest_agentbench_runners():
    return {"silent": Silent()}
"""
    )
    bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"})
    bench.profile("p", runner_defaults={"timeout_seconds": 3, "seed": 1})
    path = bench.case("one", runner={"type": "silent", "temperature": 1, "max_turns": 1})
    told = bench.run("cases", "--model=m").text
    assert f"{path}:" in told
    assert "runner.temperature: is a request field, and the runner silent sends no requests; leave it out" in told
    bench.case("one", runner={"type": "silent", "max_turns": 1})
    assert bench.run("cases", "--model=m").exit == 0
    told = bench.run("cases", "--model=m", "--agentbench-run-profile=p").text
    assert "run_profiles/p.yaml:1:1: seed: is a request field, and the runner silent sends no requests" in told


def test_the_shown_request_is_the_one_that_is_sent(bench, endpoint, capsys, monkeypatch):
    monkeypatch.chdir(bench.path)
    monkeypatch.setenv("TEAM_KEY", "a-key-that-nobody-may-see")
    monkeypatch.setenv("THE_KEY", "another-key-that-nobody-may-see")
    write(bench, endpoint, "runner_defaults", {"temperature": 0.2, "tempratur": 1, "max_tokens": 7})
    entry = {"model_id": "m", "base_url": f"{endpoint.base_url}?api-version=1&key=abc", "api_key_env": "THE_KEY"}
    entry |= {"headers": {"X-Team": "env:TEAM_KEY", "X-Title": "mine"}, "parameters": {"seed": 5}}
    bench.models(entry)
    bench.case("one", runner={"type": "llm_probe", "extra_body": {"mine": [1]}}, deterministic_checks=ANY)
    shown = ["validate", "cases", "--model", "m", "--suite", "s", "--run-profile", "p", "--show-request", "one"]
    assert main([*shown, "--json"]) == 0
    told = capsys.readouterr().out
    request = json.loads(told)
    assert endpoint.requests == []
    assert bench.run("cases", "--agentbench-suite=s", "--agentbench-run-profile=p").exit == 0
    assert request["body"] == endpoint.requests[0].body
    assert request.keys() == {"url", "headers", "body", "origins", "warnings"}
    assert request["url"] == f"{endpoint.base_url}/chat/completions?api-version=1&key=***"
    headers = request["headers"]
    assert (headers["authorization"], headers["x-team"], headers["x-title"]) == ("***", "***", "mine")
    sent = {name.lower(): value for name, value in endpoint.requests[0].headers.items()}
    assert headers.keys() == sent.keys()
    assert {name for name in sent if headers[name] != sent[name]} == {"authorization", "x-team"}
    assert "nobody-may-see" not in told
    lines = {name: path.rpartition("/")[2] for name, path in request["origins"].items()}
    profile = (bench.path / "cases/run_profiles/p.yaml").read_text().splitlines()
    assert lines["temperature"] == f"p.yaml:{profile.index('  temperature: 0.2') + 1}"
    assert lines["max_tokens"].startswith("p.yaml:")
    assert lines["seed"].startswith("models.yaml:")
    assert lines["mine"].startswith("test.yaml:")
    assert request["origins"].keys() == request["body"].keys()
    assert sum("tempratur" in text for text in request["warnings"]) == 1
    capsys.readouterr()
    assert main(shown) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"POST {request['url']}"
    assert f"temperature 0.2: {request['origins']['temperature']}" in printed
    assert main(["validate", "cases", "--model", "m", "--show-request", "two"]) != 0
    assert "found no case 'two'" in capsys.readouterr().err


def test_a_request_of_a_profile_that_names_no_model_is_refused_at_its_place(bench, capsys):
    bench.case("one")
    bench.models({"model_id": "gpt4o", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "none"})
    path = bench.write("cases/run_profiles/p.yaml", _PROFILE)
    shown = ["validate", str(bench.path / "cases"), "--run-profile", "p", "--show-request", "one"]
    assert main([*shown, "--model", "gpt4o"]) != 0
    assert f"{path}:5:10: model_overrides.gpt4x: unknown model_id 'gpt4x'; did you" in capsys.readouterr().err


def test_a_request_of_a_model_with_nearly_the_name_of_another_is_doubted(bench, capsys):
    bench.case("one")
    bench.models({"model_id": "gpt4o", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "none"})
    assert main(["validate", str(bench.path / "cases"), "--model", "gpt4", "--show-request", "one"]) == 0
    said = "warning: --model gpt4: no entry of models.yaml has this id, so the default endpoint is asked"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("option", [("--model", "m"), ("--suite", "s"), ("--json",)])
def test_options_of_show_request_are_refused_without_it(bench, capsys, option):
    bench.case("one")
    assert main(["validate", str(bench.path / "cases"), *option]) != 0
    assert f"{option[0]}: has no effect without --show-request CASE" in capsys.readouterr().err


def test_a_parameter_that_the_endpoint_ignores_is_a_warning(bench, capsys, monkeypatch):
    bench.case("one")
    entry = {"model_id": "m", "base_url": "https://api.anthropic.com/v1/", "api_key_env": "none"}
    path = bench.models(entry | {"parameters": {"seed": 5}})
    assert main(["validate", str(path)]) == 0
    assert "warning: models[0].parameters.seed: has no effect" in capsys.readouterr().out
    bench.models(entry)
    bench.profile("p", runner_defaults={"seed": 5})
    shown = ["validate", str(bench.path / "cases"), "--model", "m", "--run-profile", "p", "--show-request", "one"]
    assert main(shown) == 0
    assert "warning: seed: has no effect" in capsys.readouterr().out


def test_a_request_that_only_the_run_can_make_is_not_shown(bench, capsys):
    bench.case("one", mcp_servers={"Any": {"command": "true"}})
    bench.models({"model_id": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "none"})
    assert main(["validate", str(bench.path / "cases"), "--model", "m", "--show-request", "one"]) != 0
    assert "the first request lists tools of MCP servers, which this command does not start" in capsys.readouterr().err
