"""Skills of agent programs and of llm_probe, in variants and cases: identity, mistakes, and facts of their use."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import validate
from support.bench import Bench, check
from support.fault_endpoint import FaultEndpoint
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

from pytest_agentbench.reports.reading import report_schema


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


def test_llm_probe_gets_the_instructions_of_a_skill_that_the_prompt_calls_for(probe: Bench) -> None:
    def ask(content: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": content}]
        probe.case("sign", skills=["../skills/signs"], input={"messages": messages})
        write_script(probe, "sign", {"content": "Paris"})
        finished = probe.run("cases", "--model", "demo")
        assert finished.outcomes == {"sign[demo]": "passed"}, finished.text
        validate(finished.report, report_schema())
        return {"text": finished.text, "row": finished.runs["sign[demo]"]}

    asked = ask("Use $signs for Paris.")
    assert asked["row"]["skills"] == {"signs": {"listed": True, "attempted": 0, "loaded": 1, "explicit": True}}
    stored = read_artifact(probe, asked["row"])
    assert facts(stored) == ["listed", "explicit", "loaded"]
    [message] = [event["content"] for event in stored["trace"] if event.get("role") == "user"]
    assert BODY in message
    assert "demo: signs used in 1 of 1 run, called for by the user in 1 run" in asked["text"]
    assert ask("/signs for Paris")["row"]["skills"]["signs"]["explicit"]
    assert "explicit" not in ask("Read /signs/a.txt, /signs.txt, US$signs and signs.")["row"]["skills"]["signs"]


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
    asked = {"turns": [{"role": "user", "content": "Write a sign with /signs."}]}
    agent_case(bench, skills=["../skills/signs"], steps=[cat, SHOUT], input=asked)
    finished = bench.run("cases", "--model", "demo")
    assert finished.outcomes == {"sign[demo]": "passed"}, finished.text
    assert facts(read_artifact(bench, finished.runs["sign[demo]"])) == ["explicit", "listed", "attempted", "loaded"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", [".stub/skills/signs", ".other/skill/posters"])
def test_a_workspace_with_a_skill_of_the_same_name_is_an_error_of_the_run(bench: Bench, folder: str) -> None:
    write_skill(bench)
    write_adapter(bench)
    agent_case(bench, skills=["../skills/signs"])
    bench.write(f"cases/sign/ws/{folder}/SKILL.md", '---\nname: "signs"\ndescription: Another.\n---\n')
    finished = bench.run("cases", "--model", "demo")
    assert finished.outcomes == {"sign[demo]": "error"}, finished.text
    assert f"the workspace brings a skill signs of its own ({folder}/SKILL.md)" in finished.text
    assert finished.runs["sign[demo]"]["cost_usd"]["run"] in (None, 0)


@pytest.mark.slow
def test_a_skill_that_the_agent_cannot_use_is_an_error_of_the_run(bench: Bench) -> None:
    write_skill(bench)
    agent_case(bench, skills=["../skills/signs"], steps=[])
    for mode in ("hidden", "toolless"):
        write_adapter(bench, env={"STUB_SKILLS": mode})
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


def trigger_case(bench: Bench, case_id: str, *, should: bool, uses: bool, **fields: Any) -> None:
    """Write a case of llm_probe with an expectation of the use of the skill `signs`."""
    trigger = {"name": "signs", "should_trigger": should}
    given = {"skills": ["../skills/signs"], "skill": trigger, "deterministic_checks": None}
    bench.case(case_id, **{**given, **fields})
    write_script(bench, case_id, *([CALL] if uses else []), {"content": "Paris"})


def test_the_report_has_the_trigger_rate_of_cases_that_should_and_should_not_use_a_skill(bench: Bench) -> None:
    write_skill(bench)
    trigger_case(bench, "poster", should=True, uses=True)
    trigger_case(bench, "label", should=True, uses=False)
    trigger_case(bench, "poem", should=False, uses=True)
    bench.case("plain", skills=["../skills/signs"])
    write_script(bench, "plain", {"content": "Paris"})
    finished = bench.run("cases", "--model", "demo", "--junit-xml", "junit.xml")
    outcomes = {name.partition("[")[0]: outcome for name, outcome in finished.outcomes.items()}
    assert outcomes == {"poster": "passed", "label": "failed", "poem": "failed", "plain": "passed"}, finished.text
    assert len(finished.runs) == 10  # cases that only decide the use run three times
    assert finished.runs["poem[demo]"]["skills"] == {"signs": {"listed": True, "attempted": 1, "loaded": 1}}
    assert finished.runs["poem[demo]"]["skill"] == {"name": "signs", "should_trigger": False, "decides": True}
    assert "check skill_used: the skill signs was loaded 0 times" in finished.text
    [model] = finished.report["models"]
    signs = model["skills"]["signs"]
    assert (signs["runs"], signs["listed"], signs["used"], signs["precision"]) == (10, 10, 6, 0.5)
    assert (signs["should_trigger"]["rate"], signs["should_not_trigger"]["rate"]) == (0.5, 1.0)
    assert signs["should_trigger"]["ci95"] == pytest.approx([0.0945, 0.9055], abs=1e-4)
    finished.result.stdout.fnmatch_lines(
        [
            "skills",
            "  demo: signs used in 50.0 % of 2 cases that should use it (95 % interval * to *), "
            "used in 100.0 % of 1 case that should not use it *",
        ]
    )
    validate(finished.report, report_schema())


def test_a_use_decides_only_a_case_that_nothing_else_decides(bench: Bench) -> None:
    write_skill(bench)
    paris = [check("paris", kind="contains", text="Paris")]
    trigger_case(bench, "checked", should=True, uses=False, deterministic_checks=paris)
    scored = {"name": "signs", "should_trigger": True, "scored": True}
    trigger_case(bench, "scored", should=True, uses=False, deterministic_checks=paris, skill=scored)
    trigger_case(bench, "alone", should=True, uses=True)
    write_suite(bench, {"with": {}, "without": {"skills": []}})
    finished = bench.run("cases", "--model", "demo", "--agentbench-suite", "ab", "--agentbench-repetitions", "1")
    assert finished.outcomes == {
        "checked[demo:with]": "passed",
        "checked[demo:without]": "passed",
        "scored[demo:with]": "passed",
        "scored[demo:without]": "passed",
        "alone[demo:with]": "passed",
        "alone[demo:without]": "skipped",
    }
    write_suite(bench, {"with": {}, "brief": {"append_system": "Be brief."}})
    both = bench.run("cases", "--model", "demo", "--agentbench-suite", "ab", "-k", "scored")
    assert {*both.outcomes.values()} == {"failed"}
    message = finished.runs["alone[demo:without]"]["message"]
    assert message == "the case only checks the use of the skill signs, which this run does not have"


def make_answers(*uses: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the answers of a model that calls for the skill `signs` in some of its runs."""
    pending = [*uses]

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if body["messages"][-1]["role"] == "tool" or not pending.pop(0):
            return {"role": "assistant", "content": "Paris"}
        function = {"name": "skill", "arguments": json.dumps({"name": "signs"})}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        }

    return answer


def test_a_trigger_case_passes_if_the_skill_is_used_in_half_of_its_runs(bench: Bench) -> None:
    def run_with(*uses: bool, should_trigger: bool = True, **fields: Any):
        trigger = {"name": "signs", "should_trigger": should_trigger}
        bench.case("sign", skills=["../skills/signs"], skill=trigger, deterministic_checks=None, **fields)
        with FaultEndpoint(answer=make_answers(*uses)) as endpoint:
            bench.models({"model_id": "local", "base_url": endpoint.base_url, "api_key_env": "none"})
            return bench.run("cases", "--model", "local", "--agentbench-no-reuse")

    write_skill(bench)
    finished = run_with(True, False, True)
    assert sorted(finished.outcomes.values()) == ["failed", "passed", "passed"]
    assert finished.exit == 0, finished.text
    assert "1 run failed, and the case passes by the rate of its runs:" in finished.text
    assert finished.report["cases"][0]["thresholds"]["pass_rate"]["met"]
    assert run_with(True, False, False).exit == 1
    assert run_with(True, False, False, thresholds={"pass_rate": 0.3}).exit == 0
    assert run_with(True, False, False, should_trigger=False).exit == 0
