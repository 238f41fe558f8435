from __future__ import annotations

import json
import random
import tracemalloc

import execnet
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_samples import DEMO, MODEL, make_row
from support.cpu_seconds import at_most

from pytest_agentbench.reports.datasets import Entry, breakdown
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import groupable_fields
from pytest_agentbench.statistics.estimates import pass_rate_interval, score_interval, wilson_interval

any_text = st.text(st.characters(codec=None), max_size=50)
SCHEMA = jsonschema.Draft202012Validator(report_schema())


def entry(score=None, passed=None, *, case=None, tags=(), **fields):
    return Entry(fields, tags, score, passed, case)


def named(groups):
    return {(group["field"], group["value"]): group for group in groups}


def test_a_group_has_its_rates_and_means_with_intervals():
    scores = [0.0, 0.5, 1.0, 1.0, 0.5]
    easy = [entry(score, score == 1.0, level="easy") for score in scores]
    hard = [entry(None, None, level="hard"), entry(None, None, level="hard")]
    groups = named(breakdown([*easy, *hard]))
    assert groups["level", "easy"] == {
        "field": "level",
        "value": "easy",
        "items": 5,
        "judged": 5,
        "mean_score": 0.6,
        "score_ci95": pytest.approx(score_interval([[score] for score in scores])),
        "pass_rate": 0.4,
        "pass_rate_ci95": pytest.approx(wilson_interval(2, 5)),
    }
    unknown = {"mean_score": None, "score_ci95": None, "pass_rate": None, "pass_rate_ci95": None}
    assert groups["level", "hard"] == {"field": "level", "value": "hard", "items": 2, "judged": 0, **unknown}


def test_a_group_says_how_many_of_its_items_were_judged():
    entries = [entry(None, None, f="a"), entry(None, True, f="a"), entry(0.5, None, f="a"), entry(1.0, True, f="b")]
    entries += [entry(score, None, case="c", f="b") for score in (None, 1.0, 1.0)]
    assert [(group["items"], group["judged"]) for group in breakdown(entries)] == [(3, 2), (2, 2)]


def test_groups_of_equal_scores_have_no_interval_of_the_mean():
    groups = breakdown([entry(1.0, True, level=level) for level in "aabb"])
    assert [(group["mean_score"], group["score_ci95"]) for group in groups] == [(1.0, None)] * 2
    assert all(group["pass_rate_ci95"][0] < 0.5 for group in groups)


def test_repetitions_of_a_case_are_one_item_and_one_cluster():
    verdicts = {
        "a": [True] * 5,
        "b": [False] * 5,
        "c": [True] * 5,
        "d": [True, False, True, True, False],
        "g": [False] * 5,
    }
    entries = [entry(float(p), p, case=case, level="x") for case, group in verdicts.items() for p in group]
    entries += [entry(1.0, True, case=name, level="y") for name in "ef"]
    group = named(breakdown(entries))["level", "x"]
    assert group["items"] == 5
    assert group["pass_rate"] == pytest.approx(13 / 25)
    clustered = pass_rate_interval([(sum(group), len(group)) for group in verdicts.values()])
    assert group["pass_rate_ci95"] == pytest.approx(clustered)
    assert group["pass_rate_ci95"][1] - group["pass_rate_ci95"][0] > 1.5 * (
        wilson_interval(13, 25)[1] - wilson_interval(13, 25)[0]
    )
    assert group["score_ci95"] == pytest.approx(score_interval([list(map(float, g)) for g in verdicts.values()]))


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        (["a"] * 8, 0),  # one value says nothing
        (["a", "b"] * 2, 2),
        (["a", "b", "b"], 0),  # more values than half of the items
        ([f"v{n % 20}" for n in range(40)], 20),
        ([f"v{n % 21}" for n in range(80)], 0),
        ([f"id{n}" for n in range(30)], 0),
    ],
)
def test_a_field_groups_if_it_has_few_values(values, groups):
    assert len(breakdown([entry(1.0, True, f=value) for value in values])) == groups


def test_repetitions_do_not_make_an_id_a_group():
    entries = [entry(1.0, True, case=f"c{n}", id=f"c{n}") for n in range(4) for _ in range(10)]
    assert breakdown(entries) == []


def test_rows_without_a_field_are_in_none_of_its_groups():
    entries = [entry(1.0, True, level=level) for level in ("a", "b", "a", "b")] + [entry(0.0, False)] * 6
    groups = named(breakdown(entries))
    assert {key: group["items"] for key, group in groups.items()} == {("level", "a"): 2, ("level", "b"): 2}
    assert all(group["pass_rate"] == 1.0 for group in groups.values())


