"""What a comparison says beside its figures: what else differs between the two sides."""

from __future__ import annotations

import pytest
from comparison_samples import compared, outcomes, report
from reports_samples import DEMO, make_row

from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare


def test_differences_besides_the_results_are_noted():
    rows = outcomes("pp")
    changed = [{**row, "fingerprint": "other"} for row in rows[:1]] + rows[1:]
    baseline = report(*rows, profiles={"run": "fast", "evaluation": "strict", "suite": None})
    current = report(*changed, profiles={"run": "slow", "evaluation": "strict", "suite": "nightly"})
    notes = compare(build_campaign(baseline, "a.json"), build_campaign(current)).notes
    assert notes[:2] == (
        "The run profile differs: fast in a.json, slow in this session.",
        "The suite differs: none in a.json, nightly in this session.",
    )
    assert notes[2].startswith("1 of 2 cases of gpt4o have other fingerprints than in the baseline")
    assert len(notes) == 3


def judged(rows, judge="aa" * 8, rubric="bb" * 8):
    verdict = {"by": "judge", "judge": judge, "rubric": rubric, "models": ["m"], "passed": True, "score": 8.0}
    return [{**row, "judged": [verdict]} for row in rows]


@pytest.mark.parametrize("changed", ["judge", "rubric"])
def test_another_judge_or_rubric_is_said(changed):
    rows = outcomes("ppp")
    current = [*judged(rows[:1], **{changed: "cc" * 8}), *judged(rows[1:2]), rows[2]]
    assert compared(judged(rows), current)["notes"] == [
        f"1 of 2 judged cases of gpt4o have another {changed} than in the baseline: that may explain a difference."
    ]


def test_cases_that_something_else_decides_are_said_once():
    rows = [{**row, "measure": "aa" * 8} for row in judged(outcomes("ppp"))]
    edited = [{**row, "measure": "bb" * 8} for row in rows]
    (note,) = compared(rows, [edited[0], *rows[1:]])["notes"]
    assert note.startswith("1 of 3 cases of gpt4o are not decided as in the baseline: their checks, metrics, ")
    (note,) = compared(rows, judged(edited, judge="cc" * 8))["notes"]
    assert note.startswith("3 of 3 judged cases of gpt4o have another judge")
    assert compared(outcomes("ppp"), outcomes("ppp"))["notes"] == []  # of older reports nothing is known


def test_answers_from_cassettes_are_said_to_be_old():
    rows = outcomes("ppp")
    (note,) = compared(rows, [{**row, "cassette": "replayed"} for row in rows[:2]] + rows[2:])["notes"]
    assert note.startswith("2 of 3 judged runs of gpt4o in b.json were replayed from cassettes: ")


def test_other_numbers_of_repetitions_are_said():
    baseline = [make_row("passed", "a"), make_row("passed", "b")]
    current = [*(make_row("passed", "a", repetition=n) for n in (1, 2, 3)), make_row("passed", "b")]
    assert compared(baseline, current)["notes"] == [
        "1 of 2 cases of gpt4o were judged more often in b.json, for example 1 in a.json and 3 in b.json: only as many "
        "of its runs are tested as the other side has, the first ones."
    ]
    (turned,) = compared(current, baseline)["notes"]
    assert "were judged more often in a.json, for example 3 in a.json and 1 in b.json: " in turned


def test_runs_that_are_the_baselines_own_are_no_evidence_and_said_to_be_none():
    rows = outcomes("pppp")
    again = [{**row, "reused": True} for row in rows]
    (some,), (all_,) = (compared(rows, [*again[:n], *rows[n:]])["notes"] for n in (2, 4))
    assert some.startswith("2 of 4 runs of gpt4o came from the store with the baseline's fingerprints: nothing that")
    assert all_ == (
        "4 of 4 runs of gpt4o came from the store with the baseline's fingerprints: they are most likely the "
        "baseline's own runs, which cannot show a difference. Run again with --agentbench-no-reuse."
    )


def test_scripted_answers_are_not_compared_with_a_models_unsaid():
    found = compared(outcomes("pp", DEMO), outcomes("pp"))
    assert "demo of a.json answered from scripts: it is not a model." in found["notes"]


@pytest.mark.parametrize(("command", "told"), [(["cases", "--lf"], True), (["cases", "-k", "lf"], False)])
def test_cases_that_were_chosen_by_their_outcome_are_said(command, told):
    here = build_campaign(report(*outcomes("ppp"), command=command))
    notes = compare(build_campaign(report(*outcomes("fff")), "a.json"), here).notes
    assert [note.partition(":")[0] for note in notes] == [
        "The cases of this session were chosen by how they ended before (--lf)"
    ] * told


def test_a_parameter_that_one_side_alone_went_without_is_said():
    plain, without = outcomes("pp"), [{**row, "adapted": ["temperature dropped"]} for row in outcomes("pp")]
    [note] = compared(plain, without)["notes"]
    assert note == ("gpt4o in b.json went without temperature, which its endpoint refused; the other side did not.")
    assert len(compared(without, plain)["notes"]) == 1
    assert compared(without, without)["notes"] == []
    renamed = [{**row, "adapted": ["max_tokens->max_completion_tokens"]} for row in plain]
    assert compared(plain, renamed)["notes"] == []
