"""The page of one run, of a case, and of two runs side by side, as somebody clicks through them."""

from __future__ import annotations

import json
import random
import re
from difflib import SequenceMatcher
from itertools import pairwise
from urllib.parse import quote

import pytest
from support.browser import NEEDS_BROWSER, contrast, new_page
from support.run_pages import go, opened, ready, run, texts
from support.stored_runs import (
    ANSWER,
    CHANGES,
    CHECKS,
    CLAUDE,
    METRICS,
    StoredRuns,
    answered,
    coding_trace,
    judged,
    said,
    verdict,
)

from pytest_agentbench.records.case import Message
from pytest_agentbench.reports.html.page import read_static, write_page

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

FAILED = "cases/fix-slugify/test.yaml::fix-slugify[gpt4o]"
PASSED = "cases/fix-slugify/test.yaml::fix-slugify[claude]"
BETTER = ANSWER.replace("dropped after that", "dropped after that, and `ß` becomes `ss`").partition("\n\nTwo tests")[0]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Two models' runs of one case: one fails, with all that a run can have; and repetitions of it."""
    folder = tmp_path_factory.mktemp("report")
    stored = StoredRuns(folder / "outputs")
    failed = verdict(
        "failed",
        checks=CHECKS,
        metrics=METRICS,
        judge=judged([5.0, 6.0, 5.5], unmet_hard=("ß is ss",)),
        final_score=5.5,
    )
    stored.add(
        trace=coding_trace(ANSWER),
        changes=CHANGES,
        evaluation=failed,
        outcome="failed",
        message="check hidden-tests: 2 of 14 tests failed (and 2 more)",
    )
    passed = [check.model_copy(update={"outcome": "passed"}) for check in CHECKS]
    stored.add(
        model=CLAUDE,
        trace=coding_trace(BETTER, tests_again=False),
        evaluation=verdict(checks=passed, metrics=METRICS[:1], judge=judged([8.5]), final_score=8.5),
    )
    for repetition in (2, 3):
        stored.add(repetition=repetition, trace=coding_trace(ANSWER), evaluation=verdict(checks=CHECKS[1:]))
    path = folder / "report.html"
    write_page(stored.report, path, output=stored.output)
    return path


# -- a run


def test_from_the_list_a_run_opens_with_what_failed_first(program, page):
    with opened(program, page, "#view=runs&outcome=failed") as shown:
        shown.page.get_by_role("link", name="fix-slugify").click()
        ready(shown)
        assert shown.page.title().startswith("fix-slugify · GPT-4o")
        assert texts(shown, ".run-head h1") == ["✗ failed fix-slugify GPT-4o"]
        assert "check hidden-tests: 2 of 14 tests failed" in texts(shown, ".answer-box .message")[0]
        assert "5.5 of 10" in texts(shown, ".figures")[0]
        sections = ["Verdict", "Trace", "Timing", "Workspace (3 changes)", "Usage and cost", "Run", "Stored"]
        assert texts(shown, ".part h2") == sections
        assert texts(shown, ".jumps button") == sections


def test_a_run_begins_with_question_expected_and_the_whole_answer(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    question, answer = "Where is my order? " * 60, "It left our warehouse. " * 60
    trace = [said("user", question), answered(answer, 1.0)]
    asked = {"messages": (Message(role="user", content=question),), "reference": "on 7 March"}
    stored.add("order", trace=trace, case=asked, outcome="failed", message="metric contains_answer: scored 0")
    stored.add("other", case=asked, outcome="error", message="HTTP 503")
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(stored.rows[0]["nodeid"])) as shown:
        assert texts(shown, "main h2")[:3] == ["Question", "Expected", "✗ failed Answer Copy"]
        assert texts(shown, ".asked pre") == [question.strip(), "on 7 March"]
        assert texts(shown, ".answer-box pre") == [answer.strip(), "metric contains_answer: scored 0"]
        go(shown, stored.rows[1]["nodeid"])
        assert texts(shown, ".answer-box") == ["! error Answer There is no answer. HTTP 503"]


