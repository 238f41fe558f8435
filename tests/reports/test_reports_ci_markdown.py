"""The comment on a pull request, read by GitHub's own parser of Markdown."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given
from hypothesis import strategies as st
from reports_samples import DEMO, make_row

from pytest_agentbench.records.case import Message, Model
from pytest_agentbench.reports.ci.document import MARKER, comparison_markdown, report_markdown
from pytest_agentbench.reports.ci.sections import Places, code
from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.gate import Counts, apply_gate
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.terminal_text import visible_line

OURS = {"h2", "h3", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "strong", "br", "sub"} | {
    "details",
    "summary",
}
NASTY = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> [link](https://evil.example) ![i](https://evil.example/i.png)"
    " @team team@evil.example www.evil.example https://evil.example #12 | a \\| b `code` ``` **bold** <!-- x --> --> "
    "</code></details></table> :smile: $x$ \x1b[31m \u202e \x00 &lt; &#64;team\n\n# heading\n\n<b>"
)
NOWHERE = Places(Path("/nowhere"), {})


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.codes: list[str] = []
        self.outside: list[str] = []
        self._inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "code":
            self._inside += 1
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag == "code"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.codes[-1] += data
        else:
            self.outside.append(data)


def shown(text: str) -> _Page:
    page = _Page()
    page.feed(cmarkgfm.github_flavored_markdown_to_html(text, Options.CMARK_OPT_UNSAFE))
    return page


def report(rows, *, fail_under=None, **session):
    verdict = apply_gate(Counts.of(row["outcome"] for row in rows), fail_under)
    passed = verdict.passed if verdict.passed is not None else all(row["outcome"] == "passed" for row in rows)
    return build_report(rows, {"exit_status": int(not passed), "gate": verdict.as_dict(), **session})


def words(text: str) -> str:
    """What people read of it, on one line."""
    page = cmarkgfm.github_flavored_markdown_to_html(text, Options.CMARK_OPT_UNSAFE)
    return " ".join(unescape(re.sub(r"<[^>]*>", "", page.replace("<br>", " "))).split())


@pytest.mark.slow
@given(st.text(st.sampled_from("ab@.:/\\|`*_<>[]()!#&;~$^w \n-"), max_size=40) | st.text(max_size=40))
def test_a_text_is_unchanged_in_a_paragraph_a_list_and_a_table(text):
    for frame in ("x {}", "- {} y", "| {} | b |\n|---|---|\n| {} | b |", "- [{}](https://a.example/b)"):
        page = shown(frame.replace("{}", code(text)))
        assert set(page.tags) <= {"p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "a"}
        assert [value for name, value in page.attributes] == ["https://a.example/b"] * ("](http" in frame)
        for found in page.codes:
            assert found.replace("\ufffd", "").strip() == visible_line(text).replace("\ufffd", "").strip()
        assert "".join(page.outside).replace("\n", " ").split() in (["x"], ["y"], ["b", "b"], [])


def test_names_and_messages_of_others_are_text_in_every_part():
    model = Model(model_id=NASTY, requested_model="m", label=NASTY)
    rows = [
        make_row("failed", NASTY, model, message=NASTY, tags=(NASTY,), dataset=NASTY, score=1.0),
        make_row("error", "b", model, message=NASTY),
        make_row("skipped", "c", model, message=NASTY),
    ]
    for row in rows:
        row["artifact"] = NASTY
    session = {name: {NASTY: NASTY} for name in ("profiles", "versions")}
    session |= {"uncollected": [{"file": NASTY, "line": 3, "message": NASTY}], "started_at": NASTY}
    found = report(rows, fail_under=0.5, warnings=[NASTY], faults=[NASTY], **session)
    found["session"]["gate"]["reasons"].append(NASTY)
    found["comparison"] = compare(build_campaign(found, NASTY), build_campaign(found)).as_dict()
    found["comparison"]["notes"].append(NASTY)
    text = report_markdown(found, NOWHERE)
    page = shown(text)
    assert set(page.tags) <= OURS
    assert [pair for pair in page.attributes if pair[0] != "align"] == []
    assert "evil" not in "".join(page.outside)
    assert len([found for found in page.codes if "evil.example" in found]) > 18
    assert not set(text) & set("\x1b\x00\u202e")
    assert text.splitlines()[0] == MARKER


@pytest.mark.parametrize(
    ("rows", "options", "first"),
    [
        ([], {}, "⚠️ agentbench: no run was made"),
        ([make_row()], {}, "✅ agentbench: 1 run: 1 passed"),
        ([make_row("failed", message="wrong")], {}, "❌ agentbench: 1 run: 1 failed"),
        ([make_row("error"), make_row("error", "b")], {}, "❌ agentbench: 2 runs: 2 errors"),
        ([make_row(), make_row("failed", "b")], {"fail_under": 0.5}, "✅ agentbench: gate passed: pass rate 50.0 %, 2"),
        ([make_row(), make_row("failed", "b")], {"fail_under": 0.9}, "❌ agentbench: gate failed: pass rate 50.0 %, 2"),
        ([make_row("error")], {"fail_under": 0.9}, "❌ agentbench: gate failed: no run was judged, 1 run: 1 error"),
        ([make_row()], {"exit_status": None}, "⚠️ agentbench: 1 run: 1 passed"),
        ([], {"exit_status": 1, "faults": ["3 collection errors."]}, "❌ agentbench: no run was made"),
    ],
)
def test_the_first_line_is_the_verdict(rows, options, first):
    text = report_markdown(report(rows, **options), NOWHERE)
    assert text.splitlines()[1].startswith(f"## {first}")
    for reason in report(rows, **options)["session"]["gate"]["reasons"]:
        assert reason in words(text)


def test_failed_cases_are_listed_with_reason_place_and_run():
    rows = [
        make_row(outcome, repetition=n, message=None if outcome == "passed" else f"no answer {n}")
        for n, outcome in enumerate(["passed", "failed", "failed"], 1)
    ]
    for row in rows:
        row["line"] = 7
    environ = {"GITHUB_REPOSITORY": "me/bench", "GITHUB_SHA": "abc", "GITHUB_WORKSPACE": "/src"}
    text = report_markdown(report(rows), Places(Path("/src/sub folder"), environ))
    link = "https://github.com/me/bench/blob/abc/sub%20folder/cases/test.yaml#L7"
    assert ("href", link) in shown(text).attributes
    said = "capital in sub folder/cases/test.yaml:7 gpt4o (2 of 3 runs): no answer 2, run outputs/runs/run_1.json"
    assert said in words(text)
    assert "1 case failed" in words(text)
    assert "❌ 1/3" in words(text)


def test_a_case_that_failed_on_several_models_is_one_entry():
    rows = [make_row("failed", model=model, message=f"wrong on {model}") for model in ("one", "two")]
    text = words(report_markdown(report(rows), NOWHERE))
    assert "1 case failed ❌ capital in cases/test.yaml one: wrong on one, run" in text
    assert "run_1.json answer: It is London. two: wrong on two" in text


def test_a_failed_case_has_its_question_its_expected_answer_and_the_answer():
    asked = (Message(role="user", content="Capital of @France?"),)
    text = words(report_markdown(report([make_row("failed", messages=asked, reference="Paris")]), NOWHERE))
    assert "question: Capital of @France? expected: Paris gpt4o: no reason is known" in text
    assert "answer: It is London." in text


def test_gitlab_has_links_too_and_a_case_outside_of_the_repository_has_none():
    row = {**make_row("failed"), "line": 2}
    environ = {"CI_PROJECT_DIR": "/src", "CI_PROJECT_URL": "https://gitlab.example/g/p", "CI_COMMIT_SHA": "abc"}
    assert Places(Path("/src"), environ).link(row) == "https://gitlab.example/g/p/-/blob/abc/cases/test.yaml#L2"
    assert Places(Path("/elsewhere"), environ).link(row) is None
    assert Places(Path("/src"), {}).link(row) is None
    del row["line"]
    assert Places(Path("/src"), environ).link(row) == "https://gitlab.example/g/p/-/blob/abc/cases/test.yaml"


def test_a_comparison_names_what_is_worse_first():
    before = report([make_row("passed", f"c{n}") for n in range(12)])
    now = report([make_row("failed" if n < 9 else "passed", f"c{n}", message="wrong") for n in range(12)])
    now["comparison"] = compare(build_campaign(before, "baseline.json"), build_campaign(now)).as_dict()
    text = words(report_markdown(now, NOWHERE))
    assert "Compared with baseline.json" in text
    assert "100.0 % 25.0 % -75.0 points" in text
    assert "❌ worse" in text
    assert "9 cases worse than before c0 on gpt4o: 1 of 1 → 0 of 1 passed" in text
    assert text.index("worse than before") < text.index("9 cases failed")
    alone = comparison_markdown(now["comparison"], now, NOWHERE)
    assert "9 cases worse than before" in words(alone)
    assert "cases failed" not in words(alone)


@pytest.mark.slow
def test_cases_of_only_one_report_are_listed_in_a_folded_section():
    before = report([make_row(case_id="gone"), make_row(case_id="both")])
    now = report([make_row(case_id="new"), make_row(case_id="both"), make_row(case_id="both", model=DEMO)])
    found = compare(build_campaign(before, "b.json"), build_campaign(now)).as_dict()
    text = words(comparison_markdown(found, now, NOWHERE))
    for line in ("model demo: only now", "gone on gpt4o: only before", "new on gpt4o: only now"):
        assert line in text


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2_000, 20_000, 65_000])
def test_a_large_report_fits_and_says_what_it_leaves_out(limit):
    text = "🙂" * 200 + "<" * 100
    rows = [make_row("failed", f"case-{n}", message=text, score=1.0) for n in range(1_000)]
    found = report_markdown(report(rows), NOWHERE, limit)
    assert limit * 0.5 < len(found.encode()) <= limit
    assert re.search(r"… and [\d,]+ more, see the report\.|More would not fit here", found)
    page = shown(found)
    assert page.tags.count("details") == found.count("</details>") == found.count("<details>")
    assert page.tags[0] == "h2"


def test_many_models_many_reasons_and_many_warnings_leave_room_for_the_failures():
    models = [Model(model_id=f"m{n}", requested_model="m") for n in range(60)]
    found = report([make_row("failed", "c", model, message="wrong") for model in models], warnings=["w"] * 5_000)
    text = report_markdown(found, NOWHERE)
    assert len(text.encode()) <= 65_000
    assert text.count("⚠️ <code>w</code>") >= 10
    assert "4,990 more warnings" in text
    open_list, _, _ = text.partition("<summary>")
    assert open_list.count("⚠️ <code>w</code>") == 10
