from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.cli import main
from pytest_agentbench.cli.merging import Part, merge_reports
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case, Model, RunnerSpec, Thresholds
from pytest_agentbench.records.evaluation import Evaluation, MetricResult
from pytest_agentbench.reports.gate import Counts, apply_gate
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import run_row

DIGEST = "ab" * 32


def row(
    case_id: str, outcome: str = "passed", *, model: str = "gpt", repetition: int = 1, score: float = 0.5, **fields
):
    case = Case(case_id=case_id, title="T", path=Path("t.yaml"), runner=RunnerSpec(type="llm_probe"), **fields)
    metrics = (MetricResult(name="f1", score=score),)
    suffix = model if repetition == 1 else f"{model}-r{repetition}"
    return run_row(
        f"t.yaml::{case_id}[{suffix}]",
        case,
        Model(model_id=model, requested_model=model),
        repetition,
        None,
        Evaluation(case_id=case_id, outcome=outcome, metrics=metrics),  # type: ignore[arg-type]
        duration_seconds=1.0,
        reused=False,
        evaluation_reused=False,
        artifact_path=None,
        outcome=outcome,
        message=None,
    )


def session(rows, *, fail_under=None, status=None, spent=0.25, **facts):
    counts = Counts.of(each["outcome"] for each in rows)
    status = int(counts.passed < counts.runs) if status is None else status
    given = {"started_at": "2026-01-01T10:00:00+00:00", "duration_seconds": 5.0, "exit_status": status, **facts}
    verdict = apply_gate(counts, fail_under).as_dict()
    return build_report(rows, {**given, "gate": verdict}, {"run": spent, "judge": 0.0})


def shard(rows, at, of, places, *, total=None, digest=DIGEST, inputs=DIGEST, **facts):
    selection = {"runs": len(rows) if total is None else total, "sha256": digest, "inputs": inputs, "places": places}
    return session([rows[place] for place in places], shard=f"{at}/{of}", selection=selection, **facts)


def shards(rows, of, **facts):
    return [shard(rows, at, of, [*range(at - 1, len(rows), of)], **facts) for at in range(1, of + 1)]


ROWS = [row(f"c{n}", "failed" if n % 3 == 1 else "passed") for n in range(7)]


@pytest.fixture
def merge(tmp_path, capsys, monkeypatch):
    """Write reports a.json, b.json, ... and merge them. Return exit status, joint report and output."""
    monkeypatch.chdir(tmp_path)

    def call(*reports, args=()):
        names = [f"{chr(ord('a') + at)}.json" for at in range(len(reports))]
        for name, report in zip(names, reports, strict=True):
            (tmp_path / name).write_text(report if isinstance(report, str) else json.dumps(report), encoding="utf-8")
        code = main(["merge", *names, "-o", "out/joint.json", *args])
        joint = tmp_path / "out" / "joint.json"
        shown = capsys.readouterr()
        return code, json.loads(joint.read_text()) if joint.exists() else None, shown.out + shown.err

    return call


def test_shards_in_any_order_are_the_whole(merge):
    first, second, third = shards(ROWS, 3)
    code, joint, shown = merge(third, first, second)
    whole = session(ROWS)
    assert code == 1
    for part in ("models", "datasets", "cases", "runs"):
        assert joint[part] == whole[part]
    assert joint["totals"] == {**whole["totals"], "spent_usd": {"run": 0.75, "judge": 0.0}}
    assert joint["session"]["shard"] is None
    assert [each["shard"] for each in joint["session"]["merged"]] == ["3/3", "1/3", "2/3"]
    assert "7 runs: 5 passed, 2 failed" in shown
    assert "report: out/joint.json" in shown
    jsonschema.Draft202012Validator(report_schema()).validate(joint)


