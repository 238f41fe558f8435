"""What an agent says, and what the file of a dataset calls its cases, steers no terminal and no viewer of reports."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from support.bench import HEAD, case_yaml, check
from support.ci_logs import FORGED, heeded
from support.github_runner import commands

STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\u202edecoy\u2066"
HTML = "</td></system-out>]]><script>alert(1)</script><img src=x onerror=alert(1)> [x](javascript:alert(1)) `code`"
ANSWER = "\n".join([f"{STEERING}{HTML}", *FORGED])

AGENT = (
    HEAD
    + f"""
import logging
ANSWER = {ANSWER!r}

async def agent(case):
    print(ANSWER)
    logging.getLogger("agent").warning(ANSWER)
    if case.case_id == "raises":
        raise RuntimeError(ANSWER)
    if case.case_id == "gives-up":
        return RunOutput(output=ANSWER, status="failed", error=ANSWER, metadata={{ANSWER: ANSWER}})
    return ANSWER
"""
)
_OURS = re.compile(r"\x1b\[[0-9;]*m")  # pytest's colours


@pytest.fixture
def done(bench, monkeypatch):
    monkeypatch.setenv("BUILDKITE", "true")
    bench.write("conftest.py", AGENT)
    for case_id in ("says", "raises", "gives-up"):
        says = check("paris", kind="regex_match", pattern="Paris")
        quotes = check("json", kind="json_path_equals", json_path="$.a", value=1)
        bench.write(f"cases/{case_id}/test.yaml", case_yaml(case_id, deterministic_checks=[says, quotes]))
    bench.write("cases/no-case/test.yaml", {**case_yaml("no-case"), "title": ["\n".join(FORGED)], FORGED[0]: 1})
    row = {"id": f"row{STEERING}{FORGED[0]}<b>", "question": "Which?", "answer": ANSWER}
    bench.write("data/rows.jsonl", json.dumps(row) + "\n")
    done = bench.run("--junit-xml=junit.xml", "-rA", "-v")
    assert sorted(done.outcomes.values()) == ["error", "failed", "failed", "passed"]
    return done


@pytest.mark.slow
def test_nothing_of_it_reaches_the_terminal_as_it_is(done):
    shown = _OURS.sub("", done.text)
    assert "decoy" in shown
    assert not set(shown) & set("\x1b\x07\x08\x9b\r\u202e\u2066")


@pytest.mark.slow
def test_no_ci_takes_a_line_of_it_for_a_command(done):
    shown = _OURS.sub("", done.text)
    assert shown.count("task.setvariable") > 5
    assert "agent:conftest.py" in shown  # its logs are shown, and what it printed
    assert heeded(shown) == []
    assert heeded(shown, buildkite=True) == []
    assert commands(shown) == []


@pytest.mark.slow
def test_reports_are_whole_and_quote_it(done, bench):
    junit = ElementTree.parse(bench.path / "junit.xml")
    text = " ".join(junit.getroot().itertext())
    assert "<script>alert(1)</script>" in text  # as text: there is no such element
    assert {element.tag for element in junit.iter()} <= {
        *("testsuites", "testsuite", "testcase", "properties", "property"),
        *("failure", "error", "skipped", "system-out", "system-err"),
    }
    assert len(done.report["runs"]) == 4


@pytest.mark.slow
def test_summaries_hold_no_mark_that_a_viewer_obeys(done, bench):
    summaries = [path.read_text() for path in bench.path.rglob("summary_*.md")]
    assert len(summaries) >= 2
    for summary in summaries:
        assert not set(summary) & set("\x1b\x07\x08\x9b\r\u202e\u2066")
        assert not re.search(r"(?<!\\)(?:<(?:script|img|b)|\[x\]|`code)", summary)
    assert any("\\<script>" in summary for summary in summaries)
