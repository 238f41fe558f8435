"""Evals files of skills as cases: shapes and spellings, files, triggers, mistakes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.bench import Bench
from support.skills import CALL, read_artifact, write_skill, write_suite

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.packs.skill_evals.cases import EVALS
from pytest_agentbench.sources.case_source import BadRow, SourceCase, SourceRequest

HELLO = {"id": 1, "prompt": "Write a sign.", "expectations": ["It says SALE."]}


def write(bench: Bench, content: Any, name: str = "evals.json") -> None:
    bench.write(f"cases/skills/signs/evals/{name}", json.dumps(content, indent=1))


def read(bench: Bench, content: Any, name: str = "evals.json"):
    """Return the cases and the errors of an evals file."""
    write(bench, content, name)
    path = bench.path / "cases/skills/signs/evals" / name
    opened = EVALS.open(path, SourceRequest(ConfigRoot(bench.path / "cases")))
    rows = list(opened.rows())
    cases = [row.make() for row in rows if isinstance(row, SourceCase)]
    return cases, [row.message for row in rows if isinstance(row, BadRow)]


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        ({"skill_name": "signs", "evals": [HELLO, {"prompt": "Again."}]}, ["signs__1", "signs__eval_2"]),
        ([HELLO, {"id": "two", "query": "Again."}], ["signs__1", "signs__two"]),
        ({"skills": ["posters"], "prompt": "Once.", "expected": "A poster."}, ["posters__eval_1"]),
        ({"evals": [{**HELLO, "eval_name": "A sign"}]}, ["signs__1"]),
    ],
)
def test_all_shapes_of_evals_files_are_cases_of_the_skill(bench: Bench, content: Any, ids: list[str]) -> None:
    write_skill(bench)
    assert EVALS.holds_cases(bench.path / "evals.json", json.dumps(content))
    cases, errors = read(bench, content)
    assert [case.case_id for case in cases] == ids
    assert not errors
    assert [skill.name for skill in cases[0].skills] == ["signs"]


def test_spellings_of_expectations_become_the_judges_and_comparisons_become_checks(bench: Bench) -> None:
    write_skill(bench)
    entry = {
        "name": "A sign",
        "prompt": "Write it.",
        "expected_output": "A sign for a sale.",
        "expectations": ["One."],
        "assertions": [{"name": "Two."}, {"type": "contains", "value": "SALE"}, {"type": "javascript", "value": "1"}],
        "expected_behavior": "Three.",
        "owner": "us",
    }
    [case], _ = read(bench, [entry])
    assert [each.text for each in case.expectations.hard_expectations] == ["One.", "Two.", "Three."]
    assert case.require_hard
    assert case.rubric.criteria[0].what_good_looks_like == "A sign for a sale."
    assert [check.declarative.text for check in case.checks] == ["SALE"]
    assert case.title == "A sign"
    left_out = ["assertion of type 'javascript' has no counterpart"]
    assert case.metadata == {"owner": "us", "left_out": left_out}
    [plain], _ = read(bench, [{"prompt": "Only that."}])
    assert plain.report_only


def test_entries_that_are_wrong_are_errors_at_their_places_and_lose_no_other(bench: Bench) -> None:
    write_skill(bench)
    wrong = [
        HELLO,
        {**HELLO, "prompt": "Twice."},
        {"prompt": "a", "query": "b"},
        {"expectations": ["No prompt."]},
        7,
        {"prompt": "a", "files": ["../../secret.txt"]},
        {"prompt": "a", "files": ["evals/files/none.csv"]},
        {"prompt": "a", "should_trigger": "yes"},
    ]
    cases, errors = read(bench, {"evals": wrong})
    assert len(cases) == 1
    expected = [
        ":11:10: evals[1].id: found '1' again, first on line 3",
        "found both 'prompt' and 'query', expected one of them",
        "found neither 'prompt' nor 'query', expected one of them",
        "evals[4]: found 7, expected an entry",
        "without `..`",
        "files: found 'evals/files/none.csv', expected a file below",
        "should_trigger",
    ]
    assert [text in message for text, message in zip(expected, errors, strict=True)] == [True] * len(expected), errors


def test_a_session_runs_evals_with_their_skill_files_and_triggers(bench: Bench) -> None:
    write_skill(bench)
    bench.write("cases/skills/signs/evals/files/old/sign.txt", "SOLD")
    reads = {"id": "read", "prompt": "Read it.", "files": ["evals/files/old/sign.txt"]}
    write(bench, {"skill_name": "signs", "evals": [{**reads, "assertions": [{"type": "contains", "value": "SOLD"}]}]})
    queries = [
        {"query": "Make a poster.", "should_trigger": True},
        {"query": "Write a poem.", "should_trigger": False},
    ]
    write(bench, queries, "triggers.json")
    call = {"tool_calls": [{"name": "read_file", "arguments": {"path": "old/sign.txt"}}]}
    answers = {"signs__read": {"steps": [call, {"content": "SOLD"}]}}
    bench.write("cases/skills/signs/evals/evals.demo.yaml", {"schema_version": 1, "answers": answers})
    used = {"steps": [CALL, {"content": "Done."}]}
    triggers = {"schema_version": 1, "answers": {"signs__eval_1": used}, "default": "A poem."}
    bench.write("cases/skills/signs/evals/triggers.demo.yaml", triggers)
    finished = bench.run("cases", "--model", "demo", "--agentbench-repetitions", "1")
    assert finished.outcomes == {
        "signs__read[demo:without]": "passed",
        "signs__read[demo:with]": "passed",
        "signs__eval_1[demo:with]": "passed",
        "signs__eval_2[demo:with]": "passed",
    }, finished.text
    assert finished.report["reference_variant"] == "without"
    assert "demo:with against demo:without" in finished.text
    without, with_skill = finished.report["models"]
    assert "skills" not in without
    signs = with_skill["skills"]["signs"]
    assert (signs["should_trigger"]["rate"], signs["should_not_trigger"]["rate"]) == (1.0, 0.0)
    stored = read_artifact(bench, finished.runs["signs__read[demo:with]"])
    assert stored["workspace"] is not None
    again = bench.run("cases", "--model", "demo", "--agentbench-repetitions", "1")
    assert all(row["reused"] for row in again.runs.values())


def test_arms_of_evals_give_way_to_declared_variants_and_are_selected_by_name(bench: Bench) -> None:
    write_skill(bench)
    write_suite(bench, {"a": {}, "b": {"system": "Be kind."}})
    write(bench, {"evals": [{**HELLO, "expectations": [], "assertions": [{"type": "contains", "value": "Par"}]}]})
    bench.write("cases/skills/signs/evals/evals.demo.yaml", {"schema_version": 1, "default": "Paris"})
    assert [*bench.run("cases", "--model", "demo", "--agentbench-variant", "with").outcomes] == ["signs__1[demo:with]"]
    brief = bench.run("cases", "--model", "demo", "--agentbench-variant", "brief={append_system: Be brief.}")
    assert [*brief.outcomes] == ["signs__1[demo:brief]"]
    suite = bench.run("cases", "--model", "demo", "--agentbench-suite", "ab")
    assert [*suite.outcomes] == ["signs__1[demo:a]", "signs__1[demo:b]"]
    assert suite.runs["signs__1[demo:a]"]["reused"]


def test_a_file_is_never_placed_outside_of_the_workspace(bench: Bench) -> None:
    write_skill(bench)
    outside = bench.path / "elsewhere/file.txt"
    bench.write(f"cases/skills/signs/evals/files/{outside}", "hostile")
    [case], _ = read(bench, [{**HELLO, "files": [f"evals/files/{outside}"]}])
    assert not outside.exists()
    assert (case.workspace / str(outside).lstrip("/")).read_text() == "hostile"


def test_another_name_than_the_skills_is_a_doubt(bench: Bench) -> None:
    write_skill(bench)
    write(bench, {"skill_name": "posters", "evals": [HELLO]})
    path = bench.path / "cases/skills/signs/evals/evals.json"
    request = SourceRequest(ConfigRoot(bench.path / "cases"))
    opened = EVALS.open(path, request)
    [(_, text)] = opened.doubts(request.known)
    assert text == "skill_name: found 'posters', and SKILL.md has the name 'signs'"