@pytest.mark.slow
@given(st.data())
def test_however_runs_are_dealt_the_figures_are_those_of_the_whole(data):
    runs = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from("abcde"),
                st.sampled_from(["gpt", "qwen"]),
                st.integers(1, 4),
                st.sampled_from(["passed", "failed", "error", "skipped"]),
                st.floats(0, 1),
            ),
            min_size=1,
            max_size=30,
            unique_by=lambda each: each[:3],
        )
    )
    fields = {"dataset": "d", "tags": ("easy",), "thresholds": Thresholds(pass_rate=0.5)}
    rows = [row(c, outcome, model=m, repetition=r, score=score, **fields) for c, m, r, outcome, score in runs]
    of = data.draw(st.integers(1, 6))
    dealt = defaultdict(list)
    for place in range(len(rows)):
        dealt[data.draw(st.integers(1, of))].append(place)
    parts = [Part(f"{at}.json", shard(rows, at, of, dealt[at], spent=at / 7)) for at in range(1, of + 1)]
    random.Random(of).shuffle(parts)
    joint, whole = merge_reports(parts), session(rows)
    assert {key: joint[key] for key in ("models", "datasets", "cases", "runs")} == {
        key: whole[key] for key in ("models", "datasets", "cases", "runs")
    }
    assert {**joint["totals"], "spent_usd": 0} == {**whole["totals"], "spent_usd": 0}


def test_sessions_without_a_run_in_common_follow_each_other(merge):
    ours, theirs = [row("a"), row("b")], [row("a", model="qwen"), row("b", "failed", model="qwen")]
    late = {"started_at": "2026-01-01T12:00:03+02:00", "profiles": {"run": "quick"}, "versions": {"python": "3.12"}}
    code, joint, _ = merge(
        session(ours, profiles={"run": "slow"}, versions={"python": "3.11"}), session(theirs, **late)
    )
    assert code == 1
    assert [model["model_id"] for model in joint["models"]] == ["gpt", "qwen"]
    assert joint["session"]["started_at"].startswith("2026-01-01")
    assert joint["session"]["duration_seconds"] == 8.0
    assert joint["session"]["profiles"] == {"run": "slow, quick"}
    assert joint["session"]["versions"] == {"python": "3.11, 3.12"}


def test_shards_of_several_sessions_are_grouped_by_session(merge):
    others = [row(f"c{n}", model="qwen") for n in range(7)]
    code, joint, _ = merge(*shards(ROWS, 2), *shards(others, 3, digest="cd" * 32))
    assert code == 1
    assert [run["nodeid"] for run in joint["runs"]] == [run["nodeid"] for run in [*ROWS, *others]]


def test_a_missing_shard_is_refused_unless_asked_for(merge):
    parts = shards(ROWS, 12)[:4]
    code, joint, shown = merge(*parts)
    assert (code, joint) == (1, None)
    assert "8 of 12 shards are missing: 5/12, 6/12, 7/12, 8/12, 9/12, ..." in shown
    code, joint, shown = merge(*parts, args=["--partial"])
    assert joint["totals"]["runs"] == 4
    assert "warning: 8 of 12 shards are missing" in shown


