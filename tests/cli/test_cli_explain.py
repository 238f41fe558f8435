"""`agentbench explain CASE A B` on reports on disk: which runs it compares, what it prints and refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from support.random_reports import MODELS, random_report

from pytest_agentbench.cli import main
from pytest_agentbench.reports.gate import case_key
from pytest_agentbench.reports.history_file import append_session
from pytest_agentbench.reports.report import build_report

PLAIN = {"must_pass": False, "reused": False, "fingerprint": "a" * 64, "artifact": None, "evaluation": None}
PLAIN |= {"end_reason": "answered", "answer": "Rome", "measure": "b" * 16}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(folder, name, *outcomes, cases=1, **changes):
    """Write a report of some repetitions of each case, and return the rows."""
    every = random_report(cases, MODELS[:1], len(outcomes))["runs"]
    rows = []
    for row in every:
        outcome = outcomes[row["repetition"] - 1]
        answer = f"{name}, {row['repetition']}"
        judged = {member: value for member, value in row.items() if member not in ("judged", "run_id", "adapted")}
        rows.append({**judged, **PLAIN, "answer": answer, "outcome": outcome, **changes})
    (folder / name).write_text(json.dumps(build_report(rows, {})), encoding="utf-8")
    return rows


def explain(capsys, case, *args):
    code = main(["explain", case, *args])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def causes(capsys, case):
    code, out, _ = explain(capsys, case, "a.json", "b.json", "--json")
    assert code == 0
    (explanation,) = json.loads(out)
    return explanation["causes"]


def test_repetitions_of_both_sides_measure_chance(folder, capsys):
    row = save(folder, "a.json", "passed", "passed", "failed")[0]
    save(folder, "b.json", "failed", "passed", "failed")
    code, out, _ = explain(capsys, row["case_id"], "a.json", "b.json")
    assert (code, out.splitlines()[1:]) == (
        0,
        [
            "  A  a.json: 2 of 3 passed",
            "  B  b.json: 1 of 3 passed",
            "cause: chance: nothing that is recorded changed",
            "With nothing changed, two runs of it differ with a probability of 0.60: 3 of 6 passed.",
            "Chance alone makes such a difference with p = 1 (Fisher's exact test).",
        ],
    )


def test_earlier_sessions_of_the_same_fingerprint_measure_chance(folder, capsys):
    row = save(folder, "a.json", "passed")[0]
    save(folder, "b.json", "failed", measure="c" * 16)
    verdict = {"case": case_key(row)[0], "case_id": row["case_id"], "model": "gpt4o", "outcome": "failed"}
    alike = [{**verdict, "fingerprint": "a" * 16, "measure": "b" * 16}] * 4
    other = {**verdict, "fingerprint": "d" * 16, "measure": "b" * 16}
    output = folder / "outputs"
    append_session(output, datetime.now(UTC), None, [json.dumps(each).encode() for each in (*alike, other)])
    out = explain(capsys, row["case_id"], "a.json", "b.json")[1]
    assert "With nothing changed, two runs of it differ with a probability of 0.40: 1 of 5 passed." in out


def test_an_improbable_difference_without_a_change_is_no_plain_chance(folder, capsys):
    row = save(folder, "a.json", *["passed"] * 5)[0]
    save(folder, "b.json", *["failed"] * 5)
    assert (
        "That is unlikely: look for a change that is not recorded"
        in explain(capsys, row["case_id"], "a.json", "b.json")[1]
    )


@pytest.mark.parametrize("name", ["nodeid", "without model", "after ::", "id"])
def test_a_case_is_named_by_its_id_or_node_id(folder, capsys, name):
    row = save(folder, "a.json", "passed")[0]
    save(folder, "b.json", "failed")
    place = case_key(row)[0]
    names = {"nodeid": row["nodeid"], "without model": place, "after ::": place.partition("::")[2]}
    assert causes(capsys, names.get(name, row["case_id"])) == ["chance"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"fingerprint": "c" * 64}, ["agent", "case"]),
        ({"measure": "c" * 16}, ["case"]),
        ({"served": {"model": "small-2026-11-01"}}, ["provider"]),
        ({"end_reason": "filtered"}, ["provider"]),
        ({"retries": 2}, ["chance"]),
    ],
)
def test_a_change_that_the_reports_alone_show_is_the_cause(folder, capsys, changes, expected):
    row = save(folder, "a.json", "passed")[0]
    save(folder, "b.json", "failed", **changes)
    assert causes(capsys, row["case_id"]) == expected


VERDICT = {"by": "judge", "judge": "a" * 16, "rubric": "b" * 16, "models": ["referee"], "score": 5.0}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, ["agent", "case"]), ({"judged": [{**VERDICT, "passed": True}], "checks": []}, ["judge"])],
)
def test_an_equal_answer_clears_the_agent_only_if_a_judge_decided_on_it(folder, capsys, fields, expected):
    row = save(folder, "a.json", "passed", **{"answer": "Rome", **fields})[0]
    save(folder, "b.json", "failed", **{"answer": "Rome", "fingerprint": "c" * 64, **fields})
    assert causes(capsys, row["case_id"]) == expected


def test_a_run_without_a_verdict_is_the_providers_although_the_agent_changed(folder, capsys):
    row = save(folder, "a.json", "passed")[0]
    save(folder, "b.json", "error", fingerprint="c" * 64, message="provider_error: 503 Overloaded")
    code, out, _ = explain(capsys, row["case_id"], "a.json", "b.json")
    assert code == 0
    assert "cause: the provider or the infrastructure" in out
    assert "  B has no verdict (error): provider_error: 503 Overloaded" in out
    assert "  also: the fingerprints differ" in out


def test_equal_outcomes_are_not_explained(folder, capsys):
    row = save(folder, "a.json", "passed", "failed")[0]
    save(folder, "b.json", "failed", "passed", fingerprint="c" * 64)
    assert "The outcome does not differ." in explain(capsys, row["case_id"], "a.json", "b.json")[1]


def test_a_missing_case_and_an_ambiguous_one_are_errors(folder, capsys):
    row = save(folder, "a.json", "passed", cases=2)[0]
    rows = [{**row, "nodeid": f"{name}/test.yaml::same[gpt4o]", "case_id": "same"} for name in "xy"]
    (folder / "b.json").write_text(json.dumps(build_report(rows, {})), encoding="utf-8")
    assert "a.json: found no case 'same', expected a part of" in explain(capsys, "same", "a.json", "b.json")[2]
    code, _, err = explain(capsys, "same", "b.json", "b.json")
    assert code == 1
    assert "b.json: found 2 cases 'same', expected one; give its node id:\n  x/test.yaml::same\n  y/" in err


def test_text_of_a_report_does_not_steer_the_terminal(folder, capsys):
    row = save(folder, "a.json", "passed")[0]
    save(folder, "b.json", "error", message="\x1b[31mred", served={"model": "\x1b[31mred"})
    assert "\x1b" not in explain(capsys, row["case_id"], "a.json", "b.json")[1]
