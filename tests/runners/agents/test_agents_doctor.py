"""`agentbench agents doctor`: each trouble of an adapter or a program is named with what to change."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench
from support.docker_here import needs_bubblewrap

from pytest_agentbench.cli import main
from pytest_agentbench.runners.agents.differences import OFFER, Difference, find_differences

AGENT = Path(__file__).parents[2] / "support" / "odd_agent.py"
ACP_AGENT = AGENT.with_name("stub_acp_agent.py")
ADAPTER: dict[str, Any] = {
    "schema_version": 1,
    "name": "odd",
    "title": "Odd",
    "licence": "MIT",
    "install": {"pypi": "odd==1.0.0"},
    "dialects": ["chat"],
    "argv": ["python3", "{root}/odd/agent.py", "{message}"],
    "env": {"RUN_MODEL": "{model}"},
    "answer": {"from": "stdout"},
    "tools": {"shell": {"name": "sh", "arguments": {"command": "{command}"}}},
}
SHELL = {"shell": {"name": "run", "arguments": {"command": "{command}"}}}
WRITE = {**ADAPTER["tools"], "write": {"name": "write", "arguments": {"path": "{path}"}}}
FINISH = {"name": "done", "arguments": {"text": "{content}"}}
MCP = {"file": "{home}/odd.json", "at": "servers", "http": {"url": "{url}"}, "names": "{server}_{tool}"}


def examine(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sandbox: str, **fields: Any
) -> tuple[int, str]:
    """Return the exit status and the report of the doctor for an adapter with these fields and `odd` variables."""
    odd = fields.pop("odd", {})
    variables = {f"ODD_{name.upper()}": value for name, value in odd.items()}
    adapter = {**ADAPTER, "env": {**ADAPTER["env"], **variables}, **fields}
    bench.write("cases/agents/odd/agent.yaml", adapter)
    bench.write("cases/odd/agent.py", AGENT.read_text(encoding="utf-8"))
    bench.write("cases/odd/acp.py", ACP_AGENT.read_text(encoding="utf-8"))
    bench.write("cases/models.yaml", {"schema_version": 1, "models": []})
    monkeypatch.chdir(bench.path / "cases")
    status = main(["agents", "doctor", "odd", "--sandbox", sandbox])
    return status, capsys.readouterr().out


def ask(text: str, *tools: str) -> dict[str, Any]:
    offer = [{"type": "function", "function": {"name": name, "description": f"About {name}."}} for name in tools]
    return {"messages": [{"role": "user", "content": text}], "tools": offer}


def test_requests_of_two_runs_are_compared_in_any_order() -> None:
    title, one, other = ask("A title."), ask("Session 1f: go.", "sh"), ask("Session 2e: go.", "sh")
    assert find_differences([title, one], [one, title]) == []
    [found] = find_differences([title, one], [other, title])
    assert found.line == '- {where: user, pattern: "Session [0-9a-f]+", as: "Session [id]"}'
    assert [each.where for each in find_differences([title, one], [one])] == ["number of requests"]


def test_tools_that_one_run_offers_are_the_only_difference_that_is_told() -> None:
    def compare(one: Sequence[str], other: Sequence[str]) -> list[Difference]:
        return find_differences([ask(f"Go with {len(one)}.", *one)], [ask(f"Go with {len(other)}.", *other)])

    assert compare(["sh", "bird"], ["sh"]) == [Difference(OFFER, "bird", "")]
    assert compare(["edit", "sh"], ["bird", "sh", "cat"]) == [Difference(OFFER, "edit", "bird, cat")]
    assert [each.where for each in compare(["sh", "bird"], ["bird", "sh"])] == ["tools"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param(
            {"dialects": ["chat"], "odd": {"path": "/responses"}},
            "the program asks OpenAI Responses (POST /v1/responses, 1 time); the adapter says dialects: [chat]. "
            "Write dialects: [responses]",
            id="wrong dialects",
        ),
        pytest.param(
            {"tools": SHELL, "odd": {"tools": '{"bash": ["command"], "write": ["filePath", "content"]}'}},
            "tools.shell.name is 'run'; the request offers: bash{command}, write{filePath, content}. "
            "Closest for shell: bash{command}",
            id="tool not offered",
        ),
        pytest.param(
            {"tools": WRITE, "odd": {"tools": '{"sh": ["command"], "write": ["filePath", "content"]}'}},
            "tools.write.arguments has 'path'; write requires 'filePath', 'content'",
            id="wrong argument names",
        ),
        pytest.param(
            {"odd": {"stay": "1"}},
            r"the program asked nothing at http://127\.0\.0\.1:\d+\S* \(exit 1 after [\d.]+ s\); other hosts: .*"
            r"OPENAI_BASE_URL.* its last lines: no key for api\.example\.com",
            id="program never asked",
        ),
        pytest.param(
            {"odd": {"path": "/completions"}},
            "POST /v1/completions is not served; the nearest is /v1/chat/completions",
            id="wrong path",
        ),
        pytest.param(
            {"odd": {"print": "banner"}},
            "stdout holds the answer and 28 other characters; write answer: {from: reply}",
            id="decoration in stdout",
        ),
        pytest.param(
            {"answer": {"from": "stdout_json", "path": "text"}, "odd": {"print": "json"}},
            "the answer is None, and the model's last text is 'It says kingfisher.'; stdout has it at: "
            "{from: stdout_json, path: result.text}",
            id="wrong answer reading",
        ),
        pytest.param(
            {"odd": {"finish": "done", "tools": '{"sh": ["command"], "done": ["text"]}'}},
            "it asked again after the model's last text: if it ends by a tool call, write finish: {name: ..., "
            "arguments: {...: '{content}'}} with one of sh{command}, done{text}",
            id="finish missing",
        ),
        pytest.param(
            {
                "finish": {"name": "done", "arguments": {"text": "'{content}'"}},
                "odd": {"finish": "done", "tools": '{"sh": ["command"], "done": ["text"]}'},
            },
            'finish: the answer is "\'It says kingfisher.\'"; sent was done{"text": "\'It says kingfisher.\'"} '
            "(no shell: not quoted); the request offers done{text}",
            id="finish quoted",
        ),
        pytest.param(
            {"odd": {"tools": "{}"}},
            "no tools offered: portable steps are skipped; answers only",
            id="no tools offered",
        ),
        pytest.param(
            {"odd": {"model": "gpt-9"}},
            "it asked for other models than the run's: 'gpt-9' (3 times); write pin: rewrite, or name the setting",
            id="other model",
        ),
        pytest.param(
            {"odd": {"title": "1"}},
            r'helpers: - {system_matches: "^Write a title \\(short\\)\\.", reply: A task}',
            id="helper requests",
        ),
        pytest.param(
            {"odd": {"nonce": "1"}},
            '; add to volatile: - {where: system, pattern: "You are odd\\\\. Session [0-9a-f]+", '
            'as: "You are odd. Session [id]"}',
            id="volatile text",
        ),
        pytest.param(
            {"mcp": MCP},
            r"it did not connect the MCP server doctor: it is in \{home\}/odd\.json at servers; does it read that, and "
            "does it trust the workspace",
            id="MCP server not connected",
        ),
        pytest.param(
            {"mcp": MCP, "odd": {"mcp": "hidden"}},
            "it listed the tools of the MCP server doctor, and no request offers one; the requests offer: sh{command}. "
            "If it hides tools behind a search, switch that off",
            id="MCP tools deferred",
        ),
        pytest.param(
            {"mcp": MCP, "odd": {"mcp": "late"}},
            "its first request lacks doctor_bird, and a later one offers it: it asks before its MCP servers have "
            "started",
            id="MCP tools late",
        ),
        pytest.param(
            {"mcp": MCP, "odd": {"mcp": "deaf"}},
            "it asked the MCP server doctor for initialize (1 time), and never for tools/list",
            id="MCP tools never listed",
        ),
        pytest.param(
            {"mcp": {**MCP, "names": "mcp__{server}__{tool}"}, "odd": {"mcp": "yes"}},
            "mcp.names is 'mcp__{server}__{tool}'; the requests offer doctor_bird. Write names: '{server}_{tool}'",
            id="names of MCP tools",
        ),
        pytest.param(
            {"argv": [], "acp": {"argv": ["python3", "{root}/odd/acp.py", "not acp"]}},
            "agent_start: odd did not start: .* its first line that is no message: 'Welcome to the agent!'. "
            "Is the option that starts ACP missing?",
            id="stdout not ACP",
        ),
        pytest.param(
            {"argv": ["{root}/odd/nothing", "{message}"]},
            r"there is no program \S+/cases/odd/nothing; install it",
            id="missing program of the repository",
        ),
        pytest.param(
            {"argv": ["no-such-agent", "{message}"]},
            "the program no-such-agent is not installed",
            id="missing program",
        ),
        pytest.param(
            {"argv": ["{root}/odd/agent.py", "{message}"]},
            r"the program \S+/odd/agent\.py is not executable \(chmod \+x",
            id="not executable",
        ),
    ],
)
def test_each_trouble_is_named_with_what_to_change(
    bench: Bench,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fields: Mapping[str, Any],
    said: str,
) -> None:
    status, text = examine(bench, capsys, monkeypatch, "local", **fields)
    problems = text.partition(" problem")[2]
    assert said in problems or re.search(said, problems), text
    assert status == 1


@pytest.mark.slow
@needs_bubblewrap
def test_other_hosts_are_observed_in_bubblewrap(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {"base": "https://api.example.com/v1"}
    status, text = examine(bench, capsys, monkeypatch, "bubblewrap", odd=odd)
    said = "it tried api.example.com:443 (1 time). Give it the gateway: which variable or file sets its base URL?"
    assert said in text, text
    assert "Traceback" in text  # its own words are in the report
    assert status == 1


@pytest.mark.slow
@needs_bubblewrap
def test_a_file_below_tmp_is_named_with_its_path_and_the_reason(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        shutil.copy(AGENT, folder)
        argv = ["python3", f"{folder}/odd_agent.py", "{message}"]
        status, text = examine(bench, capsys, monkeypatch, "bubblewrap", argv=argv)
    assert f"argv[1]: found {folder}/odd_agent.py: the sandbox has a /tmp of its own" in text
    assert status == 1


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["local", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def test_a_right_adapter_has_no_problem(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    finish = {"name": "done", "arguments": {"text": "{content}"}}
    tools = json.dumps({"sh": ["command"], "done": ["text"]})
    odd = {"finish": "done", "tools": tools, "print": "banner", "tag": "1"}
    status, text = examine(
        bench, capsys, monkeypatch, sandbox, odd=odd, finish=finish, answer={"from": "file", "file": "{workspace}/x"}
    )
    assert status == 1  # the answer is in no file
    fields = {"finish": {"name": "done", "arguments": {}}, "answer": {"from": "reply"}}
    tools = json.dumps({"sh": ["command"], "done": []})
    status, text = examine(bench, capsys, monkeypatch, sandbox, odd={**odd, "tools": tools}, **fields)
    assert status == 0, text
    lines = [line.strip() for line in text.splitlines()]
    assert "Chat Completions: POST /v1/chat/completions (3 times)" in lines
    assert "tools offered: sh{command}, done{}" in lines
    assert "answer: 'It says kingfisher.' (from reply)" in lines
    assert "files changed: bird.txt" in lines
    assert "differences between two runs: none" in lines
    assert lines[-1] == "no problem found"
    assert os.environ.get("ODD_PRINT") is None


@pytest.mark.slow
def test_the_call_of_an_mcp_server_is_a_part_of_the_trial(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, text = examine(bench, capsys, monkeypatch, "local", mcp=MCP, odd={"mcp": "yes"})
    assert status == 0, text
    assert "tools offered: sh{command}, doctor_bird{}" in text
    assert "MCP server doctor, asked for: initialize (1 time), tools/list (1 time), tools/call (1 time)" in text
    assert "call: doctor:bird{} -> kingfisher" in text


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["local", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def test_an_agent_by_acp_is_tried_in_a_session(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    acp = {"argv": ["python3", "{root}/odd/acp.py"]}
    status, text = examine(bench, capsys, monkeypatch, sandbox, argv=[], acp=acp)
    assert status == 0, text
    assert f"Odd 1.0.0 by ACP in {sandbox}:" in text
    assert "answer: 'Goodbye.' (from reply)" in text
    assert "messages: Warning: a word of its own. Goodbye." in text


@pytest.mark.slow
def test_each_form_of_an_agent_is_tried(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    acp = {"argv": ["python3", "{root}/odd/acp.py", "exit early"]}
    status, text = examine(bench, capsys, monkeypatch, "local", acp=acp)
    by_command, by_acp = text.split("Odd 1.0.0 by ACP in local:")
    assert "no problem found" in by_command
    assert "agent_start: odd did not start" in by_acp
    assert status == 1