def test_different_selections_are_an_error(merge):
    code, joint, shown = merge(shards(ROWS, 2)[0], shards(ROWS[:-1], 2, digest="cd" * 32)[1])
    assert (code, joint) == (1, None)
    assert "different selections of cases, models or repetitions: a.json (7 runs), b.json (6 runs)" in shown


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([*shards(ROWS, 2), shards(ROWS, 2)[1]], "c.json: found shard 2/2, which b.json is already"),
        ([shards(ROWS, 2)[0], shards(ROWS, 3)[1]], "b.json: found shard 2/3, but a.json is shard 1/2 of the same"),
        ([session(ROWS), session(ROWS[3:5])], "b.json: found a run of t.yaml::c3[gpt], which a.json has too"),
        ([session([], shard="1/1")], "a.json: its workers crashed, so the cases of shard 1/1 are unknown"),
        ([shard(ROWS, 3, 2, [0])], "a.json: session.shard: found '3/2', expected I/N"),
        (
            [session(ROWS[:2], shard="1/1", selection={"runs": 2, "sha256": DIGEST, "places": [0]})],
            "a.json: session.selection.places: found 1 places, expected one for each of 2 runs",
        ),
        ([session(ROWS, duration_seconds=1e90)], "a number in the reports is too large to add up"),
        ([session(ROWS, duration_seconds=1e300)], "a.json: is no JSON: found 1e+300, expected a number"),
        ([session(ROWS, started_at="noon")], "a.json: session.started_at: found 'noon', expected a time in ISO 8601"),
        (
            [session(ROWS[:1], fail_under=0.8), session(ROWS[1:2], fail_under=0.9)],
            "session.gate.fail_under: found 0.8 (a.json), 0.9 (b.json), expected one; name it with --fail-under",
        ),
        (["{", session(ROWS)], "a.json: is no JSON: "),
        (["[]"], "a.json: is no report.json"),
        (["[" * 100_000], "a.json: is no JSON: "),
        ([json.dumps(session(ROWS)).replace("5.0", "NaN", 1)], "a.json: is no JSON: found NaN, expected a number"),
        ([{**session(ROWS), "schema_version": 2}], "a.json: schema_version: found 2, expected 1"),
        (
            [{**session(ROWS[:1]), "runs": [{**ROWS[0], "outcome": "great"}]}],
            "a.json: runs[0].outcome: 'great' is not one of ['passed', 'failed', 'error', 'skipped']",
        ),
        ([{**session(ROWS[:1]), "runs": [{"nodeid": "x"}]}], "a.json: runs[0]: 'case_id' is a required property"),
    ],
)
def test_reports_that_do_not_go_together_are_refused(merge, reports, expected):
    code, joint, shown = merge(*reports)
    assert (code, joint) == (1, None)
    assert expected in shown


def test_a_missing_file_is_named(merge):
    assert merge(args=["none.json"])[2].startswith("none.json: cannot be read: No such file or directory; run pytest")


def test_no_report_is_overwritten(merge, tmp_path):
    code, _, shown = merge(session(ROWS), args=["-o", "./a.json"])
    assert code == 2
    assert "-o: found a.json, which is one of the reports: a.json" in shown


def test_a_place_that_cannot_be_written_is_named(merge, tmp_path):
    (tmp_path / "file").touch()
    code, _, shown = merge(session(ROWS), args=["-o", "file/joint.json"])
    assert code == 1
    assert "-o file/joint.json: cannot be written: " in shown


def test_the_gate_is_decided_anew(merge):
    parts = shards(ROWS, 2, fail_under=0.7)  # 5 of 7 are 0.714, of the second shard 1 of 3
    assert [part["session"]["gate"]["passed"] for part in parts] == [True, False]
    code, joint, shown = merge(*parts)
    assert code == joint["session"]["exit_status"] == 0
    assert joint["session"]["gate"]["fail_under"] == 0.7
    assert "gate passed: pass rate 0.714" in shown
    code, joint, shown = merge(*parts, args=["--fail-under", "0.8"])
    assert code == joint["session"]["exit_status"] == 1
    assert "Pass rate 0.714 is below 0.800: 5 of 7 judged runs passed." in shown


def test_quarantined_runs_are_left_out_of_the_joint_gate(merge):
    rows = [{**each, "policy": "quarantined"} if each["outcome"] == "failed" else each for each in ROWS]
    code, joint, _ = merge(*shards(rows, 2, fail_under=1.0))
    assert (code, joint["session"]["gate"]["pass_rate"]) == (0, 1.0)


def test_completion_is_gated_over_all(merge):
    rows = [row("a"), row("b", "error"), row("c"), row("d")]
    assert merge(*shards(rows, 2, fail_under=0.5))[0] == 1
    assert merge(*shards(rows, 2, fail_under=0.5), args=["--min-completion", "0.7"])[0] == 0


