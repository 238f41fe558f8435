"""A page made of a hostile report, and one that somebody got markup into, in a real browser: nothing of it runs."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

import pytest
from support.browser import NEEDS_BROWSER, new_page
from support.stored_runs import (
    CHANGES,
    CHECKS,
    METRICS,
    StoredRuns,
    answered,
    called,
    coding_trace,
    judged,
    said,
    told,
    verdict,
)

from pytest_agentbench.cli import main
from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.html import placing as chunks
from pytest_agentbench.reports.html.page import live_page, page_data, write_page
from pytest_agentbench.reports.report import build_report, write_report

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

EVIL = (
    "<!--</script></style></title></textarea></noscript><script>window.taken=1</script><img src=x onerror=taken=1>"
    "\x1b]0;taken\x07\u2028\u2029\u202e\ud800\x00{{7*7}}${window.taken=1}]]>&lt;'\"><base href=//127.0.0.1:1/>"
)
KEPT = {
    "nodeid",
    "outcome",
    "model_id",
    "status",
    "kind",
    "type",
    "artifact",
    "evaluation",
    "fingerprint",
    "verdict",
    "source",
}
"""What the rest hangs on, by name."""


def spoiled(value, name=""):
    """Every text of a document is the attack; keys that reach for an object's prototype besides."""
    if isinstance(value, dict):
        more = {"__proto__": {"taken": 1}, "constructor": {"prototype": {"taken": 1}}} if name in FREE else {}
        return {**{key: spoiled(each, key) for key, each in value.items()}, **more}
    if isinstance(value, list):
        return [spoiled(each, name) for each in value]
    return EVIL if isinstance(value, str) and name not in KEPT else value


URLS = (
    "javascript:window.taken=1",
    "\x01javascript:window.taken=1",
    "data:text/html,x",
    "file:///etc/passwd",
    "https:x",
)
FREE = {"metadata", "arguments", "request", "provider"}
"""Objects whose keys anybody may choose."""


def hostile(folder):
    """A report.json as a stranger could hand it over, with stored runs, and the ids of its runs."""
    stored = StoredRuns(folder / "outputs")
    trace = [said("system", "x"), called("t", {"a": "b"}, 1.0, "c1"), told("t", "x", 1.2, "c1"), answered("x", 2.0)]
    given = verdict("failed", checks=CHECKS, metrics=METRICS, judge=judged([3.0, 4.0]), final_score=3.5)
    for repetition in (1, 2):
        stored.add(repetition=repetition, trace=trace, changes=CHANGES, evaluation=given, outcome="failed", message="x")
    for row in stored.rows:
        for path in (row["artifact"], row["evaluation"]):
            place = stored.output / path
            document = spoiled(json.loads(place.read_text()))
            if path == row["evaluation"]:
                document["research"] = {"statements": [{"label": EVIL, "fact": EVIL, "url": url} for url in URLS]}
            place.write_text(json.dumps(document).replace("\\ud800", ""))  # which no stored run holds
    rows = [spoiled(row) for row in stored.rows]
    for row in rows:
        row["fields"] = {"__proto__": EVIL, "constructor": EVIL, EVIL: EVIL}
    report = build_report(rows, spoiled({**stored.report["session"], "warnings": ["x"], "faults": ["x"]}))
    report["comparison"] = spoiled(compare(build_campaign(report, "x"), build_campaign(report)).as_dict(), "comparison")
    write_report(report, stored.output / "report.json")
    return stored.output, [row["nodeid"] for row in rows]


