"""Skills of agent programs and of llm_probe, in variants and cases: identity, mistakes, and facts of their use."""

from __future__ import annotations

import pytest
from support.bench import Bench
from support.skills import (
    ADAPTER,
    BODY,
    CALL,
    SHOUT,
    agent_case,
    facts,
    read_artifact,
    write_adapter,
    write_script,
    write_skill,
    write_suite,
)


def run(bench: Bench, *options: str):
    return bench.run("cases", "--model", "demo", "--agentbench-suite", "ab", *options)


@pytest.fixture
def probe(bench: Bench) -> Bench:
    """A case of llm_probe whose model calls for the skill `signs`, and a suite with and without the skill."""
    write_skill(bench)
    write_suite(bench)
    bench.case("sign")
    file = {"tool_calls": [{"name": "skill", "arguments": {"name": "signs", "path": "scripts/shout.sh"}}]}
    outside = {"tool_calls": [{"name": "skill", "arguments": {"name": "signs", "path": "../../pytest.ini"}}]}
    write_script(bench, "sign", CALL, file, outside, {"content": "Paris"})
    return bench


def test_llm_probe_lists_skills_and_returns_their_files_on_demand(probe: Bench) -> None:
    finished = run(probe)
    assert finished.outcomes == {"sign[demo:without]": "passed", "sign[demo:with]": "passed"}, finished.text
    stored = read_artifact(probe, finished.runs["sign[demo:with]"])
    system = next(event["content"] for event in stored["trace"] if event.get("role") == "system")
    assert "- signs: Write the text of a sign." in system
    results = [event for event in stored["trace"] if event["type"] == "tool_result"]
    assert BODY in results[0]["content"]
    assert "scripts/shout.sh" in results[0]["content"]
    assert "evals" not in results[0]["content"]
    assert "echo SALE" in results[1]["content"]
    assert results[2]["is_error"]
    assert facts(stored) == ["listed", "attempted", "loaded"]
    without = read_artifact(probe, finished.runs["sign[demo:without]"])
    assert not any(event.get("role") == "system" for event in without["trace"])
    assert facts(without) == []


def test_an_edited_skill_reruns_its_variant_only(probe: Bench) -> None:
    probe.run("cases", "--model", "demo")
    assert [row["reused"] for row in run(probe).runs.values()] == [True, False]
    probe.write("cases/skills/signs/evals/notes.txt", "Still not.")
    assert [row["reused"] for row in run(probe).runs.values()] == [True, True]
    (probe.path / "cases/skills/signs/scripts/shout.sh").chmod(0o644)
    write_suite(probe)  # a process reads a suite once, unless it changed
    assert [row["reused"] for row in run(probe).runs.values()] == [True, False]
    (probe.path / "cases/skills").rename(probe.path / "cases/abilities")
    write_suite(probe, {"plain": {}, "skilled": {"skills": ["../abilities"]}})
    assert [row["reused"] for row in run(probe).runs.values()] == [True, True]


def test_a_case_has_skills_of_its_own_and_a_variant_takes_them_away(probe: Bench) -> None:
    probe.case("sign", skills=["../skills/signs"])
    write_suite(probe, {"own": {}, "none": {"skills": []}})
    finished = run(probe)
    assert "skill" in read_artifact(probe, finished.runs["sign[demo:own]"])["request"]["tools"]
    assert "skill" not in read_artifact(probe, finished.runs["sign[demo:none]"])["request"]["tools"]


@pytest.mark.parametrize(
    ("keys", "body", "problem"),
    [
        ({"name": "Big Signs"}, BODY, "SKILL.md:2:7: name: found 'Big Signs', expected up to 64 lower-case*"),
        ({"description": None}, BODY, "SKILL.md:*: description: *"),
        ({"name": "two--signs"}, BODY, "SKILL.md:2:7: name: *"),
    ],
)
def test_a_wrong_skill_is_an_error_at_its_place(probe: Bench, keys, body, problem) -> None:
    write_skill(probe, body=body, **keys)
    finished = run(probe)
    assert finished.exit != 0
    finished.result.stdout.fnmatch_lines([f"*{problem}"])


