from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.cells import cell_len
from support.poet_rows import whole, without_facts

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.models.ledger import Spent
from pytest_agentbench.packs.research.business_report.aggregates import poet_report
from pytest_agentbench.packs.research.business_report.figures import PoetRow, format_interval, format_usd
from pytest_agentbench.packs.research.business_report.text import WIDTH, report_text
from pytest_agentbench.packs.research.business_report.writing import write_comparison, write_poet_files
from pytest_agentbench.packs.research.config import PoetConfig

MADE = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
CONFIG = PoetConfig()
SUMMARY_ROW = [
    "task_id",
    "model_name",
    "domain",
    "complexity_level",
    "overall_poet_score",
    "efficiency_score",
    "quality_score",
    "strategic_score",
    "race_score",
    "fact_accuracy",
    "cost_saving_usd",
    "automation_rate",
    "knowledge_units_created",
]


def written(tmp_path, rows, config=CONFIG, **options):
    paths = write_poet_files(rows, tmp_path / "poet", "gpt", config, made=MADE, **options)
    return {path.name.removeprefix("gpt_poet_"): path.read_text(encoding="utf-8") for path in paths}


def test_a_model_gets_the_four_files_of_the_seed(tmp_path):
    paths = write_poet_files([whole(1)], tmp_path / "new" / "folder", "gpt", CONFIG)
    assert [path.name for path in paths] == [
        "gpt_poet_detailed.json",
        "gpt_poet_summary.json",
        "gpt_poet_report.json",
        "gpt_poet_report.txt",
    ]
    assert all(path.parent == tmp_path / "new" / "folder" and path.stat().st_size for path in paths)


def test_the_summary_has_the_seeds_rows_in_order_and_missing_scores_stay_null(tmp_path):
    rows = [whole(2, 0.75), without_facts("01")]
    summary = json.loads(written(tmp_path, rows)["summary.json"])
    assert [list(row) for row in summary["results"]] == [SUMMARY_ROW, SUMMARY_ROW]
    assert [row["task_id"] for row in summary["results"]] == [2, "01"]
    assert [row["overall_poet_score"] for row in summary["results"]] == [0.75, None]
    assert summary["results"][1]["race_score"] == 0.6


def test_every_json_file_counts_lost_and_unreached_rows(tmp_path):
    rows = [whole(1), whole(2), without_facts(3)]
    files = written(tmp_path, rows, lost=["gpt.jsonl:4: id 1 is there twice"], not_reached=2)
    for name in ("detailed.json", "summary.json", "report.json"):
        document = json.loads(files[name])
        counts = [document[key] for key in ("n_total", "n_scored", "n_failed", "n_not_reached")]
        assert counts == [6, 2, 2, 2], name
    assert json.loads(files["report.json"])["lost"] == ["gpt.jsonl:4: id 1 is there twice"]
    assert "gpt.jsonl:4: id 1 is there twice" in files["report.txt"]


def test_the_detailed_file_gives_back_the_rows(tmp_path):
    rows = [whole(1, evidence={"race": ["insight: 3 of 10"]}), without_facts(2, reason="the judge did not answer")]
    detailed = json.loads(written(tmp_path, rows)["detailed.json"])
    assert [PoetRow.model_validate(row) for row in detailed["results"]] == rows


def test_means_are_over_the_reports_that_have_the_score_and_say_how_many(tmp_path):
    rows = [whole(1, 0.4), whole(2, 0.8), without_facts(3, efficiency_score=0.9)]
    report = json.loads(written(tmp_path, rows)["report.json"])
    overall, efficiency = (report["means"][name] for name in ("overall_poet_score", "efficiency_score"))
    assert overall == {"n": 2, "mean": pytest.approx(0.6), "ci95": None, "lowest": 0.4, "highest": 0.8}
    assert (efficiency["n"], efficiency["mean"]) == (3, pytest.approx(0.7))
    assert report["citations"] == {
        "n": 2,
        "supported": 6,
        "unsupported": 2,
        "unknown": 0,
        "accuracy": 0.75,
        "ci95": None,
    }
    assert report["costs"]["ai_usd"] == {"n": 3, "total": 1.5}
    assert report["missing"] == {"fact": [{"task_id": 3, "reason": "validate: no reply"}]}


def test_five_different_reports_get_the_t_interval_of_their_mean():
    scores = [0.5, 0.6, 0.7, 0.8, 0.9]
    overall = poet_report([whole(n, score) for n, score in enumerate(scores)], "gpt", CONFIG).means[
        "overall_poet_score"
    ]
    half = 2.776445 * (0.025 / 5) ** 0.5  # t with 4 degrees of freedom, variance 0.025
    assert overall.ci95 == pytest.approx((0.7 - half, 0.7 + half), abs=1e-6)