def test_an_item_counts_in_each_of_its_tags():
    entries = [entry(1.0, True, tags=("x", "y")), entry(0.0, False, tags=("y",)), entry(0.0, False)]
    assert [(g["field"], g["value"], g["items"], g["pass_rate"]) for g in breakdown(entries)] == [
        ("tag", "y", 2, 0.5),
        ("tag", "x", 1, 1.0),
    ]


def test_a_tag_of_all_items_is_no_group():
    assert breakdown([entry(1.0, True, tags=("math",)), entry(0.0, False, tags=("math",))]) == []


def test_a_tag_that_an_item_has_twice_counts_once():
    [group] = breakdown([entry(0.0, False, tags=("x", "x")), entry(1.0, True, tags=("x",)), entry(1.0, True)])
    assert (group["items"], group["pass_rate"]) == (2, 0.5)


def test_a_tag_that_says_what_a_field_says_is_left_out():
    levels = [("easy", "1"), ("hard", "2")] * 2
    entries = [entry(1.0, True, tags=(kind, f"level-{n}", kind[0]), kind=kind, level=n) for kind, n in levels]
    entries += [entry(1.0, True, tags=("hard",))]  # a tag of its own: it holds one more
    tags = [group["value"] for group in breakdown(entries) if group["field"] == "tag"]
    assert sorted(tags) == ["e", "h", "hard"]


def test_the_fifty_most_frequent_tags_are_groups():
    entries = [entry(1.0, True), *(entry(1.0, True, tags=(f"t{n}", "all")) for n in range(60))]
    groups = breakdown([*entries, entry(1.0, True, tags=("t59",))])
    assert len(groups) == 50
    assert [(group["value"], group["items"]) for group in groups[:2]] == [("all", 60), ("t59", 2)]


entries_strategy = st.lists(
    st.builds(
        Entry,
        st.dictionaries(st.sampled_from(["f", "g"]), st.sampled_from(["a", "b", "c"])),
        st.lists(st.sampled_from(["t", "u"]), unique=True),
        st.none() | st.floats(0, 1),
        st.none() | st.booleans(),
        st.none() | st.sampled_from(["c1", "c2", "c3"]),
    ),
    max_size=30,
)


@pytest.mark.slow
@given(entries_strategy)
def test_groups_of_a_field_hold_every_entry_once(entries):
    groups = breakdown(entries)
    for group in groups:
        if group["pass_rate"] is not None:
            assert group["pass_rate_ci95"][0] <= group["pass_rate"] <= group["pass_rate_ci95"][1]
        if group["score_ci95"] is not None:
            assert group["score_ci95"][0] <= group["mean_score"] + 1e-9
    for field in {group["field"] for group in groups} - {"tag"}:
        of_field = {group["value"]: group for group in groups if group["field"] == field}
        assert set(of_field) == {each.fields[field] for each in entries if field in each.fields}
        for value, group in of_field.items():
            inside = [each for each in entries if each.fields.get(field) == value]
            scores = [each.score for each in inside if each.score is not None]
            assert group["mean_score"] == (pytest.approx(sum(scores) / len(scores)) if scores else None)
            assert group["items"] == len({each.case or id(each) for each in inside})


def test_short_scalars_are_groupable():
    metadata = {
        "difficulty": " easy ",
        "level": 3,
        "weight": 0.5,
        "verified": True,
        "blank": "  ",
        "nothing": None,
        "text": "x" * 41,
        "huge": 10**5000,
        "evaluator": {"func": "f"},
        "list": ["a"],
        "k" * 41: "a",
    }
    assert groupable_fields(metadata) == {"difficulty": "easy", "level": "3", "weight": "0.5", "verified": "true"}
    assert groupable_fields({"broken\ud800": "\ud800"}) == {"broken\ufffd": "\ufffd"}
    assert list(groupable_fields({f"f{n}": n for n in range(20)})) == [f"f{n}" for n in range(8)]


def metadata_of(number, rng):
    return {
        "difficulty": rng.choice(["easy", "medium", "hard"]),
        "source": f"source {rng.randrange(15)}",
        "verified": rng.random() < 0.5,
        "question_for_people": "x" * 100,
        "level": rng.randrange(5),
    }


