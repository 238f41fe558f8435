"""Sessions in CI: what GitHub, GitLab and Jenkins get to see, whatever agents say."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest
from support.github_runner import commands

from conftest import HEAD

COMMAND = "::set-output name=x::y"
ATTACK = (
    f"\n{COMMAND}\n   ::error::forged\n##[add-mask]a\r::stop-commands::b\n]]></failure>\x00\x1b[31m\ud800\ufffe @team"
)
AGENT = (
    HEAD
    + f"""
ATTACK = {ATTACK!r}

async def agent(case):
    print(ATTACK)
    if case.case_id == "skips":
        pytest.skip(ATTACK)
    if case.case_id == "breaks":
        raise RuntimeError(ATTACK)
    return ATTACK * int(case.metadata.get("times", 1)) if case.case_id == "fails" else "Paris"
"""
)
LEGAL = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


@pytest.fixture
def project(bench):
    bench.agent(AGENT)
    for case_id in ("passes", "fails", "breaks", "skips"):
        bench.case(case_id)
    return bench


@pytest.fixture
def github(project, monkeypatch):
    """A job of GitHub Actions; its step's summary."""
    summary = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path))
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/bench")
    monkeypatch.setenv("GITHUB_SHA", "abc")
    return summary


@pytest.mark.parametrize("args", [(), ("-rA", "-v"), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_a_job_of_github_gets_annotations_and_a_summary_and_no_other_command(project, github, args):
    finished = project.run(*args)
    found = commands(finished.text)
    assert [(each.name, each.properties.get("file"), each.properties.get("line")) for each in found] == [
        ("error", "cases/fails/test.yaml", "1"),
        ("error", "cases/breaks/test.yaml", "1"),
    ]
    assert found[0].properties["title"] == "fails failed on agent"
    text = github.read_text(encoding="utf-8")
    assert "❌ agentbench: 4 runs: 1 passed, 1 failed, 1 skipped, 1 error" in text
    assert "https://github.com/me/bench/blob/abc/cases/fails/test.yaml#L1" in text
    assert "@team" not in text
    assert finished.exit == 1


def test_elsewhere_nothing_of_it_is_there(project, github, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS")
    finished = project.run()
    assert not github.exists()
    assert "::error file" not in finished.text
    assert finished.runs["fails[agent]"]["line"] == 1


def test_a_dry_run_tells_github_nothing(project, github):
    project.run("--agentbench-dry-run")
    assert not github.exists()


def test_a_summary_that_cannot_be_written_is_a_warning_and_the_report_is_kept(project, github, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "nowhere" / "summary.md"))
    finished = project.run("-k", "passes")
    assert finished.exit == 1
    assert "the job summary cannot be written" in finished.text
    assert finished.outcomes == {"passes[agent]": "passed"}


def test_a_chart_is_written_at_the_end(project):
    project.run("--agentbench-chart", "out/chart.png", "-k", "passes")
    assert (project.path / "out" / "chart.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_chart_without_its_library_is_refused_before_anything_runs(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    finished = project.run("--agentbench-chart", "chart.png")
    assert (finished.exit, finished.report) == (4, None)
    assert "--agentbench-chart: chart.png needs the module vl_convert; install it with: pip install" in finished.text


# -- JUnit: what GitLab and Jenkins read is pytest's own file


@pytest.fixture
def junit(project):
    project.run("--junit-xml=junit.xml", "--agentbench-repetitions", "2")
    return project.path / "junit.xml"


def test_junit_is_xml_that_any_parser_takes(junit):
    text = junit.read_bytes().decode("utf-8")
    assert LEGAL.fullmatch(text)
    ElementTree.fromstring(text)


def test_jenkins_and_gitlab_find_what_they_read(junit):
    """Jenkins' JUnit plugin and GitLab: name, classname and time of each test case; one failure, error or skip in it
    with a text; counts that add up; no two test cases of the same name, of which GitLab drops all but one."""
    (suite,) = ElementTree.parse(junit).getroot().iter("testsuite")
    cases = list(suite.iter("testcase"))
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(names) == len(set(names)) == int(suite.get("tests", 0)) == 8
    assert all(all(name) for name in names)
    ends = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    for tag, attribute in ends.items():
        assert int(suite.get(attribute, -1)) == sum(case.find(tag) is not None for case in cases) > 0
    for case in cases:
        assert float(case.get("time", "none")) >= 0
        found = [child for child in case if child.tag in ends]
        assert len(found) <= 1
        assert all(child.get("message") for child in found)
        assert [child.tag for child in case].count("properties") == 1


def test_properties_of_junit_are_short(project):
    project.case("huge", metadata={"times": 200_000})
    project.run("--junit-xml=junit.xml")
    root = ElementTree.parse(project.path / "junit.xml").getroot()
    for found in root.iter("property"):
        assert found.get("name", "").startswith("agentbench.")
        assert len(found.get("value", "")) < 300
    assert (project.path / "junit.xml").stat().st_size < 100_000
