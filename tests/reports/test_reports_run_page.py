"""The page of one run, the list around it, and columns side by side, as somebody clicks through them."""

from __future__ import annotations

import json
import random
import re
from difflib import SequenceMatcher
from itertools import pairwise

import pytest
from support.browser import NEEDS_BROWSER, contrast, new_page
from support.run_pages import go, opened, ready, run, texts
from support.stored_runs import (
    ANSWER,
    CHANGES,
    CHECKS,
    CLAUDE,
    GPT,
    METRICS,
    StoredRuns,
    answered,
    coding_trace,
    judged,
    said,
    verdict,
)

from pytest_agentbench.records.case import Message
from pytest_agentbench.records.evaluation import Scored
from pytest_agentbench.records.run import RoleUse, Usage
from pytest_agentbench.reports.html.page import read_static, write_page

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

FAILED = "cases/fix-slugify/test.yaml::fix-slugify[gpt4o]"
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
        judge=judged(
            [5.0, 6.0, 5.5],
            unmet_hard=("ß is ss",),
            criteria={"Size of the <b>change</b>": Scored(score=7, evidence=("Four lines.",))},
        ),
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
    with opened(program, page, "#/results?show=flaky") as shown:
        shown.page.get_by_role("link", name="fix-slugify, GPT-4o").click()
        ready(shown)
        assert shown.page.title().startswith("fix-slugify · GPT-4o")
        assert texts(shown, ".coltabs a") == ["flaky GPT-4o 2/3", "passed Claude Sonnet 4", "Side by side"]
        assert "check hidden-tests: 2 of 14 tests failed" in texts(shown, ".answer-box .message")[0]
        assert "5.5 of 10" in texts(shown, ".figures")[0]
        sections = [
            "Why it failed",
            "Conversation",
            "Timing",
            "Workspace (3 changes)",
            "Usage and cost",
            "Run",
            "Stored",
        ]
        assert texts(shown, ".part h2") == sections


def test_a_run_begins_with_question_expected_and_the_whole_answer(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    question, answer = "Where is my order? " * 60, "It left our warehouse. " * 60
    trace = [said("user", question), answered(answer, 1.0)]
    asked = {"messages": (Message(role="user", content=question),), "reference": "on 7 March"}
    stored.add("order", trace=trace, case=asked, outcome="failed", message="metric contains_answer: scored 0")
    stored.add("other", case=asked, outcome="error", message="HTTP 503")
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(stored.rows[0]["nodeid"])) as shown:
        assert texts(shown, "main h2")[:3] == ["Question", "Expected", "failed Answer Copy"]
        assert texts(shown, ".asked :is(h1, pre)") == [question.strip(), "on 7 March"]
        assert texts(shown, ".answer-box pre") == [answer.strip(), "metric contains_answer: scored 0"]
        go(shown, stored.rows[1]["nodeid"])
        assert texts(shown, ".answer-box") == ["error Answer There is no answer. HTTP 503"]


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
        assert texts(shown, ".judged thead tr") == ["Criterion Score Evidence"]
        task = "task 5.5 ± 0.8 It ran the tests after the change. The test for umlauts still fails."
        assert texts(shown, ".judged tbody tr")[:2] == ["Size of the <b>change</b> 7 Four lines.", task]
        assert "ß is ss" in texts(shown, ".part.verdicts .verdict.failed")[0]
        vote = shown.page.locator(".iteration").nth(1)
        vote.locator("summary").click()
        assert "Vote 2: mostly done." in vote.inner_text()
        assert "It ran the tests after the change." in vote.inner_text()
        assert "slugify('Straße') still gives 'strae'" in vote.inner_text()


def test_a_failed_tool_call_is_open_with_its_arguments_and_its_result(program, page):
    with opened(program, page, run(FAILED)) as shown:
        calls = shown.page.locator(".event .call")
        assert calls.count() == 5
        broken = calls.nth(3)
        assert texts(shown, ".call .flag") == ["arguments break the schema", "failed"]
        assert not calls.nth(0).locator("dt").first.is_visible()
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


def test_the_usage_of_a_run_has_a_column_for_each_role(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    usage = Usage(input_tokens=20, output_tokens=10, total_tokens=30, cost_usd=0.02, raw=({"queue": 1},))
    stored.add(roles={"user": RoleUse(model_id="gpt4o-mini", usage=usage)})
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(stored.rows[0]["nodeid"])) as shown:
        assert texts(shown, ".usage thead tr") == ["Run user"]
        assert texts(shown, ".usage tbody tr")[-1] == "Cost $0.0412 $0.0200"
        assert "$0.0412 + $0.0200 user" in texts(shown, ".figures")[0]
        shown.value("location.hash = '#/'")
        assert shown.page.locator("main", has_text="$0.0612").is_visible()


def test_usage_paths_and_the_command_that_runs_it_again(program, page):
    with opened(program, page, run(FAILED)) as shown:
        assert texts(shown, ".usage tbody tr")[-1] == "Cost $0.0412 $0.0090"
        options = "--agentbench-model gpt4o --agentbench-profile standard --agentbench-no-reuse"
        command = f"pytest 'cases/fix-slugify/test.yaml::fix-slugify[gpt4o]' {options}"
        assert shown.page.locator(".again code").inner_text() == command
        link = shown.page.locator(".stored a").first
        assert link.get_attribute("href") == "./outputs/runs/suit_default/profile/gpt4o/0/run_1.json"
        assert json.loads((page.parent / link.get_attribute("href")).read_text())["case_id"] == "fix-slugify"


