"""Runner `acp`: a small agent of a case's workspace, well-behaved and not, in each sandbox that is here."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, Finished, check
from support.docker_here import IMAGE, docker_lacks, needs_bubblewrap
from support.processes import running

AGENT = Path(__file__).parents[2] / "support" / "stub_acp_agent.py"
needs_docker = pytest.mark.skipif(bool(docker_lacks()), reason=str(docker_lacks()))
SANDBOXES = ["local", pytest.param("bubblewrap", marks=needs_bubblewrap), pytest.param("docker", marks=needs_docker)]
FREE = {"allow": "free", "ask": "ask"}
SHELL = {"tool_calls": [{"name": "sh", "arguments": {"command": "echo hi > out.txt; cat out.txt"}}]}
WRITES = [SHELL, {"content": "Paris"}]


def case(bench: Bench, name: str, *texts: str, fault: str = "", steps: Any = WRITES, **runner: Any) -> None:
    """A case with a turn for each text. The steps answer the first one, later ones are echoed."""
    fields = {name: runner.pop(name) for name in ("deterministic_checks", "sandbox_needs") if name in runner}
    if (needs := fields.pop("sandbox_needs", None)) is not None:
        fields["sandbox"] = needs
    command = ["python3", "agent.py", *([fault] if fault else [])]
    bench.case(
        name,
        runner={"type": "acp", "command": command, "sandbox": "local", "timeout_seconds": 60, "mode": FREE, **runner},
        input={"turns": [{"role": "user", "content": text} for text in texts]},
        workspace="ws",
        **fields,
    )
    bench.write(f"cases/{name}/ws/agent.py", AGENT.read_text(encoding="utf-8"))
    replies = [{"when": texts[0], "steps": steps}, *({"when": text, "content": f"Paris, {text}"} for text in texts[1:])]
    bench.write(f"cases/{name}/demo.yaml", {"schema_version": 1, "replies": replies})


def run(bench: Bench, *options: str) -> Finished:
    return bench.run("--model", "demo", "cases", *options)


def artifacts(bench: Bench) -> dict[str, dict[str, Any]]:
    paths = bench.path.glob("outputs/runs/**/run_1.json")
    return {found["case_id"]: found for found in (json.loads(path.read_text(encoding="utf-8")) for path in paths)}


def events(run: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [each["data"] for each in run["trace"] if each["type"] == "runner" and each["name"] == name]


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_turns_are_prompts_of_one_session(bench: Bench, sandbox: str) -> None:
    needs = {"sandbox_needs": {"image": IMAGE}} if sandbox == "docker" else {}
    case(bench, "one", "Write it.", "and now?", sandbox=sandbox, **needs)
    finished = run(bench)
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    found = artifacts(bench)["one"]
    texts = [
        (each["type"], each.get("content")) for each in found["trace"] if each["type"] in ("message", "tool_result")
    ]
    # The answer is the model's text, without the agent's own words around it
    assert texts == [
        ("message", "Write it."),
        ("tool_result", "hi\n"),
        ("message", "Paris"),
        ("message", "and now?"),
        ("message", "Paris, and now?"),
    ]
    # The second prompt's request holds the first turn
    assert [each["messages"] for each in events(found, "request")] == [1, 3, 5]
    assert [each["path"] for each in found["changes"]] == ["out.txt"]
    assert found["provider"]["usage_source"] == ("gateway_partial" if sandbox == "local" else "gateway")
    [first, _] = events(found, "acp_messages")
    assert first["text"] == "Warning: a word of its own. Paris"
    [call] = first["calls"]
    assert (call["tool_call_id"], call["status"]) == ("call_1_0", "completed")


ENDS = {
    "noise": ("success", None, None),
    "unknown request": ("success", None, None),
    "forge": ("success", None, None),
    "no once": ("success", None, None),
    "refusal": ("success", None, None),
    "max_tokens": ("success", None, None),
    "max_turn_requests": ("success", None, None),
    "cancelled": ("failed", "agent_failed", "stopReason 'cancelled', though nobody cancelled it"),
    "bored": ("failed", "agent_failed", "stopReason 'bored', which is none of the protocol's"),
    "error": ("failed", "agent_failed", "error -32603: Internal error: it is broken"),
    "exit": ("failed", "agent_exit", "the last words"),
    "long line": ("failed", "acp_protocol", "a line of more than 16 MB"),
    "many bad lines": ("failed", "acp_protocol", "more than 1,000 lines of its stdout are no messages, as: no message"),
    "silent": ("timed_out", "run_timeout", "no answer within timeout_seconds (3 s)"),
    "stays": ("success", None, None),
    "ends on denial": ("success", None, None),
}
"""Status, code and a part of the message of the runs of agents that break the protocol."""

STARTS = {
    "never": "agent_start: the agent did not start: it did not answer initialize within start_seconds (5 s)",
    "not acp": "its first line that is no message: 'Welcome to the agent!'. Is the option that starts ACP missing?",
    "version 2": "agent_cannot: the agent cannot run this case: it answers with version 2 of the protocol, expected 1",
    "auth": "it answered session/new with error -32000: Authentication required; name one of its authentication",
    "no session": "it answered session/new without a sessionId",
    "exit early": "it closed its stdout before it answered initialize; its last lines:\ncannot find its settings",
}
"""A part of the error of agents that do not start."""


@pytest.mark.slow
def test_broken_agents_end_with_their_cause(bench: Bench) -> None:
    for fault in ENDS:
        fields: dict[str, Any] = {"timeout_seconds": 3} if fault == "silent" else {}
        if fault == "no once":
            fields = {"permissions": "ask-recorded"}
        if fault == "ends on denial":
            fields = {"permissions": "deny"}
        case(bench, fault.replace(" ", "-"), "Write it.", fault=fault, **fields)
    for fault in STARTS:
        case(bench, fault.replace(" ", "-"), "Write it.", fault=fault, start_seconds=5)
    began = time.monotonic()
    finished = run(bench)
    assert time.monotonic() - began < 60
    found = artifacts(bench)
    for fault, (status, code, text) in ENDS.items():
        artifact = found[fault.replace(" ", "-")]
        error = artifact["error"] or {"code": None, "message": ""}
        assert (artifact["status"], error["code"]) == (status, code), (fault, error)
        assert (text or "") in error["message"], fault
    for fault, text in STARTS.items():
        row = finished.runs[f"{fault.replace(' ', '-')}[demo]"]
        assert row["outcome"] == "error", fault
        assert text in finished.text, fault
    # What the agent says of itself is no call, no usage and no answer
    forged = found["forge"]
    assert [each["type"] for each in forged["trace"]].count("tool_call") == 1
    assert forged["usage"]["output_tokens"] < 1000
    assert next(each["content"] for each in forged["trace"] if each["type"] == "final_output") == "Paris"
    assert [each["answer"] for each in events(found["no-once"], "permission")] == ["allow_always"]
    assert events(found["noise"], "acp_noise")[0]["counts"] == {
        "bad line": 2,
        "unexpected reply": 1,
        "update compaction_update": 1,
        "notification vendor/notice": 1,
    }
    assert {name: found[name]["end_reason"] for name in ("refusal", "max_tokens", "max_turn_requests")} == {
        "refusal": "refused",
        "max_tokens": "length",
        "max_turn_requests": "max_turns",
    }
    assert found["refusal"]["end_detail"]["raw"] == "refusal"
    assert found["ends-on-denial"]["end_detail"]["raw"] == "permission_denied"
    assert not running("sleep 614")


@pytest.mark.slow
def test_permissions_are_answered_by_policy_and_rules(bench: Bench) -> None:
    asked = check("asked", kind="permission_asked", title="sh: echo*", answer="allow")
    refused = check("refused", kind="permission_asked", tool_kind="execute", answer="deny")
    no_file = check("no-file", kind="not", check={"kind": "path_exists", "path": "out.txt"})
    case(bench, "allowed", "Write it.", deterministic_checks=[check("none", kind="not", check=asked["declarative"])])
    case(bench, "denied", "Write it.", permissions="deny", deterministic_checks=[refused, no_file])
    for number, (name, rule) in enumerate((("tool", "sh: *"), ("kind", "execute"), ("path", "/workspace/*"))):
        rules = [{"tool": "other", "answer": "allow"}, {name: rule, "answer": "deny"}]
        fields = {"permissions": "ask-recorded", "permission_rules": rules}
        case(bench, f"rule-{number}", "Write it.", deterministic_checks=[refused, no_file], **fields)
    case(bench, "no-rule", "Write it.", permissions="ask-recorded", deterministic_checks=[asked])
    case(bench, "wrong", "Write it.", permissions="deny", deterministic_checks=[asked])
    finished = run(bench)
    passed = ("allowed", "denied", "rule-0", "rule-1", "rule-2", "no-rule")
    expected = {**{f"{name}[demo]": "passed" for name in passed}, "wrong[demo]": "failed"}
    assert finished.outcomes == expected, finished.text
    found = artifacts(bench)
    assert events(found["allowed"], "permission") == []
    assert events(found["rule-0"], "permission") == [
        {
            "tool_call_id": "call_1_0",
            "tool": None,
            "title": "sh: echo hi > out.txt; cat out.txt",
            "kind": "execute",
            "status": None,
            "options": events(found["denied"], "permission")[0]["options"],
            "answer": "reject_once",
            "policy": "ask-recorded",
            "rule": 1,
        }
    ]
    # The model was told of the refusal, and its turn went on
    assert [e["content"] for e in found["denied"]["trace"] if e["type"] == "tool_result"] == ["the user refused it"]
    assert "expected: a request for permission of sh: echo*, answered with allow" in finished.text


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", SANDBOXES[:2])
def test_a_time_limit_cancels_the_turn_and_leaves_no_process(bench: Bench, sandbox: str) -> None:
    sleeps = {"tool_calls": [{"name": "sh", "arguments": {"command": "exec sleep 615"}}]}
    case(bench, "one", "Sleep.", steps=[sleeps, {"content": "Paris"}], sandbox=sandbox, timeout_seconds=2)
    began = time.monotonic()
    run(bench)
    assert time.monotonic() - began < 12
    found = artifacts(bench)["one"]
    assert (found["status"], found["error"]["code"]) == ("timed_out", "run_timeout")
    assert [each["name"] for each in found["trace"] if each["type"] == "tool_call"] == ["sh"]
    assert events(found, "acp_cancel") == []  # the agent answered the cancellation
    assert not running("sleep 615")


@pytest.mark.slow
def test_an_outage_counts_before_the_agents_words(bench: Bench) -> None:
    for fault in ("hide", ""):
        name = fault or "tells"
        case(bench, name, "Write it.", fault=fault, steps=[SHELL, {"error": {"status": 500}}], retries=0)
    finished = run(bench)
    assert finished.outcomes == {"hide[demo]": "error", "tells[demo]": "error"}
    assert {each["status"] for each in artifacts(bench).values()} == {"provider_error"}


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_files_and_commands_are_served_in_the_sandbox(bench: Bench, sandbox: str) -> None:
    needs = {"sandbox_needs": {"image": IMAGE}} if sandbox == "docker" else {}
    replies = (
        r'\[\{[^{]*"result": \{\}\}, \{[^{]*\{"content": "two\\n"\}\}, \{[^{]*\{"code": -32602.*\{"code": -32602.*'
        r'"exitCode": 0.*"output": "from a terminal\\n"'
    )
    made = [
        check("made", kind="regex_match", path="made.txt", pattern="one\ntwo\nthree"),
        check("replies", kind="regex_match", path="replies.json", pattern=replies),
    ]
    services = {"fs": True, "terminal": True}
    case(bench, "on", "Go.", fault="files", sandbox=sandbox, client=services, deterministic_checks=made, **needs)
    case(bench, "off", "Go.", fault="files", sandbox=sandbox, **needs)
    finished = run(bench)
    assert finished.outcomes == {"on[demo]": "passed", "off[demo]": "passed"}, finished.text
    found = artifacts(bench)
    assert [each["method"] for each in events(found["on"], "client_request")][:2] == [
        "fs/write_text_file",
        "fs/read_text_file",
    ]
    assert events(found["off"], "client_request") == []


@pytest.mark.slow
def test_a_command_that_cannot_be_started_is_the_agents_failure(bench: Bench) -> None:
    codes = check("codes", kind="regex_match", path="replies.json", pattern=r"^\[126, 126, 126, 126, 127, 126, 127\]$")
    case(bench, "on", "Go.", fault="unusable commands", client={"terminal": True}, deterministic_checks=[codes])
    finished = run(bench)
    assert finished.outcomes == {"on[demo]": "passed"}, finished.text


@pytest.mark.parametrize(
    ("runner", "text"),
    [
        ({"agent": "codex"}, "runner: expected exactly one of 'command' and 'agent'"),
        ({"permissions": "ask"}, "runner.permissions: found 'ask', expected 'allow', 'deny' or 'ask-recorded'"),
        ({"argv": ["-x"]}, "runner.argv: belongs to 'agent', and there is none; leave it out"),
        (
            {"permission_rules": [{"tool": "x", "answer": "deny"}]},
            "runner.permission_rules: found rules without 'permissions: ask-recorded', which alone uses them; add it",
        ),
        (
            {"permissions": "ask-recorded", "permission_rules": [{"answer": "deny"}]},
            "runner.permission_rules[0]: expected exactly one of 'tool', 'kind' and 'path'",
        ),
        ({"command": ["python3", "a\0b"]}, "runner.command[1]: found a NUL character, which no program accepts"),
        ({"command": ["python3", "{modle}"]}, "runner.command[1]: unknown name {modle}; did you mean 'model'?"),
    ],
)
def test_errors_in_a_case_contain_their_place(bench: Bench, runner: dict[str, Any], text: str) -> None:
    case(bench, "one", "Write it.", **runner)
    finished = bench.run("--model", "demo", "--collect-only", "cases")
    assert text in finished.text


def test_an_agent_without_acp_is_an_error_of_the_case(bench: Bench) -> None:
    bench.case("one", runner={"type": "acp", "agent": "mini_swe_agent", "sandbox": "local"})
    finished = run(bench)
    assert "runner.agent: the agent mini_swe_agent has no `acp` in its agent.yaml" in finished.text