def test_paths_of_skills_are_checked(probe: Bench) -> None:
    write_suite(probe, {"a": {"skills": ["../nothing"]}})
    assert "ab.yaml:" in (text := run(probe).text)
    assert "expected an existing folder" in text
    probe.write("cases/empty/readme.txt", "")
    write_suite(probe, {"a": {"skills": ["../empty"]}})
    assert "found no SKILL.md there or one folder below" in run(probe).text
    (probe.path / "cases/skills/signs/more").symlink_to("/etc")
    write_suite(probe)
    assert "found a link in a skill" in run(probe).text
    (probe.path / "cases/skills/signs/more").unlink()
    (probe.path / "cases/skills/signs/SKILL.md").write_text("no front matter")
    assert "SKILL.md:1:1: found no front matter" in run(probe).text


def test_runners_without_skills_skip_the_case(bench: Bench) -> None:
    write_skill(bench)
    write_suite(bench)
    bench.agent()
    bench.case("sign")
    finished = bench.run("cases", "--agentbench-suite", "ab")
    assert finished.outcomes == {"sign[agent:without]": "passed", "sign[agent:with]": "skipped"}
    assert "the runner callable cannot give them" in finished.runs["sign[agent:with]"]["message"]


@pytest.mark.slow
def test_an_agent_program_finds_skills_in_its_own_folder(bench: Bench) -> None:
    write_skill(bench)
    write_suite(bench)
    write_adapter(bench)
    agent_case(bench)
    finished = run(bench, "--agentbench-fail-under", "0")
    assert finished.outcomes == {"sign[demo:without]": "failed", "sign[demo:with]": "passed"}, finished.text
    stored = read_artifact(bench, finished.runs["sign[demo:with]"])
    assert facts(stored) == ["listed", "attempted", "loaded"]
    assert [change["path"] for change in stored["changes"]] == ["sign.txt"]
    assert "demo:with against demo:without" in finished.text


@pytest.mark.slow
def test_a_read_file_loads_a_skill_of_an_agent_without_a_tool_for_skills(bench: Bench) -> None:
    write_skill(bench)
    write_adapter(bench, skills={"folder": "{home}/.stub/skills"})
    cat = {"tool_calls": [{"name": "sh", "arguments": {"command": "cat ~/.stub/skills/signs/SKILL.md"}}]}
    agent_case(bench, skills=["../skills/signs"], steps=[cat, SHOUT])
    finished = bench.run("cases", "--model", "demo")
    assert finished.outcomes == {"sign[demo]": "passed"}, finished.text
    assert facts(read_artifact(bench, finished.runs["sign[demo]"])) == ["listed", "attempted", "loaded"]


@pytest.mark.slow
def test_a_skill_that_the_agent_cannot_use_is_an_error_of_the_run(bench: Bench) -> None:
    write_skill(bench)
    agent_case(bench, skills=["../skills/signs"])
    write_adapter(bench, env={"STUB_SKILLS": "hidden"})
    agent_case(bench, skills=["../skills/signs"], steps=[])
    finished = bench.run("cases", "--model", "demo")
    assert finished.outcomes == {"sign[demo]": "error"}, finished.text
    assert "the skill signs was not offered to the agent" in finished.text
    write_adapter(bench, env={"STUB_SKILLS": "broken"})
    agent_case(bench, skills=["../skills/signs"])
    finished = bench.run("cases", "--model", "demo")
    assert finished.outcomes == {"sign[demo]": "error"}
    assert "the skill signs could not be loaded: skill: Skill signs not found" in finished.text
    write_adapter(bench, skills=None, env=dict(ADAPTER.get("env", {})))
    finished = bench.run("cases", "--model", "demo")
    assert finished.outcomes == {"sign[demo]": "skipped"}
    assert "the agent stub has no skills" in finished.runs["sign[demo]"]["message"]
