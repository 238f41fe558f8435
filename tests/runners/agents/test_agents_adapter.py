"""Runner `agent`, with an adapter of a config root's own for a small agent; real ones where their images are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.agents_here import agent_lacks
from support.bench import Bench, check

from pytest_agentbench.cli import main
from pytest_agentbench.cli.places import enclosing_root
from pytest_agentbench.runners.agents.adapter import find_adapter, list_adapters, make_agent
from pytest_agentbench.runners.agents.doctor import list_forms, try_agent
from pytest_agentbench.runners.agents.fields import AgentFields

STUB = Path(__file__).parents[2] / "support" / "stub_agent.py"
ADAPTER: dict[str, Any] = {
    "schema_version": 1,
    "name": "stub",
    "title": "Stub",
    "licence": "MIT",
    "install": {"pypi": "stub==1.0.0"},
    "dialects": ["chat"],
    "argv": ["python3", "{workspace}/agent.py", "{message}"],
    "resume_argv": ["python3", "{workspace}/agent.py", "--resume", "{session}", "{message}"],
    "env": {"STUB_MODEL": "{model}"},
    "files": {"{home}/settings.json": {"model": "{model}", "context": "{context_tokens}"}},
    "answer": {"from": "stdout_json", "path": "result.text"},
    "session": {"path": "session"},
    "reported": {"path": "counted", "input": "in", "output": "out"},
    "tools": {"shell": {"name": "sh", "arguments": {"command": "{command}"}}},
}
USAGE = {"usage": {"input_tokens": 11, "output_tokens": 3}}


def project(bench: Bench, agent: str = "stub", **fields: Any) -> None:
    bench.write("cases/agents/stub/agent.yaml", {**ADAPTER, **fields})
    bench.case(
        "one",
        runner={"type": "agent", "agent": agent, "sandbox": "local", "timeout_seconds": 60},
        input={"turns": [{"role": "user", "content": "Write it."}]},
        workspace="ws",
        deterministic_checks=[
            check("says", kind="regex_match", pattern="Paris"),
            check("wrote", kind="regex_match", path="sub/out.txt", pattern="it's"),
            check("by", kind="tool_called", portable="shell"),
            check("only", kind="tool_not_called", portable="edit"),
        ],
    )
    bench.write("cases/one/ws/agent.py", STUB.read_text(encoding="utf-8"))
    write = {"tool_calls": [{"portable": "write", "arguments": {"path": "sub/out.txt", "content": "it's"}}]}
    read = {"tool_calls": [{"portable": "read", "arguments": {"path": "sub/out.txt"}}]}
    steps = [
        {**write, "usage": {"input_tokens": 0, "output_tokens": 0}},
        {**read, "usage": {"input_tokens": 0, "output_tokens": 0}},
        {"content": "Paris", **USAGE},
    ]
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})


def artifact(bench: Bench) -> dict[str, Any]:
    [path] = bench.path.glob("outputs/runs/**/run_1.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_portable_calls_become_the_agents_own(bench: Bench) -> None:
    project(bench)
    finished = bench.run("--model", "demo", "cases")
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    found = artifact(bench)
    calls = [(each["name"], each["arguments"]["command"]) for each in found["trace"] if each["type"] == "tool_call"]
    assert calls == [
        ("sh", """mkdir -p -- "$(dirname -- sub/out.txt)" && printf %s 'it'"'"'s' > sub/out.txt"""),
        ("sh", "cat -- sub/out.txt"),
    ]
    assert found["request"]["portable"] == {"sh": "shell"}
    [turn] = [each["data"] for each in found["trace"] if each.get("name") == "turn"]
    assert turn["agent_reported"] == {"input": 11, "output": 3}
    assert not [each for each in found["trace"] if each.get("name") == "usage_mismatch"]


@pytest.mark.slow
def test_other_tokens_than_were_seen_are_a_warning(bench: Bench) -> None:
    project(bench, reported={"path": "counted", "input": "in", "output": "in"})
    finished = bench.run("--model", "demo", "cases")
    assert finished.outcomes == {"one[demo]": "passed"}
    assert "usage_mismatch: stub reports other token counts than its gateway: output 11 for 3" in finished.text


@pytest.mark.slow
def test_agents_and_models_are_a_matrix(bench: Bench) -> None:
    project(bench, agent="codex")
    bench.write("cases/agents/stub2/agent.yaml", {**ADAPTER, "name": "stub2"})
    bench.case("plain")
    bench.write("cases/plain/demo.yaml", {"schema_version": 1, "replies": [{"content": "Paris"}]})
    finished = bench.run("--model", "demo", "--agentbench-agent", "stub", "--agentbench-agent", "stub2", "cases")
    assert finished.outcomes == {
        "one[stub+demo]": "passed",
        "one[stub2+demo]": "passed",
        "plain[stub+demo]": "skipped",
        "plain[stub2+demo]": "skipped",
    }, finished.text
    assert {row["model_id"] for row in finished.runs.values()} == {"stub+demo", "stub2+demo"}
    assert bench.run("--model", "demo", "--agentbench-agent", "stub", "cases").runs["one[stub+demo]"]["reused"]


@pytest.mark.slow
def test_a_changed_adapter_is_another_subject(bench: Bench) -> None:
    project(bench)
    bench.run("--model", "demo", "cases")
    project(bench, title="Another title")
    assert bench.run("--model", "demo", "cases").runs["one[demo]"]["reused"]
    project(bench, env={"STUB_MODEL": "{model}", "MORE": "1"})
    assert not bench.run("--model", "demo", "cases").runs["one[demo]"]["reused"]


@pytest.mark.slow
def test_a_reader_of_an_adapters_own(bench: Bench) -> None:
    project(bench)
    source = "def read(stdout, stderr, exit):\n"
    bench.write("cases/agents/stub/read.py", f"{source}    return {{'text': f'Paris {{exit}} {{stderr.strip()}}'}}\n")
    assert bench.run("--model", "demo", "cases").outcomes == {"one[demo]": "passed"}
    assert artifact(bench)["trace"][-1]["content"] == "Paris 0 a line of a log"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"argv": ["stub", "{modle}"]}, "argv[1]: unknown name {modle}; did you mean 'model'?"),
        ({"argv": ["stub", "{session}"]}, "argv[1]: unknown name {session}"),
        ({"env": {"X": {"a": ["{mesage}"]}}}, "env.X: unknown name {mesage}"),
        ({"name": "other"}, "name: found 'other', which must match directory name 'stub'"),
        (
            {"session": None},
            "resume_argv: found {session} without `session`, which reads it",
        ),
        ({"install": {}}, "install: expected exactly one of 'npm' and 'pypi'"),
        ({"tools": {"shell": {"name": "sh", "arguments": {"c": "{path}"}}}}, "unknown name {path}"),
        ({"volatile": [{"pattern": "(", "as": "x"}]}, "volatile[0].pattern: found '(', expected a regular expression"),
        ({"argv0": 1}, "argv0: unknown field; did you mean 'argv'?"),
    ],
)
def test_errors_in_an_adapter_contain_their_place(
    bench: Bench, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], said: str
) -> None:
    path = bench.write("agents/stub/agent.yaml", {**ADAPTER, **fields})
    assert main(["validate", str(path)]) == 1
    [line] = [each for each in capsys.readouterr().out.splitlines() if said in each]
    assert line.startswith(f"{path}:")


def test_an_unknown_agent_is_an_error_with_its_case(bench: Bench) -> None:
    project(bench, agent="codx")
    finished = bench.run("--model", "demo", "cases")
    assert "cases/one/test.yaml:" in finished.text
    assert "runner.agent: there is no agent 'codx'; did you mean 'codex'?" in finished.text


def test_turns_need_an_agent_with_sessions(bench: Bench) -> None:
    turns = [{"role": "user", "content": text} for text in ("one", "two")]
    bench.case("one", runner={"type": "agent", "agent": "mini_swe_agent"}, input={"turns": turns})
    finished = bench.run("--model", "demo", "cases", "--collect-only")
    assert "input.turns: found 2 turns, and mini_swe_agent cannot continue a session" in finished.text


def test_a_cases_arguments_stand_before_the_message() -> None:
    for name in list_adapters():
        if not find_adapter(name).program.argv:
            continue  # messages of ACP are no arguments
        argv = make_agent(AgentFields(agent=name, argv=("--more",)), find_adapter(name)).argv
        assert "{message}" in argv[-1], name
        assert argv[argv.index("--more") + 1] in ("--", argv[-1]), name


def test_commands(bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.path)
    assert main(["agents", "list"]) == 0
    shown = capsys.readouterr().out
    assert "codex" in shown
    assert main(["agents", "init", "mine"]) == 0
    assert main(["validate", "agents"]) == 0
    assert main(["agents", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[-len(shown.splitlines()) :] == shown.splitlines()
    assert main(["agents", "list", "--all"]) == 0
    assert "mine" in capsys.readouterr().out
    assert main(["agents", "show", "mine"]) == 0
    assert "  MESSAGE" in capsys.readouterr().out
    assert main(["agents", "init", "mine"]) == 1
    assert main(["agents", "show", "codex"]) == 0
    assert 'base_url = "http://127.0.0.1:18790/v1"' in capsys.readouterr().out


@pytest.mark.slow
def test_the_doctor_reports_the_reason_why_an_agent_cannot_be_tried(bench: Bench) -> None:
    project(bench, argv=["no-such-agent", "{message}"])
    root = enclosing_root(bench.path / "cases")
    [problem] = try_agent(find_adapter("stub", root), "agent", root, "bubblewrap").problems
    assert "the program no-such-agent is not installed" in problem


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in list_adapters() if find_adapter(name).program.verified is not None])
def test_the_real_agent_in_its_image(name: str, tmp_path: Path) -> None:
    adapter = find_adapter(name)
    if (lacks := agent_lacks(name)) is not None:
        pytest.skip(lacks)
    for form in list_forms(adapter.program):
        assert try_agent(adapter, form, enclosing_root(tmp_path), "docker").problems == [], form
