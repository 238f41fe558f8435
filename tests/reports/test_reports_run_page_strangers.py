"""The page of one run whose texts, names and stored files are as others left them: hostile, huge, broken, missing."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from support.browser import NEEDS_BROWSER
from support.run_pages import go, opened, run, texts
from support.stored_runs import (
    ANSWER,
    CHANGES,
    CHECKS,
    METRICS,
    StoredRuns,
    answered,
    asked,
    called,
    coding_trace,
    judged,
    said,
    told,
    verdict,
)

from pytest_agentbench.records.run import OutputArtifact, RunError
from pytest_agentbench.reports.html.page import write_page

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

EVIL = (
    "</script><script>window.taken=1</script><img src=x onerror='window.taken=1'><svg/onload=window.taken=1>"
    "\x1b[31mred\x1b]8;;http://x\x07 \u202egnp.exe\u2066 \x00\U000e0041\U000e0101\u2062\u3164"
    " ${window.taken=1} javascript:window.taken=1 <!--"
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    stored = StoredRuns(folder / "outputs", command=("--agentbench-output", EVIL))
    trace = [
        said("system", EVIL),
        *asked(1, 0.1, 0.5, finish_reason=EVIL),
        called(EVIL, {EVIL: EVIL, "__proto__": {"polluted": EVIL}, "constructor": 1}, 1.0, EVIL),
        told(EVIL, EVIL, 1.2, EVIL, is_error=True),
        called("raw", None, 1.3, "c9", raw=EVIL, offered=False),
        answered(EVIL, 2.0),
    ]
    check = CHECKS[0].model_copy(update=dict.fromkeys(("check_id", "kind", "message", "expected", "actual"), EVIL))
    metric = METRICS[1].model_copy(update={"name": EVIL, "details": {"reason": EVIL, "votes": [{"correct": EVIL}]}})
    evaluation = verdict(
        "failed",
        checks=[check],
        metrics=[metric],
        judge=judged([3.0, 4.0], EVIL, summary=EVIL, unmet_hard=(EVIL,)),
        final_score=3.5,
    )
    change = CHANGES[0].model_copy(update={"path": EVIL, "diff": f"@@ -1 +1 @@\n-{EVIL}\n+{EVIL}", "note": EVIL})
    for repetition in (1, 2):
        stored.add(
            f"case {EVIL}" if repetition == 0 else "hostile",
            repetition=repetition,
            trace=trace,
            changes=(change,),
            evaluation=evaluation,
            outcome="failed",
            message=EVIL,
            tags=(EVIL,),
            status="failed",
            error=RunError(code=EVIL, message=EVIL),
            metadata={EVIL: EVIL, "agentbench.workspace": {"not_kept": EVIL, "more_changes": 3}},
            request={"tools": [EVIL]},
            provider={"model": EVIL},
        )
    stored.rows[1]["nodeid"] = f"cases/hostile/test.yaml::hostile[{EVIL}]"
    write_page(stored.report, folder / "report.html", output=stored.output)
    return folder / "report.html", [row["nodeid"] for row in stored.rows]


def test_nothing_that_others_wrote_runs_loads_or_hides(program, hostile):
    path, (first, second) = hostile
    beside = f"#compare={quote(first)}&with={quote(second, safe='')}"
    for fragment in (run(first), run(second), beside, "#/results"):
        with opened(program, path, fragment) as shown:
            shown.value("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            shown.value("document.querySelectorAll('.bar input').forEach((each) => each.click())")
            assert shown.value("window.taken") is None
            assert shown.value("({}).polluted") is None
            assert [url for url in shown.requests if not url.startswith(path.as_uri())] == []
            assert shown.page.locator("main img, main script, main svg:not(.icon), main iframe").count() == 0
            body = shown.page.locator("main").inner_text()
            assert not re.search(r"[\x00\x07\x1b\u202e\u2066\U000e0041\U000e0101\u2062\u3164]", body)
            assert "\\u001b[31mred" in body
            assert not shown.scrolls_sideways()
            hrefs = shown.value("[...document.querySelectorAll('main a')].map((each) => each.getAttribute('href'))")
            assert all(href.startswith(("#", "./")) for href in hrefs)


def test_the_command_of_a_run_with_a_strange_name_is_not_offered(program, hostile):
    path, (_, second) = hostile
    with opened(program, path, run(second)) as shown:
        assert "no shell should be given" in shown.page.locator("main").inner_text()


PASTED = "x\x1b[201~\ntouch taken\n"  # ends what a terminal takes for pasted, so that the next line runs


@pytest.mark.parametrize("place", ["model", "options"])
def test_nor_one_that_a_hostile_report_would_have_pasted_into_a_shell(program, tmp_path, place):
    command = ("--agentbench-output", PASTED) if place == "options" else ()
    stored = StoredRuns(tmp_path / "outputs", command=command)
    nodeid = stored.add()
    if place == "model":
        stored.rows[0]["model_id"] = PASTED
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(nodeid)) as shown:
        assert "no shell should be given" in shown.page.locator("main").inner_text()
        assert shown.page.locator(".again").count() == 0


@pytest.mark.parametrize("nodeid", ["-pevil", "@evil.txt", "--rootdir=/"])
def test_nor_one_whose_run_is_an_option(program, tmp_path, nodeid):
    stored = StoredRuns(tmp_path / "outputs")
    stored.add()
    stored.rows[0]["nodeid"] = nodeid
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(nodeid)) as shown:
        assert shown.page.locator(".again").count() == 0


def test_links_to_files_of_an_agent_never_open_pages(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    uris = [f"runs/a.artifacts/{name}" for name in ("a.html", "b.SVG", "c.xhtml", "d", "e.json/", "f.txt", "g.png")]
    uris += ["javascript:window.taken=1//.txt", "../../x.txt", "//127.0.0.1/x.txt"]
    left = [OutputArtifact(artifact_id=uri, artifact_type="workspace_file", uri=uri) for uri in uris]
    nodeid = stored.add(output_artifacts=left)
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(nodeid)) as shown:
        hrefs = [link.get_attribute("href") for link in shown.page.locator(".stored a").all()]
        assert [href.rpartition("/")[2] for href in hrefs[1:]] == ["f.txt", "g.png", ".txt"]
        assert all(href.startswith("./outputs/") for href in hrefs)
        assert "c.xhtml" in shown.page.locator(".stored").inner_text()


def test_five_megabytes_of_text_are_cut_with_the_files_name(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    nodeid = stored.add("huge", trace=[said("user", "x"), answered("A long line. " * 400_000, 1.0)])
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(nodeid)) as shown:
        note = "The first 40,000 of 5,200,000 characters. All of them are in"
        assert f"{note} {stored.output}/{stored.rows[0]['artifact']}." in texts(shown, ".answer-box .note")
        shown.page.get_by_role("button", name="Show all 40,000 characters").first.click()
        assert len(shown.page.locator(".answer-box pre.text").inner_text()) == 40_000
        assert not shown.scrolls_sideways()
    assert (tmp_path / "report.html").stat().st_size < 2 * 2**20


def test_a_trace_of_five_thousand_events_opens_at_once_and_is_all_there(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    trace = [
        event
        for n in range(2_500)
        for event in (
            called("search", {"q": f"question {n}"}, n, f"c{n}"),
            told("search", f"found {n}", n + 0.5, f"c{n}"),
        )
    ]
    nodeid = stored.add("long", trace=[*trace, answered("done", 2_500)])
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(nodeid)) as shown:
        assert texts(shown, ".part.trace .bar >> nth=0")[0].startswith("5,001 events, 2,500 tool calls")
        assert shown.page.locator(".events .event").count() == 150
        shown.page.locator(".part.timing").get_by_role("button", name="Show all 2,500").click()
        shown.page.locator(".waterfall tbody tr").last.get_by_role("button").click()
        assert "question 2499" in shown.page.locator(":focus").inner_text()
        assert shown.value("document.querySelectorAll('.events .event').length") == 2_501


def test_of_a_verdict_too_long_for_the_page_every_check_and_score_is_counted(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    checks = [
        CHECKS[0].model_copy(
            update={"check_id": f"c{n}", "outcome": ("failed", "passed")[n % 2], "actual": f"{n} " * 900}
        )
        for n in range(1_000)
    ]
    failed = verdict("failed", checks=checks, metrics=METRICS[:1], judge=judged([3.0]), final_score=3.0)
    nodeid = stored.add(trace=[answered("x", 1.0)], evaluation=failed, outcome="failed", message="check c0: no")
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(nodeid)) as shown:
        assert "Checks 500 of 1,000 checks passed" in texts(shown, ".part.verdicts h3")
        assert shown.page.locator(".checks > li", has_text="c998").count() == 1
        assert texts(shown, ".metrics tbody tr")[0].startswith("token_f1 0.61")
        assert "Judge" in texts(shown, ".part.verdicts h3")[-1]
        assert "undefined" not in shown.page.locator("main").inner_text()


WRONG = ("a text", 7, None, ["x", None, [3]], {"a": {"b": [None]}}, {"cut": 1, "of": 2})


def test_stored_files_of_any_form_are_shown_as_far_as_they_go(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    fields = {
        "artifact": (
            "trace",
            "changes",
            "usage",
            "error",
            "model",
            "request",
            "provider",
            "metadata",
            "output_artifacts",
        ),
        "evaluation": ("checks", "metrics", "judge", "research", "error", "judge_usage"),
    }
    evaluation = verdict(checks=CHECKS, metrics=METRICS, judge=judged([5.0]))
    broken = [(document, name, value) for document, names in fields.items() for name in names for value in WRONG] + [
        ("artifact", "trace", [{"type": kind}]) for kind in ("message", "tool_call", "tool_result", "runner", "x", 3)
    ]
    broken += [("evaluation", "judge", {"iterations": [{"verdict": value}]}) for value in WRONG]
    for at, (document, name, value) in enumerate(broken):
        stored.add(repetition=at + 1, trace=coding_trace(ANSWER), changes=CHANGES, evaluation=evaluation)
        place = stored.output / stored.rows[-1][document]
        place.write_text(json.dumps({**json.loads(place.read_text()), name: value}))
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html") as shown:
        for row, (document, name, value) in zip(stored.rows, broken, strict=True):
            go(shown, row["nodeid"])
            told_of = (document, name, value)
            assert shown.page.locator(".part.stored h2, .part.verdicts h2").count() == 2, told_of
            assert "cannot be read" not in shown.page.locator("main").inner_text(), told_of


def test_missing_parts_are_reported_in_their_place(program, tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    missing, broken, skipped = (stored.add(name, evaluation=verdict()) for name in ("missing", "broken", "skipped"))
    (stored.output / stored.rows[0]["artifact"]).unlink()
    (stored.output / stored.rows[1]["evaluation"]).write_text("{")
    stored.rows[2].update(artifact=None, evaluation=None, outcome="skipped", status=None, usage=None, message="no key")
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    for nodeid, said_of_it in ((missing, f"missing in {stored.output}."), (broken, "broken in"), (skipped, "no key")):
        with opened(program, tmp_path / "report.html", run(nodeid)) as shown:
            assert said_of_it in shown.page.locator("main").inner_text()
            assert shown.page.locator(".part.verdicts").is_visible()