def test_groups_are_in_order_and_those_without_a_name_come_last():
    rows = [
        whole(1, domain=None, complexity_level=10),
        whole(2, complexity_level=2),
        whole(3, domain="arts", language="zh"),
    ]
    report = poet_report(rows, "gpt", CONFIG)
    assert [(group.name, group.n_total) for group in report.by_domain] == [("arts", 1), ("finance", 1), (None, 1)]
    assert [group.name for group in report.by_complexity_level] == ["2", "3", "10"]
    assert [group.name for group in report.by_language] == ["en", "zh"]


def test_the_configuration_sets_the_number_of_named_tasks_and_the_classes():
    config = PoetConfig.model_validate(
        {
            "reporting_settings": {"top_tasks_count": 1, "bottom_tasks_count": 2},
            "evaluation_thresholds": {"excellent_poet_score": 0.9, "good_poet_score": 0.7},
        }
    )
    report = poet_report([whole(1, 0.85), whole(2, 0.3), whole(3, 0.95), whole(4, 0.1)], "gpt", config)
    assert [each.task_id for each in report.top] == [3]
    assert [each.task_id for each in report.bottom] == [4, 2]
    assert report.classes == {"excellent": 1, "good": 1, "acceptable": 0, "poor": 1, "insufficient": 1}
    assert report.performance_class == "acceptable"


def test_files_that_the_configuration_turns_off_are_not_written(tmp_path):
    settings_off = dict.fromkeys(("generate_detailed_report", "generate_summary_report", "generate_text_report"), False)
    config = PoetConfig.model_validate({"reporting_settings": settings_off})
    assert list(written(tmp_path, [whole(1)], config)) == ["report.json"]


def test_a_score_that_is_missing_without_a_reason_is_refused():
    with pytest.raises(ValidationError, match="fact_accuracy is None, expected an entry in reasons for 'fact'"):
        whole(1, overall_poet_score=None, quality_score=None, fact_accuracy=None)


def test_evidence_is_kept_short():
    row = whole(1, evidence={"fact": ["a\nb  c", "x" * 1000, *"defgh"]})
    assert row.evidence["fact"] == ("a b c", "x" * 399 + "…", "d", "e", "f")


def test_judge_costs_are_reported_with_the_count_of_unpriced_requests(tmp_path):
    spent = {"race": Spent(2, 100, 50, 0.25, 0), "extract": Spent(3, 10, 5, 0.5, 1), "knowledge": Spent()}
    files = written(tmp_path, [whole(1)], spent=spent)
    assert list(json.loads(files["report.json"])["costs"]["judge"]) == ["race", "extract"]
    assert (
        "Cost of judging these reports in this call: $0.750, Requests: 5, Requests without a price: 1"
        in files["report.txt"]
    )


def test_requests_without_a_price_are_no_dollars(tmp_path):
    files = written(tmp_path, [whole(1)], spent={"race": Spent(2, 100, 50, 0.0, 2)})
    assert json.loads(files["report.json"])["costs"]["judge"]["race"]["cost_usd"] is None
    assert "in this call: –, Requests: 2, Requests without a price: 2" in files["report.txt"]


@pytest.mark.parametrize("model", ["../../gpt", "openai/gpt", "a\\b", "\x1b[2J", "\u202egpt", ".", "é" * 120])
def test_files_stay_in_their_folder_for_any_model_name(tmp_path, model):
    paths = write_poet_files([whole(1)], tmp_path / "in" / "poet", model, CONFIG)
    assert sorted(paths) == sorted(each for each in tmp_path.rglob("*") if each.is_file())
    assert {path.parent for path in paths} == {tmp_path / "in" / "poet"}
    assert all(path.name.isprintable() for path in paths)
    assert json.loads(paths[2].read_text(encoding="utf-8"))["model"] == model


def test_a_score_is_not_rounded_up_to_the_class_that_it_misses(tmp_path):
    files = written(tmp_path, [whole(1, 0.5996)])
    assert "POET score: 0.5996 (n = 1), acceptable" in files["report.txt"]