def test_checks_show_expected_and_actual(program, page):
    with opened(program, page, run(FAILED)) as shown:
        first = shown.page.locator(".checks > li").first
        assert "hidden-tests" in first.inner_text()
        assert first.locator(".sides pre").all_inner_texts()[0] == "14 tests pass"
        assert "assert 'strae' == 'strasse'" in first.locator(".sides pre").all_inner_texts()[1]
        folded = shown.page.locator(".checks > li", has_text="answer-names-file")
        assert not folded.locator("pre").first.is_visible()
        folded.locator("summary").click()
        assert folded.locator("pre").first.inner_text() == r"slugs?\.py"


def test_metrics_and_judges_show_why(program, page):
    with opened(program, page, run(FAILED)) as shown:
        rows = texts(shown, ".metrics tbody tr")
        assert rows[0].startswith("token_f1 0.61 ≥ 0.5")
        assert "Two of three votes find the answer for 'ß' wrong. 1 of 3 votes for it" in rows[1]
        assert "json_match – the reference is no JSON" in rows[2].replace("≥", "")
        assert texts(shown, ".judged thead tr") == ["Dimension Score Spread Vote 1 Vote 2 Vote 3"]
        assert texts(shown, ".judged tbody tr")[0] == "task 5.5 ± 0.8 5 6 5.5"
        assert "ß is ss" in texts(shown, ".part.verdicts .verdict.failed")[0]
        vote = shown.page.locator(".iteration").nth(1)
        vote.locator("summary").click()
        assert "Vote 2: mostly done." in vote.inner_text()
        assert "It ran the tests after the change." in vote.inner_text()
        assert "slugify('Straße') still gives 'strae'" in vote.inner_text()


def test_a_tool_call_opens_with_its_arguments_and_its_result(program, page):
    with opened(program, page, run(FAILED)) as shown:
        calls = shown.page.locator(".event .call")
        assert calls.count() == 5
        broken = calls.nth(3)
        assert texts(shown, ".call .flag") == ["arguments break the schema", "failed"]
        broken.locator("summary").click()
        assert broken.locator("dt").all_inner_texts() == ["command", "timeout"]
        assert broken.locator("dd pre").all_inner_texts() == ["python -m pytest -q", "60"]
        result = broken.get_by_label("Result")
        assert "test_29" in result.inner_text()
        assert "test_39" not in result.inner_text()
        broken.get_by_role("button", name="Show all 40 lines").click()
        assert "test_39" in result.inner_text()


def test_events_of_the_runner_are_shown_on_demand(program, page):
    with opened(program, page, run(FAILED)) as shown:
        assert not shown.page.locator(".event.runner").first.is_visible()
        shown.page.get_by_label("what the runner did").check()
        assert shown.page.locator(".event.runner").first.is_visible()
        assert "429 too many requests" in " ".join(texts(shown, ".event.runner"))


def test_the_waterfall_tells_when_each_call_ran_and_leads_to_it(program, page):
    with opened(program, page, run(FAILED)) as shown:
        rows = texts(shown, ".waterfall tbody tr")
        assert rows[0] == "model call 1 10 ms 1.9 s"
        assert rows[2] == "read_file 1.9 s 180 ms tool 20 ms"
        assert [row for row in rows if "retried" in row] == ["model call 3 retried: 429 too many requests 4.9 s 1.6 s"]
        summed = "14.0 s in all, 8.3 s in 4 model calls, 5.2 s in 5 tool calls, 520 ms beside them"
        assert texts(shown, ".part.timing > p")[0] == summed
        lanes = shown.page.locator(".waterfall .bar-of")
        boxes = [lanes.nth(at).bounding_box() for at in range(lanes.count())]
        assert [box["x"] for box in boxes] == sorted(box["x"] for box in boxes)
        assert boxes[0]["width"] == pytest.approx(boxes[3]["width"] * 1.9 / 2.6, rel=0.05)
        shown.page.get_by_role("button", name="write_file").click()
        assert "overwrite" in shown.page.locator(":focus").inner_text()
        shown.page.get_by_role("button", name="model call 2").click()
        assert shown.page.locator(":focus").get_attribute("class") == "event runner"


def test_changes_of_files_are_coloured_and_signed(program, page):
    with opened(program, page, run(FAILED)) as shown:
        assert texts(shown, ".workspace summary") == [
            "modified text/slugs.py 412 bytes → 538 bytes",
            "added notes.md 58 bytes",
            "removed build folder",
        ]
        come = texts(shown, ".diff >> nth=0 >> .come")
        assert come[0] == "+import unicodedata"
        colours = [
            shown.value(f"getComputedStyle(document.querySelector('.diff .{name}')).backgroundColor")
            for name in ("come", "gone", "hunk")
        ]
        assert len(set(colours)) == 3


