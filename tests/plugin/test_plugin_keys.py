"""Files that would send the user's keys elsewhere: sessions and commands before anything is sent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench
from support.listener import listening
from support.mcp_projects import McpBench

from pytest_agentbench.cli import main
from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import ConfigError, ProviderError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.packs.research.fact.direct_pages import PageSettings
from pytest_agentbench.packs.research.fact.pages import Jina
from pytest_agentbench.records.case import Model
from pytest_agentbench.tools.web_tools import make_brave_search, make_tavily_search
from pytest_agentbench.workspaces.containers.engines import engine_problem

SECRET = "zebra-crossing-4711"


@pytest.fixture
def bench(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "TEAM_KEY"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(bench.path / "own"))
    return bench


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "models.yaml:2:13: models[0].base_url: model 'm': the key in OPENAI_API_KEY would go to 127.0.0.1"),
        ({"api_key_env": "AWS_SECRET_ACCESS_KEY"}, "found AWS_SECRET_ACCESS_KEY, which is no model's key"),
        ({"api_key_env": "PATH"}, "found PATH, which is no model's key"),
        ({"base_url": "http://elsewhere.invalid/v1", "api_key_env": "TEAM_KEY"}, "expected https://"),
        ({"base_url": None, "api_key_env": "TEAM_KEY"}, "the key in TEAM_KEY would go to api.openai.com"),
    ],
)
def test_an_entry_sends_no_key_to_a_host_that_it_does_not_belong_to(bench: Bench, entry, said) -> None:
    bench.case("one")
    with listening() as listener:
        written = {"model_id": "m", "base_url": f"{listener.url}/v1", **entry}
        bench.models({name: value for name, value in written.items() if value is not None})
        finished = bench.run("--model=m", "cases")
    assert listener.said == []
    assert finished.exit != 0
    assert said in finished.text
    assert SECRET not in finished.text


@pytest.mark.parametrize("place", ["http://127.0.0.1:{port}/v1", "http://localhost:{port}/v1"])
def test_a_redirect_of_an_endpoint_ends_the_request(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", SECRET)
    with listening() as elsewhere:
        location = place.format(port=elsewhere.port).encode()
        reply = b"HTTP/1.1 307 Elsewhere\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
        with listening(reply) as endpoint:
            model = Model(model_id="m", requested_model="m", base_url=f"{endpoint.url}/v1", api_key_env="TEAM_KEY")

            async def ask() -> None:
                endpoints = Endpoints()
                try:
                    await endpoints.client(model).complete([{"role": "user", "content": "?"}])
                finally:
                    await endpoints.close()

            with pytest.raises(ProviderError, match=r"it redirects to http://.*, and the request and its key"):
                asyncio.run(ask())
    assert len(endpoint.said) == 1
    assert elsewhere.said == []


@pytest.mark.slow
def test_a_case_gives_its_servers_no_variable_that_nobody_granted(bench: Bench, tmp_path, capsys) -> None:
    mcp = McpBench(bench)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "program").write_text(f"#!/bin/sh\ntouch {outside}/ran\n")
    (outside / "program").chmod(0o755)
    with listening() as listener:

        def at(header: str, url: str = listener.url) -> dict[str, Any]:
            return {"url": f"{url}/mcp", "headers": {"X": header}}

        asked = {
            "two-keys": at("${GITHUB_TOKEN}|${AWS_SECRET_ACCESS_KEY}"),
            "plain": at("${GITHUB_TOKEN}", "http://granted.invalid"),
            "program": {"command": "python3", "args": ["-c", "0"], "env_from": ["AWS_SECRET_ACCESS_KEY"]},
            "steered": {"command": "sh", "args": ["x"], "env": {"ENV": "y"}, "env_from": ["TEAM_KEY"]},
            "outside": {"command": str(outside / "program")},
            "climbs": {"command": f"{os.path.relpath(outside, bench.path / 'cases/climbs')}/program", "cwd": "."},
            "own-path": {"command": "program", "env": {"PATH": str(outside)}},
        }
        for case_id, server in asked.items():
            mcp.case(case_id, servers={"Test": server})
        mcp.servers(folder="cases/beside", Test=at("${AWS_SECRET_ACCESS_KEY}"))
        mcp.case("beside", folder="cases/beside", servers=["Test"])
        hosts = {"127.0.0.1": ["GITHUB_TOKEN"], "granted.invalid": ["GITHUB_TOKEN"]}
        bench.write("cases/keys.yaml", {"schema_version": 1, "hosts": hosts, "programs": {"sh": ["TEAM_KEY"]}})
        finished = mcp.run("-rs")
        assert main(["validate", "cases"]) == 1
        assert listener.said == []
        validated = capsys.readouterr().out
        assert {name for name in asked if f"/{name}/test.yaml:1:1: MCP" in validated} == {*asked} - {"own-path"}

        mcp.case("granted", servers={"Test": at("${GITHUB_TOKEN}")})
        mcp.run("-k", "granted")
        assert SECRET.encode() in listener.said[0]

    refused = {f"{name}[demo]": "error" for name in (*asked, "beside")}
    assert finished.outcomes == {**refused, "own-path[demo]": "skipped"}
    assert not (outside / "ran").exists()
    assert SECRET not in finished.text
    lines = finished.text
    two = "two-keys/test.yaml:1:1: MCP server 'Test': headers: the value of AWS_SECRET_ACCESS_KEY would go to 127.0.0.1"
    assert two in lines
    assert "`hosts: {127.0.0.1: [AWS_SECRET_ACCESS_KEY]}` into" in lines
    assert "env_from: the program python3 would get AWS_SECRET_ACCESS_KEY" in lines
    assert lines.count("expected the name of an installed program") >= 2


def test_a_redirect_of_what_searches_and_reads_pages_ends_the_request() -> None:
    reply = b"HTTP/1.1 302 Elsewhere\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n"
    with listening() as elsewhere, listening(reply % elsewhere.url.encode()) as service:

        async def read() -> None:
            async with Jina(PageSettings(jina_key=SECRET, jina_url=f"{service.url}/")) as jina:
                await jina.content("http://93.184.215.14/")

        for ask in (
            lambda: make_brave_search(SECRET, service.url)("q"),
            lambda: make_tavily_search(SECRET, service.url)("q"),
            read,
        ):
            with pytest.raises(ProviderError, match="which is not followed"):
                asyncio.run(ask())
    assert len(service.said) == 3
    assert elsewhere.said == []


def test_keys_of_the_reader_travel_encrypted() -> None:
    environ = {"JINA_API_KEY": SECRET, "JINA_BASE_URL": "http://reader.example/"}
    with pytest.raises(ConfigError, match=r"JINA_BASE_URL: found http://reader\.example"):
        PageSettings.of(NetworkSettings(), environ)
    assert PageSettings.of(NetworkSettings(), environ | {"JINA_BASE_URL": "http://127.0.0.1:1/"}).jina_key == SECRET


def test_a_guests_pair_of_host_and_key_counts_for_nothing(bench: Bench) -> None:
    bench.models()
    with listening() as listener:
        entry = {"model_id": "m", "base_url": f"{listener.url}/v1", "api_key_env": "TEAM_KEY"}
        bench.write("cases/theirs/models.yaml", {"schema_version": 1, "models": [entry]})
        grant = {"schema_version": 1, "hosts": {"127.0.0.1": ["TEAM_KEY"]}}
        bench.write("cases/theirs/keys.yaml", grant)
        bench.case("one", folder="cases/theirs")
        assert bench.run("--model=m", "cases").exit != 0
    assert listener.said == []


def test_the_users_own_configuration_says_where_a_key_goes(bench: Bench) -> None:
    bench.case("one")
    with listening() as listener:
        bench.models({"model_id": "m", "base_url": f"{listener.url}/v1"})
        grant = {"schema_version": 1, "hosts": {"127.0.0.1": ["OPENAI_API_KEY"]}}
        bench.write("own/pytest-agentbench/keys.yaml", grant)
        bench.profile("once", runner_defaults={"retries": 0})
        bench.run("--model=m", "--agentbench-run-profile=once", "cases")
    assert f"Bearer {SECRET}".encode() in listener.said[0]


def test_a_redirect_of_a_server_takes_no_header_along(bench: Bench) -> None:
    mcp = McpBench(bench)
    reply = b"HTTP/1.1 307 Elsewhere\r\nLocation: %b/mcp\r\nContent-Length: 0\r\n\r\n"
    with listening() as elsewhere, listening(reply % elsewhere.url.encode()) as service:
        mcp.servers(Test={"url": f"{service.url}/mcp", "headers": {"X": "${TEAM_KEY}"}})
        mcp.case("asks", servers=["Test"])
        finished = mcp.run()
    assert finished.outcomes == {"asks[demo]": "error"}
    assert SECRET.encode() in service.said[0]
    assert elsewhere.said == []


@pytest.mark.slow
def test_a_container_engine_is_installed_or_the_roots_own_and_is_told_no_keys(bench: Bench, tmp_path) -> None:
    def engine(folder: Path) -> Path:
        folder.mkdir()
        (folder / "engine").write_text('#!/bin/sh\nenv > "$0.told"; exit 1\n')
        (folder / "engine").chmod(0o755)
        return folder / "engine"

    outside, own = engine(tmp_path / "outside"), engine(bench.path / "tools")
    bench.case("one")
    block = {"agent_id": "a", "image": "x:1", "timeout_seconds": 9}
    for number, path in enumerate((outside, os.path.relpath(outside, bench.path / "cases/run_profiles"))):
        bench.profile(f"p{number}", openclaw={**block, "docker_cli": str(path)})
        finished = bench.run("--model=demo", f"--agentbench-run-profile=p{number}", "cases")
        assert finished.exit != 0
        assert "openclaw.docker_cli: found" in finished.text
    assert not outside.with_name("engine.told").exists()
    assert engine_problem(str(own)) is not None
    assert SECRET not in own.with_name("engine.told").read_text()
