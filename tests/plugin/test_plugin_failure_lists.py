"""The end of a session with many failures: pytest's own lists are short, and everything else has every failure."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from support.bench import ECHO

PLAIN = "import pytest\n\n@pytest.mark.parametrize('n', range({count}))\ndef test_plain(n):\n    assert n < 0\n"
LOUD = ECHO + "\n@pytest.fixture(autouse=True)\ndef loud(request):\n    yield\n    print('tore', request.node.name)\n"
LOOK = (
    ECHO
    + """
def count(reporter):
    return {name: len(reports) for name, reports in reporter.stats.items()}

@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter):
    print("before", count(terminalreporter))
    yield
    print("after", count(terminalreporter))

class Plugin:
    def pytest_terminal_summary(self, terminalreporter):
        print("within", count(terminalreporter))

def pytest_configure(config):
    config.pluginmanager.register(Plugin())
"""
)
INTERRUPT = (
    ECHO
    + """
def pytest_terminal_summary():
    raise KeyboardInterrupt
"""
)


def headings(text: str) -> list[str]:
    """The case ids that pytest lists whole, in its order."""
    return re.findall(r"^_+ (?:ERROR at \w+ of )?many\.jsonl: (?:cases/)?many\.(\w+)\[agent\] _+$", text, re.MULTILINE)


@pytest.mark.parametrize("args", [(), ("-q",), ("-vv",), ("--tb=short",), ("-rA",), ("-n2",)], ids=" ".join)
@pytest.mark.slow
def test_many_failures_are_shown_by_the_first_and_by_groups(bench, args):
    bench.agent(LOUD)
    bench.questions(210, answer="Rome")
    bench.write("test_plain.py", PLAIN.format(count=3))
    finished = bench.run("-p", "no:cacheprovider", "--junit-xml=junit.xml", *args)
    shown = headings(finished.text)
    assert len(shown) == 50
    if "-n2" not in args:
        assert shown == [f"q{number}" for number in range(50)]
    assert finished.text.count("tore cases/many.q") == 50
    assert finished.text.count("_ test_plain[") == 3  # tests that are no cases are all shown
    assert re.search(r"^ +160 x \[<lambda>\] metric exact_match: ", finished.text, re.MULTILINE)
    assert "213 failed" in finished.text  # pytest's own count
    assert finished.report["totals"]["failed"] == 210
    cases = ElementTree.parse(bench.path / "junit.xml").getroot().iter("testcase")
    failures = [node.text for case in cases for node in case.iter("failure")]
    assert len(failures) == 213
    assert all(failures)


@pytest.mark.parametrize("style", ["no", "line"])
def test_the_bound_holds_in_every_style_of_traceback(bench, style):
    bench.agent()
    bench.questions(5, answer="Rome")
    bench.write("test_plain.py", PLAIN.format(count=3))
    text = bench.run(f"--tb={style}", "-rf", "--agentbench-show-failures=2").text
    assert len(re.findall(r"^FAILED .*many\.q", text, re.MULTILINE)) == 2
    assert len(re.findall(r"^FAILED test_plain", text, re.MULTILINE)) == 3
    assert "    3 x [<lambda>] metric exact_match: " in text


@pytest.mark.parametrize("page", [(), pytest.param(("--agentbench-html=page.html",), marks=pytest.mark.slow)])
@pytest.mark.parametrize(("number", "shown"), [("0", 0), ("2", 2), ("all", 5), (None, 5)])
def test_an_option_says_how_many_failures_are_shown(bench, number, shown, page):
    bench.agent()
    bench.questions(5, answer="Rome")
    if number is not None:
        bench.write("pytest.ini", f"[pytest]\nagentbench_show_failures = {number}\n")
    text = bench.run(*page).text
    assert len(headings(text)) == shown
    assert ("--agentbench-show-failures all" in text) == (shown < 5)
    if shown < 5:
        before, _, after = text.partition("= FAILURES =" if shown else "further failures")
        assert "exit status 1" in before
        for path in (bench.path / "outputs" / "report.json", *([bench.path / "page.html"] if page else [])):
            assert str(path) in before
            assert str(path) in after


def test_errors_beyond_the_bound_are_grouped_like_failures(bench):
    bench.agent(
        ECHO.replace('lambda case: case.metadata.get("says", "Paris")', "fail")
        + "\ndef fail(case):\n    raise RuntimeError('broken ' + 'abc'[int(case.case_id[-1]) % 3])\n"
    )
    bench.questions(6)
    bench.profile("loose")
    text = bench.run("--agentbench-run-profile=loose", "--agentbench-show-failures=1").text
    assert len(headings(text)) == 1
    assert "and 1 more with the same error" in text  # equal errors are shown once
    assert text.count("    2 x [fail] RuntimeError: broken ") == 2
    assert "6 errors" in text


def test_a_value_that_is_no_number_of_failures_is_refused(bench):
    finished = bench.run("--agentbench-show-failures=some")
    assert "found 'some', expected a whole number or all" in finished.text


def test_other_plugins_see_every_report(bench):
    bench.agent(LOOK)
    bench.agent(LOOK.replace("def agentbench_runner", "def unused"), folder="cases")
    bench.questions(5, answer="Rome")
    text = bench.run("--agentbench-show-failures=2").text
    for place in ("before", "within", "after"):
        assert f"{place} {{'': 10, 'failed': 5}}" in text
    assert "'failed': 2" not in text


def test_ctrl_c_while_failures_are_printed_keeps_the_verdict(bench):
    bench.agent(INTERRUPT)
    bench.questions(5, answer="Rome")
    finished = bench.run("--agentbench-fail-under=0.5")
    assert finished.exit == 1
    assert "gate failed" in finished.text
    assert "exit status 1" in finished.text
    assert "printing was interrupted" in finished.text