def test_usage_paths_and_the_command_that_runs_it_again(program, page):
    with opened(program, page, run(FAILED)) as shown:
        assert texts(shown, ".usage tbody tr")[-1] == "Cost $0.0412 $0.0090"
        options = "--agentbench-model gpt4o --agentbench-profile standard --agentbench-no-reuse"
        command = f"pytest 'cases/fix-slugify/test.yaml::fix-slugify[gpt4o]' {options}"
        assert shown.page.locator(".again code").inner_text() == command
        link = shown.page.locator(".stored a").first
        assert link.get_attribute("href") == "./outputs/runs/suit_default/profile/gpt4o/0/run_1.json"
        assert json.loads((page.parent / link.get_attribute("href")).read_text())["case_id"] == "fix-slugify"


def test_keys_lead_to_the_next_run_and_to_the_case(program, page):
    with opened(program, page, run(FAILED)) as shown:
        shown.page.keyboard.press("n")
        ready(shown)
        assert texts(shown, ".run-head h1") == ["✓ passed fix-slugify Claude Sonnet 4"]
        shown.page.keyboard.press("p")
        ready(shown)
        assert texts(shown, ".run-head h1") == ["✗ failed fix-slugify GPT-4o"]
        shown.page.keyboard.press("p")
        assert texts(shown, ".run-head h1") == ["✗ failed fix-slugify GPT-4o"]
        shown.page.keyboard.press("c")
        assert texts(shown, "main h1") == ["fix-slugify"]


def test_a_run_that_is_not_in_the_report_is_said(program, page):
    with opened(program, page, "#run=nothing<b>") as shown:
        assert "This report has no run nothing<b>." in shown.page.locator("main").inner_text()


# -- a case, and two runs of it


def test_a_case_lists_its_runs_and_lays_two_side_by_side(program, page):
    with opened(program, page, f"#case={quote(FAILED.partition('[')[0])}") as shown:
        assert "4 runs: 3 passed, 1 failed." in shown.page.locator("main").inner_text()
        assert len(texts(shown, ".case-runs tbody tr")) == 4
        assert texts(shown, ".case table >> nth=0 >> tbody tr") == ["GPT-4o 66.7 % 100.0 % 0.0 % 5.5 – 3"]
        shown.page.get_by_label(f"Right: {FAILED[:-1]}-r3]").check()
        shown.page.get_by_role("button", name="Compare left and right").click()
        ready(shown)
        assert texts(shown, ".pair table >> nth=0 >> thead th") == [
            "Left: GPT-4o ✗ failed",
            "Right: GPT-4o · 3 ✓ passed",
        ]
        assert "Both answers are the same." in shown.page.locator(".part.answers").inner_text()
        shown.page.go_back()
        assert texts(shown, "main h1") == ["fix-slugify"]


def test_a_case_of_one_model_lists_those_runs(program, page):
    with opened(program, page, f"#case={quote(FAILED.partition('[')[0])}&model=gpt4o") as shown:
        assert len(texts(shown, ".case-runs tbody tr")) == 3
        shown.page.get_by_role("link", name="All 4 runs of all models").click()
        assert len(texts(shown, ".case-runs tbody tr")) == 4


def test_two_runs_are_compared_verdict_answer_and_trace(program, page):
    with opened(program, page, f"#compare={quote(FAILED)}&with={quote(PASSED)}") as shown:
        rows = texts(shown, ".part.verdicts tbody tr")
        assert "hidden-tests" in rows[0]
        assert "judge: overall 5.5 8.5 +3" in rows
        assert texts(shown, ".part.answers > p") == ["3 of 7 lines differ."]
        assert texts(shown, ".line-diff tr.changed mark") == [", and `ß` becomes `ss`"]
        assert texts(shown, ".line-diff tr.removed td.gone")[-1].startswith("Two tests still fail")
        assert texts(shown, ".part.trace > p")[0] == "7 of 9 steps are alike."
        steps = shown.page.locator(".traces tbody tr.differs")
        assert [step.locator(".event").count() for step in steps.all()] == [1, 2]
        shown.page.get_by_role("button", name="Swap sides").click()
        ready(shown)
        assert texts(shown, ".pair thead th >> nth=0") == ["Left: Claude Sonnet 4 ✓ passed"]


