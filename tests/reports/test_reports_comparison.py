"""Two reports side by side: what pairs, what is left out, and that nothing depends on order or side."""

from __future__ import annotations

import io
import random

import pytest
from comparison_samples import compared, only_model, outcomes, report
from hypothesis import given, settings
from hypothesis import strategies as st
from reports_samples import DEMO, MODEL, make_row

from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.comparison.wording import write_comparison, write_failures

OTHER = Model(model_id="other", requested_model="other")
rows_of = st.lists(
    st.builds(
        make_row,
        st.sampled_from(["passed", "failed", "failed", "error", "skipped"]),
        st.sampled_from(["a", "b", "c", "d", "e", "f", "g"]),
        st.sampled_from([MODEL, DEMO]),
        st.integers(1, 3),
        score=st.none() | st.floats(0, 10),
        metric=st.none() | st.floats(0, 1),
        usage=st.builds(Usage, total_tokens=st.none() | st.integers(0, 10**6), cost_usd=st.none() | st.floats(0, 10)),
        seconds=st.none() | st.floats(0, 100),
        must_pass=st.booleans(),
    ),
    max_size=24,
    unique_by=lambda row: row["nodeid"],
)


@pytest.mark.slow
@settings(max_examples=30)
@given(rows_of, rows_of, st.randoms(use_true_random=False))
def test_sides_swap_signs_and_order_changes_nothing(one, other, shuffler):
    here, there = ([{**row, "must_pass": False} for row in rows] for rows in (one, other))  # which weighs losses only
    for model, turned in zip(sorted_models(compared(here, there)), sorted_models(compared(there, here)), strict=True):
        assert_mirrored(model, turned)
    found = compared(one, other)
    shuffled = [*other]
    shuffler.shuffle(shuffled)
    again = compared(one, shuffled)
    for model, same in zip(sorted_models(found), sorted_models(again), strict=True):
        for figure in ("pass_rate", "score"):
            assert flat(same[figure]) == pytest.approx(flat(model[figure]))
        assert {change["case"] for change in same["regressions"]} == {change["case"] for change in model["regressions"]}


def flat(measure):
    """Without the list of the interval's ends, which approx does not look into."""
    low, high = measure["ci95"] or (None, None)
    return {**measure, "ci95": None, "low": low, "high": high}


def sorted_models(found):
    return sorted(found["models"], key=lambda model: model["model_id"])


def assert_mirrored(model, turned):
    swapped = {"worse": "better", "better": "worse"}
    assert turned["verdict"] == swapped.get(model["verdict"], model["verdict"])
    for figure in ("pass_rate", "score"):
        here, there = model[figure], turned[figure]
        assert (here["baseline"], here["current"]) == (there["current"], there["baseline"])
        for name in ("cases", "test", "p_value", "p_adjusted", "detectable", "cases_needed"):
            assert here[name] == pytest.approx(there[name])
        if here["difference"] is not None:
            assert here["difference"] == pytest.approx(-there["difference"])
        if here["ci95"] is not None:
            assert here["ci95"] == pytest.approx([-end for end in reversed(there["ci95"])], abs=1e-9)
    names = [{change["case"] for change in side} for side in (model["regressions"], model["gains"])]
    turned_names = [{change["case"] for change in side} for side in (turned["gains"], turned["regressions"])]
    assert names == turned_names
    assert model["cases"]["only_baseline"] == turned["cases"]["only_current"]


@pytest.mark.slow
@settings(max_examples=20)
@given(rows_of)
def test_a_report_does_not_differ_from_itself(rows):
    found = compared(rows, rows)
    for model in found["models"]:
        assert model["verdict"] in ("no_difference_seen", "nothing_compared")
        assert (model["regressions"], model["gains"]) == ([], [])
        assert model["cases"]["only_baseline"] == model["cases"]["only_current"] == []
        for measure in (model["pass_rate"], model["score"], *model["others"].values()):
            assert measure["difference"] in (0, None)
            assert measure["p_value"] in (1, None)


