"""Graders of a plugin's evals: each passes and fails, and a session counts them together."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from packs.plugin_evals.plugin_support import (
    USE_SKILL,
    write_grader,
    write_plugin,
    write_prompt,
    write_script,
)
from pydantic import TypeAdapter
from support.bench import Bench
from support.skills import AGENT, write_adapter

from pytest_agentbench.packs.plugin_evals.deciding import decide
from pytest_agentbench.packs.plugin_evals.evidence import RunEvidence, matches_path
from pytest_agentbench.packs.plugin_evals.javascript import translate_pattern
from pytest_agentbench.packs.plugin_evals.records import GraderSpec
from pytest_agentbench.records.run import FileChange, FileFacts, RunArtifact

SPEC: TypeAdapter[Any] = TypeAdapter(GraderSpec)
FACTS = FileFacts(kind="file", mode=0o644, size=1)
EVENTS = [
    {"type": "message", "role": "user", "content": "10 inches?"},
    {"type": "runner", "name": "skill", "data": {"skill": "inches", "fact": "loaded"}},
    {"type": "tool_call", "call_id": "1", "name": "exec", "arguments": {"command": "ls"}},
    {"type": "tool_result", "call_id": "1", "name": "exec", "content": "a.txt"},
    {"type": "tool_call", "call_id": "2", "name": "Write", "arguments": {"file_path": "out/b.txt", "n": 1}},
    {"type": "final_output", "content": "It is 25.4 cm.\nDone."},
]
RUN = RunArtifact(
    run_id=hashlib.sha256(b"run").hexdigest(),
    case_id="convert",
    runner_type="agent",
    model={},
    repetition=1,
    status="success",
    started_at=datetime(2026, 11, 28, tzinfo=UTC),
    duration_seconds=1,
    request={"portable": {"exec": "shell"}, "skills": ["inches"]},
    trace=TypeAdapter(RunArtifact.model_fields["trace"].annotation).validate_python(
        [{"sequence": number, "at": 0, **event} for number, event in enumerate(EVENTS)]
    ),
    changes=(
        FileChange(path="out/b.txt", change="added", after=FACTS),
        FileChange(path="old.md", change="modified", before=FACTS, after=FACTS),
    ),
)


@pytest.mark.parametrize(
    ("keys", "outcome", "message"),
    [
        ({"type": "regex", "pattern": r"(?<n>\d+)\.4 CM", "flags": "gi"}, "passed", "last_message matches"),
        ({"type": "regex", "pattern": r"\d+ CM"}, "failed", "last_message does not match"),
        ({"type": "regex", "pattern": "^Done", "flags": "m"}, "passed", "matches /^Done/m"),
        ({"type": "regex", "pattern": "^Done"}, "failed", "does not match"),
        ({"type": "regex", "pattern": "Sorry", "match": "not_contains"}, "passed", "does not match"),
        ({"type": "regex", "pattern": "Done", "match": "not_contains"}, "failed", "matches"),
        ({"type": "regex", "pattern": r"\d", "match": "count:3"}, "passed", "3 times, expected 3"),
        ({"type": "regex", "pattern": r"\d", "match": "count:2"}, "failed", "3 times, expected 2"),
        ({"type": "regex", "pattern": '"command":"ls"', "target": "trace"}, "passed", "trace matches"),
        ({"type": "regex", "pattern": r"^out/b\.txt$", "target": "files"}, "passed", "files matches"),
        ({"type": "regex", "pattern": "a", "target": {"source": "file", "path": "a.txt"}}, "failed", "no workspace"),
        ({"type": "regex", "pattern": "mcp__kb__find", "target": "mock_calls"}, "failed", "does not match"),
        ({"type": "tool_used", "tool": "Skill", "input_match": '"skill":"inches"'}, "passed", "1 call of Skill"),
        ({"type": "tool_used", "tool": "Skill", "input_match": "feet"}, "failed", "0 calls of Skill"),
        ({"type": "tool_used", "tool": "Bash"}, "passed", "1 call of Bash, expected at least 1"),
        ({"type": "tool_used", "tool": "Bash", "input_match": "ls"}, "skipped", "exec has another input than"),
        ({"type": "tool_used", "tool": "Write", "input_match": '"n":1'}, "passed", "1 call of Write with an input"),
        ({"type": "tool_used", "tool": "Write", "min": 0, "max": 0}, "failed", "1 call of Write, expected 0 to 0"),
        ({"type": "tool_order", "before": "Bash", "after": {"tool": "Write"}}, "passed", "precedes that of Write"),
        ({"type": "tool_order", "before": "Write", "after": "Bash"}, "failed", "follows that of Bash"),
        ({"type": "tool_order", "before": "Edit", "after": "Bash"}, "failed", "Edit was not called"),
        ({"type": "file_exists", "path": "**/*.txt"}, "passed", "out/b.txt, which matches"),
        ({"type": "file_exists", "path": "old.md"}, "failed", "no file that the run created matches"),
        ({"type": "file_exists", "path": "*.txt", "exists": False}, "passed", "no file that the run created"),
        ({"type": "file_exists", "path": "out/*", "exists": False}, "failed", "out/b.txt, which matches"),
    ],
)
def test_each_grader_passes_and_fails(keys: dict[str, Any], outcome: str, message: str) -> None:
    result = decide(SPEC.validate_python({"name": "it", **keys}), RunEvidence(RUN, None))
    assert (result.outcome, message in result.message) == (outcome, True), result


def test_patterns_of_javascript_are_translated() -> None:
    texts = {r"(?<a>x)\k<a>": "xx", r"\u{1F600}": "\U0001f600", "a[^]b": "a\nb", r"\(?<!": "(<!", "(?<!a)b": "cb"}
    assert [re.search(translate_pattern(pattern), text) is not None for pattern, text in texts.items()] == [True] * 5


def test_patterns_of_paths_match_names_and_folders() -> None:
    pairs = [("*.txt", "a.txt"), ("./a?.md", "ab.md"), ("**/a", "a"), ("**/a", "x/y/a"), ("x/**", "x/y/a")]
    assert all(matches_path(pattern, path) for pattern, path in pairs)
    assert not any(matches_path(pattern, path) for pattern, path in [("*.txt", "x/a.txt"), ("a.b", "aXb")])


def write_eval(bench: Bench) -> None:
    """Write a case with three graders, of which `number` has half of the weight."""
    write_plugin(bench)
    write_prompt(bench, runs=1)
    write_grader(bench, "number", type="regex", pattern=r"25\.4", weight=2)
    write_grader(bench, "skill", type="tool_used", tool="Skill")
    write_grader(bench, "short", "The answer is short.", type="llm")


def test_a_session_reports_each_grader_and_their_weighted_share(bench: Bench) -> None:
    write_eval(bench)
    votes = [True, {"correct": False, "reason": "Too long."}, {"correct": False, "reason": "Too long."}]
    write_script(bench, USE_SKILL, {"content": "25.4 cm"}, judgement=votes)
    finished = bench.run("cases", "--model", "demo")
    row = finished.runs["convert[demo]"]
    assert (row["outcome"], row["metrics"]) == ("failed", {"graders": 0.75}), finished.text
    outcomes = {grader["name"]: grader["outcome"] for grader in row["plugin_eval"]["graders"]}
    assert outcomes == {"number": "passed", "short": "failed", "skill": "passed"}
    assert "grader short failed: 1 of 3 votes: Too long." in finished.text
    assert "grader skill passed: 1 call of Skill, expected at least 1" in finished.text
    again = bench.run("cases", "--model", "demo")
    assert again.runs["convert[demo]"]["reused"]
    assert "grader short failed: 1 of 3 votes: Too long." in again.text


def test_graders_of_the_skill_count_in_no_arm_of_a_comparison(bench: Bench) -> None:
    write_eval(bench)
    write_script(bench, {"content": "25.4 cm"}, judgement=True)
    arms = ["--agentbench-variant", "without={skills: []}", "--agentbench-variant", "with={}"]
    finished = bench.run("cases", "--model", "demo", *arms)
    assert {*finished.outcomes.values()} == {"passed"}, finished.text
    graders = finished.runs["convert[demo:with]"]["plugin_eval"]["graders"]
    assert [grader["outcome"] for grader in graders] == ["passed", "passed", "skipped"]


def test_the_scaffold_script_and_files_of_the_workspace_are_seen(bench: Bench) -> None:
    write_plugin(bench)
    bench.write("cases/units/evals/convert/make.sh", "echo inches > given.txt")
    write_prompt(bench, runs=2, context={"scaffold_script": "make.sh"})
    write_grader(bench, "given", type="regex", pattern="inches", target={"source": "file", "path": "given.txt"})
    write_grader(bench, "none", type="regex", pattern="a", target={"source": "file", "path": "gone.txt"}, weight=0)
    write_grader(bench, "new", type="file_exists", path="given.txt", exists=False)
    write_grader(bench, "written", type="regex", pattern="^out/b.md$", target="files")
    write_grader(bench, "tool", type="tool_used", tool="Write", max=1)
    call = {"name": "write_file", "arguments": {"path": "out/b.md", "content": "25.4 cm"}}
    write_script(bench, {"tool_calls": [call]}, {"content": "25.4 cm"})
    bench.profile("local", sandbox="local")
    finished = bench.run("cases", "--model", "demo", "--agentbench-run-profile", "local")
    row = finished.runs["convert[demo-r2]"]
    assert (row["outcome"], row["metrics"]) == ("passed", {"graders": 1.0}), finished.text
    assert "gone.txt does not exist in the workspace" in str(row["plugin_eval"])


def test_an_agent_program_gets_variables_and_its_own_tools_are_graded(bench: Bench) -> None:
    write_plugin(bench)
    write_prompt(bench, runs=1, env={"EVAL_UNIT": "cm"}, append_system_prompt="Be brief.")
    write_grader(bench, "skill", type="tool_used", tool="Skill", input_match="inches", arm="both")
    write_grader(bench, "order", type="tool_order", before="Skill", after="Bash")
    write_grader(
        bench, "unit", type="regex", pattern="^25.4 cm$", flags="m", target={"source": "file", "path": "a.txt"}
    )
    write_grader(bench, "made", type="file_exists", path="*.txt")
    shell = {"tool_calls": [{"name": "sh", "arguments": {"command": "echo 25.4 $EVAL_UNIT > a.txt"}}]}
    write_script(bench, USE_SKILL, shell, {"content": "Done."})
    write_adapter(bench, argv=["python3", str(AGENT), "{message}"])
    bench.profile("agents", runner_defaults={"type": "agent"})
    stub = "here={agent: stub, runner: {sandbox: local}}"
    options = ["--agentbench-run-profile", "agents", "--agentbench-variant", stub]
    finished = bench.run("cases", "--model", "demo", *options)
    [row] = finished.runs.values()
    assert (row["outcome"], row["metrics"]["graders"]) == ("passed", 1.0), finished.text