def test_faults_outside_of_cases_fail_the_gate(merge):
    good = [row("a"), row("b")]
    first, second = shards(good, 2, fail_under=0.5, faults=["1 collection errors."])
    first["session"]["faults"] = ["1 collection errors.", "2 tests that are not cases failed."]
    code, joint, _ = merge(first, second)
    assert code == 1
    assert joint["session"]["gate"]["reasons"] == [
        "1 collection errors.",
        "shard 1/2: 2 tests that are not cases failed.",
    ]


def test_unreadable_files_are_listed_once(merge):
    problems = [{"file": "cases/bad/test.yaml", "line": 3, "message": "titel"}]
    first, second, third = shards([row("a"), row("b"), row("c")], 3, uncollected=problems)
    del third["session"]["uncollected"]
    assert merge(first, second, third)[1]["session"]["uncollected"] == problems


def test_figures_in_warnings_are_those_of_a_part(merge):
    said = ["the time is used up; 2 runs were not started", "sandbox: local: not isolated"]
    joint = merge(*shards([row("a"), row("b")], 2, warnings=said))[1]
    assert joint["session"]["warnings"] == [f"shard 1/2: {said[0]}", f"shard 2/2: {said[0]}", said[1]]


def test_a_run_that_no_shard_has_fails_the_session(merge):
    first, second = shards([row("a"), row("b"), row("c")], 2, total=4)
    code, joint, shown = merge(first, second)
    assert code == 1
    assert joint["session"]["faults"] == ["1 of 4 selected runs are in no report."]
    assert "warning: 1 of 4 selected runs are in no report." in shown


def test_a_missing_run_is_a_warning_of_a_partial_merge(merge):
    code, joint, shown = merge(*shards([row("a"), row("b"), row("c")], 2, total=4), args=["--partial"])
    assert (code, joint["session"]["faults"]) == (0, [])
    assert "warning: 1 of 4 selected runs are in no report." in shown


def test_shards_of_different_case_files_are_a_warning(merge):
    first, second, third = shards([row("a"), row("b"), row("c")], 3)
    third["session"]["selection"]["inputs"] = "cd" * 32
    code, joint, _ = merge(first, second, third)
    assert code == 0
    assert joint["session"]["warnings"] == [
        "case files or profiles of shard 1/3 (a.json) and shard 3/3 (c.json) differ"
    ]
    del third["session"]["selection"]["inputs"]
    assert merge(first, second, third)[1]["session"]["warnings"] == []


@pytest.mark.parametrize(
    ("statuses", "fail_under", "expected"),
    [((0, 0), None, 0), ((0, 1), None, 1), ((1, 1), 0.5, 0), ((0, 2), None, 2), ((3, 2), 0.5, 3)],
)
def test_the_exit_status_is_that_of_one_session(statuses, fail_under, expected):
    parts = shards([row("a"), row("b")], 2, fail_under=fail_under)
    for part, status in zip(parts, statuses, strict=True):
        part["session"]["exit_status"] = status
    joint = merge_reports([Part(str(at), part) for at, part in enumerate(parts)])
    assert joint["session"]["exit_status"] == expected


def test_the_cost_is_unknown_if_a_shards_is(merge):
    first, second = shards(ROWS, 2)
    second["totals"]["spent_usd"]["run"] = None
    assert merge(first, second)[1]["totals"]["spent_usd"] == {"run": None, "judge": 0.0}


def test_a_hostile_shard_number_costs_no_time():
    part = shard(ROWS, 1, 10**9 - 1, [0])
    with pytest.raises(ConfigError, match="999999998 of 999999999 shards are missing: 2/999999999, "):
        merge_reports([Part("a", part)])


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "逆\\x1b[2J [gpt]"), ("ascii", "\\u9006\\x1b[2J [gpt]")])
@pytest.mark.slow
def test_the_summary_fits_any_output(encoding, shown, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(session([row("逆\x1b[2J", "failed")])))
    command = [sys.executable, "-m", "pytest_agentbench.cli", "merge", "a.json"]
    environ = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert done.returncode == 1
    assert shown in done.stdout.decode(encoding)
    assert b"\x1b" not in done.stdout