@pytest.mark.slow
@settings(max_examples=30)
@given(rows_of, rows_of)
def test_every_case_is_paired_unjudged_or_on_one_side(one, other):
    for model in compared(one, other)["models"]:
        cases = model["cases"]
        sides = ((one, "baseline_model_id", "only_baseline"), (other, "model_id", "only_current"))
        for rows, name, alone in sides:
            there = {row["case_id"] for row in rows if row["model_id"] == model[name]}
            assert len(there) == cases["paired"] + len(cases["unjudged"]) + len(cases[alone])
        changed = len(model["regressions"]) + len(model["gains"])
        assert changed <= cases["paired"]


def test_a_case_counts_once_however_often_it_ran():
    baseline = [make_row("passed", "a", repetition=n) for n in (1, 2, 3, 4)] + [make_row("failed", "b")]
    current = [make_row("failed", "a"), make_row("failed", "b")]
    rate = only_model(compared(baseline, current))["pass_rate"]
    assert (rate["baseline"], rate["current"], rate["difference"], rate["cases"]) == (0.5, 0.0, -0.5, 2)


def test_runs_of_one_side_alone_are_listed_and_not_tested():
    """Twelve cases of which each fails one run of ten: the baseline's single run of each rarely meets one."""
    baseline = [make_row("passed", f"c{case:02}", score=8.0) for case in range(12)]
    current = [
        make_row("failed" if n == 2 + case % 9 else "passed", f"c{case:02}", repetition=n, score=8.0 - n / 2)
        for case in range(12)
        for n in range(10, 0, -1)
    ]
    there, back = only_model(compared(baseline, current)), only_model(compared(current, baseline))
    for model in (there, back):
        rate, score = model["pass_rate"], model["score"]
        assert (rate["test"], rate["p_value"], rate["difference"]) == ("exact McNemar", 1.0, 0.0)
        assert (model["verdict"], abs(score["difference"])) == ("no_difference_seen", 0.5)
    assert there["by_chance"][0]["current"] == {"passed": 9, "judged": 10}
    assert [(len(each["regressions"]), len(each["gains"]), len(each["by_chance"])) for each in (there, back)] == [
        (0, 0, 12),
        (0, 0, 12),
    ]


def repeated(rates, runs):
    """So many cases that pass `rates` of their runs."""
    return [
        make_row("passed" if n < passed else "failed", f"c{case:02}", repetition=n + 1)
        for case, passed in enumerate(rates)
        for n in range(runs)
    ]


def test_regressions_are_what_the_test_supports_and_the_rest_may_be_chance():
    # cases that pass half the time, to and fro: nothing differs
    same = only_model(compared(repeated([3, 2, 3, 2, 3, 2], 5), repeated([2, 3, 2, 3, 2, 3], 5)))
    assert (same["regressions"], same["gains"], len(same["by_chance"])) == ([], [], 6)
    assert [change["difference"] < 0 for change in same["by_chance"]] == [True] * 3 + [False] * 3
    # one of them breaks for good, which its own runs show, though all cases together do not
    one = only_model(compared(repeated([10, 5, 5], 10), repeated([0, 6, 4], 10)))
    assert one["verdict"] != "worse"
    assert [change["case_id"] for change in one["regressions"]] == ["c00"]
    assert [change["case_id"] for change in one["by_chance"]] == ["c02", "c01"]
    # all go the same way: together they are more than chance, though none is alone; what went the other way is not
    every = only_model(compared(repeated([3] * 9 + [1], 3), repeated([2] * 9 + [2], 3)))
    assert every["verdict"] == "worse"
    assert (len(every["regressions"]), [change["case_id"] for change in every["by_chance"]]) == (9, ["c09"])
    # five lost runs of five: p = 2 / C(10, 5), which six cases make 0.048 of, and seven 0.056
    for cases, named in ((6, ["c00"]), (7, [])):
        lost = only_model(compared(repeated([5] * cases, 5), repeated([0] + [5] * (cases - 1), 5)))
        assert [change["case_id"] for change in lost["regressions"]] == named
        assert len(lost["by_chance"]) == 1 - len(named)
    # a case that ran once on a side has no test of its own, whichever side that is
    for runs in ((1, 5), (5, 1)):
        once = only_model(compared(repeated([runs[0]], runs[0]), repeated([0], runs[1])))
        assert [change["p_value"] for change in once["by_chance"]] == [None]
    twice = only_model(compared(repeated([2], 2), repeated([0], 2)))
    assert [change["p_value"] for change in twice["by_chance"]] == [pytest.approx(1 / 3)]
    # the runs of one side alone, which the test leaves out, name no case
    more = only_model(compared(repeated([1] * 9, 1), [*repeated([0] * 8, 1), *repeated([0] * 8 + [1], 2)[-2:]]))
    assert more["verdict"] == "worse"
    assert [change["case_id"] for change in more["by_chance"]] == ["c08"]