def test_a_run_offers_to_be_laid_beside_another(program, page):
    with opened(program, page, run(FAILED)) as shown:
        shown.page.get_by_label("Compare with another run").select_option(label="Claude Sonnet 4: passed")
        ready(shown)
        assert "compare=" in shown.value("location.hash")
        assert shown.page.locator(".pair").is_visible()


def test_two_lists_are_aligned_as_well_as_can_be(program):
    source = re.sub("^export ", "", read_static("linediff.js"), flags=re.MULTILINE)
    rng = random.Random(5)
    pairs = [["".join(rng.choices("abc", k=rng.randint(0, 14))) for _ in range(2)] for _ in range(400)]
    with new_page(program) as shown:
        found = shown.page.evaluate(
            f"(pairs) => {{ {source}; return pairs.map(([a, b]) => aligned([...a], [...b])); }}", pairs
        )
    for (left, right), steps in zip(pairs, found, strict=True):
        assert [at for at, _ in steps if at is not None] == list(range(len(left)))
        assert [at for _, at in steps if at is not None] == list(range(len(right)))
        both = [(a, b) for a, b in steps if a is not None and b is not None]
        assert all(left[a] == right[b] for a, b in both)
        assert len(both) == longest_common(left, right) >= SequenceMatcher(None, left, right).find_longest_match().size


def longest_common(left, right):
    row = [0] * (len(right) + 1)
    for one in left:
        row = [0, *row[1:]]
        before = 0
        for at, other in enumerate(right, 1):
            before, row[at] = row[at], before + 1 if one == other else max(row[at], row[at - 1])
    return row[-1]


def test_answers_without_anything_in_common_do_not_hang(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    for repetition, word in ((1, "left"), (2, "right")):
        stored.add("long", repetition=repetition, trace=[answered("\n".join(f"{word} {n}" for n in range(4_000)), 1.0)])
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    ids = [row["nodeid"] for row in stored.rows]
    with opened(program, tmp_path / "report.html", f"#compare={quote(ids[0])}&with={quote(ids[1])}") as shown:
        assert "lines differ" in shown.page.locator(".part.answers").inner_text()


# -- every window


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(program, page, width, scheme):
    case = f"#case={quote(FAILED.partition('[')[0])}"
    for fragment in (run(FAILED), f"#compare={quote(FAILED)}&with={quote(PASSED)}", case):
        with opened(program, page, fragment, width=width, color_scheme=scheme) as shown:
            shown.value("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            assert not shown.scrolls_sideways()
            dim = (
                ".faint, .flag, .change, .said, .at, .diff .come, .diff .gone, mark, .more, .link, .note, dt, pre.text"
            )
            for selector in dim.split(", "):
                if shown.page.locator(f"main {selector}").count():
                    assert contrast(shown, f"main {selector}") >= 4.5, selector


def test_everything_can_be_reached_and_named(program, page):
    with opened(program, page, run(FAILED)) as shown:
        assert shown.value("document.querySelectorAll('h1').length") == 1
        ids = shown.value("[...document.querySelectorAll('[id]')].map((each) => each.id)")
        assert len(ids) == len(set(ids))
        named = "each.textContent.trim() || each.getAttribute('aria-label') || each.labels?.length"
        unnamed = f"[...document.querySelectorAll('main :is(button, select, input, a)')].filter((each) => !({named}))"
        assert shown.value(f"{unnamed}.length") == 0
        heads = "[...document.querySelectorAll('main :is(h1, h2, h3, h4)')].map((each) => Number(each.tagName[1]))"
        assert all(after <= before + 1 for before, after in pairwise(shown.value(heads)))
        assert shown.value("getComputedStyle(document.querySelector('.event.message')).overflowY") == "visible"
        shown.page.get_by_role("button", name="Timing").click()
        top = shown.page.locator(".part.timing h2").bounding_box()["y"]
        assert 0 <= top < 300


def test_in_print_all_of_it_is_there(program, page):
    with opened(program, page, run(FAILED)) as shown:
        shown.page.emulate_media(media="print")
        assert not shown.page.locator(".jumps").is_visible()
        assert shown.page.locator(".part.workspace .diff").first.is_visible()
        assert not shown.scrolls_sideways()