@pytest.mark.slow
def test_a_row_takes_little_memory():
    rng = random.Random(1)
    many = [metadata_of(number, rng) for number in range(5_000)]
    tracemalloc.start()
    kept = [groupable_fields(json.loads(json.dumps(each))) for each in many]
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size / len(kept) < 300


@pytest.mark.slow
def test_ten_thousand_rows_take_well_under_a_second():
    rng = random.Random(1)
    entries = [
        Entry(groupable_fields(metadata_of(n, rng)), ("all", "ab"[n % 2]), rng.random(), rng.random() < 0.5, n)
        for n in range(10_000)
    ]
    with at_most(0.8):
        assert len(breakdown(entries)) == 3 + 15 + 2 + 5 + 2


def dataset_row(outcome, number, level, model=MODEL, repetition=1, dataset="math", **fields):
    metadata = {"level": level}
    return make_row(outcome, f"{dataset}.q{number}", model, repetition, dataset=dataset, metadata=metadata, **fields)


def test_the_report_has_each_dataset_on_each_model():
    rows = [
        dataset_row("passed" if n % 2 else "failed", n, "easy" if n < 4 else "hard", model, r, metric=n / 10)
        for model in (MODEL, DEMO)
        for n in range(8)
        for r in (1, 2)
    ]
    rows += [dataset_row("error", 9, "hard"), make_row("passed", "no-row")]
    report = json.loads(json.dumps(build_report(rows, {})))
    SCHEMA.validate(report)
    first, second = report["datasets"]
    assert (first["dataset"], first["model_id"], second["model_id"]) == ("math", "gpt4o", "demo")
    assert (first["runs"], first["items"], second["runs"], second["items"]) == (17, 9, 16, 8)
    assert first["pass_rate"] == 0.5
    assert first["pass_rate_ci95"] == pytest.approx(list(pass_rate_interval([(2 * (n % 2), 2) for n in range(8)])))
    assert first["completion"] == pytest.approx(16 / 17)
    mean = {"mean": pytest.approx(0.35), "ci95": pytest.approx(score_interval([[n / 10] * 2 for n in range(8)]))}
    assert first["metrics"] == {"exact_match": mean}
    assert (first["scored_by"], first["mean_score"]) == ("exact_match", pytest.approx(0.35))
    groups = named(first["breakdown"])
    assert list(groups) == [("level", "easy"), ("level", "hard")]
    assert groups["level", "hard"]["items"] == 5
    assert groups["level", "easy"]["mean_score"] == pytest.approx(0.15)


def test_a_judged_dataset_is_scored_by_the_judge():
    rows = [dataset_row("passed", n, "easy", score=5.0 + n, metric=0.5) for n in range(4)]
    (result,) = build_report(rows, {})["datasets"]
    assert (result["scored_by"], result["mean_score"]) == ("final_score", 6.5)
    assert result["metrics"]["exact_match"]["mean"] == 0.5


def test_a_dataset_that_nothing_scored_has_rates_only():
    (result,) = build_report([dataset_row("passed", 1, "easy")], {})["datasets"]
    assert (result["scored_by"], result["mean_score"], result["score_ci95"], result["metrics"]) == (
        None,
        None,
        None,
        {},
    )
    assert (result["pass_rate"], result["breakdown"]) == (1.0, [])


def test_equal_names_below_two_roots_keep_their_cases_apart():
    rows = [dataset_row("passed", n, "a") for n in range(2)]
    rows += [{**row, "nodeid": "other/" + row["nodeid"], "outcome": "failed"} for row in rows]
    (result,) = build_report(rows, {})["datasets"]
    assert (result["items"], result["runs"]) == (4, 4)


@pytest.mark.slow
@given(st.dictionaries(any_text, any_text | st.floats() | st.integers() | st.booleans() | st.none()))
def test_any_fields_can_be_sent_and_written(metadata):
    row = make_row(dataset="math", metadata=metadata)
    assert len(row["fields"]) <= 8
    assert execnet.loads(execnet.dumps(row)) == row
    assert json.loads(json.dumps(row, allow_nan=False).encode()) == row
    SCHEMA.validate(json.loads(json.dumps(build_report([row], {}))))


def test_rows_of_no_dataset_have_no_fields():
    row = make_row("passed", metadata={"level": "easy"})
    assert (row["dataset"], row["fields"]) == (None, {})
    assert dataset_row("passed", 1, "easy")["fields"] == {"level": "easy"}
