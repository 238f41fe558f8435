"""`plugins` and `skills` of variants, cases and run profiles: what agents get, what is left out, and mistakes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from support.bench import Bench
from support.skills import agent_case, read_artifact, write_adapter, write_script, write_skill, write_suite

SERVER = Path(__file__).parents[1] / "support/mcp_server.py"
SKIPPED = "the plugin sales: left out, because only its own program uses them: commands"


def write_plugin(bench: Bench, name: str = "sales", *, servers: bool = True) -> None:
    """Write a plugin with the skill `signs`, a command, and by default the MCP server `kb`."""
    write_skill(bench, folder=f"cases/{name}/skills")
    bench.write(f"cases/{name}/commands/sell.md", "Sell.")
    if servers:
        command = {"command": sys.executable, "args": ["${CLAUDE_PLUGIN_ROOT}/server.py"]}
        bench.write(f"cases/{name}/.mcp.json", json.dumps({"mcpServers": {"kb": command}}))
        shutil.copy(SERVER, bench.path / f"cases/{name}/server.py")


def write_profile(bench: Bench, **fields: object) -> None:
    file = {"schema_version": 1, "run_profile_id": "own", "title": "Own", "sandbox": "local", **fields}
    bench.write("cases/run_profiles/own.yaml", file)


@pytest.fixture
def probe(bench: Bench) -> Bench:
    write_plugin(bench)
    write_profile(bench)
    write_suite(bench, {"without": {}, "with": {"plugins": ["../sales"]}})
    bench.case("sign")
    write_script(bench, "sign", {"content": "Paris"})
    return bench


def run(bench: Bench, *options: str):
    return bench.run("cases", "--model", "demo", "--agentbench-run-profile", "own", *options)


def tools(bench: Bench, row: dict[str, str]) -> set[str]:
    return set(read_artifact(bench, row)["request"].get("tools", ()))


def test_a_variant_with_a_plugin_has_its_skills_and_servers_and_names_the_rest(probe: Bench) -> None:
    finished = run(probe, "--agentbench-suite", "ab")
    assert finished.outcomes == {"sign[demo:without]": "passed", "sign[demo:with]": "passed"}, finished.text
    assert tools(probe, finished.runs["sign[demo:without]"]) == set()
    assert tools(probe, finished.runs["sign[demo:with]"]) >= {"skill", "kb:echo"}
    assert SKIPPED in finished.text
    assert finished.report["variants"]["with"]["changed"] == ["skills", "plugins"]
    probe.write("cases/sales/skills/signs/notes.txt", "An edit.")
    write_suite(probe, {"without": {}, "with": {"plugins": ["../sales"]}})
    assert [row["reused"] for row in run(probe, "--agentbench-suite", "ab").runs.values()] == [True, False]


def test_a_case_and_a_run_profile_have_plugins_and_skills_and_a_variant_replaces_the_skills(probe: Bench) -> None:
    write_skill(probe, "posters")
    probe.case("sign", plugins=["../sales"])
    write_profile(probe, skills=["../skills/posters"])
    write_suite(probe, {"own": {}, "none": {"skills": [], "mcp_servers": []}})
    finished = run(probe, "--agentbench-suite", "ab")
    assert {*finished.runs["sign[demo:own]"]["skills"]} == {"posters", "signs"}
    assert tools(probe, finished.runs["sign[demo:own]"]) >= {"skill", "kb:echo"}
    assert tools(probe, finished.runs["sign[demo:none]"]) == set()
    probe.case("sign")
    write_profile(probe, plugins=["../sales"])
    finished = run(probe)
    assert tools(probe, finished.runs["sign[demo]"]) >= {"skill", "kb:echo"}
    assert SKIPPED in finished.text


def test_an_agent_that_takes_no_servers_gets_none_of_a_plugin(bench: Bench) -> None:
    write_plugin(bench)
    write_adapter(bench)
    agent_case(bench)
    write_suite(bench, {"without": {}, "with": {"plugins": ["../sales"]}})
    finished = bench.run("cases", "--model", "demo", "--agentbench-suite", "ab", "-k", "with and not without")
    assert finished.outcomes == {"sign[demo:with]": "skipped"}
    assert "agent 'stub' takes no MCP servers" in finished.runs["sign[demo:with]"]["message"]
    agent_case(bench, plugins=["../sales"])
    finished = bench.run("cases", "--model", "demo")
    assert finished.outcomes == {"sign[demo]": "error"}
    assert "agent 'stub' takes no MCP servers" in finished.text


def test_mistakes_of_plugins_are_errors(probe: Bench) -> None:
    write_plugin(probe, "shop")
    write_suite(probe, {"a": {"plugins": ["../sales", "../shop"]}})
    assert "name: found 'signs', which" in run(probe, "--agentbench-suite", "ab").text
    shutil.rmtree(probe.path / "cases/shop/skills")
    assert "found the MCP server 'kb', which the plugin" in run(probe, "--agentbench-suite", "ab").text
    write_suite(probe, {"a": {"plugins": []}})
    assert "variants.a.plugins" in run(probe, "--agentbench-suite", "ab").text
