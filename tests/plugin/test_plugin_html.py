from __future__ import annotations

import base64
import gzip
import json
import re

import pytest

pytestmark = pytest.mark.slow


def data_of(path):
    """What the page's script reads."""
    (packed,) = re.findall(r'<script type="text/plain" id="data">([^<]*)</script>', path.read_text(encoding="utf-8"))
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_session_writes_the_page_of_its_report(bench, workers):
    bench.agent()
    bench.case("paris")
    bench.case("rome", metadata={"says": "Rome"})
    finished = bench.spawn("cases", "--agentbench-html", "pages/report.html", *workers)
    shown = data_of(bench.path / "pages" / "report.html")
    assert finished.exit == 1
    assert shown["report"]["totals"] == finished.report["totals"]
    assert [row["nodeid"] for row in shown["report"]["runs"]] == [row["nodeid"] for row in finished.report["runs"]]
    assert shown["report"]["session"]["project"] == bench.path.name
    assert f"<title>{bench.path.name}</title>" in (bench.path / "pages" / "report.html").read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_costs_neither_report_nor_verdict(bench):
    bench.agent()
    bench.case("paris")
    bench.write("pages", "a file")
    finished = bench.run("cases", "--agentbench-html", "pages/report.html")
    assert list(finished.outcomes.values()) == ["passed"]
    assert finished.exit == 1
    assert "pages/report.html: cannot be written" in finished.text


def test_a_dry_run_and_a_session_without_cases_write_no_page(bench):
    bench.agent()
    bench.case("paris")
    bench.write("test_other.py", "def test_other():\n    pass\n")
    bench.run("cases", "--agentbench-dry-run", "--agentbench-html", "report.html")
    bench.run("test_other.py", "--agentbench-html", "report.html")
    assert not (bench.path / "report.html").exists()