@pytest.mark.slow
@pytest.mark.parametrize(("there", "here"), [(1, 10), (5, 1)])
def test_sessions_that_ran_unequally_often_are_not_called_different_more_often(there, here):
    """20 cases that pass 19 of 20 runs: tested by all runs, 1 against 10 would be worse in 3 of 10 sessions."""
    drawn, called = random.Random(3), 0
    for _ in range(60):
        sides = [
            [
                make_row("passed" if drawn.random() < 0.95 else "failed", f"c{case}", repetition=n + 1)
                for case in range(20)
                for n in range(runs)
            ]
            for runs in (there, here)
        ]
        called += only_model(compared(*sides))["verdict"] in ("worse", "better")
    assert called <= 6


def test_errors_and_skips_are_left_out_counted_and_named():
    model = only_model(compared(outcomes("ppppe"), outcomes("ppesp")))
    assert (model["cases"]["paired"], model["pass_rate"]["difference"]) == (2, 0)
    assert model["cases"]["unjudged"] == [f"cases/test.yaml::c{n:02}" for n in (2, 3, 4)]
    assert model["runs"]["current"] == {"passed": 3, "failed": 0, "errors": 1, "skipped": 1}
    assert model["runs"]["baseline"] == {"passed": 4, "failed": 0, "errors": 1, "skipped": 0}


def test_figures_are_told_over_the_cases_that_have_them_on_both_sides():
    baseline = [make_row("passed", "a", metric=0.25, score=4.0), make_row("passed", "b", metric=0.5)]
    current = [make_row("passed", "a", metric=0.75, seconds=2.5), make_row("passed", "b", seconds=None)]
    model = only_model(compared(baseline, current))
    metric, time = model["others"]["metric.exact_match"], model["others"]["duration_seconds"]
    assert (metric["cases"], metric["baseline"], metric["current"], metric["verdict"]) == (1, 0.25, 0.75, None)
    assert (time["cases"], time["difference"]) == (1, 1.0)
    assert model["score"] == {**dict.fromkeys(model["score"]), "cases": 0, "verdict": "nothing_compared"}


def test_a_worse_score_is_said_and_fails_no_gate():
    baseline = [make_row("passed", f"c{n}", score=8.0 + n % 2) for n in range(12)]
    current = [make_row("passed", f"c{n}", score=6.0 + n % 3) for n in range(12)]
    found = compared(baseline, current)
    assert only_model(found)["score"]["verdict"] == "worse"
    assert (only_model(found)["verdict"], found["failures"]) == ("no_difference_seen", [])


def test_several_models_share_the_5_percent():
    baseline = [*outcomes("p" * 10), *outcomes("p" * 10, DEMO)]
    current = [*outcomes("ffffff" + "pppp"), *outcomes("p" * 10, DEMO)]
    alone = only_model(compared(baseline[:10], current[:10]))
    gpt, demo = compared(baseline, current)["models"]
    assert (alone["pass_rate"]["p_value"], alone["verdict"]) == (0.03125, "worse")
    assert (gpt["pass_rate"]["p_adjusted"], gpt["verdict"]) == (0.0625, "not_enough_runs")
    assert demo["verdict"] == "no_difference_seen"
    assert (alone["pass_rate"]["detectable"] < gpt["pass_rate"]["detectable"]) is True
    assert "p = 0.031; over 2 models p = 0.062" in gpt["summary"]