@pytest.mark.parametrize(("n", "top", "bottom"), [(1, 1, 0), (2, 1, 1), (7, 4, 3), (12, 7, 5), (40, 10, 5)])
def test_no_report_is_both_among_the_highest_and_the_lowest(n, top, bottom):
    report = poet_report([whole(k, k / 40) for k in range(n)], "gpt", CONFIG)
    assert [each.task_id for each in report.top] == list(range(n))[::-1][:top]
    assert [each.task_id for each in report.bottom] == list(range(n))[:bottom]


def test_levels_and_domains_that_read_the_same_are_one_group():
    rows = [whole(1, complexity_level=3, domain=None), whole(2, complexity_level="3", domain="")]
    report = poet_report(rows, "gpt", CONFIG)
    assert [(group.name, group.n_total) for group in report.by_complexity_level] == [("3", 2)]
    assert [(group.name, group.n_total) for group in report.by_domain] == [(None, 2)]


def test_a_sum_over_fewer_reports_than_its_group_has_its_own_n(tmp_path):
    files = written(tmp_path, [whole(1), whole(2, cost_saving_usd=None)])
    assert "$99.50 (n = 1)" in files["report.txt"]


def test_scaled_citation_accuracy_is_reported(tmp_path):
    config = PoetConfig.model_validate({"evaluation_parameters": {"fact_accuracy_max": 2}})
    assert "Citation accuracy is divided by 2" in written(tmp_path, [whole(1)], config)["report.txt"]


def test_long_names_are_cut_in_the_text_and_whole_in_json(tmp_path):
    rows = [whole("x" * 9000, domain="y" * 9000), without_facts(2, reason="z" * 9000)]
    files = written(tmp_path, rows)
    assert all(letter * 9000 in files["detailed.json"] for letter in "xyz")
    text = files["report.txt"].replace("\n", "")
    assert not any(letter * 500 in text for letter in "xyz")
    assert "z…" in text


@pytest.mark.parametrize("fields", [{"overall_poet_score": None}, {"fact_accuracy": None, "reasons": {"fact": "no"}}])
def test_a_composite_without_its_parts_and_one_missing_without_reason_are_refused(fields):
    with pytest.raises(ValidationError, match="overall_poet_score"):
        whole(1, **fields)


def test_the_text_has_the_verdict_with_its_n_and_each_reason(tmp_path):
    text = written(tmp_path, [whole(1, 0.85), without_facts(7, reason="scrape: 3 pages timed out")])["report.txt"]
    assert "Made 2026-11-22 09:30 UTC\nReports: 2 in all, 1 scored, 1 failed\n" in text
    assert "POET score: 0.85 (n = 1), excellent" in text
    assert "Citation accuracy (n = 1)\n   7: scrape: 3 pages timed out\n" in text


def test_the_text_is_written_in_chinese_on_request(tmp_path):
    files = written(tmp_path, [whole(1, 0.85), without_facts(7)], language="zh")
    assert "POET 综合分: 0.85 (n = 1), 优秀" in files["report.txt"]
    assert "补全缺失项：可读取的 2 份报告中有 1 份没有 POET 综合分" in files["report.txt"]


def test_compatible_numbers_are_called_so(tmp_path):
    assert "RACE is divided by 5" in written(tmp_path, [whole(1)], race_max=5.0)["report.txt"]
    assert "divided" not in written(tmp_path, [whole(1)])["report.txt"]


def test_names_and_reasons_of_others_cannot_steer_the_terminal(tmp_path):
    evil = "\x1b[2Jgone\r\nPOET score: 1.00\u202e"
    row = without_facts(evil, reason=evil, domain=evil)
    text = report_text(poet_report([row, whole("ok", domain=evil)], evil, CONFIG), MADE)
    assert not {"\x1b", "\r", "\u202e"} & set(text)
    assert not any(line.startswith("POET score: 1.00") for line in text.splitlines())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_lines_fit_a_terminal(language):
    rows = [whole("task-" * 40, domain="域" * 120), *(without_facts(n, reason="长" * 300) for n in range(20))]
    text = report_text(poet_report(rows, "模" * 90, CONFIG, language=language), MADE, language)
    assert max(map(cell_len, text.splitlines())) <= WIDTH


def test_a_report_without_rows_has_no_performance_class(tmp_path):
    files = written(tmp_path, [], not_reached=3)
    assert "POET score: – (n = 0)" in files["report.txt"]
    assert "An interruption left 3 reports without any score" in files["report.txt"]
    assert "have every part" not in files["report.txt"]
    assert json.loads(files["report.json"])["performance_class"] is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "poet").write_text("a file")
    with pytest.raises(UnwritableError, match=r"poet/gpt_poet_detailed\.json: cannot be written"):
        written(tmp_path, [whole(1)])


