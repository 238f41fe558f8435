"""The page of `agentbench watch` in a real browser, while a session goes on."""

from __future__ import annotations

import functools
import http.server
import json
import threading

import pytest
from support.browser import NEEDS_BROWSER, browser, new_page
from support.watching import BEGUN, SPENT, row, watching

from pytest_agentbench.reports.journal import Journal
from pytest_agentbench.reports.report import build_report

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

EVIL = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>\u202eevil\x1b[31m"


@pytest.fixture(scope="module")
def program():
    with browser() as started:
        yield started


@pytest.fixture
def watched(tmp_path, program):
    """A page that watches the folder `outputs`."""
    with watching(tmp_path / "outputs") as found, new_page(program) as shown:
        shown.open(found.url)
        yield shown
        asked = {address.partition("?")[0].removeprefix(found.url) for address in shown.requests}
        assert asked <= {"", "data.json", "run.json"}, "asked for nothing but its own"
        assert shown.complaints == []


def heading(shown, text: str):
    """Wait for the line with the session's progress."""
    shown.page.locator("#progress", has_text=text).wait_for(timeout=30_000)


def test_a_session_is_seen_from_before_its_start_to_its_end_and_again(watched, tmp_path):
    output = tmp_path / "outputs"
    heading(watched, "waiting for a session that writes to")
    journal = Journal(output, BEGUN, pytest.fail)
    journal.plan(3)
    journal.progress(0, 2, ["one[gpt]", "two[gpt]"])
    heading(watched, "running: 0 of 3 runs, 2 in flight")
    watched.page.get_by_text("2 runs under way").click()
    watched.page.get_by_text("two[gpt]").wait_for()
    journal.row(row("one"), 0, SPENT)
    heading(watched, "running: 1 of 3 runs")
    watched.page.get_by_text("1 run of ").wait_for()
    assert watched.page.get_by_text("two[gpt]").is_visible(), "what was opened stays open"
    journal.close()
    heading(watched, "killed when 1 of 3 runs were reported")
    again = Journal(output, BEGUN, pytest.fail)
    again.plan(2)
    rows = [row("one"), row("two", "failed", "no Paris")]
    for at, each in enumerate(rows):
        again.row(each, at, SPENT)
    heading(watched, "running: 2 of 2 runs")
    again.end(build_report(rows, {**BEGUN, "exit_status": 1}, SPENT))
    heading(watched, "ended with exit status 1: 2 runs")
    assert watched.page.locator("progress").count() == 0


def test_other_views_follow_too(watched, tmp_path):
    journal = Journal(tmp_path / "outputs", BEGUN, pytest.fail)
    journal.plan(3)
    journal.row(row("one"), 0, SPENT)
    heading(watched, "running")
    watched.page.get_by_role("link", name="Results").click()
    watched.page.get_by_text("one", exact=True).first.wait_for()
    journal.row(row("two", "failed", "no Paris"), 1, SPENT)
    watched.page.get_by_text("no Paris").first.wait_for(timeout=30_000)
    journal.close()


def test_the_focus_and_the_position_stay_while_the_session_runs(watched, tmp_path):
    journal = Journal(tmp_path / "outputs", BEGUN, pytest.fail)
    journal.plan(5)
    journal.row(row("one"), 0, SPENT)
    page = watched.page
    page.set_viewport_size({"width": 1280, "height": 300})
    page.locator("table.models").wait_for()
    page.locator("table.models a").first.focus()
    page.evaluate("scrollTo(0, 100)")
    journal.row(row("two", "failed", "no Paris"), 1, SPENT)  # brings a section of its own
    page.get_by_text("2 runs of ").wait_for()
    assert page.evaluate("document.activeElement.closest('table')?.className") == "models"
    assert page.evaluate("scrollY") == 100
    page.get_by_role("link", name="Results").click()
    page.locator("#pick-sort").focus()
    journal.row(row("three"), 2, SPENT)
    page.locator(".told", has_text="3 cases").wait_for()
    assert page.evaluate("document.activeElement.id") == "pick-sort"
    journal.close()


def test_a_run_is_opened_while_the_session_goes_on(watched, tmp_path):
    output = tmp_path / "outputs"
    journal = Journal(output, BEGUN, pytest.fail)
    artifact = "runs/suit_default/run_profile_1/gpt/one/run_1.json"
    (output / artifact).parent.mkdir(parents=True)
    (output / artifact).write_text(
        json.dumps(
            {
                "run_id": "r",
                "status": "success",
                "trace": [{"type": "final_output", "sequence": 0, "at": 0.1, "content": f"The answer: {EVIL}"}],
            }
        )
    )
    journal.plan(1)
    journal.row(row("one", "failed", EVIL, artifact=artifact), 0, SPENT)
    heading(watched, "running")
    watched.page.evaluate("location.hash = new URLSearchParams({run: 'cases/t.yaml::one[gpt]'})")
    watched.page.get_by_text("The answer: <img src=x").first.wait_for(timeout=30_000)
    assert watched.page.title() != "owned"
    assert watched.page.locator("main img").count() == 0
    journal.close()


def test_two_sessions_can_be_chosen(watched, tmp_path):
    first, second = (Journal(tmp_path / "outputs", BEGUN, pytest.fail) for _ in range(2))
    first.plan(7)
    second.plan(9)
    heading(watched, "running: 0 of 9 runs")
    links = watched.page.get_by_role("navigation", name="Sessions of this output folder").get_by_role("link")
    assert links.count() == 2
    watched.page.goto(watched.page.url.split("#")[0] + links.nth(1).get_attribute("href").removeprefix("/"))
    heading(watched, "running: 0 of 7 runs")
    watched.requests.clear()
    first.close()
    second.close()


READING = """async (watched) => {
  const got = [];
  const attempt = async (name, act) => {
    const read = await Promise.race([act().catch(() => null), new Promise((done) => setTimeout(done, 700, null))]);
    if (read) got.push([name, read]);
  };
  const loads = (tag, props) => new Promise((done, failed) => {
    const element = Object.assign(document.createElement(tag), props);
    Object.assign(element, { onload: () => done("loaded"), onerror: failed });
    document.body.append(element);
  });
  for (const path of ["/", "/data.json", "/run.json?nodeid=x"]) {
    const url = watched + path;
    await attempt(`fetch ${path}`, async () => (await fetch(url)).text());
    await attempt(`blind fetch ${path}`, async () => (await fetch(url, { mode: "no-cors" })).text());
    await attempt(`with cookies ${path}`, async () => (await fetch(url, { credentials: "include" })).text());
    await attempt(`script ${path}`, () => loads("script", { src: url }));
    await attempt(`image ${path}`, () => loads("img", { src: url }));
    await attempt(`style ${path}`, () => loads("link", { rel: "stylesheet", href: url }));
    await attempt(`frame ${path}`, async () => {
      const frame = Object.assign(document.createElement("iframe"), { src: url });
      await new Promise((done) => { frame.onload = done; document.body.append(frame); });
      return frame.contentDocument?.body?.innerText;
    });
    await attempt(`events ${path}`, () => new Promise((done) => { new EventSource(url).onmessage = done; }));
    const socket = url.replace("http", "ws");
    await attempt(`socket ${path}`, () => new Promise((done) => { new WebSocket(socket).onopen = done; }));
    await attempt(`window ${path}`, async () => {
      const other = open(url);
      await new Promise((done) => setTimeout(done, 300));
      const read = other.document?.body?.innerText;
      other.close();
      return read;
    });
  }
  return got;
}"""
"""Return the data that a page of another origin can read in the browser of a user who watches."""


def test_a_page_of_another_origin_reads_nothing(program, tmp_path):
    (tmp_path / "page.html").write_text("<!doctype html><title>elsewhere</title><body>")
    with watching(tmp_path / "outputs") as found, new_page(program) as shown:
        journal = Journal(tmp_path / "outputs", BEGUN, print)
        journal.row(row("one"), 0, SPENT)
        with http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
        ) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            try:
                for place in (f"http://127.0.0.1:{server.server_port}/page.html", tmp_path / "page.html"):
                    shown.open(place)
                    assert shown.value(f"({READING})({json.dumps(found.url.rstrip('/'))})") == []
            finally:
                server.shutdown()
                thread.join()
        journal.close()