@pytest.mark.parametrize(
    ("baseline", "current", "pairs", "alone"),
    [
        ([MODEL, DEMO], [DEMO, MODEL], [("demo", "demo"), ("gpt4o", "gpt4o")], ([], [])),
        ([MODEL], [DEMO, MODEL], [("gpt4o", "gpt4o")], ([], ["demo"])),
        ([MODEL], [OTHER], [("gpt4o", "other")], ([], [])),
        ([MODEL, DEMO], [OTHER], [], (["gpt4o", "demo"], ["other"])),
    ],
)
def test_models_pair_by_id_and_single_models_pair_under_any_name(baseline, current, pairs, alone):
    sides = [[row for model in models for row in outcomes("pf", model)] for models in (baseline, current)]
    found = compared(*sides)
    assert [(model["baseline_model_id"], model["model_id"]) for model in found["models"]] == pairs
    assert (found["only_baseline"], found["only_current"]) == alone
    assert bool(found["failures"]) == (not pairs)


def test_two_models_of_one_report_are_compared():
    both = report(*outcomes("p" * 8), *outcomes("f" * 8, OTHER))
    found = compare(build_campaign(both, "r.json", "gpt4o"), build_campaign(both, "r.json", "other"))
    (model,) = found.models
    assert (model.baseline_model_id, model.model_id, model.pass_rate.verdict) == ("gpt4o", "other", "worse")
    assert (found.baseline.label, found.notes) == ("r.json#gpt4o", ())


def test_a_baseline_of_an_outage_fails_the_gate_and_is_named():
    baseline, current = outcomes("p" * 8 + "eeee"), outcomes("p" * 12)
    assert compared(baseline, current)["failures"] == [
        "a.json is too incomplete to compare gpt4o with: completion 0.667 is below 0.950: 4 of 12 runs ended in "
        "infrastructure errors and were not judged."
    ]
    assert compared(baseline, current, min_completion=0.6)["failures"] == []


def test_few_changed_scores_have_no_interval_that_contradicts_their_test():
    baseline = [make_row("passed", f"c{n:02}", score=6.0) for n in range(17)]
    current = [make_row("passed", f"c{n:02}", score=9.0 - n if n < 3 else 6.0) for n in range(17)]
    score = only_model(compared(baseline, current))["score"]
    assert (score["p_value"], score["ci95"]) == (0.25, None)


@pytest.mark.slow
@given(st.lists(st.floats(-1.5, 2.0), min_size=6, max_size=14))
@settings(max_examples=40)
def test_the_interval_of_scores_agrees_with_their_test(changes):
    """Resampling would say otherwise in 5 to 18 % of sessions with so few cases."""
    baseline = [make_row("passed", f"c{n:02}", score=6.0) for n in range(len(changes))]
    current = [make_row("passed", f"c{n:02}", score=6.0 + change) for n, change in enumerate(changes)]
    score = only_model(compared(baseline, current))["score"]
    if score["ci95"] is None:
        assert sum(round(6.0 + each, 12) != 6.0 for each in changes) < 6 or len(set(changes)) == 1
    else:
        low, high = score["ci95"]
        assert (low <= 0 <= high) == (score["p_value"] > 0.05)
        assert low <= score["difference"] <= high
        assert score["bootstrap_ci95"] is not None


def test_the_printed_interval_and_the_verdict_agree():
    """Three gains of seventeen cases: BCa would say +2 to +14 points, and the test p = 0.25."""
    model = only_model(compared(outcomes("fff" + "p" * 14), outcomes("p" * 17)))
    low, high = model["pass_rate"]["ci95"]
    assert (low < 0 < high, model["verdict"]) == (True, "not_enough_runs")
    assert "(+17.6 points; 95 % interval -9.0 to +43.4; exact McNemar, p = 0.25): not enough runs" in model["summary"]


def test_reports_without_a_run_are_compared_without_a_verdict():
    found = compared([], outcomes("pp"))
    assert (found["models"], found["only_current"]) == ([], ["gpt4o"])
    (failure,) = found["failures"]
    assert failure == "Nothing could be compared with a.json: no model is in both: it has no model, b.json has gpt4o."


@pytest.mark.parametrize(("there", "here"), [("pppp", "ssss"), ("eeee", "pppp")])
def test_a_model_with_nothing_to_compare_fails_beside_others(there, here):
    failures = compared([*outcomes("pppp"), *outcomes(there, DEMO)], [*outcomes("pppp"), *outcomes(here, DEMO)])[
        "failures"
    ]
    assert failures == [
        "Nothing of demo could be compared with a.json: no case has a verdict on both sides.",
    ]