def test_a_comparison_adds_the_counts_of_its_models(tmp_path):
    models = {"gpt": [whole(1), without_facts(2)], "claude": [whole(1)]}
    document, text = write_comparison(models, tmp_path, CONFIG, lost={"claude": ["claude.jsonl:2: no id"]}, made=MADE)
    found = json.loads(document.read_text(encoding="utf-8"))
    assert [found[name] for name in ("n_total", "n_scored", "n_failed", "n_not_reached")] == [4, 2, 2, 0]
    assert [each["model"] for each in found["models"]] == ["gpt", "claude"]
    assert text.name == "poet_comparison.txt"


def test_models_are_compared_by_prompt_in_both_the_json_and_the_text(tmp_path):
    models = {
        "best": [whole(n, 0.5 + n / 10, prompt_key=f"p{n}") for n in range(5)],
        "other": [whole(str(n + 2), 0.4, prompt_key=f"p{n}") for n in range(5)],
        "lucky": [whole(1, 1.0, prompt_key="p0")],
    }
    document, text = write_comparison(models, tmp_path, CONFIG, {"other": {"race": Spent(1, 9, 9, 0.5, 0)}}, made=MADE)
    found = json.loads(document.read_text(encoding="utf-8"))
    compared = found["comparison"]
    assert (compared["best"], compared["n"]) == ("best", 5)
    means = {each["model"]: (each["difference"]["n"], each["difference"]["mean"]) for each in compared["differences"]}
    assert means == {"other": (5, pytest.approx(-0.3)), "lucky": (1, pytest.approx(0.5))}
    assert [each["costs"]["judge"].keys() for each in found["models"]] == [set(), {"race"}, set()]
    lines = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    assert ["best", "5", "5", "0.70", "0.50", "to", "0.90", "good", "$497.50"] in lines
    assert ["other", "5", "5", "0.40", "–", "acceptable", "$497.50"] in lines
    assert ["lucky", "1.00", "1.00", "1.00", "1.00", "1.00"] in lines
    assert ["other", "5", "-0.30", "-0.50", "to", "-0.10"] in lines
    assert ["lucky", "1", "+0.50", "–"] in lines
    assert "POET score less that of best, which has the highest mean (n = 5;" in text.read_text(encoding="utf-8")


def test_names_of_models_cannot_steer_the_terminal_of_a_comparison(tmp_path):
    models = {"gpt\x1b[2J\r\n\u202e": [whole(1)], "m" * 300: []}
    _, text = write_comparison(models, tmp_path, CONFIG, made=MADE)
    lines = text.read_text(encoding="utf-8").splitlines()
    assert not {"\x1b", "\r", "\u202e"} & set("".join(lines))
    assert max(map(cell_len, lines)) <= WIDTH


share = st.floats(0, 1, allow_nan=False)
rows_of_any_kind = st.lists(
    st.one_of(
        st.builds(whole, st.integers(0, 50), share, domain=st.sampled_from(["a", "b", None])),
        st.builds(without_facts, st.text(max_size=5), complexity_level=st.sampled_from([1, 5, None])),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(rows_of_any_kind, st.integers(0, 3))
def test_totals_add_up(rows, not_reached):
    report = poet_report(rows, "gpt", CONFIG, not_reached=not_reached)
    assert report.n_total == report.n_scored + report.n_failed + report.n_not_reached == len(rows) + not_reached
    assert sum(report.classes.values()) == report.n_scored
    assert sum(map(len, report.missing.values())) == report.n_failed
    for groups in (report.by_domain, report.by_complexity_level, report.by_language):
        assert sum(group.n_total for group in groups) == len(rows)
        assert sum(group.n_scored for group in groups) == report.n_scored
    for each in report.means.values():
        assert (each.mean is None) == (each.n == 0)
        if each.mean is not None:
            assert each.lowest - 1e-12 <= each.mean <= each.highest + 1e-12


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.0, "$0.00"), (0.0871, "$0.0871"), (0.5, "$0.500"), (-3.2, "-$3.20"), (37974.4, "$37,974")],
)
def test_money_is_shown_as_exactly_as_it_is_known(value, shown):
    assert format_usd(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        ((0.5, 0.625), "0.50 to 0.62"),
        ((0.5001, 0.5049), "0.500 to 0.505"),
        ((-0.1, 0.2), "-0.10 to +0.20"),
    ],
)
def test_intervals_have_signs_if_one_end_is_negative(value, shown):
    assert format_interval(value, "to") == shown