def test_a_run_that_is_not_in_the_report_is_said(program, page):
    with opened(program, page, "#run=nothing<b>") as shown:
        assert "This report has no run nothing<b>." in shown.page.locator("main").inner_text()


# -- the list around a run, its columns and repetitions, side by side


@pytest.fixture(scope="module")
def walked(program, tmp_path_factory):
    """Five cases on two models, of which a, c and e differ."""
    folder = tmp_path_factory.mktemp("walked")
    stored = StoredRuns(folder / "outputs")
    for name in "abcde":
        for model in (GPT, CLAUDE):
            failed = model is GPT and name in "ace"
            stored.add(name, model, trace=[answered(f"{name} of {model.model_id}", 1.0)], **FAILS if failed else {})
    write_page(stored.report, folder / "report.html", output=stored.output)
    return folder / "report.html"


FAILS = {"outcome": "failed", "message": "check x: no"}


def test_previous_and_next_walk_the_filtered_list_on_the_same_column(program, walked):
    with opened(program, walked, "#/results?show=differs&sort=file") as shown:
        page = shown.page
        page.get_by_role("link", name="a, Claude Sonnet 4").click()
        ready(shown)
        assert texts(shown, ".crumbs span")[0] == "1 of 3 · differs"
        assert texts(shown, ".rail a") == ["a", "c", "e"]
        for press, answer in (("n", "c"), ("n", "e"), ("n", "e"), ("k", "c")):
            page.keyboard.press(press)
            ready(shown)
            assert texts(shown, ".answer-box pre") == [f"{answer} of claude"]
        page.get_by_role("link", name="‹ Previous").first.click()
        ready(shown)
        assert texts(shown, ".answer-box pre") == ["a of claude"]
        page.keyboard.press("h")
        ready(shown)
        assert texts(shown, ".answer-box pre")[0] == "a of gpt4o"
        page.keyboard.press("Escape")
        page.wait_for_selector("table.grid")
        assert shown.value("location.hash") == "#/results?show=differs&sort=file"


def test_the_next_that_differs_is_found_among_all_cases(program, walked):
    with opened(program, walked, "#/run/a/claude/1?sort=file") as shown:
        shown.page.get_by_role("link", name="Next that differs").click()
        ready(shown)
        assert texts(shown, ".answer-box pre") == ["c of claude"]
        shown.page.keyboard.press("x")
        ready(shown)
        assert texts(shown, ".answer-box pre") == ["e of claude"]
        assert texts(shown, ".crumbs span")[0] == "5 of 5 · all cases"


def test_repetitions_are_tabs_of_the_answer(program, page):
    with opened(program, page, run(FAILED)) as shown:
        assert texts(shown, ".reps a") == ["1", "2", "3"]
        shown.page.get_by_role("link", name="repetition 3: passed").click()
        ready(shown)
        assert texts(shown, ".reps [aria-current]") == ["3"]
        assert texts(shown, ".answer-box h2")[0].startswith("passed Answer")


def test_a_tool_that_failed_before_the_answer_is_a_hint_with_its_step(program, page):
    with opened(program, page, run(FAILED)) as shown:
        assert "exec_shell failed before this answer." in texts(shown, ".answer-box .note")[0]
        shown.page.get_by_role("button", name="Show the step").click()
        assert "exec_shell" in shown.page.locator(":focus").inner_text()


def test_columns_lie_side_by_side_with_their_differences(program, page):
    with opened(program, page, run(FAILED)) as shown:
        shown.page.get_by_role("link", name="Side by side").click()
        ready(shown)
        left, right = shown.page.locator(".sidecol").all()
        assert texts(shown, ".sidecol h2 a") == ["GPT-4o", "Claude Sonnet 4"]
        assert "check hidden-tests: 2 of 14 tests failed" in left.inner_text()
        assert " ".join(right.locator("ins").first.inner_text().split()) == "that, and `ß` becomes `ss`."
        assert right.locator("del").last.inner_text().strip().startswith("Two tests still fail")
        assert left.locator(".event.tool").count() == right.locator(".event.tool").count() + 1
        shown.page.keyboard.press("d")
        ready(shown)
        assert shown.page.locator(".answer-box").is_visible()


def test_two_lists_are_aligned_as_well_as_can_be(program):
    source = re.sub("^export ", "", read_static("worddiff.js"), flags=re.MULTILINE)
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


def test_long_answers_without_anything_in_common_do_not_hang(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    for model, word in ((GPT, "left"), (CLAUDE, "right")):
        stored.add("long", model, trace=[answered("\n".join(f"{word} {word}{n}" for n in range(900)), 1.0)])
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", "#/run/long/gpt4o/1?side=1") as shown:
        assert "all different" in shown.page.locator(".sidecol").nth(1).inner_text()


# -- every window


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(program, page, width, scheme):
    for fragment in (run(FAILED), "#/run/fix-slugify/gpt4o/1?side=1"):
        with opened(program, page, fragment, width=width, color_scheme=scheme) as shown:
            shown.value("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            assert not shown.scrolls_sideways()
            dim = ".faint, .flag, .change, .said, .at, .come, .gone, del, ins, .more, .link, .note, dt, pre.text, .why"
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


def test_in_print_all_of_it_is_there(program, page):
    with opened(program, page, run(FAILED)) as shown:
        shown.page.emulate_media(media="print")
        assert not shown.page.locator(".rail").is_visible()
        assert shown.page.locator(".part.workspace .diff").first.is_visible()
        assert not shown.scrolls_sideways()
