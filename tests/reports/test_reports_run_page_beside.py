"""Details of runs that are too many for the page: scripts beside it, loaded when a run is opened."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from urllib.parse import quote

import pytest
from support.browser import NEEDS_BROWSER, new_page
from support.run_pages import go, opened, ready, run
from support.stored_runs import StoredRuns, coding_trace

from pytest_agentbench.reports.html import placing as chunks
from pytest_agentbench.reports.html.page import write_page

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside")
    stored = StoredRuns(folder / "outputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "EMBEDDED", 1_000)
        patch.setattr(chunks, "CHUNK", 10_000)
        for number in range(30):
            stored.add(repetition=number + 1, trace=coding_trace(f"answer number {number}"))
        write_page(stored.report, folder / "the report.html", output=stored.output)
    return folder / "the report.html", [row["nodeid"] for row in stored.rows]


def assert_loads_on_demand(shown, ids):
    def loaded():
        return [url for url in shown.requests if url.endswith(".js")]

    assert len(loaded()) == 1
    for at in (29, 0, 15):
        go(shown, ids[at])
        assert f"answer number {at}" in shown.page.locator(".answer-box").inner_text()
    assert 2 <= len(loaded()) <= 4


def test_a_page_that_is_a_file_loads_details_on_demand(program, beside):
    path, ids = beside
    with opened(program, path, run(ids[0])) as shown:
        assert_loads_on_demand(shown, ids)


def test_a_page_that_is_served_loads_details_on_demand(program, beside):
    path, ids = beside
    handler = functools.partial(Quiet, directory=str(path.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            place = f"http://127.0.0.1:{server.server_port}/{quote(path.name)}"
            with opened(program, place, run(ids[0])) as shown:
                assert_loads_on_demand(shown, ids)
        finally:
            server.shutdown()
            thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Says nothing."""


def test_details_that_were_not_copied_along_are_named(program, beside, tmp_path):
    path, ids = beside
    (tmp_path / "copy.html").write_bytes(path.read_bytes())
    with new_page(program) as shown:
        shown.open(tmp_path / "copy.html", run(ids[3]))
        ready(shown)
        body = shown.page.locator("main").inner_text()
        assert re.search(r"the report\.html_files/runs-[0-9a-f]{16}\.js is missing beside this page", body)
        assert "--agentbench-no-reuse" in body