def test_it_reads_on_a_phone_and_in_the_dark(program, tmp_path):
    journal = Journal(tmp_path / "outputs", BEGUN, pytest.fail)
    journal.plan(300)
    journal.progress(
        12, 30, (f"a-case-with-quite-a-long-name-{number}[some-vendor/some-model]" for number in range(30))
    )
    journal.row(row("x" * 200, "failed", "y" * 500), 0, SPENT)
    with (
        watching(tmp_path / "outputs") as found,
        new_page(program, width=360, height=740, color_scheme="dark") as shown,
    ):
        shown.open(found.url)
        heading(shown, "running: 12 of 300 runs")
        shown.page.get_by_text("30 runs under way").click()
        shown.page.get_by_text("and 10 more").wait_for()
        assert not shown.scrolls_sideways()
    journal.close()


def test_the_page_reports_a_lost_and_a_restored_server(program, tmp_path):
    with new_page(program) as shown:
        with watching(tmp_path / "outputs") as found:
            shown.open(found.url)
            heading(shown, "waiting")
        gone = shown.page.get_by_text("agentbench watch does not answer")
        gone.wait_for(timeout=30_000)
        with watching(tmp_path / "outputs", found.port):
            gone.wait_for(state="detached", timeout=30_000)
            assert "waiting" in shown.page.locator("#status").inner_text()
