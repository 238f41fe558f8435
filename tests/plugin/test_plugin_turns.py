"""A conversation in whole sessions: checks and expectations of its turns, on an agent program with a scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, Finished, check

from pytest_agentbench.cli import main

pytestmark = pytest.mark.slow

AGENT = Path(__file__).parents[1] / "support" / "stub_agent.py"
RUNNER = {
    "type": "command",
    "command": ["python3", "agent.py", "{message}"],
    "resume": ["python3", "agent.py", "--resume", "{message}"],
    "answer": {"from": "stdout_json", "path": "result.text"},
    "timeout_seconds": 60,
    "sandbox": "local",
}
REPLIES = [
    {
        "when": "Write it.",
        "steps": [
            {"tool_calls": [{"name": "sh", "arguments": {"command": "echo hi > out.txt"}}]},
            {"content": "Written: Paris."},
        ],
    },
    {"when": "What is in it?", "content": "Rome, I think."},
]
VERDICT = {
    "overall": 8,
    "expectations": [{"kind": "hard", "index": 0, "met": 1}, {"kind": "hard", "index": 1, "met": 0}],
}


def write_case(bench: Bench, *checks: Any, turns: tuple[dict[str, Any], ...] = ({}, {}), **fields: Any) -> None:
    texts = ("Write it.", "What is in it?", "Thanks.")
    own = [{"role": "user", "content": text, **turn} for text, turn in zip(texts, turns, strict=False)]
    bench.case(
        "one",
        runner=RUNNER,
        input={"turns": own},
        workspace="ws",
        deterministic_checks=[*checks] or None,
        **fields,
    )
    bench.write("cases/one/ws/agent.py", AGENT.read_text(encoding="utf-8"))
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": REPLIES, "judge": VERDICT})


def run(bench: Bench, *options: str) -> Finished:
    return bench.run("--model", "demo", "cases", *options)


def test_checks_look_at_their_turns(bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    first = {"checks": [check("writes", kind="tool_called", name="sh"), check("paris", kind="contains", text="Paris")]}
    second = {"checks": [check("knows", kind="contains", text="hello"), check("idle", kind="tool_call_count", count=0)]}
    write_case(bench, check("any-paris", kind="contains", text="Paris") | {"turn": "any"}, turns=(first, second))
    finished = run(bench, "--agentbench-json", "report.json")
    [row] = json.loads((bench.path / "report.json").read_text(encoding="utf-8"))["runs"]
    assert {each["check_id"]: each["outcome"] for each in row["checks"]} == {
        "any-paris": "passed",
        "writes": "passed",
        "paris": "passed",
        "knows": "failed",
        "idle": "passed",
    }
    assert "check knows: turn 2: the final output does not contain the text" in finished.text
    assert (row["conversation"]["turns"], row["conversation"]["requests"]) == (2, 3)
    assert row["reason"] == "check knows"
    monkeypatch.chdir(bench.path)
    capsys.readouterr()
    main(["show", "--report", "report.json", "one"])
    assert "\nWhy\n  check knows: turn 2: the final output does not contain the text\n" in capsys.readouterr().out


def test_a_turn_that_was_not_reached_fails_its_checks(bench: Bench) -> None:
    write_case(bench, turns=({"content": "exit 7"}, {"checks": [check("knows", kind="contains", text="hello")]}))
    row = run(bench).runs["one[demo]"]
    assert (row["outcome"], row["status"]) == ("failed", "failed")
    assert [each["message"] for each in row["checks"]] == ["turn 2 was not reached"]


def test_a_judge_is_asked_about_the_expectations_of_turns(bench: Bench) -> None:
    judge = {"judge_id": "j", "type": "llm_probe", "model": "demo"}
    profile = {"judges": [judge], "judge_runs": [{"judge_run_id": "j", "judge_id": "j"}]}
    bench.write(
        "cases/evaluation_profiles/judged.yaml",
        {"schema_version": 1, "evaluation_profile_id": "judged", "title": "J", **profile},
    )
    turns = ({"expectations": ["Writes."]}, {"expectations": ["Knows it."]})
    write_case(bench, turns=turns, require_hard=True)
    finished = run(bench, "--agentbench-evaluation-profile", "judged")
    assert finished.outcomes == {"one[demo]": "failed"}
    assert "judge hard expectation: not met: turn 2: Knows it." in finished.text


def test_only_limits_that_are_set_need_a_new_run(bench: Bench) -> None:
    write_case(bench, check("paris", kind="contains", text="Paris") | {"turn": 1})
    assert run(bench).runs["one[demo]"]["reused"] is False
    # A check of a turn decides the stored run
    write_case(bench, check("rome", kind="contains", text="Rome") | {"turn": -1})
    row = run(bench).runs["one[demo]"]
    assert (row["reused"], row["outcome"]) == (True, "passed")
    write_case(bench, check("rome", kind="contains", text="Rome"), conversation={"turn_timeout_seconds": 30})
    assert run(bench).runs["one[demo]"]["reused"] is False


STEPS = [
    {
        "when": "Write it.",
        "steps": [
            {"tool_calls": [{"name": "sh", "arguments": {"command": "echo Paris > out.txt"}}]},
            {"content": "Written."},
        ],
    },
    {
        "when": "What is in it?",
        "steps": [{"tool_calls": [{"name": "sh", "arguments": {"command": "rm out.txt"}}]}, {"content": "Gone."}],
    },
]
PARIS = {"kind": "file_contains", "path": "out.txt", "text": "Paris"}


def write_files_case(bench: Bench, *checks: Any, first: tuple[Any, ...] = (), **fields: Any) -> None:
    write_case(bench, *checks, turns=({"checks": [*first]}, {}), **fields)
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": STEPS})


def test_checks_of_files_look_at_them_as_they_are_after_their_turn(bench: Bench) -> None:
    absent = {"kind": "not", "check": {"kind": "path_exists", "path": "out.txt"}}
    both = {"kind": "all_of", "checks": [PARIS, {"kind": "contains", "text": "Written"}]}
    write_files_case(
        bench,
        check("removed", **absent) | {"turn": 2},
        check("at-the-end", **absent) | {"turn": -1},
        check("some", **PARIS) | {"turn": "any"},
        check("every", **PARIS) | {"turn": "each"},
        first=(check("written", **both),),
    )
    row = run(bench).runs["one[demo]"]
    outcomes = {each["check_id"]: each["outcome"] for each in row["checks"]}
    assert outcomes == dict.fromkeys(("removed", "at-the-end", "some", "written"), "passed") | {"every": "failed"}
    [every] = [each for each in row["checks"] if each["check_id"] == "every"]
    assert (
        every["message"] == "1 of 2 turns failed: turn 2: out.txt does not exist in the workspace or in the case folder"
    )
    assert run(bench).runs["one[demo]"]["reused"]


def test_a_new_check_of_a_file_after_a_turn_needs_a_new_run(bench: Bench) -> None:
    write_files_case(bench, first=(check("written", **PARIS),))
    assert run(bench).runs["one[demo]"]["outcome"] == "passed"
    write_files_case(bench, first=(check("written", **PARIS | {"text": "Rome"}),))
    row = run(bench).runs["one[demo]"]
    assert (row["reused"], row["outcome"]) == (False, "failed")


def test_a_turn_that_ended_the_run_has_the_files_of_its_end(bench: Bench) -> None:
    write_case(bench, turns=({"content": "exit 7", "checks": [check("agent", kind="file_exists", path="agent.py")]},))
    row = run(bench).runs["one[demo]"]
    assert row["status"] == "failed"
    assert [each["message"] for each in row["checks"]] == ["turn 1: agent.py in the workspace is a regular file"]