def test_an_outage_of_one_model_fails_beside_others_that_are_complete():
    baseline = [*outcomes("p" * 30), *outcomes("p" * 4, DEMO)]
    (failure,) = compared(baseline, [*outcomes("p" * 30), *outcomes("pppe", DEMO)])["failures"]
    assert failure.startswith("Completion of demo 0.750 is below 0.950: 1 of 4 runs ended in infrastructure errors")


def test_models_with_nothing_to_test_are_not_counted_among_the_tests():
    baseline = [*outcomes("p" * 10), *outcomes("s" * 10, DEMO)]
    current = [*outcomes("ffffff" + "pppp"), *outcomes("p" * 10, DEMO)]
    gpt, _ = compared(baseline, current)["models"]
    assert (gpt["pass_rate"]["p_adjusted"], "over 2 models" in gpt["summary"]) == (0.03125, False)


def test_only_errors_are_nothing_to_compare():
    found = compared(outcomes("eee"), outcomes("ppp"))
    assert only_model(found)["verdict"] == "nothing_compared"
    assert found["failures"][0].endswith("no case that both have passed or failed on both sides.")


@pytest.mark.parametrize(("allowed", "failed"), [(None, False), (2, False), (1, True)])
def test_regressions_are_counted_over_models(allowed, failed):
    baseline = [*outcomes("ppp"), *outcomes("ppp", DEMO)]
    current = [*outcomes("fpp"), *outcomes("ppf", DEMO)]
    failures = compared(baseline, current, max_regressions=allowed)["failures"]
    assert bool(failures) is failed
    if failed:
        assert "2 cases are worse" in failures[0]
        assert "c00 [gpt4o], c02 [demo]" in failures[0]


def test_changes_list_must_pass_cases_first_and_then_the_largest():
    baseline = [make_row("passed", name, repetition=n, must_pass=name == "c") for name in "abc" for n in (1, 2)]
    current = [
        make_row(
            "failed" if name == "b" or n == 1 else "passed", name, repetition=n, must_pass=name == "c", message="no"
        )
        for name in "abc"
        for n in (1, 2)
    ]
    model = only_model(compared(baseline, current))
    changes = model["regressions"]
    assert [change["case_id"] for change in changes] == ["c"]  # by itself no case shows more than chance can do
    assert [change["case_id"] for change in model["by_chance"]] == ["b", "a"]
    assert changes[0]["p_value"] == 1.0
    assert (changes[0]["nodeid"], changes[0]["message"]) == ("cases/test.yaml::c[gpt4o]", "no")


class Plain(io.StringIO):
    """A terminal without colours."""

    hasmarkup, verbosity, no_summary = False, 0, False

    def line(self, msg="", **_):
        self.write(msg + "\n")

    def write(self, text, **_):
        super().write(text)

    write_line = line


def shown(found, **options):
    terminal = Plain()
    write_comparison(terminal, found, **options)
    write_failures(terminal, found["failures"])
    return terminal.getvalue()


def test_the_terminal_names_figures_changes_and_cases_without_a_partner(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    baseline = [*outcomes("p" * 8, score=8.0), make_row("passed", "gone")]
    current = [*outcomes("f" * 7 + "p", score=6.0, message="wrong answer"), make_row("passed", "new")]
    text = shown(compared(baseline, current), full=True)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "b.json compared with a.json"
    assert lines[2].endswith("(-87.5 points; 95 % interval -100.0 to -50.0; exact McNemar, p = 0.016): worse.")
    assert "pass_rate 100.0 % 12.5 % -87.5 -100.0 to -50.0 0.016" in lines
    assert "score 8 6 -2 - 0.0078" in lines
    assert "1/1 -> 0/1 c00 wrong answer" in lines
    assert "1 case only in the baseline: cases/test.yaml::gone" in lines
    assert "1 case not in the baseline: cases/test.yaml::new" in lines
    assert "comparison failed:" in lines


def test_the_terminal_shows_text_of_others_as_text():
    hostile = "\x1b[31m<script>\u202e\n# title"
    baseline = [{**row, "case_id": hostile, "message": hostile} for row in outcomes("pppp")]
    current = [{**row, "outcome": "failed", "model_id": hostile} for row in baseline]
    text = shown(compared(baseline, current), full=True)
    assert not set(text) & {"\x1b", "\u202e"}
    assert "\n# title" not in text