def test_a_report_of_a_stranger_is_only_text_in_every_view(program, tmp_path):
    output, (first, second) = hostile(tmp_path)
    page = tmp_path / "page.html"
    assert main(["report", str(output), "--html", str(page)]) == 0
    assert "window.taken" not in page.read_text()
    views = [f"#/{name}" for name in ("summary", "results", "comparison", "session")]
    pair = f"#compare={quote(first, safe='')}&with={quote(second, safe='')}"
    case = f"#case={quote(first.rpartition('[')[0], safe='')}"
    seen = ""
    with new_page(program) as shown:
        for fragment in (*views, f"#run={quote(first, safe='')}", pair, case):
            shown.open("about:blank")
            shown.open(page, fragment)
            shown.page.locator("main h1").wait_for(state="attached")
            shown.page.locator("main [aria-busy]").wait_for(state="detached")
            shown.value("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            hrefs = shown.value("[...document.querySelectorAll('main a')].map((each) => each.getAttribute('href'))")
            assert [href for href in hrefs if not href.startswith(("#", "./"))] == []
            assert shown.value(
                "[window.taken, {}.taken, document.querySelectorAll('main :is(img, script, base)').length]"
            ) == [
                None,
                None,
                0,
            ]
            assert not {"\x1b", "\x07", "\x00", "\u202e", "\u2028"} & set(shown.page.content())
            seen += shown.page.locator("main").inner_text()
            assert [url for url in shown.requests if not url.startswith(page.as_uri())] == []
        assert shown.complaints == []
    assert "cannot be read" not in seen
    assert "javascript:window.taken=1" in seen


GOT_IN = """async (elsewhere) => {
  window.taken = [];
  const put = (html) => document.body.insertAdjacentHTML("beforeend", html);
  const attempt = async (act) => { try { await act(); } catch (error) { /* refused */ } };
  put(`<img src="${elsewhere}/image" onerror="taken.push('handler')"><svg onload="taken.push('svg')"></svg>`);
  put(`<details open ontoggle="taken.push('toggle')"></details><video src="${elsewhere}/video"></video>`);
  put(`<iframe srcdoc="<script>parent.taken.push('srcdoc')</` + `script>"></iframe>`);
  put(`<iframe src="${elsewhere}/frame"></iframe><base href="${elsewhere}/">`);
  put(`<object data="${elsewhere}/object"></object><embed src="${elsewhere}/embed">`);
  put(`<link rel="stylesheet" href="${elsewhere}/style"><style>body { --taken: 1 }</style>`);
  put(`<p id="red" style="color: red">.</p>`);
  put(`<a id="link" href="javascript:taken.push('link')">.</a><form id="form" action="${elsewhere}/form"></form>`);
  document.getElementById("link").click();
  document.getElementById("form").submit();
  const script = (name, value) =>
    document.head.append(Object.assign(document.createElement("script"), { [name]: value }));
  script("textContent", "taken.push('inline')");
  script("src", "data:text/javascript,taken.push('data')");
  script("src", `${elsewhere}/script.js`);
  await attempt(() => fetch(`${elsewhere}/fetch`, { mode: "no-cors" }));
  await attempt(() => navigator.sendBeacon(`${elsewhere}/beacon`, "x"));
  await attempt(() => new EventSource(`${elsewhere}/events`));
  await attempt(() => new WebSocket(elsewhere.replace("http", "ws")));
  await attempt(() => new Worker(URL.createObjectURL(new Blob([`fetch("${elsewhere}/worker")`]))));
  setTimeout(() => attempt(() => eval("taken.push('eval')")));
  await new Promise((done) => setTimeout(done, 300));
  if (getComputedStyle(document.body).getPropertyValue("--taken")) taken.push("style");
  if (getComputedStyle(document.getElementById("red")).color === "rgb(255, 0, 0)") taken.push("attribute");
  if (document.baseURI.startsWith(elsewhere)) taken.push("base");
  return taken;
}"""
"""What somebody does who got markup into the page all the same; gives what of it came through."""


@pytest.mark.parametrize("kind", ["embedded", "chunks", "live"])
@pytest.mark.parametrize("scheme", ["file", "http"])
def test_markup_that_got_in_runs_loads_and_sends_nothing(program, tmp_path, monkeypatch, scheme, kind):
    if kind == "chunks":
        monkeypatch.setattr(chunks, "EMBEDDED", 100)
    stored = StoredRuns(tmp_path / "outputs")
    stored.add(trace=coding_trace("x"))
    page = tmp_path / "page.html"
    write_page(stored.report, page, output=stored.output)
    if kind == "live":
        page.write_text(live_page())
        (tmp_path / "data.json").write_text(json.dumps(page_data(stored.report)))
    with served(tmp_path) as (here, _), served(tmp_path) as (elsewhere, asked), new_page(program) as shown:
        shown.open(page if scheme == "file" else f"{here}/page.html")
        shown.page.locator("main h1").wait_for()
        assert shown.value(f"({GOT_IN})({json.dumps(elsewhere)})") == []
        assert asked == []


@contextmanager
def served(folder):
    """A server of files on loopback: its address, and the paths that it is asked for."""
    asked = []

    class Told(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(urlsplit(self.path).path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Told, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
